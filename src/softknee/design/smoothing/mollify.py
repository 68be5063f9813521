r"""Mollification: a function averaged over a window, in closed form.

    F(x) = integral f(x - w t) phi(t) dt

f is any piecewise polynomial, with kinks, jumps and parameters; phi one of the kernels below; w is the half-support of
a compact kernel, sigma of the gaussian, the scale of the logistic. ReLU gives SmeLU (box), S-ReLU (epanechnikov) and
softplus (logistic, beta = 1/w).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from ...errors import DefinitionError, FormulaError, ParameterError, did_you_mean
from ...registry import holds
from ...spec import Activation, Claims, Param, Positive, positive, real, x
from ...spec.algebra import Abs, Expr, Interval, Max, Symbol, oo, sympy
from ...spec.pieces import Pieces, split
from ...spec.text import write
from ..evaluate import definition_of
from ..texts.given import exact, text_of
from . import polynomial_kernels as polynomial
from .bump_kernel import bump
from .convolution import Bulk, Convolution, Weight, degree
from .decaying_kernels import DecayingKernel, gaussian, logistic
from .polynomial_kernels import SHARE, PolynomialKernel

DECAYING = {"gaussian": gaussian, "logistic": logistic, "bump": bump}
KERNELS = (*polynomial.NAMES, *DECAYING)
HIGHEST_DEGREE, MOST_SEAMS = 8, 64


def mollify(
    f: str | Activation | Expr,
    kernel: str | Sequence[str] = "epanechnikov",
    width: str | float | Param = "delta",
    *,
    name: str | None = None,
) -> Activation:
    """The definition of f smoothed with a kernel: values, kernels, modules, export and LaTeX like any other.

    Args:
        f: a name, a definition, or a formula in x that is piecewise polynomial: any number of kinks and jumps, and
            parameters.
        kernel: "box", "triangle", "epanechnikov", "biweight" or "triweight" (exact for every f), "gaussian" or
            "logistic" (for piecewise linear f), "bump" (the C-infinity kernel, by certified Chebyshev pieces, up to
            degree 3), or several of the first five: a mixture whose shares are the softmax of the parameter `weights`.
        width: the name of a new parameter that may be learned (it starts at 1), a parameter of your own, or a number.
        name: what to call the result.

    >>> import softknee as sk, torch
    >>> knee = sk.design.mollify("relu6", "biweight", width=0.5)
    >>> knee(torch.tensor([-0.5, 0.0, 3.0, 6.5]))
    tensor([0.0000, 0.0781, 3.0000, 6.0000])

    Reference: the mollification paper, section 3; Ermoliev, Norkin and Wets 1995 for the discontinuous case.
    """
    source = definition_of(f, needed_by="mollify")
    names = [kernel] if isinstance(kernel, str) or not isinstance(kernel, Iterable) else list(kernel)
    if not names:
        raise ParameterError(f"mollify needs a kernel; choose among {', '.join(KERNELS)}.")
    for word in names:
        _check_kernel(word, alone=len(names) == 1)
    pieces = _pieces(source, names)
    window, params = _width(width, source)
    if len(names) > 1:
        logits = tuple(real(f"weights_{name}", 0.0, f"logit of the share of the {name} kernel") for name in names)
        method, rates = _mixture(names, logits)
        params = (*params, *logits)
    else:
        only = names[0]
        logits, rates = (), None
        method = DECAYING[only]() if only in DECAYING else PolynomialKernel(polynomial.density(only))
    whole = Convolution(pieces.seams, window, (Bulk(pieces.parts, method.weight),), rates=rates)
    return Activation(
        name or "_".join([source.name, *names]),
        method.textbook(whole),
        params=(*source.params, *params),
        stable=Derivatives({(): whole}, method, {p.name: p.symbol for p in (*source.params, *params)}),
        claims=_claims(pieces, names, window),
        knob=params[0].name if params and params[0].symbol == window else None,
        limit=source.name if holds(source) else None,
        limit_params={p.name: p.name for p in source.params},
        groups={"weights": tuple(p.name for p in logits)} if logits else {},
        recipe=_recipe(source, pieces, names, width),
        about=f"{source.name} mollified with {_words(names)}.",
    )


@dataclass(eq=False)  # not frozen: torch 2.6's compiler looks at every field of a frozen one, and at no dict of symbols
class Derivatives:
    """What is computed for the value and each derivative; `made` has the convolutions differentiated so far."""

    made: dict[tuple[str, ...], Convolution]
    method: PolynomialKernel | DecayingKernel
    symbols: Mapping[str, Symbol]

    def __call__(self, index: tuple[str, ...]) -> Expr:
        return self.method.computed(self._term(index))

    def _term(self, index: tuple[str, ...]) -> Convolution:
        if index not in self.made:
            last = x if index[-1] == "x" else self.symbols[index[-1]]
            self.made[index] = self._term(index[:-1]).derivative(last)
        return self.made[index]


# -- arguments --------------------------------------------------------------------------------------------


def _check_kernel(name: Any, *, alone: bool) -> None:
    known = KERNELS if alone else polynomial.NAMES
    if name not in known:
        where = "" if alone else " in a mixture"
        raise ParameterError(
            f"There is no kernel {name!r}{where}; choose among {', '.join(known)}.{did_you_mean(str(name), known)}"
        )


def _pieces(source: Activation, kernels: Sequence[str]) -> Pieces:
    if source.implicit is not None:
        raise DefinitionError(f"{source.name} is given by its inverse; mollify takes piecewise polynomials.")
    # Fractions for decimals: pieces that meet at 0.1 would otherwise miss each other by a rounding, and jump there.
    pieces = split(exact(source.formula))
    highest = 0
    for part in pieces.parts:
        if not part.is_polynomial(x):
            raise DefinitionError(
                f"{source.name} has the piece {part}, which is no polynomial in x; mollify takes piecewise polynomials."
            )
        highest = max(highest, degree(sympy.expand(part)))
    allowed = {"gaussian": 1, "logistic": 1, "bump": 3}.get(kernels[0], HIGHEST_DEGREE)
    if highest > allowed:
        cure = "write that piece as one of a lower degree"
        if allowed < HIGHEST_DEGREE:
            cure = f"take one of {', '.join(polynomial.NAMES)}, which are exact up to degree {HIGHEST_DEGREE}"
        raise DefinitionError(
            f"{source.name} has a piece of degree {highest}, and the {kernels[0]} kernel is offered up to degree "
            f"{allowed}; {cure}."
        )
    if len(pieces.seams) > MOST_SEAMS:
        raise DefinitionError(f"{source.name} has {len(pieces.seams)} seams, and {MOST_SEAMS} are allowed.")
    return Pieces(pieces.seams, tuple(sympy.expand(part) for part in pieces.parts))


def _width(width: Any, source: Activation) -> tuple[Expr, tuple[Param, ...]]:
    if isinstance(width, Real) and not isinstance(width, bool):  # NumPy's numbers and SymPy's fractions too
        try:
            allowed = Positive().allows(float(width))
        except OverflowError:  # a whole number beyond the largest float
            allowed = False
        if not allowed:
            raise ParameterError(f"mollify: width must be a finite number above 0, and {width!r} was given.")
        return sympy.Rational(_digits(width)), ()
    if not isinstance(width, str | Param):
        raise ParameterError(
            f"mollify: width is a number, the name of a parameter or a Param, and {type(width).__name__} was given."
        )
    param = positive(width, 1.0, "half-width of the window") if isinstance(width, str) else width
    if not isinstance(param.constraint, Positive):
        raise ParameterError(
            f"mollify: the width {param.name!r} must be a positive parameter (softknee.spec.positive)."
        )
    if param.name in {p.name for p in source.params}:
        raise ParameterError(
            f"mollify: {source.name} has a parameter {param.name!r} already; give the width another name, such as "
            f"width='{param.name}_width'."
        )
    return param.symbol, (param,)


def _digits(width: Any) -> str:
    """The number as the text language has it: 0.1 is a tenth, and a fraction such as 1/3 stays one."""
    return repr(float(width)) if isinstance(width, float) else str(width)


def _mixture(
    names: Sequence[str], logits: Sequence[Param]
) -> tuple[PolynomialKernel, Mapping[Symbol, Mapping[Symbol, Expr]]]:
    """phi_0 + sum_i p_i (phi_i - phi_0): each difference has no mass, so a slope by a weight has none either."""
    if len(set(names)) != len(names):
        raise ParameterError(f"mollify: a kernel stands twice in the mixture {', '.join(names)}; name each once.")
    shares = [sympy.Symbol(f"{SHARE}{name}", positive=True) for name in names]
    members = {p: polynomial.density(word) for p, word in zip(shares, names, strict=True)}
    first, *others = members.values()

    def mixed(side: str) -> Expr:
        base = getattr(first, side)
        return sympy.expand(base + sum(p * (getattr(o, side) - base) for p, o in zip(shares[1:], others, strict=True)))

    symbols = [p.symbol for p in logits]
    # 1/(sum of e^{difference}) has no infinity over infinity, however far apart the logits are.
    values = {p: 1 / sum(sympy.exp(other - own) for other in symbols) for p, own in zip(shares, symbols, strict=True)}
    rates = {
        # 1 - p_j as the sum of the others: it keeps its digits where p_j is nearly 1.
        symbol: {p: p * (sum(shares[:j] + shares[j + 1 :]) if i == j else -shares[j]) for i, p in enumerate(shares)}
        for j, symbol in enumerate(symbols)
    }
    return PolynomialKernel(Weight(mixed("left"), mixed("right")), values, members), rates


# -- what is known of the result --------------------------------------------------------------------------


def _claims(pieces: Pieces, kernels: Sequence[str], width: Expr) -> Claims | None:
    """Of a continuous function with one kink between two lines everything is known; otherwise `certify` finds out."""
    if len(pieces.seams) != 1 or any(degree(q) > 1 for q in pieces.parts):
        return None
    left, right = pieces.parts
    if sympy.simplify((right - left).subs(x, pieces.seams[0])) != 0:
        return None
    smoothness = 2 + min(polynomial.SMOOTHNESS.get(kernel, float("inf")) for kernel in kernels)
    slopes = [sympy.diff(q, x) for q in (left, right)]
    monotone = sympy.And(*(slope >= 0 for slope in slopes))
    still = left == 0 and set(kernels) <= set(polynomial.NAMES)
    zeros = Interval(-oo, pieces.seams[0] - width) if still else sympy.S.EmptySet
    return Claims(smoothness, _plain_truth(monotone), Max(*(Abs(slope) for slope in slopes)), zeros)


def _plain_truth(condition: Expr) -> Any:
    return bool(condition) if condition in (sympy.true, sympy.false) else condition


def _words(kernels: Sequence[str]) -> str:
    if len(kernels) == 1:
        return f"the {kernels[0]} kernel"
    return f"a learnable mixture of the kernels {', '.join(kernels)}"


def _recipe(source: Activation, pieces: Pieces, kernels: Sequence[str], width: str | float | Param) -> str:
    """The text that makes it again; empty where there is none, and then the result is not saved to a file.

    A source that the language cannot say as it is written (Heaviside) is said by its pieces. What it is at a jump
    itself may then differ, which no integral sees.
    """
    try:
        inner = text_of(source)
    except DefinitionError:
        pairs = [(part, x < seam) for part, seam in zip(pieces.parts, pieces.seams, strict=False)]
        try:
            inner = write(sympy.Piecewise(*pairs, (pieces.parts[-1], True), evaluate=False))
        except FormulaError:
            return ""
    kernel = kernels[0] if len(kernels) == 1 else f"({', '.join(kernels)})"
    size = width.name if isinstance(width, Param) else width if isinstance(width, str) else _digits(width)
    return f"mollify({inner}, {kernel}, width={size})"


__all__ = ["KERNELS", "mollify"]
