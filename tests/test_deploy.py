"""The deploy checks, with the real tools on tiny networks."""

import doctest
import importlib
import json
import math
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import softknee as sk
from softknee.cli import main
from softknee.errors import InputError, ParameterError
from softknee.lab import networks
from softknee.lab.checkpoint import CheckpointError, save_checkpoint
from softknee.lab.deploy import DeployReport, NotRun, Refused, check_checkpoint, deploy_check, deploy_table, relu_copy
from softknee.lab.deploy.int8_check import Int8Check, quantise
from softknee.lab.deploy.layers import Layer, layers
from softknee.lab.deploy.marabou_check import RobustnessCheck, check_robustness, is_mlp
from softknee.lab.deploy.onnx_check import Exported, OnnxCheck
from softknee.lab.deploy.pruning_check import AT_RANDOM, BY_APOZ, BY_SIZE, PruningCheck, check_pruning
from softknee.lab.deploy.tools import attempt
from softknee.lab.digits import load_digits
from softknee.measure import Record

for tool in ("onnx", "onnxscript", "onnxruntime", "torch_pruning", "maraboupy", "safetensors", "sklearn"):
    pytest.importorskip(tool, reason=f"{tool} is not installed; the extras 'deploy' and 'lab' bring it")

WIDTHS = (64, 16, 12, 10)


def trained(activation: str, **knobs: Any) -> nn.Sequential:
    """A few passes over the digits: enough to have most of them right."""
    digits = load_digits()
    model = networks.mlp(WIDTHS, activation=activation, seed=1, **knobs)
    adam = torch.optim.Adam(model.parameters(), lr=1e-2)
    order = torch.Generator().manual_seed(0)
    for _ in range(6):
        for part in torch.randperm(len(digits.train_labels), generator=order).split(64):
            adam.zero_grad()
            F.cross_entropy(model(digits.train_images[part]), digits.train_labels[part]).backward()
            adam.step()
    return model


@pytest.fixture(scope="module")
def gelu() -> nn.Sequential:
    return trained("torch:gelu")


@pytest.fixture(scope="module")
def relu(gelu: nn.Sequential) -> nn.Module:
    return relu_copy(gelu, torch.zeros(2, 64))


@pytest.fixture(scope="module")
def result(gelu: nn.Sequential, relu: nn.Module) -> DeployReport:
    digits = load_digits()
    return deploy_check(
        gelu.train(),
        relu,
        images=digits.test_images,
        labels=digits.test_labels,
        calibration=digits.train_images,
        points=4,
        eps=0.02,
        repeats=5,
    )


@pytest.mark.parametrize("name", ["layers", "of_checkpoint"])
def test_the_examples_run(name: str) -> None:
    found = doctest.testmod(importlib.import_module(f"softknee.lab.deploy.{name}"))
    assert found.attempted > 0
    assert found.failed == 0


def accuracy(model: nn.Module) -> float:
    digits = load_digits()
    with torch.no_grad():
        return 100 * float((model(digits.test_images).argmax(1) == digits.test_labels).double().mean())


# -- the whole --------------------------------------------------------------------------------------------


def test_the_models_are_as_they_were(result: DeployReport, gelu: nn.Sequential) -> None:
    assert gelu.training
    assert [type(one).__name__ for one in gelu] == ["Linear", "GELU", "Linear", "GELU", "Linear"]
    assert gelu[0].weight.shape == (16, 64)
    assert result.before.accuracy == accuracy(gelu.eval())
    assert result.before.accuracy > 70
    assert result.before.parameters == sum((a + 1) * b for a, b in ((64, 16), (16, 12), (12, 10)))


def test_onnx_operators(result: DeployReport) -> None:
    before, after = result.before.onnx, result.after.onnx
    assert isinstance(before, OnnxCheck)
    assert isinstance(after, OnnxCheck)
    assert before.operators == {"Gelu": 2, "Gemm": 3}
    assert after.operators == {"Gemm": 3, "Relu": 2}
    assert before.foreign == after.foreign == ()
    assert 0 < before.difference < 1e-4
    assert 0 <= after.difference < 1e-4  # maxima and sums alone may agree to the bit


def test_int8_leaves_no_float_between_layers_with_relu(result: DeployReport) -> None:
    before, after = result.before.int8, result.after.int8
    assert isinstance(before, Int8Check)
    assert isinstance(after, Int8Check)
    assert after.runs_int8 == {"DequantizeLinear": 1, "QGemm": 3, "QuantizeLinear": 1}
    assert before.runs_int8 == {"DequantizeLinear": 3, "Gelu": 2, "QGemm": 3, "QuantizeLinear": 3}
    for model, one in ((result.before, before), (result.after, after)):
        assert one.accuracy_float == pytest.approx(model.accuracy, abs=0.2)
        assert abs(one.accuracy_int8 - one.accuracy_float) < 5
        assert one.latency_int8.repeats == one.latency_float.repeats == 5
        assert 0 < one.latency_int8.low <= one.latency_int8.value <= one.latency_int8.high
        assert 0 < one.bytes_int8 < one.bytes_float


def test_zeros_of_gelu_and_relu(result: DeployReport, relu: nn.Module) -> None:
    assert result.before.zeros is not None
    assert result.before.zeros < 0.01  # far below 0, GELU rounds to it
    digits = load_digits()
    with torch.no_grad():
        first = relu.get_submodule("1")(relu.get_submodule("0")(digits.test_images))
        second = relu.get_submodule("3")(relu.get_submodule("2")(first))
    counted = sum(int((one == 0).sum()) for one in (first, second)) / (first.numel() + second.numel())
    assert result.after.zeros == pytest.approx(counted, rel=1e-12)
    assert counted > 0.05


def test_pruning_says_when_apoz_cannot_rank(result: DeployReport) -> None:
    assert isinstance(result.before.pruned_by_apoz, NotRun)
    assert re.search(r"[0-7] of 28 have an APoZ .* and 8 are to be removed", result.before.pruned_by_apoz.reason)
    for one in (result.before.pruned_by_size, result.after.pruned_by_size, result.after.pruned_by_apoz):
        assert isinstance(one, PruningCheck)
        assert (one.units, one.removed) == (28, 8)
        first, second = (one.removed_by_layer.get(name, 0) for name in ("1", "3"))
        assert first + second == 8
        left = (64, 16 - first, 12 - second, 10)
        assert one.parameters_after == sum((a + 1) * b for a, b in pairwise(left))
    chance = result.after.pruned_at_random
    assert isinstance(chance, PruningCheck)
    assert chance.accuracy_after.repeats == 5


def test_marabou_refuses_gelu_and_takes_relu(result: DeployReport) -> None:
    refused = result.before.robustness
    assert isinstance(refused, Refused)
    assert refused.sentence == "Marabou refuses this network: NotImplementedError: Operation Gelu not implemented"
    taken = result.after.robustness
    assert isinstance(taken, RobustnessCheck)
    assert len(taken.points) == 4
    assert taken.reading < 1e-4
    assert taken.count("proved") >= 1


def test_the_record_and_the_table(result: DeployReport) -> None:
    record = result.record(command="softknee deploy-check somewhere")
    assert Record.from_json(record.to_json()) == record
    assert {(row["model"], row["check"]) for row in record.rows} == {
        (model, check)
        for model in ("before", "after")
        for check in (
            "model",
            "onnx",
            "int8",
            "zeros",
            "pruned by APoZ",
            "pruned by size",
            "pruned at random",
            "robustness",
        )
    }
    refused = next(row for row in record.rows if row["check"] == "robustness" and row["model"] == "before")
    assert "Gelu" in refused["refused"]
    assert record.settings["tools"]["maraboupy"] != "not installed"
    table = deploy_table(result)
    lines = {line[0].strip(): line[1:] for line in table.lines}
    assert lines["ONNX operators"] == ("Gelu 2, Gemm 3", "Gemm 3, Relu 2")
    assert lines["by APoZ"][0] == "not run [1]"
    assert any(remark.startswith("[1] APoZ cannot rank") for remark in table.remarks)
    assert any("Operation Gelu not implemented" in remark for remark in table.remarks)
    assert "| ONNX operators | Gelu 2, Gemm 3 | Gemm 3, Relu 2 |" in result.markdown()


# -- the parts, against independent truth -------------------------------------------------------------------


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


def written(model: nn.Module) -> Exported:
    """Linear layers with ReLU between them as ONNX, written node by node: quicker than the exporter, and apart from it.

    A bias of 0 is left out, as the exporter does it.
    """
    import onnx

    linears = [one for one in model.modules() if isinstance(one, nn.Linear)]
    nodes, weights, last = [], [], "x"
    for number, linear in enumerate(linears):
        named = {f"weight{number}": linear.weight} | ({f"bias{number}": linear.bias} if linear.bias.any() else {})
        weights += [onnx.numpy_helper.from_array(value.detach().numpy(), name) for name, value in named.items()]
        nodes.append(onnx.helper.make_node("Gemm", [last, *named], [f"sum{number}"], transB=1))
        last = f"sum{number}"
        if number < len(linears) - 1:
            nodes.append(onnx.helper.make_node("Relu", [last], [f"relu{number}"]))
            last = f"relu{number}"
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", width])
        for name, width in (("x", linears[0].in_features), (last, linears[-1].out_features))
    ]
    graph = onnx.helper.make_graph(nodes, "network", ends[:1], ends[1:], weights)
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
    return Exported(content=proto.SerializeToString(), input="x", opset=20, operators={}, foreign=())


def test_quantised_weights_are_the_nearest_of_their_channel(relu: nn.Module) -> None:
    import onnx

    quantised = quantise(written(relu), load_digits().train_images, threads=1)
    graph = onnx.load_from_string(quantised.content).graph
    arrays = {one.name: torch.tensor(onnx.numpy_helper.to_array(one)) for one in graph.initializer}
    for index in (0, 2, 4):
        weight = relu.get_submodule(f"{index}").weight.detach()  # type: ignore[union-attr]
        found = [
            one for one in arrays.values() if one.dtype == torch.int8 and one.shape in (weight.shape, weight.T.shape)
        ]
        assert len(found) == 1
        steps = found[0].double()
        steps = steps if steps.shape == weight.shape else steps.T
        scales = weight.abs().amax(dim=1, keepdim=True).double() / 127  # one for each output
        assert (steps * scales - weight).abs().le(scales * 0.501).all()


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
        found = model(example)
    for hook in hooks:
        hook.remove()
    return float(found.double().sum())


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

    found = check_pruning(
        model, measured, images[:2], share=0.3, criterion=criterion, evaluate=evaluate, accuracy_before=0.0
    )
    if activation["activation"] == "leaky_relu" and criterion == BY_APOZ:
        assert isinstance(found, NotRun)
        return
    assert isinstance(found, PruningCheck)
    assert (found.units, found.removed) == (13, 3)
    assert found.parameters_after < found.parameters_before
    assert found.accuracy_after.value == pytest.approx(masked(model, measured, images, criterion, 0.3), rel=1e-4)


def test_layers_that_a_residual_ties_together_are_pruned_together() -> None:
    timm = pytest.importorskip("timm", reason="timm is not installed")
    torch.manual_seed(0)
    model = timm.create_model("resnet10t", num_classes=3, in_chans=1).eval()
    images = torch.randn(4, 1, 32, 32)
    measured = layers(model, images)
    for criterion in (BY_SIZE, AT_RANDOM):
        found = check_pruning(
            model,
            measured,
            images[:2],
            share=0.3,
            criterion=criterion,
            evaluate=lambda one: one(images).sum().item(),
            accuracy_before=0.0,
        )
        assert isinstance(found, PruningCheck)
        assert found.removed == int(0.3 * found.units)
        assert found.parameters_after < 0.9 * found.parameters_before


def one_number(bias: tuple[float, ...]) -> nn.Sequential:
    """Scores 1, -5 and 2 relu(x): class 0 below x = 1/2, class 2 above; class 1 never."""
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 3)).eval()
    with torch.no_grad():
        model[0].weight.fill_(1.0)
        model[0].bias.zero_()
        model[2].weight.copy_(torch.tensor([[0.0], [0.0], [2.0]]))
        model[2].bias.copy_(torch.tensor(bias))
    return model


def test_robustness_where_the_radius_is_known() -> None:
    """The class changes at 1/2. Marabou's own helper, which keeps the condition on class 1, finds 0 robust to 1."""
    model = one_number((1.0, -5.0, 0.0))
    exported, label = written(model), torch.zeros(1, dtype=torch.int64)
    verdicts = {}
    for eps in (0.49, 0.51, 1.0):
        found = check_robustness(model, exported, torch.zeros(1, 1), label, eps=eps, chosen=[0], seconds=10)
        assert isinstance(found, RobustnessCheck)
        (verdicts[eps],) = found.points
    assert verdicts[0.49].verdict == "proved"
    for eps in (0.51, 1.0):
        point = verdicts[eps]
        assert (point.verdict, point.other) == ("counterexample", 2)
        assert point.distance is not None
        assert 0.5 < point.distance <= eps
    late = check_robustness(model, exported, torch.zeros(1, 1), label, eps=0.49, chosen=[0], seconds=1e-9)
    assert isinstance(late, RobustnessCheck)
    assert late.count("timeout") == 1


def test_verdicts_agree_with_a_dense_grid() -> None:
    torch.manual_seed(4)
    model = networks.mlp((2, 8, 8, 3), activation="torch:relu", seed=4).eval()
    points = torch.rand(8, 2) * 4 - 2
    with torch.no_grad():
        labels = model(points).argmax(1)
    found = check_robustness(model, written(model), points, labels, eps=0.2, chosen=list(range(8)), seconds=10)
    assert isinstance(found, RobustnessCheck)
    steps = torch.linspace(-0.2, 0.2, 201)
    ball = torch.cartesian_prod(steps, steps)
    kinds = set()
    for point in found.points:
        with torch.no_grad():
            changed = bool((model(points[point.index] + ball).argmax(1) != labels[point.index]).any())
        assert point.verdict == ("counterexample" if changed else "proved")
        kinds.add(point.verdict)
    assert kinds == {"proved", "counterexample"}


def test_what_is_no_mlp_is_not_asked_of_marabou() -> None:
    model = networks.cnn((2,), image=(1, 4, 4), activation="torch:relu")
    assert not is_mlp(model)
    assert is_mlp(nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.Dropout(), nn.GELU(), nn.Linear(4, 2)))
    empty = Exported(content=b"", input="x", opset=1, operators={}, foreign=())
    found = check_robustness(model, empty, torch.zeros(1, 1, 4, 4), torch.zeros(1), eps=1, chosen=[0], seconds=1)
    assert isinstance(found, NotRun)
    assert "Conv2d" in found.reason


# -- what does not run says so ----------------------------------------------------------------------------


def test_every_missing_tool_is_named(monkeypatch: pytest.MonkeyPatch, relu: nn.Module) -> None:
    for name in ("onnx", "onnxruntime", "torch_pruning", "maraboupy"):
        monkeypatch.setitem(sys.modules, name, None)
    digits = load_digits()
    found = deploy_check(
        relu, relu, images=digits.test_images[:20], labels=digits.test_labels[:20], calibration=digits.train_images[:20]
    )
    for check in (found.after.onnx, found.after.int8, found.after.pruned_by_apoz, found.after.robustness):
        assert isinstance(check, NotRun)
        assert "which is not installed. Install it with: pip install 'softknee[deploy]'" in check.reason
    assert "'torch-pruning'" in found.after.pruned_by_size.reason  # type: ignore[union-attr]
    assert isinstance(found.after.layers, tuple)
    assert found.record(command="").rows
    assert "not run [1]" in found.markdown()


def test_a_failing_tool_is_quoted() -> None:
    damaged = Exported(content=b"no model", input="x", opset=20, operators={}, foreign=())
    found = attempt(lambda: quantise(damaged, torch.zeros(2, 4), threads=1), what="Quantisation")
    assert isinstance(found, NotRun)
    assert found.reason.startswith("Quantisation failed: ")
    assert found.reason.endswith(".")
    assert "\n" not in found.reason


BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "labels": ({"labels": torch.zeros(3, dtype=torch.int64)}, InputError, "one label for each"),
    "empty": ({"images": torch.zeros(0, 64), "labels": torch.zeros(0)}, InputError, "are needed"),
    "calibration": ({"calibration": torch.zeros(2, 5)}, InputError, "must be like the test images"),
    "shape": ({"images": torch.zeros(5, 7), "calibration": torch.zeros(5, 7)}, InputError, "does not take images"),
    "classes": ({"labels": torch.full((5,), 10)}, InputError, "a column for each of the 11 classes"),
    "share": ({"share": 1.0}, ParameterError, "share must be between 0 and 1"),
    "eps": ({"eps": 0.0}, ParameterError, "eps must be above 0"),
    "points": ({"points": -1}, ParameterError, "points must be at least 0"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str, relu: nn.Module) -> None:
    changes, kind, sentence = BAD[name]
    given: dict[str, Any] = {
        "images": torch.zeros(5, 64),
        "labels": torch.zeros(5, dtype=torch.int64),
        "calibration": torch.zeros(5, 64),
    }
    with pytest.raises(kind, match=sentence):
        deploy_check(relu, relu, **(given | changes))


# -- from a checkpoint ------------------------------------------------------------------------------------


class Functional(nn.Module):
    """Calls its activation instead of holding it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(F.gelu(self.first(x)))


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(3, 3), nn.SiLU(), nn.Linear(3, 2)),
        nn.Sequential(nn.Linear(3, 3), sk.nn.SReLU(delta=2.0), nn.Linear(3, 3), nn.GELU(), nn.Linear(3, 2)),
        nn.Sequential(nn.Linear(3, 3), sk.nn.make("gelu"), nn.Linear(3, 2)),
        Functional(),
    ],
    ids=["torch", "mixed", "softknee gelu", "functional"],
)
def test_a_copy_with_relu_computes_with_relu(model: nn.Module) -> None:
    x = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
    before = model(x)
    found = relu_copy(model, x)
    linears = [one for one in found.modules() if isinstance(one, nn.Linear)]
    expected = x
    for index, linear in enumerate(linears):
        expected = linear(expected).clamp(min=0) if index < len(linears) - 1 else linear(expected)
    assert torch.allclose(found(x), expected, atol=1e-6)
    assert torch.equal(model(x), before)
    assert not any(type(one).__module__.startswith("softknee") for one in found.modules())


def test_there_must_be_something_to_replace() -> None:
    with pytest.raises(InputError, match="no activation that ReLU could stand for"):
        relu_copy(nn.Sequential(nn.Linear(3, 2)), torch.zeros(1, 3))


@pytest.fixture
def softknee(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["softknee", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        printed = capsys.readouterr()
        return (stopped.value.code if isinstance(stopped.value.code, int) else 0), printed.out, printed.err

    return run


def test_the_command(softknee, tmp_path: Path) -> None:
    arguments = {"widths": list(WIDTHS), "activation": "srelu", "learn": "delta", "delta": 0.1, "seed": 1}
    model = trained("srelu", learn="delta", delta=0.1)
    place = save_checkpoint(tmp_path / "net", model, builder="mlp", arguments=arguments, task={"data": "digits"})
    file = tmp_path / "record.json"
    code, out, _ = softknee("deploy-check", str(place), "--points", "1", "--eps", "0.01", "--json", str(file))
    assert code == 0
    assert "mlp on digits, as saved and with ReLU" in out
    assert "Marabou refuses this network" in out
    assert max(len(line) for line in out.splitlines()) <= 100
    record = Record.read(file)
    assert record.kind == "deploy check"
    assert str(tmp_path) not in json.dumps(record.command)
    zeros = {row["model"]: row["zeros"] for row in record.rows if row["check"] == "zeros"}
    assert 0 < zeros["as saved"] <= zeros["with ReLU"]  # S-ReLU is exactly 0 below -delta


def test_the_command_says_what_is_wrong(softknee, tmp_path: Path) -> None:
    code, _, err = softknee("deploy-check", str(tmp_path / "nothing"))
    assert code == 2
    assert "There is no checkpoint" in err
    arguments = {"widths": [4, 3, 2], "activation": "relu"}
    model = networks.mlp((4, 3, 2))
    place = save_checkpoint(tmp_path / "net", model, builder="mlp", arguments=arguments)
    with pytest.raises(CheckpointError, match="does not say what data"):
        check_checkpoint(place)
    place = save_checkpoint(tmp_path / "net", model, builder="mlp", arguments=arguments, task={"data": "digit"})
    code, _, err = softknee("deploy-check", str(place))
    assert code == 2
    assert "Did you mean 'digits'?" in err
