"""A figure as one HTML page that needs nothing beside it: picture, closed form, LaTeX, parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from ..spec import Activation, SoftTable
from .page_style import STYLE
from .typeset import closed_form, formula

_MORE = """
figure.picture { max-width: none; background: #fff; border-radius: 8px; padding: 10px; margin: 20px 0; }
pre { overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; font-size: 13px; margin: 0; }
"""
_PRIMES = ("f(x)", "f'(x)", "f''(x)")


def page(act: Activation | SoftTable, picture: str, settings: Sequence[Mapping[str, Any]]) -> str:
    """The page of one definition, drawn with these settings."""
    title = escape(act.name)
    rows = "".join(f"<dt>{left}</dt><dd><pre>{escape(text)}</pre></dd>" for left, text in _formulas(act))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>{title}</title>
<style>{STYLE}{_MORE}</style>
</head>
<body>
<main>
<h1>{title}</h1>
<p class="lead">{escape(act.about)}</p>
<figure class="picture">
{picture.strip()}
</figure>
<p class="legend">{escape(_drawn(act, settings))}</p>
<h2>Formula</h2>
<dl>{rows}</dl>
{_parameters(act)}
</main>
</body>
</html>
"""


def _drawn(act: Activation | SoftTable, settings: Sequence[Mapping[str, Any]]) -> str:
    each = ["; ".join(f"{name} = {value}" for name, value in one.items()) or "the defaults" for one in settings]
    limit = " Dotted: the hard limit." if act.knobs else ""
    return f"Drawn for {' | '.join(each)}.{limit} An arrow is a point mass, as high as it is heavy."


def _formulas(act: Activation | SoftTable) -> list[tuple[str, str]]:
    """Each derivative as text and as LaTeX."""
    if isinstance(act, SoftTable):
        return [(left, act.derivative(order).latex()) for order, left in enumerate(_PRIMES)]
    found = []
    for order, left in enumerate(_PRIMES):
        typeset = formula(act, order)
        where = "".join(rf",\quad {words}" for words in typeset.where)
        found += [(left, closed_form(act, order)), (f"{left}, LaTeX", typeset.latex + where)]
    return found


def _parameters(act: Activation | SoftTable) -> str:
    if not act.params:
        return ""
    rows = "".join(
        f"<dt>{escape(p.name)}</dt><dd>{escape(p.about)}; {escape(p.constraint.words)}, {escape(str(p.default))} by "
        "default</dd>"
        for p in act.params
    )
    return f"<h2>Parameters</h2><dl>{rows}</dl>"
