"""The one table: its cells as text, written as Markdown, LaTeX, HTML or CSV, or drawn on a terminal.

Table(head=("", "accuracy"), rows=[("relu", "97.1"), ("gelu", "97.4")], title="The digits").markdown()
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table as RichTable

BETTER, WORSE = "better", "worse"
SLIGHTLY = "slightly "  # before the two above: shown, and shown to be too small to matter
BASELINE = " (baseline)"  # after the name of a row
# The line below the head in Markdown: a column that stands left, and one that stands right.
SPACED, DENSE, COLONS = (" --- ", " ---: "), ("---", "---:"), (":--", "--:")
_SHORT = 30  # letters of a name that stays on one line where there is room


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell: its text, the key of the record behind it, and what it says when pointed at.

    kind: "number" stands right, "words" left, "name" is the head of its row.
    best: it is the best of its column, or not shown to be worse than the best.
    """

    text: str
    key: str | None = None
    title: str = ""
    kind: str = "number"
    best: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table. A cell may be plain text: then it is the name of its row in the first column, and else a number.

    name:    its anchor.
    title:   stands above it; so does the caption, which says what it compares. Remarks, a sentence each, stand below.
    align:   a letter for each column, l or r; default as the kinds of the first row's cells.
    markup:  the texts are Markdown already.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    name: str = ""
    title: str = ""
    caption: str = ""
    remarks: Sequence[str] = ()
    align: str = ""
    markup: bool = False

    @property
    def cells(self) -> list[list[Cell]]:
        """All rows, every text as a cell."""
        return [
            [
                value if isinstance(value, Cell) else Cell(text=str(value), kind="number" if column else "name")
                for column, value in enumerate(row)
            ]
            for row in self.rows
        ]

    @property
    def sides(self) -> str:
        """Which side each column stands at: l or r."""
        if self.align or not self.rows:
            return self.align or "l" + "r" * (len(self.head) - 1)
        return "".join("r" if cell.kind == "number" else "l" for cell in self.cells[0])

    def markdown(self, rule: tuple[str, str] = SPACED, *, links: bool = True) -> str:
        """As Markdown; `rule` is how the line below the head is written, and a name links to its record."""
        write = str if self.markup else escape_markdown
        head = (f" {write(text)} " if text else " " for text in self.head)
        lines = [f"|{'|'.join(head)}|", f"|{'|'.join(rule['lr'.index(side)] for side in self.sides)}|"]
        lines += [f"| {' | '.join(self._markdown_cell(cell, links=links) for cell in row)} |" for row in self.cells]
        parts = [f"**{write(self.title)}**"] * bool(self.title) + [write(self.caption)] * bool(self.caption)
        parts += ["\n".join(lines)]
        parts += ["\n".join(f"- {write(remark)}" for remark in self.remarks)] * bool(self.remarks)
        return "\n\n".join(parts) + "\n"

    def _markdown_cell(self, cell: Cell, *, links: bool) -> str:
        text = cell.text if self.markup else escape_markdown(cell.text)
        if cell.kind == "name" and cell.key and links:
            return f"[{text}](../trials/{cell.key}.json)"
        return f"**{text}**" if cell.best and links else text

    def latex(self) -> str:
        """As a LaTeX float with rules of booktabs, in bold what is best; \\fitted is the document's."""
        rows = "\n".join(
            " & ".join(
                rf"{{\bfseries\boldmath {escape_latex(cell.text)}}}" if cell.best else escape_latex(cell.text)
                for cell in row
            )
            + r" \\"
            for row in self.cells
        )
        return rf"""\begin{{table}}[htbp]
\centering
\caption{{{escape_latex(self.caption)}}}
\label{{tab:{self.name}}}
\fitted{{\begin{{tabular}}{{{self.sides}}}
\toprule
{" & ".join(map(escape_latex, self.head))} \\
\midrule
{rows}
\bottomrule
\end{{tabular}}}}
\end{{table}}
"""

    def html(self) -> str:
        """As HTML in a region that scrolls; cells that come from a record link to it, in ../trials."""
        name = f"table-{escape(self.name)}"
        head = "".join(
            f'<th scope="col"{_classes("number" if side == "r" else "")}>{escape(text)}</th>'
            for text, side in zip(self.head, self.sides, strict=True)
        )
        rows = "".join(
            f"<tr{_classes('baseline' if row[0].text.endswith(BASELINE) else '')}>{''.join(map(_html_cell, row))}</tr>"
            for row in self.cells
        )
        return (
            f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{name}-caption">'
            f'<table id="{name}"><caption id="{name}-caption"><span>{escape(self.caption)}</span></caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
        )

    def csv(self) -> str:
        """As CSV: numbers with all their digits, nothing where there is None."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.head)
        writer.writerows([value.text if isinstance(value, Cell) else value for value in row] for row in self.rows)
        return text.getvalue()

    def terminal(self, **column: Any) -> RichTable:
        """For a console of rich; `column` is what every column but the first is added with."""
        from rich import box
        from rich.table import Table as RichTable
        from rich.text import Text

        drawn = RichTable(title=self.title or None, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
        for place, (text, side) in enumerate(zip(self.head, self.sides, strict=True)):
            more: dict[str, Any] = column if place else {"no_wrap": True}
            drawn.add_column(text, justify="right" if side == "r" else "left", **more)
        for row in self.cells:
            # Text and not str: the number of a remark in square brackets would be read as markup.
            drawn.add_row(*(Text(cell.text, "bold" if cell.best else "") for cell in row))
        return drawn


def duration(seconds: float) -> str:
    """A time as a person reads it.

    >>> duration(4.2), duration(42), duration(75), duration(7300)
    ('4.2 s', '42 s', '1 min 15 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~$])")


def escape_markdown(text: str) -> str:
    """Text of which Markdown reads nothing as its own signs.

    >>> escape_markdown("a_b | c")
    'a\\\\_b \\\\| c'
    """
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


_GREEK = "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ"
_GREEK_NAMES = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi "
    "omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
)
_LATEX = {
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
    **{letter: f"$\\{name}$" for letter, name in zip(_GREEK, _GREEK_NAMES.split(), strict=True)},
}
_LAST_LATIN = 0x17F  # letters up to here are in the fonts that T1 encodes


def escape_latex(text: str) -> str:
    """Text of which TeX reads nothing as a command; a sign that its fonts lack is written as its number."""
    # Spaces and line ends become one space each; one that must not break stays.
    words = " ".join(re.split(r"[ \t\r\n\f\v]+", text))
    # Two hyphens or commas in a row would be drawn as one sign.
    return "".join(
        (_LATEX.get(sign) or _in_font(sign)) + ("{}" if sign == after and sign in "-," else "")
        for sign, after in zip(words, f"{words} "[1:], strict=True)
    )


def _in_font(sign: str) -> str:
    number = ord(sign)
    return sign if 0x20 <= number < 0x7F or 0xA1 <= number <= _LAST_LATIN else f"{{[}}U+{number:04X}{{]}}"


def _html_cell(cell: Cell) -> str:
    text = escape(cell.text)
    if cell.kind == "name":
        tag = ' <span class="tag">baseline</span>' if text.endswith(BASELINE) else ""
        short = _classes("short" if len(cell.text) <= _SHORT else "")
        return f'<th scope="row"{short}>{_html_link(text.removesuffix(BASELINE), cell)}{tag}</th>'
    verdict = cell.text.removeprefix(SLIGHTLY)
    kind = "number" if cell.kind == "number" else verdict if verdict in (BETTER, WORSE) else "other"
    return f"<td{_classes(kind, 'best' if cell.best else '')}>{_html_link(text, cell)}</td>"


def _html_link(text: str, cell: Cell) -> str:
    title = f' title="{escape(cell.title)}"' if cell.title else ""
    if cell.key is None:
        return f"<span{title}>{text}</span>" if title else text
    return f'<a href="../trials/{escape(cell.key)}.json"{title}>{text}</a>'


def _classes(*names: str) -> str:
    text = " ".join(filter(None, names))
    return f' class="{text}"' if text else ""
