"""Writes the pages: the front page, and one for each paper with its claims, its findings, its tables and ours."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from softknee.measure import Versions, write_whole

from .claim import CRASHED, FAILS, HOLDS, PAPERS, PARTLY, VERDICTS, Paper
from .exhibits import EXHIBITS, Exhibit, Printed
from .lambda_gelu.findings import language_tables
from .ledger import Entry
from .preferences import preference_tables
from .runs import HERE, Runs, folded, recipe_file
from .squaf.findings import RECIPES, record_tables, write_record_figures
from .statement import CANNOT_TELL, NOT_THERE, Judged, Part
from .tables import (
    BELOW,
    command_of,
    command_to_look,
    cost_table,
    figures_of,
    study_tables,
    swap_table,
    waiting_table,
    write_figures,
)
from .text import cell

CLAIMS, WRONG, FINDINGS = "What it says about mathematics", "Where it is wrong", "What it found by training"
VERSIONS_LINE = "Made with "
_JUDGED = (HOLDS, PARTLY, FAILS, CANNOT_TELL, NOT_THERE)
_MADE = "<!-- made by `python -m papers --pages`; do not edit -->"
# What a reader of each paper remembers, in one sentence.
_MAIN = {
    "mollification": "ReLU averaged with a kernel is smooth, and S-ReLU, made so, trains better than its rivals.",
    "smelu": "Smooth activations make two trainings of one network agree more, and SmeLU most for its accuracy.",
    "lambda_gelu": "GELU with a learned hardness, driven hard, is replaced by ReLU at almost no cost.",
    "eafo": "Lowering the entropy of its outputs improves an activation, and CRReLU is what comes of ReLU.",
    "squaf": "A soft staircase with a learned table fits better than others, and its outputs need few bits.",
}
# (study, file beside its records, caption); `softknee fits` draws them from the runs.
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

_FRONT = """\
# What five papers say, and what we found

{made}

One folder a paper: its mathematical claims as functions that check them (`claims.py`), what it found by training
(`findings.py`), the recipes and records of our studies, and its page with its tables beside ours.

| paper | its main claim | mathematics | training |
|---|---|---|---|
{rows}

    python -m papers                 # check every mathematical claim, in half a minute
    python -m papers --paper squaf   # those of one paper
    python -m papers --empirical     # judge the findings by the records
    python -m papers --pages         # write these pages again

    softknee study run papers/squaf/recipes/table-3-1d.yaml               # a study, made for a GPU
    softknee study run papers/squaf/recipes/table-3-1d.yaml --only relu   # one row of it
    softknee study run papers/squaf/recipes/table-3-1d.yaml --smoke       # see that it runs

## How it is judged

**Mathematics.** Every statement that a program can check without training: where it stands, what it says (in our
words), what was measured, and a verdict. A claim *holds*, *fails*, or holds *partly* where it says several things or
says them for more than they are true of. A row is one function of `claims.py`, named under its place; it computes with
the definitions of this package: SymPy for identities, ball arithmetic for constants, 30-digit quadrature for integrals,
float64 tensors for the rest. {versions}.

**Training.** What only training can test, with what was different from the paper. The rules were fixed before the
studies ran: seeds are paired, a comparison is a paired t-test over them (of logarithms where errors span decades) with
Holm's correction over all comparisons of one statement, those that could not be made among them, at 5 %; a part holds
or fails if the difference is shown in one direction or the other, and cannot be told otherwise, nor with fewer than
three pairs of seeds. Other parts compare a number of ours with a bound that the statement's function names. Effect
sizes (Hedges' g_z of the pairs) decide nothing. A statement holds if all parts do, *partly* if some do, and fails if a
part fails and none holds. Two rules were added with records at hand: the last (two statements of which no part held had
been called partly), and that comparisons that could not be made count in the correction, which is stricter. A statement
that was added or changed when its records were there says so under "different".

In the tables of studies the best mean is bold. A ° marks those that are not shown to be worse: the same test against
the best, where a p counts times the number of the others (which one comes out best is known only after looking). With
two seeds there is no test and no mark; with three, differences are shown that are several times the spread of their
pairs, so that of two activations with one mean (ELU and CELU are one function) one may be shown to be worse and the
other not.

Three checks belong to no single table. ELU and CELU at 1 are one function, so that what they differ by is noise:
`elu_and_celu_are_one`, and for another data set `elu_and_celu_differ`. Entropy against accuracy over all runs tests
EAFO's premise: `less_entropy_goes_with_accuracy`. Numbers of trained parameters stand in every table, beside the
paper's where it has them; where its own are wrong, the claim `parameters_of_the_networks` says so.
"""


def write_pages(entries: Sequence[Entry], judged: Sequence[Judged], runs: Runs, folder: Path = HERE) -> list[Path]:
    """Write the front page and the page of every paper, each whole or not at all, and figures beside the records."""
    write_figures(runs)
    write_record_figures(runs)
    written = [write_whole(folder / "README.md", front(entries, judged), what="page")]
    for paper in PAPERS:
        path = folder / paper.stem / "README.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        written.append(write_whole(path, page(paper, entries, judged, runs), what="page"))
    return written


def front(entries: Sequence[Entry], judged: Sequence[Judged]) -> str:
    """The front page: each paper with its main claim and our verdicts, and the rules."""
    rows = []
    for paper in PAPERS:
        claims, findings = _counted(paper, entries, judged)
        link = f"[{paper.name}]({paper.stem}/README.md)<br>*{paper.title}*"
        rows.append(f"| {link} | {_MAIN[paper.stem]} | {claims} | {findings} |")
    here = Versions.here()
    # Without the local part: the page does not depend on which build of torch is installed.
    named = {"softknee": here.softknee, "torch": here.torch.partition("+")[0], "SymPy": here.others.get("sympy")}
    versions = ", ".join(f"{name} {version}" for name, version in named.items() if version)
    return _FRONT.format(made=_MADE, rows="\n".join(rows), versions=f"{VERSIONS_LINE}{versions}")


def _counted(paper: Paper, entries: Sequence[Entry], judged: Sequence[Judged]) -> tuple[str, str]:
    """How many claims and findings a paper has and what became of them, such as "31: 27 hold, 3 partly, 1 fail"."""
    plural = {HOLDS: "hold", FAILS: "fail", NOT_THERE: "without records"}

    def counts(verdicts: Sequence[str], order: Sequence[str]) -> str:
        words = [
            f"{verdicts.count(verdict)} {plural.get(verdict, verdict)}" for verdict in order if verdict in verdicts
        ]
        return f"{len(verdicts)}: {', '.join(words)}" if verdicts else "none"

    return (
        counts([entry.verdict for entry in entries if entry.claim.paper == paper], (*VERDICTS, CRASHED)),
        counts([entry.verdict for entry in judged if entry.statement.paper == paper], _JUDGED),
    )


def page(paper: Paper, entries: Sequence[Entry], judged: Sequence[Judged], runs: Runs) -> str:
    """The page of one paper as Markdown."""
    return "".join(_parts(paper, [entry for entry in entries if entry.claim.paper == paper], judged, runs))


def _parts(paper: Paper, entries: Sequence[Entry], judged: Sequence[Judged], runs: Runs) -> Iterator[str]:
    yield f"# {paper.name}\n\n{_MADE}\n\n*{paper.title}*\n\n{_MAIN[paper.stem]}\n\n"
    yield "Mathematical claims {}. Findings of training {}.\n".format(*_counted(paper, entries, judged))
    yield "[How they are judged](../README.md#how-it-is-judged).\n"
    for verdict, title in ((FAILS, WRONG), (CRASHED, "Checks that did not run")):
        if listed := [entry for entry in entries if entry.verdict == verdict]:
            yield f"\n## {title}\n\n"
            word = "Error" if verdict == CRASHED else "Measured"
            for entry in listed:
                yield f"- **{entry.claim.place}.** {entry.claim.says} *{word}:* {entry.measured.rstrip('.')}.\n"
    yield f"\n## {CLAIMS}\n\n"
    yield from _claims(entries)
    yield "\n## Its tables and figures\n\n"
    yield from contents(paper, runs)
    yield f"\n## {FINDINGS}\n\n"
    own = [entry for entry in judged if entry.statement.paper == paper]
    with_records = [entry for entry in own if entry.evidence is not None]
    without = [entry for entry in own if entry.evidence is None]
    yield from _table(with_records, runs)
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
        yield "\n### λ-GELU, table II: what replacing by ReLU costs\n\n"
        yield from swap_table(runs)
        yield from language_tables(runs)
    yield from preference_tables(runs, paper.stem)
    yield from _waiting(paper, runs)


def _waiting(paper: Paper, runs: Runs) -> Iterator[str]:
    """The paper's half of every table that was not run, with the command of each row."""
    sections = []
    for exhibit in EXHIBITS[paper.stem]:
        if not exhibit.swaps:
            sections += ["".join(waiting_table(name)) for name in exhibit.recipes if name not in runs.names]
        if exhibit.printed is not None and not any(name in runs.names for name in exhibit.records):
            sections.append("".join(_printed(exhibit, exhibit.printed)))
    if sections:
        yield "\n## Not run yet\n\nThe paper's numbers, and the commands that run them.\n"
        yield from sections


def _printed(exhibit: Exhibit, table: Printed) -> Iterator[str]:
    yield f"\n### {exhibit.place}: {exhibit.title}\n\n"
    yield f"| | {' | '.join(f'{head}: paper' for head in table.heads)} |\n|:--|{'--:|' * len(table.heads)}\n"
    for label, values, command in table.rows:
        yield f"| {' | '.join([cell(label) if command else f'{cell(label)} (no command runs it)', *values])} |\n"
    yield f"\n{f'{table.note} ' if table.note else ''}The whole table: `{table.command}`.\n"
    yield folded(command for _, _, command in table.rows if command)


def _claims(entries: Sequence[Entry]) -> Iterator[str]:
    yield "| place | claim | measured | verdict |\n|---|---|---|---|\n"
    for entry in entries:
        verdict = entry.verdict if entry.verdict not in (FAILS, CRASHED) else f"**{entry.verdict}**"
        place = f"{cell(entry.claim.place)}<br>`{entry.claim.name}`"
        yield f"| {place} | {cell(entry.claim.says)} | {cell(entry.measured)} | {verdict} |\n"


def _table(judged: Sequence[Judged], runs: Runs) -> Iterator[str]:
    if not judged:
        return
    yield "| place | statement | found | different from the paper | verdict | records |\n"
    yield "|---|---|---|---|---|---|\n"
    for entry in judged:
        statement = entry.statement
        verdict = f"**{entry.verdict}**" if entry.verdict == FAILS else entry.verdict
        verdict += f"<br>{entry.counts}" if entry.counts else ""
        links = ", ".join(records_of(statement.paper, name, runs) for name in statement.needs)
        place = f"{cell(statement.place)}<br>`{statement.name}`"
        columns = (place, cell(statement.says), cell(entry.measured), cell(statement.different), verdict, links)
        yield f"| {' | '.join(columns)} |\n"


def records_of(paper: Paper, name: str, runs: Runs) -> str:
    """A link to records from the page of a paper; they may be those of another."""
    if name not in runs.paths:
        return f"`{name}`"
    owner = runs.paths[name].parent.parent.name
    return f"[{name}]({'' if owner == paper.stem else f'../{owner}/'}records/{name})"


def _without_records(judged: Sequence[Judged]) -> Iterator[str]:
    """A short line for each: where it stands, what it says, and which records decide it; then what makes these."""
    if not judged:
        return
    yield "No records yet; each is judged as soon as its records are there:\n\n"
    for entry in judged:
        needs = ", ".join(f"`{name}`" for name in entry.statement.needs)
        begun = f" Begun: {entry.unfinished}." if entry.unfinished else ""
        place = f"{entry.statement.place} (`{entry.statement.name}`)"
        yield f"- {place}: {entry.statement.says} Decided by {needs}.{begun}\n"
    wanted = dict.fromkeys(name for entry in judged for name in entry.missing)
    yield "\nThese commands make them, from the root of a clone:\n\n"
    yield from (f"    {command_of(name)}\n" for name in wanted)


# -- the paper's tables and figures, and the comparisons one by one

_STATES = ("run", "unfinished", "not run yet")


def contents(paper: Paper, runs: Runs) -> Iterator[str]:
    """Every table and figure of a paper, in its order."""
    yield "`softknee study run FILE` runs a recipe of the third column, with `--only LABEL` one row of it:\n\n"
    yield "| in the paper | what | run by | here |\n|---|---|---|---|\n"
    exhibits = EXHIBITS[paper.stem]
    for exhibit in exhibits:
        files = [file for file in map(recipe_file, exhibit.recipes) if file is not None]
        by = [*(f"[{file.stem}](recipes/{file.name})" for file in files), *_commands(exhibit), cell(exhibit.where)]
        yield f"| {exhibit.place} | {exhibit.title} | {'<br>'.join(filter(None, by))} | {_state(exhibit, runs)} |\n"
    yield from (f"\n{exhibit.place}. {exhibit.also}\n" for exhibit in exhibits if exhibit.also)


def _commands(exhibit: Exhibit) -> list[str]:
    """The commands of records that no recipe makes."""
    commands = [command_to_look(name) for name in exhibit.records if name not in RECIPES]
    if exhibit.printed is not None and exhibit.printed.command not in commands:  # with the paper's own settings
        commands.append(exhibit.printed.command)
    return [f"`{cell(command)}`" for command in commands]


def _state(exhibit: Exhibit, runs: Runs) -> str:
    """How far the studies of a table or figure were run, and the records that are there."""
    if exhibit.where and not exhibit.trained:
        return "no training of its own"
    names = [*exhibit.recipes, *(name for name in exhibit.records if name in runs.names)]
    each = [_STATES[2 if name not in runs.names else name in runs.unfinished] for name in names] or [_STATES[2]]
    if len(set(each)) == 1:
        return each[0]
    return ", ".join(f"{each.count(state)} of {len(each)} {state}" for state in _STATES if state in each)


def comparisons(judged: Sequence[Judged]) -> Iterator[str]:
    """The parts of all statements that have any to compare: difference, p after Holm's correction, effect, verdict."""
    rows = [
        (entry.statement.name, part, part.p)
        for entry in judged
        if entry.evidence is not None
        for part in entry.evidence.parts
        if part.p is not None
    ]
    if not rows:
        return
    many = f"The {len(rows)} comparisons behind these verdicts, one by one"
    yield f"\n<details><summary>{many if len(rows) > 1 else 'The comparison behind this verdict'}</summary>\n\n"
    yield "| statement | says | pairs | difference | p | effect size | verdict |\n|---|---|--:|--:|--:|--:|---|\n"
    for name, part, value in rows:
        effect = "" if part.effect is None else f"{part.effect:+.2f}"
        p = f"{value:.3f}" if value >= 0.001 else f"{value:.0e}"
        numbers = f"{part.pairs} | {_difference(part)} | {p} | {effect}"
        yield f"| `{name}` | {cell(part.says)} | {numbers} | {part.verdict} |\n"
    yield (
        "\nThe difference is the mean over the pairs of seeds with its 95 % interval, in the unit of the score: "
        "accuracies as fractions, errors that span decades as their decimal logarithms. The p is that after Holm's "
        "correction over the comparisons of the statement. The effect size is Hedges' g_z, the mean difference of the "
        "pairs over their standard deviation, made smaller for few pairs (0.56 times for three). Difference and effect "
        "size are positive where they go the way that the paper says.\n\n"
        "</details>\n"
    )


def _difference(part: Part) -> str:
    """The mean and its interval, all to the third digit of the interval's width."""
    if part.interval is None:
        return f"{part.direction:+.2g}"
    low, high = part.interval
    places = max(0, 2 - math.floor(math.log10(high - low))) if high > low else 4
    return f"{part.direction:+z.{places}f} [{low:z.{places}f}, {high:z.{places}f}]"
