"""KAN layers beside pykan, efficient-kan, FastKAN and an MLP: test error over seeds, and what a training step costs.

Every network is trained on the same examples by the same loop: functions of two numbers with L-BFGS on 1,000 points as
Liu et al. do, images with Adam. The step is Adam's for all; networks take turns. On a GPU a small network waits for the
host, so that a step is also timed as a CUDA graph, which the host starts as one. efficient-kan and FastKAN are written
from their formulas here; pykan is the package of that name where it is installed, with its symbolic branch off.

    product     exp(sin(pi x) + y^2), the example of Liu et al.
    bessel      J_v(t), the Bessel function of the first kind, v in [0, 5], t in [0, 20]
    elliptic    sn(t | m), Jacobi's elliptic function, t in [-4, 4], m in [0, 0.98]
    legendre    P_v(t), the Legendre function of real degree, v in [0, 5], t in [-0.9, 0.9]
    incomplete  F(t | m), the incomplete elliptic integral of the first kind, t in [-1.5, 1.5], m in [0, 0.98]
    mnist       handwritten digits

The special functions are among those of Liu et al.; the ranges are ours. Inputs are scaled to [-1, 1]. The start of our
layers was chosen with the first three in view; the other two were added afterwards, and nothing was chosen by them.

References: Z. Liu et al., KAN: Kolmogorov-Arnold networks (2024); Z. Li, Kolmogorov-Arnold networks are radial basis
function networks (2024).
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...errors import ParameterError
from ...measure.record import Quantity, Record
from ...nn import KANLinear
from ...train.capture import captured
from ..table import Table
from .clock import (
    Clock,
    check_names,
    check_settings,
    chosen_settings,
    cpu_threads,
    failures,
    machine,
    why_not,
)

_POINTS = 1000  # to train on, and as many for the test
_ITERATIONS_A_CALL = 20
# Intervals in [-1, 1] and the order of the splines: 11 functions on each edge, as ours have points.
_GRID, _ORDER = 8, 3
_IMAGES = 256  # in a batch
_STEPS = 10  # in a sample
EAGER, GRAPH, COMPILED = "eager", "graph", "compiled"
# In a record the time of an eager step stands under its own name, that of another way under these.
WAYS = {EAGER: "step", GRAPH: "graph_step", COMPILED: "compiled_step"}


class SplineLayer(nn.Module):
    """efficient-kan's layer: cubic B-splines by the recursion of de Boor, with a base of SiLU and a scale per edge."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        step = 2 / _GRID
        knots = torch.arange(-_ORDER, _GRID + _ORDER + 1) * step - 1
        self.register_buffer("knots", knots)
        self.base = nn.Parameter(torch.empty(n_out, n_in))
        self.table = nn.Parameter(torch.randn(n_out, n_in, _GRID + _ORDER) * 0.1 / _GRID)
        self.scale = nn.Parameter(torch.empty(n_out, n_in))
        for weight in (self.base, self.scale):
            nn.init.kaiming_uniform_(weight, a=math.sqrt(5))

    def forward(self, input: Tensor) -> Tensor:
        x, knots = input.unsqueeze(-1), self.get_buffer("knots")
        values = ((x >= knots[:-1]) & (x < knots[1:])).to(input.dtype)
        for k in range(1, _ORDER + 1):
            rising = (x - knots[: -k - 1]) / (knots[k:-1] - knots[: -k - 1])
            falling = (knots[k + 1 :] - x) / (knots[k + 1 :] - knots[1:-k])
            values = rising * values[..., :-1] + falling * values[..., 1:]
        weight = (self.table * self.scale.unsqueeze(-1)).flatten(1)
        return F.linear(F.silu(input), self.base) + F.linear(values.flatten(1), weight)


class RadialLayer(nn.Module):
    """FastKAN's layer: Gaussians around fixed points, with a base of SiLU, and a layer norm before wide inputs.

    The norm is left out below 8 inputs, where it takes away more than scale: of two numbers it leaves a sign.
    """

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(n_in) if n_in >= 8 else nn.Identity()
        reach = 2.0 if n_in >= 8 else 1.25
        self.register_buffer("points", torch.linspace(-reach, reach, _GRID + _ORDER))
        self.width = 2 * reach / (_GRID + _ORDER - 1)
        self.table = nn.Linear(n_in * (_GRID + _ORDER), n_out, bias=False)
        nn.init.trunc_normal_(self.table.weight, std=0.1)
        self.base = nn.Linear(n_in, n_out)

    def forward(self, input: Tensor) -> Tensor:
        away = (self.norm(input).unsqueeze(-1) - self.get_buffer("points")) / self.width
        return self.table(torch.exp(-away.square()).flatten(1)) + self.base(F.silu(input))


def _ours(n_in: int, n_out: int, edge: str) -> nn.Module:
    reach = 2.0 if n_in >= 8 else 1.0
    return KANLinear(n_in, n_out, edge=edge, grid=_GRID + _ORDER, low=-reach, high=reach)


def _layers(layer: Callable[[int, int], nn.Module]) -> Callable[[Sequence[int]], nn.Module]:
    return lambda widths: nn.Sequential(*[layer(n_in, n_out) for n_in, n_out in pairwise(widths)])


def _pykan(widths: Sequence[int]) -> nn.Module:
    if find_spec("kan") is None:
        raise ParameterError("pykan is not installed; pip install pykan")
    kan: Any = import_module("kan")
    with tempfile.TemporaryDirectory() as folder:  # it makes one for its checkpoints, which are switched off
        seed = int(torch.randint(2**31 - 1, ()))
        network = kan.KAN(list(widths), grid=_GRID, k=_ORDER, seed=seed, auto_save=False, ckpt_path=folder)
    network.speed()
    return network


def _matched(widths: Sequence[int]) -> nn.Module:
    """An MLP of two hidden layers with SiLU, of about as many parameters as the KAN of a soft table."""
    wanted = count_trained(MODELS["squaf"](widths))
    first, last = widths[0], widths[-1]
    hidden = min(range(1, 4096), key=lambda h: abs((first + 1) * h + (h + 1) * h + (h + 1) * last - wanted))
    sizes = (first, hidden, hidden, last)
    linears = [nn.Linear(n_in, n_out) for n_in, n_out in pairwise(sizes)]
    return nn.Sequential(linears[0], nn.SiLU(), linears[1], nn.SiLU(), linears[2])


# Each from the widths of a network, by torch's global generator. "linear" is "spline" without mollification.
MODELS: dict[str, Callable[[Sequence[int]], nn.Module]] = {
    "squaf": _layers(lambda n_in, n_out: _ours(n_in, n_out, "squaf")),
    "spline": _layers(lambda n_in, n_out: _ours(n_in, n_out, "spline")),
    "linear": _layers(lambda n_in, n_out: _ours(n_in, n_out, "relu")),
    "pykan": _pykan,
    "efficient-kan": _layers(SplineLayer),
    "fastkan": _layers(RadialLayer),
    "mlp": _matched,
}


def count_trained(model: nn.Module) -> int:
    """How many numbers are trained."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


# -- what is learned --------------------------------------------------------------------------------------


def _special(name: str, *arguments: Tensor) -> Tensor:
    """A function of scipy.special; of one with several results the first."""
    from scipy import special

    values = getattr(special, name)(*(argument.numpy() for argument in arguments))
    return torch.from_numpy(values[0] if isinstance(values, tuple) else values)


FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "product": lambda x, y: (torch.sin(math.pi * x) + y.square()).exp(),
    "bessel": lambda x, y: _special("jv", 2.5 * (x + 1), 10 * (y + 1)),
    "elliptic": lambda x, y: _special("ellipj", 4 * x, 0.49 * (y + 1)),
    "legendre": lambda x, y: _special("lpmv", torch.zeros_like(x), 2.5 * (x + 1), 0.9 * y),
    "incomplete": lambda x, y: _special("ellipkinc", 1.5 * x, 0.49 * (y + 1)),
}
TASKS = (*FUNCTIONS, "mnist")
WIDTHS = {**dict.fromkeys(FUNCTIONS, (2, 5, 1)), "mnist": (784, 64, 10)}


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs and targets for training and for the test."""

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor


def _examples(task: str, seed: int, settings: Settings) -> Examples:
    if task == "mnist":
        from ..data.images import load_split

        split = load_split("mnist", flat=True).to(settings.device)
        x, y = split.train_images[: settings.examples], split.train_labels[: settings.examples]
        return Examples(x, y, split.test_images, split.test_labels)
    draw = torch.Generator().manual_seed(seed)
    x, test_x = (2 * torch.rand(_POINTS, 2, generator=draw) - 1 for _ in range(2))
    y, test_y = (FUNCTIONS[task](*each.double().unbind(1)).float().unsqueeze(1) for each in (x, test_x))
    return Examples(*(tensor.to(settings.device) for tensor in (x, y, test_x, test_y)))


def _fit_function(model: nn.Module, data: Examples, settings: Settings) -> float:
    """The root mean squared error on the test points."""
    optimizer = torch.optim.LBFGS(
        [p for p in model.parameters() if p.requires_grad],
        max_iter=_ITERATIONS_A_CALL,
        history_size=10,
        line_search_fn="strong_wolfe",
        tolerance_grad=0.0,
        tolerance_change=0.0,
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(data.x), data.y)
        loss.backward()
        return loss

    for _ in range(math.ceil(settings.iterations / _ITERATIONS_A_CALL)):
        optimizer.step(closure)
    with torch.no_grad():
        return F.mse_loss(model(data.test_x).double(), data.test_y.double()).sqrt().item()


def _fit_images(model: nn.Module, data: Examples, settings: Settings) -> float:
    """The share of test images that are classified wrongly."""
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.rate)
    orders = [torch.randperm(len(data.x)).to(data.x.device) for _ in range(settings.epochs)]
    batches = [part for order in orders for part in order.split(_IMAGES)]
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=len(batches))
    for chosen in batches:
        optimizer.zero_grad()
        F.cross_entropy(model(data.x[chosen]), data.y[chosen]).backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        guesses = torch.cat([model(part).argmax(1) for part in data.test_x.split(1000)])
    return (guesses != data.test_y).double().mean().item()


def _steps(model: nn.Module, data: Examples, way: str, *, images: bool) -> Callable[[], object]:
    """Several training steps, run in one of `WAYS`."""
    trained = [p for p in model.parameters() if p.requires_grad]
    count = _IMAGES if images else _POINTS
    x, y = data.x[:count], data.y[:count]
    optimizer = torch.optim.Adam(trained, fused=True, capturable=x.is_cuda)
    loss = F.cross_entropy if images else F.mse_loss
    called = torch.compile(model, dynamic=False) if way == COMPILED else model

    def step() -> None:
        optimizer.zero_grad()
        loss(called(x), y).backward()
        optimizer.step()

    run = step if way == EAGER else captured(step, changes=(), device=x.device)

    def several(held: Callable[[], None] = step) -> None:  # a graph does not hold the state of the optimiser
        for _ in range(_STEPS):
            run()

    return several


# -- the benchmark ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is trained, how long, and how often."""

    device: torch.device
    tasks: tuple[str, ...] = TASKS
    models: tuple[str, ...] = tuple(MODELS)
    seeds: int = 5
    iterations: int = 400
    """Of L-BFGS, for the functions."""
    epochs: int = 10
    examples: int = 60_000
    """Training images."""
    rate: float = 2e-3
    """Adam's, for the images, falling to 0."""
    untrained: tuple[str, ...] = ()
    """Models that are timed on the images and not trained on them."""
    ways: tuple[str, ...] = ()
    """Of running a step, see `WAYS`; left out, eager, and on a GPU also as a graph."""
    repeats: int = 15
    seconds_per_call: float = 5.0
    threads: int = field(default_factory=torch.get_num_threads)

    def __post_init__(self) -> None:
        check_settings(self, "seeds", "iterations", "epochs", "examples", "repeats", "threads")
        check_names(self.tasks, TASKS, "task")
        check_names((*self.models, *self.untrained), MODELS, "network")
        check_names(self.ways, WAYS, "way of running a step")
        on_gpu = self.device.type == "cuda"
        if not on_gpu and set(self.ways) - {EAGER}:
            raise ParameterError("A step is recorded as a graph on a GPU only; on a CPU the one way is 'eager'.")
        object.__setattr__(self, "ways", self.ways or ((EAGER, GRAPH) if on_gpu else (EAGER,)))


def measure(settings: Settings, *, command: str, report: Callable[[str], None] = lambda _: None) -> Record:
    """Train and time all of it; `report` is called with what is being done."""
    with cpu_threads(settings.threads), torch.random.fork_rng():
        rows = [row for task in settings.tasks for row in _rows(task, settings, report)]
    trained = ("tasks", "models", "seeds", "iterations", "epochs", "examples", "rate", "untrained")
    return Record.now(
        "bench kan",
        command=command,
        rows=rows,
        seeds=tuple(range(settings.seeds)),
        baseline="pykan, efficient-kan, FastKAN and an MLP, trained and timed in the same run",
        settings=chosen_settings(settings, *trained, "ways", "repeats", "threads"),
        notes=(
            "error is the root mean squared error on 1,000 test points, or the share of wrong test images",
            f"step is forward, backward and torch's fused Adam on 1,000 points or 256 images: {_STEPS} steps in a "
            "row, between two events on a GPU with the host's delays; the networks take turns",
            "graph_step is the same step as a CUDA graph, compiled_step that of the compiled network",
            f"11 functions on each edge for all; pykan {_version('pykan')} has its symbolic branch off (speed())",
            "grids stay as they are: [-1, 1], and [-2, 2] for ours and FastKAN's from 8 inputs on",
        ),
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"


def _rows(task: str, settings: Settings, report: Callable[[str], None]) -> list[dict[str, Any]]:
    images = task == "mnist"
    data = [_examples(task, seed, settings) for seed in range(1 if images else settings.seeds)]
    rows: list[dict[str, Any]] = []
    timed: list[tuple[dict[str, Any], nn.Module]] = []
    for name in settings.models:
        row: dict[str, Any] = {"task": task, "model": name}
        rows.append(row)
        fit = None if images and name in settings.untrained else _fit_images if images else _fit_function
        errors, model = [], nn.Module()
        try:
            for seed in range(settings.seeds if fit else 1):
                report(f"{task}: {name}, seed {seed}")
                torch.manual_seed(seed)
                model = MODELS[name](WIDTHS[task]).to(settings.device)
                if fit:
                    errors.append(fit(model, data[seed % len(data)], settings))
        except Exception as error:
            row["not_run"] = why_not(error)
            continue
        row["parameters"] = count_trained(model)
        if fit:
            row["errors"], row["error"] = errors, Quantity.mean(errors, unit="share" if images else "rmse")
        timed.append((row, model))
    for way in settings.ways:
        report(f"{task}: timing, {way}")
        _time(timed, data[0], way, settings)
    return rows


def _time(timed: list[tuple[dict[str, Any], nn.Module]], data: Examples, way: str, settings: Settings) -> None:
    """The time of a step into the row of each of these networks, or why there is none."""
    if way == COMPILED:
        torch.compiler.reset()  # a code object keeps few of its versions
    repeats, seconds = settings.repeats, settings.seconds_per_call
    clock = Clock(device=settings.device, repeats=repeats, seconds_per_call=seconds, ahead=0.0)
    built: list[tuple[dict[str, Any], Callable[[], object]]] = []
    for row, model in timed:
        try:
            built.append((row, _steps(model, data, way, images=row["task"] == "mnist")))
        except Exception as error:
            row[f"{WAYS[way]}_not_run"] = why_not(error)
    for (row, _), samples in zip(built, clock.race([steps for _, steps in built]), strict=True):
        if isinstance(samples, Exception):
            row[f"{WAYS[way]}_not_run"] = why_not(samples)
        else:
            row[WAYS[way]] = Quantity.median([1e3 * seconds / _STEPS for seconds in samples.device], unit="ms")


def tables(record: Record) -> list[Table]:
    """One table for each task: error, and for each way the step, beside pykan's and FastKAN's."""
    results = []
    ways = {way: WAYS[way] for way in record.settings.get("ways", (EAGER,))}
    for task in record.settings["tasks"]:
        rows = {row["model"]: row for row in record.rows if row["task"] == task}
        lines = []
        for name, row in rows.items():
            error = row.get("error")
            line = [name, str(row.get("parameters", "")), f"{error.value:.2e} ± {error.spread:.0e}" if error else ""]
            for key in ways.values():
                line.append(row[key].text(3) if key in row else "")
                for other in (rows.get("pykan", {}), rows.get("fastkan", {})):
                    both = key in row and key in other
                    line.append(f"{other[key].value / row[key].value:.2f}x" if both else "")
            lines.append(line)
        widths = "-".join(map(str, WIDTHS[task]))
        title = f"{task}, {widths}, {record.settings['seeds']} seeds, on {machine(record)}"
        head = ["network", "parameters", "test error"]
        for way in ways:
            head += [f"step, {way}, ms", "faster than pykan", "than FastKAN"]
        remarks = failures(record, "task", "model")
        for way, key in ways.items():
            failed = {name: row[f"{key}_not_run"] for name, row in rows.items() if f"{key}_not_run" in row}
            remarks += [f"{task}, {name}, {way}: {reason}" for name, reason in failed.items()]
        results.append(Table(title=title, head=head, rows=lines, remarks=remarks, align="l" + "r" * (len(head) - 1)))
    return results
