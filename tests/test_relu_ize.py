"""relu_ize_: hard limits in the place of smooth functions, with the cost measured and bounded, or nothing changed."""

from __future__ import annotations

import copy
import math
import pickle
import sys
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import softknee as sk
from softknee.errors import ParameterError
from surgery_helpers import X, mlp, snapshot

# Most models here are soft on purpose; what is said of that is tested at the end.
pytestmark = pytest.mark.filterwarnings("ignore:relu_ize_:UserWarning")


def smooth() -> nn.Sequential:
    """At 1, 3, 5: three functions that harden, at 7 and 9 two of torch."""
    model = mlp(
        sk.nn.SReLU(delta=0.5), sk.nn.SmeLU(beta=1.0, learn=True), sk.nn.Softplus(beta=2.0), nn.GELU(), nn.Tanh()
    )
    return model.eval()


def error(model: nn.Module) -> float:
    with torch.no_grad():
        return model(X).square().mean().item()


def test_what_it_costs_is_measured() -> None:
    model = smooth()
    old = copy.deepcopy(model)
    result = sk.relu_ize_(model, evaluate=error, data=X)
    assert [type(model[i]) for i in (1, 3, 5, 7, 9)] == [nn.ReLU, nn.ReLU, nn.ReLU, nn.GELU, nn.Tanh]
    assert result.replaced == {"1": "ReLU()", "3": "ReLU()", "5": "ReLU()"}
    assert (result.before, result.after, result.recovered) == (error(old), error(model), None)
    assert result.output_change == pytest.approx((old(X) - model(X)).abs().max().item(), rel=1e-6)
    text = str(result)
    assert text.startswith("3 activations replaced\n1  ReLU()  (moved by at most ")
    assert f"metric before: {result.before:.6g}" in text
    assert "largest change of an output" in text


def test_bounds_hold_at_every_layer_and_are_reached() -> None:
    model = smooth()
    old = copy.deepcopy(model)
    result = sk.relu_ize_(model)
    line = torch.linspace(-20, 20, 400_001, dtype=torch.float64)
    for path, bound in result.bounds.items():
        act = old.get_submodule(path).double()
        gap = (act(line) - F.relu(line)).abs().max().item()
        assert gap <= bound * (1 + 1e-6)
        assert gap >= bound * 0.999, path
    assert sk.relu_ize_(mlp(sk.nn.make("relu"))).bounds == {"1": 0.0}


def test_a_designed_function_is_bounded_by_its_certificate() -> None:
    knee = sk.design.mollify("relu", "triangle")
    model = mlp(sk.nn.make(knee, delta=0.5, learn=True))
    act = copy.deepcopy(model[1]).double()
    result = sk.relu_ize_(model)
    line = torch.linspace(-2, 2, 400_001, dtype=torch.float64)
    gap = (act(line) - F.relu(line)).abs().max().item()
    assert gap <= result.bounds["1"] * (1 + 1e-9) <= 1.001 * gap


def test_a_bound_that_cannot_be_proved_here_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flint", None)  # as where python-flint is not installed
    model = mlp(sk.nn.make(sk.design.mollify("relu", "biweight"), delta=0.5))
    result = sk.relu_ize_(model)
    assert isinstance(model[1], nn.ReLU)
    assert result.bounds == {"1": math.inf}
    assert result.notes[0].startswith("No bound for 1: ")
    assert "pip install" in str(result)


def test_plain_torch_alone_is_left() -> None:
    model = mlp(nn.ReLU(), nn.PReLU(), nn.LeakyReLU(0.2))
    stock = copy.deepcopy(model)
    sk.swap_(model, "srelu", where="1", learn=True)
    sk.swap_(model, "prelu", where="3", learn=True, slope=0.4)
    sk.swap_(model, "leaky_smelu", where="5", g_minus=0.2)
    sk.relu_ize_(model)
    assert all(type(module).__module__.startswith("torch.") for module in model.modules())
    assert b"softknee" not in pickle.dumps(model)
    assert not any("softknee" in name for name in model.state_dict())
    stock.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(stock(X), model(X))
    assert model[3].weight.item() == pytest.approx(0.4)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.act = nn.Linear(6, 6), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.fc(F.relu(self.fc(x)))) + self.act(x)


def test_functions_and_shared_modules_come_back_as_they_were() -> None:
    stock = Net()
    model = copy.deepcopy(stock)
    sk.swap_(model, "srelu", learn=True, delta=0.5, example=X)
    sk.relu_ize_(model)
    assert torch.equal(model(X), stock(X))
    stock.load_state_dict(model.state_dict(), strict=True)
    shared = sk.nn.SReLU()
    model = nn.Sequential(nn.Linear(6, 6), shared, nn.Linear(6, 6), shared)
    sk.relu_ize_(model)
    assert model[1] is model[3]
    assert isinstance(model[1], nn.ReLU)


def test_an_encoder_layer_of_torch_comes_back_as_it_was() -> None:
    torch.manual_seed(0)
    stock = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True).eval()
    model = copy.deepcopy(stock)
    sk.swap_(model, "srelu", learn=True, delta=0.5)
    sk.relu_ize_(model)
    stock.load_state_dict(model.state_dict(), strict=True)
    with torch.no_grad():
        assert torch.allclose(model(X[None]), stock(X[None]), atol=1e-6)


def test_modes_hooks_and_the_rest_stay() -> None:
    model = smooth().train()
    model[3].eval()
    calls: list[str] = []
    handle = model[1].register_forward_hook(lambda module, *_: calls.append(type(module).__name__))
    weights = [p for name, p in model.named_parameters() if "beta" not in name]
    sk.relu_ize_(model, evaluate=lambda model: 0.0, data=X)
    assert [model[i].training for i in (1, 3, 5)] == [True, False, True]
    assert [id(p) for p in model.parameters()] == [id(p) for p in weights]
    calls.clear()
    model(X)
    assert calls == ["ReLU"]
    handle.remove()
    model(X)
    assert calls == ["ReLU"]


# -- training after the replacement ---------------------------------------------------------------------------------


def train(model: nn.Module, steps: int = 20) -> None:
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        model(X).square().mean().backward()
        optimizer.step()


def test_finetune_recovers() -> None:
    model = smooth()
    result = sk.relu_ize_(model, evaluate=error, data=X, finetune=train)
    assert result.after is not None
    assert result.recovered is not None
    assert result.recovered < result.after
    assert result.recovered == error(model)
    # The change of the outputs is that of the replacement alone.
    alone = smooth()
    assert sk.relu_ize_(alone, data=X).output_change == result.output_change


def test_layer_by_layer() -> None:
    model = smooth()
    kinds: list[list[str]] = []

    def watched(model: Any) -> None:
        kinds.append([type(model[i]).__name__ for i in (1, 3, 5)])
        train(model, 5)

    result = sk.relu_ize_(model, evaluate=error, finetune=watched, order="layerwise")
    assert kinds == [["ReLU", "SmeLU", "Softplus"], ["ReLU", "ReLU", "Softplus"], ["ReLU", "ReLU", "ReLU"]]
    assert [path for path, _, _ in result.trace] == ["1", "3", "5"]
    assert all(recovered < swapped for _, swapped, recovered in result.trace)
    assert result.recovered == result.trace[-1][2] == error(model)
    assert (result.after, result.output_change) == (None, None)


class Stem(nn.Module):
    """Its first activation is a call, and becomes the module that is registered last."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.body = nn.Linear(6, 6), mlp(nn.GELU())

    def forward(self, x: Tensor) -> Tensor:
        return self.body(F.gelu(self.stem(x)))


def test_layer_by_layer_is_in_order_of_depth() -> None:
    model = Stem()
    sk.swap_(model, "srelu", example=X)
    result = sk.relu_ize_(model, finetune=lambda model: None, order="layerwise")
    assert [path for path, _, _ in result.trace] == list(result.replaced) == ["gelu", "body.1"]


@torch.no_grad()  # with gradients torch's compiler warns of itself
def test_a_compiled_activation_is_replaced_as_well() -> None:
    compiled: Any = torch.compile(sk.nn.SReLU(delta=0.16), backend="eager")
    model = mlp(compiled, sk.nn.SmeLU())
    result = sk.relu_ize_(model, data=X)
    assert [type(model[i]) for i in (1, 3)] == [nn.ReLU, nn.ReLU]
    assert result.bounds["1"] == pytest.approx(0.03)


# -- bad input and failures: nothing half changed -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "asked", "message"),
    [
        (mlp(nn.GELU()), {}, "Sequential has no activation of softknee to replace; put them in with sk.swap_ first"),
        (mlp(sk.nn.SReLU(), sk.nn.Tanh()), {}, "^3: tanh cannot be replaced by a plain torch module: it has no knob"),
        (mlp(sk.nn.SReLU(), sk.nn.make("squaf")), {}, "^3: squaf cannot be replaced by a hard limit.*staircase"),
        (mlp(sk.nn.SReLU(), sk.nn.EntropicSpline()), {}, "^3: "),
        (mlp(sk.nn.SReLU(), sk.nn.ShiftedSmeLU(shift=1.0)), {}, r"^3: .*relu\(x - shift\)"),
        (
            smooth(),
            {"order": "layer"},
            r"order must be 'together' or 'layerwise', and 'layer' was given\.",
        ),
        (smooth(), {"order": "layerwise"}, "recovers after each layer, which needs finetune="),
        (smooth(), {"data": torch.zeros(2, 5)}, "The example does not fit Sequential"),
        (smooth(), {"evaluate": lambda model: "good"}, "evaluate must return a number, and str was returned"),
        (smooth(), {"evaluate": 3}, "evaluate must be a function of the model, and int was given"),
        (smooth(), {"finetune": 3}, "finetune must be a function of the model, and int was given"),
        (nn.DataParallel(smooth()), {}, "already wrapped"),
    ],
    ids=lambda one: one[:20] if isinstance(one, str) else "",
)
def test_bad_input(model: nn.Module, asked: dict[str, Any], message: str) -> None:
    before = snapshot(model)
    with pytest.raises(sk.SoftkneeError, match=message) as caught:
        sk.relu_ize_(model, **asked)
    assert str(caught.value).endswith((".", "?"))
    assert snapshot(model) == before


@pytest.mark.parametrize("order", ["together", "layerwise"])
@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_a_failure_brings_back_modules_weights_and_modes(order: str, fails_at: int) -> None:
    model = smooth()
    model[0].weight.requires_grad_(False)
    model[2].weight.grad = torch.ones(6, 6)
    before, grad = snapshot(model), model[2].weight.grad
    times: list[int] = []

    def evaluate(model: Any) -> float:
        times.append(1)
        if len(times) == fails_at:
            raise KeyboardInterrupt
        return error(model)

    def finetune(model: Any) -> None:
        model.requires_grad_(True)
        train(model)
        if fails_at == 3:
            raise ZeroDivisionError("in the middle of training")

    expected = ZeroDivisionError if fails_at == 3 else KeyboardInterrupt
    with pytest.raises(expected):
        sk.relu_ize_(model, evaluate=evaluate, finetune=finetune, order=order)
    assert snapshot(model) == before
    assert not model[0].weight.requires_grad
    assert model[2].weight.requires_grad
    assert model[2].weight.grad is grad
    assert torch.equal(grad, torch.ones(6, 6))


# -- what it costs, said before ---------------------------------------------------------------------------------


def soft_net(delta: float = 1.0) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), sk.nn.SReLU(delta=delta), nn.Linear(8, 2))


def test_a_dry_run_says_the_cost_and_changes_nothing():
    model, data = soft_net(), torch.randn(16, 4)
    outputs, before = model(data).detach(), model[1]
    report = sk.relu_ize_(model, lambda m: m(data).square().mean().item(), data=data, dry_run=True)
    assert model[1] is before
    assert torch.equal(model(data), outputs)
    assert report.bounds["1"] == pytest.approx(3 / 16)
    done = sk.relu_ize_(model, lambda m: m(data).square().mean().item(), data=data, tolerance=1.0)
    assert (report.output_change, report.before, report.after) == (done.output_change, done.before, done.after)
    assert "1 activation would be replaced\n1  ReLU()  (moves by at most 0.188)" in str(report)
    assert report.output_change > 0


def test_what_is_not_hard_is_replaced_with_a_warning_that_says_the_cost():
    model, data = soft_net(), torch.randn(16, 4)
    with pytest.warns(UserWarning, match=r"1 of 1 activations are not hard yet: 1 moves by up to 0.188, an output by"):
        sk.relu_ize_(model, data=data)
    assert isinstance(model[1], nn.ReLU)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sk.relu_ize_(soft_net(delta=0.01))  # hard enough
        sk.relu_ize_(soft_net(), finetune=lambda m: None)  # who recovers knows
        sk.relu_ize_(soft_net(), tolerance=math.inf)


def test_where_warnings_are_errors_nothing_is_replaced():
    model = soft_net()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="Harden them first"):
            sk.relu_ize_(model)
    assert isinstance(model[1], sk.nn.SReLU)


def test_arguments_that_contradict_each_other():
    with pytest.raises(ParameterError, match="dry_run=True changes nothing"):
        sk.relu_ize_(soft_net(), dry_run=True, finetune=lambda m: None)
    with pytest.raises(ParameterError, match="tolerance must be a number, 0 or more"):
        sk.relu_ize_(soft_net(), tolerance=-1.0)
