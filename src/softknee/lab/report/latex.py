r"""The report as a LaTeX document for a paper: booktabs tables, bold by significance, figures as PDF.

It compiles as it is with pdflatex, lualatex or xelatex; tables and figures can be taken over one by one.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..table import escape_latex
from .parts import Origin, Summary
from .tables import TITLE, beside_note, beside_tables, beside_words, every_table, relative_losses


def latex(summary: Summary, origin: Origin, figures: Mapping[str, str]) -> str:
    """The document; `figures` has the caption of each file in figures/."""
    title = escape_latex(summary.recipe.title or summary.recipe.name)
    answers = "\n".join(
        rf"\item {escape_latex(one.question)}: \textbf{{{escape_latex(one.label)}}}{escape_latex(one.words)}"
        for one in summary.sentences
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
{_beside(summary)}{pictures}
\section*{{Run it again}}
\noindent\texttt{{{escape_latex(origin.command)}}}
\begin{{itemize}}
{facts}
\end{{itemize}}
\end{{document}}
"""


def _beside(summary: Summary) -> str:
    if not summary.beside:
        return ""
    words = "".join(
        f"\n\\noindent {escape_latex(one)}\n" for one in (*beside_words(summary), beside_note(summary)) if one
    )
    return f"\\section*{{{TITLE}}}\n{words}\n" + "\n".join(table.latex() for table in beside_tables(summary)) + "\n"


def _figure(name: str, caption: str) -> str:
    return rf"""\begin{{figure}}[htbp]
\centering
\includegraphics[width=\linewidth]{{figures/{name}.pdf}}
\caption{{{escape_latex(caption)}}}
\label{{fig:{name}}}
\end{{figure}}
"""
