"""The section of a page that holds proven numbers: slopes, Lipschitz constant, distance to the limit and where."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..design.proof.certificate import Enclosure, Extremum
from ..design.proof.certify import certify
from ..spec import SoftTable
from .figure_lines import Definition, letter

_DIGITS = 12  # of a number that goes on; the certificate itself knows more
_MOST_PLACES = 2
_PROVED = "Proved by interval arithmetic (`sk.design.certify`), for exactly these parameters."


def certified(act: Definition, settings: Sequence[Mapping[str, Any]]) -> str:
    """What `design.certify` proves of the lines that are drawn."""
    if isinstance(act, SoftTable):
        return ""
    # Decimal texts are taken exactly: a slope of 0.1 is a tenth, not the float next to it.
    proofs = [certify(act, **{name: str(value) for name, value in one.items()}) for one in settings]
    still_open = " ".join(dict.fromkeys(sentence for proof in proofs for sentence in proof.open))
    if not any(proof.lipschitz.lower > -math.inf for proof in proofs):
        return f"## Certified\n\nNothing yet: {still_open}"
    limit = proofs[0].limit
    head = [
        "parameters",
        "smallest slope",
        "Lipschitz constant",
        *([f"distance to {limit}", "at x ="] if limit else []),
    ]
    rows = []
    for one, proof in zip(settings, proofs, strict=True):
        given = ", ".join(inline(f"{letter(act, name)} = {value:.10g}") for name, value in one.items())
        cells = [given or "defaults", _extreme(proof.smallest_slope), _extreme(proof.lipschitz)]
        if limit:
            cells += [_extreme(proof.distance), _places(proof.distance)] if proof.distance else ["not settled", ""]
        rows.append(cells)
    table = [head, ["---"] * len(head), *rows]
    if len(settings) == 1 and not act.params:
        table = [row[1:] for row in table]
    lines = "\n".join(f"| {' | '.join(row)} |" for row in table)
    return f"## Certified\n\n{_PROVED}\n\n{lines}\n\n{still_open}"


def inline(latex: str) -> str:
    """Mathematics inside a sentence."""
    return f"$`{latex}`$"


def _extreme(value: Extremum) -> str:
    if math.isnan(float(value)):
        return "not settled"
    return _digits(value) + (" (not reached)" if value.attained is False else "")


def _places(value: Extremum) -> str:
    shown = [
        _digits(one.begin) if one.is_point else f"{_digits(one.begin)} to {_digits(one.end)}"
        for one in value.places[:_MOST_PLACES]
    ]
    return ", ".join([*shown, *(["…"] if len(value.places) > _MOST_PLACES else [])])


def _digits(value: Enclosure) -> str:
    """The first digits of a number that goes on, with the dots that say so."""
    text = str(value).replace("inf", "∞")
    if text.startswith("["):
        return f"{float(value):.{_DIGITS}g}"  # its two ends differ beyond these digits
    if not text.endswith("..."):
        return text
    mantissa = text.removesuffix("...")
    ahead = len(mantissa) - len(mantissa.lstrip("-0."))
    return mantissa[: ahead + _DIGITS + ("." in mantissa[ahead:])] + "…"
