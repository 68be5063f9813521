"""Activation sites: modules, functions as attributes, calls; their order and sharing, and a model left as it was."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

import softknee as sk

X = torch.linspace(-3, 3, 24).reshape(4, 6)


# -- functions that are attributes -------------------------------------------------------------------------------------


class Holder(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.fc, self.activation = nn.Linear(6, 6), function

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.fc(x))


def quick(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (F.relu, "relu"),
        (F.gelu, "gelu"),
        (torch.tanh, "tanh"),
        (torch.Tensor.relu, "relu"),
        (functools.partial(F.gelu, approximate="tanh"), "gelu_tanh"),
        (functools.partial(F.leaky_relu, negative_slope=0.3), "leaky_relu(slope=0.3)"),
        (lambda x: F.silu(x), "silu"),
        (quick, "swish(beta=1.702)"),
        (lambda x: torch.sin(x), "<lambda>"),
    ],
)
def test_functions_that_are_attributes(function: Callable[[Tensor], Tensor], wanted: str) -> None:
    model = Holder(function)
    for example in (None, X):
        (site,) = sk.sites(model, example)
        assert (site.path, site.kind, site.function, site.trouble) == ("activation", "functional", wanted, "")
    assert model.activation is function
    before = model(X)
    report = sk.swap_(model, "srelu", replacing=wanted.partition("(")[0], delta=0.3, example=X)
    assert torch.equal(model(X), sk.get("srelu")(model.fc(X), delta=0.3))
    report.undo()
    assert model.activation is function
    assert torch.equal(model(X), before)


def test_functions_that_are_no_activations_are_neither_called_nor_listed(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    model = Holder(functools.partial(torch.save, f=path))
    model.loss, model.norm, model.save = F.mse_loss, torch.softmax, lambda x: path.open("w").write(str(x))
    assert sk.sites(model) == []
    assert not path.exists()


class HasItsOwn(Holder):
    activation = None  # the class has the attribute, too, and would hide a module of that name


class WithMore(Holder):
    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.fc(x), 0.5)


def test_attributes_that_cannot_be_replaced_are_said() -> None:
    (site,) = sk.sites(HasItsOwn(F.relu))
    assert site.trouble == "the class HasItsOwn has an attribute 'activation' of its own"
    (site,) = sk.sites(WithMore(F.leaky_relu), X)
    assert site.trouble == "it is called with more than a tensor"
    with pytest.raises(
        sk.InputError, match=r"activation \(leaky_relu\): It is called with more than a tensor; make it"
    ):
        sk.swap_(WithMore(F.leaky_relu), "srelu", example=X)


class Others(nn.Module):
    """Calls that are activations, though not of softknee's, and some that only look like them."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.slope = nn.Linear(6, 6), nn.Parameter(torch.full((6,), 0.3))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        x = F.prelu(self.fc(x), self.slope)
        y = F.hardsigmoid(x) + F.tanhshrink(x) + F.rrelu(x)
        z = x.clamp(0, 1) + torch.clamp(x, max=3.0) + torch.clamp(x, min=self.slope) + F.softmax(x, -1)
        return {"sum": y + z, "whole": torch.tensor([1, -2]).relu()}


def test_calls_that_are_no_functions_of_softknee() -> None:
    results = {site.path: (site.activation, site.known) for site in sk.sites(Others(), X)}
    assert results == {
        "prelu": ("prelu", True),
        "hardsigmoid": ("hardsigmoid", True),
        "tanhshrink": ("tanhshrink", True),
        "rrelu": ("leaky_relu", True),  # in eval mode
    }
    report = sk.swap_(Others(), "srelu", replacing=["prelu", "tanhshrink"], example=X)
    assert [item.path for item in report.changed] == ["prelu", "tanhshrink"]
    assert report.output_change is not None
    assert report.output_change > 0


# -- order, sharing, kinds ---------------------------------------------------------------------------------------------


class Mixed(nn.Module):
    """Registered in another order than it runs, with a module that is used twice and a call."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.GELU()
        self.twice = nn.SiLU()
        self.fc = nn.Linear(6, 6)
        self.unused = nn.Mish()

    def forward(self, x: Tensor, more: Tensor | None = None) -> Tensor:
        x = self.twice(self.fc(x))
        x = F.relu(x) if more is None else F.relu(x + more)
        return self.last(self.fc(self.twice(x)))


def test_order_of_execution_with_an_example_else_of_registration() -> None:
    model = Mixed()
    assert [site.path for site in sk.sites(model)] == ["last", "twice", "unused"]
    sites = sk.sites(model, X)
    assert [site.path for site in sites] == ["twice", "relu", "twice_2", "last", "unused"]
    assert [site.kind for site in sites] == ["module", "functional", "module", "module", "module"]
    assert [site.shared for site in sites] == [True, False, True, False, False]
    assert sk.sites(model, (X, X))[1].path == "relu"
    assert sk.sites(model, {"x": X, "more": X})[1].path == "relu"


def test_shared_instances_and_shared_blocks() -> None:
    act, block = nn.GELU(), nn.Sequential(nn.Linear(6, 6), nn.SiLU())
    model = nn.Sequential(nn.Linear(6, 6), act, block, act, block)
    assert [(site.path, site.shared) for site in sk.sites(model)] == [("1", True), ("2.1", False), ("3", True)]
    assert [(site.path, site.shared) for site in sk.sites(model, X)] == [("1", True), ("2.1", True), ("3", True)]


class Counting(nn.Module):
    """An activation that changes a buffer with every call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(1))
        self.register_buffer("last", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.steps += 1
        self.last = x.max()
        return F.relu(x)


def test_the_model_is_left_as_it_was() -> None:
    torchvision = pytest.importorskip("torchvision", reason="torchvision is not installed")
    model = torchvision.models.resnet18(num_classes=3).train()
    model.layer1.eval()
    counted = Counting()
    model.fc = nn.Sequential(model.fc, counted)
    modes = [module.training for module in model.modules()]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    hooks = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()]
    torch.manual_seed(3)
    sites = sk.sites(model, torch.zeros(2, 3, 32, 32))
    drawn = torch.rand(1)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(1))
    assert len(sites) == 18
    assert [module.training for module in model.modules()] == modes
    assert [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()] == hooks
    assert counted.steps.item() == counted.last.item() == 0
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


class Positive(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.softplus(x)


class Wrapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.softplus(x) + 0 * self.inner.weight.sum()


def test_what_makes_weights_is_no_activation() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6), nn.ReLU())
    parametrize.register_parametrization(model[0], "weight", Positive())
    parametrize.register_parametrization(model[1], "weight", Wrapped(), unsafe=True)
    for example in (None, X):
        assert [site.path for site in sk.sites(model, example)] == ["2"]
        assert sk.swap_(model, "srelu", example=example, dry_run=True).skipped == []


def test_the_example_is_left_as_it_was() -> None:
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 6))
    x = X.clone()
    report = sk.swap_(model, "smelu", beta=2.0, example=[x])
    assert torch.equal(x, X)
    wanted = (model[1](F.relu(X)) - model(X)).abs().max().item()
    assert report.output_change == pytest.approx(wanted, rel=1e-6)


def test_bad_input() -> None:
    model = Mixed()
    with pytest.raises(sk.InputError, match=r"sites: a torch\.nn\.Module is needed, and Tensor was given; .*\.$"):
        sk.sites(X)  # type: ignore[arg-type]
    with pytest.raises(sk.InputError, match=r"The example does not fit Mixed: RuntimeError: .* Give what the model is"):
        sk.sites(model, torch.zeros(2, 5))
    with pytest.raises(sk.InputError, match="does not fit Mixed: TypeError"):
        sk.sites(model, {"y": X})
    lazy = nn.Sequential(nn.LazyLinear(4), nn.ReLU())
    with pytest.raises(sk.InputError, match="lazy layers that never ran"):
        sk.sites(lazy, X)
    assert isinstance(lazy[0], nn.LazyLinear)
    assert model.training
