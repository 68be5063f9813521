"""EAFO: the sign and size of the correction, what it does to the entropy, the definition, and what is refused."""

import math
import pickle

import mpmath
import numpy
import pytest
import sympy
import torch

import softknee as sk
from entropic_samples import DENSITIES, normal_samples
from helpers import F32, F64, assert_close_to_reference, rounding
from softknee import DefinitionError, FormulaError, InputError, ParameterError
from softknee.design.entropic.densities import read
from softknee.spec import Activation, NormalPdf, Sigmoid, Softplus, Tanh, elementary, x

SMOOTH = ("softplus", "tanh", "sigmoid", "softsign")
BENT = ("elu", "leaky_relu", "smelu", "hardtanh")
WORST_ALREADY = {("sigmoid", "logistic"), ("leaky_relu", "uniform"), ("hardtanh", "uniform")}
FOLDED = ("swish", "gelu", "mish", "hardswish")


# -- the sign ---------------------------------------------------------------------------------------------


def test_crrelu_raises_the_entropy_with_a_positive_eps_and_lowers_it_with_a_negative_one():
    """Errata 2, against 30 digits: the density of the positive half is twice the normal's."""
    for eps, printed in ((0.01, 0.003516), (-0.01, -0.003555)):
        result = sk.design.entropy_change("relu", "crrelu", "normal", between=(0, math.inf), eps=eps)
        with mpmath.workdps(30):
            truth = 2 * mpmath.quad(
                lambda at, e=eps: mpmath.npdf(at) * mpmath.log(1 + e * (1 - at**2) * mpmath.exp(-(at**2) / 2)),
                [0, 1, 2, 4, 8, 16],
            )
        assert result == pytest.approx(float(truth), abs=1e-14)
        assert round(result, 6) == printed


def test_relu_and_a_normal_density_give_crrelu_with_the_other_sign():
    result = sk.design.eafo("relu", "normal", flat="continue")
    assert sympy.simplify(elementary(result.correction) + x * sympy.exp(-(x**2) / 2) / sympy.sqrt(2 * sympy.pi)) == 0
    crrelu = sk.get("crrelu")
    term = elementary(crrelu.formula.coeff(crrelu.param("eps").symbol))
    assert sympy.simplify(elementary(result.correction) / term) == -1 / sympy.sqrt(2 * sympy.pi)
    assert result.crrelu == -sympy.Rational(1, 100) / sympy.sqrt(2 * sympy.pi)
    at = torch.linspace(-9, 9, 1001, dtype=F64)
    torch.testing.assert_close(result.activation(at), crrelu(at, eps=float(result.crrelu)), rtol=1e-14, atol=1e-15)
    assert result.measured < 0 < sk.design.entropy_change("relu", "crrelu", between=(0, math.inf), eps=0.01)
    text = str(result)
    assert "CRReLU" in text
    assert "-0.00398942" in text
    assert "e > 0 raises the entropy" in text


def test_relu_alone_is_corrected_above_zero_and_left_alone_below():
    result = sk.design.eafo("relu")
    at = torch.tensor([-2.0, -0.5, 0.0, 1.0], dtype=F64)
    torch.testing.assert_close(result.activation(at)[:3], torch.zeros(3, dtype=F64))
    assert result.activation.derivative(1)(at)[:3].tolist() == [0, 0, 0]
    assert float(result.activation(at, eps=0.5)[3]) == pytest.approx(1 - 0.5 / math.sqrt(2 * math.pi * math.e))
    # The first variation is minus 2 times the integral of (x phi)^2 over the half line, 1/(4 sqrt pi).
    assert result.predicted == pytest.approx(-0.01 / (4 * math.sqrt(math.pi)), rel=1e-12)
    assert result.mass == pytest.approx(0.5)
    assert [piece.flat for piece in result.pieces] == [True, False]
    assert "flat: left as it is" in str(result)


@pytest.mark.parametrize(
    ("name", "formula", "inverse"),
    [
        ("softplus", Softplus(x), sympy.log(sympy.exp(x) - 1)),
        ("sigmoid", Sigmoid(x), sympy.log(x / (1 - x))),
        ("tanh", Tanh(x), sympy.atanh(x)),
        ("sinh", sympy.sinh(x), sympy.asinh(x)),
    ],
)
def test_the_correction_is_equation_five_written_in_the_inverse(name: str, formula: sympy.Expr, inverse: sympy.Expr):
    """eta = -(p(y) y''/y' + p'(y) y') with the inverse spelled out, and c = -eta(f) f'."""
    p = sympy.exp(-(x**2) / 2) / sympy.sqrt(2 * sympy.pi)
    first, second = sympy.diff(inverse, x), sympy.diff(inverse, x, 2)
    eta = -(p.subs(x, inverse) * second / first + sympy.diff(p, x).subs(x, inverse) * first)
    f = elementary(formula)
    actual = sk.design.eafo(Activation(name, formula))
    for at in (-1.7, -0.3, 0.4, 2.2):
        with mpmath.workdps(40):
            point = sympy.Float(at, 40)
            expected = -(eta.subs(x, f.subs(x, point)) * sympy.diff(f, x).subs(x, point)).evalf(30)
            seen = elementary(actual.correction).subs(x, point).evalf(30)
            assert abs(expected - seen) < 1e-25, (name, at)


def test_corrections_in_closed_form():
    assert sk.design.eafo("softplus").correction == -(x + Sigmoid(-x)) * NormalPdf(x)
    assert sympy.simplify(sk.design.eafo("tanh").correction - (2 * Tanh(x) - x) * NormalPdf(x)) == 0
    logistic = sk.design.eafo("softplus", "logistic").correction
    assert sympy.simplify(elementary(logistic + Sigmoid(x) ** 2 * Sigmoid(-x))) == 0


# -- the entropy ------------------------------------------------------------------------------------------


FUNCTIONS = SMOOTH + BENT + FOLDED
# Every function with the normal density, with one of the others in turn, and what is the worst already.
FALLS = {(name, "normal") for name in FUNCTIONS} | WORST_ALREADY
FALLS |= {(name, DENSITIES[1 + place % 3]) for place, name in enumerate(FUNCTIONS)}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "density"), sorted(FALLS))
def test_the_entropy_falls_as_predicted_in_the_limit_of_small_eps(name: str, density: str):
    result = sk.design.eafo(name, density)
    if (name, density) in WORST_ALREADY:
        assert result.correction == 0
        return
    assert result.predicted < 0
    assert result.measured < 0
    assert result.largest > 0.1
    off = [abs(result.change(eps) / (result.predicted / result.eps * eps) - 1) for eps in (1e-3, 1e-5)]
    assert off[0] < 0.02
    # The error is of first order in eps; what remains is rounding of a change of about 1e-7 nats.
    assert off[1] < 0.02 * off[0] + 1e-8
    assert result.change(-1e-3) > 0


@pytest.mark.slow
@pytest.mark.parametrize(("name", "density"), [("softplus", "normal"), ("tanh", "laplace"), ("elu", "logistic")])
def test_the_measured_change_is_that_of_the_definition(name: str, density: str):
    result = sk.design.eafo(name, density, eps=0.02)
    change = sk.design.entropy_change(name, result.activation, density, eps=0.02)
    assert change == pytest.approx(result.measured, rel=1e-9)
    with mpmath.workdps(20):
        # Once more without our quadrature and without the formula for the entropy's change.
        f, p = elementary(sk.get(name).formula).subs(sympy.Symbol("beta", positive=True), 1), read(density)
        slope = sympy.lambdify(x, sympy.diff(elementary(result.correction), x) * sympy.Rational(1, 50), "mpmath")
        base = sympy.lambdify(x, sympy.diff(f, x), "mpmath")
        pdf = sympy.lambdify(x, elementary(p.formula), "mpmath")
        cuts = sorted({0, *(float(end) for piece in result.pieces for end in piece.inner if end.is_finite)})
        edges = [-30, -8, -4, *cuts, 4, 8, 30]
        truth = mpmath.quad(lambda at: pdf(at) * mpmath.log(1 + slope(at) / base(at)), sorted(edges))
    assert float(truth) == pytest.approx(result.measured, rel=1e-7)


def test_mere_scaling_lowers_the_entropy_without_end():
    falls = [sk.design.entropy(Activation("line", x / c), "normal") for c in (1, 10, 1000, 10**9)]
    assert falls == pytest.approx([falls[0] - math.log(c) for c in (1, 10, 1000, 10**9)], abs=1e-12)


def test_entropy_refuses_what_is_not_one_to_one():
    for name, word in (("relu", "flat"), ("gelu", "up and down")):
        with pytest.raises(DefinitionError, match=word) as caught:
            sk.design.entropy(name)
        assert "between=" in str(caught.value)
    assert sk.design.entropy("relu", between=(0, math.inf)) == pytest.approx(math.log(math.pi * math.e / 2) / 2)


def test_the_entropy_of_samples_agrees_with_an_estimate_that_knows_no_slope():
    seen = normal_samples(200_000)
    for name in ("softplus", "tanh"):
        by_formula, by_spacing = sk.design.entropy(name, seen), sk.design.spacing_entropy(sk.get(name)(seen))
        assert by_formula == pytest.approx(by_spacing, abs=0.02)
        assert by_formula == pytest.approx(sk.design.entropy(name, "normal"), abs=0.02)


# -- without an inverse -----------------------------------------------------------------------------------


def test_a_fold_is_corrected_on_both_sides_and_stays_where_it_is():
    result = sk.design.eafo("gelu")
    fold = -0.751791524693564
    assert float(result.pieces[0].high) == pytest.approx(fold, abs=1e-14)
    assert [piece.rising for piece in result.pieces] == [False, True]
    at = torch.tensor([fold], dtype=F64)
    assert float(result.activation.partial("eps")(at)) == 0
    assert not result.symbolic
    assert "pole of equation 5" in str(result)
    one_to_one = torch.linspace(-9, 9, 40001, dtype=F64)
    old = sk.get("gelu").derivative(1)(one_to_one)
    new = result.activation.derivative(1)(one_to_one, eps=0.98 * result.largest)
    assert not bool((old * new < 0).any())


def test_a_slope_that_touches_zero_is_a_seam_too():
    result = sk.design.eafo(x**3, "normal")
    assert [float(piece.high) for piece in result.pieces] == [0.0, math.inf]
    assert all(piece.rising for piece in result.pieces)
    assert result.change(1e-5) == pytest.approx(result.predicted / result.eps * 1e-5, rel=1e-3)


def test_an_end_that_equation_five_ignores_is_faded_out():
    """ReLU and a Laplace density: c = -p does not end with 0, and taken as it is it would RAISE the entropy."""
    slope_alone = mpmath.quad(lambda at: mpmath.exp(-at) * mpmath.exp(-at) / 2, [0, mpmath.inf])
    assert slope_alone > 0  # E[c'/f'] of the bare correction on the positive half
    result = sk.design.eafo("relu", "laplace")
    assert result.measured < 0
    assert "does not end with 0 at x = 0" in str(result)
    near = torch.tensor([-1e-9, 0.0, 1e-9], dtype=F64)
    torch.testing.assert_close(result.activation(near), torch.relu(near), atol=1e-16, rtol=0)


@pytest.mark.parametrize(("name", "density"), [("tanh", "laplace"), ("gelu", "1/(1+x**2)"), ("sigmoid", "1/(1+x**2)")])
def test_a_tail_where_the_slope_dies_faster_than_the_density_is_left_alone_and_said(name: str, density: str):
    result = sk.design.eafo(name, density)
    assert "dies out faster than the density" in str(result)
    far = torch.tensor([-30.0, 1e30, math.inf, -math.inf], dtype=F64)
    if name != "gelu":
        torch.testing.assert_close(result.activation(far, eps=0.05), sk.get(name)(far), rtol=rounding(F64), atol=0)
    at = torch.linspace(-12, 12, 20001, dtype=F64)
    old, new = sk.get(name).derivative(1)(at), result.activation.derivative(1)(at, eps=0.98 * result.largest)
    assert not bool((old * new < 0).any())


# -- the definition ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("name", "density"), [("relu", "normal"), ("softplus", "normal"), ("gelu", "laplace")])
@pytest.mark.parametrize("index", [(), ("x",), ("eps",), ("x", "x"), ("x", "eps")], ids=lambda index: "".join(index))
def test_values_and_slopes_against_fifty_digits(name: str, density: str, index: tuple[str, ...]):
    act = sk.design.eafo(name, density).activation
    at = torch.cat([4 * normal_samples(40), torch.tensor([-0.7, -0.1, 1e-3, 6.0], dtype=F64)])
    at = at[(at.abs() > 1e-3) & ((at + 0.751791524693564).abs() > 1e-2)]
    for dtype in (F64, F32):
        here = at.to(dtype)
        params = {p.name: torch.full((1,), p.default, dtype=dtype) for p in act.params}
        assert_close_to_reference(act.partial(*index), act.partial(*index)(here, **params), here, params)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "density"), [("relu", "normal"), ("swish", "normal"), ("smelu", "laplace")])
def test_limits_at_infinity_and_nan(name: str, density: str):
    act = sk.design.eafo(name, density, eps=0.05).activation
    far = torch.tensor([-math.inf, -1e30, -40.0, 40.0, 1e30, math.inf])
    for dtype in (F32, F64, torch.bfloat16):
        for index in ((), ("x",), ("x", "x")):
            got, base = act.partial(*index)(far.to(dtype)), sk.get(name).partial(*index)(far.to(dtype))
            torch.testing.assert_close(got, base, rtol=1e-6, atol=1e-12)
        assert act.partial("eps")(far.to(dtype)).abs().max() < 1e-12
        assert act(torch.tensor([math.nan], dtype=dtype)).isnan().all()


def test_eps_is_learned_by_a_module():
    act = sk.design.eafo("softplus", beta=2.0).activation
    module = sk.nn.make(act, learn="eps").double()
    at = normal_samples(64)
    torch.testing.assert_close(module(at), act(at, beta=2.0, eps=0.01), rtol=1e-7, atol=1e-7)
    module(at).sum().backward()
    assert float(module.eps.grad) == pytest.approx(float(act.partial("eps")(at).sum()), rel=1e-6)
    assert torch.autograd.gradcheck(module, (at[:8].clone().requires_grad_(),))
    assert act.knob == "eps"
    assert act.limit == "softplus"


def test_a_result_is_pickled_with_its_correction():
    at = torch.linspace(-3, 3, 61, dtype=F64)
    for act in (
        sk.design.eafo("elu", "laplace").activation,
        sk.design.eafo("gelu", "normal", eps=0.02, name="bent").activation,
    ):
        again = pickle.loads(pickle.dumps(act))
        torch.testing.assert_close(again(at), act(at), rtol=0, atol=0)
        torch.testing.assert_close(again.derivative(1)(at), act.derivative(1)(at), rtol=0, atol=0)


def test_parameters_that_the_correction_was_made_for_are_the_defaults():
    result = sk.design.eafo("softplus", beta=3.0)
    assert {p.name: p.default for p in result.activation.params} == {"beta": 3.0, "eps": 0.01}
    assert result.correction.has(Sigmoid(-3 * x))
    assert [p.name for p in sk.design.eafo("crrelu").activation.params] == ["eps", "eps_eafo"]


# -- refusals ---------------------------------------------------------------------------------------------


REFUSED = {
    "unknown density": (lambda: sk.design.eafo("relu", "norml"), ParameterError, ["'norml'", "Did you mean 'normal'"]),
    "negative density": (lambda: sk.design.eafo("relu", "x*exp(-x**2)"), FormulaError, ["negative", "0 or more"]),
    "endless density": (lambda: sk.design.eafo("relu", "1/(1+abs(x))"), FormulaError, ["no finite", "1/x**2"]),
    "constant density": (lambda: sk.design.eafo("relu", sympy.Integer(1)), FormulaError, ["no finite"]),
    "other symbols": (lambda: sk.design.eafo("relu", sympy.Symbol("k") * x), FormulaError, ["x alone", "k"]),
    "no density": (lambda: sk.design.eafo("relu", 3), InputError, ["samples", "int"]),
    "few samples": (lambda: sk.design.eafo("relu", torch.randn(5)), InputError, ["at least 32", "5 were"]),
    "nan samples": (lambda: sk.design.eafo("relu", torch.full((99,), math.nan)), InputError, ["NaN", "isfinite"]),
    "dead samples": (lambda: sk.design.eafo("relu", torch.zeros(99)), InputError, ["same number", "before a ReLU"]),
    "flat function": (lambda: sk.design.eafo(x * 0 + 1), DefinitionError, ["flat", "no entropy"]),
    "implicit": (lambda: sk.design.eafo("crrelu_exact"), DefinitionError, ["inverse", "formula"]),
    "table": (lambda: sk.design.eafo("squaf"), DefinitionError, ["element-wise", "whole rows"]),
    "derivative": (lambda: sk.design.eafo(sk.get("tanh").derivative(1)), DefinitionError, ["derivative"]),
    "flat word": (lambda: sk.design.eafo("relu", flat="drop"), ParameterError, ["'leave'", "'drop'"]),
    "too large": (lambda: sk.design.eafo("softplus", eps=2.0), ParameterError, ["fold", "below 1.2"]),
    "too small": (lambda: sk.design.eafo("relu", eps=-100.0), ParameterError, ["-100 folds"]),
    "complex samples": (lambda: sk.design.eafo("tanh", torch.ones(99) * 1j), InputError, ["complex"]),
    "words as samples": (lambda: sk.design.eafo("tanh", numpy.array(["a"])), InputError, ["ndarray was given"]),
    "a word as scale": (lambda: sk.design.normal(scale="1"), ParameterError, ["scale above 0"]),  # type: ignore
    "no interval": (lambda: sk.design.entropy("tanh", between=(1, 0)), ParameterError, ["low below high"]),
    "an empty interval": (lambda: sk.design.entropy("tanh", between=(99, 100)), ParameterError, ["a wider interval"]),
    "no number": (lambda: sk.design.eafo("softplus", eps=math.nan), ParameterError, ["eps", "finite"]),
    "misspelt": (lambda: sk.design.eafo("softplus", bete=1.0), ParameterError, ["Did you mean 'beta'"]),
    "scale": (lambda: sk.design.normal(scale=0.0), ParameterError, ["scale above 0"]),
    "interval": (lambda: sk.design.uniform(low=1, high=1), ParameterError, ["low < high"]),
    "bounds": (lambda: sk.design.worst("normal", 1, 0), ParameterError, ["low must lie below high"]),
    "bound": (lambda: sk.design.worst("normal", 0, math.inf), ParameterError, ["finite number"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_are_sentences(case: str):
    do, kind, words = REFUSED[case]
    with pytest.raises(kind) as caught:
        do()
    for word in words:
        assert word in str(caught.value), str(caught.value)
