"""The deploy check of a checkpoint: the copy with ReLU, and the command."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import softknee as sk
from deploy_networks import WIDTHS, needs_marabou, trained
from softknee.errors import InputError
from softknee.lab import networks
from softknee.lab.checkpoint import CheckpointError, save_checkpoint
from softknee.lab.deploy import check_checkpoint, relu_copy
from softknee.measure import Record

for tool in ("onnx", "onnxscript", "onnxruntime", "torch_pruning", "safetensors", "sklearn"):
    pytest.importorskip(tool, reason=f"{tool} is not installed; the extras 'deploy' and 'lab' bring it")


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
    actual = relu_copy(model, x)
    linears = [module for module in actual.modules() if isinstance(module, nn.Linear)]
    expected = x
    for index, linear in enumerate(linears):
        expected = linear(expected).clamp(min=0) if index < len(linears) - 1 else linear(expected)
    assert torch.allclose(actual(x), expected, atol=1e-6)
    assert torch.equal(model(x), before)
    assert not any(type(item).__module__.startswith("softknee") for item in actual.modules())


def test_there_must_be_something_to_replace() -> None:
    with pytest.raises(InputError, match="no activation that ReLU could stand for"):
        relu_copy(nn.Sequential(nn.Linear(3, 2)), torch.zeros(1, 3))


@needs_marabou
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
