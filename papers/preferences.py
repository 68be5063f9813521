"""What three papers found in language models trained on preferences (DPO), judged by studies with a recipe for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from softknee.errors import DataError
from softknee.lab.studies.recipe import Preference
from softknee.lab.table import COLONS, Table
from softknee.measure.record import Quantity

from .claim import paper as paper_called
from .runs import Runs, Study, command_of_recipe, command_of_row, folded, recipe_named
from .statement import Evidence, Part, Statement, better, mean, ranges, statements_of

GELU = "gelu"  # the label of the model's own activation in the recipes
STORIES = "eafo-table-4-stories"  # the study that stands in for those with GPT-2
_OWN = {STORIES: "SiLU"}  # that activation where it is another; its label is in small letters
_STAND_IN = (
    "a story model of 15 million parameters with gated SiLUs and pairs of HH in place of GPT-2, HH and SHP; texts of "
    "256 tokens, prompts of 128, and not 512 and 256"
)


@dataclass(frozen=True)
class Column:
    """A column as a paper calls it and as an outcome does; `larger` is better there."""

    head: str
    name: str
    larger: bool = True
    percent: bool = False

    def printed(self, value: float) -> str:
        """A number of a recipe, where accuracies are in percent, as a paper prints it."""
        value = value / 100 if self.name == "reward_accuracy" and not self.percent else value
        return f"{value:.{4 if abs(value) < 1 else 3 if abs(value) < 10 else 2}f}"

    def values(self, study: Study, label: str, beta: str) -> list[float] | None:
        """Of each seed, as the paper counts; None where one diverged."""
        label = _OWN.get(study.name, label).lower() if label == GELU else label
        outcome = study.outcomes.get(label)
        task = None if outcome is None else outcome.trial.task
        name = task.measure(self.name, float(beta)) if isinstance(task, Preference) else self.name
        if outcome is None or name not in outcome.test:
            raise DataError(
                f"The study '{study.name}' lacks {label} at beta {beta}. Run the table whole: "
                f"{command_of_recipe(study.name)}."
            )
        values = [value for value in outcome.test[name] if value is not None]
        if len(values) < len(outcome.test[name]):
            return None
        return [100 * value for value in values] if self.percent else values

    def text(self, study: Study, label: str, beta: str) -> str:
        """Mean and standard deviation, or that it diverged."""
        values = self.values(study, label, beta)
        return "diverged" if values is None else Quantity.mean(values, unit="").text(2 if self.percent else 4)


@dataclass(frozen=True, kw_only=True)
class PreferenceTable:
    """A table of a paper: a function in a model, and the model's own GELU beside it.

    statement: the name of what it says in the ledger; says: that sentence.
    study:  the name of its recipe; label: of the function there.
    printed: by beta the rows of the function and of GELU, in the order of the columns, where the paper has more than
             the numbers in the recipe.
    """

    statement: str
    says: str
    study: str
    place: str
    label: str
    title: str
    columns: Sequence[Column]
    network: str = "GPT-2"
    printed: Mapping[str, tuple[Sequence[str], Sequence[str]]] = field(default_factory=dict)

    @property
    def paper(self) -> str:
        """The stem of the paper."""
        return self.study.partition("-")[0]

    @property
    def instead(self) -> Mapping[str, str]:
        """What stands in for the study."""
        return {self.study: STORIES} if self.network == "GPT-2" else {}

    @cached_property
    def values(self) -> Mapping[str, tuple[Sequence[str], Sequence[str]]]:
        """By beta the printed rows of the function and of GELU."""
        recipe = recipe_named(self.study)
        task, paper = recipe.task, recipe.paper
        assert isinstance(task, Preference)
        assert paper is not None

        def row(label: str, beta: float) -> list[str]:
            return [column.printed(paper.values[label][task.measure(column.name, beta)]) for column in self.columns]

        return self.printed or {f"{beta:g}": (row(self.label, beta), row(GELU, beta)) for beta in task.betas}

    def rows(self) -> Iterator[tuple[str, str, str, Sequence[str]]]:
        """Beta, label, title and what the paper prints, of each row."""
        for beta, printed in self.values.items():
            for label, title, cells in zip((self.label, GELU), (self.title, "GELU"), printed, strict=True):
                yield beta, label, title, cells


_MARGIN = Column("reward margin", "reward_margin")
_ACCURACY = Column("reward accuracy, %", "reward_accuracy", percent=True)
_LOSS = Column("evaluation loss", "evaluation_loss", larger=False)
_SQUAF: dict[str, Any] = {"label": "squaf", "title": "SQUAF", "columns": (_ACCURACY, _MARGIN, _LOSS)}
S_RELU = PreferenceTable(
    statement="srelu_learns_preferences_better",
    says="Trained on preferences, GPT-2 with S-ReLU has higher chosen rewards, lower rejected rewards, larger margins "
    "and a better accuracy than with GELU, for every beta.",
    study="mollification-table-3",
    place="Table 3",
    label="srelu",
    title="S-ReLU",
    columns=(
        Column("chosen reward", "chosen_reward"),
        Column("rejected reward", "rejected_reward", larger=False),
        _MARGIN,
        Column("preference accuracy", "reward_accuracy"),
    ),
    printed={
        "0.1": (
            ("0.1501", "", "0.0984 ± 0.0008", "0.5938 ± 0.0000"),
            ("-0.2037", "", "0.0659 ± 0.0019", "0.5313 ± 0.0012"),
        ),
        "2": (
            ("0.3861", "", "0.0532 ± 0.0030", "0.5156 ± 0.0005"),
            ("-1.6600", "", "0.0460 ± 0.0055", "0.5080 ± 0.0022"),
        ),
        "5": (
            ("1.1062", "", "1.8664 ± 0.0041", "0.5103 ± 0.0017"),
            ("-3.6484", "", "1.1815 ± 0.0034", "0.5012 ± 0.0001"),
        ),
    },
)
CRRELU = PreferenceTable(
    statement="crrelu_learns_preferences_better",
    says="Trained on preferences, GPT-2 with CRReLU has larger margins, a better accuracy and a lower loss than with "
    "GELU, for every beta.",
    study="eafo-table-4",
    place="Table 4",
    label="crrelu",
    title="CRReLU",
    columns=(_MARGIN, Column("reward accuracy", "reward_accuracy"), _LOSS),
)
SQUAF = PreferenceTable(
    statement="squaf_learns_preferences_better",
    says="Trained on preferences, GPT-2 with SQUAF has a better accuracy, larger margins and a lower loss than with "
    "GELU, for every beta.",
    study="squaf-table-5",
    place="Table 5",
    **_SQUAF,
)
SQUAF_XL = PreferenceTable(
    statement="squaf_learns_preferences_better_in_gpt2_xl",
    says="Trained on preferences, GPT-2 XL with SQUAF is better than with GELU in the same three numbers at beta 0.1 "
    "(accuracy 63.28 against 62.89 %).",
    study="squaf-table-11-gpt2-xl",
    place="Table 11",
    network="GPT-2 XL",
    **_SQUAF,
)
SQUAF_PYTHIA = PreferenceTable(
    statement="squaf_learns_preferences_better_in_pythia",
    says="Trained on preferences, Pythia-2.8B with SQUAF is better than with GELU in the same three numbers at beta "
    "0.1 (accuracy 64.84 against 63.67 %).",
    study="squaf-table-11-pythia",
    place="Table 11",
    network="Pythia-2.8B",
    **_SQUAF,
)
TABLES = (S_RELU, CRRELU, SQUAF, SQUAF_XL, SQUAF_PYTHIA)

_DIFFERENT = (
    "the pairs that are at hand, one pass over them in each stage, where the paper does not print how many it made; in "
    "bfloat16 on a GPU; the other settings are those of the EAFO paper's table 8, and not every paper prints its own; "
    "a SQUAF begins as samples of the model's own activation"
)


def preference_tables(runs: Runs, paper: str) -> Iterator[str]:
    """A section of the paper's page for each of these studies that is there, the paper's numbers beside ours."""
    for table in TABLES:
        name = table.study if runs.has(table.study) else table.instead.get(table.study, table.study)
        if table.paper != paper or not runs.has(name):
            continue
        study, recipe = runs.study(name), runs.recipe(name)
        assert isinstance(recipe.task, Preference)
        where = f"{paper_called(paper).name}, {table.place.lower()}"
        yield f"\n### {where}: {table.network} trained on preferences (DPO)\n\n"
        if name != table.study:
            yield f"Here a stand-in: {_STAND_IN}. Its own activation is SiLU, in the place of the paper's GELU.\n\n"
        head = ["β", "activation", *(text for column in table.columns for text in (f"{column.head}: paper", "here"))]
        rows = []
        for beta, label, title, printed in table.rows():
            pairs = zip(printed, table.columns, strict=True)
            own = label == GELU and name in _OWN
            called = f"its own ({title}, here {_OWN[name]})" if own else title
            rows.append([beta, called, *(t for cell, column in pairs for t in (cell, column.text(study, label, beta)))])
        yield Table(head=head, rows=rows, align="rl" + "rr" * len(table.columns), markup=True).markdown(COLONS)
        note = "" if recipe.paper is None else f" {' '.join(recipe.paper.note.split())}"
        yield (
            f"\n{recipe.seeds.count} seeds on {', '.join(study.machines)}: mean and standard deviation, judged by "
            f"{recipe.task.evaluation_pairs} pairs.{note} Again: `{command_of_recipe(name)}`. "
            f"[Records](../{name.partition('-')[0]}/records/{name}/trials).\n"
        )
        yield folded(command_of_row(name, label) for label in study.outcomes)


def _judge(table: PreferenceTable, study: Study) -> Evidence:
    """Every column at every beta."""
    parts: list[Part] = []
    numbers: dict[str, float] = {}
    own, words = _OWN.get(study.name, "GELU"), []
    for place, column in enumerate(table.columns):
        before = len(parts)
        for beta, printed in table.values.items():
            mine, theirs = (column.values(study, label, beta) for label in (table.label, GELU))
            says = f"β = {beta}: {table.title} better than {own} in {column.head}"
            effect = _effect(column, *(row[place] for row in printed))
            parts.append(better(says, mine or [], theirs or [], larger=column.larger, printed=effect))
            for values, title in ((mine, table.title), (theirs, own)):
                if values is not None:
                    numbers[f"{title} beta={beta} {column.name}"] = mean(values)
        words.append(f"{column.head}: {ranges(parts[before:]) or 'diverged'}")
    return Evidence(parts, "; ".join(words), numbers)


def _effect(column: Column, mine: str, theirs: str) -> float | None:
    """By how much the paper has the function before GELU, where it prints both."""
    if not mine or not theirs:
        return None
    first, second = (float(text.partition(" ")[0]) for text in (mine, theirs))
    effect = first - second if column.larger else second - first
    return effect if effect > 0 else None


def _statement(table: PreferenceTable) -> Statement:
    def decide(study: Study) -> Evidence:
        return _judge(table, study)

    decide.__doc__ = f"{table.title} against GELU in each of the {len(table.columns)} numbers at each beta."
    return statements_of(table.paper)(
        name=table.statement,
        place=f"{table.place}, {table.network}",
        says=table.says,
        needs=[table.study],
        different=_DIFFERENT,
        stand_in=_STAND_IN if table.instead else "",
        instead=table.instead,
    )(decide)


STATEMENTS = tuple(map(_statement, TABLES))
