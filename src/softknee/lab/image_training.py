"""Image networks trained as the SQUAF paper does, for rate curves and distillation: see `plan` and `training`."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import softknee as sk

from ..errors import InputError, ParameterError, did_you_mean
from ..measure.record import Record
from ..surgery.groups import split
from ..train.augment import Augment
from ..train.capture import captured, compile_method
from ..train.optimizers import Own, StackedOptimizer
from ..train.random_keys import order, seed_keys
from ..train.schedules import read_table, step
from ..train.stacked_modules import Draws
from .chart import INK, Chart, marks, number, points, rule_at, side_by_side, sized, write_figure
from .data.images import ImageSet
from .figures import DISTINCT
from .networks import build_network
from .vision_networks import NETWORKS

Shape = Mapping[str, Sequence[float]]
_PANEL, _ACROSS = (165, 130), 4  # pixels; panels in a row
_POINTS = 401
_FARTHEST = 6.0  # beyond which pre-activations hardly go


def learned(model: nn.Module) -> dict[str, dict[str, list[float]]]:
    """q, alpha and z of every SQUAF with a trained parameter, by its path.

    >>> net = nn.Sequential(sk.nn.SQUAF(k=1, q=0.5, z=[0.0, 0.0, 0.5], learn="z"), sk.nn.SQUAF(k=1))
    >>> learned(net)
    {'0': {'q': [0.5], 'alpha': [6.0], 'z': [0.0, 0.0, 0.5]}}
    """
    return {
        path: {name: getattr(one, name).detach().flatten().tolist() for name in ("q", "alpha", "z")}
        for path, one in model.named_modules()
        if isinstance(one, sk.nn.SQUAF) and any(p.requires_grad for p in one.parameters())
    }


def draw_shapes(record: Record, path: str | PathLike[str]) -> Path:
    """Every learned SQUAF of a record of `softknee study rate` or `distil`: dotted as it began, a line a seed."""
    several = any(len(row.get("start", {})) > 1 for row in record.rows)
    panels = [
        (
            f"{_title(row)}, {layer}" if several else _title(row),
            row["start"][layer],
            [one[layer] for one in row["learned"] if layer in one],
        )
        for row in record.rows
        for layer in row.get("start", {})
    ]
    if not panels:
        raise ParameterError(f"The record of {record.kind!r} has no SQUAF that was trained, and no shape to draw.")
    charts = [_panel(title, start, ends) for title, start, ends in panels]
    figure = side_by_side(charts, columns=min(_ACROSS, len(panels)), spacing=18)
    return write_figure(figure, path, label="learned SQUAFs, dotted as they began")


def _panel(title: str, start: Shape, ends: Sequence[Shape]) -> Chart:
    reach = min(_FARTHEST, (len(start["z"]) // 2 + 1) * max(one["q"][0] for one in (start, *ends)))
    x = torch.linspace(-reach, reach, _POINTS, dtype=torch.float64)
    where = {"x": number("x", title="x", domain=(-reach, reach)), "y": number("y", title="f(x)")}
    looks = [{"color": colour, "strokeWidth": 1.6} for _, colour in zip(ends, DISTINCT * 9, strict=False)]
    looks.append({"color": INK, "strokeWidth": 1.6, "strokeDash": [2, 3]})
    layers = [rule_at(x=0.0), rule_at(y=0.0)]
    for shape, look in zip((*ends, start), looks, strict=False):
        layers.append(marks("line", points(x.tolist(), values_of(shape, x).tolist()), where, **look))
    return sized({"title": {"text": title, "fontSize": 11}, "layer": layers}, *_PANEL)


def values_of(shape: Shape, x: torch.Tensor) -> torch.Tensor:
    """A SQUAF with these parameters at x, in float64."""
    z = torch.tensor(shape["z"], dtype=torch.float64)
    return sk.get("squaf")(x, k=len(z) // 2, q=shape["q"][0], alpha=shape["alpha"][0], z=z, window=5)


def _title(row: Mapping[str, Any]) -> str:
    weight = row.get("weight")
    return row["activation"] if weight is None else f"{row['activation']} λ = {weight:g}"


SQUAF = "squaf"
TIMM = "timm:"
MODES = ("soft", "sampled", "step")
PRECISIONS = ("auto", "f32", "bf16")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long and how; the defaults are the paper's for batches of 64, with fewer epochs.

    milestones: shares of the training after which the rate of the weights is `factor` times lower.
    activation_rate: of Adam, which moves the parameters of activations; it stays as it is.
    crop, flip: zeros around an image out of which a window is taken, and mirror images.
    precision: "bf16" computes the network in bfloat16 (weights stay float32); "auto" does so on a GPU.
    every: test accuracy is noted after every so many epochs, and after the last.
    """

    epochs: int = 40
    batch: int = 64
    learning_rate: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 5e-4
    milestones: tuple[float, ...] = (150 / 240, 180 / 240, 210 / 240)
    factor: float = 0.1
    activation_rate: float = 1e-3
    crop: int = 4
    flip: bool = True
    precision: str = "auto"
    every: int = 5

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "every"):
            _need(getattr(self, name) >= 1, name, "a whole number of at least 1", getattr(self, name))
        _need(self.learning_rate > 0, "learning_rate", "a number above 0", self.learning_rate)
        for name in ("weight_decay", "activation_rate", "crop"):
            _need(getattr(self, name) >= 0, name, "at least 0", getattr(self, name))
        _need(0 <= self.momentum < 1, "momentum", "a number in [0, 1)", self.momentum)
        _need(self.precision in PRECISIONS, "precision", f"one of {', '.join(PRECISIONS)}", self.precision)

    def autocast(self, device: torch.device) -> bool:
        """Whether the network computes in bfloat16 there."""
        return self.precision == "bf16" or (self.precision == "auto" and device.type == "cuda")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An activation of a table.

    title:   what it is called there.
    name:    of the zoo, or "squaf".
    values:  its parameters; of SQUAF k and q, and "start": the function that z is fitted to.
    learn:   whether its parameters are trained.
    where:   of SQUAF, at which places: as `sk.train_squaf_` takes it.
    mode:    of SQUAF: "soft", or "sampled" for SQUAF-P.
    """

    title: str
    name: str
    values: Mapping[str, Any] = field(default_factory=dict)
    learn: bool = False
    where: str = "first"
    mode: str = "soft"

    def __post_init__(self) -> None:
        _need(self.mode in MODES, f"{self.title}: mode", f"one of {', '.join(MODES)}", self.mode)


def squaf(
    title: str = "SQUAF", *, q: float = 1.0, start: str = "relu", mode: str = "soft", where: str = "first"
) -> Entry:
    """SQUAF as the paper's CNNs have it: k = 16, fitted to ReLU, the first layer trained (35 numbers).

    >>> squaf("SQUAF-P", q=0.125, mode="sampled").values
    {'k': 16, 'q': 0.125, 'start': 'relu'}
    """
    return Entry(title=title, name=SQUAF, values={"k": 16, "q": q, "start": start}, learn=True, mode=mode, where=where)


def check_network(name: str) -> str:
    """The name, if there is such a network; whether timm has one of that name is seen when it is built."""
    if name not in NETWORKS and not name.startswith(TIMM):
        known = ", ".join(map(repr, NETWORKS))
        near = did_you_mean(name, NETWORKS)
        raise ParameterError(f"There is no network {name!r}; there are {known}, and those of timm: 'timm:NAME'.{near}")
    return name


def build(network: str, entry: Entry, *, classes: int, seed: int) -> nn.Module:
    """The network with this activation at every place; its weights come from the seed alone.

    >>> sum(one.numel() for one in build("vgg8", squaf(), classes=100, seed=0).parameters() if one.requires_grad)
    3965063
    """
    given = dict(entry.values)
    if entry.name == SQUAF:
        start = given.pop("start", None)
        if start is not None:
            given = {**given, **sk.design.start(start, k=given.get("k", 16), q=given.get("q")).starts}
    else:
        given["learn"] = entry.learn
    if check_network(network).startswith(TIMM):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = build_network(network, {"num_classes": classes})
        sk.swap_(model, entry.name, **given)
    else:
        model = NETWORKS[network](classes=classes, activation=lambda: sk.nn.make(entry.name, **given), seed=seed)
    if entry.name == SQUAF:
        sk.train_squaf_(model, sk.surgery.squaf_training.PARTS if entry.learn else (), where=entry.where)
        sk.squaf_mode_(model, entry.mode)
    return model


def trained_numbers(model: nn.Module) -> int:
    """How many parameters are trained."""
    return sum(one.numel() for one in model.parameters() if one.requires_grad)


def _need(holds: bool, what: str, wanted: str, value: Any) -> None:
    if not holds or (isinstance(value, float) and not math.isfinite(value)):
        raise ParameterError(f"{what} must be {wanted}, and {value!r} was given.")


class Batches:
    """What the steps of a training see, in tensors that keep their place, so that a recorded step can read them.

    Trainings one after the other may share them: on a GPU they are compiled, once for all. (The draws are a hundred
    small kernels; in a small network they would take as long as a layer does.)

    Args:
        data: the images, as bytes; those that do not fill a last batch are left out of an epoch.
    """

    def __init__(self, data: ImageSet, plan: Plan, *, device: torch.device | str) -> None:
        self.device = torch.device(device)
        self.data = data.to(self.device)
        count = len(self.data.train_labels)
        self.per_epoch, self.batch = max(1, count // plan.batch), min(plan.batch, count)
        self.layout = torch.channels_last if self.device.type == "cuda" else torch.preserve_format
        mean, spread = ([one / 255 for one in three] for three in (data.mean, data.spread))
        self.augment = Augment(crop=plan.crop, flip=plan.flip, mean=mean, std=spread)
        self.order = torch.zeros(count, dtype=torch.int64, device=self.device)
        self.turn, self.drawn = (torch.zeros(1, dtype=torch.int64, device=self.device) for _ in range(2))
        self.draws = Draws(seed_keys([0], device=self.device), self.drawn)
        self.next = compile_method(self.plain_next) if self.device.type == "cuda" else self.plain_next

    @property
    def counters(self) -> list[Tensor]:
        """What a step moves on by one."""
        return [self.turn, self.drawn]

    def begin(self, seed: int) -> None:
        """With the draws of this seed, from the first on."""
        for counter in self.counters:  # of the turns, too: a step is recorded before the first epoch begins
            counter.zero_()
        self.draws.keys.copy_(seed_keys([seed], device=self.device))

    def begin_epoch(self, seed: int, epoch: int) -> None:
        """With the order of this epoch."""
        shuffled = order(seeds=[seed], epoch=epoch, length=len(self.order), device=self.device)
        self.order.copy_(shuffled[0])
        self.turn.zero_()

    def plain_next(self) -> tuple[Tensor, Tensor]:
        """The images of this step, changed at random, and their labels."""
        places = self.turn * self.batch + torch.arange(self.batch, device=self.device)
        chosen = self.order.index_select(0, places)
        x, y = self.data.train_images.index_select(0, chosen), self.data.train_labels.index_select(0, chosen)
        x, y = self.augment(x, y, draws=self.draws)
        return x.contiguous(memory_format=self.layout) if self.device.type == "cuda" else x, y


Judge = Callable[[Tensor, Tensor, Tensor], Tensor]  # images, labels and what the network made of the images
_TEST_BATCH = 500


def settings_of_record(data: ImageSet, plan: Plan, device: torch.device) -> dict[str, Any]:
    """What a record says about a training: on how many images, where, and every number of the plan."""
    return {
        "data": data.name,
        "training_images": len(data.train_labels),
        "test_images": len(data.test_labels),
        "device": device.type,
        "bfloat16": plan.autocast(device),
        **asdict(plan),
    }


def cross_entropy(images: Tensor, labels: Tensor, output: Tensor) -> Tensor:
    """The usual loss."""
    return F.cross_entropy(output, labels)


class ImageTraining:
    """One network, trained from other weights as often as asked.

    Args:
        model: the network; it is moved to the device and its parameters are changed in place.
        data: the images, or batches of them that several trainings share.
        judge: the loss of a batch from images, labels and outputs. On a GPU it is called only while the graph is
            recorded, so that what changes between trainings must lie in tensors of `holds`.
        holds: tensors that the judge reads and `begin` may write, by name.

    >>> from softknee.lab.image_training import Entry, build
    >>> from softknee.lab.data.images import ImageSet
    >>> noise = torch.randint(0, 256, (8, 3, 32, 32), dtype=torch.uint8)
    >>> few = ImageSet(name="noise", train_images=noise, train_labels=torch.arange(8) % 2, test_images=noise,
    ...                test_labels=torch.arange(8) % 2, labels=("a", "b"))
    >>> model = build("wrn16_2", Entry(title="ReLU", name="relu"), classes=2, seed=0)
    >>> training = ImageTraining(model, few, Plan(epochs=1, batch=4), device="cpu")
    >>> training.begin(model.state_dict(), seed=0).run().losses.shape
    torch.Size([2])
    """

    def __init__(
        self,
        model: nn.Module,
        data: ImageSet | Batches,
        plan: Plan,
        *,
        device: torch.device | str,
        judge: Judge = cross_entropy,
        holds: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.device, self.plan, self.judge, self.holds = torch.device(device), plan, judge, dict(holds or {})
        self.batches = data if isinstance(data, Batches) else Batches(data, plan, device=self.device)
        self.data, self.per_epoch = self.batches.data, self.batches.per_epoch
        moved: Any = model  # torch has no type for both at once
        self.model: nn.Module = moved.to(self.device, memory_format=self.batches.layout)
        # Hooks of a penalty do not follow a copy, so that looking at the test images does not disturb it.
        self.twin = copy.deepcopy(self.model).eval()
        self._make_optimizers()
        self._make_tensors()
        self._step: Callable[[], None] | None = None
        self.seed = self.epoch = 0
        self.tests: dict[int, float] = {}

    def _make_optimizers(self) -> None:
        parts, plan = split(self.model), self.plan
        # As the paper's source of recipes, everything but activations decays, biases and norms among it.
        self.weights = [*parts["weights"], *parts["no_decay"]]
        self.knobs = parts["activations"]
        options = {"momentum": plan.momentum, "weight_decay": plan.weight_decay}
        groups: list[Any] = [(self.weights, 1.0, True)]
        if self.knobs:
            groups.append((self.knobs, Own("adam", plan.activation_rate), False))
        self.mover = StackedOptimizer("sgd", groups, options=options)

    def _make_tensors(self) -> None:
        plan, where, total = self.plan, self.device, self.per_epoch * self.plan.epochs
        falling = step(milestones=plan.milestones, factor=plan.factor)
        shares = read_table(falling, first=0, count=total, total=total)
        self.rates = plan.learning_rate * torch.tensor(shares, dtype=torch.float32, device=where)
        self.row = torch.zeros(1, dtype=torch.int64, device=where)
        self.log = torch.zeros(total, 2, device=where)  # loss, and the share of the batch that was right

    def begin(self, weights: Mapping[str, Tensor], *, seed: int, **held: float) -> ImageTraining:
        """From these weights, with the order and the draws of this seed; `held` are new values of `holds`."""
        with torch.no_grad():
            self.model.load_state_dict(dict(weights))
            for one in (*self.mover.tensors(), self.row, self.log):
                one.zero_()
            self.batches.begin(seed)
            for name, value in held.items():
                self.holds[name].fill_(value)
        torch.manual_seed(seed)  # SQUAF-P draws from torch's generator
        self.seed, self.epoch, self.tests = seed, 0, {}
        return self

    def run(self, advance: Callable[[], None] = lambda: None) -> ImageTraining:
        """All epochs; `advance` is called after each."""
        self.model.train()
        if self._step is None:
            self._step = self._recorded()
        for _ in range(self.plan.epochs):
            self.batches.begin_epoch(self.seed, self.epoch)
            for _ in range(self.per_epoch):
                self._step()
            self.epoch += 1
            if self.epoch % self.plan.every == 0 or self.epoch == self.plan.epochs:
                self.tests[self.epoch] = accuracy(self.snapshot(), self.data)
            advance()
        return self

    def snapshot(self) -> nn.Module:
        """The network as it is now, in eval mode, as a copy that the next call overwrites."""
        self.twin.load_state_dict(self.model.state_dict())
        return self.twin

    @property
    def losses(self) -> Tensor:
        """The loss of every step, on the CPU."""
        return self.log[:, 0].cpu().clone()  # the next training writes into the same tensor

    @property
    def train_accuracy(self) -> list[float]:
        """The share of training images, as they were changed, that was right in each epoch, in percent."""
        return (100 * self.log[:, 1].view(self.plan.epochs, -1).mean(1)).tolist()

    def _recorded(self) -> Callable[[], None]:
        if self.device.type != "cuda":
            return self._one_step
        moving = [*self.model.state_dict(keep_vars=True).values(), *self.mover.tensors()]
        changes = [one.detach() for one in moving if isinstance(one, Tensor)]
        changes += [self.row, self.log, *self.batches.counters]
        before, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, True  # one shape, many steps
        try:
            return captured(self._one_step, changes=changes, device=self.device)
        finally:
            torch.backends.cudnn.benchmark = before

    def _one_step(self) -> None:
        x, y = self.batches.next()
        with self._precision():
            output = self.model(x)
            loss = self.judge(x, y, output)
        if loss.dim():
            raise InputError(f"The loss must be one number, and it has shape {tuple(loss.shape)}; take its mean.")
        gradients = torch.autograd.grad(loss, [*self.weights, *self.knobs], materialize_grads=True)
        with torch.no_grad():
            parts = [gradients[: len(self.weights)]] + [gradients[len(self.weights) :]] * bool(self.knobs)
            self.mover.step(parts, self.rates.index_select(0, self.row))
            right = (output.argmax(1) == y).float().mean()
            self.log.index_copy_(0, self.row, torch.stack([loss.detach().float(), right]).unsqueeze(0))
            for counter in (self.row, *self.batches.counters):
                counter.add_(1)

    def _precision(self) -> AbstractContextManager[Any]:
        # Casts of weights are not kept: a kept one would be that of the weights at the recording.
        wanted = self.plan.autocast(self.device)
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=wanted, cache_enabled=False)


@torch.no_grad()
def accuracy(model: nn.Module, data: ImageSet) -> float:
    """The share of test images that the network, in eval mode, gets right, in percent."""
    right = torch.zeros((), dtype=torch.int64, device=data.test_labels.device)
    for images, labels in zip(data.test_images.split(_TEST_BATCH), data.test_labels.split(_TEST_BATCH), strict=True):
        right += (model(data.ready(images)).argmax(1) == labels).sum()
    return 100 * int(right) / len(data.test_labels)


def few_images(data: ImageSet, count: int) -> ImageSet:
    """The first images of each part."""
    names = ("train_images", "train_labels", "test_images", "test_labels")
    return replace(data, **{name: getattr(data, name)[:count] for name in names})
