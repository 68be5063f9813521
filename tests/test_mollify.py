"""Mollification: identities with the zoo, 30-digit convolutions, mixtures, the bump kernel's proof, refusals."""

import itertools
from fractions import Fraction

import mpmath
import numpy
import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import softknee as sk
from helpers import F64, SYMBOL, assert_close_to_reference, at_once, draw
from softknee.design.smoothing.bump_kernel import TABLE, error_bounds
from softknee.spec import Activation, Between, Param, elementary, positive, real
from softknee.spec.pieces import split
from softknee.spec.reference import evaluate

x = SYMBOL
COMPACT = ("box", "triangle", "epanechnikov", "biweight", "triweight")
_lam = Param("lam", 0.5, Between(low=0.0, high=2.0))
_edge = _lam.symbol


def piecewise(*pieces: tuple) -> sympy.Expr:
    return sympy.Piecewise(*pieces, evaluate=False)


HARD = {
    "relu": sk.get("relu"),
    "leaky_relu": sk.get("leaky_relu"),
    "relu6": sk.get("relu6"),
    "hardtanh": sk.get("hardtanh"),
    "hardswish": sk.get("hardswish"),
    "absolute": Activation("absolute", sympy.Abs(x)),
    "hardshrink": Activation("hardshrink", piecewise((x, x > _edge), (x, x < -_edge), (0, True)), params=(_lam,)),
    "softshrink": Activation(
        "softshrink", piecewise((x - _edge, x > _edge), (x + _edge, x < -_edge), (0, True)), params=(_lam,)
    ),
    "step": Activation("step", piecewise((0, x < 0), (1, True))),
    "staircase": Activation("staircase", piecewise((-2, x < -2), (-1, x < -1), (0, x < 1), (1, x < 2.5), (3, True))),
    "cubic": Activation("cubic", piecewise((0, x < -1), (x**3 - x, x < 1), (2 * x - 2, True))),
}
ONE_SEAM = ("relu", "step")
# All kernels where there is one seam, with a bend and with a jump, and some with several seams: what is made of two
# seams is the sum of what is made of each, and the algebra of a pair takes seconds. The pairs of `helpers.SUBJECTS` are
# left out here, since test_values.py asks more of them: leaky ReLU with a triangle, hardtanh with a biweight, a hard
# shrinkage with Epanechnikov, ReLU6 with a normal density, a step with a logistic one, ReLU with the bump. A leaky ReLU
# with the bump is the absolute value with it and a line, and a soft shrinkage has the seams of hardtanh.
PAIRS = [
    *itertools.product(ONE_SEAM, (*COMPACT, "gaussian", "logistic")),
    *itertools.product(("absolute", "step"), ("bump",)),
    *itertools.product(("leaky_relu", "absolute"), ("epanechnikov", "logistic")),
    *itertools.product(("relu6",), ("box", "logistic")),
    *itertools.product(("hardtanh",), ("triweight", "gaussian")),
    *itertools.product(("hardswish",), ("box", "epanechnikov")),
    *itertools.product(("hardshrink",), ("box", "gaussian")),
    *itertools.product(("softshrink",), ("logistic",)),
    *itertools.product(("staircase",), ("epanechnikov", "logistic")),
    *itertools.product(("cubic",), ("box", "triangle")),
]


# -- identities -------------------------------------------------------------------------------------------


def same(a: Activation, formula: sympy.Expr) -> bool:
    """Whether two piecewise formulas are one, seam by seam and piece by piece."""
    ours, theirs = split(a.formula), split(formula)
    alike = len(ours.seams) == len(theirs.seams)
    pairs = zip((*ours.seams, *ours.parts), (*theirs.seams, *theirs.parts), strict=True) if alike else ()
    return alike and all(sympy.simplify(elementary(item - other)) == 0 for item, other in pairs)


def test_relu_with_a_box_is_smelu():
    assert same(sk.design.mollify("relu", "box", "beta"), sk.get("smelu").formula)


def test_relu_with_epanechnikov_is_srelu():
    assert same(sk.design.mollify("relu", "epanechnikov"), sk.get("srelu").formula)


def test_relu_with_a_logistic_density_is_softplus():
    beta = sk.get("softplus").params[0].symbol
    made = sk.design.mollify("relu", "logistic", "w")
    assert same(made, sk.get("softplus").formula.subs(beta, 1 / made.params[0].symbol))


def test_relu_with_a_normal_density_is_the_known_formula():
    made = sk.design.mollify("relu", "gaussian", "sigma")
    sigma = made.params[0].symbol
    s = x / sigma
    assert sympy.simplify(made.formula - x * sk.spec.NormalCdf(s) - sigma * sk.spec.NormalPdf(s)) == 0


def test_an_identity_that_does_not_hold_is_seen():
    assert not same(sk.design.mollify("relu", "triangle"), sk.get("srelu").formula)
    assert not same(sk.design.mollify("leaky_relu", "box", "beta"), sk.get("smelu").formula)


def test_leaky_relu_with_a_box_is_leaky_smelu():
    made = sk.design.mollify("leaky_relu", "box", "beta")
    leaky, beta = sk.get("leaky_smelu"), made.params[1].symbol
    # Leaky SmeLU is leaky ReLU smoothed and raised by g beta.
    moved = leaky.formula.subs(sympy.Symbol("g_minus", real=True), made.params[0].symbol) - made.params[0].symbol * beta
    assert same(made, moved)


def test_relu_with_epanechnikov_takes_less_than_a_second():
    sk.design.mollify("relu", "box")
    with at_once():
        sk.design.mollify("relu", "epanechnikov", "another")


# -- against the integral ---------------------------------------------------------------------------------

DENSITIES = {
    "box": lambda t: mpmath.mpf(1) / 2,
    "triangle": lambda t: 1 - abs(t),
    "epanechnikov": lambda t: mpmath.mpf(3) / 4 * (1 - t**2),
    "biweight": lambda t: mpmath.mpf(15) / 16 * (1 - t**2) ** 2,
    "triweight": lambda t: mpmath.mpf(35) / 32 * (1 - t**2) ** 3,
    "gaussian": lambda t: mpmath.npdf(t),
    "logistic": lambda t: 1 / (4 * mpmath.cosh(t / 2) ** 2),
    "bump": lambda t: mpmath.mpf(TABLE["scale"]) * mpmath.exp(1 / (t * t - 1)) if abs(t) < 1 else mpmath.mpf(0),
}


def convolved(f, kinks: list, kernel: str, at: float, width: float):
    """integral f(at - width t) phi(t) dt to 30 digits, the range cut at every kink and in the middle."""
    with mpmath.workdps(34):
        at, width = mpmath.mpf(at), mpmath.mpf(width)
        reach = {"gaussian": 14, "logistic": 90}.get(kernel, 1)
        cuts = {mpmath.mpf(-reach), mpmath.mpf(0), mpmath.mpf(reach)}
        cuts |= {mpmath.mpf(c) for c in (-40, -20, -8, -3, 3, 8, 20, 40) if abs(c) < reach}
        cuts |= {mpmath.mpf(c) / 10 for c in (-9, -7, 7, 9)} if kernel == "bump" else set()
        cuts |= {t for t in ((at - mpmath.mpf(k)) / width for k in kinks) if abs(t) < reach}
        return mpmath.quad(lambda t: f(at - width * t) * DENSITIES[kernel](t), sorted(cuts))


numbers = st.integers(-24, 24).map(lambda n: sympy.Rational(n, 8))


@st.composite
def piecewise_polynomials(draw, degree: int = 3, most: int = 4):
    """Pieces with random seams, some of them jumps, some of them close together."""
    seams = sorted(draw(st.lists(numbers, min_size=1, max_size=most, unique=True)))
    parts = [sum(draw(numbers) * x**j for j in range(draw(st.integers(0, degree)) + 1)) for _ in range(len(seams) + 1)]
    return seams, parts


def reads(seams, parts):
    functions = [sympy.lambdify(x, part, "mpmath") for part in parts]
    return lambda y: functions[sum(y > seam for seam in seams)](y)


def check_against_the_integral(pieces, kernel: str, at: float, width: float, allowed: float) -> None:
    seams, parts = pieces
    formula = piecewise(*((p, x < s) for p, s in zip(parts, seams, strict=False)), (parts[-1], True))
    made = sk.design.mollify(Activation("random", formula), kernel, "w")
    truth = convolved(reads(seams, parts), seams, kernel, at, width)
    size = max(1, *(abs(reads(seams, parts)(mpmath.mpf(y))) for y in (at, at - width, at + width)))
    assert abs(evaluate(made, at, w=width) - truth) <= allowed * size * max(1, width)
    # What kernels compute is another expression for the same function; here in 30 digits too.
    computed = sympy.lambdify([x, made.params[0].symbol], elementary(made.computed), "mpmath")
    with mpmath.workdps(34):
        got = computed(mpmath.mpf(at), mpmath.mpf(width))
    assert abs(got - truth) <= max(allowed, 1e-17 * (kernel in ("gaussian", "logistic"))) * size * max(1, width) ** 3


POINTS = {"at": st.floats(-5, 5), "width": st.floats(0.05, 8)}


@pytest.mark.slow
@pytest.mark.parametrize("kernel", COMPACT)
@settings(max_examples=3, deadline=None)
@given(pieces=piecewise_polynomials(), **POINTS)
def test_compact_kernels_are_exact_for_random_pieces(kernel, pieces, at, width):
    check_against_the_integral(pieces, kernel, at, width, allowed=1e-28)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["gaussian", "logistic"])
@settings(max_examples=4, deadline=None)
@given(pieces=piecewise_polynomials(degree=1), **POINTS)
def test_smooth_kernels_are_exact_for_random_lines(kernel, pieces, at, width):
    check_against_the_integral(pieces, kernel, at, width, allowed=1e-26)


@pytest.mark.slow
@settings(max_examples=2, deadline=None)
@given(pieces=piecewise_polynomials(degree=2, most=2), **POINTS)
def test_the_bump_is_within_its_error_for_random_pieces(pieces, at, width):
    check_against_the_integral(pieces, "bump", at, width, allowed=1e-12)


# -- values, slopes and slopes by parameters --------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kernel"), PAIRS)
def test_computed_as_the_reference_says(name: str, kernel: str):
    """The value and its slopes by x and by the width, which goes from 1e-6 to 1e6: far beyond the seams' distance."""
    made = sk.design.mollify(HARD[name], kernel)
    points, params = draw(made, 12, F64)
    for quantity in (made, made.partial("x"), made.partial("delta")):
        assert_close_to_reference(quantity, quantity(points, **params), points, params)


@pytest.mark.slow
def test_a_slope_is_the_slope_of_the_integral():
    """By x and by the width, from differences of the 30-digit integral: not through our own derivatives."""
    made = sk.design.mollify("relu6", "triweight", "w")
    kinks, f = [0, 6], lambda y: min(max(y, mpmath.mpf(0)), mpmath.mpf(6))
    with mpmath.workdps(40):
        step = mpmath.mpf(10) ** -10
        for at, width in ((0.3, 1.0), (5.2, 4.5), (1.0, 30.0)):
            by_x = convolved(f, kinks, "triweight", at + step, width) - convolved(
                f, kinks, "triweight", at - step, width
            )
            by_w = convolved(f, kinks, "triweight", at, width + step) - convolved(
                f, kinks, "triweight", at, width - step
            )
            assert abs(evaluate(made.partial("x"), at, w=width) - by_x / (2 * step)) < 1e-15
            assert abs(evaluate(made.partial("w"), at, w=width) - by_w / (2 * step)) < 1e-15


def test_flat_ground_stays_exactly_flat():
    """Between windows and beyond them the pieces are what they were, to the last bit."""
    made = sk.design.mollify(HARD["staircase"], "biweight", width=0.25)
    values = made(torch.tensor([-9.0, -1.5, 0.0, 0.7, 1.8, 9.0], dtype=F64))
    assert values.tolist() == [-2.0, -1.0, 0.0, 0.0, 1.0, 3.0]


# -- mixtures ---------------------------------------------------------------------------------------------


# Three kernels, and two seams: both at once would take the algebra fifteen seconds.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("hard", "names"), [("leaky_relu", ("box", "epanechnikov", "triweight")), ("relu6", ("box", "epanechnikov"))]
)
def test_a_mixture_is_the_mean_of_its_kernels(hard: str, names: tuple[str, ...]):
    made = sk.design.mollify(hard, names)
    points = torch.linspace(-3, 9, 61, dtype=F64)
    logits = torch.tensor([0.3, -1.0, 0.5], dtype=F64)[: len(names)]
    alone = torch.stack([sk.design.mollify(hard, name)(points, delta=0.8) for name in names])
    mean = (torch.softmax(logits, 0)[:, None] * alone).sum(0)
    torch.testing.assert_close(made(points, delta=0.8, weights=logits), mean, rtol=1e-14, atol=1e-14)


def test_the_weights_of_a_mixture_are_learned_together():
    made = sk.design.mollify("relu", ("box", "triweight"))
    module = sk.nn.make(made, learn=("delta", "weights"), delta=0.5, weights=[0.0, 1.0])
    assert module.weights.tolist() == [[0.0, 1.0]]
    target = sk.nn.make(sk.design.mollify("relu", "triweight"), delta=0.5)
    points = torch.linspace(-1, 1, 201)
    optimiser = torch.optim.Adam([p for n, p in module.named_parameters() if n.startswith("weights")], lr=0.2)
    for _ in range(60):
        optimiser.zero_grad()
        (module(points) - target(points)).square().sum().backward()
        optimiser.step()
    assert torch.softmax(module.weights[0], 0)[1] > 0.95
    module.set_(weights=[2.0, 2.0])
    assert module.weights.tolist() == [[2.0, 2.0]]


def test_a_mixture_with_extreme_weights_has_no_nan():
    made = sk.design.mollify("relu", ("box", "triweight"))
    points = torch.linspace(-2, 2, 9, dtype=F64, requires_grad=True)
    logits = torch.tensor([1e6, -1e6], dtype=F64, requires_grad=True)
    value = made(points, weights=logits)
    grads = torch.autograd.grad(value.sum(), (points, logits))
    torch.testing.assert_close(value, sk.design.mollify("relu", "box")(points))
    assert all(g.isfinite().all() for g in grads)


# -- the bump kernel --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_bump_table_is_proved():
    slope, value, *_ = error_bounds()
    assert 0 < slope < 1e-14
    assert 0 < value < 1e-14


def test_the_bump_constant_is_the_papers():
    assert abs(mpmath.mpf(TABLE["scale"]) - mpmath.mpf("2.2522836210435810105")) < 1e-19
    with mpmath.workdps(30):
        second = 2 * mpmath.quad(lambda t: t**2 * DENSITIES["bump"](t), [0, 0.5, 0.8, 0.95, 1])
        assert abs(second - mpmath.mpf(TABLE["moments"][1])) < 1e-25


def test_a_wrong_digit_in_the_bump_table_is_seen(monkeypatch):
    pieces = TABLE["tails"][0]
    words = pieces[3].split()
    wrong = " ".join([repr(float(words[0]) + 1e-13), *words[1:]])
    monkeypatch.setitem(TABLE, "tails", [[*pieces[:3], wrong, *pieces[4:]]])
    assert error_bounds.__wrapped__()[0] > 5e-14


def test_the_second_derivative_under_the_bump_is_the_bump():
    made = sk.design.mollify("relu", "bump", "w")
    with mpmath.workdps(40):
        for at in (-0.7, -0.1, 0.0, 0.45, 0.9):
            exact = DENSITIES["bump"](mpmath.mpf(at) / 2) / 2
            assert abs(evaluate(made.derivative(2), at, w=2.0) - exact) < 1e-25
            assert abs(made.derivative(2)(torch.tensor([at], dtype=F64), w=2.0).item() - exact) < 1e-15


# -- a definition like any other --------------------------------------------------------------------------


def test_mollifying_twice():
    """A box twice is a triangle of the same width each: the engine takes what it made."""
    once = sk.design.mollify("relu", "box", width=0.5)
    twice = sk.design.mollify(once, "box", width=0.5)
    assert same(twice, sk.design.mollify("relu", "triangle", width=1.0).formula)


def test_a_width_of_ones_own():
    width = positive("reach", 0.25, "my width")
    made = sk.design.mollify("relu", "box", width)
    assert made.knob == "reach"
    assert made.limit == "relu"
    assert sk.nn.make(made).reach.item() == 0.25


@pytest.mark.parametrize(
    "width", [numpy.float32(0.25), numpy.float64(0.25), Fraction(1, 4), sympy.Rational(1, 4)], ids=repr
)
def test_a_width_is_any_kind_of_number(width):
    assert sk.design.mollify("relu", "box", width).formula == sk.design.mollify("relu", "box", 0.25).formula


def test_decimals_in_a_formula_are_fractions():
    bent = piecewise((0.3 * 0.7 - 0.1 * x, x < 0.7), (0.2 * x, True))
    result = sk.design.certify(sk.design.mollify(Activation("bent", bent), "triweight", 0.3))
    assert result.smoothness == 4
    assert Fraction(1, 5) in result.lipschitz
    assert result.lipschitz.width < 1e-12
    made = sk.design.mollify(0.3 * sympy.Max(x, 0.7) - 0.1 * x, "triweight", 0.3)
    assert sk.design.certify(made).lipschitz == result.lipschitz
    assert sk.design.mollify(sympy.Max(x, 0) ** 2.0, "box").formula.has(x)


def test_the_identity_is_a_formula_and_no_name():
    assert sk.design.mollify("x", "box").formula == x


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("gelu",), "no polynomial"),
        (("crrelu_exact",), "given by its inverse"),
        (("relu", "gausian"), "Did you mean 'gaussian'"),
        (("relu", ("box", "gaussian")), "in a mixture"),
        (("relu", ("box", "box")), "stands twice"),
        (("relu", ()), "needs a kernel"),
        (("relu", None), "no kernel None"),
        ((float("nan"),), "not a finite real number"),
        ((sympy.I * x,), "not a finite real number"),
        (("relu", "box", 10**400), "above 0"),
        (("relu", "box", -1.0), "above 0"),
        (("relu", "box", float("nan")), "above 0"),
        (("relu", "box", real("w", 1.0)), "must be a positive"),
        (("relu", "box", [1]), "list was given"),
        (("hardswish", "logistic"), "degree 2"),
        (("reul",), "Did you mean 'relu'"),
        ((3.5j,), "complex was given"),
        (("leaky_relu", "box", "slope"), "another name"),
        ((x * sympy.Symbol("a"),), "without saying what values"),
        (("squaf",), "squaf was given"),
    ],
)
def test_what_is_refused(arguments, words):
    with pytest.raises(sk.SoftkneeError, match=words):
        sk.design.mollify(*arguments)


def test_seams_in_no_known_order_are_refused():
    a, b = real("a", 0.0), real("b", 1.0)
    formula = piecewise((0, x < a.symbol), (1, x < b.symbol), (2, True))
    with pytest.raises(sk.DefinitionError, match="order of two seams"):
        sk.design.mollify(Activation("open", formula, params=(a, b)))
