"""The survey of real models: it counts what executes, and sees a surgery that does not do what it reports."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import survey_models
import torch
import torch.nn.functional as F
from survey_nets import NETS, example
from survey_observe import Recorder
from torch import nn

import softknee as sk

# One network has a helper in TorchScript, which torch has begun to take leave of.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")

NAMES = {F.relu: "relu", F.gelu: "gelu", F.silu: "silu", F.mish: "mish", F.hardswish: "hardswish"}
# What executes in a network besides the activations that its reference names.
BESIDES = {"SqueezeExcite": ["hardsigmoid"], "GluNet": ["glu"], "Recurrent": ["recurrent"]}


@pytest.mark.parametrize("name", NETS)
def test_the_count_is_what_the_network_is_written_to_compute(name: str) -> None:
    torch.manual_seed(0)
    net: Any = NETS[name]().eval()
    with torch.no_grad(), Recorder({id(module): path for path, module in net.named_modules()}) as recorder:
        output = net(example())
    executed = Counter(unit.function for unit in recorder.units)
    # torch's fused encoder layer hides which function it computes.
    functions = [NAMES[function] for function in net.functions]
    if fused := executed.pop("fused_encoder_layer", 0):
        functions = functions[fused:]
    assert executed == Counter(functions + BESIDES.get(name, []))
    assert output.isfinite().all()


@pytest.mark.parametrize("name", NETS)
def test_a_reference_computes_what_its_network_does(name: str) -> None:
    torch.manual_seed(0)
    net: Any = NETS[name]().eval()
    x = example()
    with torch.no_grad():
        torch.testing.assert_close(net.reference(x, *net.functions), net(x))


@pytest.mark.parametrize(
    ("family", "name", "executed"),
    [
        ("nets", "SharedTwice", {"relu": 2}),
        ("nets", "Transformer", {"fused_encoder_layer": 1}),
        ("timm", "vision_transformer/test", {"gelu": 6}),
        ("torchvision", "mobilenet_v3_small", {"hardswish": 19, "relu": 14, "hardsigmoid": 9}),
        ("transformers", "llama", {"silu": 2}),
    ],
)
def test_surgery_on_a_real_model_is_fine(family: str, name: str, executed: dict[str, int]) -> None:
    pytest.importorskip("torch" if family == "nets" else family)
    record = survey_models.examine(family, name)
    assert record["verdict"] == "fine"
    assert record["executed"] == executed
    assert record["changed"]
    assert record["moved"]


class Stack(nn.Module):
    """A network whose forward looks at a list that surgery does not see."""

    functions = (F.relu,)

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.act = nn.Linear(8, 8), nn.ReLU()
        self.steps = [self.fc, self.act]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for step in self.steps:
            x = step(x)
        return x

    def reference(self, x: torch.Tensor, *functions: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        return functions[0](self.fc(x))


def report(undo: Callable[[], None], *, changed: str = "", left: str = "", was: str = "hardswish") -> Any:
    """What `swap_` returns, as far as the survey reads it."""
    return SimpleNamespace(
        changed=[SimpleNamespace(path=changed, was=was, also=())] if changed else [],
        skipped=[SimpleNamespace(path=left, activation=was, reason="Left.")] if left else [],
        notes=[],
        undo=undo,
    )


def put(model: nn.Module, path: str) -> Callable[[], None]:
    """Put S-ReLU in the place of a module; the result takes it back."""
    owner, _, name = path.rpartition(".")
    parent, old = model.get_submodule(owner), model.get_submodule(path)
    setattr(parent, name, sk.nn.make("srelu", delta=0.5))
    return lambda: setattr(parent, name, old)


def nothing() -> None:
    pass


def lies(model: Any, *_: Any, **__: Any) -> Any:
    """Reports a change and makes none."""
    return report(nothing, changed="act")


def changes_the_inside(model: Any, *_: Any, **__: Any) -> Any:
    """Replaces the ReLU6 that stands inside a hard swish."""
    return report(put(model, "act.sigmoid.relu"), changed="act.sigmoid.relu", was="relu6")


def keeps_it_quiet(model: Any, *_: Any, **__: Any) -> Any:
    """Changes the activation and reports that it was left."""
    return report(put(model, "act"), left="act")


def leaves_it_out(model: Any, *_: Any, **__: Any) -> Any:
    """Changes nothing and reports nothing."""
    return report(nothing)


def does_not_come_back(model: Any, *_: Any, **__: Any) -> Any:
    """Changes the activation and does not undo it."""
    put(model, "act")
    return report(nothing, changed="act")


@pytest.mark.parametrize(
    ("surgery", "seen"),
    [
        (lies, "act is reported as changed, and hardswish still runs"),
        (lies, "the output is the same to the bit"),
        (changes_the_inside, "the inside of hardswish is changed"),
        (changes_the_inside, "the output is that of no number of new functions"),
        (keeps_it_quiet, "hardswish does not run any more, and no entry of the report says so"),
        (leaves_it_out, "UNLISTED: hardswish"),
        (does_not_come_back, "undo() does not restore the output"),
        (does_not_come_back, "undo() does not restore the modules"),
    ],
)
def test_the_survey_sees_a_surgery_that_is_wrong(surgery: Any, seen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sk, "sites", lambda model, example: [])
    monkeypatch.setattr(sk, "swap_", surgery)
    assert seen in survey_models.examine("nets", "MobileNetCopy")["verdict"]


def test_a_change_that_the_model_does_not_call_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def swap(model: Any, *_: Any, **__: Any) -> Any:
        return report(put(model, "act"), changed="act", was="relu")

    monkeypatch.setitem(NETS, "Stack", Stack)
    monkeypatch.setattr(sk, "swap_", swap)
    assert "act is reported as changed, and relu still runs" in survey_models.examine("nets", "Stack")["verdict"]


def test_a_survey_is_written_down_and_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "survey.jsonl"
    arguments = [
        "--family",
        "nets",
        "--only",
        "SharedTwice",
        "--only",
        "Recur*",
        "--out",
        str(out),
        "--without-example",
    ]
    assert survey_models.main(arguments) == 0
    lines = out.read_text().splitlines()
    assert sorted(json.loads(line)["name"] for line in lines) == ["Recurrent", "SharedTwice"]
    assert "fine: 2" in capsys.readouterr().out
    assert survey_models.main(arguments) == 0
    assert out.read_text().splitlines() == lines


def test_the_exit_code_says_that_something_is_wrong(tmp_path: Path) -> None:
    out = tmp_path / "survey.jsonl"
    record = {"family": "nets", "name": "Recurrent", "verdict": "UNLISTED: x", "wrong": [], "unlisted": [{"what": "x"}]}
    out.write_text(json.dumps(record) + "\n")
    assert survey_models.main(["--family", "nets", "--only", "Recurrent", "--out", str(out)]) == 1
