"""The section 'Beside the paper': a table for each of its measures, the sentences above them and the note below."""

from __future__ import annotations

from collections.abc import Mapping

from .beside import SAME_INTERVAL, TOGETHER
from .numbers import DASH, counted, fixed, interval_words
from .parts import Beside, BesidePaper, Summary
from .tables import Cell, Table, head_of, name_cell

TITLE = "Beside the paper"
COLUMNS = (
    *("activation", "measure", "source", "paper", "average", "value", "low", "high", "seeds", "diverged", "verdict"),
    "record",
)


def beside_tables(summary: Summary) -> list[Table]:
    """Each measure of the paper: its number, ours with its interval, and the verdict."""
    source = summary.recipe.paper.source if summary.recipe.paper else ""
    return [_table(one, source) for one in summary.beside]


def beside_words(summary: Summary) -> list[str]:
    """Who is best in the paper and here, a sentence for each measure."""
    return [one.best for one in summary.beside if one.best]


def beside_note(summary: Summary) -> str:
    """What is done otherwise here than in the paper."""
    return summary.recipe.paper.note if summary.recipe.paper and summary.beside else ""


def beside_lines(summary: Summary) -> list[Mapping[str, object]]:
    """The rows of paper.csv, in the unit that the paper has."""
    source = summary.recipe.paper.source if summary.recipe.paper else ""
    lines = []
    for found in summary.beside:
        for one in found.rows:
            low, high = one.interval or (None, None)
            values = (one.label, found.measure.name, source, one.paper, found.average, one.value, low, high)
            lines.append(dict(zip(COLUMNS, (*values, one.seeds, one.diverged, one.verdict, one.key), strict=True)))
    return lines


def _table(found: BesidePaper, source: str) -> Table:
    counts = not found.average
    rows = tuple(_counted(one) if counts else _scored(one, found) for one in found.rows)
    name, title = f"beside-{found.measure.name}", head_of(found.measure)
    if counts:
        caption = f"{title[0].upper()}{title[1:]} of one model, in the paper ({source}) and here."
        return Table(name=name, caption=caption, head=("activation", "paper", "here", "verdict"), rows=rows)
    taken = f"of {TOGETHER}" if found.average == TOGETHER else f"{found.average} over seeds"
    caption = (
        f"{title[0].upper()}{title[1:]}, in the paper ({source}) and here: {taken} with its 95 % "
        f"interval. “{SAME_INTERVAL}” allows for the rounding of the paper's number."
    )
    if found.average not in ("mean", TOGETHER):
        caption += " Seeds spread over more than a decade: the interval is that of their logarithms."
    head = ("activation", "paper", f"here, {found.average}", "95 % interval", "seeds", "diverged", "verdict")
    return Table(name=name, caption=caption, head=head, rows=rows)


def _scored(one: Beside, found: BesidePaper) -> tuple[Cell, ...]:
    return (
        name_cell(one.label, one.key),
        Cell(text=fixed(one.paper, found.paper_places)),
        Cell(text=DASH if one.value is None else fixed(one.value, found.places), key=one.key),
        Cell(text=interval_words(one.interval, found.places), key=one.key),
        Cell(text=str(one.seeds), title=counted(one.seeds, "seed")),
        Cell(text=str(one.diverged)),
        Cell(text=one.verdict, kind="words"),
    )


def _counted(one: Beside) -> tuple[Cell, ...]:
    ours = DASH if one.value is None else f"{one.value:,.0f}"
    return (
        name_cell(one.label, one.key),
        Cell(text=f"{one.paper:,.0f}"),
        Cell(text=ours, key=one.key),
        Cell(text=one.verdict, kind="words"),
    )
