r"""The report as a LaTeX document for a paper: booktabs tables, bold by significance, figures as PDF.

It compiles as it is with pdflatex, lualatex or xelatex; tables and figures can be taken over one by one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .parts import Origin, Summary
from .tables import TITLE, Cell, Table, beside_note, beside_tables, beside_words, every_table, relative_losses

_LETTERS = "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ"
_NAMES = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi "
    "omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
)
_SIGNS = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "±": r"$\pm$",
    "−": "$-$",
    "–": "--",
    "→": r"$\to$",
    "×": r"$\times$",
    "“": "``",
    "”": "''",
    "\u00a0": "~",
    "₁": "$_1$",
    "₂": "$_2$",
    **{sign: f"{{{sign}}}" for sign in "[]*"},  # the end of a row before would take these for its own
    **{letter: f"$\\{name}$" for letter, name in zip(_LETTERS, _NAMES.split(), strict=True)},
}
_LAST_LATIN = 0x17F  # letters up to here are in the fonts that T1 encodes


def escaped(text: str) -> str:
    """Text of the user's own, of which TeX reads nothing as a command; what its fonts do not have is a number."""
    # Spaces and line ends become one space each; one that must not break stays.
    words = " ".join(re.split(r"[ \t\r\n\f\v]+", text))
    # Two hyphens or commas in a row would be drawn as one sign.
    return "".join(
        (_SIGNS.get(sign) or _plain(sign)) + ("{}" if sign == after and sign in "-," else "")
        for sign, after in zip(words, f"{words} "[1:], strict=True)
    )


def _plain(sign: str) -> str:
    number = ord(sign)
    return sign if 0x20 <= number < 0x7F or 0xA1 <= number <= _LAST_LATIN else f"{{[}}U+{number:04X}{{]}}"


def latex(summary: Summary, origin: Origin, figures: Mapping[str, str]) -> str:
    """The document; `figures` has the caption of each file in figures/."""
    title = escaped(summary.recipe.title or summary.recipe.name)
    answers = "\n".join(
        rf"\item {escaped(one.question)}: \textbf{{{escaped(one.label)}}}{escaped(one.words)}"
        for one in summary.sentences
    )
    lists = f"\\begin{{itemize}}\n{answers}\n\\end{{itemize}}\n" if answers else ""
    notes = "".join(f"\n\\noindent {escaped(note)}\n" for note in summary.notes)
    online = relative_losses(summary)
    tables = "\n".join(map(_table, [*every_table(summary), *([online] if online else [])]))
    pictures = "\n".join(_figure(name, caption) for name, caption in figures.items())
    facts = "\n".join(f"\\item {escaped(name)}: {escaped(words)}" for name, words in origin.facts())
    return rf"""% Written by softknee. Run again with: {escaped(origin.command)}
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
\noindent\texttt{{{escaped(origin.command)}}}
\begin{{itemize}}
{facts}
\end{{itemize}}
\end{{document}}
"""


def _beside(summary: Summary) -> str:
    if not summary.beside:
        return ""
    words = "".join(f"\n\\noindent {escaped(one)}\n" for one in (*beside_words(summary), beside_note(summary)) if one)
    return f"\\section*{{{TITLE}}}\n{words}\n" + "\n".join(map(_table, beside_tables(summary))) + "\n"


def _table(table: Table) -> str:
    kinds = [cell.kind for cell in table.rows[0]]
    columns = "".join("r" if kind == "number" else "l" for kind in kinds)
    head = " & ".join(escaped(words) for words in table.head)
    rows = "\n".join(" & ".join(map(_cell, row)) + r" \\" for row in table.rows)
    return rf"""\begin{{table}}[htbp]
\centering
\caption{{{escaped(table.caption)}}}
\label{{tab:{table.name}}}
\fitted{{\begin{{tabular}}{{{columns}}}
\toprule
{head} \\
\midrule
{rows}
\bottomrule
\end{{tabular}}}}
\end{{table}}
"""


def _cell(cell: Cell) -> str:
    words = escaped(cell.text)
    return rf"{{\bfseries\boldmath {words}}}" if cell.best else words


def _figure(name: str, caption: str) -> str:
    return rf"""\begin{{figure}}[htbp]
\centering
\includegraphics[width=\linewidth]{{figures/{name}.pdf}}
\caption{{{escaped(caption)}}}
\label{{fig:{name}}}
\end{{figure}}
"""
