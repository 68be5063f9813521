"""What the evidence says of a function: its place in every study that had it, and the statements that name it."""

from __future__ import annotations

import functools
import math
import re

from papers.ledger import find_statements
from papers.runs import Runs, Study
from papers.statement import MEASURES, SMALLER, Judged, judge, labels_of
from papers.text import cell

from .markdown import badge
from .places import DOCS, ROOT

_RANKED_BY = ("psnr", "accuracy", "auc", "log_loss", "mse")  # the first of these that a study has
MOST_VARIANTS = 4  # of one function in one study that have a row each
# Names that papers and people use beside the name of the class.
_ALSO = {"srelu": ("S-ReLU",), "lambda_gelu": ("λ-GELU", "lambda-GELU"), "swish": ("SiLU",)}


@functools.cache
def runs() -> Runs:
    """The committed studies."""
    return Runs.committed()


@functools.cache
def judged() -> tuple[Judged, ...]:
    """Every empirical statement of the papers with its verdict."""
    return judge(find_statements(), runs())


@functools.cache
def quickstart() -> Study:
    """The study that `make study` runs."""
    return Runs(DOCS).study("quickstart")


def evidence_of(name: str, title: str) -> str:
    """The section of a function's page."""
    rows = [row for study, link in _studies() for row in _rows(study, link, name)]
    parts = []
    if rows:
        parts.append(
            "Its place among the functions of each study, by the mean over seeds; each study has a page with recipe "
            "and records.\n\n| study | as | score | mean | place | best there |\n|---|---|---|---:|---:|---|\n"
            + "\n".join(rows)
        )
    if named := _statements(name, title):
        parts.append("Statements of the papers that name it:\n\n" + "\n".join(named))
    if not parts:
        parts.append(
            "No committed study has it yet. `softknee study run quickstart --set 'activations=[relu, "
            f"{name}]'` compares it with ReLU on the digits."
        )
    return "## What the evidence says\n\n" + "\n\n".join(parts)


def _studies() -> list[tuple[Study, str]]:
    listed = [
        (runs().study(name), f"../{path.relative_to(ROOT)}/index.md")
        for name, path in runs().paths.items()
        if path.is_dir()
    ]
    return [(quickstart(), "../quickstart/index.md"), *listed]


def _rows(study: Study, link: str, name: str) -> list[str]:
    labels = labels_of(study, name)
    if not labels:
        return []
    has = next(iter(study.outcomes.values())).test
    measure = next((measure for measure in _RANKED_BY if measure in has), None)
    if measure is None:
        return []
    words, factor, form, _ = MEASURES[measure]
    means = {label: study.mean(label, measure, logarithmic=measure == "mse") for label in study.outcomes}
    finite = {label: mean for label, mean in means.items() if not math.isnan(mean)}
    order = sorted(finite, key=lambda label: finite[label], reverse=measure not in SMALLER)
    title = cell(_title_of(study.name))
    begun = runs().unfinished.get(study.name)
    part = f" (unfinished: {begun[0]} of {begun[1]} activations)" if begun else ""
    rows = []
    more = ""
    if len(labels) > MOST_VARIANTS:
        more = f" (the best of {len(labels)} variants)"
        labels = [next((label for label in order if label in labels), labels[0])]
    for label in labels:
        shown = form.format(factor * means[label]) if label in finite else "diverged"
        place = f"{order.index(label) + 1} of {len(order)}" if label in finite else ""
        best = f"{cell(order[0])} {form.format(factor * finite[order[0]])}" if order else ""
        rows.append(f"| [{title}]({link}){part} | {cell(label)}{more} | {words} | {shown} | {place} | {best} |")
    return rows


@functools.cache
def _title_of(name: str) -> str:
    folder = Runs(DOCS) if name == "quickstart" else runs()
    recipe = folder.recipe(name)
    return recipe.paper.source if recipe.paper is not None else recipe.title or name


def _statements(name: str, title: str) -> list[str]:
    words = "|".join(map(re.escape, (title, *_ALSO.get(name, ()))))
    named = re.compile(rf"(?<![\w-])(?:{words})(?![\w-])")
    lines = []
    for entry in judged():
        statement, paper = entry.statement, entry.statement.paper
        if named.search(statement.says):
            mark = badge("unfinished" if entry.unfinished else entry.verdict)
            link = f"[{paper.name}, {statement.place}](../papers/{paper.stem}.md)"
            lines.append(f"- {mark} {link}: {statement.says}")
    return lines
