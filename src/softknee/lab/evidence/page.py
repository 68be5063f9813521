"""Writes the empirical half of the ledger as a page of the documentation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ...measure import write_whole
from ..ledger.entry import FAILS, HOLDS, PAPERS, PARTLY
from ..ledger.text import cell
from .commands import command_of
from .contents import comparisons, contents
from .drawing import figures_of, write_figures
from .further import BELOW
from .lambda_gelu_language import language_tables
from .runs import Runs
from .squaf_records import record_tables, write_record_figures
from .statement import CANNOT_TELL, NOT_THERE, Judged
from .tables import cost_table, study_tables
from .trained_on_preferences import preference_tables

# (study, file in the folder of the evidence, caption); `softknee fits` draws them from the runs.
FIGURES: dict[str, Sequence[tuple[str, str, str]]] = {
    "squaf": (
        ("squaf-table-1-page", "pictures.png", "Originals, and what networks with ReLU, PolyNorm and SQUAF store"),
        ("squaf-table-12", "squaf-table-12-grid.png", "PSNR for twenty starts of q and alpha, the paper's beside ours"),
        ("squaf-table-2-c4", "squaf-table-2-c4-regions.png", "Decision regions of ten activations, four classes"),
        ("squaf-table-3-1d-alone", "sine-1d-curves.png", "The 1-D function and its fits"),
        ("squaf-table-3-2d", "squaf-table-3-2d-fits.png", "The 2-D function, its fits and their errors"),
    )
}

# (record, heading, what the paper has: inference latency and seconds an epoch, as multiples of GELU's).
COSTS: dict[str, Sequence[tuple[str, str, Mapping[str, tuple[float, float]]]]] = {
    "squaf": (
        (
            "h200-model-vit-table-10.json",
            "SQUAF, table 10: what an activation costs ViT-Tiny",
            {
                "relu": (5.727 / 5.896, 9 / 9),
                "gelu": (1.0, 1.0),
                "lrelu": (5.792 / 5.896, 9 / 9),
                "prelu": (5.834 / 5.896, 9 / 9),
                "swish": (6.185 / 5.896, 9 / 9),
                "crrelu": (6.959 / 5.896, 10 / 9),
                "polyrelu": (7.241 / 5.896, 11 / 9),
                "polynorm": (8.694 / 5.896, 12 / 9),
                "ditac": (9.642 / 5.896, 19 / 9),
                "squaf": (8.399 / 5.896, 11 / 9),
                "squaf-p": (8.930 / 5.896, 12 / 9),
                "squaf-s": (7.022 / 5.896, math.nan),  # which is not trained
            },
        ),
    )
}

_INTRO = """\
# What the papers found, tried again

<!-- made by `softknee claims --empirical --docs docs/evidence.md`; do not edit -->

Statements of the papers that only training can test: where each stands, what it says (in our words), what our studies
found, what was different from the paper, and a verdict. The rules were fixed before the studies ran: seeds are paired,
a comparison is a paired t-test over them (of logarithms where errors span decades) with Holm's correction over all
comparisons of one statement, those that could not be made among them, at 5 %; a part holds or fails if the difference
is shown in one direction or the other, and cannot be told otherwise, nor with fewer than three pairs of seeds. Other
parts hold a number of ours against a bound that the statement's function names. Effect sizes (Hedges' g_z of the
pairs) are told and decide nothing. A statement holds if all parts do, *partly* if some do, and fails if a part fails
and none holds. Two rules were added with records at hand: the last (two statements of which no part held had been
called partly), and that comparisons that could not be made count in the correction, which is stricter.
`src/softknee/lab/evidence` has the rules and, function by function, the parts. A statement that was added or changed
when its records were there says so under "different".

In the tables of studies the best mean is bold. A ° marks those that are not shown to be worse: the same test against
the best, where a p counts times the number of the others (which one comes out best is known only after looking). With
two seeds there is no test and no mark; with three, differences are shown that are several times the spread of their
pairs, so that of two activations with one mean (ELU and CELU are one function) one may be shown to be worse and the
other not.

Three checks belong to no single table. ELU and CELU at 1 are one function, so that what they differ by is noise:
`elu_and_celu_are_one`, and for another data set `elu_and_celu_differ`. Entropy against accuracy over all runs tests
EAFO's premise: `less_entropy_goes_with_accuracy`. Numbers of trained parameters stand in every table, beside the
paper's where it has them; where its own are wrong, [the mathematical half](claims.md) says so
(`parameters_of_the_networks`).

On the site that `make docs` builds, each paper has a page with all its tables and figures, run or not: what it prints,
what we found, and the command of every single row.

    softknee claims --empirical                     # judge the records in docs/evidence
    softknee study run squaf-table-3-1d             # run one of the studies again (made for a GPU)
    softknee study run squaf-table-3-1d --only relu # one row of it
    softknee study run squaf-table-3-1d --smoke     # two batches on a CPU, only to see that it runs

"""


def page(judged: Sequence[Judged], runs: Runs) -> str:
    """The page as Markdown: the verdicts, and below them each table beside ours."""
    return "".join([_INTRO, *_summary(judged), *_papers(judged, runs)])


def write_page(judged: Sequence[Judged], runs: Runs, path: Path) -> Path:
    """Write the page to a file, whole or not at all, and its figures beside the records, if it is these it links to."""
    if runs.folder.resolve() == (path.parent / "evidence").resolve():
        write_figures(runs)
        write_record_figures(runs)
    return write_whole(path, page(judged, runs), what="page")


def _summary(judged: Sequence[Judged]) -> Iterator[str]:
    verdicts = [
        one for one in (HOLDS, PARTLY, FAILS, CANNOT_TELL, NOT_THERE) if any(entry.verdict == one for entry in judged)
    ]
    yield f"| paper | statements | {' | '.join(verdicts)} |\n|---|---:|{'---:|' * len(verdicts)}\n"
    for paper in PAPERS:
        of = [one.verdict for one in judged if one.statement.paper == paper]
        if of:
            yield f"| {paper.name} | {len(of)} | {' | '.join(str(of.count(one)) for one in verdicts)} |\n"


def _papers(judged: Sequence[Judged], runs: Runs) -> Iterator[str]:
    for paper in PAPERS:
        of = [one for one in judged if one.statement.paper == paper]
        if not of:
            continue
        yield f"\n## {paper.name}\n\n*{paper.title}*\n\n"
        yield from contents(paper, runs)
        yield "\n"
        with_records = [one for one in of if one.evidence is not None]
        without = [one for one in of if one.evidence is None]
        yield from _table(with_records)
        yield from comparisons(with_records)
        yield "\n" if with_records and without else ""
        yield from _without_records(without)
        figures = [*FIGURES.get(paper.stem, ()), *figures_of(runs)]
        yield from study_tables(runs, paper.stem.replace("_", "-"), figures, BELOW)
        for name, heading, quoted in COSTS.get(paper.stem, ()):
            yield from cost_table(runs, name, quoted, heading)
        if paper.stem == "squaf":
            yield from record_tables(runs)
        if paper.stem == "lambda_gelu":
            yield from language_tables(runs)
        yield from preference_tables(runs, paper.stem)


def _table(judged: Sequence[Judged]) -> Iterator[str]:
    if not judged:
        return
    yield "| place | statement | found | different from the paper | verdict | records |\n"
    yield "|---|---|---|---|---|---|\n"
    for one in judged:
        verdict = f"**{one.verdict}**" if one.verdict == FAILS else one.verdict
        verdict += f"<br>{one.counts}" if one.counts else ""
        links = ", ".join(f"[{name}](evidence/{name})" for name in one.statement.needs)
        place = f"{cell(one.statement.place)}<br>`{one.statement.decide.__name__}`"
        columns = (place, cell(one.statement.says), cell(one.measured), cell(one.statement.different), verdict, links)
        yield f"| {' | '.join(columns)} |\n"


def _without_records(judged: Sequence[Judged]) -> Iterator[str]:
    """A short line for each: where it stands, what it says, and which records decide it; then what makes these."""
    if not judged:
        return
    yield "No records yet; each is judged as soon as its records are there:\n\n"
    for one in judged:
        needs = ", ".join(f"`{name}`" for name in one.statement.needs)
        begun = f" Begun: {one.unfinished}." if one.unfinished else ""
        place = f"{one.statement.place} (`{one.statement.decide.__name__}`)"
        yield f"- {place}: {one.statement.says} Decided by {needs}.{begun}\n"
    wanted = dict.fromkeys(name for one in judged for name in one.missing)
    yield "\nThese commands make them, from the root of a clone:\n\n"
    yield from (f"    {command_of(name)}\n" for name in wanted)
