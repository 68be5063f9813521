r"""The convolution of a piecewise polynomial with a kernel, and all its derivatives, as a list of terms.

    F(x) = integral f(x - w t) phi(t) dt

with f(y) = q_i(y) between the seams k_i and k_{i+1}. Differentiating never leaves two kinds of term, whatever it is by:

    Bulk   w^r integral q(x - w t) psi(t) dt        q piecewise polynomial, psi the kernel times a power of t
    Atom   c w^r psi((x - k)/w)                     what a jump of q at k leaves behind

by x     Bulk: q -> q', and an atom J psi(s)/w for each jump J of q;       Atom: psi -> psi'/w
by w     Bulk: q -> q', psi -> -t psi, and atoms;                          Atom: psi -> -t psi'/w
by a parameter: q -> dq, and atoms -J dk psi(s)/w where the parameter moves a seam

So a derivative is never taken of something that was already added up: a slope is again an integral against the
kernel, and no difference of large numbers is left in it. How terms become expressions is the kernels' business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ...spec import x
from ...spec.algebra import Expr, Symbol, sympy

t = sympy.Symbol("t", real=True)
"""The variable of the kernel."""


@dataclass(frozen=True)
class Weight:
    """psi(t) on the left and on the right of 0: the triangle's two sides differ, the others' do not."""

    left: Expr
    right: Expr

    @classmethod
    def even(cls, expr: Expr) -> Weight:
        return cls(expr, expr)

    @property
    def whole(self) -> bool:
        return self.left == self.right

    def map(self, do: Callable[[Expr], Expr]) -> Weight:
        left = do(self.left)
        return Weight(left, left if self.whole else do(self.right))

    def __bool__(self) -> bool:
        return self.left != 0 or self.right != 0


@dataclass(frozen=True)
class Bulk:
    parts: tuple[Expr, ...]
    weight: Weight
    power: int = 0
    factor: Expr = sympy.S.One


@dataclass(frozen=True)
class Atom:
    factor: Expr
    seam: Expr
    weight: Weight
    power: int


@dataclass(frozen=True)
class Convolution:
    """A sum of terms over one set of seams; `rates[p]` are the derivatives of the kernel's own symbols by p."""

    seams: tuple[Expr, ...]
    width: Expr
    bulks: tuple[Bulk, ...]
    atoms: tuple[Atom, ...] = ()
    rates: Mapping[Symbol, Mapping[Symbol, Expr]] | None = None

    def derivative(self, symbol: Symbol) -> Convolution:
        """The derivative by x, by the width, by a parameter of f or by a weight of the kernel."""
        bulks: list[Bulk] = []
        atoms: list[Atom] = []
        if self.rates and symbol in self.rates:
            for bulk in self.bulks:
                bulks.append(replace(bulk, weight=self._along(bulk.weight, symbol)))
            for atom in self.atoms:
                atoms.append(replace(atom, weight=self._along(atom.weight, symbol)))
            return self._with(bulks, atoms)
        for bulk in self.bulks:
            self._differentiate_bulk(bulk, symbol, bulks, atoms)
        for atom in self.atoms:
            self._differentiate_atom(atom, symbol, atoms)
        return self._with(bulks, atoms)

    def _along(self, weight: Weight, symbol: Symbol) -> Weight:
        assert self.rates is not None
        rates = self.rates[symbol]
        return weight.map(lambda e: sympy.expand(sum(sympy.diff(e, share) * rate for share, rate in rates.items())))

    def _differentiate_bulk(self, bulk: Bulk, symbol: Symbol, bulks: list[Bulk], atoms: list[Atom]) -> None:
        parts, weight, power = bulk.parts, bulk.weight, bulk.power
        if symbol == self.width:
            if power:
                bulks.append(replace(bulk, power=power - 1, factor=power * bulk.factor))
            weight = weight.map(lambda e: sympy.expand(-t * e))
        by = x if symbol in (x, self.width) else symbol
        bulks.append(Bulk(tuple(sympy.diff(q, by) for q in parts), weight, power, bulk.factor))
        for seam, before, after in zip(self.seams, parts[:-1], parts[1:], strict=True):
            pace = 1 if by is x else -sympy.diff(seam, symbol)
            jump = bulk.factor * pace * sympy.simplify((after - before).subs(x, seam)) if pace else 0
            if jump != 0:
                atoms.append(Atom(jump, seam, weight, power - 1))

    def _differentiate_atom(self, atom: Atom, symbol: Symbol, atoms: list[Atom]) -> None:
        slope = atom.weight.map(lambda e: sympy.diff(e, t))
        if symbol == x:
            atoms.append(replace(atom, weight=slope, power=atom.power - 1))
        elif symbol == self.width:
            atoms.append(replace(atom, factor=atom.power * atom.factor, power=atom.power - 1))
            atoms.append(replace(atom, weight=slope.map(lambda e: sympy.expand(-t * e)), power=atom.power - 1))
        else:
            atoms.append(replace(atom, factor=sympy.diff(atom.factor, symbol)))
            moved = -atom.factor * sympy.diff(atom.seam, symbol)
            atoms.append(replace(atom, factor=moved, weight=slope, power=atom.power - 1))

    def _with(self, bulks: list[Bulk], atoms: list[Atom]) -> Convolution:
        return replace(
            self,
            bulks=tuple(b for b in bulks if b.weight and b.factor != 0 and any(q != 0 for q in b.parts)),
            atoms=tuple(a for a in atoms if a.weight and a.factor != 0),
        )


def taylor(q: Expr, at: Expr) -> list[Expr]:
    """The coefficients c_j of q(y) = sum c_j (y - at)^j."""
    coefficients, order = [], 0
    while q != 0:
        coefficients.append(sympy.simplify(q.subs(x, at)) / sympy.factorial(order))
        q, order = sympy.diff(q, x), order + 1
    return coefficients


def degree(q: Expr, symbol: Symbol = x) -> int:
    """The degree of a polynomial, 0 for a constant and for 0."""
    return max(0, int(sympy.degree(q, symbol))) if q.has(symbol) else 0
