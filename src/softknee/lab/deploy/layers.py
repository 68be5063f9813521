"""What the activation layers of a model put out: exact zeros and sizes, unit by unit.

A unit is a channel (of a convolution) or a feature (of a linear layer). APoZ, the average percentage of zeros, of a
unit is the share of its outputs over data and places that are exactly 0 (Hu et al. 2016, "Network Trimming").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ...errors import MissingToolError, first_line, need_package
from ...measure import without_paths
from ...surgery import sites

S = TypeVar("S")
T = TypeVar("T")
_LONGEST_REASON = 400


@dataclass(frozen=True, kw_only=True)
class NotRun:
    """A check that has no result, and the reason as a sentence."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A tool that does not take the model, in its own words."""

    tool: str
    message: str

    @property
    def sentence(self) -> str:
        """The refusal in words."""
        return f"{self.tool} refuses this network: {self.message}"


def need(module: str, *, what: str) -> Any:
    """An optional module, or an error with the command that installs it."""
    package = module.partition(".")[0].replace("_", "-")
    return need_package(module, f"{what} needs the package {package!r}", "deploy")


def attempt(call: Callable[[], T], *, what: str) -> T | NotRun:
    """What a check gives, or why it gave nothing: a missing tool, or the tool's own failure."""
    try:
        return call()
    except MissingToolError as error:
        return NotRun(reason=str(error))
    except Exception as error:  # a tool of others may fail on a model in any way, and the other checks still count
        return NotRun(reason=f"{what} failed: {words(error)}.")


def attempt_with(earlier: S | NotRun, call: Callable[[S], T], *, what: str) -> T | NotRun:
    """What a check makes of an earlier one's result, or why that gave nothing."""
    return earlier if isinstance(earlier, NotRun) else attempt(lambda: call(earlier), what=what)


def words(error: BaseException) -> str:
    """An error as part of a sentence: its kind and its first line, without places on a disk."""
    return without_paths(f"{type(error).__name__}: {first_line(error)}")[:_LONGEST_REASON].rstrip(". ")


def tool_versions() -> dict[str, str]:
    """The versions of what a record does not name by itself."""
    versions = {}
    for name in ("torch-pruning", "maraboupy", "onnxscript", "safetensors"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions


BATCH = 256
_MIXING = (nn.Linear, nn.modules.conv._ConvNd)
Note = Callable[[str, int, Tensor, int], None]


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One activation layer: a module at one of its calls, what it computes, and what each of its units did.

    zeros: the APoZ of each unit, from 0 to 1.
    size:  the mean of abs(output) of each unit.
    """

    path: str
    call: int
    function: str
    zeros: Tensor
    size: Tensor
    elements: int

    @property
    def name(self) -> str:
        return layer_name(self.path, self.call)


def layer_name(path: str, call: int) -> str:
    """The path, with the number of the call for a module that is called more than once."""
    return path if call == 0 else f"{path} (call {call + 1})"


def activation_layers(model: nn.Module) -> dict[str, tuple[nn.Module, str]]:
    """The activation modules of a model, whatever library they are from, by path, with what they compute."""
    modules = [site for site in sites(model) if site.kind == "module"]
    return {site.path: (model.get_submodule(site.path), site.function) for site in modules}


def layers(model: nn.Module, images: Tensor) -> list[Layer]:
    """What every activation layer does on these images, in order of execution.

    >>> net = nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU())
    >>> _ = net[0].weight.data.copy_(torch.tensor([[1.0], [-1.0]]))
    >>> (layer,) = layers(net, torch.tensor([[1.0], [2.0], [3.0], [-4.0]]))
    >>> layer.zeros, layer.size
    (tensor([0.2500, 0.7500], dtype=torch.float64), tensor([1.5000, 1.0000], dtype=torch.float64))
    """
    totals: dict[tuple[str, int], list[Any]] = {}

    def note(path: str, call: int, output: Tensor, dim: int) -> None:
        rows = output.movedim(dim, -1).flatten(0, -2)
        zeros, size = (rows == 0).sum(0).double(), rows.abs().sum(0, dtype=torch.float64)
        total = totals.setdefault((path, call), [torch.zeros_like(zeros), torch.zeros_like(size), 0])
        total[0], total[1], total[2] = total[0] + zeros, total[1] + size, total[2] + len(rows)

    with outputs(model, note) as start, torch.no_grad():
        for part in images.split(BATCH):
            start()
            model(part)
    names = {path: function for path, (_, function) in activation_layers(model).items()}
    return [
        Layer(
            path=path,
            call=call,
            function=names[path],
            zeros=zeros / count,
            size=size / count,
            elements=count * len(zeros),
        )
        for (path, call), (zeros, size, count) in totals.items()
    ]


@contextmanager
def outputs(model: nn.Module, note: Note) -> Iterator[Callable[[], None]]:
    """Calls `note` with path, call, output and dimension of the units of every activation layer while a model runs.

    Yields what starts to count the calls anew, for the next run.
    """
    calls: dict[str, int] = {}
    unit_dim = -1

    def mixing(module: nn.Module, *_: Any) -> None:
        # The units are the outputs of the layer that ran last: dimension 1 after a convolution, the last after a
        # linear layer. Norms, pooling and dropout in between keep the order of dimensions.
        nonlocal unit_dim
        unit_dim = -1 if isinstance(module, nn.Linear) else 1

    def activating(path: str) -> Callable[..., None]:
        def hook(_module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            if isinstance(output, Tensor) and output.dim() > 1 and output.shape == inputs[0].shape:
                call = calls.get(path, 0)
                calls[path] = call + 1
                note(path, call, output, unit_dim)

        return hook

    hooks = [module.register_forward_hook(mixing) for module in model.modules() if isinstance(module, _MIXING)]
    watched: dict[int, tuple[str, nn.Module]] = {}
    for path, (layer, _) in activation_layers(model).items():
        watched.setdefault(id(layer), (path, layer))  # a shared module once, under its first path
    hooks += [layer.register_forward_hook(activating(path)) for path, layer in watched.values()]
    try:
        yield calls.clear
    finally:
        for hook in hooks:
            hook.remove()
