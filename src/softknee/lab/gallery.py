"""The gallery: a page and a figure for every element-wise function of the zoo, an index, and two pictures of them all.

    softknee gallery                          # docs/zoo
    softknee gallery --only srelu,smelu --out somewhere

Nothing here is written by hand: a changed definition changes its page, and a test holds the pages in the repository
against what is generated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import softknee as sk

from ..errors import ParameterError
from ..files import WriteError, write_whole
from ..spec import Activation, SoftTable
from .chart import svg_of
from .curves import orders_of, seams_of
from .exhibits import exhibit
from .figure_lines import DISTINCT, Definition, Line, lines_of, settings_of, shared
from .figure_panels import panels, poster
from .gallery_page import cell, page, smoothness, title_of

INDEX, ALL, BESIDE = "README.md", "all.svg", "beside.svg"
# Figure 8 of the SmeLU paper, in two rows: what stays on ReLU or above it, and what dips below.
_ABOVE = ("softplus", "smelu", "srelu", "sigmoid_rescu")
_BELOW = ("swish", "gelu", "mish", "tanhexp", "celu", "smooth_relu")


def names() -> tuple[str, ...]:
    """The functions that have a page: every definition of one variable under its own name."""
    found = ((name, sk.get(name)) for name in sk.names())
    return tuple(name for name, act in found if isinstance(act, Definition) and act.name == name)


def write(
    out: str | PathLike[str], *, only: Sequence[str] = (), report: Callable[[str], None] = lambda name: None
) -> list[Path]:
    """Write the pages and their figures into a folder, made if need be; the index too, unless `only` names some."""
    folder = Path(out)
    chosen = [_drawable(name) for name in only] or [sk.get(name) for name in names()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"The folder '{folder}' could not be made ({error.strerror or error}).") from error
    written = []
    for act in chosen:
        report(act.name)
        written.append(write_whole(folder / f"{act.name}.svg", figure(act), what="figure"))
        written.append(write_whole(folder / f"{act.name}.md", page(act, settings(act)), what="page"))
    if not only:
        report("index")
        written.append(write_whole(folder / ALL, everything(), what="figure"))
        written.append(write_whole(folder / BESIDE, side_by_side(), what="figure"))
        written.append(write_whole(folder / INDEX, index(), what="page"))
    return written


def _drawable(name: str) -> Definition:
    act = sk.get(name)
    if not isinstance(act, Definition):
        raise ParameterError(f"{name} is a function of whole rows, which has no curve to draw; leave it out of --only.")
    return act


def settings(act: Definition) -> list[dict[str, Any]]:
    """The parameters of each line of a function's figure."""
    shown = exhibit(act.name)
    return [{**shown.shared, **one} for one in shown.settings] or settings_of(act, shown.shared)


def figure(act: Definition) -> str:
    """The figure of a function as SVG."""
    shown, chosen = exhibit(act.name), settings(act)
    drawn = panels([lines_of(act, chosen)], low=shown.low, high=shown.high, note=shared(act, chosen))
    return svg_of(drawn, label=f"{act.name}, its first and its second derivative")


def index() -> str:
    """The table of all functions."""
    rows = []
    for name in names():
        act = sk.get(name)
        limit = "" if isinstance(act, SoftTable) or act.limit is None else f"[{act.limit}]({act.limit}.md)"
        knob = ", ".join(f"`{one}`" for one in act.knobs)
        toward = "" if not knob else " → ∞" if act.toward == math.inf else f" → {act.toward:g}"
        smooth = smoothness(act.claims.smoothness) if act.claims is not None else ""
        rows.append(
            f"| [{title_of(act)}]({name}.md) | `{name}` | {knob}{toward} | {limit} | {smooth} | {cell(act.about)} |"
        )
    table = "\n".join(rows)
    return f"""# The zoo

Every function of one variable that softknee knows, each with its formula, its first two derivatives, its parameters and
what is claimed and proved of it. These pages are made from the definitions by `softknee gallery`, which needs the
extras `lab` (it draws) and `design` (it proves).

![Every function and its slope]({ALL})

*f in blue and f′ in orange, for x from −4 to 4 and values from −1.5 to 4, with hairlines at x = ±2 and at the value 2.*

| function | name | knob | hard limit | continuous derivatives | |
| --- | --- | --- | --- | --- | --- |
{table}

## Side by side

![Smooth relatives of ReLU at one scale]({BESIDE})

*The smooth relatives of ReLU with their parameter at 1: above, those that stay on ReLU or over it; below, those that go
under it. The comparison of figure 8 of* Smooth activations and reproducibility in deep networks *(Shamir, Lin and
Coviello), with the second derivative added.*
"""


def everything() -> str:
    """All functions and their slopes on one sheet, as SVG."""
    shown = {name: (sk.get(name), _middle(settings(sk.get(name)))) for name in names()}
    return svg_of(poster(shown), label="Every function of the zoo and its slope")


def _middle(several: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return several[len(several) // 2]


def side_by_side() -> str:
    """The smooth relatives of ReLU in common panels, as SVG."""
    rows = [
        [_at_one(name, colour) for name, colour in zip(group, DISTINCT, strict=False)] for group in (_ABOVE, _BELOW)
    ]
    limit = sk.get("relu")
    for lines in rows:
        lines.append(Line("relu", orders_of(limit, {}), seams_of(limit, {}), dotted=True))
    return svg_of(panels(rows, low=-4, high=4), label="Smooth relatives of ReLU, their first and second derivatives")


def _at_one(name: str, colour: str) -> Line:
    act: Activation = sk.get(name)
    values = dict.fromkeys(act.knobs, 1.0)
    return Line(name, orders_of(act, values), seams_of(act, values), colour)
