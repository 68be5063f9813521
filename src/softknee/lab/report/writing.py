"""All files of a report: all are made before the first is written, and each is written whole."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...files import make_folder, write_whole
from ...measure.record import Record
from ..studies.recipe import Recipe
from ..studies.trials import Outcome
from ..table import escape_latex
from .drawing import pdf_figures
from .page import render
from .parts import Origin, Summary, origin_of
from .summary import summarise
from .tables import (
    TITLE,
    every_table,
    markdown,
    paper_csv,
    paper_note,
    paper_sentences,
    paper_tables,
    relative_losses,
    results_csv,
    seeds_csv,
)


def latex(summary: Summary, origin: Origin, figures: Mapping[str, str]) -> str:
    """The document; `figures` has the caption of each file in figures/."""
    title = escape_latex(summary.recipe.title or summary.recipe.name)
    text = escape_latex
    answers = "\n".join(
        rf"\item {text(answer.question)}: \textbf{{{text(answer.label)}}}{text(answer.words)}"
        for answer in summary.sentences
    )
    lists = f"\\begin{{itemize}}\n{answers}\n\\end{{itemize}}\n" if answers else ""
    notes = "".join(f"\n\\noindent {escape_latex(note)}\n" for note in summary.notes)
    online = relative_losses(summary)
    tables = "\n".join(table.latex() for table in [*every_table(summary), *([online] if online else [])])
    pictures = "\n".join(_figure(name, caption) for name, caption in figures.items())
    facts = "\n".join(f"\\item {escape_latex(name)}: {escape_latex(words)}" for name, words in origin.facts())
    return rf"""% Written by softknee. Run again with: {escape_latex(origin.command)}
\documentclass{{article}}
\usepackage[T1]{{fontenc}}
\usepackage{{textcomp}}
\usepackage[margin=25mm]{{geometry}}
\usepackage{{booktabs}}
\usepackage{{graphicx}}
% A table that is wider than the line is made as wide as the line.
\newcommand{{\fitted}}[1]{{\resizebox{{\ifdim\width>\linewidth\linewidth\else\width\fi}}{{!}}{{#1}}}}
\title{{{title}}}
\date{{}}
\begin{{document}}
\maketitle
{lists}{notes}
{tables}
{_paper(summary)}{pictures}
\section*{{Run it again}}
\noindent\texttt{{{escape_latex(origin.command)}}}
\begin{{itemize}}
{facts}
\end{{itemize}}
\end{{document}}
"""


def _paper(summary: Summary) -> str:
    if not summary.paper_tables:
        return ""
    words = "".join(
        f"\n\\noindent {escape_latex(text)}\n" for text in (*paper_sentences(summary), paper_note(summary)) if text
    )
    return f"\\section*{{{TITLE}}}\n{words}\n" + "\n".join(table.latex() for table in paper_tables(summary)) + "\n"


def _figure(name: str, caption: str) -> str:
    return rf"""\begin{{figure}}[htbp]
\centering
\includegraphics[width=\linewidth]{{figures/{name}.pdf}}
\caption{{{escape_latex(caption)}}}
\label{{fig:{name}}}
\end{{figure}}
"""


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
        **({"paper.csv": paper_csv(summary)} if summary.paper_tables else {}),
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
    """Write the report into a folder next to `trials`, where the records are, and return the path of its page.

    Each file is written whole or not at all; links lead to ../trials/KEY.json.
    """
    # First, so that nothing is drawn in vain.
    folder = make_folder(Path(place) / "figures", what="report").parent
    for name, content in report_files(recipe, outcomes, command=command, records=records).items():
        write_whole(folder / name, content, what="report")
    return folder / "index.html"
