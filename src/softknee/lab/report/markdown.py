"""The report as Markdown: the answers, every table, and how to run it again."""

from __future__ import annotations

import re

from .beside_tables import TITLE, beside_note, beside_tables, beside_words
from .clicks import relative_losses
from .origin import Origin
from .parts import Summary
from .tables import Cell, Table, every_table

_SIGNS = re.compile(r"([\\`*_{}\[\]<>#|~$])")


def markdown(summary: Summary, origin: Origin) -> str:
    """The whole text. The name of a row leads to its record."""
    parts = [f"# {escaped(summary.recipe.title or summary.recipe.name)}"]
    parts.append(
        "\n".join(f"- {one.question}: **{escaped(one.label)}**{escaped(one.words)}" for one in summary.sentences)
    )
    parts += [f"> {escaped(note)}" for note in summary.notes]
    parts += [_table(table) for table in every_table(summary)]
    parts += [_table(found)] if (found := relative_losses(summary)) else []
    if summary.beside:
        parts.append(f"## {TITLE}")
        parts.append("\n".join(f"- {escaped(words)}" for words in beside_words(summary)))
        parts += [_table(table) for table in beside_tables(summary)]
        parts.append(escaped(beside_note(summary)))
    parts.append("## Run it again")
    parts.append(_fenced(origin.command))
    parts.append("\n".join(f"- {name}: {escaped(words)}" for name, words in origin.facts()))
    parts.append(_fenced(origin.recipe.rstrip(), "yaml"))
    return "\n\n".join(part for part in parts if part) + "\n"


def escaped(text: str) -> str:
    """Text of the user's own, of which Markdown reads nothing as its own signs."""
    return _SIGNS.sub(r"\\\1", " ".join(text.split()))


def _fenced(text: str, kind: str = "") -> str:
    """Between more backticks than the text has in a row."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{kind}\n{text}\n{fence}"


def _table(table: Table) -> str:
    kinds = [cell.kind for cell in table.rows[0]]
    head = "| " + " | ".join(escaped(words) for words in table.head) + " |"
    rule = "|" + "|".join("---:" if kind == "number" else "---" for kind in kinds) + "|"
    rows = ["| " + " | ".join(map(_cell, row)) + " |" for row in table.rows]
    return "\n".join([head, rule, *rows]) + f"\n\n{escaped(table.caption)}"


def _cell(cell: Cell) -> str:
    words = escaped(cell.text)
    if cell.kind == "name" and cell.key:
        return f"[{words}](../trials/{cell.key}.json)"
    return f"**{words}**" if cell.best else words
