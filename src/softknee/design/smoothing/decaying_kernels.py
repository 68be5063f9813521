r"""Kernels known by their tail integrals: gaussian, logistic and the C-infinity bump.

    gaussian  e^{-t^2/2}/sqrt(2 pi)      logistic  1/(4 cosh^2(t/2))      bump  A e^{1/(t^2 - 1)} on (-1, 1)

All are even, so one side says everything: with T_j(a) = integral_a^inf (t - a)^j phi(t) dt, a >= 0, the convolution is

    F(x) = (the piece x lies in, averaged) + sum over seams and j of c_j w^j R_j(s),    s = (x - k)/w,
    R_j(s) = T_j(|s|) for odd j,   -sign(s) T_j(|s|) for even j

Every correction dies away from its seam: nothing cancels in a tail, and at infinity the piece stands alone. In a window
much wider than the distance of the seams the corrections themselves grow with the width and cancel; there gaussian and
logistic go segment by segment, by Gauss-Legendre quadrature with seven points, whose error over at most half a width is
below 1e-18.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

from sympy.integrals.quadrature import gauss_legendre

from ...spec import Clip, NormalCdf, NormalPdf, SechSquared, Sigmoid, Softplus, x
from ...spec.algebra import Abs, Add, Expr, Min, Piecewise, pi, sympy
from .convolution import Atom, Bulk, Convolution, Weight, degree, t, taylor
from .polynomial_kernels import common_part, with_lines

# Quadrature takes over where the width is this many times the distance of the outer seams.
WIDER, POINTS = 2, 7


@dataclass(frozen=True)
class DecayingKernel:
    """An even kernel with its tail integrals.

    density: phi(t), as it is computed inside the support.
    tails:   T_0, T_1, ... in t for a, of which there are as many as the degree of f allows.
    below:   integral_{-inf}^s (s - t)^j phi(t) dt in t for s, textbook form.
    moments: integral t^{2j} phi(t) dt for j = 0, 1, ...
    reach:   beyond this |s| everything is 0 to the last bit; a power of two, so that dividing by it loses nothing.
    support: the half-width outside which phi is 0, or None.
    wide:    beyond this |s| corrections no longer matter, where segments are quadrature; None for no quadrature.
    """

    density: Expr
    tails: tuple[Expr, ...]
    below: tuple[Expr, ...]
    moments: tuple[Expr, ...]
    reach: Expr
    support: int | None = None
    wide: int | None = None

    @property
    def weight(self) -> Weight:
        return Weight.even(self.density)

    def averaged(self, q: Expr, power: int, width: Expr) -> Expr:
        """integral q(x - w t) t^m phi(t) dt."""
        total, order = sympy.Integer(0), 0
        while q != 0:
            if (order + power) % 2 == 0:
                total += q * (-width) ** order * self.moments[(order + power) // 2] / sympy.factorial(order)
            q, order = sympy.diff(q, x), order + 1
        return sympy.expand(total)

    # -- the textbook form ----------------------------------------------------------------------------

    def textbook(self, whole: Convolution) -> Expr:
        """A sum over the seams of what each adds."""
        (bulk,) = whole.bulks
        width = whole.width
        total = [self.averaged(bulk.parts[0], 0, width)]
        for seam, before, after in zip(whole.seams, bulk.parts[:-1], bulk.parts[1:], strict=True):
            s = (x - seam) / width
            coefficients = taylor(sympy.expand(after - before), seam)
            change = Add(*(c * width**j * self.below[j].subs(t, s) for j, c in enumerate(coefficients) if c != 0))
            if self.support is not None:
                inside = (change, x < seam + width)
                change = Piecewise(
                    (0, x <= seam - width), inside, (self.averaged(after - before, 0, width), True), evaluate=False
                )
            total.append(change)
        if self.support is not None and len(total) == 2:
            return Piecewise(*((total[0] + value, when) for value, when in total[1].args), evaluate=False)
        return Add(*total)

    # -- what is computed -----------------------------------------------------------------------------

    def computed(self, whole: Convolution) -> Expr:
        width = whole.width
        near = Add(*(b.factor * width**b.power * self._corrected(b, whole) for b in whole.bulks))
        atoms = Add(*(self._atom(a, width) for a in whole.atoms))
        if self.wide is None or len(whole.seams) < 2 or not whole.bulks:
            return near + atoms
        span = WIDER * (whole.seams[-1] - whole.seams[0])
        if (span - width).is_positive:
            return near + atoms
        far = Add(*(b.factor * width**b.power * self._segments(b, whole) for b in whole.bulks))
        if not (width - span).is_nonnegative:
            far = Piecewise((far, width >= span), (near, True), evaluate=False)
        here = sympy.And(x > whole.seams[0] - self.wide * width, x < whole.seams[-1] + self.wide * width)
        return Piecewise((far, here), (near, True), evaluate=False) + atoms

    def _power(self, weight: Weight) -> tuple[int, Expr]:
        """The m and the factor of a weight c t^m phi(t)."""
        ratio = sympy.simplify(weight.left / self.density)
        power = degree(ratio, t)
        return power, sympy.cancel(ratio / t**power)

    def _corrected(self, bulk: Bulk, whole: Convolution) -> Expr:
        """The piece that x lies in and the corrections of all seams."""
        power, factor = self._power(bulk.weight)
        width, seams = whole.width, whole.seams
        levels = [with_lines(self.averaged(q, power, width)) for q in bulk.parts]
        if not seams:
            return factor * levels[0]
        pieces = [(level, x < seam) for level, seam in zip(levels[:-1], seams, strict=True)]
        total = [Piecewise(*pieces, (levels[-1], True), evaluate=False)]
        for seam, before, after in zip(seams, bulk.parts[:-1], bulk.parts[1:], strict=True):
            coefficients = taylor(sympy.expand(after - before), seam)
            total += [
                self._correction(c * width**j, j, power, seam, width) for j, c in enumerate(coefficients) if c != 0
            ]
        return factor * Add(*total)

    def _correction(self, size: Expr, order: int, power: int, seam: Expr, width: Expr) -> Expr:
        a = Min(Abs(x - seam) / width, self.reach)
        tail = Add(*(comb(power, i) * a ** (power - i) * self.tails[order + i].subs(t, a) for i in range(power + 1)))
        left = (-1) ** power * size * tail
        if (order + power) % 2:
            return left
        return Piecewise((left, x < seam), (-left, True), evaluate=False)

    def _segments(self, bulk: Bulk, whole: Convolution) -> Expr:
        """Pieces in a window far wider than all seams together: tails in closed form, quadrature between them."""
        width, seams = whole.width, whole.seams
        power, factor = self._power(bulk.weight)
        common = common_part(bulk.parts)
        rest = [sympy.expand(q - common) for q in bulk.parts]
        total = [self.averaged(common, power, width)]
        if power:  # constants against t phi: the tails of the corrections do not grow, and this is not reached
            return self._corrected(bulk, whole)
        low, high = self._place(seams[0], width), self._place(seams[-1], width)
        total += [
            c * width**j * (-1) ** j * self.below[j].subs(t, -low) for j, c in enumerate(taylor(rest[0], seams[0]))
        ]
        total += [c * width**j * self.below[j].subs(t, high) for j, c in enumerate(taylor(rest[-1], seams[-1]))]
        nodes, weights = gauss_legendre(POINTS, 30)
        for q, left, right in zip(rest[1:-1], seams[:-1], seams[1:], strict=True):
            if q != 0:
                middle, half = self._place((left + right) / 2, width), (right - left) / (2 * width)
                points = [middle + node * half for node in nodes]
                total.append(
                    half
                    * Add(
                        *(
                            share * q.subs(x, x - width * point) * self.density.subs(t, point)
                            for share, point in zip(weights, points, strict=True)
                        )
                    )
                )
        return factor * Add(*total)

    def _atom(self, atom: Atom, width: Expr) -> Expr:
        value = atom.weight.left.subs(t, self._place(atom.seam, width))
        return atom.factor * width**atom.power * value

    def _place(self, seam: Expr, width: Expr) -> Expr:
        return self.reach * Clip((x - seam) / (self.reach * width))


def gaussian() -> DecayingKernel:
    return DecayingKernel(
        density=NormalPdf(t),
        # phi(-t) for phi(t): with one argument the two are computed as a pair, which keeps more digits in half types.
        tails=(NormalCdf(-t), NormalPdf(-t) - t * NormalCdf(-t)),
        below=(NormalCdf(t), t * NormalCdf(t) + NormalPdf(t)),
        moments=(sympy.Integer(1), sympy.Integer(1)),
        reach=sympy.Integer(64),
        wide=16,
    )


def logistic() -> DecayingKernel:
    return DecayingKernel(
        density=SechSquared(t / 2) / 4,
        tails=(Sigmoid(-t), Softplus(-t)),
        below=(Sigmoid(t), Softplus(t)),
        moments=(sympy.Integer(1), pi**2 / 3),
        reach=sympy.Integer(1024),
        wide=64,
    )
