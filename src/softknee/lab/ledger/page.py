"""Writes the ledger as a page of the documentation: the same text for the same findings, without times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ...measure import Versions, write_whole
from .entry import CRASHED, FAILS, PAPERS, VERDICTS, Paper
from .runner import Entry
from .text import cell

VERSIONS_LINE = "Made with "

_INTRO = """\
# The papers' claims, checked

<!-- made by `softknee claims --docs docs/claims.md`; do not edit -->

Every statement of the five papers that a program can check without training anything: where it stands, what it says (in
our words), what was measured, and a verdict. A claim *holds*, *fails*, or holds *partly* where it says several things
or says them for more than they are true of. Each row is one function of `src/softknee/lab/ledger`, named under its
place; it computes with the definitions of this package: SymPy for identities, ball arithmetic for constants, 30-digit
quadrature for integrals, float64 tensors for the rest. What only training can test is in [evidence.md](evidence.md).

    softknee claims                     # run them all, in about half a minute
    softknee claims --paper squaf       # those of one paper
    softknee claims --json FILE         # with versions, times and every number

"""


def page(entries: Sequence[Entry]) -> str:
    """The page as Markdown."""
    papers = [paper for paper in PAPERS if any(one.claim.paper == paper for one in entries)]
    parts = [_INTRO, f"{VERSIONS_LINE}{_versions()}.\n\n", *_summary(entries, papers)]
    for verdict, title in ((FAILS, "Where the papers are wrong"), (CRASHED, "Checks that did not run")):
        if found := [one for one in entries if one.verdict == verdict]:
            parts.append(f"\n## {title}\n\n")
            parts.extend(_listed(one) for one in found)
    for paper in papers:
        parts.append(f"\n## {paper.name}\n\n*{paper.title}*\n\n")
        parts.extend(_table([one for one in entries if one.claim.paper == paper]))
    return "".join(parts)


def write_page(entries: Sequence[Entry], path: Path) -> Path:
    """Write the page to a file, whole or not at all."""
    return write_whole(path, page(entries), what="page")


def _versions() -> str:
    here = Versions.here()
    # Without the local part: the page does not depend on which build of torch is installed.
    named = {"softknee": here.softknee, "torch": here.torch.partition("+")[0], "SymPy": here.others.get("sympy")}
    return ", ".join(f"{name} {version}" for name, version in named.items() if version)


def _summary(entries: Sequence[Entry], papers: Sequence[Paper]) -> Iterator[str]:
    verdicts = [one for one in (*VERDICTS, CRASHED) if any(entry.verdict == one for entry in entries)]
    yield f"| paper | claims | {' | '.join(verdicts)} |\n|---|---:|{'---:|' * len(verdicts)}\n"
    for paper in papers:
        of = [one.verdict for one in entries if one.claim.paper == paper]
        yield f"| {paper.name} | {len(of)} | {' | '.join(str(of.count(one)) for one in verdicts)} |\n"
    every = [one.verdict for one in entries]
    yield f"| all | {len(every)} | {' | '.join(str(every.count(one)) for one in verdicts)} |\n"


def _listed(entry: Entry) -> str:
    where, word = f"{entry.claim.paper.name}, {entry.claim.place}", "Error" if entry.verdict == CRASHED else "Measured"
    return f"- **{where}.** {entry.claim.says} *{word}:* {entry.measured.rstrip('.')}.\n"


def _table(entries: Sequence[Entry]) -> Iterator[str]:
    yield "| place | claim | measured | verdict |\n|---|---|---|---|\n"
    for one in entries:
        verdict = one.verdict if one.verdict not in (FAILS, CRASHED) else f"**{one.verdict}**"
        place = f"{cell(one.claim.place)}<br>`{one.claim.name}`"
        yield f"| {place} | {cell(one.claim.says)} | {cell(one.measured)} | {verdict} |\n"
