"""report.save and apply_: the same surgery again on a fresh model, and refusals of files that are not what they say."""

from __future__ import annotations

import copy
import functools
import importlib.util
import json
import linecache
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import softknee as sk
from softknee.surgery import PlanError
from surgery_helpers import X, mlp, snapshot


class Net(nn.Module):
    """Every kind of site: modules, one called from two lines, a function as attribute, calls, a class attribute."""

    table = staticmethod(F.silu)

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.act, self.fn = nn.Linear(6, 6), nn.PReLU(), functools.partial(F.gelu, approximate="tanh")
        self.block = mlp(nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.fc(x))
        y = self.fn(self.act(self.fc(x))) + F.relu(x) + x.relu()
        return self.block(self.table(y) + self.fn(y))


SURGERIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "plain": ("srelu", {}),
    "learned": ("srelu", {"learn": "delta", "delta": "increasing"}),
    "some": ("smelu", {"where": ["act", "fn_2", "relu"], "learn": True, "beta": 0.5}),
    "the other lines": ("smelu", {"where": ["act_2", "fn", "silu"], "beta": 0.5}),
    "channels": ("smelu", {"per": "channel", "learn": True, "beta": torch.linspace(0.5, 1.0, 6), "where": "act*"}),
    "neurons": ("swish", {"per": "neuron", "learn": True, "where": "block.*"}),
    "squaf": ("squaf", {"k": 8, "q": 0.5, "z": "fit", "learn": ("z", "q")}),
    "squaf laplacian": ("squaf", {"k": 4, "q": 0.5, "weights": "laplacian", "alpha": "auto", "window": None}),
    "squaf table": ("squaf", {"z": [-1, 0, 0, 1, 2], "replacing": "relu"}),
    "variant": ("gelu", {"approximate": "tanh", "replacing": "relu"}),
    "designed": (sk.design.mollify("relu", ("box", "triangle")), {"learn": "weights", "weights": [0.25, 0.75]}),
    "temperature": ("lambda_gelu", {"learn": True, "temperature": 0.5, "lam": 1.5}),
}


@pytest.mark.parametrize(("name", "asked"), SURGERIES.values(), ids=SURGERIES)
def test_the_same_surgery_again(name: Any, asked: dict[str, Any], tmp_path: Path) -> None:
    model, fresh = Net(), Net()
    report = sk.swap_(model, name, example=X, **asked)
    path = report.save(tmp_path / "surgery.json")
    before = snapshot(fresh)
    again = sk.apply_(fresh, path)
    assert again.changed == report.changed
    assert torch.equal(fresh(X), model(X))
    assert [p.shape for p in fresh.parameters()] == [p.shape for p in model.parameters()]
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.01)
    fresh.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(fresh(X), model(X))
    # The report of a repeated surgery can be saved and undone like the first.
    assert json.loads(again.save(tmp_path / "more.json").read_text()) == json.loads(Path(path).read_text())
    again.undo()
    fresh.load_state_dict(Net().state_dict())
    assert snapshot(fresh) == before


def test_a_second_surgery_on_top_of_the_first(tmp_path: Path) -> None:
    model, fresh = Net(), Net()
    paths = [
        sk.swap_(model, "srelu", where=["act", "relu"], learn=True, example=X).save(tmp_path / "1.json"),
        sk.swap_(model, "smelu", where=["act", "act_2", "relu_2"], learn=True, example=X).save(tmp_path / "2.json"),
    ]
    reports = [sk.apply_(fresh, path) for path in paths]
    assert torch.equal(fresh(X), model(X))
    for report in reversed(reports):
        report.undo()
    assert torch.equal(fresh(X), Net()(X))
    with pytest.raises(PlanError, match="replaces srelu at 'act', and there is prelu now; was the surgery"):
        sk.apply_(fresh, paths[1])


def saved(tmp_path: Path, **asked: Any) -> tuple[Path, dict[str, Any]]:
    path = sk.swap_(Net(), "srelu", **{"delta": 0.3, "example": X, **asked}).save(tmp_path / "surgery.json")
    return path, json.loads(path.read_text())


def refused(path: Path, message: str, model: nn.Module | None = None) -> None:
    model = model if model is not None else Net()
    before = snapshot(model)
    with pytest.raises(sk.SoftkneeError, match=message) as caught:
        sk.apply_(model, path)
    assert str(caught.value).endswith((".", "?"))
    assert snapshot(model) == before


def test_models_that_do_not_fit(tmp_path: Path) -> None:
    path, _ = saved(tmp_path)
    done = Net()
    sk.apply_(done, path)
    refused(path, "was the surgery done already", done)
    other = Net()
    other.act = nn.GELU()
    refused(path, "replaces prelu at 'act', and there is gelu now", other)
    other = Net()
    other.fn = 3
    refused(path, "Net has no activation 'fn' at ''", other)
    other = Net()
    del other.block
    other.block = nn.Identity()
    refused(path, "has no activation '1' at 'block'|does not have", other)
    refused(path, "'block', which Linear does not have|Net.forward|Linear", nn.Linear(2, 2))
    other = Net()
    other.relu = nn.Linear(1, 1)
    refused(path, "at 'relu', and there is something now", other)
    with pytest.raises(sk.InputError, match="swap first, then wrap"):
        sk.apply_(nn.DataParallel(Net()), path)


def load(path: Path, text: str) -> Any:
    path.write_text(text)
    linecache.checkcache(str(path))
    spec = importlib.util.spec_from_file_location("other_net", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module.Net


SOURCE = """import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x):
        x = F.relu(self.fc(x))
        return F.gelu(self.fc(x))
"""


def test_changed_source(tmp_path: Path) -> None:
    net, file = load(tmp_path / "net.py", SOURCE), tmp_path / "surgery.json"
    sk.swap_(net(), "srelu", example=X).save(file)
    moved = load(tmp_path / "net.py", "# A line more.\n" + SOURCE)()
    assert len(sk.apply_(moved, file).changed) == 2
    for old, new, reason in (
        ("F.relu(self.fc(x))", "F.silu(self.fc(x))", "it reads 'F.silu"),
        ("    x = F.relu", "    x = x + 1\n        x = F.relu", "no call of it is written there"),
        ("def forward", "def other", "no call of it is written there"),
    ):
        model = load(tmp_path / "net.py", SOURCE.replace(old, new))()
        refused(file, rf"in Net\.forward, which has changed since \(({reason}).*plan the surgery again", model)


# -- files that are not what they say ---------------------------------------------------------------------------


def test_files_that_are_no_plan(tmp_path: Path) -> None:
    path, plan = saved(tmp_path)
    whole = path.read_text()
    refused(tmp_path / "none.json", "could not be read")
    refused(tmp_path, "could not be read|not a file")
    for text, message in (
        ("", "no whole file of surgery"),
        (whole[: len(whole) // 2], "no whole file of surgery"),
        ("[" * 100_000, "no whole file of surgery"),
        ("9" * 10_000, "no whole file of surgery"),
        ("[]", "no file of surgery"),
        ('{"format": "softknee activation"}', "no file of surgery"),
        (
            json.dumps({**plan, "schema": 3, "softknee": "9.9"}),
            "schema 3 of softknee '9.9'.*version that wrote it",
        ),
        (json.dumps({**plan, "changes": []}), "it changes nothing"),
        (json.dumps({**plan, "changes": {}}), "'changes' is no list"),
        (json.dumps({**plan, "kept": None}), "'kept' is no list"),
        (json.dumps({**plan, "activation": "srelu"}), "'activation' is no object"),
        (json.dumps({**plan, "activation": {"name": "/etc/hosts.json"}}), "an activation that there is not"),
        (json.dumps({**plan, "activation": {"name": ["srelu"]}}), "an activation that there is not"),
        (json.dumps({**plan, "activation": {"name": "srelu", "weights": "laplacian"}}), "is damaged"),
        (json.dumps({**plan, "activation": {"name": "squaf", "weights": 3}}), "cannot be followed"),
        (json.dumps({**plan, "activation": {"definition": {"text": "__import__('os')"}}}), "cannot be followed"),
        (json.dumps({**plan, "changes": plan["changes"] * 2}), "two activations into one place"),
        (whole.replace('"delta": 0.3', '"delta": NaN'), "NaN is no number"),
        (whole.replace('"delta": 0.3', '"delta": -0.3'), "cannot be followed: srelu: delta must be"),
        (whole.replace('"delta": 0.3', '"dleta": 0.3'), "cannot be followed: srelu has no parameter 'dleta'"),
        (whole.replace('"delta": 0.3', '"delta": {"a": 1}'), "cannot be made with delta="),
        (whole.replace('"delta": 0.3', '"delta": [[1.0], [1.0, 2.0]]'), "its values make no activation"),
        (whole.replace('"delta": 0.3', '"device": "cuda"'), "cannot be made with device=cuda"),
        (whole.replace('"delta": 0.3', '"definition": 1'), "cannot be made with definition=1"),
        (whole.replace('"delta": 0.3', '"per": "channel", "size": 99999999999'), "cannot be made with size="),
        (whole.replace('"delta": 0.3', f'"per": "neuron", "size": {[10**6] * 4}'), "cannot be made with size="),
        (whole.replace('"delta": 0.3', '"per": "channel", "size": "5"'), "its values make no activation|needs size"),
        (whole.replace('"learn": false', '"learn": ["gamma"]'), "no parameter 'gamma' to learn"),
        (whole.replace('"name": "relu"', '"name": "forward"'), "there is something now"),
        (whole.replace('"name": "relu"', '"name": "a.b"'), "has kind 'call' and name 'a.b'"),
        (whole.replace('"name": "relu"', '"name": ""'), "has kind 'call' and name ''"),
        (whole.replace('"name": "act"', '"name": "training"'), "no activation 'training'"),
        (whole.replace('"name": "act"', '"name": "_modules"'), "no activation '_modules'"),
        (whole.replace('"was": "prelu"', '"was": ""'), "does not say what it replaces"),
        (whole.replace('"kind": "module"', '"kind": "class"'), "has kind 'class'"),
        (whole.replace('"owner": ""', '"owner": "..block"'), "which Net does not have"),
        (whole.replace('"owner": ""', '"owner": "forward"'), "which Net does not have"),
        (whole.replace('"method": "forward"', '"method": "__init__"'), "has changed since"),
        (whole.replace('"method": "forward"', '"method": "table"'), "the method is not there"),
        (whole.replace('"on_tensor": true', '"on_tensor": "yes"'), "'on_tensor' should be of type bool"),
        (whole.replace('"position": [', '"position": [0, '), "not four whole numbers"),
    ):
        assert text != whole, message
        path.write_text(text)
        refused(path, message)
    path.write_bytes(whole.encode()[:-3] + b"\xff\xfe")
    refused(path, "not a text in UTF-8")
    path.write_text(whole)
    sk.apply_(Net(), path)


def test_what_a_file_cannot_hold_is_said_when_it_is_saved(tmp_path: Path) -> None:
    model = Net()
    report = sk.swap_(model, "squaf", z=lambda x: x.clamp(min=0), example=X)
    with pytest.raises(sk.InputError, match="cannot be saved: z= was given as function"):
        report.save(tmp_path / "surgery.json")
    assert list(tmp_path.iterdir()) == []
    rows = sk.spec.Rowwise("doubled", lambda x: 2 * x)
    report = sk.swap_(Net(), rows, example=X)
    with pytest.raises(sk.SoftkneeError):
        report.save(tmp_path / "surgery.json")
    with pytest.raises(sk.SoftkneeError, match="could not be written"):
        sk.swap_(Net(), "srelu").save(tmp_path / "no" / "folder.json")


def test_a_registered_definition_travels_whole(tmp_path: Path) -> None:
    own = sk.design.definition("x * sigmoid(b * x)", params={"b": 2.0}, name="own_knee")
    sk.register(own)
    try:
        model = Net()
        path = sk.swap_(model, "own_knee", example=X).save(tmp_path / "surgery.json")
    finally:
        from softknee.registry import unregister

        unregister("own_knee")
    fresh = Net()
    sk.apply_(fresh, path)
    assert torch.equal(fresh(X), model(X))
    assert copy.deepcopy(fresh)(X).equal(model(X))
