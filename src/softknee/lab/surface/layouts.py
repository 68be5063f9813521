"""Which surfaces stand side by side: those asked for, or those of a figure of the paper, in rows."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...errors import ParameterError
from .network import LINEAR, Setting

Rows = Sequence[Sequence[Setting]]
MOST_COLUMNS = 6
_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?|\.[0-9]+")


def split_texts(text: str) -> tuple[str, ...]:
    """Activations with commas between; commas in parentheses are their own.

    >>> split_texts("relu, selu(lam=1, beta=2)")
    ('relu', 'selu(lam=1, beta=2)')
    """
    parts = re.split(r",(?![^(]*\))", text)
    return tuple(part.strip() for part in parts if part.strip())


def read_numbers(option: str, text: str) -> tuple[float, ...]:
    """Numbers with commas between."""
    parts = [part.strip() for part in text.split(",")]
    if not all(_NUMBER.fullmatch(part) for part in parts):
        raise ParameterError(f"{option} takes numbers with commas between, such as 0.5,1, and {text!r} was given.")
    return tuple(float(part) for part in parts)


def read_clips(text: str) -> tuple[float | None, ...]:
    """The same, with "none" for no clipping."""
    parts = [part.strip() for part in text.split(",")]
    return tuple(None if part == "none" else read_numbers("--clip", part)[0] for part in parts)


def rows_of(
    activations: Sequence[str],
    *,
    norms: Sequence[str] = ("weight",),
    vs: Sequence[float] = (1.0,),
    clips: Sequence[float | None] = (None,),
) -> Rows:
    """A row for each norm, value and clipping, a column for each activation; a single row is folded where it is long.

    >>> [len(row) for row in rows_of(["relu", "smelu", "gelu", "swish"])], len(rows_of(["relu"], vs=(0.5, 1.0)))
    ([2, 2], 2)
    """
    if not activations:
        raise ParameterError("There is nothing to draw: name at least one activation.")
    rows = [
        tuple(Setting(text, norm=norm, v=v, clip=clip) for text in activations)
        for norm in norms
        for v in (vs if norm != "none" else vs[:1])
        for clip in clips
    ]
    if len(rows) > 1 and len(activations) > MOST_COLUMNS:
        raise ParameterError(
            f"{len(activations)} activations in each of {len(rows)} rows are too many for one figure; leave the "
            f"rows at one (one norm, one v, one clip), or draw at most {MOST_COLUMNS} activations."
        )
    if len(rows) > 1 or len(activations) < 4:
        return tuple(rows)
    lines = -(-len(activations) // 4) if len(activations) > 6 else 2
    wide = -(-len(activations) // lines)
    return tuple(rows[0][first : first + wide] for first in range(0, len(activations), wide))


def _along(name: str, *values: float, parameter: str = "beta") -> list[str]:
    return [f"{name}({parameter}={value:g})" for value in values]


_SMELU = _along("smelu", 0.5, 1, 2, 4)
_NORMS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


def _by_v(activation: str, norm: str, vs: Sequence[float]) -> tuple[Setting, ...]:
    return tuple(Setting(activation, norm=norm, v=v) for v in vs)


# The figures' axes and rows are the paper's; the values of beta and v are ours, for its text does not name them.
PAPER: dict[int, Rows] = {
    2: (
        tuple(Setting(one) for one in ("relu", *_SMELU, LINEAR)),
        _by_v("smelu(beta=0.5)", "weight", _NORMS),
    ),
    5: rows_of(["relu", *_SMELU, LINEAR], norms=("weight", "none"), clips=(None, 6.0)),
    6: (
        tuple(Setting(one) for one in (*_along("swish", 0.5, 1, 4), *_along("softplus", 0.5, 1, 4))),
        tuple(Setting(one) for one in (*_along("gelu", 0.5, 1, 4), *_along("selu", 1, 2, 10))),
    ),
    7: (
        (*_by_v(LINEAR, "weight", (0.5, 1.0, 2.0)), *_by_v(LINEAR, "layer", (0.5, 1.0, 2.0))),
        (*_by_v("relu", "weight", (0.5, 1.0, 2.0)), *_by_v("relu", "layer", (0.5, 1.0, 2.0))),
        _by_v("smelu(beta=0.5)", "layer", _NORMS),
    ),
}


def paper_rows(figure: int) -> Rows:
    """The rows of that figure of the SmeLU paper."""
    if figure not in PAPER:
        known = ", ".join(map(str, PAPER))
        raise ParameterError(f"The surfaces of the paper are its figures {known}, and {figure} was asked for.")
    return PAPER[figure]
