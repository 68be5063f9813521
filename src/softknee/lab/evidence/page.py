"""Writes the empirical half of the ledger as a page of the documentation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ...measure import write_whole
from ..ledger.entry import FAILS, HOLDS, PAPERS, PARTLY
from ..ledger.text import cell
from .statement import CANNOT_TELL, NOT_THERE, Judged

_INTRO = """\
# What the papers found, tried again

<!-- made by `softknee claims --empirical --docs docs/evidence.md`; do not edit -->

Statements of the papers that only training can test: where each stands, what it says (in our words), what our studies
found, what was different from the paper, and a verdict. The rules were fixed before the studies ran: seeds are paired,
a comparison is a paired t-test over them (of logarithms where errors span decades) with Holm's correction over the
parts of one statement at 5 %; a part holds or fails if the difference is shown in one direction or the other, and
cannot be told otherwise. A statement holds *partly* where its parts differ. `src/softknee/lab/evidence` has the rules
and, function by function, the parts.

    softknee claims --empirical         # judge the records in docs/evidence
    softknee study run squaf-table-3-1d # run one of the studies again (made for a GPU)

"""


def page(judged: Sequence[Judged]) -> str:
    """The page as Markdown."""
    return "".join([_INTRO, *_summary(judged), *_papers(judged)])


def write_page(judged: Sequence[Judged], path: Path) -> Path:
    """Write the page to a file, whole or not at all."""
    return write_whole(path, page(judged), what="page")


def _summary(judged: Sequence[Judged]) -> Iterator[str]:
    verdicts = [
        one for one in (HOLDS, PARTLY, FAILS, CANNOT_TELL, NOT_THERE) if any(entry.verdict == one for entry in judged)
    ]
    yield f"| paper | statements | {' | '.join(verdicts)} |\n|---|---:|{'---:|' * len(verdicts)}\n"
    for paper in PAPERS:
        of = [one.verdict for one in judged if one.statement.paper == paper]
        if of:
            yield f"| {paper.name} | {len(of)} | {' | '.join(str(of.count(one)) for one in verdicts)} |\n"


def _papers(judged: Sequence[Judged]) -> Iterator[str]:
    for paper in PAPERS:
        of = [one for one in judged if one.statement.paper == paper]
        if not of:
            continue
        yield f"\n## {paper.name}\n\n*{paper.title}*\n\n"
        yield "| place | statement | found | different from the paper | verdict | records |\n"
        yield "|---|---|---|---|---|---|\n"
        for one in of:
            verdict = f"**{one.verdict}**" if one.verdict == FAILS else one.verdict
            links = ", ".join(f"[{name}](evidence/{name})" for name in one.statement.needs)
            place = f"{cell(one.statement.place)}<br>`{one.statement.decide.__name__}`"
            columns = (
                place,
                cell(one.statement.says),
                cell(one.measured),
                cell(one.statement.different),
                verdict,
                links,
            )
            yield f"| {' | '.join(columns)} |\n"
