"""The section 'Beside the paper' of a study's report, for a page of one's own: headings, no links to records."""

from __future__ import annotations

from ...errors import DataError
from ..report import summarise
from ..report.beside_tables import beside_note, beside_tables, beside_words
from ..report.markdown import escaped
from ..report.tables import Table
from .runs import Run


def tables_of(run: Run) -> str:
    """Every number of the paper with ours beside it, in Markdown; what is missing is said below."""
    summary = summarise(run.recipe, [fit.outcome for fit in run.fits])
    if run.recipe.paper is None or not summary.beside:
        raise DataError(f"The recipe of '{run.url}' names no numbers of a paper ('paper:'), so that there is no table.")
    parts = [f"### {escaped(run.recipe.title or run.name)}"]
    parts.append("\n".join(f"- {escaped(words)}" for words in beside_words(summary)))
    parts += [_markdown(table) for table in beside_tables(summary)]
    parts.append(escaped(beside_note(summary)))
    parts += [f"> {escaped(note)}" for note in run.notes]
    return "\n\n".join(part for part in parts if part)


def _markdown(table: Table) -> str:
    rule = "|".join("---:" if cell.kind == "number" else ":---" for cell in table.rows[0])
    lines = [[escaped(words) for words in table.head], *([escaped(cell.text) for cell in row] for row in table.rows)]
    head, *rows = ("| " + " | ".join(line) + " |" for line in lines)
    return "\n".join([head, f"|{rule}|", *rows]) + f"\n\n{escaped(table.caption)}"
