"""One training of the hardening study: free or hardened, with the checkpoints that the study reports.

The data lie on the device as a whole and batches are gathered there; nothing waits for the device within an epoch,
because networks this small take less time to compute than to launch.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import MissingToolError, ParameterError, did_you_mean
from ..files import WriteError
from ..measure.hardness import HardnessTrace, hardness_profile
from ..measure.record import Quantity, Record, RecordError
from ..surgery import Hardener, param_groups, relu_ize_
from ..surgery.modules import activation_modules
from .bench.speed import choose_device
from .chart import Chart, by_name, check_ending, lines_legend, marks, number, side_by_side, sized, ticks, write_figure
from .data.images import Split, load_split
from .figures import RAMP, sign
from .networks import build
from .table import Table

State = dict[str, Tensor]
_EVALUATED_AT_ONCE = 10_000


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How long and how fast. The learning rate falls as a half cosine, epoch by epoch."""

    epochs: int
    batch: int
    learning_rate: float
    weight_decay: float
    activation_rate_factor: float = 9.0
    start: float = 0.25
    tolerance: float = 5e-3

    @property
    def freeze_epoch(self) -> int:
        """The last epoch of free training, e_s = floor(start T)."""
        return math.floor(self.start * self.epochs)


@dataclass(frozen=True, kw_only=True)
class Metric:
    """Accuracy in percent and mean cross-entropy in nats."""

    accuracy: float
    loss: float

    @property
    def rank(self) -> tuple[float, float]:
        """Greater is better. Equal accuracies, common with few images, are told apart by the loss."""
        return self.accuracy, -self.loss


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A finished run: the network as it is at the end, its best epoch by validation, and what it was then."""

    network: nn.Module
    best_epoch: int
    best: State
    validation: tuple[Metric, ...]
    profiles: Mapping[str, Mapping[str, float]]
    seconds: float

    def at_best(self) -> nn.Module:
        """A copy of the network as it was at its best epoch."""
        found = copy.deepcopy(self.network)
        found.load_state_dict(self.best)
        return found


@contextmanager
def repeatable() -> Iterator[None]:
    """Convolutions by algorithms that give the same bits in each run."""
    backend = torch.backends.cudnn
    before = backend.deterministic, backend.benchmark
    backend.deterministic, backend.benchmark = True, False
    try:
        yield
    finally:
        backend.deterministic, backend.benchmark = before


@repeatable()
def train(
    network: nn.Module,
    data: Split,
    recipe: Recipe,
    *,
    seed: int,
    harden: bool,
    advance: Callable[[], None] = lambda: None,
    watch: Callable[[int, nn.Module], None] = lambda epoch, network: None,
) -> Trained:
    """Train in place. Two runs with one seed see the same batches, so that up to `freeze_epoch` they are one run.

    Args:
        harden: move the knobs to their hard limit (Algorithm 1 of the lambda-GELU paper); else they stay free.
        advance, watch: called after every epoch; `watch` with the epoch, from 1, and the network.
    """
    groups = param_groups(
        network,
        lr=recipe.learning_rate,
        weight_decay=recipe.weight_decay,
        lr_scale=recipe.activation_rate_factor,
    )
    optimizer = torch.optim.AdamW(groups, fused=data.train_images.is_cuda)
    rates = [group["lr"] for group in optimizer.param_groups]
    hardener = (
        Hardener(network, total=recipe.epochs, start=recipe.start, tolerance=recipe.tolerance) if harden else None
    )
    random = torch.Generator().manual_seed(seed)
    best: tuple[int, State] = (0, {})
    history: list[Metric] = []
    profiles = {"start": profile(network)}
    begin = time.perf_counter()
    for epoch in range(1, recipe.epochs + 1):
        if hardener is not None:
            hardener.step(epoch)
        share = (1 + math.cos(math.pi * (epoch - 1) / recipe.epochs)) / 2
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * share
        _epoch(network, optimizer, data, batch=recipe.batch, random=random)
        history.append(evaluate(network, data.validation_images, data.validation_labels))
        if history[-1].rank > max((one.rank for one in history[:-1]), default=(-math.inf, -math.inf)):
            best = epoch, {name: value.clone() for name, value in network.state_dict().items()}
        if epoch == recipe.freeze_epoch:
            profiles["freeze"] = profile(network)
        advance()
        watch(epoch, network)
    profiles["end"] = profile(network)
    return Trained(
        network=network,
        best_epoch=best[0],
        best=best[1],
        validation=tuple(history),
        profiles=profiles,
        seconds=time.perf_counter() - begin,
    )


def _epoch(
    network: nn.Module, optimizer: torch.optim.Optimizer, data: Split, *, batch: int, random: torch.Generator
) -> None:
    # The order is made on the CPU, where it is the same with and without a GPU.
    order = torch.randperm(len(data.train_labels), generator=random).to(data.train_labels.device)
    for chosen in order.split(batch):
        optimizer.zero_grad()
        F.cross_entropy(network(data.train_images[chosen]), data.train_labels[chosen]).backward()
        optimizer.step()


@repeatable()
@torch.no_grad()
def evaluate(network: nn.Module, images: Tensor, labels: Tensor) -> Metric:
    """Accuracy and loss on all the images. Sums are of float64: the last digits do not depend on the pieces."""
    right = torch.zeros((), dtype=torch.float64, device=labels.device)
    loss = torch.zeros_like(right)
    for some, theirs in zip(images.split(_EVALUATED_AT_ONCE), labels.split(_EVALUATED_AT_ONCE), strict=True):
        logits = network(some)
        right += (logits.argmax(dim=1) == theirs).sum()
        loss += F.cross_entropy(logits.double(), theirs, reduction="sum")
    count = len(labels)
    return Metric(accuracy=100 * right.item() / count, loss=loss.item() / count)


def profile(network: nn.Module) -> dict[str, float]:
    """The knob of each softknee activation by its path, in order of depth; empty where there is none."""
    if not activation_modules(network):
        return {}
    found = hardness_profile(network, distances=False)
    return dict(zip(found.paths, found.values, strict=True))


def with_relu(network: nn.Module) -> nn.Module:
    """A copy with every softknee activation replaced by its hard limit, a plain module of torch; no weight changes."""
    found = copy.deepcopy(network)
    relu_ize_(found)
    return found


KIND = "study hardening"
# The columns by their name in the record, with their heading.
HEADINGS = {
    "free": "free",
    "hardened": "hardened",
    "replaced": "replaced",
    "chosen": "replaced, best epoch",
    "swapped": "swapped directly",
    "relu": "ReLU from scratch",
}
_NETWORKS = {"mlp": "MLP", "cnn": "CNN"}
_NONE = "–"


def hardening_tables(record: Record) -> list[Table]:
    """A table for each data set of a record of the study."""
    if record.kind != KIND:
        raise RecordError(f"The record is of {record.kind!r}, and the table is made from one of {KIND!r}.")
    names = list(dict.fromkeys(row["data"] for row in record.rows))
    return [_table(record, name) for name in names]


def hardening_markdown(record: Record) -> str:
    """All tables of a record of the study, in Markdown."""
    return "\n".join(table.markdown() for table in hardening_tables(record))


def _table(record: Record, name: str) -> Table:
    rows = [row for row in record.rows if row["data"] == name]
    task = record.settings["tasks"][name]
    seeds = len(record.seeds)
    over = f"mean ± standard deviation over {seeds} seeds" if seeds > 1 else "one seed"
    network = _NETWORKS.get(task["network"], task["network"])
    return Table(
        title=f"{network} on {name}, {task['epochs']} epochs: test accuracy in %, {over}",
        head=("activation", *HEADINGS.values()),
        rows=[(row["function"], *(_text(row["accuracy"], column) for column in HEADINGS)) for row in rows],
        remarks=[_remark(row) for row in rows if row["hardness_profile"]],
        markup=True,
    )


def _text(accuracy: Mapping[str, Quantity], column: str) -> str:
    return accuracy[column].text(2) if column in accuracy else _NONE


def _remark(row: Mapping[str, Any]) -> str:
    """Knobs by layer when they were frozen and at the end, and what each step cost."""
    knobs = [one for one in row["hardness_profile"] if one["run"] == "hardened"]
    frozen, end = (", ".join(_knob(one["knob"]) for one in knobs if one["when"] == when) for when in ("freeze", "end"))
    costs = (("hardening", "cost_of_hardening"), ("replacing", "cost_of_replacement"), ("swapping", "cost_of_swap"))
    said = ", ".join(f"{what} {row[name].text(2)}" for what, name in costs)
    epochs = ", ".join(map(str, row["best_epoch_by_seed"]["hardened"]))
    return (
        f"{row['function']}: knobs by layer {frozen} when frozen, {end} at the end; percentage points lost by {said}; "
        f"best epochs {epochs}."
    )


def _knob(found: Quantity) -> str:
    spread = f" ± {found.spread:.2g}" if found.spread > 1e-6 * abs(found.value) else ""
    return f"{found.value:.3g}{spread}"


_TALL = 240  # pixels
_LOGARITHMIC = 10.0  # the ratio from which on equal steps would hide the small values
_NAMED = 14  # rows that still have room for their names
_LETTERS = 26  # of a path; its end tells more than its beginning


def draw_hardness(trace: HardnessTrace, path: str | PathLike[str]) -> Path:
    """Draw a trace into a .png or an .svg file, and return where it is.

    >>> import softknee as sk, tempfile, torch
    >>> net = torch.nn.Sequential(sk.nn.LambdaGELU(lam=1.5), torch.nn.Linear(2, 2), sk.nn.LambdaGELU(lam=2.0))
    >>> trace = sk.measure.HardnessTrace(net)
    >>> for epoch in range(3):
    ...     _ = trace.record(epoch), net[0].set_(lam=2.0 + epoch)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw_hardness(trace, folder + "/hardness.svg").name
    'hardness.svg'
    """
    check_ending(path)
    return write_figure(hardness_figure(trace), path, label="hardness of the activations over depth and time")


def hardness_figure(trace: HardnessTrace) -> Chart:
    """The figure itself; widths are drawn as they are, and coloured darker where they are smaller."""
    if len(trace.profiles) < 2:
        raise ParameterError(
            f"A figure over time needs a trace of two epochs or more, and this one has {len(trace.profiles)}; call "
            "record(epoch) while the model trains."
        )
    every = [value for profile in trace.profiles for value in profile.values]
    low, high = min(every), max(every)
    scale = _logarithmic(low, high) if low > 0 and high / low > _LOGARITHMIC else {}
    return side_by_side([_map(trace, (low, high), scale), _profiles(trace, (low, high), scale)], columns=2)


def _map(trace: HardnessTrace, reach: tuple[float, float], scale: Chart) -> Chart:
    """A row for each activation, a column for each epoch."""
    low, high = reach if reach[0] < reach[1] else (reach[0] - 0.5, reach[1] + 0.5)
    ramp = ("#fdf1dd", *RAMP) if _hardens_upward(trace) else ("#fdf1dd", *RAMP)[::-1]
    names, edges = _short(trace.profiles[0].paths), _edges(trace.epochs)
    cells = [
        {"epoch": edges[column], "to": edges[column + 1], "row": row + 0.5, "above": row + 1.5, "value": value}
        for column, profile in enumerate(trace.profiles)
        for row, value in enumerate(profile.values)
    ]
    step = math.ceil(len(names) / _NAMED)
    labels = f"{json.dumps(names, ensure_ascii=False)}[datum.value - 1]"
    colours = {
        "domain": [low, high],
        "range": list(ramp),
        "interpolate": "rgb",
        "nice": False,
        **scale.get("scale", {}),
    }
    bar = {"orient": "right", "gradientLength": _TALL, "gradientThickness": 9, "direction": "vertical"}
    if scale:
        bar |= {"values": scale["axis"]["values"], "format": "~g"}
    encoding = {
        "x": number("epoch", title="epoch", domain=(edges[0], edges[-1]), axis={"grid": False}),
        "x2": {"field": "to"},
        "y": number(
            "row",
            domain=(0.5, len(names) + 0.5),
            axis=ticks(range(1, len(names) + 1, step), labelExpr=labels, grid=False),
        ),
        "y2": {"field": "above"},
        "color": {"field": "value", "type": "quantitative", "title": None, "scale": colours, "legend": bar},
    }
    look = {"stroke": "white", "strokeWidth": 0.4 if len(trace.epochs) <= 60 else 0.0}
    return sized(
        {"title": f"{_knob_title(trace)} over depth and time", **marks("rect", cells, encoding, **look)}, 340, _TALL
    )


def _profiles(trace: HardnessTrace, reach: tuple[float, float], scale: Chart) -> Chart:
    """The profile at the first epoch, at the last, and at some between."""
    count, sites = len(trace.profiles), len(trace.profiles[0].sites)
    chosen = sorted({round(i * (count - 1) / (len(RAMP) - 1)) for i in range(len(RAMP))})
    names = [f"epoch {trace.epochs[index]:g}" for index in chosen]
    rows = [
        {"name": name, "place": place, "value": value}
        for index, name in zip(chosen, names, strict=True)
        for place, value in enumerate(trace.profiles[index].values, start=1)
    ]
    room = 0.07 * ((reach[1] - reach[0]) or 1.0)
    upright = scale or {"domain": (reach[0] - room, reach[1] + room)}
    places = ticks(range(1, sites + 1, math.ceil(sites / 8)), format="d")
    legend = lines_legend(columns=1, orient="right")
    encoding = {
        "x": number("place", title="activation, counted from the input", domain=(0.6, sites + 0.4), axis=places),
        "y": number("value", **upright),
        "color": by_name(names, RAMP[-len(names) :], legend=legend),
    }
    look = {"point": {"size": 28, "filled": True}, "strokeWidth": 2}
    return sized({"title": f"{_knob_title(trace)} over depth", **marks("line", rows, encoding, **look)}, 240, _TALL)


def _logarithmic(low: float, high: float) -> Chart:
    """1, 2, 5, 10, ... beside a logarithmic scale, written as plain numbers."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(decades) <= 4 else (1,)
    places = [step * 10.0**power for power in decades for step in steps]
    shown = [place for place in places if 0.9 * low <= place <= 1.1 * high]
    return {"scale": {"type": "log"}, "axis": ticks(shown, format="~g")}


# -- words and numbers ------------------------------------------------------------------------------------


def _knob_title(trace: HardnessTrace) -> str:
    """The knob where all activations have the same."""
    sites = trace.profiles[0].sites
    if len({(site.activation, site.knob) for site in sites}) > 1:
        return "Knob"
    return ", ".join(map(sign, sites[0].knob.split(", ")))


def _hardens_upward(trace: HardnessTrace) -> bool:
    """Whether the larger knob is the harder one."""
    return math.isinf(trace.profiles[0].sites[0].toward)


def _edges(epochs: Sequence[float]) -> list[float]:
    """Where the columns meet: halfway between two epochs."""
    between = [(a + b) / 2 for a, b in pairwise(epochs)]
    return [epochs[0] - (between[0] - epochs[0]), *between, epochs[-1] + (epochs[-1] - between[-1])]


def _short(paths: Sequence[str]) -> list[str]:
    """Paths without what all of them begin with, and the end of those that are still long."""
    parts = [path.split(".") for path in paths]
    shared = 0
    while len(paths) > 1 and all(len(one) > shared + 1 and one[shared] == parts[0][shared] for one in parts):
        shared += 1
    names = [".".join(one[shared:]) for one in parts]
    return [name if len(name) <= _LETTERS else "…" + name[1 - _LETTERS :] for name in names]


BASELINE = "relu"
COLUMNS = ("free", "hardened", "replaced", "chosen", "swapped", BASELINE)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An activation in the table. One that learns is trained twice: free, and hardened."""

    name: str
    knobs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def hardens(self) -> bool:
        return bool(self.knobs.get("learn"))


# S-ReLU starts at the width that is as far from ReLU as GELU is: 0.19 and 0.17 at most.
ENTRIES = (
    Entry(name="gelu"),
    Entry(name="lambda_gelu", knobs={"learn": True}),
    Entry(name="srelu", knobs={"learn": True, "delta": 1.0}),
)
_SCRATCH = Entry(name="torch:relu")


@dataclass(frozen=True, kw_only=True)
class Task:
    """A data set, a network for it, and how it is trained."""

    data: str
    builder: str
    arguments: Mapping[str, Any]
    recipe: Recipe

    @property
    def flat(self) -> bool:
        """Whether the network takes images as rows of numbers."""
        return self.builder == "mlp"


TASKS = {
    "digits": Task(
        data="digits",
        builder="mlp",
        arguments={"widths": [64, 128, 128, 10]},
        recipe=Recipe(epochs=60, batch=64, learning_rate=1e-3, weight_decay=0.01),
    ),
    "fashion-mnist": Task(
        data="fashion-mnist",
        builder="cnn",
        arguments={"channels": [16, 32, 64], "classes": 10, "image": [1, 28, 28]},
        recipe=Recipe(epochs=20, batch=256, learning_rate=2e-3, weight_decay=0.01),
    ),
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is run, on what, and where the data lie."""

    tasks: tuple[Task, ...] = tuple(TASKS.values())
    seeds: tuple[int, ...] = (0, 1, 2)
    device: str = "auto"
    data: str | os.PathLike[str] | None = None
    out: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if not self.tasks or not self.seeds:
            raise ParameterError("The hardening study needs a task and a seed at least.")
        for task in self.tasks:
            recipe = task.recipe
            if not 1 <= recipe.freeze_epoch < recipe.epochs:
                raise ParameterError(
                    f"The hardening study trains {task.data} for {recipe.epochs} epochs and would freeze knobs after "
                    f"{recipe.freeze_epoch}; at least one must come before and one after. Take 4 epochs or more."
                )


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A row of the table: for each column the test metric of every seed, and the runs' own numbers."""

    task: Task
    entry: Entry
    metrics: Mapping[str, tuple[Metric, ...]]
    profiles: Mapping[str, tuple[Mapping[str, Mapping[str, float]], ...]]
    best_epochs: Mapping[str, tuple[int, ...]]
    seconds: Mapping[str, tuple[float, ...]]

    def accuracy(self, column: str) -> Quantity | None:
        """Over the seeds; None where the column does not apply to the activation."""
        if column not in self.metrics:
            return None
        return Quantity.mean([one.accuracy for one in self.metrics[column]], unit="%")

    def cost(self, before: str, after: str) -> Quantity | None:
        """What accuracy falls by from one column to the other, seed by seed, in percentage points."""
        if before not in self.metrics or after not in self.metrics:
            return None
        pairs = zip(self.metrics[before], self.metrics[after], strict=True)
        return Quantity.mean([first.accuracy - second.accuracy for first, second in pairs], unit="percentage points")


@dataclass(frozen=True, kw_only=True)
class Study:
    """The outcomes, task by task in the order of `ENTRIES`, and the record of them."""

    settings: Settings
    outcomes: tuple[Outcome, ...]
    record: Record


def choose_tasks(only: Sequence[str] = (), *, epochs: int | None = None) -> tuple[Task, ...]:
    """The tasks of these names, all by default, with other numbers of epochs where one is given."""
    for name in only:
        if name not in TASKS:
            raise ParameterError(
                f"The hardening study has no task {name!r}; it has {' and '.join(TASKS)}.{did_you_mean(name, TASKS)}"
            )
    chosen = [task for name, task in TASKS.items() if name in only or not only]
    if epochs is None:
        return tuple(chosen)
    return tuple(replace(task, recipe=replace(task.recipe, epochs=epochs)) for task in chosen)


def steps(settings: Settings) -> int:
    """How often `run` reports progress: once for every epoch of every training."""
    runs = 1 + sum(2 if entry.hardens else 1 for entry in ENTRIES)
    return sum(task.recipe.epochs for task in settings.tasks) * runs * len(settings.seeds)


def run(settings: Settings, *, command: str, advance: Callable[[str], None] = lambda _: None) -> Study:
    """Train everything; `advance` is called with what is trained after each epoch.

    With `settings.out`, a checkpoint of every network that is worth deploying is written there: `gelu` (free), `relu`,
    and each hardened one as it is at the end, under names such as `digits-srelu-seed0`.
    """
    device = choose_device(settings.device)
    # Whatever is missing is said before the training and not after it.
    _need_safetensors(settings)
    splits = {task.data: load_split(task.data, settings.data, flat=task.flat) for task in settings.tasks}
    out = _made(settings.out)
    outcomes: list[Outcome] = []
    for task in settings.tasks:
        data = splits[task.data].to(device)
        rows: dict[str, list[dict[str, Any]]] = {entry.name: [] for entry in ENTRIES}
        # Seed by seed rather than activation by activation: whatever else the machine does then slows all alike.
        for seed in settings.seeds:
            runs = _Runs(task, data, seed, device, advance, out)
            for entry in ENTRIES:
                rows[entry.name].append(runs.row(entry))
        outcomes += [_outcome(task, entry, rows[entry.name]) for entry in ENTRIES]
    record = _record(settings, outcomes, splits, device, command)
    return Study(settings=settings, outcomes=tuple(outcomes), record=record)


class _Runs:
    """The trainings of one task with one seed."""

    def __init__(
        self,
        task: Task,
        data: Split,
        seed: int,
        device: torch.device,
        advance: Callable[[str], None],
        out: Path | None,
    ) -> None:
        self.task, self.data, self.seed, self.device, self.advance, self.out = task, data, seed, device, advance, out
        scratch = self._train(_SCRATCH, harden=False)
        self.scratch = self._test(scratch.at_best())
        self._save(_SCRATCH, scratch.at_best())

    def row(self, entry: Entry) -> dict[str, Any]:
        """The metrics of one activation by column, and of each run its profiles, best epoch and seconds."""
        runs = {"free": self._train(entry, harden=False)}
        free = runs["free"].at_best()
        metrics = {"free": self._test(free), "swapped": self._test(with_relu(free)), BASELINE: self.scratch}
        if entry.hardens:
            runs["hardened"] = self._train(entry, harden=True)
            hardened, chosen = runs["hardened"].network, runs["hardened"].at_best()
            metrics |= {
                "hardened": self._test(hardened),
                "replaced": self._test(with_relu(hardened)),
                "chosen_smooth": self._test(chosen),
                "chosen": self._test(with_relu(chosen)),
            }
        self._save(entry, runs["hardened"].network if entry.hardens else free)
        return {"metrics": metrics, "runs": runs}

    def _arguments(self, entry: Entry) -> dict[str, Any]:
        return {**self.task.arguments, "activation": entry.name, "seed": self.seed, **entry.knobs}

    def _train(self, entry: Entry, *, harden: bool) -> Trained:
        network = build(self.task.builder, **self._arguments(entry)).to(self.device)
        return train(
            network,
            self.data,
            self.task.recipe,
            seed=self.seed,
            harden=harden,
            advance=lambda: self.advance(f"{self.task.data} {entry.name.removeprefix('torch:')}"),
        )

    def _test(self, network: nn.Module) -> Metric:
        return evaluate(network, self.data.test_images, self.data.test_labels)

    def _save(self, entry: Entry, network: nn.Module) -> None:
        if self.out is None:
            return
        from .checkpoint import save_checkpoint

        name = entry.name.removeprefix("torch:")
        save_checkpoint(
            self.out / f"{self.task.data}-{name}-seed{self.seed}",
            network,
            builder=self.task.builder,
            arguments=self._arguments(entry),
            task={"data": self.task.data, "metric": "accuracy"},
            notes=f"hardening study, {'hardened, at the end' if entry.hardens else 'at the best epoch by validation'}",
        )


def _need_safetensors(settings: Settings) -> None:
    if settings.out is not None and importlib.util.find_spec("safetensors") is None:
        raise MissingToolError(
            "Checkpoints need the package 'safetensors', which is not installed. Install it with: "
            "pip install 'softknee[deploy]', or leave out --out."
        )


def _made(folder: str | os.PathLike[str] | None) -> Path | None:
    if folder is None:
        return None
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(
            f"The folder '{folder}' for the checkpoints cannot be made ({error.strerror or error}); choose another."
        ) from error
    return Path(folder)


def _outcome(task: Task, entry: Entry, rows: Sequence[Mapping[str, Any]]) -> Outcome:
    kinds: Mapping[str, Trained] = rows[0]["runs"]
    return Outcome(
        task=task,
        entry=entry,
        metrics={column: tuple(row["metrics"][column] for row in rows) for column in rows[0]["metrics"]},
        profiles={kind: tuple(row["runs"][kind].profiles for row in rows) for kind in kinds},
        best_epochs={kind: tuple(row["runs"][kind].best_epoch for row in rows) for kind in kinds},
        seconds={kind: tuple(row["runs"][kind].seconds for row in rows) for kind in kinds},
    )


def _row(outcome: Outcome) -> dict[str, Any]:
    costs = {
        "cost_of_hardening": outcome.cost("free", "hardened"),
        "cost_of_replacement": outcome.cost("hardened", "replaced"),
        "cost_of_swap": outcome.cost("free", "swapped"),
        "behind_relu": outcome.cost(BASELINE, "replaced"),
    }
    knobs = [
        {
            "run": kind,
            "when": when,
            "layer": path,
            "knob": Quantity.mean([one[when][path] for one in seeds], unit="1"),
        }
        for kind, seeds in outcome.profiles.items()
        for when in seeds[0]
        for path in seeds[0][when]
    ]
    return {
        "data": outcome.task.data,
        "network": outcome.task.builder,
        "function": outcome.entry.name,
        "start": dict(outcome.entry.knobs),
        "accuracy": {column: outcome.accuracy(column) for column in outcome.metrics},
        "accuracy_by_seed": {column: [one.accuracy for one in found] for column, found in outcome.metrics.items()},
        "loss": {c: Quantity.mean([one.loss for one in found], unit="nats") for c, found in outcome.metrics.items()},
        **{name: found for name, found in costs.items() if found is not None},
        "best_epoch_by_seed": dict(outcome.best_epochs),
        "hardness_profile": knobs if outcome.entry.hardens else [],
        "time": {kind: Quantity.mean(found, unit="s") for kind, found in outcome.seconds.items()},
    }


def _record(
    settings: Settings, outcomes: Sequence[Outcome], splits: Mapping[str, Split], device: torch.device, command: str
) -> Record:
    tasks = {
        task.data: {
            "images": splits[task.data].sentence(),
            "normalisation": splits[task.data].normalisation,
            "network": task.builder,
            "arguments": dict(task.arguments),
            "epochs": task.recipe.epochs,
            "freeze_epoch": task.recipe.freeze_epoch,
            "batch": task.recipe.batch,
            "optimizer": "AdamW, learning rate falling as a half cosine by epoch",
            "learning_rate": task.recipe.learning_rate,
            "activation_rate_factor": task.recipe.activation_rate_factor,
            "weight_decay": task.recipe.weight_decay,
            "hardening": f"linear from epoch {task.recipe.freeze_epoch + 1}, tolerance {task.recipe.tolerance:g}",
        }
        for task in settings.tasks
    }
    return Record.now(
        "study hardening",
        command=command,
        rows=[_row(outcome) for outcome in outcomes],
        seeds=settings.seeds,
        baseline="relu, trained from scratch beside the others from the same weights on the same batches",
        settings={"device": device.type, "threads": torch.get_num_threads(), "tasks": tasks},
        notes=[
            "free, swapped, relu: at the best epoch by validation accuracy (equal ones by validation loss).",
            "hardened, replaced: at the end of hardening. chosen_smooth, chosen: the same pair at the best epoch by "
            "validation under the smooth activation, which is the lambda-GELU paper's rule.",
        ],
    )
