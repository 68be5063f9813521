"""For each paper: its tables and figures with what runs each and how far it was run, and the comparisons one by one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from ..ledger.entry import Paper
from ..ledger.text import cell
from .commands import command_to_look
from .exhibits import EXHIBITS, Exhibit
from .runs import Runs
from .statement import Judged, Part

_WORDS = ("run", "unfinished", "not run yet")


def contents(paper: Paper, runs: Runs) -> Iterator[str]:
    """Every table and figure of a paper, in its order."""
    yield "Its tables and figures. A name in the third column is run whole by `softknee study run NAME`, and one row "
    yield "of it with `--only LABEL`:\n\n| in the paper | what | run by | here |\n|---|---|---|---|\n"
    for one in EXHIBITS[paper.stem]:
        by = [*(f"`{cell(name)}`" for name in _run_by(one)), _for_this_page(one.where)]
        yield f"| {one.place} | {one.title} | {'<br>'.join(filter(None, by))} | {_state(one, runs)} |\n"


def _run_by(one: Exhibit) -> list[str]:
    """Recipes by name, everything else as a command."""
    commands = [command_to_look(name) for name in one.records]
    if one.printed is not None and one.printed.command not in commands:  # with the paper's own settings
        commands.append(one.printed.command)
    return [*one.recipes, *(one.swaps or ()), *commands]


def _for_this_page(where: str) -> str:
    """A sentence of the papers' pages, which lie one folder below: links to this page are none here."""
    return cell(re.sub(r"\[([^\]]*)\]\((?:\.\./evidence\.md)?(?:#[^)]*)?\)", r"\1", where).replace("](../", "]("))


def held_by(one: Exhibit, runs: Runs) -> list[str]:
    """The studies that hold a table or figure, run or not, and the records that are there."""
    return [*one.recipes, *(one.swaps or ()), *(name for name in one.records if name in runs.names)]


def _state(one: Exhibit, runs: Runs) -> str:
    if one.where and not one.trained:
        return "no training of its own"
    names = held_by(one, runs)
    each = [_word(name, runs) for name in names] or [_WORDS[-1]]
    if len(set(each)) == 1:
        return each[0]
    return ", ".join(f"{each.count(word)} of {len(each)} {word}" for word in _WORDS if word in each)


def _word(name: str, runs: Runs) -> str:
    return _WORDS[2] if name not in runs.names else _WORDS[1] if name in runs.unfinished else _WORDS[0]


def comparisons(judged: Sequence[Judged]) -> Iterator[str]:
    """The parts of all statements that have any to compare: difference, p after Holm's correction, effect, verdict."""
    rows = [
        (one.statement.decide.__name__, part)
        for one in judged
        if one.evidence is not None
        for part in one.evidence.parts
        if part.p is not None
    ]
    if not rows:
        return
    many = f"The {len(rows)} comparisons behind these verdicts, one by one"
    yield f"\n<details><summary>{many if len(rows) > 1 else 'The comparison behind this verdict'}</summary>\n\n"
    yield "| statement | says | pairs | difference | p | effect size | verdict |\n|---|---|--:|--:|--:|--:|---|\n"
    for name, part in rows:
        effect = "" if part.effect is None else f"{part.effect:+.2f}"
        numbers = f"{part.pairs} | {_difference(part)} | {_p(part.p or 0.0)} | {effect}"
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


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else f"{value:.0e}"
