"""All files of a report, made first and written then, each whole."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ...files import WriteError, write_whole
from ...measure.record import Record
from ..studies.recipe import Recipe
from ..studies.trials import Outcome
from .drawn import pdf_figures
from .latex import latex
from .page import render
from .parts import origin_of
from .summary import summarise
from .tables import markdown, paper_csv, results_csv, seeds_csv


def report_files(
    recipe: Recipe, outcomes: Sequence[Outcome], *, command: str, records: Sequence[Record] = ()
) -> dict[str, bytes]:
    """The content of every file of a report by its name, index.html last; nothing is written.

    records: what the outcomes were read from; they say which machines and versions the trials ran with. Without them
             the report names the machine that it is made on.
    """
    summary, origin = summarise(recipe, outcomes), origin_of(recipe, command=command, records=records)
    pictures = pdf_figures(summary)
    captions = {name: caption for name, (_, caption) in pictures.items()}
    texts = {
        "results.csv": results_csv(summary),
        "seeds.csv": seeds_csv(outcomes),
        **({"paper.csv": paper_csv(summary)} if summary.beside else {}),
        "report.md": markdown(summary, origin),
        "report.tex": latex(summary, origin, captions),
        "index.html": render(summary, origin),
    }
    files = {f"figures/{name}.pdf": content for name, (content, _) in pictures.items()}
    return files | {name: text.encode("utf-8") for name, text in texts.items()}


def write_report(
    recipe: Recipe,
    outcomes: Sequence[Outcome],
    place: str | os.PathLike[str],
    *,
    command: str,
    records: Sequence[Record] = (),
) -> Path:
    """Write the report into a folder beside `trials`, where the records are, and return where its page is.

    Each file is written whole or not at all; links lead to ../trials/KEY.json.
    """
    folder = Path(place)
    # First, so that nothing is drawn in vain.
    try:
        (folder / "figures").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(
            f"The folder '{folder}' for the report could not be made ({error.strerror or error}). Choose a "
            "place that can be written to."
        ) from error
    for name, content in report_files(recipe, outcomes, command=command, records=records).items():
        write_whole(folder / name, content, what="report")
    return folder / "index.html"
