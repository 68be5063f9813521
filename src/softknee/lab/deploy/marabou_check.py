"""Robustness of single points, proved by Marabou (Katz et al. 2019), which takes piecewise linear networks.

For a point x with the right class c and every other class k, Marabou is asked for an input within eps of x in every
coordinate at which output k is at least output c. "unsat" for every k is a proof that the class cannot change, up to
Marabou's tolerances: it computes in double precision, not exactly. "sat" comes with such an input, which counts as a
counterexample only after torch has run on it and chosen another class.

Marabou's own `evaluateLocalRobustness` is not used: in maraboupy 1.0.0 it keeps the condition of each class while it
asks for the next, and so calls networks robust that are not (one such is in the tests).
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import math
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import MissingToolError
from ...measure.record import Quantity
from .layers import NotRun, Refused, activation_layers, need, words
from .onnx_check import Exported

PROVED, COUNTEREXAMPLE, TIMEOUT, UNDECIDED = "proved", "counterexample", "timeout", "undecided"
_PASSIVE = (nn.Flatten, nn.Identity, nn.Dropout)
_CLEARLY = 1e-4  # how far ahead another class must be in a second question, as a share of the largest output
# A question about two neurons, for which Marabou multiplies matrices: its wheel for x86-64 does that with AVX-512, and
# a processor that has none ends the process.
_PROBE = """
from maraboupy import Marabou, MarabouNetwork
from numpy import array
network = MarabouNetwork.MarabouNetwork()
x, y, a, b, c, d, out = (network.getNewVariable() for _ in range(7))
for variable in (x, y):
    network.setLowerBound(variable, -1.0)
    network.setUpperBound(variable, 1.0)
network.addEquality([x, y, a], [1.0, 1.0, -1.0], 0.0)
network.addEquality([x, y, b], [1.0, -1.0, -1.0], 0.0)
network.addRelu(a, c)
network.addRelu(b, d)
network.addEquality([c, d, out], [1.0, 1.0, -1.0], 0.0)
network.inputVars, network.outputVars = [array([x, y])], [array([out])]
network.setLowerBound(out, 1.5)
network.solve(verbose=False, options=Marabou.createOptions(verbosity=0))
"""


@dataclass(frozen=True, kw_only=True)
class Point:
    """The verdict on one test point, and for a counterexample the class that torch sees and the distance."""

    index: int
    verdict: str
    seconds: float
    other: int | None = None
    distance: float | None = None


@dataclass(frozen=True, kw_only=True)
class RobustnessCheck:
    """The verdicts, with the largest difference between Marabou's reading of the network and torch at the points."""

    eps: float
    points: tuple[Point, ...]
    seconds_per_point: float
    reading: float

    def count(self, verdict: str) -> int:
        return sum(point.verdict == verdict for point in self.points)

    @property
    def time(self) -> Quantity:
        return Quantity.median([point.seconds for point in self.points], unit="s")


def is_mlp(model: nn.Module) -> bool:
    """Whether linear layers and activations are all there is."""
    leaves = [module for module in model.modules() if next(module.children(), None) is None]
    active = {id(layer) for layer, _ in activation_layers(model).values()}
    simple = all(isinstance(leaf, (nn.Linear, *_PASSIVE)) or id(leaf) in active for leaf in leaves)
    return simple and any(isinstance(leaf, nn.Linear) for leaf in leaves)


def check_robustness(
    model: nn.Module,
    exported: Exported,
    images: Tensor,
    labels: Tensor,
    *,
    eps: float,
    chosen: Sequence[int],
    seconds: float,
) -> RobustnessCheck | Refused | NotRun:
    """The verdict on each of the chosen test points, all of which the model classifies rightly."""
    if not is_mlp(model):
        kinds = {type(module).__name__ for module in model.modules() if next(module.children(), None) is None}
        return NotRun(reason=f"Robustness is proved for MLPs alone, and this model has {', '.join(sorted(kinds))}.")
    marabou = _marabou()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "network.onnx")
        file.write_bytes(_with_biases(exported.content))
        try:
            network = marabou.read_onnx(str(file))
        except Exception as error:  # its parser raises whatever comes up in a graph that it was not made for
            return Refused(tool="Marabou", message=words(error))
    _need_answers()
    solver = _Solver(marabou, network)
    points, reading = [], 0.0
    for index in chosen:
        reading = max(reading, solver.difference(model, images[index : index + 1]))
        points.append(_judge(solver, model, images[index], int(labels[index]), index=index, eps=eps, seconds=seconds))
    return RobustnessCheck(eps=eps, points=tuple(points), seconds_per_point=seconds, reading=reading)


def _with_biases(content: bytes) -> bytes:
    """The graph with a bias of 0 where a Gemm has none: Marabou's reader counts on three inputs."""
    onnx = need("onnx", what="The proof of robustness")
    proto = onnx.load_from_string(content)
    shapes = {item.name: tuple(item.dims) for item in proto.graph.initializer}
    for number, node in enumerate(proto.graph.node):
        if node.op_type == "Gemm" and len(node.input) == 2 and node.input[1] in shapes:
            turned = any(item.name == "transB" and item.i for item in node.attribute)
            width = shapes[node.input[1]][0 if turned else 1]
            name = f"no_bias_{number}"
            node.input.append(name)
            zeros = onnx.helper.make_tensor(name, onnx.TensorProto.FLOAT, [width], [0.0] * width)
            proto.graph.initializer.append(zeros)
    return proto.SerializeToString()


class _Solver:
    """Marabou's network, solved for one question at a time."""

    def __init__(self, marabou: Any, network: Any) -> None:
        self.marabou, self.network = marabou, network
        self.inputs = [int(variable) for variable in network.inputVars[0].flatten()]
        self.outputs = [int(variable) for variable in network.outputVars[0].flatten()]

    def ask(self, low: Tensor, high: Tensor, *, seconds: float, ahead: tuple[int, int, float] | None = None) -> Any:
        """Marabou's word for whether there is an input in the box, and its values.

        With ahead = (k, c, margin), output k must be at least output c plus the margin.
        """
        for variable, least, most in zip(self.inputs, low.flatten().tolist(), high.flatten().tolist(), strict=True):
            self.network.setLowerBound(variable, least)
            self.network.setUpperBound(variable, most)
        self.network.additionalEquList.clear()
        if ahead is not None:
            other, own, margin = ahead
            variables = [self.outputs[own], self.outputs[other]]
            self.network.addInequality(variables, [1.0, -1.0], -margin, isProperty=True)
        options = self.marabou.createOptions(timeoutInSeconds=max(1, math.ceil(seconds)), verbosity=0)
        word, values, _ = self.network.solve(verbose=False, options=options)
        return word, values

    def difference(self, model: nn.Module, image: Tensor) -> float:
        """How far Marabou's outputs at a point are from torch's."""
        at = image.double()
        word, values = self.ask(at, at, seconds=10)
        if word != "sat":
            return math.inf
        with torch.no_grad():
            expected = model(image).flatten().tolist()
        return max(abs(values[variable] - right) for variable, right in zip(self.outputs, expected, strict=True))


def _judge(
    solver: _Solver, model: nn.Module, image: Tensor, label: int, *, index: int, eps: float, seconds: float
) -> Point:
    """All other classes in turn, within the time for the point; the first counterexample ends it."""
    start = time.perf_counter()
    verdict, other, distance = PROVED, None, None
    with torch.no_grad():
        nearest_first = model(image.unsqueeze(0)).flatten().argsort(descending=True).tolist()
    for other_class in nearest_first:
        if other_class == label or verdict in (COUNTEREXAMPLE, TIMEOUT):
            continue
        answer = _against(solver, model, image, (other_class, label), eps=eps, until=start + seconds)
        if isinstance(answer, Tensor):
            with torch.no_grad():
                other = int(model(answer.unsqueeze(0)).argmax())
            verdict, distance = COUNTEREXAMPLE, float((answer.double() - image.double()).abs().max())
        elif answer != PROVED:
            verdict = answer
    return Point(index=index, verdict=verdict, seconds=time.perf_counter() - start, other=other, distance=distance)


def _against(
    solver: _Solver, model: nn.Module, image: Tensor, classes: tuple[int, int], *, eps: float, until: float
) -> Tensor | str:
    """An input that torch takes for another class, or the verdict on this pair of classes.

    Marabou stops at the first input where two outputs are equal. Where torch's rounding then falls on the right side,
    it is asked again for an input at which the other class is clearly ahead.
    """
    center, margin = image.double(), 0.0
    for _ in range(2):
        left = until - time.perf_counter()
        if left <= 0:
            return TIMEOUT
        word, values = solver.ask(center - eps, center + eps, seconds=left, ahead=(*classes, margin))
        if word != "sat":
            if word == "unsat" and margin == 0:
                return PROVED
            return TIMEOUT if word == "TIMEOUT" else UNDECIDED
        point = torch.tensor([values[variable] for variable in solver.inputs], dtype=torch.float64).reshape(
            center.shape
        )
        attack = _inside(point, center, eps)
        with torch.no_grad():
            logits = model(attack.unsqueeze(0)).flatten()
        if int(logits.argmax()) != classes[1]:
            return attack
        margin = _CLEARLY * float(logits.abs().max())
    return UNDECIDED


def _inside(point: Tensor, center: Tensor, eps: float) -> Tensor:
    """The input in the model's float32, still inside the ball."""
    near = point.float()
    outside = (near.double() - center).abs() > eps
    # Rounding may have stepped over the edge: one step of float32 back toward the center.
    return torch.where(outside, torch.nextafter(near, center.float()), near)


def why_not() -> str:
    """An empty string where Marabou can be asked, else the sentence that says why not."""
    try:
        _marabou()
        _need_answers()
    except MissingToolError as error:
        return str(error)
    return ""


def _need_answers() -> None:
    if stopped := _stopped_by():
        raise MissingToolError(
            f"The proof of robustness needs Marabou, which ends any process on this processor ({stopped}): the package "
            "'maraboupy' for x86-64 was built for processors with AVX-512. Run the check on one of these."
        )


@functools.cache
def _stopped_by() -> str:
    """The signal that ends another process in which Marabou is asked, such as SIGILL; empty where it answers."""
    status = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, check=False).returncode
    return signal.Signals(-status).name if status < 0 else ""


def _marabou() -> Any:
    """The module, after mending what keeps a wheel for ARM from loading."""
    what = "The proof of robustness"
    if sys.version_info >= (3, 12) and importlib.util.find_spec("maraboupy") is None:
        raise MissingToolError(f"{what} needs the package 'maraboupy', which is made for Python 3.11 and earlier.")
    with warnings.catch_warnings():
        # It warns that its reader of TensorFlow's files is unavailable.
        warnings.filterwarnings("ignore", message="Tensorflow parser is unavailable")
        try:
            return need("maraboupy.Marabou", what=what)
        except ImportError as error:
            if "__atomic_" not in str(error):
                raise
        # maraboupy 1.0.0 for aarch64 was linked without libatomic, whose functions it calls.
        try:
            ctypes.CDLL("libatomic.so.1", mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise MissingToolError(
                "maraboupy for this processor needs the system library libatomic, which is not installed. Install it "
                "with: apt install libatomic1"
            ) from error
        return need("maraboupy.Marabou", what=what)
