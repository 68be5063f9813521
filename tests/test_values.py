"""Values, slopes, curvatures and parameter derivatives of the whole zoo against 50-digit references."""

import mpmath
import pytest
import sympy
import torch

from helpers import F32, F64, SUBJECTS, assert_close_to_reference, draw
from joined import every_formula
from softknee.spec import Activation, primitives

DRAWN, POINTS = 240, 120  # more are drawn than are held to 50 digits, which takes long
EXACT_TYPES = pytest.mark.parametrize("dtype", [F64, F32], ids=["float64", "float32"])


def quantities(act: Activation) -> list[Activation]:
    """What is promised: value, first and second derivative, and the derivative by each parameter."""
    return [act, act.derivative(1), act.derivative(2), *(act.partial(p.name) for p in act.params)]


def test_the_zoo_is_there():
    assert {"relu", "srelu", "smelu", "gelu", "generalized_smelu", "crrelu_exact", "tanh"} <= set(SUBJECTS)
    assert "silu" not in SUBJECTS  # an alias


@EXACT_TYPES
@every_formula
def test_every_quantity_matches_fifty_digits(act: Activation, dtype: torch.dtype):
    for seed, quantity in enumerate(quantities(act)):
        x, params = draw(act, DRAWN, dtype, seed)
        x, params = x[:POINTS], {name: values[:POINTS] for name, values in params.items()}
        assert_close_to_reference(quantity, quantity(x, **params), x, params)


@pytest.mark.slow
@EXACT_TYPES
@every_formula
def test_autograd_gives_the_same_derivatives(act: Activation, dtype: torch.dtype):
    """Parameters of the shape of x have a gradient per element: the derivative itself."""
    x, params = draw(act, 40, dtype, seed=99)
    leaves = [t.requires_grad_() for t in (x, *params.values())]
    grads = torch.autograd.grad(act(x, **params).sum(), leaves)
    for name, grad in zip(("x", *params), grads, strict=True):
        assert_close_to_reference(act.partial(name), grad, x.detach(), params)


# -- the primitives, on their own ----------------------------------------------------------------------------

PRIMITIVES = [
    cls
    for cls in vars(primitives).values()
    if isinstance(cls, type) and issubclass(cls, primitives.Primitive) and cls is not primitives.Primitive
]
# Away from a primitive's kink, and inside its domain (log1p ends at -1; the unit form takes 0 to 1).
PLACES = (-0.9, -0.3, 0.2, 0.7, 3.0)


@pytest.mark.parametrize("primitive", PRIMITIVES, ids=lambda cls: cls.__name__)
def test_a_primitive_knows_its_own_derivative(primitive: type[primitives.Primitive]):
    """`fdiff` by hand against a numerical derivative of the textbook form: neither knows of the other."""
    arguments = sympy.symbols(f"a:{primitive.nargs.args[0]}", real=True)
    textbook = sympy.lambdify(arguments, primitive.elementary(*arguments), "mpmath")
    node = primitive(*arguments)
    with mpmath.workdps(50):
        for place in range(len(arguments)):
            by_hand = sympy.lambdify(arguments, primitives.elementary(node.fdiff(place + 1)), "mpmath")
            for at in PLACES:
                point = [mpmath.mpf(at) + i for i in range(len(arguments))]
                order = tuple(int(i == place) for i in range(len(arguments)))
                numerical = mpmath.diff(textbook, tuple(point), order)
                assert mpmath.almosteq(by_hand(*point), numerical, 1e-20, 1e-20), (place, at)
