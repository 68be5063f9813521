"""The epochs of a trial: from its beginning, or from where it was saved."""

from __future__ import annotations

import hashlib
import io
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from ....errors import InputError, ParameterError, SoftkneeError, need_package
from ....measure import (
    HardnessProfile,
    SiteActivity,
    SiteEntropy,
    accuracy,
    activity,
    auc,
    entropies,
    expected_calibration_error,
    hardness_profile,
    log_loss,
    mse,
    psnr,
    r2,
    ssim,
)
from ....surgery.hardening import hard_module
from ....surgery.hardening.hardener import read_schedule
from ....surgery.hardening.sites import HardeningSite, Knobs, choose_sites
from ....surgery.hardening.targets import by_tolerance, free_steps
from ....surgery.modules import activation_modules
from ....train import OneByOne, Replicas, constant, cosine, linear, step
from ....train.schedules import Schedule
from ....train.streamed import Streamed
from ....version import VERSION
from ...bench.clock import matmul_precision
from ..recipe import Hardening, Training
from ..trial import Trial
from ..trials import Curve, Each

REGRESSION = "regression"
_AT_ONCE = 16_384  # examples on a disk whose outputs are held at once: 1,000 classes and 3 models take 200 MB


def spread_out(values: Sequence[float], rows: Sequence[int], count: int) -> Each:
    """The values of some seeds in the places of all; None elsewhere, and for what is no finite number."""
    spread: list[float | None] = [None] * count
    for row, value in zip(rows, values, strict=True):
        spread[row] = float(value) if abs(value) < float("inf") else None
    return tuple(spread)


def finite_rows(outputs: Tensor) -> Tensor:
    """Which models have finite numbers alone in a tensor [M, ...]; [M] on the CPU."""
    return outputs.reshape(len(outputs), -1).isfinite().all(dim=1).cpu()


def logits_of(outputs: Tensor) -> Tensor:
    """[M, N, L]; one output is the log-odds of label 1 of two."""
    outputs = outputs.unsqueeze(2) if outputs.dim() == 2 else outputs
    return torch.cat([torch.zeros_like(outputs), outputs], dim=2) if outputs.shape[2] == 1 else outputs


def probabilities_of(outputs: Tensor) -> Tensor:
    """[M, N, L] in float32: softmax in float64, rounded once."""
    return logits_of(outputs).double().softmax(dim=2).float()


def judge(
    outputs: Tensor,
    truth: Tensor,
    *,
    task: str,
    rows: Sequence[int],
    calibration: bool = False,
    picture: tuple[int, int] | None = None,
) -> dict[str, Each]:
    """The scores of outputs [M, N, ...] against N labels or targets, for the models in `rows`.

    picture: height and width, where the targets are the pixels of one, row by row: then its likeness is judged too.
    """
    count, chosen = len(outputs), list(rows)
    if not chosen:
        quantities = ["mse", "r2", *(["psnr", "ssim"] if picture else [])]
        return dict.fromkeys(quantities if task == REGRESSION else ["accuracy", "log_loss"], (None,) * count)
    if task == REGRESSION:
        numbers = outputs[chosen].reshape(len(chosen), *truth.shape)
        scores = {"mse": mse(numbers, truth), "r2": r2(numbers, truth)}
        if picture is not None:
            drawn, wanted = numbers.reshape(-1, *picture), truth.reshape(picture)
            scores |= {"psnr": psnr(drawn, wanted), "ssim": ssim(drawn, wanted)}
    else:
        logits, labels = logits_of(outputs[chosen]), truth.to(outputs.device).long().flatten()
        scores = {"accuracy": accuracy(logits, labels, logits=True), "log_loss": log_loss(logits, labels, logits=True)}
        if logits.shape[2] == 2 and len(labels.unique()) == 2:  # of one label alone there is no order
            scores["auc"] = auc(logits, labels, logits=True)
        if calibration:
            scores["calibration_error"] = expected_calibration_error(logits, labels, logits=True)
    return {name: spread_out(score.each, chosen, count) for name, score in scores.items()}


def judge_on_disk(
    predict: Callable[[Tensor], Tensor], x: Streamed, labels: Tensor, *, rows: Sequence[int]
) -> tuple[dict[str, Each], list[int]]:
    """Accuracy and log loss on all examples of a disk, and which of the models in `rows` gave a number that is not
    finite.

    A part of the examples after the other, whose means are weighed by their numbers: what the models say of all of
    ImageNet would not fit into a memory. AUC is no mean of parts, and is left out.
    """
    alive, sums, count = list(rows), {}, 0
    for first in range(0, len(x), _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        outputs = predict(cast(Tensor, x.part(part)))
        count, fine = len(outputs), finite_rows(outputs)
        alive = [row for row in alive if fine[row]]
        scores = judge(outputs, labels[part], task="classification", rows=alive)
        for name in ("accuracy", "log_loss"):
            sums.setdefault(name, []).append((len(labels[part]), scores[name]))
    means = {name: _joined(parts, alive, count) for name, parts in sums.items()}
    return means, [row for row in rows if row not in alive]


def _joined(parts: Sequence[tuple[int, Each]], rows: Sequence[int], count: int) -> Each:
    """Means of parts of so many examples as the mean of all; None where a part has none."""
    if len(parts) == 1:
        return parts[0][1]
    total = sum(many for many, _ in parts)
    each = [math.fsum(many * _count(values[row], math.inf) for many, values in parts) / total for row in rows]
    return spread_out(each, rows, count)


Save = Callable[[], bytes]
Trainer = Replicas | OneByOne


class Interrupted(SoftkneeError):
    """A trial was asked to stop; what was saved of it last is where it goes on."""


class Watch(Protocol):
    """What a trial calls while it runs."""

    def step(self) -> None:
        """After every training step. May raise `Interrupted`: the step is done, and no other follows."""
        ...

    def epoch(self, done: int, total: int, save: Save) -> None:
        """After every epoch. `save()` gives the whole state of the trial, for `run_trial(saved=...)`."""
        ...


class _Quiet:
    def step(self) -> None: ...

    def epoch(self, done: int, total: int, save: Save) -> None: ...


QUIET: Watch = _Quiet()


Stacked = dict[str, Tensor]  # "path.knob" to its values, [M, ...], in float64


class StackedHardening:
    """Call `prepare(trainer, epoch, alive)` before each epoch, from 1 on.

    last_free: the last epoch in which the knobs are learned like any parameter.
    begin, targets: of each knob where it was frozen and where it ends; empty before that.
    """

    def __init__(self, trainer: Trainer, *, total: int, settings: Hardening) -> None:
        self.total, self.tolerance = total, settings.tolerance
        self.last_free = free_steps("start", settings.start, total)
        self.schedule = read_schedule("linear")
        self.begin: Stacked = {}
        self.targets: Stacked = {}
        self.names: list[str] = []
        for site in choose_sites(trainer.model(0), None):
            # What cannot be hardened or replaced is said now, and not after a quarter of the training or at its end.
            _target(site, self.tolerance)
            hard_module(site.module)
            self.names += [f"{site.path}.{knob}" if site.path else knob for knob in site.knobs]

    def prepare(self, trainer: Trainer, epoch: int, alive: Sequence[int]) -> None:
        """Set the knobs for that epoch; before the first one that is not free, freeze them."""
        if epoch <= self.last_free:
            return
        if not self.begin:
            self._freeze(trainer, alive)
        trainer.set_knobs(self.at(epoch))

    def at(self, epoch: int) -> Stacked:
        """The knobs that epoch `epoch` trains with."""
        progress = (epoch - self.last_free) / (self.total - self.last_free)
        return {name: self.schedule.between(begin, self.targets[name], progress) for name, begin in self.begin.items()}

    def _freeze(self, trainer: Trainer, alive: Sequence[int]) -> None:
        begin: dict[str, list[Tensor]] = {name: [] for name in self.names}
        targets: dict[str, list[Tensor]] = {name: [] for name in self.names}
        for index in range(trainer.count):
            # A seed that diverged has no knobs to start from; it takes those of another, and nobody looks at it.
            model = trainer.model(index if index in alive else alive[0])
            for site in choose_sites(model, None):
                for knobs, values in ((begin, site.now()), (targets, _target(site, self.tolerance))):
                    for knob, value in values.items():
                        knobs[f"{site.path}.{knob}" if site.path else knob].append(value)
        self.begin, self.targets = (
            {name: torch.stack(each) for name, each in knobs.items()} for knobs in (begin, targets)
        )
        trainer.freeze_knobs(self.names)

    def state(self) -> dict[str, Any]:
        """What going on needs, beside the state of the trainer."""
        return {"begin": dict(self.begin), "targets": dict(self.targets)}

    def load(self, state: Mapping[str, Any]) -> None:
        self.begin, self.targets = dict(state["begin"]), dict(state["targets"])


def _target(site: HardeningSite, tolerance: float) -> Knobs:
    now, targets = site.now(), by_tolerance(site, tolerance)
    for name, value in targets.items():
        site.check(name, value[value != now[name]])
    return targets


MOST_EXAMPLES = 2048  # that the activity is looked at on: enough for a share of zeros, and quick
_SITES_AT_ONCE = 256  # of those that are read from a disk, which are large
MOST_ENTRIES = 64  # of a vector that is followed entry by entry; of more, the models that a study keeps have the end


class Followed:
    """The activation parameters that may move: those that are learned, and those that are hardened.

    A vector such as SQUAF's z is followed entry by entry, as "path.z[0]", "path.z[1]" ... A very long one is not.
    """

    def __init__(self, model: nn.Module, hardened: Sequence[str] = ()) -> None:
        self.widths: dict[str, int] = {}
        for path, module in activation_modules(model).items():
            for p in module.params:
                name = f"{path}.{p.name}" if path else p.name
                width = math.prod(module._tail(p.name))
                if (p.name in module.learned or name in hardened) and width <= MOST_ENTRIES:
                    self.widths[name] = width

    def now(self, trainer: Trainer) -> dict[str, list[float]]:
        """The mean over channels or neurons of each, for every seed."""
        if not self.widths:
            return {}
        values: dict[str, list[float]] = {}
        knobs = trainer.knobs()
        for name, width in self.widths.items():
            means = knobs[name].double().reshape(trainer.count, -1, width).mean(dim=1)
            for entry in range(width):
                values[name if width == 1 else f"{name}[{entry}]"] = means[:, entry].tolist()
        return values


def parameters(
    start: Mapping[str, Sequence[float]],
    end: Mapping[str, Sequence[float]],
    curves: Mapping[str, Curve],
    rows: Sequence[int],
) -> dict[str, dict[str, Any]]:
    """Start, end and way of every parameter that moved in one of these seeds, or that moved at all if there is none."""
    parameters: dict[str, dict[str, Any]] = {}
    for name, curve in curves.items():
        if all(value in (None, start[name][seed]) for epoch in curve for seed, value in enumerate(epoch)):
            continue
        last = spread_out([end[name][row] for row in rows], rows, len(end[name]))
        begin = [float(value) for value in start[name]]
        parameters[name] = {"start": begin[0], "end": last, "curve": curve}
        if len(set(begin)) > 1:  # drawn at random; else every seed starts with the value of the recipe
            parameters[name] |= {"start": sum(begin) / len(begin), "starts": tuple(begin)}
    return parameters


def profiles(trainer: Trainer, rows: Sequence[int], *, distances: bool) -> list[HardnessProfile]:
    """How hard the activations of these seeds are; empty where none of them has a knob."""
    try:
        return [hardness_profile(trainer.model(row), distances=distances) for row in rows]
    except InputError:
        return []


def hardness(
    start: Sequence[HardnessProfile], end: Sequence[HardnessProfile], rows: Sequence[int]
) -> tuple[dict[str, Any], ...]:
    """Site by site, from the profiles of all seeds at the start and of the seeds in `rows` at the end."""
    count = len(start)
    rows_of_sites = []
    for place, site in enumerate(start[0].sites if start else ()):
        distances = [profile.sites[place].distance for profile in end]
        far = [math.inf if distance is None else distance for distance in distances]
        rows_of_sites.append(
            {
                "path": site.path,
                "knob": site.knob,
                "start": spread_out([profile.sites[place].value for profile in start], range(count), count),
                "end": spread_out([profile.sites[place].value for profile in end], rows, count),
                "distance": spread_out(far, rows, count),
            }
        )
    return tuple(rows_of_sites)


def activities(trainer: Trainer, x: Tensor, rows: Sequence[int]) -> tuple[dict[str, Any], ...]:
    """Site by site: exact zeros, dead units and the entropy of the pre-activations on some examples."""
    seen: dict[int, tuple[SiteActivity, ...]] = {}
    for row in rows:
        # A pre-activation may be infinite where the output is finite; such a seed has no activity.
        with suppress(InputError):
            seen[row] = activity(trainer.model(row), _first(x, trainer.device)).sites
    rows = list(seen)
    rows_of_sites = []
    for sites in zip(*seen.values(), strict=True):
        dead = [math.inf if not site.units else site.dead / site.units for site in sites]
        entropy = [math.inf if site.entropy is None else site.entropy for site in sites]
        rows_of_sites.append(
            {
                "path": sites[0].path,
                "activation": sites[0].activation,
                "zero_fraction": _each([site.zero_fraction for site in sites], rows, trainer),
                "dead_fraction": _each(dead, rows, trainer),
                "entropy": _each(entropy, rows, trainer),
            }
        )
    return tuple(rows_of_sites)


def site_entropies(trainer: Trainer, x: Tensor, rows: Sequence[int]) -> dict[int, tuple[SiteEntropy, ...]]:
    """The entropies of each activation of these seeds on some examples, by seed."""
    by_seed: dict[int, tuple[SiteEntropy, ...]] = {}
    for row in rows:
        with suppress(InputError):  # as in `activities`: a number on the way may be infinite
            by_seed[row] = entropies(trainer.model(row), _first(x, trainer.device))
    return by_seed


def entropy(
    start: Mapping[int, Sequence[SiteEntropy]], end: Mapping[int, Sequence[SiteEntropy]], count: int
) -> tuple[dict[str, Any], ...]:
    """Site by site, before and after training, for every seed."""

    def numbers(seeds: Mapping[int, Sequence[SiteEntropy]], place: int) -> dict[str, Each]:
        names = [item.name for item in fields(SiteEntropy) if item.name not in ("path", "activation")]
        return {
            name: spread_out([getattr(sites[place], name) for sites in seeds.values()], list(seeds), count)
            for name in names
        }

    first = next(iter(start.values()), ())
    return tuple(
        {
            "path": site.path,
            "activation": site.activation,
            "start": numbers(start, place),
            "end": numbers(end, place),
        }
        for place, site in enumerate(first)
    )


def _first(x: Tensor, device: torch.device) -> Iterable[Tensor]:
    """The examples that are looked at; in several batches where they are read from a disk."""
    if isinstance(x, Streamed):
        return x.part(slice(MOST_EXAMPLES)).batches(_SITES_AT_ONCE, device)
    return [x[:MOST_EXAMPLES]]


def _each(values: Sequence[float], rows: Sequence[int], trainer: Trainer) -> Each:
    return spread_out(values, rows, trainer.count)


class SavedError(SoftkneeError, ValueError):
    """The saved state of a trial is damaged, of another trial, or of another version."""


def pack(tree: Mapping[str, Any], *, of: str) -> bytes:
    """The state of the trial with the key `of`, after a line that names the trial, the software and a checksum."""
    body = io.BytesIO()
    torch.save(tree, body)
    return _head(of, body.getvalue()) + body.getvalue()


def unpack(saved: bytes, *, of: str) -> dict[str, Any]:
    """The state that `pack` was given; a sentence where it is not whole, or of another trial or software."""
    start = saved.find(b"\n") + 1
    if saved[:start] != _head(of, saved[start:]):
        raise SavedError(
            f"The saved state is damaged, or not of the trial {of} with this softknee and torch. Leave it out, and the "
            "trial begins anew."
        )
    return torch.load(io.BytesIO(saved[start:]), map_location="cpu", weights_only=True)


def _head(key: str, body: bytes) -> bytes:
    head = {"format": "softknee state", "key": key, "softknee": VERSION, "torch": str(torch.__version__)}
    return json.dumps(head | {"sha256": hashlib.sha256(body).hexdigest()}).encode() + b"\n"


def write_tensors(tensors: Mapping[str, Tensor]) -> bytes:
    """A file of safetensors; the same tensors give the same bytes."""
    own = {name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    return _safetensors().save(own)


def read_tensors(content: bytes) -> dict[str, Tensor]:
    """The tensors in a file of safetensors."""
    library = _safetensors()
    try:
        return library.load(content)
    except Exception as error:  # the library raises several kinds for what is no safetensors file
        raise SavedError(f"The tensors of the trial are no file of safetensors ({error}).") from error


def _safetensors() -> Any:
    return need_package("safetensors.torch", "What a trial keeps is written with the package 'safetensors'", "lab")


Rows = list[list[float | None]]  # [epoch][seed]


@dataclass
class Progress:
    """Curves, divergence and the best epoch of each seed.

    After every epoch `passed` keeps, without waiting for the device, which models are still finite. `look` reads that,
    and dates what diverged. `note` looks, also at the predictions of the validation examples, and adds the epoch that
    has just ended to the curves.

    best_from: keep the weights of the best epoch by validation from this one on: the highest accuracy, of equal ones
               the lowest loss. None keeps none.
    """

    count: int
    task: str
    best_from: int | None
    followed: Followed
    gradients: bool
    start: dict[str, list[float]]  # the followed parameters before training
    epochs: list[int] = field(default_factory=list)  # those that were noted
    curves: dict[str, Rows] = field(default_factory=dict)
    ways: dict[str, Rows] = field(default_factory=dict)
    diverged: list[int | None] = field(default_factory=list)
    best: list[list[float]] = field(default_factory=list)  # rank and epoch of each seed
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    unread: list[Tensor] = field(default_factory=list)  # of each epoch since the last look: who has finite weights, [M]
    seconds_before: float = 0.0
    begun: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self.diverged = [None] * self.count
        self.best = [[-math.inf, -math.inf, 0] for _ in range(self.count)]

    @property
    def alive(self) -> list[int]:
        """The seeds that have not diverged."""
        return [seed for seed, epoch in enumerate(self.diverged) if epoch is None]

    @property
    def seconds(self) -> float:
        return self.seconds_before + time.perf_counter() - self.begun

    def note(self, trainer: Trainer, *, steps: int, validation: tuple[Tensor, Tensor] | None) -> None:
        """Add the epoch that has just ended, which had so many steps."""
        self.look(trainer, steps=steps)
        outputs = None if validation is None else trainer.predict(validation[0])
        if outputs is not None:
            self._date(finite_rows(outputs), trainer.epoch)
        rows = self.alive
        self.epochs.append(trainer.epoch)
        self._add("train_loss", trainer.losses[-steps:].double().mean(dim=0), rows)
        if self.gradients:
            self._add("gradient_norm", trainer.gradient_norms[-steps:].double().mean(dim=0), rows)
        for name, values in self.followed.now(trainer).items():
            chosen = [values[row] for row in rows]
            self.ways.setdefault(name, []).append(list(spread_out(chosen, rows, self.count)))
        if outputs is not None and validation is not None:
            wanted = self.best_from is not None and trainer.epoch >= self.best_from
            weights = trainer.weights() if wanted else {}
            self._judge(outputs, validation[1], rows, weights, trainer.epoch)

    def passed(self, trainer: Trainer) -> None:
        """An epoch has ended. Nothing is read from the device here."""
        fine = torch.ones(self.count, dtype=torch.bool, device=trainer.device)
        for tensor in trainer.weights().values():
            if tensor.is_floating_point():
                fine &= tensor.reshape(self.count, -1).isfinite().all(dim=1)
        self.unread.append(fine)

    def look(self, trainer: Trainer, *, steps: int) -> None:
        """Read what `passed` kept since the last time: a seed diverged in the first epoch with a loss or a weight that
        is not finite."""
        passed = len(self.unread)
        if not passed:
            return
        losses = trainer.losses[-steps * passed :].reshape(passed, steps, self.count)
        fine = torch.stack(self.unread).cpu() & losses.isfinite().all(dim=1)
        self.unread = []
        for place, row in enumerate(fine):
            self._date(row, trainer.epoch - passed + 1 + place)

    def _date(self, fine: Tensor, epoch: int) -> None:
        for seed in self.alive:
            if not fine[seed]:
                self.diverged[seed] = epoch

    def _judge(
        self, outputs: Tensor, truth: Tensor, rows: Sequence[int], weights: Mapping[str, Tensor], epoch: int
    ) -> None:
        scores = judge(outputs, truth, task=self.task, rows=rows)
        loss = scores["mse" if self.task == REGRESSION else "log_loss"]
        right = scores.get("accuracy", (0.0,) * self.count)
        self.curves.setdefault("validation_loss", []).append(list(loss))
        if self.task != REGRESSION:
            self.curves.setdefault("validation_accuracy", []).append(list(right))
        if not weights:
            return
        if not self.best_weights:
            self.best_weights = dict(weights)
        for seed in rows:
            rank = [_count(right[seed], -math.inf), -_count(loss[seed], math.inf)]
            if rank > self.best[seed][:2]:
                self.best[seed] = [*rank, epoch]
                for name, tensor in weights.items():
                    self.best_weights[name][seed].copy_(tensor[seed])

    def _add(self, name: str, values: Tensor, rows: Sequence[int]) -> None:
        each = values[list(rows)].tolist()
        self.curves.setdefault(name, []).append(list(spread_out(each, rows, self.count)))

    def state(self) -> dict[str, Any]:
        """Everything, as numbers and tensors."""
        return {
            "epochs": self.epochs,
            "unread": self.unread,
            "curves": self.curves,
            "ways": self.ways,
            "diverged": self.diverged,
            "best": self.best,
            "best_weights": self.best_weights,
            "seconds": self.seconds,
        }

    def load(self, state: Mapping[str, Any], *, device: torch.device | str) -> None:
        self.curves, self.ways = dict(state["curves"]), dict(state["ways"])
        self.diverged, self.epochs = list(state["diverged"]), list(state["epochs"])
        self.unread = [tensor.to(device) for tensor in state["unread"]]
        self.best = list(state["best"])
        self.best_weights = {name: tensor.to(device) for name, tensor in state["best_weights"].items()}
        self.seconds_before = float(state["seconds"])


def _count(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


_SCHEDULES = {"constant": constant, "cosine": cosine, "linear": linear}  # and "step", which takes more


def make_trainer(trial: Trial, maker: Callable[..., nn.Module]) -> Trainer:
    """The models of the trial's seeds, before any training; `maker` makes the model of a seed."""

    seeds = trial.seeds
    settings: dict[str, Any] = {
        "count": seeds.count,
        "seeds": list(seeds.numbers),
        "share_init": seeds.share_init,
        "share_order": seeds.share_order,
        "share_dropout": seeds.share_dropout,
        "device": trial.device,
    }
    if trial.training.engine == "loop":
        return OneByOne(maker, **settings, strategy=trial.training.strategy)
    return Replicas(maker, **settings)


def fit_settings(training: Training, *, task: str, gradients: bool) -> dict[str, Any]:
    """What `fit` is called with, beside the examples and the number of epochs."""
    loss = training.loss if training.loss != "auto" else "mse" if task == "regression" else "cross_entropy"
    half = "float32" if training.precision == "tf32" else training.precision
    return {
        "batch": training.batch,
        "lr": training.learning_rate,
        "optimizer": training.optimizer,
        "loss": loss,
        "clip": training.clip,
        "schedule": _schedule(training),
        "total_epochs": training.epochs,
        "gradient_norms": gradients,
        "lr_scale": training.activation_rate,
        "activation_optimizer": training.activation_optimizer,
        "activation_lr": training.activation_learning_rate,
        **({} if training.shuffle is None else {"shuffle": training.shuffle}),
        **({} if training.progressive is None else {"progressive": True}),
        **({"compiled": True, "precision": half} if training.engine == "compiled" else {}),
        **training.optimizer_options,
    }


def products_of(training: Training) -> AbstractContextManager[None]:
    """While a model is trained: how torch computes products of float32."""
    return matmul_precision("high") if training.precision == "tf32" else nullcontext()


def _schedule(training: Training) -> Schedule:
    warm = {"warmup": training.warmup, "start": training.warmup_start}
    if training.schedule == "step":
        shares = [epoch / training.epochs for epoch in training.milestones]
        return step(milestones=shares, factor=training.factor, **warm)
    floor = {"floor": training.floor} if training.floor else {}  # which "constant" has not
    return _SCHEDULES[training.schedule](**warm, **floor)


class _AllDiverged(Exception):
    """Nothing is left to train."""


def train(
    trial: Trial,
    trainer: Trainer,
    *,
    task: str,
    train_examples: tuple[Tensor, Tensor],
    validation: tuple[Tensor, Tensor] | None,
    saved: bytes | None,
    watch: Watch,
    more: Mapping[str, Any],
) -> Progress:
    """Train to the end; what came of every epoch. Afterwards the trainer has the weights of the selected epochs.

    more: arguments of `fit` that no setting of the recipe is: the augmentation, and the loss of a task.
    """
    chosen, total = trial.activation, trial.training.epochs
    hardening = None
    if chosen.harden:
        hardening = StackedHardening(trainer, total=total, settings=trial.hardening or Hardening())
    keep_best = trial.selects == "best_val"
    if keep_best and validation is None:
        raise ParameterError(
            "select: best_val chooses epochs by validation examples, and there are none; give data a share of "
            "validation, or select: last."
        )
    gradients = "gradients" in trial.measures
    followed = Followed(trainer.model(0), hardening.names if hardening else ())
    progress = Progress(
        count=trainer.count,
        task=task,
        best_from=1 + (hardening.last_free if hardening else 0) if keep_best else None,
        followed=followed,
        gradients=gradients,
        start=followed.now(trainer),
    )
    if saved is not None:
        _go_on(trial, trainer, progress, hardening, saved)
    x, y = train_examples
    settings = fit_settings(trial.training, task=task, gradients=gradients) | {**more}
    steps = math.ceil(len(x) / trial.training.batch)

    def save() -> bytes:
        state: dict[str, Any] = {"trainer": trainer.state_dict(), "progress": progress.state()}
        return pack(state | ({"hardening": hardening.state()} if hardening else {}), of=trial.key)

    def prepare_next() -> None:
        if hardening is not None:
            hardening.prepare(trainer, trainer.epoch + 1, progress.alive)

    # What is frozen is left alone from the next `fit` on, so that the two parts of a hardening are two of them.
    ends = [end for end in (hardening.last_free if hardening else 0, total) if end]
    for end in ends:

        def after_epoch(_: Any, end: int = end) -> None:
            progress.passed(trainer)
            if trainer.epoch % trial.training.every == 0 or trainer.epoch == total:
                progress.note(trainer, steps=steps, validation=validation)
            elif trainer.epoch == end:
                progress.look(trainer, steps=steps)  # who has diverged is not frozen
            watch.epoch(trainer.epoch, total, save)
            if not progress.alive:
                raise _AllDiverged
            if trainer.epoch < end:
                prepare_next()

        if trainer.epoch < end and progress.alive:
            prepare_next()
            try:
                with products_of(trial.training):
                    trainer.fit(
                        x,
                        y,
                        epochs=end - trainer.epoch,
                        on_step=lambda _: watch.step(),
                        on_epoch=after_epoch,
                        **settings,
                    )
            except _AllDiverged:
                break
    if keep_best and progress.alive:
        trainer.load_weights(progress.best_weights)
    return progress


def _go_on(
    trial: Trial,
    trainer: Trainer,
    progress: Progress,
    hardening: StackedHardening | None,
    saved: bytes,
) -> None:
    state = unpack(saved, of=trial.key)
    try:
        trainer.load_state_dict(state["trainer"])
        progress.load(state["progress"], device=trainer.device)
        if hardening is not None:
            hardening.load(state["hardening"])
    except (SoftkneeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise SavedError(
            f"The saved state of the trial does not fit it ({error}); it is of another version. Leave it out, and the "
            "trial begins anew."
        ) from error


def selected_epochs(progress: Progress, trainer: Trainer) -> tuple[int | None, ...]:
    """The epoch that each seed's numbers are of; None of one that diverged."""
    last = trainer.epoch
    return tuple(
        None if gone is not None else last if progress.best_from is None else int(rank[2])
        for gone, rank in zip(progress.diverged, progress.best, strict=True)
    )
