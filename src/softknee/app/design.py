"""What `softknee design` does: a text becomes a definition, which is printed, drawn and saved."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

import sympy
from rich.console import Console

from ..design import definition
from ..design.texts.files import load
from ..design.texts.files import save as save_definition
from ..errors import FormulaError, MissingToolError, ParameterError, SoftkneeError
from ..lab.table import Table
from ..registry import FILE_ENDING
from ..spec import Activation, FiniteLeft, Line
from ..spec.text import write
from .screen import console_of, progress_line


def run(text: str, *, param: Sequence[str], name: str | None, plot: Path | None, save: Path | None) -> None:
    """Print the definition; draw it to `plot` (an empty path means NAME.html here) and save it."""
    act = _definition(text, param, name)
    print_design(act)
    console = console_of()
    if plot is not None:
        from ..lab import figures

        with progress_line("drawing"):
            drawn = figures.draw(act, plot if plot.name else Path(f"{act.name}.html"))
        console.print(f"\nThe curves of f, f' and f'' are in {drawn.name}.", markup=False)
    if save is not None:
        written = save_definition(act, save)
        console.print(f'Saved; softknee.load("{written.name}") gives it back.', markup=False)


def _definition(text: str, param: Sequence[str], name: str | None) -> Activation:
    params: dict[str, str] = {}
    for option in param:
        key, equals, value = option.partition("=")
        if not equals or key.strip() in params:
            raise ParameterError(
                f"--param takes a name and a number, as in beta=1.0, each name once; {option!r} is not."
            )
        params[key.strip()] = value.strip()
    if text.strip().endswith(FILE_ENDING):
        if params:
            raise ParameterError("A file has its parameters already; leave --param out.")
        act = load(text.strip())
        return act if name is None else act.with_(name=name)
    return definition(text, params=params, name=name)


_INDENT = 2


def print_design(act: Activation) -> None:
    """LaTeX, the closed form as a formula and as a text, the parameters, and the certificate."""
    console = console_of()
    console.print(act.name, style="bold", markup=False)
    if act.recipe:
        console.print(f"from {act.recipe}", style="dim", markup=False, soft_wrap=True)
    _section(console, "LaTeX", act.latex())
    _section(console, "closed form", _pretty(act, console.width - _INDENT))
    try:
        _section(console, "as a text", write(act.formula))
    except FormulaError as error:
        _section(console, "as a text", str(error))
    _parameters(console, act)
    with progress_line("proving"):
        proved = _certificate(act)
    title, _, rows = proved.partition("\n")
    _section(console, title if rows else "certificate", textwrap.dedent(rows) or title)


def _section(console: Console, title: str, text: str) -> None:
    console.print(f"\n{title}", style="bold", markup=False)
    for line in text.splitlines():
        # Never wrapped: what is copied from the terminal must stay whole.
        console.print(" " * _INDENT + line, markup=False, soft_wrap=True)


def _pretty(act: Activation, width: int) -> str:
    formula = act.formula.replace(Line, lambda g, u: g * u).replace(FiniteLeft, lambda u: u)
    return sympy.pretty(formula, use_unicode=True, num_columns=width)


def _parameters(console: Console, act: Activation) -> None:
    if not act.params:
        return
    console.print()
    head = ("parameter", "default", "allowed", "what it is")
    rows = [(p.name, f"{p.default:g}", p.constraint.words, p.about) for p in act.params]
    console.print(Table(head=head, rows=rows, align="llll").terminal())
    for name, preset in act.presets.items():
        values = ", ".join(f"{key}={value:g}" for key, value in preset.items())
        console.print(f'preset="{name}" has {values}', markup=False)


def _certificate(act: Activation) -> str:
    """What was proved at the default parameters, or the sentence that says why there is nothing."""
    from ..design.proof.certify import certify

    try:
        return str(certify(act))
    except MissingToolError as error:
        return str(error)
    except SoftkneeError as error:
        return f"Nothing was proved: {error}"
