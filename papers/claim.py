"""What a claim and a finding are. Adding a claim is adding one function to a paper's file:

    claim = claims_of("smelu")

    @claim(place="Section 4, equation 9", says=r"SmeLU meets ReLU within $\\beta/4$.", expect="holds")
    def distance_to_relu() -> Finding:
        '''The certified distance of the definition to its hard limit.'''
        ...
        return Finding(f"{found:.4f}", parts={"distance": found == 0.25}, numbers={"distance": found})

`says` is the paper's statement in our words, `expect` the verdict on record. The verdict itself is never written down:
it follows from `parts`, the statements that the claim consists of, each found true or false by the check.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from softknee.errors import DefinitionError, ParameterError, did_you_mean

from .text import cell, plain

HOLDS, FAILS, PARTLY, NOT_RUN, CRASHED = "holds", "fails", "partly", "not run at the paper's scale", "crashed"
VERDICTS = (HOLDS, PARTLY, FAILS, NOT_RUN)


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
    stems = [one.stem for one in PAPERS]
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
    of = paper(stem)

    def claim(*, place: str, says: str, expect: str) -> Callable[[Callable[[], Finding]], Claim]:
        return lambda check: Claim(of, place, says, expect, check)

    return claim
