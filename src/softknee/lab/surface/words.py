"""What is written beside a surface: only what tells it from the others."""

from __future__ import annotations

from ...surgery.activation_text import read_name
from ..figure_lines import sign
from .layouts import Rows
from .network import LINEAR, Setting


def named(activation: str) -> str:
    """An activation for readers, with its parameters as letters.

    >>> named("smelu(beta=0.5)"), named("linear")
    ('smelu, β = 0.5', 'no activation')
    """
    if activation == LINEAR:
        return "no activation"
    said = read_name(activation)
    parts = [f"{sign(key)} = {value:g}" for key, value in said.values.items() if not isinstance(value, str)]
    return ", ".join([said.name.replace("_", " "), *parts])


def _norm(setting: Setting) -> str:
    return "no norm" if setting.norm == "none" else f"{setting.norm} norm, v = {setting.v:g}"


def _clip(setting: Setting) -> str:
    return "no clipping" if setting.clip is None else f"clipped at {setting.clip:g}"


def titles(rows: Rows) -> tuple[str, list[str], list[list[str]]]:
    """What all surfaces have in common, what those of each row have beside it, and what each has alone."""
    parts = (lambda one: named(one.activation), _norm, _clip)
    shared = [len({part(one) for row in rows for one in row}) == 1 for part in parts]
    in_row = [[len({part(one) for one in row}) == 1 for part in parts] for row in rows]

    def said(setting: Setting, which: list[bool]) -> str:
        return "\n".join(part(setting) for part, wanted in zip(parts, which, strict=True) if wanted)

    several = len(rows) > 1 or len(rows[0]) > 1
    above = [one and several for one in shared]
    beside = [[mine and not all_ for mine, all_ in zip(row, above, strict=True)] for row in in_row]
    # A row of one surface says everything above it.
    beside = [[False] * 3 if len(rows) == 1 or len(row) == 1 else one for row, one in zip(rows, beside, strict=True)]
    caption = said(rows[0][0], above).replace("\n", ", ")
    own = [
        [
            said(one, [not (all_ or mine) for all_, mine in zip(above, here, strict=True)]).replace("\n", ", ")
            for one in row
        ]
        for row, here in zip(rows, beside, strict=True)
    ]
    return caption, [said(row[0], here) for row, here in zip(rows, beside, strict=True)], own
