"""The rate-accuracy curve of SQUAF-P: networks trained with a price on the bits of their activations."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import softknee as sk

from ..errors import InputError, ParameterError, did_you_mean
from ..kernels.squaf.layout import BY_ALPHA, BY_Q, BY_X, BY_Z
from ..kernels.squaf.marginal import entropy_in_bits
from ..measure.record import Quantity, Record
from ..nn.squaf import SQUAF, Chosen
from ..wire import sizes
from .bench.speed import choose_device
from .chart import INK, Chart, by_name, lines_legend, marks, number, side_by_side, sized, write_figure
from .data.images import ImageSet, load_image_set
from .figures import DISTINCT
from .image_training import (
    MODES,
    Batches,
    Entry,
    ImageTraining,
    Plan,
    accuracy,
    build,
    check_network,
    cross_entropy,
    learned,
    settings_of_record,
    squaf,
    trained_numbers,
)
from .kept import Kept


class QuickRate:
    """The rate R of the last forward pass of a model, in bits per activation; a call forgets that pass.

    >>> import softknee as sk
    >>> net = nn.Sequential(nn.Linear(2, 8), sk.nn.SQUAF(k=4, q=0.5), nn.Linear(8, 1))
    >>> rate = QuickRate(net)
    >>> loss = net(torch.randn(16, 2)).square().mean() + 0.002 * rate()
    >>> loss.backward(); rate.close()
    """

    def __init__(self, model: nn.Module) -> None:
        layers = [one for one in model.modules() if isinstance(one, SQUAF)]
        if not layers:
            raise InputError(f"{type(model).__name__} has no SQUAF layer, and only these have a rate.")
        for one in layers:
            if one.k is None or one.granularity.per != "layer":
                raise InputError(
                    f"{one.title}: the quick rate is for layers with one table on a uniform grid; take "
                    "sk.nn.RatePenalty for others."
                )
        self._seen: list[tuple[Tensor, int]] = []

        # A function, which a copy of the model shares: a bound method would take this object along.
        def note(module: Any, given: tuple[Tensor, ...]) -> None:
            if torch.is_grad_enabled():
                self._seen.append((marginal(module, given[0]), given[0].numel()))

        self._handles = [one.register_forward_pre_hook(note) for one in layers]

    def __call__(self) -> Tensor:
        seen, self._seen = self._seen, []
        if not seen:
            raise InputError("No forward pass with gradient reached a SQUAF layer since the last call.")
        total = sum(count for _, count in seen)
        return torch.stack([entropy_in_bits(p) * (count / total) for p, count in seen]).sum()

    def close(self) -> None:
        """Take the hooks away."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._seen = [], []


def marginal(module: SQUAF, x: Tensor) -> Tensor:
    """How often the layer takes each point of its grid on x, differentiable by x, q and alpha."""
    q, alpha = (module.effective(p).reshape(1) for p in module.params if p.name in ("q", "alpha"))
    found: Any = _Marginal.apply(x, q, alpha, module.points, module.window or 0, module.weights == "laplacian")
    return found


class _Marginal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, q: Tensor, alpha: Tensor, points: int, window: int, laplacian: bool) -> Tensor:
        ctx.save_for_backward(x, q, alpha)
        ctx.how = window, laplacian
        nothing = torch.zeros(1, points, dtype=q.dtype, device=x.device)
        return _gradients(torch.ones_like(x), x, q, alpha, nothing, *ctx.how, BY_Z)[3].reshape(-1) / x.numel()

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        x, q, alpha = ctx.saved_tensors
        by_x, by_q, by_alpha = ctx.needs_input_grad[:3]
        wanted = BY_X * by_x | BY_Q * by_q | BY_ALPHA * by_alpha
        slopes = (outer[0] / x.numel()).reshape(1, -1)
        found = _gradients(torch.ones_like(x), x, q, alpha, slopes, *ctx.how, wanted)
        each = zip(found[:3], (by_x, by_q, by_alpha), strict=True)
        return *(one if asked else None for one, asked in each), None, None, None


_gradients: Any = torch.ops.softknee.squaf_backward


_BATCH = 500
CODERS = ("entropy", "huffman", "rans", "packed")  # "entropy" is that of the symbols themselves


@dataclass(frozen=True, kw_only=True)
class Coded:
    """Bits per activation of the symbols of some test images, each layer coded by itself, with table and header."""

    symbols: int
    bits: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One network after training.

    accuracy: of the test images in percent, in each mode of `MODES`; of other activations {"soft": ...} alone. That
              of "sampled" is the mean of `draws`.
    rate:     the paper's, equation 12, over all test images, in bits per activation.
    outside:  the share of pre-activations beyond the grids.
    coded:    by mode, what the coders make of the symbols.
    layers:   the paper's rate of each SQUAF layer.
    draws:    the accuracy of SQUAF-P with each of its draws.
    """

    accuracy: Mapping[str, float]
    rate: float | None = None
    outside: float | None = None
    coded: Mapping[str, Coded] = field(default_factory=dict)
    layers: Mapping[str, float] = field(default_factory=dict)
    draws: Sequence[float] = ()

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Measured:
        """What `dataclasses.asdict` made of one."""
        coded = {mode: Coded(**one) for mode, one in row["coded"].items()}
        return cls(**{**row, "coded": coded, "draws": tuple(row["draws"])})

    @property
    def bits(self) -> dict[str, float]:
        """The rate, and each coder's bits for SQUAF-P and, with "step_" before it, for SQUAF-S."""
        if self.rate is None:
            return {}
        found = {"rate": self.rate}
        for coder in CODERS:
            found[coder] = self.coded["sampled"].bits[coder]
            found[f"step_{coder}"] = self.coded["step"].bits[coder]
        return found


def measure(model: nn.Module, data: ImageSet, *, coded_images: int, draws: int, seed: int) -> Measured:
    """Everything about one network in eval mode, in float32; it is left in the mode it was in.

    SQUAF-P draws anew at each call: what is drawn here follows from the seed. A draw moves the accuracy by as much as
    another seed of the training does, so that it is taken over several.
    """
    layers = [one for one in model.modules() if isinstance(one, sk.nn.SQUAF)]
    if not layers:
        return Measured(accuracy={"soft": accuracy(model, data)})
    before, found, coded = layers[0].mode, {}, {}
    devices = [data.test_images.device] if data.test_images.is_cuda else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        for mode in MODES:
            sk.squaf_mode_(model, mode)
            found[mode] = [accuracy(model, data) for _ in range(draws if mode == "sampled" else 1)]
            if mode != "soft":
                coded[mode] = code(model, data.ready(data.test_images[:coded_images]))
        sk.squaf_mode_(model, "sampled")
        rate = sk.measure.rate(model, (data.ready(one) for one in data.test_images.split(_BATCH)))
    sk.squaf_mode_(model, before)
    sites = {one.path: one.bits for one in rate.sites}
    return Measured(
        accuracy={mode: sum(each) / len(each) for mode, each in found.items()},
        rate=rate.bits,
        outside=rate.outside,
        coded=coded,
        layers=sites,
        draws=tuple(found["sampled"]),
    )


@torch.no_grad()
def code(model: nn.Module, images: Tensor) -> Coded:
    """The symbols that the SQUAF layers of a network send for these images, coded with every coder.

    The network must be in the mode "sampled" or "step": a mean of the table is no symbol.
    """
    with watched(model) as symbols:
        model(images)
    total = sum(one.numel() for one, _ in symbols.values())
    bits: dict[str, float] = dict.fromkeys(CODERS, 0.0)
    for one, levels in symbols.values():
        found = sizes(one.to(torch.uint8 if levels <= 256 else torch.int32).cpu(), levels=levels)
        for name in CODERS:
            bits[name] += getattr(found, name) * one.numel() / total
    return Coded(symbols=total, bits=bits)


@contextmanager
def watched(model: nn.Module) -> Iterator[dict[str, tuple[Tensor, int]]]:
    """While open, a dict of the symbols of the last call of each SQUAF layer, with the number of levels.

    What a layer gives on to the next one comes from the draw that its symbols are of.
    """
    found: dict[str, tuple[Tensor, int]] = {}

    def hook(path: str) -> Any:
        def after(module: Any, given: tuple[Tensor, ...], _: Tensor) -> Tensor:
            output, symbols = module.with_symbols(given[0])
            found[path] = symbols, module.points
            return output

        return after

    layers = {path: one for path, one in model.named_modules() if isinstance(one, Chosen)}
    handles = [one.register_forward_hook(hook(path)) for path, one in layers.items()]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


KIND = "study rate"
BASELINES = (
    Entry(title="ReLU", name="relu"),
    Entry(title="GELU", name="gelu"),
    squaf("SQUAF"),
)
SAMPLED = "SQUAF-P"
# The paper's, all of them.
WEIGHTS = (0.0, 0.001, 0.002, 0.003, 0.004, 0.005, 0.006)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is run, on what, and where the data lie.

    q:            where the spacing of SQUAF-P starts; the paper has 0.125 for VGG-8.
    coded_images: of so many test images the symbols are coded; VGG-8 has 131,072 in each.
    draws:        the accuracy of SQUAF-P is the mean over so many draws.
    smoke:        a smoke run, which the record then says.
    plain_rate:   the rate by `sk.nn.RatePenalty` in the place of `QuickRate`: the same number, by other kernels.
    """

    network: str = "vgg8"
    data_set: str = "cifar-10"
    weights: tuple[float, ...] = WEIGHTS
    baselines: tuple[Entry, ...] = BASELINES
    seeds: tuple[int, ...] = (0, 1, 2)
    q: float = 0.125
    coded_images: int = 16
    draws: int = 8
    plain_rate: bool = False
    plan: Plan = field(default_factory=lambda: Plan(batch=256, learning_rate=0.1))
    device: str = "auto"
    data: str | os.PathLike[str] | None = None
    smoke: bool = False

    def __post_init__(self) -> None:
        check_network(self.network)
        if not self.seeds or len(set(self.weights)) < len(self.weights) or not self.weights:
            raise ParameterError("The study of the rate needs a seed, and weights that are all different.")
        for one in self.weights:
            if not 0 <= one < math.inf:
                raise ParameterError(f"A weight of the rate is at least 0, and {one!r} was given.")
        if self.coded_images < 1 or self.draws < 1 or not self.q > 0:
            raise ParameterError("q must be above 0; the symbols of one image and one draw are the least.")

    def for_smoke(self) -> Settings:
        """A form that only shows that everything runs: two batches of two, one epoch, one weight beside 0."""
        plan = replace(self.plan, epochs=1, batch=2, every=1)
        few = {"weights": (0.0, self.weights[-1] or 0.006), "seeds": self.seeds[:1], "coded_images": 1, "draws": 2}
        return replace(self, plan=plan, baselines=self.baselines[:1], smoke=True, **few)


def choose_baselines(names: Sequence[str]) -> tuple[Entry, ...]:
    """Those of `BASELINES` with these names."""
    known = {one.name: one for one in BASELINES}
    for name in names:
        if name not in known:
            near = did_you_mean(name, known)
            raise ParameterError(f"Beside SQUAF-P there are {', '.join(known)}, and {name!r} was asked.{near}")
    return tuple(one for one in BASELINES if one.name in names)


def steps(settings: Settings) -> int:
    """How often `run` reports progress: after every epoch of every network."""
    return settings.plan.epochs * len(settings.seeds) * (len(settings.weights) + len(settings.baselines))


def run(
    settings: Settings,
    *,
    command: str,
    advance: Callable[[str], None] = lambda _: None,
    data: ImageSet | None = None,
    keep: str | os.PathLike[str] | None = None,
) -> Record:
    """Train and measure everything and return the record; `data` in the place of the data set by its name.

    In the folder `keep` each network's finding is kept as soon as it is there, and not sought again (`lab.kept`).
    """
    device = choose_device(settings.device)
    images = (data or load_image_set(settings.data_set, settings.data)).to(device)
    entry, rows = squaf(SAMPLED, q=settings.q, mode="sampled"), []
    names = [name_of(one, None, seed) for one in settings.baselines for seed in settings.seeds]
    names += [name_of(entry, weight, seed) for weight in settings.weights for seed in settings.seeds]
    kept = Kept(keep, kind=KIND, settings=_settings_of_record(settings, images, device), names=names)
    batches = Batches(images, settings.plan, device=device)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):  # seeds are set for SQUAF-P
        for one in settings.baselines:
            rows.append(row_of(one.title, None, _train(one, None, batches, settings, advance, kept)))
        found = _train(entry, settings.weights, batches, settings, advance, kept)
    rows += [row_of(SAMPLED, weight, [one for one in found if one.weight == weight]) for weight in settings.weights]
    return kept.of(_record(settings, rows, images, device, command))


def name_of(entry: Entry, weight: float | None, seed: int) -> str:
    """Under which name a finding is kept."""
    return f"{entry.name}{'' if weight is None else f'-{weight:g}'}-seed-{seed}"


def _train(
    entry: Entry,
    weights: Sequence[float] | None,
    batches: Batches,
    settings: Settings,
    advance: Callable[[str], None],
    kept: Kept,
) -> list[Trained]:
    """Every seed (and weight of the rate) of one entry; on a GPU they share one recorded step."""
    found, epochs = [], settings.plan.epochs
    with ExitStack() as closing:
        made = cache(partial(_training, entry, weights is not None, batches, settings, closing))  # if one is missing
        for weight in [None] if weights is None else weights:
            for seed in settings.seeds:
                label = f"{entry.title}{'' if weight is None else f' {weight:g}'} seed {seed}"
                say = partial(advance, label)
                train = partial(_one, made, entry, weight, seed, settings, say)
                found.append(Trained.of(kept.found(name_of(entry, weight, seed), train, advance=say, steps=epochs)))
    return found


def _training(entry: Entry, rated: bool, batches: Batches, settings: Settings, closing: ExitStack) -> ImageTraining:
    model = build(settings.network, entry, classes=len(batches.data.labels), seed=settings.seeds[0])
    if not rated:
        return ImageTraining(model, batches, settings.plan, device=batches.device)
    penalty = sk.nn.RatePenalty(model, weight=1.0) if settings.plain_rate else QuickRate(model)
    closing.callback(penalty.close)
    weight = torch.zeros((), device=batches.device)
    judge = _with_rate(penalty, weight)
    return ImageTraining(model, batches, settings.plan, device=batches.device, judge=judge, holds={"weight": weight})


def _one(
    made: Callable[[], ImageTraining],
    entry: Entry,
    weight: float | None,
    seed: int,
    settings: Settings,
    advance: Callable[[], None],
) -> dict[str, Any]:
    """What one network finds, as it is kept (`Trained.of` reads it)."""
    training = made()
    data = training.data
    model = build(settings.network, entry, classes=len(data.labels), seed=seed)
    began = time.perf_counter()
    training.begin(model.state_dict(), seed=seed, **({} if weight is None else {"weight": weight}))
    training.run(advance)
    lost = not bool(training.losses.isfinite().all())  # waits for the device
    seconds = time.perf_counter() - began
    network = training.snapshot()
    asked = {"coded_images": settings.coded_images, "draws": settings.draws, "seed": seed}
    found = Trained(
        seed=seed,
        weight=weight,
        numbers=trained_numbers(model),
        seconds=seconds,
        tests=dict(training.tests),
        start=learned(model),
        learned={} if lost else learned(network),
        measured=None if lost else measure(network, data, **asked),
    )
    return asdict(found)


def _with_rate(penalty: Any, weight: Tensor) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return lambda images, labels, output: cross_entropy(images, labels, output) + weight * penalty()


def _record(
    settings: Settings, rows: Sequence[Mapping[str, Any]], data: ImageSet, device: torch.device, command: str
) -> Record:
    return Record.now(
        KIND,
        command=command,
        rows=rows,
        seeds=settings.seeds,
        baseline="ReLU from the same weights on the same batches; its activations take 32 bits",
        settings=_settings_of_record(settings, data, device),
        notes=[
            "Accuracy of the test images after the last epoch, in percent, in float32.",
            "bits.rate is the paper's equation 12 over all test images; entropy, huffman and rans are of the symbols "
            "of the coded images, each layer a message of its own with table and header; step_ of those of SQUAF-S.",
            "sampled: as trained (SQUAF-P), the mean over draws, each of which is in draws_by_seed; soft and step: "
            "switched to SQUAF and to SQUAF-S after training.",
        ],
    )


def _settings_of_record(settings: Settings, data: ImageSet, device: torch.device) -> dict[str, Any]:
    return {
        "network": settings.network,
        "q": settings.q,
        "coded_images": settings.coded_images,
        "draws": settings.draws,
        "smoke": settings.smoke,
        **settings_of_record(data, settings.plan, device),
    }


_HEADS = (
    "activation", "weight of the rate", "accuracy, %", "switched to SQUAF (32 bits)", "switched to SQUAF-S",
    "rate (eq. 12)", "Huffman", "range coder", "SQUAF-S, Huffman",
)  # fmt: skip


def rate_markdown(record: Record) -> str:
    """A row for each training: accuracies in percent, bits per activation, mean and spread over the seeds."""
    if record.kind != KIND:
        raise ParameterError(
            f"This table is made of a record of 'softknee study rate', and this one is of {record.kind!r}; name "
            "another file."
        )
    lines = [f"| {' | '.join(_HEADS)} |", "|:--" + "|--:" * (len(_HEADS) - 1) + "|"]
    for row in record.rows:
        accuracy, bits = row.get("accuracy", {}), row.get("bits", {})
        own = "sampled" if row["weight"] is not None else "soft"
        cells = [row["activation"], "" if row["weight"] is None else f"{row['weight']:g}"]
        if "not_run" in row:
            cells += [row["not_run"], *[""] * (len(_HEADS) - 3)]
        else:
            switched = ("soft", "step") if own == "sampled" else ("", "")
            cells += [_text(accuracy.get(mode), 2) for mode in (own, *switched)]
            full = "" if bits else "32"
            cells += [_text(bits.get(name), 3) or full for name in ("rate", "huffman", "rans", "step_huffman")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _text(found: Quantity | None, digits: int) -> str:
    return "" if found is None else found.text(digits)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """One network of one seed; `measured` is None where its loss was no longer a number."""

    seed: int
    weight: float | None
    numbers: int
    seconds: float
    tests: Mapping[int, float]
    start: Mapping[str, Any]
    learned: Mapping[str, Any]
    measured: Measured | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Trained:
        """What was kept of one."""
        given = dict(row)
        given["tests"] = {int(epoch): one for epoch, one in row["tests"].items()}  # JSON's keys are texts
        given["measured"] = None if row["measured"] is None else Measured.of(row["measured"])
        return cls(**given)


def row_of(title: str, weight: float | None, found: Sequence[Trained]) -> dict[str, Any]:
    """All seeds of one activation with one weight of the rate."""
    there = [one.measured for one in found if one.measured is not None]
    row: dict[str, Any] = {
        "activation": title,
        "weight": weight,
        "trained": found[0].numbers,
        "diverged": [one.seed for one in found if one.measured is None],
        "time": Quantity.mean([one.seconds for one in found], unit="s"),
        "curve": {"epochs": list(found[0].tests), "test": [list(one.tests.values()) for one in found]},
        "start": dict(found[0].start),
        "learned": [dict(one.learned) for one in found],
        "accuracy_by_seed": {
            mode: [None if one.measured is None else one.measured.accuracy.get(mode) for one in found]
            for mode in (MODES if weight is not None else ("soft",))
        },
    }
    if not there:
        return {**row, "not_run": "every seed diverged"}
    row["accuracy"] = {
        mode: Quantity.mean([one.accuracy[mode] for one in there], unit="%") for mode in there[0].accuracy
    }
    if there[0].rate is None or weight is None:
        return row  # activations of 32 bits: a SQUAF that is not drawn from has no symbols
    bits = {
        name: [None if one.measured is None else one.measured.bits[name] for one in found] for name in there[0].bits
    }
    row["bits"] = {
        name: Quantity.mean([one.bits[name] for one in there], unit="bits per activation") for name in there[0].bits
    }
    row["bits_by_seed"] = bits
    row["draws_by_seed"] = [None if one.measured is None else list(one.measured.draws) for one in found]
    row["symbols"] = there[0].coded["sampled"].symbols
    row["outside"] = Quantity.mean([one.outside for one in there if one.outside is not None], unit="share")
    row["layers"] = {path: [one.layers[path] for one in there] for path in there[0].layers}
    return row


_WIDE = 0.1  # of the panel: the name of a weight
_CURVES = (
    ("sampled", "SQUAF-P, as trained"),
    ("soft", "switched to SQUAF, then 32 bits"),
    ("step", "switched to SQUAF-S"),
)
_BITS = (("rate", "equation 12"), ("huffman", "Huffman"), ("rans", "range coder"))
_DASHES = ([1, 0], [6, 3], [2, 3], [6, 3, 2, 3])


def draw_rate(record: Record, path: str | PathLike[str]) -> Path:
    """Draw the record of `softknee study rate` into a .png or .svg file, and return where it is."""
    return write_figure(rate_figure(record), path, label="accuracy against bits per activation")


def rate_figure(record: Record) -> Chart:
    """The figure itself: means over the seeds, with a standard deviation to either side."""
    coded = [row for row in record.rows if "bits" in row]
    if record.kind != KIND or not coded:
        raise ParameterError(
            f"A rate curve is drawn from a record of 'softknee study rate', and this one is of {record.kind!r} or has "
            "no coded row."
        )
    coded.sort(key=lambda row: row["weight"])
    plain = [row for row in record.rows if row["weight"] is None and "accuracy" in row]
    return side_by_side([_accuracies(coded, plain, record), _weights(coded)], columns=2)


def _accuracies(coded: Sequence[Mapping[str, Any]], plain: Sequence[Any], record: Record) -> Chart:
    bits = [row["bits"]["huffman"] for row in coded]
    points = [
        point for mode, title in _CURVES for point in _points(title, bits, [row["accuracy"][mode] for row in coded])
    ]
    levels = [(f"{row['activation']}, 32 bits", row["accuracy"]["soft"]) for row in plain[: len(_DASHES)]]
    low, high = min(one.low for one in bits), max(one.high for one in bits)
    room = 0.06 * (high - low) or 0.1
    left, right = low - room, high + room
    every = [row["accuracy"][mode] for row in coded for mode, _ in _CURVES] + [level for _, level in levels]
    bottom, top = min(one.low for one in every), max(one.high for one in every)
    tall = (top - bottom) or 1.0
    x = number("x", title="bits per activation, Huffman", domain=(left, right))
    y = number("y", domain=(bottom - 0.22 * tall, top + 0.05 * tall))
    names = [title for _, title in _CURVES] + [name for name, _ in levels]
    across = [
        {"name": name, "x": end, "y": level.value, "low": level.low, "high": level.high}
        for name, level in levels
        for end in (left, right)
    ]
    colours = by_name(names, [*DISTINCT[: len(_CURVES)], *[INK] * len(levels)], legend=lines_legend(columns=2))
    dashes = by_name(names, [*[[1, 0]] * len(_CURVES), *_DASHES[: len(levels)]], legend=lines_legend(columns=2))
    detail = {"field": "name", "type": "nominal"}
    layers = [
        marks(
            "area", across, {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "detail": detail}, **_SHADE
        ),
        marks("line", across, {"x": x, "y": y, "color": colours, "strokeDash": dashes}),
        *_curves(points, x, y, colours, dashes),
        marks(
            "text",
            _weight_names(coded, left, right),
            {"x": x, "y": {"value": "height"}, "text": {"field": "text"}},
            **_BELOW,
        ),
    ]
    data, epochs = record.settings["data"], record.settings["epochs"]
    title = f"test accuracy, %, of {record.settings['network']} on {data}, {epochs} epochs"
    return sized({"title": title, "layer": layers}, 480, 270)


_SHADE = {"color": INK, "opacity": 0.06}
_BELOW = {"dy": {"expr": "-13 * datum.line - 8"}, "fontSize": 9, "style": "remark"}


def _weight_names(coded: Sequence[Mapping[str, Any]], low: float, high: float) -> list[dict[str, Any]]:
    """Each weight below its points, in the lowest line that has room for it."""
    names, taken = [], []  # taken: where each line ends so far
    for row in sorted(coded, key=lambda row: row["bits"]["huffman"].value):
        at = row["bits"]["huffman"].value
        line = next((place for place, end in enumerate(taken) if at - end > _WIDE * (high - low)), len(taken))
        taken[line : line + 1] = [at]
        names.append({"x": at, "line": line, "text": f"λ = {row['weight']:g}"})
    return names


def _weights(coded: Sequence[Mapping[str, Any]]) -> Chart:
    weights = [Quantity.mean([row["weight"]], unit="") for row in coded]
    points = [point for name, title in _BITS for point in _points(title, weights, [row["bits"][name] for row in coded])]
    values = [row["bits"][name] for row in coded for name, _ in _BITS]
    low, high = min(one.low for one in values), max(one.high for one in values)
    room = 0.08 * (high - low) or 0.1
    most = max(one.value for one in weights) or 0.001
    x = number("x", title="weight λ of the rate", domain=(-0.05 * most, 1.05 * most))
    y = number("y", domain=(low - room, high + room))
    legend = lines_legend(columns=3)
    names = [title for _, title in _BITS]
    colours = by_name(names, DISTINCT[: len(names)], legend=legend)
    dashes = by_name(names, [[1, 0]] * len(names), legend=legend)
    return sized({"title": "bits per activation", "layer": _curves(points, x, y, colours, dashes)}, 280, 270)


def _points(title: str, across: Sequence[Quantity], up: Sequence[Quantity]) -> list[dict[str, Any]]:
    return [
        {
            "name": title,
            "x": a.value,
            "y": b.value,
            "left": a.value - a.spread,
            "right": a.value + a.spread,
            "low": b.value - b.spread,
            "high": b.value + b.spread,
        }
        for a, b in zip(across, up, strict=True)
    ]


def _curves(points: list[dict[str, Any]], x: Chart, y: Chart, colours: Chart, dashes: Chart) -> list[Chart]:
    """Points joined in their order, with a spread to each side."""
    order = {"field": "place", "type": "ordinal"}
    rows = [{**point, "place": place} for place, point in enumerate(points)]
    upright = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": colours}
    level = {"x": {**x, "field": "left"}, "x2": {"field": "right"}, "y": y, "color": colours}
    return [
        marks("line", rows, {"x": x, "y": y, "order": order, "color": colours, "strokeDash": dashes}),
        marks("rule", rows, upright),
        marks("rule", rows, level),
        marks("circle", rows, {"x": x, "y": y, "color": colours}, size=28, opacity=1),
    ]
