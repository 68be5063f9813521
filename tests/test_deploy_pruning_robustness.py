"""Deploy checks against independent truth: zeros, pruning and robustness of small networks."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from deploy_networks import needs_marabou, written
from softknee.errors import MissingToolError
from softknee.lab import networks
from softknee.lab.deploy import NotRun, marabou_check
from softknee.lab.deploy.layers import Layer, layers
from softknee.lab.deploy.marabou_check import RobustnessCheck, check_robustness, is_mlp
from softknee.lab.deploy.onnx_check import Exported
from softknee.lab.deploy.pruning_check import AT_RANDOM, BY_APOZ, BY_SIZE, PruningCheck, check_pruning

for tool in ("onnx", "onnxscript", "onnxruntime", "torch_pruning", "safetensors", "sklearn"):
    pytest.importorskip(tool, reason=f"{tool} is not installed; the extras 'deploy' and 'lab' bring it")


def test_apoz_counts_channels_features_and_calls() -> None:
    torch.manual_seed(0)
    shared = nn.ReLU()
    convolution, linear = nn.Conv2d(1, 3, 3), nn.Linear(3 * 6 * 6, 5)
    model = nn.Sequential(convolution, shared, nn.Flatten(), linear, shared).eval()
    images = torch.randn(300, 1, 8, 8)  # more than one batch
    first, second = layers(model, images)
    assert (first.name, second.name) == ("1", "1 (call 2)")
    with torch.no_grad():
        after = convolution(images).clamp(min=0)
        last = linear(after.flatten(1)).clamp(min=0)
    for unit in range(3):
        values = after[:, unit].flatten().tolist()
        assert first.zeros[unit] == sum(value == 0 for value in values) / len(values)
        assert float(first.size[unit]) == pytest.approx(math.fsum(values) / len(values), rel=1e-12)
    for unit in range(5):
        assert float(second.zeros[unit]) == pytest.approx(float((last[:, unit] == 0).double().mean()), rel=1e-12)


def masked(model: nn.Module, measured: list[Layer], example: Tensor, criterion: str, share: float) -> float:
    """The accuracy when the units to be pruned are set to 0 instead."""
    keys = []
    for layer in measured:
        relative = layer.size / layer.size.mean()
        for unit in range(len(layer.zeros)):
            dead = -float(layer.zeros[unit]) if criterion == BY_APOZ else 0.0
            keys.append((dead, float(relative[unit]), layer.path, unit))
    gone = sorted(keys)[: int(share * len(keys))]
    hooks = []
    for layer in measured:
        units = [unit for _, _, path, unit in gone if path == layer.path]

        def zero(_module: nn.Module, _inputs: Any, output: Tensor, units: list[int] = units) -> Tensor:
            kept = torch.ones(output.shape[1])
            kept[units] = 0
            return output * kept.reshape([1, -1] + [1] * (output.dim() - 2))

        hooks.append(model.get_submodule(layer.path).register_forward_hook(zero))
    with torch.no_grad():
        result = model(example)
    for hook in hooks:
        hook.remove()
    return float(result.double().sum())


@pytest.mark.parametrize("criterion", [BY_APOZ, BY_SIZE])
@pytest.mark.parametrize(
    "activation",
    [
        {"activation": "torch:relu"},
        {"activation": "srelu", "delta": 0.5, "learn": "delta"},
        {"activation": "srelu", "delta": 0.5, "learn": "delta", "per": "channel"},
        {"activation": "leaky_relu"},
    ],
    ids=str,
)
def test_pruning_is_what_zeroing_the_units_is(criterion: str, activation: dict[str, Any]) -> None:
    """Through a convolution, a pooling and a flattening, with the values that an activation has per channel."""
    model = networks.cnn((6, 7), image=(1, 8, 8), seed=3, **activation).eval()
    images = torch.randn(40, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    measured = layers(model, images)

    def evaluate(one: nn.Module) -> float:
        with torch.no_grad():
            return float(one(images).double().sum())

    result = check_pruning(
        model, measured, images[:2], share=0.3, criterion=criterion, evaluate=evaluate, accuracy_before=0.0
    )
    if activation["activation"] == "leaky_relu" and criterion == BY_APOZ:
        assert isinstance(result, NotRun)
        return
    assert isinstance(result, PruningCheck)
    assert (result.units, result.removed) == (13, 3)
    assert result.parameters_after < result.parameters_before
    assert result.accuracy_after.value == pytest.approx(masked(model, measured, images, criterion, 0.3), rel=1e-4)


def test_layers_that_a_residual_ties_together_are_pruned_together() -> None:
    timm = pytest.importorskip("timm", reason="timm is not installed")
    torch.manual_seed(0)
    model = timm.create_model("resnet10t", num_classes=3, in_chans=1).eval()
    images = torch.randn(4, 1, 32, 32)
    measured = layers(model, images)
    for criterion in (BY_SIZE, AT_RANDOM):
        result = check_pruning(
            model,
            measured,
            images[:2],
            share=0.3,
            criterion=criterion,
            evaluate=lambda one: one(images).sum().item(),
            accuracy_before=0.0,
        )
        assert isinstance(result, PruningCheck)
        assert result.removed == int(0.3 * result.units)
        assert result.parameters_after < 0.9 * result.parameters_before


def one_number(bias: tuple[float, ...]) -> nn.Sequential:
    """Scores 1, -5 and 2 relu(x): class 0 below x = 1/2, class 2 above; class 1 never."""
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 3)).eval()
    with torch.no_grad():
        model[0].weight.fill_(1.0)
        model[0].bias.zero_()
        model[2].weight.copy_(torch.tensor([[0.0], [0.0], [2.0]]))
        model[2].bias.copy_(torch.tensor(bias))
    return model


@needs_marabou
def test_robustness_where_the_radius_is_known() -> None:
    """The class changes at 1/2. Marabou's own helper, which keeps the condition on class 1, finds 0 robust to 1."""
    model = one_number((1.0, -5.0, 0.0))
    exported, label = written(model), torch.zeros(1, dtype=torch.int64)
    verdicts = {}
    for eps in (0.49, 0.51, 1.0):
        result = check_robustness(model, exported, torch.zeros(1, 1), label, eps=eps, chosen=[0], seconds=600)
        assert isinstance(result, RobustnessCheck)
        (verdicts[eps],) = result.points
    assert verdicts[0.49].verdict == "proved"
    for eps in (0.51, 1.0):
        point = verdicts[eps]
        assert (point.verdict, point.other) == ("counterexample", 2)
        assert point.distance is not None
        assert 0.5 < point.distance <= eps
    late = check_robustness(model, exported, torch.zeros(1, 1), label, eps=0.49, chosen=[0], seconds=1e-9)
    assert isinstance(late, RobustnessCheck)
    assert late.count("timeout") == 1


@needs_marabou
def test_verdicts_agree_with_a_dense_grid() -> None:
    torch.manual_seed(4)
    model = networks.mlp((2, 8, 8, 3), activation="torch:relu", seed=4).eval()
    points = torch.rand(8, 2) * 4 - 2
    with torch.no_grad():
        labels = model(points).argmax(1)
    result = check_robustness(model, written(model), points, labels, eps=0.2, chosen=list(range(8)), seconds=600)
    assert isinstance(result, RobustnessCheck)
    steps = torch.linspace(-0.2, 0.2, 201)
    ball = torch.cartesian_prod(steps, steps)
    kinds = set()
    for point in result.points:
        with torch.no_grad():
            changed = bool((model(points[point.index] + ball).argmax(1) != labels[point.index]).any())
        assert point.verdict == ("counterexample" if changed else "proved")
        kinds.add(point.verdict)
    assert kinds == {"proved", "counterexample"}


def test_a_tool_that_ends_its_process_ends_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Marabou does on a processor without AVX-512, where it was built for one that has them."""
    pytest.importorskip("maraboupy")
    monkeypatch.setattr(marabou_check, "_PROBE", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    marabou_check._stopped_by.cache_clear()
    try:
        model = one_number((1.0, -5.0, 0.0))
        with pytest.raises(MissingToolError, match=r"ends any process on this processor \(SIGILL\)"):
            check_robustness(model, written(model), torch.zeros(1, 1), torch.zeros(1), eps=1, chosen=[0], seconds=1)
        assert "AVX-512" in marabou_check.why_not()
    finally:
        marabou_check._stopped_by.cache_clear()


def test_what_is_no_mlp_is_not_asked_of_marabou() -> None:
    model = networks.cnn((2,), image=(1, 4, 4), activation="torch:relu")
    assert not is_mlp(model)
    assert is_mlp(nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.Dropout(), nn.GELU(), nn.Linear(4, 2)))
    empty = Exported(content=b"", input="x", opset=1, operators={}, foreign=())
    result = check_robustness(model, empty, torch.zeros(1, 1, 4, 4), torch.zeros(1), eps=1, chosen=[0], seconds=1)
    assert isinstance(result, NotRun)
    assert "Conv2d" in result.reason
