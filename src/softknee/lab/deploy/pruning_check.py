"""Pruning: the share of units that are the deadest is really removed by torch-pruning, without any training after.

"Dead" is measured on the calibration data, never on the test data:

- by APoZ: units that are exactly 0 most often go first (the importance of a unit is 1 - APoZ). This needs exact zeros:
  GELU, SiLU and softplus have none but by rounding far below 0, and the check says so rather than rank by rounding;
- by size: units with the smallest mean abs(output) relative to the mean of their layer. It exists for every activation,
  so that a smooth network and its ReLU-ised copy can be compared by the same rule;
- at random: what the other two must beat to be worth anything (several draws).

Units of all layers are ranked together, and no layer loses its last unit. Layers that a residual connection ties
together share their units: such a unit has the mean of what its layers measured.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import InputError
from ...measure.record import Quantity
from ...nn.parameters import Parameterised
from .layers import Layer, NotRun, layer_name, need, outputs
from .onnx_check import quiet

BY_APOZ, BY_SIZE, AT_RANDOM = "APoZ", "size", "random"
DRAWS = 5
# A unit is called dead at times from this APoZ up; GELU, which rounds to 0 far below it, stays under it as a rule.
_AT_TIMES = 0.01


@dataclass(frozen=True, kw_only=True)
class PruningCheck:
    """What was removed, and the accuracy in percent before and after, with no training in between.

    Of several draws, `removed_by_layer` and `parameters_after` are those of the first.
    """

    criterion: str
    units: int
    removed: int
    removed_by_layer: Mapping[str, int]
    parameters_before: int
    parameters_after: int
    accuracy_before: float
    accuracy_after: Quantity


@dataclass(frozen=True, kw_only=True)
class _Unit:
    root: nn.Module
    index: int
    layer: str
    zeros: float
    size: float


def check_pruning(
    model: nn.Module,
    measured: list[Layer],
    example: Tensor,
    *,
    share: float,
    criterion: str,
    evaluate: Callable[[nn.Module], float],
    accuracy_before: float,
    seed: int = 0,
) -> PruningCheck | NotRun:
    """Remove that share of the units of a copy, and see what is left of the accuracy."""
    results: list[tuple[list[_Unit], int, float]] = []
    count = 0
    for draw in range(DRAWS if criterion == AT_RANDOM else 1):
        pruned = copy.deepcopy(model)
        graph, seen = _graph(pruned, example)
        units = _units(graph, seen, measured)
        if not units:
            return NotRun(reason="No layer has units that torch-pruning can remove and that an activation layer shows.")
        count = len(units)
        wanted = int(share * count)
        dead = sum(unit.zeros >= _AT_TIMES for unit in units)
        if criterion == BY_APOZ and dead < wanted:
            return NotRun(
                reason=f"APoZ cannot rank these units: {dead} of {count} have an APoZ of {_AT_TIMES:.0%} or more on "
                f"the calibration data, and {wanted} are to be removed."
            )
        gone = _deadest(units, wanted, criterion, seed=seed + draw)
        # Roots hold different channels, so that the indices of one stay valid while another is pruned.
        for root in dict.fromkeys(unit.root for unit in gone):
            indices = [unit.index for unit in gone if unit.root is root]
            function = graph.get_pruner_of_module(root).prune_out_channels
            graph.get_pruning_group(root, function, indices).prune()
        results.append((gone, count_parameters(pruned), evaluate(pruned)))
    gone, parameters, _ = results[0]
    touched = {unit.layer: sum(other.layer == unit.layer for other in gone) for unit in gone}
    return PruningCheck(
        criterion=criterion,
        units=count,
        removed=len(gone),
        removed_by_layer=dict(sorted(touched.items())),
        parameters_before=count_parameters(model),
        parameters_after=parameters,
        accuracy_before=accuracy_before,
        accuracy_after=Quantity.mean([accuracy for _, _, accuracy in results], unit="%"),
    )


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _deadest(units: list[_Unit], wanted: int, criterion: str, *, seed: int) -> list[_Unit]:
    """The deadest units, never all of one layer. Among equal APoZ the smaller unit goes first."""
    if criterion == AT_RANDOM:
        order = torch.randperm(len(units), generator=torch.Generator().manual_seed(seed)).tolist()
    elif criterion == BY_APOZ:
        order = sorted(range(len(units)), key=lambda at: (-units[at].zeros, units[at].size))
    else:
        order = sorted(range(len(units)), key=lambda at: units[at].size)
    left = Counter(unit.root for unit in units)
    gone: list[_Unit] = []
    for unit in (units[at] for at in order):
        if len(gone) < wanted and left[unit.root] > 1:
            left[unit.root] -= 1
            gone.append(unit)
    return gone


def _graph(model: nn.Module, example: Tensor) -> tuple[Any, dict[Any, str]]:
    """torch-pruning's graph of what must be removed together, and the activation layers by their nodes in it."""
    pruning = need("torch_pruning", what="Pruning")
    own = [module for module in model.modules() if isinstance(module, Parameterised)]
    for module in own:
        # The graph is that of gradients: without theirs, parameters of activations do not look like branches of it.
        module.requires_grad_(False)
    made: dict[Any, str] = {}

    def note(path: str, call: int, output: Tensor, _dim: int) -> None:
        made[output.grad_fn] = layer_name(path, call)

    # The graph is read off a run with gradients, in which an activation layer is known by the node it leaves.
    with outputs(model, note), torch.enable_grad(), quiet():
        graph = pruning.DependencyGraph().build_dependency(
            model,
            example_inputs=example,
            customized_pruners={type(module): _own_pruner(pruning) for module in own},
            verbose=False,
        )
    return graph, {node: made[node.grad_fn] for node in graph.module2node.values() if node.grad_fn in made}


def _own_pruner(pruning: Any) -> Any:
    """How a softknee module loses channels: with one value for the layer nothing changes, else the values go too."""

    class ActivationPruner(pruning.function.BasePruningFunc):
        def prune_out_channels(self, layer: Parameterised, idxs: list[int]) -> nn.Module:
            shape = layer.granularity.shape
            if layer.granularity.per == "layer":
                return layer
            if len(shape) > 1:
                raise InputError(f"{layer.title} has a value for every neuron of an image, whose channels cannot go.")
            gone = set(idxs)
            remaining = torch.tensor([channel for channel in range(layer.granularity.count) if channel not in gone])
            for name, value in [*layer._parameters.items(), *layer._buffers.items()]:
                if value is not None and value.shape[:1] == shape:
                    part = value.detach().index_select(0, remaining.to(value.device))
                    made = nn.Parameter(part, value.requires_grad) if isinstance(value, nn.Parameter) else part
                    setattr(layer, name, made)
            layer.granularity = replace(layer.granularity, shape=(len(remaining),))
            return layer

        prune_in_channels = prune_out_channels  # what comes in goes out: this ties both together

        def get_out_channels(self, layer: Parameterised) -> int | None:
            return None if layer.granularity.per == "layer" else layer.granularity.shape[0]

        get_in_channels = get_out_channels

    return ActivationPruner()


def _units(graph: Any, seen: Mapping[Any, str], measured: list[Layer]) -> list[_Unit]:
    """Every unit that can be removed, with what the activation layers that see it measured."""
    layers = {layer.name: layer for layer in measured}
    kinds = need("torch_pruning", what="Pruning").ops.OPTYPE
    units = []
    for group in graph.get_all_groups():
        targets = [item.dep.target for item in group]
        if any(target.type == kinds.OUTPUT or _grouped(target.module) for target in targets):
            continue
        watched = [(layers[seen[item.dep.target]], item) for item in group if item.dep.target in seen]
        if not watched or any(max(item.idxs) >= len(layer.zeros) for layer, item in watched):
            continue
        root = targets[0].module
        zeros, size = (torch.zeros(len(group[0].idxs), dtype=torch.float64) for _ in range(2))
        for layer, item in watched:
            mean = layer.size.mean().clamp(min=torch.finfo(torch.float64).tiny)
            for index, unit in zip(item.idxs, item.root_idxs, strict=True):
                zeros[unit] += layer.zeros[index] / len(watched)
                size[unit] += layer.size[index] / mean / len(watched)
        name = ", ".join(dict.fromkeys(layer.name for layer, _ in watched))
        units += [
            _Unit(root=root, index=index, layer=name, zeros=float(zeros[index]), size=float(size[index]))
            for index in range(len(zeros))
        ]
    return units


def _grouped(module: Any) -> bool:
    """A convolution in groups (but not one group per channel) wants the same number of channels in each."""
    return isinstance(module, nn.modules.conv._ConvNd) and 1 < module.groups < module.out_channels
