"""What a claim and a finding are. Adding a claim is adding one function to a paper's file:

    claim = claims_of("smelu")

    @claim(place="Section 4, equation 9", says=r"SmeLU meets ReLU within $\beta/4$.", expect="holds")
    def distance_to_relu() -> Finding:
        '''The certified distance of the definition to its hard limit.'''
        ...
        return Finding(f"{distance:.4f}", parts={"distance": distance == 0.25}, numbers={"distance": distance})

`says` is the paper's statement in our words, `expect` the verdict on record. The verdict itself is never written down:
it follows from `parts`, the statements that the claim consists of, each found true or false by the check.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from softknee.api import get
from softknee.design.proof.certificate import Certificate, Enclosure, Extremum
from softknee.design.proof.certify import certify
from softknee.errors import DefinitionError, ParameterError, did_you_mean
from softknee.spec import Activation, elementary, x
from softknee.spec.algebra import Expr, sympy
from softknee.spec.pieces import split
from softknee.spec.precision import OwnContext

from .text import cell, plain

HOLDS, FAILS, PARTLY, NOT_RUN, CRASHED = "holds", "fails", "partly", "not run at the paper's scale", "crashed"
VERDICTS = (HOLDS, PARTLY, FAILS, NOT_RUN)
OURS = "Our own"  # so begins the place of what no paper says: it is listed with the rest and counted apart


@dataclass(frozen=True)
class Paper:
    """One of the papers: the stem of its file here, a short name for tables, its title."""

    stem: str
    name: str
    title: str


PAPERS = (
    Paper(
        "mollification", "Mollification", "Reshaping activation functions: a framework based on mollification theory"
    ),
    Paper("smelu", "SmeLU", "Smooth activations and reproducibility in deep networks"),
    Paper("lambda_gelu", "λ-GELU", "λ-GELU: learning gating hardness for controlled ReLU-ization in deep networks"),
    Paper("eafo", "EAFO", "A method on searching better activation functions"),
    Paper("squaf", "SQUAF", "Soft quantization activation functions for deep learning"),
)
"""The five papers, in the order of the ledger."""


def paper(stem: str) -> Paper:
    """The paper with that stem, or an error with a did-you-mean."""
    stems = [paper.stem for paper in PAPERS]
    if stem not in stems:
        raise ParameterError(f"No paper is called {stem!r}; they are {', '.join(stems)}.{did_you_mean(stem, stems)}")
    return PAPERS[stems.index(stem)]


@dataclass(frozen=True)
class Finding:
    """What a check found.

    measured: one or two sentences with the numbers, rounded to digits that every machine agrees on.
    parts:    the statements of the claim, each true or false; empty where the check cannot decide at this scale.
    numbers:  the numbers of `measured` and beside it, for programs.
    """

    measured: str
    parts: Mapping[str, bool]
    numbers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """Holds if every part does, fails if none does, and partly between."""
        true = [bool(part) for part in self.parts.values()]
        if not true:
            return NOT_RUN
        return HOLDS if all(true) else PARTLY if any(true) else FAILS


@dataclass(frozen=True)
class Claim:
    """One checkable statement of a paper."""

    paper: Paper
    place: str
    says: str
    expect: str
    check: Callable[[], Finding]

    def __post_init__(self) -> None:
        for name in ("place", "says"):
            if not getattr(self, name).strip():
                raise DefinitionError(f"The claim {self.name!r} has no {name}; say it in the decorator.")
            # Text that neither a terminal nor a table can show is refused here and not in the middle of a run.
            plain(cell(getattr(self, name)))
        if not self.says.endswith("."):
            raise DefinitionError(f"The claim {self.name!r} should say a whole sentence, with its full stop.")
        if self.expect not in VERDICTS:
            known = ", ".join(VERDICTS)
            raise DefinitionError(f"The claim {self.name!r} expects {self.expect!r}; a verdict is one of {known}.")
        if not inspect.getdoc(self.check):
            raise DefinitionError(f"The claim {self.name!r} has no docstring; say in it how the check is made.")

    @property
    def name(self) -> str:
        """The name of the function that checks it."""
        return self.check.__name__

    @property
    def id(self) -> str:
        """Its place in the ledger, the same for as long as the function keeps its name."""
        return f"{self.paper.stem}.{self.name}"

    @property
    def how(self) -> str:
        """How it is checked: the docstring in one line."""
        return " ".join((inspect.getdoc(self.check) or "").split())


def claims_of(stem: str) -> Callable[..., Callable[[Callable[[], Finding]], Claim]]:
    """The decorator for the claims of one paper."""
    source = paper(stem)

    def claim(*, place: str, says: str, expect: str) -> Callable[[Callable[[], Finding]], Claim]:
        return lambda check: Claim(source, place, says, expect, check)

    return claim


mp = OwnContext()
"""mpmath's functions, with a precision that belongs to the ledger and to the thread that calls."""
F64 = torch.float64
DIGITS = 30


def formula(name: str, **values: Any) -> Expr:
    """The textbook formula of a definition, with some of its parameters put in."""
    act: Activation = get(name)
    return elementary(act.formula).subs({act.param(key).symbol: value for key, value in values.items()})


def same(left: Expr, right: Expr) -> bool:
    """Whether two piecewise formulas are one function, for all x and all parameters."""
    return all(sympy.simplify(part) == 0 for part in split(left - right).parts)


def jumps(expr: Expr, order: int) -> list[Expr]:
    """By how much the derivative of that order jumps at each seam, from left to right."""
    pieces = split(expr)
    slopes = [sympy.diff(part, x, order) for part in pieces.parts]
    return [
        sympy.simplify((right - left).subs(x, seam))
        for left, right, seam in zip(slopes, slopes[1:], pieces.seams, strict=False)
    ]


def smooth(expr: Expr, order: int) -> bool:
    """Whether every derivative up to that order is continuous."""
    return all(jump == 0 for below in range(order + 1) for jump in jumps(expr, below))


def line(low: float, high: float, count: int = 20001) -> Tensor:
    """Points on the line in float64."""
    return torch.linspace(low, high, count, dtype=F64)


@functools.cache
def _proved(act: Activation, values: tuple[tuple[str, Any], ...]) -> Certificate:
    return certify(act, **dict(values))


def certificate(name: str, **values: Any) -> Certificate:
    """What ball arithmetic proves of a definition for exactly these parameters."""
    return _proved(get(name), tuple(sorted(values.items())))


def place(extremum: Extremum) -> float:
    """The single point at which an extreme value is reached."""
    (region,) = extremum.places
    assert region.is_point, f"{region} is more than a point."
    return float(region.begin)


def reached_at(extremum: Extremum, at: Any) -> bool:
    """Whether an extreme value is reached at a point."""
    return any(region.begin.lower <= at <= region.end.upper for region in extremum.places)


def rounds_to(enclosure: Enclosure, printed: str) -> bool:
    """Whether a number rounds to the printed decimal, wherever in its enclosure it lies."""
    digits = len(printed.partition(".")[2])
    return {round(float(end), digits) for end in (enclosure.lower, enclosure.upper)} == {float(printed)}


def integral(f: Callable[[Any], Any], *points: Any, digits: int = DIGITS) -> Any:
    """The integral through these points, to 30 digits unless `digits` says otherwise; f calculates with `mp`."""
    with mp.workdps(digits + 5):
        return mp.quad(f, [mp.mpf(point) for point in points])


def tex(expr: Expr) -> str:
    """A formula as LaTeX that the ledger's texts can show."""
    return sympy.latex(sympy.simplify(expr), symbol_names={sympy.Symbol("g_minus", real=True): "g_-"})
