"""The page of one function, as Markdown with LaTeX in the fences that GitHub and GitLab leave alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean, BooleanFalse, BooleanTrue

import softknee as sk

from ..spec import Activation, SoftTable, TableClaims
from ..spec.algebra import sympy
from .exhibits import Exhibit, exhibit
from .figure_lines import Definition, letter
from .gallery_proof import certified, inline
from .typeset import Formula, expression, formula


def page(act: Definition, settings: Sequence[Mapping[str, Any]]) -> str:
    """The whole page."""
    shown = exhibit(act.name)
    formulas = [_formula(act, shown, order) for order in range(3)]
    parts = [
        f"# {title_of(act)}\n\n{act.about}{_aliases(act)}",
        f"![{act.name}, its first and its second derivative]({act.name}.svg)\n\n{_caption(act, shown)}",
        f"## Formula\n\n{_math(0, formulas[0])}\n\n{_where(formulas[:1])}",
        _parameters(act),
        _limit(act, shown),
        _claims(act),
        certified(act, settings),
        f"## Derivatives\n\n{_math(1, formulas[1])}\n\n{_math(2, formulas[2])}\n\n{_where(formulas[1:])}",
        _use(act, settings),
    ]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def title_of(act: Definition) -> str:
    """What people call it: the name of its module."""
    module = type(sk.nn.make(act.name))
    return "SQUAF" if isinstance(act, SoftTable) else act.name if module is sk.nn.Pointwise else module.__name__


def _aliases(act: Definition) -> str:
    others = [f"`{name}`" for name in sk.names() if name != act.name and sk.get(name) is act]
    return f" Also known as {', '.join(others)}." if others else ""


def cell(text: str) -> str:
    """Text that may stand in a table: a bar would end the cell."""
    return text.replace("|", "\\|")


def smoothness(count: float) -> str:
    """How many derivatives are continuous, in a word."""
    if count < 0:
        return "none, it jumps"
    return "all" if count == math.inf else f"{count:g}"


# -- formulas ---------------------------------------------------------------------------------------------


def _formula(act: Definition, shown: Exhibit, order: int) -> Formula:
    if isinstance(act, Activation):
        return formula(act, order)
    return shown.formulas[order] if shown.formulas else Formula(act.derivative(order).latex().partition(" = ")[2])


def _math(order: int, one: Formula) -> str:
    primes = "'" * order
    return f"```math\nf{primes}(x) = {one.latex}\n```"


def _where(formulas: Sequence[Formula]) -> str:
    words = list(dict.fromkeys(one for formula in formulas for one in formula.where))
    return f"with {'; '.join(inline(one) for one in words)}." if words else ""


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
    rows = [
        f"| `{p.name}` | {inline(letter(act, p.name))} | {p.constraint.words} | {_number(p.default)} | {p.about} |"
        for p in act.params
    ]
    table = "\n".join(["| name | sign | must be | default | meaning |", "| --- | --- | --- | --- | --- |", *rows])
    options = ""
    if isinstance(act, SoftTable):
        given = ", ".join(f"`{name}={value!r}`" for name, value in act.options.items())
        options = f"\n\nA call may also choose, with these defaults: {given}."
    return f"## Parameters\n\n{table}{options}"


def _number(value: Any) -> str:
    return f"{value:.10g}" if isinstance(value, int | float) else f"`{value!r}`"


def _limit(act: Definition, shown: Exhibit) -> str:
    if not act.knobs:
        return ""
    letters = ", ".join(letter(act, name) for name in act.knobs)
    end = r"\infty" if act.toward == math.inf else f"{act.toward:g}"
    knob = inline(rf"{letters} \to {end}")
    if isinstance(act, SoftTable) or act.limit is None:
        return f"## Hard limit\n\nAs {knob} it goes to the dotted line at every x."
    given = "".join(f" with `{theirs}` = `{ours}`" for theirs, ours in act.limit_params.items())
    text = f"As {knob} it becomes [{act.limit}]({act.limit}.md){given}."
    if shown.distance is not None:
        symbols = [p.symbol for p in act.params]
        text += f" The largest distance between the two is {inline(expression(shown.distance(*symbols), act))}"
        text += f", at {_place(expression(shown.place(*symbols), act))}." if shown.place else "."
    return f"## Hard limit\n\n{text}"


def _place(latex: str) -> str:
    return inline(f"x = {latex}" if latex == "0" else f"|x| = {latex}")


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
    said = {"continuous derivatives": "smoothness", "never decreases": "monotone", "Lipschitz constant": "lipschitz"}
    lines = [[name, value, *([cell(notes.get(said.get(name, ""), ""))] if notes else [])] for name, value in rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    head = "| | | |\n| --- | --- | --- |" if notes else "| | |\n| --- | --- |"
    return f"## Claims\n\n{head}\n{table}\n\nThe tests hold every claim against the function."


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


def _code(value: Any) -> str:
    return repr(value).replace("'", '"')


def _can_start(act: Definition, values: Mapping[str, Any]) -> bool:
    """Whether a learned parameter may start there: lambda may be 1, and is learned from above it."""
    numbers = {p: values[p.name] for p in act.params if isinstance(values.get(p.name), float)}
    return all(p.constraint.allows_learned(value) for p, value in numbers.items())


def _use(act: Definition, settings: Sequence[Mapping[str, Any]]) -> str:
    values = next((one for one in settings if one and _can_start(act, one)), {})
    given = ", ".join(f"{name}={_code(value)}" for name, value in values.items())
    comma = ", " if given else ""
    knob = act.knobs[0] if act.knobs else (act.params[0].name if act.params else "")
    learn = ", learn=True" if isinstance(act, SoftTable) else f", learn={_code(knob)}" if knob else ""
    module = type(sk.nn.make(act.name))
    lines = ["import torch", "import softknee as sk", "", "x = torch.randn(8, 64)"]
    lines += [f'act = sk.get("{act.name}")', f"y = act(x{comma}{given})"]
    lines += [f"slope = act.derivative(1)(x{comma}{given})"]
    if isinstance(act, Activation) and module is not sk.nn.Pointwise:
        lines += [f"m = sk.nn.{module.__name__}({given})"]
    lines += [f'm = sk.nn.make("{act.name}"{comma}{given}{learn})']
    return "## Use\n\n```python\n" + "\n".join(lines) + "\n```"
