"""The gallery: a page and a figure for every element-wise function of the zoo, an index, and two pictures of them all.

    softknee gallery                          # docs/zoo
    softknee gallery --only srelu,smelu --out somewhere

Nothing here is written by hand: a changed definition changes its page, and a test holds the pages in the repository
against what is generated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean, BooleanFalse, BooleanTrue

import softknee as sk

from ..design.proof.certificate import Enclosure, Extremum
from ..design.proof.certify import certify
from ..errors import ParameterError
from ..files import make_folder, write_whole
from ..registry import FILE_ENDING
from ..spec import Activation, SoftTable, TableClaims
from ..spec.algebra import Expr, Float, Integer, sympy
from .chart import INK, svg_of
from .figures import (
    DISTINCT,
    Definition,
    Line,
    letter,
    lines_of,
    orders_of,
    panels,
    poster,
    seams_of,
    settings_of,
    shared,
)
from .table import Table
from .typeset import Formula, expression, formula

_SMOOTH = "*Smooth activations and reproducibility in deep networks* (Shamir, Lin and Coviello)"
_MOLLIFIED = "*Reshaping activation functions: a framework based on mollification theory*"
_EAFO = "*A method on searching better activation functions*"


@dataclass(frozen=True)
class Exhibit:
    """The lines of a function's figure and what else its page says.

    settings: the parameters of each line.
    span: the stretch of x.
    shared: parameters that all lines have in common.
    figures: the figures of the papers that show the same family, in words.
    formulas: f, f' and f'' in words of mathematics, for a definition that has no closed form to differentiate.
    place: the |x| at which the distance to the hard limit is largest, in the parameters in their order.
    """

    settings: tuple[Mapping[str, Any], ...] = ()
    span: tuple[float, float] | None = None
    shared: Mapping[str, Any] = field(default_factory=dict)
    figures: str = ""
    formulas: tuple[Formula, ...] = ()
    place: Callable[..., Expr] | None = None


def _along(name: str, *numbers: float) -> tuple[dict[str, float], ...]:
    return tuple({name: number} for number in numbers)


def _paper(figures: str, paper: str, letter: str = "β") -> str:
    return f"The same family as {figures} of {paper}, whose caption names no values of {letter}: those here are ours."


_WIDTHS, _GATES = (0.25, 0.5, 1.0, 2.0), (0.5, 1.0, 2.0, 4.0)
_GATED = _paper("figure 11", _SMOOTH)
_JOINED = _paper("figures 1 and 12", _SMOOTH)
_FIGURE_12 = f"Of the family in figure 12 of {_SMOOTH}."

_PROBABILITY = r"p_i(x) = e^{-\alpha (x - y_i)^2} / \sum_{j=-k}^{k} e^{-\alpha (x - y_j)^2}, \; y_i = i q"
_MEAN = r"m(x) = \sum_{i=-k}^{k} y_i\, p_i(x)"

EXHIBITS: Mapping[str, Exhibit] = {
    "leaky_relu": Exhibit(_along("slope", 0.01, 0.1, 0.25, -0.25), span=(-3, 3)),
    "prelu": Exhibit(_along("slope", 0.25, 0.5, 0.75, -0.25), span=(-3, 3)),
    "rrelu": Exhibit(({}, {"lower": 0.0, "upper": 0.2}, {"lower": 0.25, "upper": 0.75}), span=(-3, 3)),
    "hardtanh": Exhibit(span=(-3, 3)),
    "clamp": Exhibit(({}, {"low": 0.0, "high": 2.0}, {"low": -2.0, "high": 0.5}), span=(-3, 3)),
    "hardswish": Exhibit(span=(-5, 5)),
    "elu": Exhibit(
        _along("beta", *_WIDTHS),
        span=(-5, 2),
        figures=f"SELU with lam = 1; {_SMOOTH} has SELU and CELU in figure 9.",
    ),
    "celu": Exhibit(_along("beta", *_WIDTHS), span=(-5, 2), figures=_paper("figure 9", _SMOOTH)),
    "selu": Exhibit(
        _along("beta", 0.5, 1.0, 1.6732632423543772, 2.5), span=(-5, 2), figures=_paper("figure 9", _SMOOTH)
    ),
    "softplus": Exhibit(
        _along("beta", *_GATES),
        span=(-4, 4),
        figures=_paper("figures 1 and 10", _SMOOTH),
        place=lambda beta: Integer(0),
    ),
    "swish": Exhibit(
        _along("beta", *_GATES),
        span=(-5, 5),
        figures=_GATED,
        place=lambda beta: Float("1.27846454276107380", 17) / beta,
    ),
    "gelu": Exhibit(
        _along("beta", *_GATES),
        span=(-4, 4),
        figures=_GATED,
        place=lambda beta: Float("0.75179152469356445", 17) / beta,
    ),
    "gelu_tanh": Exhibit(_along("beta", *_GATES), span=(-4, 4)),
    "lambda_gelu": Exhibit(
        _along("lam", 1.0, 1.5, 2.5, 5.0),
        span=(-3, 3),
        place=lambda lam: Float("0.75179152469356445", 17) / lam,
    ),
    "mish": Exhibit(_along("beta", *_GATES), span=(-5, 5), figures=_GATED),
    "tanhexp": Exhibit(_along("beta", *_GATES), span=(-5, 5), figures=_GATED),
    "srelu": Exhibit(
        _along("delta", *_WIDTHS),
        span=(-3, 3),
        figures=_paper("figure 1", _MOLLIFIED, "δ"),
        place=lambda delta: Integer(0),
    ),
    "smelu": Exhibit(
        _along("beta", *_WIDTHS),
        span=(-3, 3),
        figures=_JOINED,
        place=lambda beta: Integer(0),
    ),
    "asymmetric_smelu": Exhibit(
        (
            {"alpha": 1.0, "beta": 1.0},
            {"alpha": 0.5, "beta": 2.0},
            {"alpha": 2.0, "beta": 1.0},
            {"alpha": 0.25, "beta": 0.75},
        ),
        span=(-3, 3),
        figures=_FIGURE_12,
    ),
    "leaky_smelu": Exhibit(_along("beta", *_WIDTHS), shared={"g_minus": 0.1}, span=(-3, 3), figures=_FIGURE_12),
    "shifted_smelu": Exhibit(_along("shift", -1.0, 0.0, 1.0), shared={"beta": 0.5}, span=(-3, 3), figures=_FIGURE_12),
    "generalized_smelu": Exhibit(
        ({}, {"alpha": 0.5, "beta": 2.0}, {"g_minus": -0.25}, {"g_plus": 1.5, "t": 0.5}),
        span=(-3, 3),
        figures=f"The family of figure 12 of {_SMOOTH}, whose caption names no values: those here are ours.",
    ),
    "origin_smelu": Exhibit(
        ({}, {"alpha": 0.5, "beta": 0.5}, {"alpha": 0.5, "beta": 2.0}, {"g_minus": 0.25}),
        span=(-3, 3),
        figures=_FIGURE_12,
    ),
    "sigmoid_rescu": Exhibit(
        _along("beta", *_WIDTHS),
        span=(-4, 3),
        figures=_paper("figure 12", _SMOOTH),
        place=lambda beta: Integer(0),
    ),
    "smooth_relu": Exhibit(_along("beta", 0.5, 1.0, 2.0, 5.0), span=(-2, 6), figures=_paper("figure 12", _SMOOTH)),
    "crrelu": Exhibit(
        _along("eps", -0.5, 0.01, 0.3, 0.6, 1.0),
        span=(-5, 5),
        figures=_paper("figure 3", _EAFO, "ε"),
        place=lambda eps: Integer(1),
    ),
    "crrelu_exact": Exhibit(_along("eps", -0.5, 0.01, 0.3, 0.6), span=(-5, 5)),
    "tanh": Exhibit(span=(-5, 5)),
    "sigmoid": Exhibit(span=(-8, 8)),
    "softsign": Exhibit(span=(-6, 6)),
    "hardsigmoid": Exhibit(span=(-5, 5)),
    "sparse_sigmoid": Exhibit(span=(-3, 3)),
    "laplace": Exhibit(({}, {"sigma": 0.5}, {"mu": 0.0, "sigma": 0.5}, {"mu": 0.0, "sigma": 1.0}), span=(-3, 3)),
    "gelu_10": Exhibit(span=(-4, 14)),
    "quick_gelu": Exhibit(
        span=(-4, 4),
        place=lambda beta: Float("1.27846454276107380", 17) / beta,
    ),
    "hard_mish": Exhibit(span=(-4, 4)),
    "logsigmoid": Exhibit(span=(-6, 6)),
    "squareplus": Exhibit(
        _along("delta", 0.5, 1.0, 2.0, 4.0),
        span=(-4, 4),
        place=lambda delta: Integer(0),
    ),
    "softshrink": Exhibit(_along("lam", 0.25, 0.5, 1.0), span=(-3, 3)),
    "hardshrink": Exhibit(_along("lam", 0.25, 0.5, 1.0), span=(-3, 3)),
    "tanhshrink": Exhibit(span=(-4, 4)),
    "threshold": Exhibit(({}, {"theta": 0.5}, {"theta": 0.0, "value": -1.0}), span=(-3, 3)),
    "relu2": Exhibit(span=(-2, 3)),
    "star_relu": Exhibit(({}, {"scale": 0.5, "bias": 0.0}), span=(-2, 3)),
    "xielu": Exhibit(({}, {"alpha_n": 0.5}, {"alpha_p": 0.25, "alpha_n": 1.5}), span=(-4, 3)),
    "squaf": Exhibit(
        _along("alpha", 2.0, 6.0, 12.0),
        shared={"k": 6, "q": 0.5, "z": "relu", "window": None},
        span=(-2, 5),
        formulas=(
            Formula(r"\sum_{i=-k}^{k} z_i\, p_i(x)", (_PROBABILITY,)),
            Formula(r"2 \alpha \sum_{i=-k}^{k} (z_i - f(x))\, (y_i - m(x))\, p_i(x)", (_PROBABILITY, _MEAN)),
            Formula(r"4 \alpha^2 \sum_{i=-k}^{k} (z_i - f(x))\, (y_i - m(x))^2\, p_i(x)", (_PROBABILITY, _MEAN)),
        ),
    ),
}


def exhibit(name: str) -> Exhibit:
    """What the gallery shows of a function; the defaults where `EXHIBITS` has no entry."""
    return EXHIBITS.get(name, Exhibit())


_DIGITS = 12  # of a number that goes on; the certificate itself knows more
_MOST_PLACES = 2
_PROVED = "Proved by interval arithmetic (`sk.design.certify`), for exactly these parameters."


def certified(act: Definition, settings: Sequence[Mapping[str, Any]]) -> str:
    """What `design.certify` proves of the lines that are drawn."""
    if isinstance(act, SoftTable):
        return ""
    # Decimal texts are taken exactly: a slope of 0.1 is a tenth, not the float next to it.
    texts: list[dict[str, Any]] = [{name: str(value) for name, value in setting.items()} for setting in settings]
    proofs = [certify(act, **values) for values in texts]
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
    for values, proof in zip(settings, proofs, strict=True):
        equations = ", ".join(inline(f"{letter(act, name)} = {value:.10g}") for name, value in values.items())
        cells = [equations or "defaults", _extreme(proof.smallest_slope), _extreme(proof.lipschitz)]
        if limit:
            cells += [_extreme(proof.distance), _places(proof.distance)] if proof.distance else ["not settled", ""]
        rows.append(cells)
    if len(settings) == 1 and not act.params:
        head, rows = head[1:], [row[1:] for row in rows]
    return f"## Certified\n\n{_PROVED}\n\n{_table(head, rows)}\n{still_open}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return Table(head=head, rows=rows, align="l" * len(head), markup=True).markdown()


def inline(latex: str) -> str:
    """Mathematics inside a sentence."""
    return f"$`{latex}`$"


def _extreme(value: Extremum) -> str:
    if math.isnan(float(value)):
        return "not settled"
    return _digits(value) + (" (not reached)" if value.attained is False else "")


def _places(value: Extremum) -> str:
    shown = [
        _digits(place.begin) if place.is_point else f"{_digits(place.begin)} to {_digits(place.end)}"
        for place in value.places[:_MOST_PLACES]
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


INDEX, ALL, RELATIVES = "README.md", "all.svg", "relatives.svg"
# Figure 8 of the SmeLU paper, in two rows: what stays on ReLU or above it, and what dips below.
_ABOVE = ("softplus", "smelu", "srelu", "sigmoid_rescu")
_BELOW = ("swish", "gelu", "mish", "tanhexp", "celu", "smooth_relu")


def names() -> tuple[str, ...]:
    """The functions that have a page: every definition of one variable under its own name."""
    definitions = ((name, sk.get(name)) for name in sk.names())
    return tuple(name for name, act in definitions if isinstance(act, Definition) and act.name == name)


def write(
    out: str | PathLike[str], *, only: Sequence[str] = (), report: Callable[[str], None] = lambda name: None
) -> list[Path]:
    """Write the pages and their figures into a folder, made if need be; the index too, unless `only` names some.

    only: names, or files that hold a definition.
    """
    chosen = [sk.get(name) for name in only or names()]
    for name, act in zip(only, chosen, strict=False):
        if not isinstance(act, Definition):
            raise ParameterError(
                f"{name} is a function of whole rows, which has no curve to draw; leave it out of --only."
            )
    folder = make_folder(out, what="pages")
    written = []
    for name, act in zip(only or names(), chosen, strict=True):
        report(act.name)
        written.append(write_whole(folder / f"{act.name}.svg", figure(act), what="figure"))
        content = page(act, settings(act), file=Path(name).name if name.endswith(FILE_ENDING) else "")
        written.append(write_whole(folder / f"{act.name}.md", content, what="page"))
    if not only:
        report("index")
        written.append(write_whole(folder / ALL, everything(), what="figure"))
        written.append(write_whole(folder / RELATIVES, relatives(), what="figure"))
        written.append(write_whole(folder / INDEX, index(), what="page"))
    return written


def settings(act: Definition) -> list[dict[str, Any]]:
    """The parameters of each line of a function's figure."""
    shown = exhibit(act.name)
    return [{**shown.shared, **setting} for setting in shown.settings] or settings_of(act, shown.shared)


def figure(act: Definition) -> str:
    """The figure of a function as SVG."""
    shown, chosen = exhibit(act.name), settings(act)
    low, high = shown.span or (None, None)
    drawn = panels([lines_of(act, chosen)], low=low, high=high, note=shared(chosen))
    return svg_of(drawn, label=f"{act.name}, its first and its second derivative", dark=True)


def index() -> str:
    """The table of all functions."""
    rows = []
    for name in names():
        act = sk.get(name)
        limit = "" if isinstance(act, SoftTable) or act.limit is None else f"[{act.limit}]({act.limit}.md)"
        knob = ", ".join(f"`{knob}`" for knob in act.knobs)
        toward = "" if not knob else " → ∞" if act.toward == math.inf else f" → {act.toward:g}"
        smooth = smoothness(act.claims.smoothness) if act.claims is not None else ""
        rows.append([f"[{title_of(act)}]({name}.md)", f"`{name}`", f"{knob}{toward}", limit, smooth, cell(act.about)])
    table = _table(["function", "name", "knob", "hard limit", "continuous derivatives", ""], rows)
    return f"""# The zoo

Every function of one variable that softknee knows, each with its formula, its first two derivatives, its parameters and
what is claimed and proved of it. These pages are made from the definitions by `softknee gallery`, which needs the
extras `lab` (it draws) and `design` (it proves).

![Every function and its slope]({ALL})

*f in blue and f′ in orange, for x from −4 to 4 and values from −1.5 to 4, with hairlines at x = ±2 and at the value 2.*

{table}
## Side by side

![Smooth relatives of ReLU at one scale]({RELATIVES})

*The smooth relatives of ReLU with their parameter at 1: above, those that stay on ReLU or over it; below, those that go
under it. The comparison of figure 8 of* Smooth activations and reproducibility in deep networks *(Shamir, Lin and
Coviello), with the second derivative added.*
"""


def everything() -> str:
    """All functions and their slopes on one sheet, as SVG."""
    shown = {}
    for name in names():
        several = settings(sk.get(name))
        shown[name] = sk.get(name), several[len(several) // 2]
    return svg_of(poster(shown), label="Every function of the zoo and its slope", dark=True)


def relatives() -> str:
    """The smooth relatives of ReLU in common panels, as SVG."""
    rows = []
    for group in (_ABOVE, _BELOW):
        colours = (*DISTINCT[: len(group)], INK)
        acts = [(sk.get(name), colour) for name, colour in zip((*group, "relu"), colours, strict=True)]
        values = [dict.fromkeys(act.knobs, 1.0) for act, _ in acts]
        rows.append(
            [
                Line(act.name, orders_of(act, at_one), seams_of(act, at_one), colour, dotted=act.name == "relu")
                for (act, colour), at_one in zip(acts, values, strict=True)
            ]
        )
    label = "Smooth relatives of ReLU, their first and second derivatives"
    return svg_of(panels(rows, low=-4, high=4), label=label, dark=True)


def page(act: Definition, settings: Sequence[Mapping[str, Any]], *, file: str = "") -> str:
    """The whole page; of a definition without a name of its own `file` is where it is."""
    shown = exhibit(act.name)
    formulas = [formula_of(act, order) for order in range(3)]
    value, slope, bend = (
        f"```math\nf{order * chr(39)}(x) = {formula.latex}\n```" for order, formula in enumerate(formulas)
    )
    others = [f"`{name}`" for name in sk.names() if name != act.name and sk.get(name) is act]
    aliases = f" Also known as {', '.join(others)}." if others else ""
    parts = [
        f"# {title_of(act)}\n\n{act.about}{aliases}",
        f"![{act.name}, its first and its second derivative]({act.name}.svg)\n\n{_caption(act, shown)}",
        f"## Formula\n\n{value}\n\n{_where(formulas[:1])}",
        _parameters(act),
        _limit(act, shown, linked=not file),
        _claims(act),
        certified(act, settings),
        f"## Derivatives\n\n{slope}\n\n{bend}\n\n{_where(formulas[1:])}",
        _use(act, settings, file or act.name),
    ]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def title_of(act: Definition) -> str:
    """What people call it: the name of its module."""
    module = type(sk.nn.make(act))
    return "SQUAF" if isinstance(act, SoftTable) else act.name if module is sk.nn.Pointwise else module.__name__


def cell(text: str) -> str:
    """Text that may stand in a table: a bar would end the cell."""
    return text.replace("|", "\\|")


def smoothness(count: float) -> str:
    """How many derivatives are continuous, in a word."""
    if count < 0:
        return "none, it jumps"
    return "all" if count == math.inf else f"{count:g}"


# -- formulas ---------------------------------------------------------------------------------------------


def formula_of(act: Definition, order: int, at: Mapping[str, float] | None = None) -> Formula:
    """f, f' or f'' typeset, for parameters near `at` where it hangs on them; a table has those of its exhibit."""
    if isinstance(act, Activation):
        return formula(act, order, at)
    formulas = exhibit(act.name).formulas
    return formulas[order] if formulas else Formula(act.derivative(order).latex().partition(" = ")[2])


def _where(formulas: Sequence[Formula]) -> str:
    words = list(dict.fromkeys(text for formula in formulas for text in formula.where))
    return f"with {'; '.join(inline(text) for text in words)}." if words else ""


# -- sections ---------------------------------------------------------------------------------------------


def _caption(act: Definition, shown: Exhibit) -> str:
    limit = "" if not act.knobs else " Dotted: what it becomes at the end of its knob."
    arrows = ""
    if isinstance(act, Activation) and act.claims is not None and act.claims.smoothness == 0:
        arrows = " A kink of f is a point mass of f″: an arrow as high as the mass."
    elif act.knobs and not isinstance(act, SoftTable):
        arrows = " The arrow is the point mass that the kink of the limit is in f″."
    return f"*Solid: f, f′ and f″.{limit}{arrows}* {shown.figures}".strip()


def _parameters(act: Definition) -> str:
    if not act.params:
        return ""
    rows = []
    for p in act.params:
        start = f"{p.default:.10g}" if isinstance(p.default, int | float) else f"`{p.default!r}`"
        rows.append([f"`{p.name}`", inline(letter(act, p.name)), p.constraint.words, start, p.about])
    table = _table(["name", "sign", "must be", "default", "meaning"], rows)
    options = ""
    if isinstance(act, SoftTable):
        options = f"\nA call may also choose, with these defaults: {_values(act.options)}."
    elif act.presets:
        options = "\n" + "\n".join(
            f"`sk.nn.make({act.name!r}, preset={name!r})` has {_values(preset)}.".replace("'", '"')
            for name, preset in act.presets.items()
        )
    return f"## Parameters\n\n{table}{options}"


def _values(values: Mapping[str, Any]) -> str:
    return ", ".join(f"`{name}={value!r}`" for name, value in values.items())


def _limit(act: Definition, shown: Exhibit, *, linked: bool = True) -> str:
    if not act.knobs:
        return ""
    letters = ", ".join(letter(act, name) for name in act.knobs)
    end = r"\infty" if act.toward == math.inf else f"{act.toward:g}"
    knob = inline(rf"{letters} \to {end}")
    if isinstance(act, SoftTable) or act.limit is None:
        return f"## Hard limit\n\nAs {knob} it goes to the dotted line at every x."
    sharing = "".join(f" with `{theirs}` = `{ours}`" for theirs, ours in act.limit_params.items())
    hard = f"[{act.limit}]({act.limit}.md)" if linked else f"`{act.limit}`"
    text = f"As {knob} it becomes {hard}{sharing}."
    distance = act.claims.distance if act.claims is not None else None
    if distance is not None and not distance.has(sympy.oo):
        text += f" The largest distance between the two is {inline(expression(distance, act))}"
        place = expression(shown.place(*(p.symbol for p in act.params)), act) if shown.place else ""
        text += f", at {inline(f'x = {place}' if place == '0' else f'|x| = {place}')}." if place else "."
    return f"## Hard limit\n\n{text}"


def _claims(act: Definition) -> str:
    claims = act.claims
    if claims is None:
        return ""
    rows = [
        ("continuous derivatives", smoothness(claims.smoothness)),
        ("never decreases", _condition(claims.monotone, act)),
        ("Lipschitz constant", _constant(claims.lipschitz, act)),
    ]
    if claims.zeros is not sympy.S.EmptySet:
        rows.append(("exactly 0", inline(rf"x \in {expression(claims.zeros, act)}")))
    notes = claims.notes if isinstance(claims, TableClaims) else {}
    keys = {"continuous derivatives": "smoothness", "never decreases": "monotone", "Lipschitz constant": "lipschitz"}
    lines = [[name, value, *([cell(notes.get(keys.get(name, ""), ""))] if notes else [])] for name, value in rows]
    table = _table([""] * len(lines[0]), lines)
    return f"## Claims\n\n{table}\nThe tests hold every claim against the function."


def _condition(monotone: Any, act: Definition) -> str:
    if isinstance(monotone, bool | BooleanTrue | BooleanFalse):
        return "yes" if monotone else "no"
    assert isinstance(monotone, Relational | Boolean)
    return f"where {inline(expression(monotone, act))}"


def _constant(value: Any, act: Definition) -> str:
    if value.is_Float:
        return f"{float(value):.12g}"
    near = f" ≈ {float(value):.12g}" if value.is_number and not value.is_Rational else ""
    return f"{inline(expression(value, act))}{near}"


def _use(act: Definition, settings: Sequence[Mapping[str, Any]], name: str) -> str:
    def code(value: Any) -> str:
        return repr(value).replace("'", '"')

    def can_start(values: Mapping[str, Any]) -> bool:
        """Whether learned parameters may start there: lambda may be 1, and is learned from above it."""
        numbers = {p: values[p.name] for p in act.params if isinstance(values.get(p.name), float)}
        return all(p.constraint.allows_learned(value) for p, value in numbers.items())

    usual = {p.name: p.default for p in act.params}
    starts = [setting for setting in settings if setting and can_start(setting)]
    values = next((setting for setting in starts if setting.items() <= usual.items()), next(iter(starts), {}))
    given = ", ".join(f"{name}={code(value)}" for name, value in values.items())
    comma = ", " if given else ""
    knob = act.knobs[0] if act.knobs else (act.params[0].name if act.params else "")
    learn = ", learn=True" if isinstance(act, SoftTable) else f", learn={code(knob)}" if knob else ""
    module = type(sk.nn.make(act))
    lines = ["import torch", "import softknee as sk", "", "x = torch.randn(8, 64)"]
    lines += [f'act = sk.get("{name}")', f"y = act(x{comma}{given})"]
    lines += [f"slope = act.derivative(1)(x{comma}{given})"]
    if isinstance(act, Activation) and module is not sk.nn.Pointwise:
        lines += [f"m = sk.nn.{module.__name__}({given})"]
    lines += [f'm = sk.nn.make("{name}"{comma}{given}{learn})']
    return "## Use\n\n```python\n" + "\n".join(lines) + "\n```"
