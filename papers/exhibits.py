"""The tables and figures of the papers, in their order: the recipes or the command that run each, or where it is found.

They stand in `exhibits.yaml` in the folder of each paper. What a recipe runs has its numbers there, under `paper`;
numbers of what a command of its own runs stand under `printed`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from softknee.lab.studies.reading import load

from .claim import PAPERS
from .preferences import TABLES
from .runs import HERE, command_of_recipe, command_of_row


@dataclass(frozen=True)
class Printed:
    """A table of a paper that a command of its own runs.

    rows:    (label, the paper's values, the command of that row; empty where none runs it).
    command: of the whole table.
    note:    what the command does otherwise than the paper.
    """

    heads: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str], str]]
    command: str
    note: str = ""


@dataclass(frozen=True)
class Exhibit:
    """A table or figure of a paper.

    recipes: the studies that run it; records: files among the paper's records that hold it, where no recipe does.
    printed: what the paper prints, for a command of its own; shown until one of the records is there.
    where:   a sentence with a link, for what is drawn or counted and not trained, or what another command trains.
    trained: whether it takes a training, though no recipe or record of its own holds it.
    swaps:   whether it is the table of what replacing costs, which the records of these recipes hold.
    also:    what else the paper prints there, in Markdown.
    """

    place: str
    title: str
    recipes: Sequence[str] = ()
    records: Sequence[str] = ()
    printed: Printed | None = None
    where: str = ""
    swaps: bool = False
    also: str = ""
    trained: bool = False


_SEEN = (
    "One command runs every beta of GELU or of the function, from the same weights on the same pairs, with three "
    "seeds, and judges by 256 pairs that were not trained on. The recipe says where the model and the pairs lie: "
    "[language models](../../docs/language.md). How many passes the paper made is not printed; here it is one."
)


def _exhibit(entry: Mapping[str, Any]) -> Exhibit:
    """An entry of a file: the fields of `Exhibit`, with those of `Printed` under `printed`.

    A table of DPO has the name of its statement under `preferences`.
    """
    if "preferences" in entry:
        return _preferences(entry["preferences"], entry["title"], entry.get("note", ""))
    printed = entry.get("printed")
    if printed is None:
        return Exhibit(**entry)
    rows = [(row["label"], row["values"], row.get("command", "")) for row in printed["rows"]]
    return Exhibit(**{**entry, "printed": Printed(printed["heads"], rows, printed["command"], printed["note"])})


def _preferences(statement: str, title: str, note: str) -> Exhibit:
    """A table of DPO: for each beta the rows of the function and of GELU, which one command runs together."""
    (table,) = (table for table in TABLES if table.statement == statement)
    rows = [
        (f"{name}, β = {beta}", cells, command_of_row(table.study, label)) for beta, label, name, cells in table.rows()
    ]
    heads = [column.head for column in table.columns]
    printed = Printed(heads, rows, command_of_recipe(table.study), f"{_SEEN} {note}".strip())
    place = table.place if table.network == "GPT-2" else f"{table.place}, {table.network}"
    return Exhibit(place, title, records=(table.study,), printed=printed)


EXHIBITS: dict[str, Sequence[Exhibit]] = {
    paper.stem: [_exhibit(entry) for entry in load((HERE / paper.stem / "exhibits.yaml").read_text("utf-8"))]
    for paper in PAPERS
}
"""By the stem of the paper."""
