r"""SmeLU and its family: two lines joined by a parabola, once continuously differentiable.

    smelu(x)             = 0;  (x + beta)^2/(4 beta);  x                     seams at -beta and beta
    asymmetric_smelu(x)  = 0;  (x + alpha)^2/(2(alpha + beta));  x + (alpha - beta)/2    seams at -alpha and beta
    leaky_smelu(x)       = g_minus(x + beta);  that plus (1 - g_minus)(x + beta)^2/(4 beta);  x + g_minus beta
    shifted_smelu(x)     = smelu(x - shift)
    generalized_smelu(x) = L(x);  L(x) + (g_plus - g_minus)(x + alpha)^2/(2(alpha + beta));
                           g_plus x + t + (g_minus(alpha + beta) + g_plus(alpha - beta))/2
                           with L(x) = g_minus(x + alpha) + t
    origin_smelu(x)      = generalized_smelu(x) - generalized_smelu(0), so t has no effect and is left out

SmeLU's distance to ReLU is beta/4, at 0. With u the place in the parabola, clipped to [0, 1], the slopes of the whole
function are those of the middle: 0 and 1 exactly at the seams, and no piece to choose. 1 - u is computed from x again
where a large slope multiplies it. Hazard: a left slope of 0 times -infinity; `Line` keeps it 0.

>>> import softknee as sk, torch
>>> sk.get("smelu")(torch.tensor([-1.0, 0.0, 1.0]), beta=0.5)
tensor([0.0000, 0.1250, 1.0000])
"""

from ..spec import Activation, Claims, Inner, Line, Ramp, Unit, positive, real, u, x
from ..spec.algebra import Abs, Expr, FiniteSet, Integer, Interval, Max, Piecewise, oo

_alpha = positive("alpha", 1.0, "where the parabola begins, to the left of 0")
_beta = positive("beta", 1.0, "where the parabola ends, to the right of 0")
_g_minus = real("g_minus", 0.0, "slope of the left line")
_leak = real("g_minus", 0.01, "slope of the left line")
_g_plus = real("g_plus", 1.0, "slope of the right line")
_t = real("t", 0.0, "value at -alpha")
_shift = real("shift", 0.0, "how far the function is moved to the right")
alpha, beta, g_minus, g_plus = _alpha.symbol, _beta.symbol, _g_minus.symbol, _g_plus.symbol
t, shift = _t.symbol, _shift.symbol

_bend = (g_plus - g_minus) / (2 * (alpha + beta))
_either = Max(Abs(g_minus), Abs(g_plus))
_rising = (g_minus >= 0) & (g_plus >= 0)
_moved = x - shift
_rise = g_plus - g_minus
_below, _above = -Ramp(-x - alpha), Ramp(x - beta)


def _place(begin: Expr, end: Expr) -> Inner:
    """How far into the parabola x is."""
    return Inner((x - begin) / (end - begin), low=0.0, high=1.0)


smelu = Activation(
    "smelu",
    Piecewise((0, x <= -beta), (x, x >= beta), ((x + beta) ** 2 / (4 * beta), True)),
    params=(_beta,),
    inner=_place(-beta, beta),
    stable={
        (): Piecewise((x, x >= beta), (beta * u**2, True)),
        ("x",): u,
        ("beta",): u * (1 - u),
    },
    claims=Claims(1, True, 1, Interval(-oo, -beta), distance=beta / 4),
    knob="beta",
    limit="relu",
    about="Smooth ReLU of two lines and a parabola (Shamir, Lin and Coviello).",
)
asymmetric_smelu = Activation(
    "asymmetric_smelu",
    Piecewise(
        (0, x <= -alpha),
        (x + (alpha - beta) / 2, x >= beta),
        ((x + alpha) ** 2 / (2 * (alpha + beta)), True),
    ),
    params=(_alpha, _beta),
    inner=_place(-alpha, beta),
    stable={
        (): Piecewise((x + (alpha - beta) / 2, x >= beta), ((alpha + beta) * u**2 / 2, True)),
        ("x",): u,
        ("alpha",): u * (1 - u / 2),
        ("beta",): -(u**2) / 2,
    },
    # Above relu by alpha^2/(2(alpha + beta)) at 0, and from there it falls to (alpha - beta)/2 at beta.
    claims=Claims(1, True, 1, Interval(-oo, -alpha), distance=Max(alpha**2 / (2 * (alpha + beta)), (beta - alpha) / 2)),
    knob=("alpha", "beta"),
    limit="relu",
    about="SmeLU whose parabola may reach further on one side.",
)
leaky_smelu = Activation(
    "leaky_smelu",
    Piecewise(
        (Line(g_minus, x + beta), x <= -beta),
        (x + g_minus * beta, x >= beta),
        (g_minus * (x + beta) + (1 - g_minus) * (x + beta) ** 2 / (4 * beta), True),
    ),
    params=(_beta, _leak),
    inner=_place(-beta, beta),
    stable={
        ("x",): g_minus * Unit((beta - x) / (2 * beta)) + u,
        ("beta",): g_minus + (1 - g_minus) * u * (1 - u),
        ("g_minus",): 2 * beta * u * (1 - u / 2) - Ramp(-x - beta),
    },
    # Off by g_minus beta on both lines, and by beta (1 + 3 g_minus)/4 at 0.
    claims=Claims(
        1,
        g_minus >= 0,
        Max(1, Abs(g_minus)),
        FiniteSet(-beta),
        distance=beta * Max(Abs(g_minus), Abs(1 + 3 * g_minus) / 4),
    ),
    knob="beta",
    limit="leaky_relu",
    limit_params={"slope": "g_minus"},
    about="SmeLU with a leak.",
)
shifted_smelu = Activation(
    "shifted_smelu",
    Piecewise((0, _moved <= -beta), (_moved, _moved >= beta), ((_moved + beta) ** 2 / (4 * beta), True)),
    params=(_beta, _shift),
    inner=_place(shift - beta, shift + beta),
    stable={
        (): Piecewise((_moved, _moved >= beta), (beta * u**2, True)),
        ("x",): u,
        ("beta",): u * (1 - u),
        ("shift",): -u,
    },
    claims=Claims(1, True, 1, Interval(-oo, shift - beta), distance=beta / 4),
    knob="beta",
    about="SmeLU moved to the right; its hard limit relu(x - shift) has no name of its own.",
)
generalized_smelu = Activation(
    "generalized_smelu",
    Piecewise(
        (Line(g_minus, x + alpha) + t, x <= -alpha),
        (Line(g_plus, x) + t + (g_minus * (alpha + beta) + g_plus * (alpha - beta)) / 2, x >= beta),
        (g_minus * (x + alpha) + t + _bend * (x + alpha) ** 2, True),
    ),
    params=(_alpha, _beta, _g_minus, _g_plus, _t),
    inner=_place(-alpha, beta),
    stable={
        ("x",): g_minus * Unit((beta - x) / (alpha + beta)) + g_plus * u,
        ("alpha",): g_minus + _rise * u * (1 - u / 2),
        ("beta",): -_rise * u**2 / 2,
        ("g_minus",): (alpha + beta) * u * (1 - u / 2) + _below,
        ("g_plus",): (alpha + beta) * u**2 / 2 + _above,
        ("t",): Integer(1),
    },
    # Its distance to the two lines is monotone on either side of 0, so it is largest at 0 or on one of the lines.
    claims=Claims(
        1,
        _rising,
        _either,
        distance=Max(
            Abs(g_minus) * alpha,
            Abs(g_minus * alpha + _bend * alpha**2),
            Abs(g_minus * (alpha + beta) + g_plus * (alpha - beta)) / 2,
        ),
    ),
    knob=("alpha", "beta"),
    about="Two lines of any slopes, a parabola between them, any height; its hard limit is the two lines.",
)
origin_smelu = Activation(
    "origin_smelu",
    Piecewise(
        (Line(g_minus, x) - _bend * alpha**2, x <= -alpha),
        (Line(g_plus, x) - _bend * beta**2, x >= beta),
        (x * (_bend * x + (alpha * g_plus + beta * g_minus) / (alpha + beta)), True),
    ),
    params=(_alpha, _beta, _g_minus, _g_plus),
    inner=Inner(x, low=-alpha, high=beta),
    stable={
        ("x",): (g_minus * (beta - u) + g_plus * (u + alpha)) / (alpha + beta),
        ("alpha",): -_rise * u * (u - 2 * beta) / (2 * (alpha + beta) ** 2),
        ("beta",): -_rise * u * (u + 2 * alpha) / (2 * (alpha + beta) ** 2),
        ("g_minus",): u * (2 * beta - u) / (2 * (alpha + beta)) + _below,
        ("g_plus",): u * (u + 2 * alpha) / (2 * (alpha + beta)) + _above,
    },
    claims=Claims(1, _rising, _either, FiniteSet(0), distance=Abs(_bend) * Max(alpha, beta) ** 2),
    knob=("alpha", "beta"),
    about="Generalised SmeLU moved up or down until it passes through the origin.",
)
