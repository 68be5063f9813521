"""Calls inside methods: every spelling found and sent to a module, nothing else changed, and the way back exact."""

from __future__ import annotations

import copy
import io
import linecache
import pickle
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

import softknee as sk
from rewriting_nets import MODELS, REFUSED, ChildA, ChildB, Failing, Family, Marked, Methods, Nested, X

every_model = pytest.mark.parametrize(("build", "count"), MODELS.values(), ids=MODELS)


@every_model
def test_relu_for_relu_changes_no_bit(build: Callable[[], nn.Module], count: int) -> None:
    model = build()
    before, kind = model(X.clone()), type(model)
    state, attributes = model.state_dict(), set(vars(model))
    report = sk.swap_(model, "relu", replacing="relu", example=X.clone())
    assert len(report.changed) == count
    assert {site.kind for site in report.changed} == {"functional"}
    assert all(item.activation != "relu" for item in report.skipped), report
    assert torch.equal(model(X.clone()), before)
    assert report.output_change == 0.0
    # Every one of them goes through a module now: to 0, and nothing of a ReLU is left.
    new = [module for module in model.modules() if type(module).__module__.startswith("softknee.")]
    assert len(new) == count
    calls: list[nn.Module] = []
    for module in new:
        module.register_forward_hook(lambda module, *_: calls.append(module))
    model(X.clone())
    assert {id(call) for call in calls} == {id(entry) for entry in new}
    report.undo()
    assert type(model) is kind
    assert set(vars(model)) == attributes
    assert torch.equal(model(X.clone()), before)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


@every_model
def test_copies_and_pickles_compute_the_same(build: Callable[[], nn.Module], count: int) -> None:
    model = build()
    sk.swap_(model, "srelu", replacing="relu", delta=0.5, learn="delta", example=X.clone())
    wanted = model(X.clone())
    twin = copy.deepcopy(model)
    assert torch.equal(twin(X.clone()), wanted)
    with torch.no_grad():
        for p in twin.parameters():
            p.add_(1.0)
    assert torch.equal(model(X.clone()), wanted)
    if "<locals>" not in type(model).__qualname__:  # the class itself cannot be pickled
        assert torch.equal(pickle.loads(pickle.dumps(model))(X.clone()), wanted)
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        assert torch.equal(torch.load(file, weights_only=False)(X.clone()), wanted)


def test_names_docs_defaults_and_marks_stay() -> None:
    model = Methods(scale=3.0)
    before, part = Methods.forward, Methods._part
    sk.swap_(model, "relu", example=X)
    after: Any = type(model)._part
    assert (after.__name__, after.__qualname__, after.__module__) == (part.__name__, part.__qualname__, part.__module__)
    assert (after.__defaults__, after.__annotations__) == (part.__defaults__, part.__annotations__)
    assert type(model).forward is before
    assert type(model).__name__ == "Methods"
    assert isinstance(model, Methods)
    assert torch.equal(model(X, shift=1.5), Methods(scale=3.0)(X, shift=1.5))
    marked = Marked()
    sk.swap_(marked, "relu", example=X)
    assert vars(type(marked).forward) == {"mark": "kept"}


def test_a_further_subclass_is_copied_as_it_is() -> None:
    """Sharding makes one of the class it finds."""
    model = Marked()
    sk.swap_(model, "srelu", example=X)
    model.__class__ = type("ShardedMarked", (type(model),), {})
    twin = copy.deepcopy(model)
    assert type(twin) is type(model)
    assert torch.equal(twin(X), model(X))


def test_equal_blocks_share_one_class_and_others_are_untouched() -> None:
    model = Family()
    sk.swap_(model, "relu", where=["a.*", "again.*"], example=X)
    assert type(model.a) is type(model.again) is not ChildA
    assert type(model.b) is ChildB
    assert type(ChildA()) is ChildA
    assert "forward" not in vars(ChildA)


def test_tracebacks_name_the_same_lines() -> None:
    def lines(model: nn.Module, x: Any) -> list[tuple[int | None, str]]:
        try:
            model(x)
        except Exception:
            return [
                (item.lineno, item.line or "")
                for item in traceback.extract_tb(sys.exc_info()[2])
                if item.name == "forward"
            ]
        raise AssertionError("it should fail")

    model = Failing()
    model.bad = 1.0
    untouched = Failing()
    sk.swap_(model, "srelu", example=X)
    del model.bad
    for x in (X, torch.zeros(4, 7)):
        first, second = lines(model, x), lines(untouched, x)
        assert first[0] == second[0]
    assert "1 / self.bad" in lines(model, X)[0][1]


def test_two_surgeries_on_one_owner_and_undo_in_any_order() -> None:
    for order in ((0, 1), (1, 0)):
        model = Nested()
        before = model(X)
        reports = [sk.swap_(model, "srelu", replacing="relu", delta=1.0, example=X)]
        between = model(X)
        reports.append(sk.swap_(model, "smelu", replacing="gelu", beta=2.0, example=X))
        assert not torch.equal(between, before)
        assert not torch.equal(model(X), between)
        reports[order[0]].undo()
        only = Nested()
        kept = ("gelu", "smelu", {"beta": 2.0}) if order[0] == 0 else ("relu", "srelu", {"delta": 1.0})
        sk.swap_(only, kept[1], replacing=kept[0], example=X, **kept[2])
        assert torch.equal(model(X), only(X))
        reports[order[1]].undo()
        assert torch.equal(model(X), before)
        assert type(model) is Nested


@pytest.mark.parametrize(("build", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_rewritten_is_said_and_left(build: Callable[[], nn.Module], reason: str) -> None:
    model = build()
    before, kind = model(X), type(model)
    sites = [site for site in sk.sites(model, X) if site.activation == "relu"]
    assert sites
    assert all(reason in site.trouble for site in sites), sites
    with pytest.raises(sk.InputError, match=r"Nothing of .* can be changed"):
        sk.swap_(model, "srelu", replacing="relu", example=X)
    both = nn.Sequential(model, nn.GELU())
    report = sk.swap_(both, "srelu", example=X)
    assert [item.path for item in report.changed] == ["1"]
    assert reason in report.skipped[0].reason
    assert report.skipped[0].reason.endswith(".")
    assert type(model) is kind
    assert torch.equal(model(X), before)


def written(folder: Path, text: str) -> ModuleType:
    path = folder / "some_net.py"
    path.write_text(text)
    linecache.checkcache(str(path))
    module = ModuleType("some_net")
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)  # as an import does it
    return module


NET = """
import torch.nn.functional as F
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x):
        return F.relu(self.fc(x))
"""


def test_a_source_that_is_not_what_runs_is_not_used(tmp_path: Path) -> None:
    module = written(tmp_path, NET)
    written(tmp_path, NET.replace("F.relu", "F.silu"))
    model = module.Net()
    assert "is not the code that runs" in sk.sites(model, X)[0].trouble
    (tmp_path / "some_net.py").unlink()
    linecache.checkcache(str(tmp_path / "some_net.py"))
    assert "is not there" in sk.sites(model, X)[0].trouble


def test_a_pickle_of_other_source_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = written(tmp_path, NET)
    monkeypatch.setitem(sys.modules, "some_net", module)
    module.Net.__module__ = "some_net"
    model = module.Net()
    sk.swap_(model, "srelu", example=X)
    data = pickle.dumps(model)
    moved = written(tmp_path, "# One line more.\n" + NET)
    monkeypatch.setitem(sys.modules, "some_net", moved)
    moved.Net.__module__ = "some_net"
    assert torch.equal(pickle.loads(data)(X), model(X))
    changed = written(tmp_path, NET.replace("F.relu", "F.silu"))
    monkeypatch.setitem(sys.modules, "some_net", changed)
    changed.Net.__module__ = "some_net"
    with pytest.raises(sk.InputError, match="is not what it was when the surgery was planned; plan it again"):
        pickle.loads(data)
