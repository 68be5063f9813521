"""Every table and figure of a paper beside ours: how far each was run, and for every row the command that runs it."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from papers.claim import Paper
from papers.exhibits import EXHIBITS, Exhibit, Printed
from papers.pages import FINDINGS, held_by
from papers.runs import command_of_recipe, recipe_named
from papers.text import cell

from softknee.lab.distilling import ENTRIES, TEACHER
from softknee.lab.report.parts import PARAMETERS, score_called
from softknee.lab.studies.recipe import Recipe
from softknee.lab.studies.trials import every_chosen

from .found import runs
from .markdown import badge
from .places import PAPERS

NOT_RUN, UNFINISHED = "not run yet", "unfinished"
RERUN = "run this row"
_TABLE = re.compile(r"(?:^\|.*\n)+", re.M)
_INTERVAL = re.compile(r" (\[[^\][|]*, [^\][|]*\])")
# Of a command that was typed once: where its output went and where the data lay.
_LEFT_OUT = ("--json", "--figure", "--shapes", "--data", "--out")
_WIKITEXT_ROWS = {"GELU": "gelu", "lambda-GELU": "lambda_gelu", "S-ReLU": "srelu", "ReLU": "relu"}


def beside(paper: Paper) -> str:
    """The tables and figures of a paper, one after the other."""
    sections = _sections(paper)
    parts = [_exhibit(one, sections) for one in EXHIBITS[paper.stem]]
    if sections:  # a record that no exhibit names is still shown
        parts.append("### Also run\n\n" + "\n\n".join(f"#### {name}\n\n{body}" for name, body in sections.items()))
    return "\n\n".join(parts)


def index(paper: Paper) -> str:
    """A table of the tables and figures of a paper: what each is, and how far it was run."""
    lines = ["| in the paper | what | here |", "|---|---|---|"]
    for one in EXHIBITS[paper.stem]:
        lines.append(_line([f"[{one.place}](#{_anchor(_heading(one))})", one.title, _states(one)]))
    return "\n".join(lines)


def unfinished(name: str) -> str:
    """ "15 of 32 activations" of a study that was run in part; empty of another."""
    if name not in runs().unfinished:
        return ""
    done, whole = runs().unfinished[name]
    return f"{done} of {whole} activations"


def state(name: str) -> str:
    """Whether a study has records: "run", "unfinished" or "not run yet"."""
    if name not in runs().names:
        return NOT_RUN
    return UNFINISHED if name in runs().unfinished else "run"


def command_of(study: str, label: str) -> str:
    """The command that runs one activation of a study.

    >>> command_of("smelu-figure-4", "smelu beta=0.5")
    "softknee study run papers/smelu/recipes/figure-4.yaml --only 'smelu beta=0.5'"
    """
    return f"{command_of_recipe(study)} --only {shlex.quote(label)}"


# -- the index --------------------------------------------------------------------------------------------


def _heading(one: Exhibit) -> str:
    return f"{one.place}: {one.title}"


def _anchor(heading: str) -> str:
    """The anchor that Sphinx gives a heading (as GitHub does)."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _states(one: Exhibit) -> str:
    if one.where and not one.trained:
        return "no training"
    names = held_by(one, runs())
    found = [state(name) for name in names or [""]]
    if len(found) == 1:
        return badge(found[0]) + (f" {unfinished(names[0])}" if found[0] == UNFINISHED else "")
    if len(set(found)) == 1:
        return badge(found[0])
    told = {word: found.count(word) for word in ("run", UNFINISHED, NOT_RUN) if word in found}
    return ", ".join(f"{badge(word)} {count} of {len(found)}" for word, count in told.items())


# -- one table or figure ----------------------------------------------------------------------------------


def _exhibit(one: Exhibit, sections: dict[str, str]) -> str:
    parts = [f"### {_heading(one)}"]
    parts += [text for text in (one.where, one.also) if text]
    for name in one.recipes:
        recipe = recipe_for(name)
        assert recipe.paper is not None
        heading = f"{recipe.paper.source}: {recipe.title}"
        if len(one.recipes) > 1 or one.records:
            parts.append(f"#### {recipe.title}")
        parts.append(_run(name, recipe, sections.pop(heading)) if heading in sections else _waiting(name, recipe))
    there = [name for name in one.records if name in runs().names]
    for name in there:
        heading, body = _of_record(name, sections)
        parts += [f"#### {heading}"] * bool(len(there) > 1 or one.recipes) + [body]
    if one.printed is not None and not there:
        parts.append(_printed(one.printed))
    if one.swaps is not None:
        parts.append(_swaps(one.swaps))
    return "\n\n".join(parts)


def _sections(paper: Paper) -> dict[str, str]:
    """Of the paper's own page, which a test holds against the records: what stands below each heading."""
    text = (PAPERS / paper.stem / "README.md").read_text(encoding="utf-8").partition(f"\n## {FINDINGS}\n")[2]
    # As seen from docs/papers/, where the page would be if it were one of the documentation.
    text = re.sub(r"\]\((?:\.\./(\w+)/)?records/", lambda m: f"](../../papers/{m[1] or paper.stem}/records/", text)
    parts = re.split(r"^### (.*)$", text, flags=re.M)[1:]
    return {heading.strip(): body.strip() for heading, body in zip(parts[::2], parts[1::2], strict=True)}


@functools.cache
def recipe_for(name: str) -> Recipe:
    """The recipe that a study was run with, or else the one that ships."""
    return runs().recipe(name) if name in runs().names else recipe_named(name)


@functools.cache
def _labels(name: str) -> tuple[str, ...]:
    return tuple(one.label for one in every_chosen(recipe_for(name)))


def _run(name: str, recipe: Recipe, body: str) -> str:
    """A study that has records, whole or in part."""
    done = list(runs().study(name).outcomes)
    body = _with_commands(body, [command_of(name, label) for label in done])
    if name not in runs().unfinished:
        return body
    body = re.sub(r"^Unfinished: .*\n\n?", "", body, flags=re.M)
    missing = [label for label in _labels(name) if label not in done]
    return (
        f"{badge(UNFINISHED)} {unfinished(name)} were run so far.\n\n{body}\n\n"
        f"<details><summary>{len(missing)} activations are not run yet</summary>\n\n"
        f"{_values(name, recipe, missing)}\n\n</details>"
    )


def _waiting(name: str, recipe: Recipe) -> str:
    """A study without records: the paper's numbers, and the commands."""
    assert recipe.paper is not None
    return (
        f"{badge(NOT_RUN)} The whole table: `softknee study run {name}`.\n\n{_values(name, recipe, _labels(name))}\n\n"
        f"{{.under}}\n{' '.join(recipe.paper.note.split())}"
    )


def _values(name: str, recipe: Recipe, labels: Sequence[str]) -> str:
    """Rows that have no record."""
    values: Mapping[str, Mapping[str, float]] = recipe.paper.values if recipe.paper is not None else {}
    measures = list(dict.fromkeys(one for label in labels for one in values.get(label, {})))
    heads = [f"{_words(one)}: paper" for one in measures]
    places = {one: max(_places(values[label][one]) for label in values if one in values[label]) for one in measures}
    lines = _head(["activation", *heads, "here", RERUN])
    for label in labels:
        of = values.get(label, {})
        shown = [f"{of[one]:,.{places[one]}f}" if one in of else "" for one in measures]
        lines.append(_line([cell(label), *shown, NOT_RUN, _code(command_of(name, label))]))
    return "\n".join(lines)


def _places(value: float) -> int:
    """Digits after the point, as the paper prints them; of numbers below a hundredth as many as they have."""
    return len(f"{value:.10f}".rstrip("0").partition(".")[2])


def _printed(table: Printed) -> str:
    lines = _head(["", *(f"{one}: paper" for one in table.heads), "here", RERUN])
    for label, values, command in table.rows:
        lines.append(_line([cell(label), *values, NOT_RUN, _code(command) if command else "no command runs it"]))
    note = f"\n\n{{.under}}\n{table.note}" if table.note else ""
    return f"{badge(NOT_RUN)} The whole table: {_code(table.command)}\n\n" + "\n".join(lines) + note


def _swaps(of: Mapping[str, Mapping[str, tuple[float, float]]]) -> str:
    """Accuracies before and after the replacement, the paper's beside ours."""
    lines = _head(["data", "activation", "accuracy, %: paper", "replaced: paper", "here", "replaced: here", RERUN])
    for name, rows in of.items():
        outcomes = runs().study(name).outcomes if name in runs().names else {}
        for label, printed in rows.items():
            ours = [NOT_RUN, NOT_RUN]
            if label in outcomes and (found := outcomes[label].replacement) is not None:
                both = (outcomes[label].test["accuracy"], found["test"]["accuracy"])
                ours = [_mean(one) for one in both]
            shown = [f"{one:g}" for one in printed]
            data = name.removeprefix("lambda-gelu-")
            lines.append(_line([data, cell(label), *shown, *ours, _code(command_of(name, label))]))
    return (
        "\n".join(lines)
        + "\n\n{.under}\nOf the validation set in the paper, of the test set here: means over the seeds."
    )


def _mean(values: Sequence[float | None]) -> str:
    found = [one for one in values if one is not None]
    return f"{100 * sum(found) / len(found):.2f}" if found else "diverged"


# -- records of commands other than `study run` ------------------------------------------------------------


def _of_record(name: str, sections: dict[str, str]) -> tuple[str, str]:
    """The section of the paper's page that links to a record, taken out of the others."""
    for heading, body in sections.items():
        if f"/records/{name})" in body:
            del sections[heading]
            return heading, _with_commands(body, list(_record_commands(name)))
    raise ValueError(f"No page of a paper has a section on {name!r}; make them again: python -m papers --pages")


def _record_commands(name: str) -> Iterator[str]:
    """For every row of a record the command that runs it, from the command that made the record."""
    record = runs().benchmark(name)
    whole = shlex.split(record.command)
    # Those of preferences stand in the order of their beta.
    for row in sorted(record.rows, key=lambda one: one.get("beta", 0)):
        if "beta" in row:  # the model's own activation is always run with the others
            yield shlex.join([*without(whole, "--betas"), "--betas", f"{row['beta']:g}"])
        elif "variant" in row:
            swap = "relu" if row is record.rows[0] else row["variant"]  # the first is the model as it is, always run
            yield shlex.join([*without(whole, "--swap"), "--swap", swap])
        elif "row" in row:
            short = row["row"].partition(",")[0].partition(" ")[0]
            yield shlex.join([*without(whole, "--rows"), "--rows", _WIKITEXT_ROWS[short]])
        elif "weight" in row:
            chosen = (
                ["--weights", "0", "--baselines", row["activation"].lower()]
                if row["weight"] is None
                else ["--weights", f"{row['weight']:g}", "--baselines", ""]
            )
            yield shlex.join([*without(whole, "--weights", "--baselines"), *chosen])
        else:
            titles = {one.title: one.name for one in ENTRIES.values()}
            student = "relu" if row["activation"].startswith(TEACHER) else titles[row["activation"]]
            yield shlex.join([*without(whole, "--only"), "--only", student])


def without(words: Sequence[str], *options: str) -> list[str]:
    """A command without some options and their values, and without where it wrote and read."""
    kept, skip = [], False
    for word in words:
        name, equals, _ = word.partition("=")
        if skip or name in (*options, *_LEFT_OUT):
            skip = not skip and not equals
        else:
            kept.append(word)
    return kept


# -- tables -----------------------------------------------------------------------------------------------


def _with_commands(body: str, commands: Sequence[str]) -> str:
    """The first table of a section with a last column, how to run each row; the text below it in small print."""
    found = _TABLE.search(body + "\n")
    if found is None:
        raise ValueError(f"There is no table in this section of a paper's page:\n{body[:200]}")
    first, second, *rows = found[0].strip().splitlines()
    lines = [f"{first} {RERUN} |", f"{second}:--|"]
    for row, command in zip(rows, commands, strict=True):
        narrow = _INTERVAL.sub(r' <span class="interval">\1</span>', row)
        lines.append(f"{narrow} {_code(command)} |")
    return body[: found.start()] + "\n".join(lines) + "\n\n{.under}\n" + body[found.end() :].lstrip()


def _head(heads: Sequence[str]) -> list[str]:
    sides = [":--" if one in ("", "activation", "data", RERUN) else "--:" for one in heads]
    return [_line(heads), f"|{'|'.join(sides)}|"]


def _line(row: Sequence[str]) -> str:
    return f"| {' | '.join(row)} |"


def _code(command: str) -> str:
    """A command in a cell, which breaks before its options alone; a click marks the whole of it."""
    parts = re.split(r" (?=--)", command)
    return f'<span class="again">{" ".join(f"`{cell(one)}`" for one in parts)}</span>'


def _words(measure: str) -> str:
    if measure == PARAMETERS.name:
        return PARAMETERS.title
    try:
        known = score_called(measure)
    except StopIteration:  # a number of a set of models, such as a prediction difference
        return measure.replace("_", " ")
    return f"{known.title}, {known.unit}" if known.unit else known.title
