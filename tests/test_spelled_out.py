"""Activations that are spelled out: each is one site, identified by what it computes, replaced whole or left whole."""

from __future__ import annotations

import copy
import functools
import math
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

import softknee as sk

X = torch.linspace(-4, 4, 48).reshape(8, 6)
NEW = {"delta": 0.5}


def new(x: Tensor) -> Tensor:
    return sk.get("srelu")(x, **NEW)


class Net(nn.Module):
    """Two layers with something between them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def between(self, h: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.between(self.first(x)))


# -- modules with parts ------------------------------------------------------------------------------------------------


class HSigmoid(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.relu = nn.ReLU6(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(x + 3) / 6


class HSwish(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.sigmoid = HSigmoid()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.sigmoid(x)


class Mish(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tanh, self.softplus = nn.Tanh(), nn.Softplus()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.tanh(self.softplus(x))


class Shifted(nn.Module):
    """A function of its own, of known parts."""

    def __init__(self) -> None:
        super().__init__()
        self.relu = nn.ReLU6()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.relu(x + 2) / 5


class Handing(nn.Module):
    """Hands on what its part computes, with a dropout that does nothing in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.act, self.drop = nn.ReLU(), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.act(x))


class Holder(Net):
    def __init__(self, act: nn.Module) -> None:
        super().__init__()
        self.act = act

    def between(self, h: Tensor) -> Tensor:
        return self.act(h)


@pytest.mark.parametrize("example", [None, X], ids=["without example", "with example"])
@pytest.mark.parametrize(("act", "name"), [(HSwish, "hardswish"), (Mish, "mish")])
def test_a_module_with_parts_is_one_site(act: Callable[[], nn.Module], name: str, example: Any) -> None:
    model = Holder(act())
    (site,) = sk.sites(model, example)
    assert (site.path, site.activation, site.trouble) == ("act", name, "")
    before = model(X)
    report = sk.swap_(model, "srelu", example=example, **NEW)
    assert [change.path for change in report.changed] == ["act"]
    assert not report.skipped
    assert torch.equal(model(X), model.second(new(model.first(X))))
    report.undo()
    assert torch.equal(model(X), before)


@pytest.mark.parametrize("example", [None, X], ids=["without example", "with example"])
def test_a_gate_of_parts_stays_unless_it_is_named(example: Any) -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), HSigmoid())
    report = sk.swap_(model, "srelu", example=example, **NEW)
    assert [change.path for change in report.changed] == ["1"]
    assert [(left.path, left.activation) for left in report.skipped] == [("3", "hardsigmoid")]
    assert isinstance(model[3], HSigmoid)
    assert isinstance(model[3].relu, nn.ReLU6)
    again = sk.swap_(model, "sigmoid", replacing="hardsigmoid", example=example)
    assert [change.path for change in again.changed] == ["3"]


def test_a_module_of_parts_that_is_no_known_function_is_left_whole() -> None:
    model = nn.Sequential(Holder(Shifted()), nn.ReLU())
    before = copy.deepcopy(model)
    report = sk.swap_(model, "srelu", example=X, **NEW)
    assert [change.path for change in report.changed] == ["1"]
    assert [(left.path, left.activation) for left in report.skipped] == [("0.act", "Shifted")]
    assert torch.equal(model[0](X), before[0](X))
    named = sk.swap_(model, "srelu", replacing="Shifted", example=X, **NEW)
    assert [change.path for change in named.changed] == ["0.act"]


def test_a_module_that_hands_on_what_its_part_computes_keeps_the_rest() -> None:
    model = Holder(Handing())
    report = sk.swap_(model, "srelu", example=X, **NEW)
    assert [change.path for change in report.changed] == ["act.act"]
    assert isinstance(model.act, Handing)


# -- expressions -------------------------------------------------------------------------------------------------------


class HardSwish(Net):
    def between(self, h: Tensor) -> Tensor:
        return h * F.relu6(h + 3) / 6


class Silu(Net):
    def between(self, h: Tensor) -> Tensor:
        return h * torch.sigmoid(h)


class Quick(Net):
    alpha = 1.702

    def between(self, h: Tensor) -> Tensor:
        return h * torch.sigmoid(h * self.alpha)


class SigmoidModule(Net):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Sigmoid()

    def between(self, h: Tensor) -> Tensor:
        return h * self.gate(h)


class TanhGelu(Net):
    def between(self, h: Tensor) -> Tensor:
        return 0.5 * h * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (h + 0.044715 * torch.pow(h, 3.0))))


class ErfGelu(Net):
    def between(self, h: Tensor) -> Tensor:
        return h * 0.5 * (1.0 + torch.erf(h / math.sqrt(2.0)))


class InlineMish(Net):
    def between(self, h: Tensor) -> Tensor:
        return h * torch.tanh(F.softplus(h))


class Where(Net):
    def between(self, h: Tensor) -> Tensor:
        return torch.where(h > 0, h, 0.1 * h)


class WhereZeros(Net):
    def between(self, h: Tensor) -> Tensor:
        return torch.where(h > 0, h, torch.zeros_like(h))


class Mask(Net):
    def between(self, h: Tensor) -> Tensor:
        return h * (h > 0)


class Maximum(Net):
    def between(self, h: Tensor) -> Tensor:
        return torch.maximum(h, torch.zeros_like(h))


class Absolute(Net):
    def between(self, h: Tensor) -> Tensor:
        return (h + h.abs()) / 2


class Exponential(Net):
    def between(self, h: Tensor) -> Tensor:
        return h / (1 + torch.exp(-h))


class Temporary(Net):
    def between(self, h: Tensor) -> Tensor:
        return nn.GELU()(h)


class Upcast(Net):
    def between(self, h: Tensor) -> Tensor:
        return F.gelu(h.float()).type_as(h)


def quick(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # many models have such helpers all the same
    scripted = torch.jit.script(quick)


def gelu(x: Tensor) -> Tensor:
    half = 0.5 * x
    return half * (1.0 + torch.erf(x / math.sqrt(2.0)))


class Scripted(Net):
    def between(self, h: Tensor) -> Tensor:
        return scripted(h)


class Helper(Net):
    def between(self, h: Tensor) -> Tensor:
        return gelu(h)


def counted(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.calls = getattr(self, "calls", 0) + 1
        return function(self, *args, **kwargs)

    return wrapper


def anonymous(function: Any) -> Any:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


class Decorated(Net):
    @counted
    @torch.no_grad()
    @anonymous
    def between(self, h: Tensor) -> Tensor:
        return F.gelu(h)


class Plain(Net):
    def between(self, h: Tensor) -> Tensor:
        return F.gelu(h)


class Further(Plain):
    def between(self, h: Tensor) -> Tensor:
        return super().between(h)


class Furthest(Further):
    @counted
    def between(self, h: Tensor) -> Tensor:
        return super().between(h)


SPELLED = {
    HardSwish: "hardswish",
    Silu: "silu",
    Quick: "swish(beta=1.702)",
    SigmoidModule: "silu",
    TanhGelu: "gelu_tanh",
    ErfGelu: "gelu",
    InlineMish: "mish",
    Where: "leaky_relu(slope=0.1)",
    WhereZeros: "relu",
    Mask: "relu",
    Maximum: "relu",
    Absolute: "relu",
    Exponential: "silu",
    Temporary: "gelu",
    Upcast: "gelu",
    Scripted: "swish(beta=1.702)",
    Helper: "gelu",
    Decorated: "gelu",
    Further: "gelu",
    Furthest: "gelu",
}


@pytest.mark.slow
@pytest.mark.parametrize(("build", "function"), SPELLED.items(), ids=[cls.__name__ for cls in SPELLED])
def test_an_expression_is_one_site_and_is_replaced_whole(
    build: Callable[[], Net], function: str, tmp_path: Path
) -> None:
    model = build()
    assert [site.function for site in sk.sites(model, X)] == [function]
    before, kind = model(X), type(model)
    report = sk.swap_(model, "srelu", example=X, **NEW)
    assert [change.was for change in report.changed] == [function]
    assert not report.uncalled
    wanted = model.second(new(model.first(X)))
    torch.testing.assert_close(model(X), wanted)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(other(X), wanted)
    # Nothing is left, and a second look sees the new function.
    assert [site.activation for site in sk.sites(model, X) if site.seen is not None] == ["srelu"]
    report.save(tmp_path / "surgery.json")
    repeated = build()
    sk.apply_(repeated, tmp_path / "surgery.json")
    torch.testing.assert_close(repeated(X), wanted)
    report.undo()
    assert type(model) is kind
    assert torch.equal(model(X), before)


@pytest.mark.parametrize("build", [SigmoidModule, Helper, Scripted, Decorated, Further, Silu, HardSwish])
def test_without_an_example_it_is_listed_and_left(build: Callable[[], Net]) -> None:
    model = nn.Sequential(build(), nn.ReLU())
    before = model[0](X)
    report = sk.swap_(model, "srelu", **NEW)
    assert [change.path for change in report.changed] == ["1"]
    (function,) = {left.activation for left in report.skipped} - {"sigmoid"}
    assert function == SPELLED[build].partition("(")[0]
    reasons = [left.reason for left in report.skipped]
    assert all("give example= to change it, too" in reason for reason in reasons), reasons
    assert not any("replacing=" in reason for reason in reasons), reasons
    assert any("is known with example= only" in note for note in report.notes)
    assert torch.equal(model[0](X), before)


class Unknown(Net):
    def between(self, h: Tensor) -> Tensor:
        return h * F.relu6(h + 2) / 5


class TwoStatements(Net):
    def between(self, h: Tensor) -> Tensor:
        gate = torch.sigmoid(h)
        return h * gate


class ThreeStatements(Net):
    def between(self, h: Tensor) -> Tensor:
        gate = F.relu6(h + 3)
        gate = gate / 6
        h *= gate
        return h


class TwoModules(SigmoidModule):
    def between(self, h: Tensor) -> Tensor:
        gate = self.gate(h)
        return gate * h


class Rows(Net):
    def between(self, h: Tensor) -> Tensor:
        return torch.cat([F.glu(h), F.glu(h)], -1)


LEFT = {
    Unknown: ("h * F.relu6(h + 2) / 5", "It computes no function of softknee"),
    TwoStatements: ("sigmoid", "multiplied by its own input in another statement"),
    ThreeStatements: ("relu6", "multiplied by its own input in another statement"),
    TwoModules: ("sigmoid", "multiplied by its own input in another statement"),
    Rows: ("glu", "It multiplies one half of its input by a gate of the other"),
}


@pytest.mark.parametrize(("build", "left"), LEFT.items(), ids=[cls.__name__ for cls in LEFT])
def test_what_cannot_be_replaced_whole_is_listed_and_left(build: Callable[[], Net], left: tuple[str, str]) -> None:
    model = nn.Sequential(build(), nn.ReLU())
    before = model[0](X)
    report = sk.swap_(model, "srelu", example=X, **NEW)
    assert [change.path for change in report.changed] == ["1"]
    assert {(each.activation, left[1] in each.reason) for each in report.skipped} == {(left[0], True)}
    assert torch.equal(model[0](X), before)
    if build is not Unknown:
        with pytest.raises(sk.InputError, match="can be changed"):
            sk.swap_(build(), "srelu", replacing=left[0], example=X, **NEW)


class Sums(Net):
    """What is only added to its own input, scaled or shifted stays a site of its own."""

    def between(self, h: Tensor) -> Tensor:
        return h + F.relu(h) * 0.5 + (F.gelu(h) + 1e-6)


def test_a_sum_is_no_part_of_the_function() -> None:
    model = Sums()
    report = sk.swap_(model, "srelu", example=X, **NEW)
    assert [change.was for change in report.changed] == ["relu", "gelu"]
    h = model.first(X)
    torch.testing.assert_close(model(X), model.second(h + new(h) * 0.5 + (new(h) + 1e-6)))


class Gated(Net):
    """A gate of something else, as in squeeze and excitation or in a GLU."""

    def between(self, h: Tensor) -> Tensor:
        return h * torch.sigmoid(h.mean(-1, keepdim=True)) * F.silu(h.flip(-1))


def test_a_gate_of_something_else_is_a_gate() -> None:
    report = sk.swap_(Gated(), "srelu", example=X, **NEW)
    assert [change.was for change in report.changed] == ["silu"]
    assert [left.activation for left in report.skipped] == ["sigmoid"]
    assert "replacing='sigmoid'" in report.skipped[0].reason


class Constrains(Net):
    """Functions that keep something in its range, and activate nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.raw = nn.Parameter(torch.zeros(6))
        self.positive = nn.Softplus()

    def between(self, h: Tensor) -> Tensor:
        distance = torch.sqrt((h * h - 0.1).clamp(min=0) + 1e-6)
        norm = torch.clamp(h.pow(2).sum(-1, keepdim=True), min=0) ** 0.5
        return F.relu(distance - norm) * F.softplus(self.raw) + self.positive(2 * self.raw)


def test_what_keeps_a_number_in_its_range_is_left_unless_it_is_named() -> None:
    report = sk.swap_(Constrains(), "srelu", example=X, **NEW)
    assert [change.was for change in report.changed] == ["relu"]
    reasons = {left.path: left.reason for left in report.skipped}
    assert reasons["clamp"].startswith("It keeps a root or a logarithm defined; name it")
    assert reasons["clamp_2"].startswith("It keeps a root or a logarithm defined; name it")
    assert reasons["softplus"].startswith("It makes a weight out of a parameter; name it")
    assert reasons["positive"].startswith("It makes a weight out of a parameter; name it")
    named = sk.swap_(Constrains(), "smelu", replacing="softplus", example=X)
    assert [change.path for change in named.changed] == ["softplus", "positive"]


# -- what ran ----------------------------------------------------------------------------------------------------------


class Beside(Net):
    """Has a module that it never calls, as Mamba has where its convolution applies the function by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.SiLU()

    def between(self, h: Tensor) -> Tensor:
        return F.silu(h) if self.training else torch.sin(h)


class Aside(Net):
    """Has a part that runs in training alone."""

    def __init__(self) -> None:
        super().__init__()
        self.aside = Holder(nn.ReLU())

    def between(self, h: Tensor) -> Tensor:
        return self.aside(h) if self.training else torch.sin(h)


def test_changed_means_that_it_ran() -> None:
    with pytest.raises(
        sk.InputError, match=r"Nothing of Beside can be changed. act \(silu\): The module that has it ran"
    ):
        sk.swap_(Beside(), "srelu", example=X, **NEW)
    report = sk.swap_(nn.Sequential(Beside(), nn.ReLU()), "srelu", example=X, **NEW)
    assert [change.path for change in report.changed] == ["1"]
    assert {left.path for left in report.skipped} == {"0.act", "0.silu"}


def test_what_the_example_never_called_is_said() -> None:
    report = sk.swap_(Aside(), "srelu", example=X, **NEW)
    assert (report.output_change, report.uncalled) == (0.0, ["aside.act"])
    text = str(report)
    assert text.startswith("1 changed (1 never called), 0 left")
    assert "Never called by the example: aside.act." in text
    assert "The output on the example did not move" in text


class Lists(Net):
    """Calls its parts from a list, which has them beside the registered modules."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = [nn.Linear(6, 6), nn.ReLU()]
        for index, part in enumerate(self.parts):
            self.add_module(str(index), part)

    def between(self, h: Tensor) -> Tensor:
        for part in self.parts:
            h = part(h)
        return h


def test_a_module_that_is_called_from_a_list_is_replaced_there() -> None:
    model = Lists()
    before = model(X)
    report = sk.swap_(model, "srelu", example=X, **NEW)
    assert not report.uncalled
    torch.testing.assert_close(model(X), model.second(new(model.parts[0](model.first(X)))))
    report.undo()
    assert torch.equal(model(X), before)


# -- torch.fx and torch's decoder layer --------------------------------------------------------------------------------


class Functions(Net):
    def between(self, h: Tensor) -> Tensor:
        return F.gelu(h, approximate="tanh") + h.relu() + torch.sigmoid(h) * h


@pytest.mark.parametrize("example", [None, X], ids=["without example", "with example"])
def test_functions_in_a_graph(example: Any, tmp_path: Path) -> None:
    model = fx.symbolic_trace(Functions())
    before, code = model(X), model.code
    report = sk.swap_(model, "srelu", example=example, **NEW)
    assert [change.was for change in report.changed] == ["gelu_tanh", "relu"]
    assert [left.activation for left in report.skipped] == ["sigmoid"]
    assert "multiplied by its own input in another node" in report.skipped[0].reason
    h = model.first(X)
    wanted = model.second(2 * new(h) + torch.sigmoid(h) * h)
    torch.testing.assert_close(model(X), wanted)
    model.recompile()
    torch.testing.assert_close(model(X), wanted)
    torch.testing.assert_close(copy.deepcopy(model)(X), wanted)
    report.save(tmp_path / "surgery.json")
    repeated = fx.symbolic_trace(Functions())
    sk.apply_(repeated, tmp_path / "surgery.json")
    torch.testing.assert_close(repeated(X), wanted)
    report.undo()
    assert model.code == code
    assert torch.equal(model(X), before)


def test_functions_in_an_exported_program() -> None:
    model = torch.export.export(Plain().eval(), (X,)).module()
    h = F.linear(X, model.first.weight, model.first.bias)
    report = sk.swap_(model, "srelu", **NEW)
    assert [change.was for change in report.changed] == ["gelu"]
    torch.testing.assert_close(model(X), F.linear(new(h), model.second.weight, model.second.bias))


@pytest.mark.parametrize("hardened", [False, True])
def test_a_decoder_layer_keeps_its_activation_in_copies(hardened: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerDecoderLayer(6, 2, 12, dropout=0.0, batch_first=True)
    stock = copy.deepcopy(layer)
    report = sk.swap_(layer, "srelu", delta=2.0)
    if hardened:
        sk.relu_ize_(layer, tolerance=math.inf)
    x = X.reshape(2, 4, 6)
    wanted = layer(x, x)
    averaged = torch.optim.swa_utils.AveragedModel(layer)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), averaged.module):
        assert type(other.activation) is type(layer.activation)
        assert torch.equal(other(x, x), wanted)
        assert dict(other.named_modules())["activation"] is other.activation
    decoder = nn.TransformerDecoder(layer, 2)
    assert all(type(each.activation) is type(layer.activation) for each in decoder.layers)
    if not hardened:
        assert not torch.equal(wanted, stock(x, x))
        report.undo()
        assert torch.equal(layer(x, x), stock(x, x))
        assert layer.activation is F.relu
