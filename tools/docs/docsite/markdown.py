"""From the Markdown of the repository to that of the site: links, mathematics, long tables as cards."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence

_FENCE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.M | re.S)
_LINK = re.compile(r"(?<=\])\(([^()\s]+)\)")
_TABLE = re.compile(r"(?:^\|.*\n)+", re.M)
_VERDICTS = ("holds", "partly", "fails", "crashed", "unfinished")
_VERDICTS += ("shown", "supported", "not shown", "reversed", "doubted", "no records")


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """Apply a change to a page, but not to its code."""
    parts = _FENCE.split(text)
    return "".join(part if odd % 2 else change(part) for odd, part in enumerate(parts))


def site_math(text: str) -> str:
    """GitHub's protected inline mathematics, $`...`$, as plain dollars.

    >>> site_math(r"as $`\\beta \\to 0`$")
    'as $\\\\beta \\\\to 0$'
    """
    return re.sub(r"\$`([^`]+)`\$", lambda match: f"${match[1]}$", text)


def site_links(text: str, *, page: str, folders: Sequence[str] = (), source: str = "") -> str:
    """Links of a page of the repository as they are on the site: records and papers have places of their own there.

    page:    where the page is in the site, such as "guides/ship.md".
    folders: folders of records, which have a page of their own.
    source:  the folder of the repository that the text stands in; without it, that of the page below docs/.
    """
    here = os.path.dirname(page)

    def moved(match: re.Match[str]) -> str:
        target, _, anchor = match[1].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return match[0]
        place = os.path.normpath(os.path.join(source or os.path.join("docs", here), target))
        if place.startswith("benchmarks/records/"):
            place = place.removeprefix("benchmarks/")
        elif place == "CHANGELOG.md":
            place = "changelog.md"
        elif place == "papers/README.md":
            place = "ledger.md"
        elif re.fullmatch(r"papers/\w+(/README\.md|/recipes/.*)", place):
            place = f"papers/{place.split('/')[1]}.md"
        elif place.startswith("papers/"):
            pass  # records
        else:
            place = os.path.relpath(place, "docs")
        if place.removesuffix("/trials") in folders:
            place = place.removesuffix("/trials") + "/index.md"
        if os.path.basename(place) == "README.md":
            place = os.path.join(os.path.dirname(place), "index.md")
        return f"({os.path.relpath(place, here or '.')}{'#' + anchor if anchor else ''})"

    return outside_code(text, lambda part: _LINK.sub(moved, part))


def cells(row: str) -> list[str]:
    """The cells of a row of a table; an escaped bar does not end one."""
    return [text.strip() for text in re.split(r"(?<!\\)\|", row.strip().removeprefix("|").removesuffix("|"))]


def cards(text: str) -> str:
    """The tables of the ledger (place, claim, measured, verdict ...) as cards, which a telephone can show too."""

    def change(match: re.Match[str]) -> str:
        rows = match[0].strip().splitlines()
        heads = cells(rows[0])
        if heads[:1] != ["place"] or "verdict" not in heads:
            return match[0]
        return "\n".join(_card(dict(zip(heads, cells(row), strict=True))) for row in rows[2:]) + "\n"

    return _TABLE.sub(change, text)


def figures(text: str, *, up: str = "") -> str:
    """Pictures that stand alone as figures: what they show can be read below, and a click shows them in full size.

    up: the way from the page to the root of the site, below which Sphinx puts pictures into `_images`.

    >>> print(figures("![A curve](images/a.png)"))
    ```{figure} images/a.png
    :target: _images/a.png
    :alt: A curve
    <BLANKLINE>
    A curve
    ```
    """

    def figure(match: re.Match[str]) -> str:
        says, file = match.groups()
        target = f"{up}_images/{os.path.basename(file)}"
        return f"```{{figure}} {file}\n:target: {target}\n:alt: {says}\n\n{says}\n```"

    return re.sub(r"^!\[([^\]\n]+)\]\(([^()\s]+)\)$", figure, text, flags=re.M)


def badge(verdict: str) -> str:
    """A verdict as a coloured word."""
    word = verdict.replace("*", "")
    kind = next((known for known in _VERDICTS if word.startswith(known)), "no records")
    return f'<span class="verdict {kind.replace(" ", "-")}">{word}</span>'


def _card(row: dict[str, str]) -> str:
    place, _, name = row.pop("place").partition("<br>")
    verdict, _, counts = row.pop("verdict").partition("<br>")
    claim = row.pop("claim", "") or row.pop("statement", "")
    lines = [f":::{{container}} claim\n{badge(verdict)} **{_unbarred(place)}** {name}", _unbarred(claim)]
    if counts:
        lines[0] += f" ({counts})"
    lines += [f"*{head.capitalize()}:* {_unbarred(value)}" for head, value in row.items() if value]
    return "\n\n".join(lines) + "\n:::\n"


def _unbarred(cell: str) -> str:
    return cell.replace("\\|", "|")
