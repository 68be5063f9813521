"""Definitions of a user's own: registered, from an installed package, or given by an inverse."""

import gc
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import sympy
import torch

import processes
import softknee as sk
from helpers import F64
from softknee import registry
from softknee.spec import Activation, Claims, Implicit, Sigmoid, positive, v, x
from softknee.spec.reference import evaluate

X = torch.linspace(-4, 4, 41, dtype=F64)


def swoosh(name: str = "swoosh") -> Activation:
    gain = positive("gain", 2.0, "steepness")
    return Activation(name, x * Sigmoid(gain.symbol * x) + x / 8, params=(gain,), about="A function of the user's own.")


@pytest.fixture
def own():
    made = sk.register(swoosh())
    yield made
    registry.unregister("swoosh")


def test_a_registered_definition_has_a_name_everywhere(own: Activation):
    assert "swoosh" in sk.names()
    assert sk.get("swoosh") is own
    torch.testing.assert_close(own(X, gain=3.0), X * torch.sigmoid(3 * X) + X / 8)
    module = sk.nn.make("swoosh", gain=3.0, learn=True, per="neuron", size=41)
    module = module.double()
    torch.testing.assert_close(module(X), own(X, gain=3.0), rtol=1e-6, atol=1e-6)
    module(X).sum().backward()
    assert module.raw_gain.grad.isfinite().all()
    assert repr(module).startswith("Pointwise('swoosh', gain=3 (learned)")
    assert sk.explain(module, X).path == "plain"


def test_a_registered_definition_is_differentiated_and_compiled(own: Activation):
    at = X.clone().requires_grad_()
    (slope,) = torch.autograd.grad(own(at).sum(), at)
    torch.testing.assert_close(slope, own.derivative(1)(X))
    assert float(evaluate(own.derivative(1), 0.5)) == pytest.approx(
        own.derivative(1)(torch.tensor([0.5], dtype=F64)).item()
    )
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: sk.get("swoosh")(x, gain=0.5), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(X), own(X, gain=0.5))


def test_a_registered_definition_is_itself_again_where_it_is_registered(own: Activation):
    assert pickle.loads(pickle.dumps(own)) is own
    assert pickle.loads(pickle.dumps(own.derivative(2))) is own.derivative(2)
    module = sk.nn.make("swoosh", learn=True)
    assert torch.equal(pickle.loads(pickle.dumps(module))(X), module(X))


ELSEWHERE = """
import pickle, sys, torch
import softknee as sk
with open(sys.argv[1], "rb") as file:
    x, expected, things = pickle.load(file)
assert "swoosh" not in sk.names() and "knee" not in sk.names()
for thing, y in zip(things, expected, strict=True):
    with torch.no_grad():
        torch.testing.assert_close(thing(x), y)
assert things[0].derivative(1) is things[1] or torch.equal(things[0].derivative(1)(x), things[1](x))
assert sk.get("mish") is not things[4]
"""


def test_a_registered_definition_travels_whole(own: Activation, tmp_path: Path):
    """To a process that has registered nothing, with what was put in the place of a function of ours."""
    knee = sk.register(sk.design.mollify("relu", "biweight", width=0.5, name="knee"))
    stock = sk.get("mish")
    mish = sk.register(swoosh("mish"), replace=True)
    try:
        things = [own, own.derivative(1), sk.nn.make("swoosh", gain=3.0, learn=True), knee, mish, stock]
        expected = [thing(X).detach() for thing in things]
        (tmp_path / "things.pickle").write_bytes(pickle.dumps((X, expected, things)))
        again = pickle.loads((tmp_path / "things.pickle").read_bytes())[2]
        same = [first is second for first, second in zip(things, again, strict=True)]
        assert same == [
            True,
            True,
            False,
            True,
            True,
            False,
        ]  # a module is another one, and the stock mish has no name now
    finally:
        registry.unregister("knee")
        registry.unregister("mish")
    processes.run(processes.execute, ELSEWHERE, str(tmp_path / "things.pickle"), count=1)


def test_a_python_function_that_is_not_registered_says_so_when_it_is_unpickled():
    rows = sk.register(sk.spec.Rowwise("passing_rows", lambda x: x - x.mean(-1, keepdim=True)))
    data = pickle.dumps(rows)
    assert pickle.loads(data) is rows
    registry.unregister("passing_rows")
    with pytest.raises(sk.UnknownActivationError, match=r"A pickle holds the activation 'passing_rows' .*register\(\)"):
        pickle.loads(data)


def test_unregister_takes_it_back():
    sk.register(swoosh("passing"))
    registry.unregister("passing")
    assert "passing" not in sk.names()
    with pytest.raises(sk.UnknownActivationError):
        sk.get("passing")


@pytest.mark.parametrize("name", ["mish", "silu"])
def test_unregister_gives_back_what_was_replaced(name: str):
    """A function of the zoo, and an alias."""
    before, all_names = sk.get(name), sk.names()
    sk.register(swoosh(name), replace=True)
    assert sk.get(name) is not before
    registry.unregister(name)
    assert sk.get(name) is before
    assert sk.names() == all_names
    registry.unregister(name)  # once more takes nothing away
    assert sk.get(name) is before


def test_replace_puts_another_in_its_place(own: Activation):
    other = sk.register(Activation("swoosh", 2 * x), replace=True)
    assert sk.get("swoosh") is other
    torch.testing.assert_close(sk.nn.make("swoosh").double()(X), 2 * X)
    torch.testing.assert_close(own(X), swoosh("the_old_one")(X))


def test_a_definition_works_without_a_name():
    """Two unregistered definitions of one name do not meet."""
    item, two = Activation("nameless", x**2), Activation("nameless", x**3)
    torch.testing.assert_close(item(X), X**2)
    torch.testing.assert_close(two(X), X**3)
    torch.testing.assert_close(sk.nn.make(two).double()(X), X**3)


def test_a_zoo_name_may_be_replaced_and_the_module_follows():
    original = sk.get("hardtanh")
    try:
        sk.register(Activation("hardtanh", x / 2), replace=True)
        torch.testing.assert_close(sk.nn.make("hardtanh").double()(X), X / 2)
    finally:
        sk.register(original, replace=True)
    torch.testing.assert_close(sk.nn.make("hardtanh")(X), X.clamp(-1, 1))


# -- installed packages -----------------------------------------------------------------------------------


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A package with an entry point, as pip would leave it on the path."""
    (tmp_path / "other_package.py").write_text(
        "from softknee.spec import Activation, x\nBENT = Activation('bent', x + abs(x) / 4)\n"
    )
    info = tmp_path / "other_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[softknee.activations]\nbent = other_package:BENT\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry, "_plugins_read", False)
    yield
    registry.unregister("bent")
    sys.modules.pop("other_package", None)


@pytest.mark.usefixtures("installed")
def test_an_entry_point_is_found_by_name():
    torch.testing.assert_close(sk.get("bent")(X), X + X.abs() / 4)
    assert "bent" in sk.names()
    torch.testing.assert_close(sk.nn.make("bent").double()(X), X + X.abs() / 4)


@pytest.mark.usefixtures("installed")
def test_an_entry_point_is_loaded_only_when_asked_for():
    assert "bent" in sk.names()
    assert "other_package" not in sys.modules
    sk.get("bent")
    assert "other_package" in sys.modules


# -- by an inverse ----------------------------------------------------------------------------------------


def cubic_inverse() -> Activation:
    """The y with y + c y^3 = x: no closed form is given, and none is needed."""
    c = positive("c", 1.0, "strength of the cube")
    return Activation(
        "cubic_inverse",
        v,
        params=(c,),
        implicit=Implicit(inverse=v + c.symbol * v**3, low=-sympy.Abs(x) - 1, high=sympy.Abs(x) + 1),
        claims=Claims(float("inf"), True, 1),
    )


def test_an_implicit_definition_solves_its_equation():
    act = cubic_inverse()
    for c in (0.01, 1.0, 100.0):
        y = act(X, c=c)
        torch.testing.assert_close(y + c * y**3, X, rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(act.derivative(1)(X, c=c), 1 / (1 + 3 * c * y**2), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_an_implicit_definition_has_gradients_of_both_orders():
    act = cubic_inverse()
    inputs = [X[::5].clone().requires_grad_(), torch.tensor([0.7], dtype=F64, requires_grad=True)]
    assert torch.autograd.gradcheck(lambda x, c: act(x, c=c), inputs)
    assert torch.autograd.gradgradcheck(lambda x, c: act(x, c=c), inputs)
    for at in (-3.0, 0.25, 2.0):
        exact = evaluate(act.partial("c"), at, c=0.75)
        got = act.partial("c")(torch.tensor([at], dtype=F64), c=0.75).item()
        assert got == pytest.approx(float(exact), rel=1e-13)


@pytest.mark.slow
def test_a_definition_made_with_spec_alone_computes_itself() -> None:
    code = (
        "import torch; from softknee.spec import Activation, Sigmoid, x\n"
        "print(Activation('mine', x * Sigmoid(x))(torch.zeros(2)).tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[0.0, 0.0]"


@pytest.mark.slow
def test_a_name_used_again_does_not_find_the_old_function() -> None:
    for factor in (2, 3, 4):
        again = Activation("fleeting", factor * x * Sigmoid(x))
        points = torch.linspace(-1, 1, 5, dtype=F64, requires_grad=True)
        torch.testing.assert_close(again(points), factor * points * torch.sigmoid(points))
        assert torch.autograd.gradcheck(again, points)
        del again
        gc.collect()


# -- one grammar ------------------------------------------------------------------------------------------


def test_one_text_names_the_function_everywhere(tmp_path: Path):
    text = "mollify(relu, box, width=0.5)"
    made = sk.get(text)
    assert sk.get(text) is made
    assert sk.nn.make(text).definition is made
    net = torch.nn.Sequential(torch.nn.ReLU())
    sk.swap_(net, text)
    torch.testing.assert_close(net.double()(X), made(X))
    assert registry.resolve(sk.save(made, tmp_path / "knee.json")).definition.formula == made.formula
    torch.testing.assert_close(sk.nn.make("x * sigmoid(2 * x)").double()(X), sk.get("swish")(X, beta=2.0))


def test_values_in_a_text_are_defaults_of_a_definition_and_values_of_a_module():
    act = sk.get("srelu(delta=0.05)")
    torch.testing.assert_close(act(X), sk.get("srelu")(X, delta=0.05))
    torch.testing.assert_close(pickle.loads(pickle.dumps(act))(X), act(X))
    assert sk.get("gelu(approximate=tanh)").name == "gelu_tanh"
    assert repr(sk.nn.make("srelu(delta=0.05, learn=delta)")) == "SReLU(delta=0.05 (learned), per='layer')"
    net = torch.nn.Sequential(torch.nn.ReLU())
    assert sk.swap_(net, "srelu(delta=0.05)", delta=0.5).changed
    assert float(net[0].delta) == 0.5
    mollified = sk.design.mollify("leaky_relu(slope=0.25)", "box", width=0.5)
    assert mollified.params[0].default == 0.25


def test_a_module_without_a_definition_is_refused_as_one():
    with pytest.raises(sk.UnknownActivationError, match="module without a definition"):
        sk.get("kaf")
    with pytest.raises(sk.ParameterError, match=r"sk\.nn\.make"):
        sk.get("srelu(learn=delta)")
