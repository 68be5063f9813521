"""What surgery keeps: types, devices, modes, hooks, weights and checkpoints, sharing; and the exact way back."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import softknee as sk
from softknee.surgery.modules import activation_modules
from softknee.surgery.swapping.swap import WITHOUT_EXAMPLE
from surgery_helpers import X, mlp, snapshot

# -- what stays ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_types_and_modes_stay(dtype: torch.dtype) -> None:
    model = mlp(nn.GELU(), nn.ReLU(inplace=True)).to(dtype)
    model[1].eval()
    model[0].weight.requires_grad_(False)
    needed = [p.requires_grad for p in model.parameters()]
    report = sk.swap_(model, "srelu", learn=True, example=X.to(dtype))
    new = list(activation_modules(model).values())
    assert [module.training for module in new] == [False, True]
    assert [module.inplace for module in new] == [False, True]
    assert {p.dtype for p in model.parameters()} == {dtype}
    assert model(X.to(dtype)).dtype == dtype
    assert [p.requires_grad for name, p in model.named_parameters() if "delta" not in name] == needed
    report.undo()
    assert [p.requires_grad for p in model.parameters()] == needed


def test_the_meta_device() -> None:
    with torch.device("meta"):
        model = mlp(nn.GELU(), nn.ReLU())
        report = sk.swap_(model, "srelu", learn=True, delta=0.25, example=torch.empty(2, 6))
    assert {p.device.type for p in model.parameters()} == {"meta"}
    assert report.output_change is None
    plain = mlp(nn.GELU(), nn.ReLU())
    model.load_state_dict(plain.state_dict(), assign=True)
    assert [module.delta.item() for module in activation_modules(model).values()] == [0.25, 0.25]
    sk.swap_(plain, "srelu", learn=True, delta=0.25)
    assert torch.equal(model(X), plain(X))


def test_new_modules_lie_where_the_nearest_weights_do() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.Sequential(nn.Sequential(nn.ReLU())), nn.Linear(6, 6).double())
    model.add_module("last", nn.Sequential(nn.Linear(6, 6).bfloat16(), nn.ReLU()))
    sk.swap_(model, "srelu", learn=True)
    types = [next(module.parameters()).dtype for module in activation_modules(model).values()]
    assert types == [torch.float32, torch.bfloat16]
    sk.swap_(model, "smelu", learn=True, dtype=torch.float64)
    assert {next(module.parameters()).dtype for module in activation_modules(model).values()} == {torch.float64}


HOOKS = {
    "forward": "register_forward_hook",
    "forward pre": "register_forward_pre_hook",
    "backward": "register_full_backward_hook",
    "backward pre": "register_full_backward_pre_hook",
}


@pytest.mark.parametrize("register", HOOKS.values(), ids=HOOKS)
@pytest.mark.parametrize("removed", ["swapped", "undone"])
def test_hooks_stay_and_can_be_removed(register: str, removed: str) -> None:
    model = mlp(nn.GELU())
    calls: list[str] = []
    handle = getattr(model[1], register)(lambda module, *_: calls.append(type(module).__name__))
    report = sk.swap_(model, "srelu", learn=True)

    def run() -> list[str]:
        calls.clear()
        model(X.clone().requires_grad_()).sum().backward()
        return list(calls)

    assert run() == ["SReLU"]
    if removed == "swapped":
        handle.remove()
        assert run() == []
        report.undo()
        assert run() == []
    else:
        report.undo()
        assert run() == ["GELU"]
        handle.remove()
        assert run() == []


# -- the way back --------------------------------------------------------------------------------------------------


def test_undo_keeps_what_was_trained() -> None:
    torchvision = pytest.importorskip("torchvision", reason="torchvision is not installed")
    model = torchvision.models.resnet18(num_classes=3)
    old = [(path, module) for path, module in model.named_modules() if isinstance(module, nn.ReLU)]
    x = torch.randn(2, 3, 32, 32)
    report = sk.swap_(model, "smelu", learn=True, example=x)
    assert len(report.changed) == 17
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(x).sum().backward()
    optimizer.step()
    trained = {name: value.clone() for name, value in model.state_dict().items()}
    model.eval()
    report.undo()
    assert [(path, module) for path, module in model.named_modules() if isinstance(module, nn.ReLU)] == old
    assert all(torch.equal(value, trained[name]) for name, value in model.state_dict().items())
    assert not any(module.training for module in model.modules())
    with pytest.raises(sk.InputError, match="undone already"):
        report.undo()


def test_undo_in_the_wrong_order_is_refused_whole() -> None:
    model = mlp(nn.GELU(), nn.ReLU())
    start = snapshot(model)
    first = sk.swap_(model, "srelu")
    second = sk.swap_(model, "smelu", where="3")
    between = snapshot(model)
    with pytest.raises(
        sk.InputError, match="'3' of Sequential was replaced once more after this surgery; undo the later"
    ):
        first.undo()
    assert snapshot(model) == between
    second.undo()
    first.undo()
    assert snapshot(model) == start


@pytest.mark.parametrize("name", ["srelu", "relu"])  # with numbers of its own and without
def test_undo_after_the_model_has_moved(name: str) -> None:
    model = nn.Sequential(nn.PReLU(), nn.Linear(6, 6))
    report = sk.swap_(model, name)
    model.double()
    report.undo()
    assert model(X.double()).dtype == torch.float64


# -- checkpoints --------------------------------------------------------------------------------------------------


class Deep(nn.Module):
    """A PReLU, an attribute that is called from two lines, a function that is called, a buffer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.fc, self.act, self.one = nn.BatchNorm1d(6), nn.Linear(6, 6), nn.PReLU(), nn.PReLU(6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.fc(self.norm(x)))
        return F.gelu(self.one(x)) + self.act(self.fc(x))


@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("where", [None, "act", "act_2", "one", "gelu", ["act", "one"]])
def test_weights_saved_before_load_after(learn: bool, where: Any) -> None:
    trained = Deep()
    with torch.no_grad():
        for p in trained.parameters():
            p.add_(0.5)
    saved = copy.deepcopy(trained.state_dict())
    model = Deep()
    sk.swap_(model, "srelu", where=where, learn=learn, delta=0.3, example=X)
    assert model.load_state_dict(saved, strict=True).missing_keys == []
    assert list(saved) == list(trained.state_dict())
    sk.swap_(trained, "srelu", where=where, learn=learn, delta=0.3, example=X)
    assert torch.equal(model.eval()(X), trained.eval()(X))
    # Saved after the swap, it loads into another that was swapped, values of the activations included.
    for module in activation_modules(trained).values():
        module.set_(delta=0.7)
    model.load_state_dict(trained.state_dict())
    assert all(module.delta.item() == pytest.approx(0.7) for module in activation_modules(model).values())
    assert torch.equal(model(X), trained(X))
    # And what is wrong is still refused.
    with pytest.raises(RuntimeError, match="Missing key"):
        model.load_state_dict({name: value for name, value in saved.items() if name != "fc.weight"})
    with pytest.raises(RuntimeError, match="Unexpected key"):
        model.load_state_dict({**saved, "fc.more": X})


def test_after_undo_the_old_weights_load_as_ever() -> None:
    model = Deep()
    saved = copy.deepcopy(model.state_dict())
    sk.swap_(model, "srelu", where="act", learn=True, example=X).undo()
    assert list(model.state_dict()) == list(saved)
    model.load_state_dict(saved)
    assert not model._load_state_dict_pre_hooks
    with pytest.raises(RuntimeError, match="Missing key"):
        model.load_state_dict({name: value for name, value in saved.items() if name != "act.weight"})


# -- sharing ------------------------------------------------------------------------------------------------------


def test_a_shared_instance_becomes_two_and_learns_apart() -> None:
    act = nn.GELU()
    model = nn.Sequential(nn.Linear(6, 6), act, nn.Linear(6, 6), act)
    report = sk.swap_(model, "srelu", learn=True)
    assert model[1] is not model[3]
    assert len(list(activation_modules(model))) == 2
    report.undo()
    assert model[1] is model[3] is act
    sk.swap_(model, "srelu", where="3")
    assert model[1] is act


class TwoLines(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.act = nn.Linear(6, 6), nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.fc(x))
        return y + self.act(self.fc(y))


class TwoFunctionLines(TwoLines):
    def __init__(self) -> None:
        super().__init__()
        del self.act
        self.act = F.gelu


@pytest.mark.parametrize("build", [TwoLines, TwoFunctionLines])
def test_two_lines_that_call_one_activation(build: Any) -> None:
    model = build()
    before = model(X)
    # Learned apart: two modules. Without parameters to learn: one for both.
    report = sk.swap_(model, "srelu", learn=True, delta=[0.1, 0.9], example=X)
    assert [(path, round(m.delta.item(), 6)) for path, m in activation_modules(model).items()] == [
        ("act", 0.1),
        ("act_2", 0.9),
    ]
    report.undo()
    assert torch.equal(model(X), before)
    assert type(model) is build
    report = sk.swap_(model, "srelu", delta=0.5, example=X)
    assert list(activation_modules(model)) == ["act"]
    assert (report.changed[0].path, report.changed[0].also) == ("act", ("act_2",))
    assert "act, act_2  gelu  SReLU(delta=0.5)" in str(report)
    report.undo()
    report = sk.swap_(model, "relu", learn=True, example=X)
    assert list(activation_modules(model)) == ["act"]
    report.undo()

    def by_hand(first: Any, second: Any) -> Tensor:
        y = first(model.fc(X))
        return y + second(model.fc(y))

    wide = sk.nn.SReLU(delta=2.0)
    for where, wanted in (("act", by_hand(wide, F.gelu)), ("act_2", by_hand(F.gelu, wide))):
        report = sk.swap_(model, "srelu", where=where, delta=2.0, example=X)
        assert [site.path for site in report.changed] == [where]
        assert torch.equal(model(X), wanted)
        assert torch.equal(copy.deepcopy(model)(X), wanted)
        report.undo()
        assert torch.equal(model(X), before)
        assert type(model) is build


def test_what_was_put_aside_guards_the_way_back() -> None:
    model = TwoLines()
    first = sk.swap_(model, "srelu", where="act", example=X)
    second = sk.swap_(model, "smelu", where="act_2", example=X)
    between = snapshot(model)
    with pytest.raises(sk.InputError, match="'act_2' of TwoLines was replaced once more"):
        first.undo()
    assert snapshot(model) == between
    second.undo()
    first.undo()
    assert type(model) is TwoLines


def test_sharing_that_cannot_be_split_is_said() -> None:
    block = nn.Sequential(nn.Linear(6, 6), nn.GELU())
    report = sk.swap_(nn.Sequential(block, block), "srelu", learn=True, example=X)
    assert report.notes == ["Called several times from one line, with parameters shared by all calls: 0.1."]
    report = sk.swap_(TwoLines(), "srelu", learn=True)
    assert report.notes == [
        "Called from several lines, which will share their parameters: act. Give example= for one module each.",
        WITHOUT_EXAMPLE,
    ]
    assert sk.swap_(TwoLines(), "srelu").notes == [WITHOUT_EXAMPLE]


class OverwritesItsInput(nn.Module):
    def __init__(self, act: nn.Module) -> None:
        super().__init__()
        self.fc, self.act, self.last = nn.Linear(6, 6), act, nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        x = self.fc(x)
        self.act(x)
        return self.last(x)


def test_a_model_that_lives_on_an_overwritten_tensor_is_left() -> None:
    report = sk.swap_(OverwritesItsInput(nn.ReLU(inplace=True)), "srelu", example=X)
    assert [site.path for site in report.changed] == ["last"]
    assert "goes on to use what was overwritten; use its result instead." in report.skipped[0].reason
    report = sk.swap_(OverwritesItsInput(nn.ReLU()), "srelu", example=X)
    assert [item.path for item in report.changed] == ["act", "last"]
