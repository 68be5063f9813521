"""The deploy checks, with the real tools on tiny networks: the whole report, INT8 weights, what does not run."""

import re
import sys
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn

from deploy_networks import flat_digits, needs_marabou, trained, written
from softknee.errors import InputError, ParameterError
from softknee.lab.deploy import DeployReport, NotRun, Refused, deploy_check, deploy_table, relu_copy
from softknee.lab.deploy.layers import attempt
from softknee.lab.deploy.marabou_check import RobustnessCheck
from softknee.lab.deploy.onnx_check import Exported, Int8Check, OnnxCheck, quantise, seven_bits
from softknee.lab.deploy.pruning_check import PruningCheck
from softknee.measure import Record

for tool in ("onnx", "onnxscript", "onnxruntime", "torch_pruning", "safetensors", "sklearn"):
    pytest.importorskip(tool, reason=f"{tool} is not installed; the extras 'deploy' and 'lab' bring it")


@pytest.fixture(scope="module")
def gelu() -> nn.Sequential:
    return trained("torch:gelu")


@pytest.fixture(scope="module")
def relu(gelu: nn.Sequential) -> nn.Module:
    return relu_copy(gelu, torch.zeros(2, 64))


@pytest.fixture(scope="module")
def result(gelu: nn.Sequential, relu: nn.Module) -> DeployReport:
    digits = flat_digits()
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


def accuracy(model: nn.Module) -> float:
    digits = flat_digits()
    with torch.no_grad():
        return 100 * float((model(digits.test_images).argmax(1) == digits.test_labels).double().mean())


# -- the whole --------------------------------------------------------------------------------------------


def test_the_models_are_as_they_were(result: DeployReport, gelu: nn.Sequential) -> None:
    assert gelu.training
    assert [type(item).__name__ for item in gelu] == ["Linear", "GELU", "Linear", "GELU", "Linear"]
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
    for model, item in ((result.before, before), (result.after, after)):
        assert item.accuracy_float == pytest.approx(model.accuracy, abs=0.2)
        assert abs(item.accuracy_int8 - item.accuracy_float) < 5
        assert item.latency_int8.repeats == item.latency_float.repeats == 5
        assert 0 < item.latency_int8.low <= item.latency_int8.value <= item.latency_int8.high
        assert 0 < item.bytes_int8 < item.bytes_float


def test_zeros_of_gelu_and_relu(result: DeployReport, relu: nn.Module) -> None:
    assert result.before.zeros is not None
    assert result.before.zeros < 0.01  # far below 0, GELU rounds to it
    digits = flat_digits()
    with torch.no_grad():
        first = relu.get_submodule("1")(relu.get_submodule("0")(digits.test_images))
        second = relu.get_submodule("3")(relu.get_submodule("2")(first))
    counted = sum(int((item == 0).sum()) for item in (first, second)) / (first.numel() + second.numel())
    assert result.after.zeros == pytest.approx(counted, rel=1e-12)
    assert counted > 0.05


def test_pruning_says_when_apoz_cannot_rank(result: DeployReport) -> None:
    assert isinstance(result.before.pruned_by_apoz, NotRun)
    assert re.search(r"[0-7] of 28 have an APoZ .* and 8 are to be removed", result.before.pruned_by_apoz.reason)
    for item in (result.before.pruned_by_size, result.after.pruned_by_size, result.after.pruned_by_apoz):
        assert isinstance(item, PruningCheck)
        assert (item.units, item.removed) == (28, 8)
        first, second = (item.removed_by_layer.get(name, 0) for name in ("1", "3"))
        assert first + second == 8
        left = (64, 16 - first, 12 - second, 10)
        assert item.parameters_after == sum((a + 1) * b for a, b in pairwise(left))
    chance = result.after.pruned_at_random
    assert isinstance(chance, PruningCheck)
    assert chance.accuracy_after.repeats == 5


@needs_marabou
def test_marabou_refuses_gelu_and_takes_relu(result: DeployReport) -> None:
    refused = result.before.robustness
    assert isinstance(refused, Refused)
    assert refused.sentence == "Marabou refuses this network: NotImplementedError: Operation Gelu not implemented"
    taken = result.after.robustness
    assert isinstance(taken, RobustnessCheck)
    assert len(taken.points) == 4
    assert taken.reading < 1e-4
    assert taken.count("proved") >= 1


@needs_marabou
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
    lines = {line[0].strip(): line[1:] for line in table.rows}
    assert lines["ONNX operators"] == ("Gelu 2, Gemm 3", "Gemm 3, Relu 2")
    assert lines["by APoZ"][0] == "not run [1]"
    assert any(remark.startswith("[1] APoZ cannot rank") for remark in table.remarks)
    assert any("Operation Gelu not implemented" in remark for remark in table.remarks)
    assert "| ONNX operators | Gelu 2, Gemm 3 | Gemm 3, Relu 2 |" in result.markdown()


# -- the parts, against independent truth -------------------------------------------------------------------


def test_quantised_weights_are_the_nearest_of_their_channel(relu: nn.Module) -> None:
    import onnx

    quantised = quantise(written(relu), flat_digits().train_images, threads=1)
    graph = onnx.load_from_string(quantised.content).graph
    arrays = {item.name: torch.tensor(onnx.numpy_helper.to_array(item)) for item in graph.initializer}
    largest = 64 if seven_bits() else 127
    for index in (0, 2, 4):
        weight = relu.get_submodule(f"{index}").weight.detach()  # type: ignore[union-attr]
        results = [
            array
            for array in arrays.values()
            if array.dtype == torch.int8 and array.shape in (weight.shape, weight.T.shape)
        ]
        assert len(results) == 1
        steps = results[0].double()
        steps = steps if steps.shape == weight.shape else steps.T
        scales = weight.abs().amax(dim=1, keepdim=True).double() / largest  # one for each output
        assert (steps * scales - weight).abs().le(scales * 0.501).all()


# -- what does not run says so ----------------------------------------------------------------------------


def test_every_missing_tool_is_named(monkeypatch: pytest.MonkeyPatch, relu: nn.Module) -> None:
    for name in ("onnx", "onnxruntime", "torch_pruning", "maraboupy"):
        monkeypatch.setitem(sys.modules, name, None)
    digits = flat_digits()
    result = deploy_check(
        relu, relu, images=digits.test_images[:20], labels=digits.test_labels[:20], calibration=digits.train_images[:20]
    )
    for check in (result.after.onnx, result.after.int8, result.after.pruned_by_apoz, result.after.robustness):
        assert isinstance(check, NotRun)
        assert "which is not installed. Install it with: pip install 'softknee[deploy]'" in check.reason
    assert "'torch-pruning'" in result.after.pruned_by_size.reason  # type: ignore[union-attr]
    assert isinstance(result.after.layers, tuple)
    assert result.record(command="").rows
    assert "not run [1]" in result.markdown()


def test_a_failing_tool_is_quoted() -> None:
    damaged = Exported(content=b"no model", input="x", opset=20, operators={}, foreign=())
    result = attempt(lambda: quantise(damaged, torch.zeros(2, 4), threads=1), what="Quantisation")
    assert isinstance(result, NotRun)
    assert result.reason.startswith("Quantisation failed: ")
    assert result.reason.endswith(".")
    assert "\n" not in result.reason


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
