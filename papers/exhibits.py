"""The tables and figures of the papers, in their order: the recipes or the command that run each, or where it is found.

They stand in `exhibits.yaml` in the folder of each paper. The paper's numbers stand in the recipes, under `paper`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from softknee.lab.studies.reading import load

from .claim import PAPERS
from .runs import HERE


@dataclass(frozen=True)
class Exhibit:
    """A table or figure of a paper.

    recipes: the studies that run it; records: files among the paper's records that hold it, where no recipe does.
    where:   a sentence with a link, for what is drawn or counted and not trained, or what another study shows.
    also:    more about what the paper prints there, in Markdown.
    """

    place: str
    title: str
    recipes: Sequence[str] = ()
    records: Sequence[str] = ()
    where: str = ""
    also: str = ""


EXHIBITS: dict[str, Sequence[Exhibit]] = {
    paper.stem: [Exhibit(**entry) for entry in load((HERE / paper.stem / "exhibits.yaml").read_text("utf-8"))]
    for paper in PAPERS
}
"""By the stem of the paper."""
