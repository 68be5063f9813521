"""What three papers found in language models trained on preferences (DPO), judged by `softknee study preference`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from softknee.errors import DataError
from softknee.lab.language.loading import AS_LOADED
from softknee.lab.table import COLONS, Table
from softknee.measure.record import Quantity, Record

from .claim import paper as paper_called
from .runs import Runs, below_record
from .statement import CANNOT_TELL, Evidence, Part, Statement, better, corrected, counted, mean, statements_of

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """A column as a paper calls it and as a record does; `larger` is better there."""

    head: str
    name: str
    larger: bool = True
    percent: bool = False

    def values(self, row: Row) -> list[float]:
        """Of each seed, as the paper counts."""
        return [100 * value if self.percent else value for value in row[f"{self.name}_by_seed"]]

    def text(self, row: Row) -> str:
        """Mean and standard deviation, or that it diverged."""
        if self.name not in row:
            return "diverged"
        return Quantity.mean(self.values(row), unit="").text(2 if self.percent else 4)


@dataclass(frozen=True)
class PreferenceTable:
    """A table of a paper: a function in a model, and the model's own GELU beside it.

    statement: the name of what it says in the ledger; says: that sentence.
    values: by beta the printed rows of the function and of GELU, in the order of the columns.
    options: further options of the command.
    """

    statement: str
    says: str

    record: str
    paper: str
    place: str
    network: str
    model: str
    swap: str
    title: str
    columns: Sequence[Column]
    values: Mapping[str, tuple[Sequence[str], Sequence[str]]]
    options: str = ""

    def command(self, beta: str = "") -> str:
        """What runs the rows of one beta, or the whole table."""
        sets = " --sets hh,shp" if self.model == "gpt2" else ""
        betas = beta or ",".join(self.values)
        return f"softknee study preference --model {self.model}{sets} --swap {self.swap} --betas {betas}{self.options}"

    def names(self) -> dict[str, str]:
        """The titles of its rows by the names that a record has for them."""
        return {self.swap: self.title, AS_LOADED: "GELU"}

    def printed(self, row: Row) -> Sequence[str]:
        """What the paper has for a row of a record."""
        pairs = {float(beta): pair for beta, pair in self.values.items()}
        if row["beta"] not in pairs or row["activation"] not in self.names():
            return [""] * len(self.columns)
        return pairs[row["beta"]][row["activation"] == AS_LOADED]


_MARGIN = Column("reward margin", "reward_margin")
_LOSS = Column("evaluation loss", "evaluation_loss", larger=False)
_SQUAF = (Column("reward accuracy, %", "reward_accuracy", percent=True), _MARGIN, _LOSS)
S_RELU = PreferenceTable(
    statement="srelu_learns_preferences_better",
    says="Trained on preferences, GPT-2 with S-ReLU has higher chosen rewards, lower rejected rewards, larger margins "
    "and a better accuracy than with GELU, for every beta.",
    record="mollification-table-3-gpt2.json",
    paper="mollification",
    place="Table 3",
    network="GPT-2",
    model="gpt2",
    swap="srelu",
    title="S-ReLU",
    columns=(
        Column("chosen reward", "chosen_reward"),
        Column("rejected reward", "rejected_reward", larger=False),
        _MARGIN,
        Column("preference accuracy", "reward_accuracy"),
    ),
    values={
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
    record="eafo-table-4-gpt2.json",
    paper="eafo",
    place="Table 4",
    network="GPT-2",
    model="gpt2",
    swap="crrelu",
    title="CRReLU",
    columns=(_MARGIN, Column("reward accuracy", "reward_accuracy"), _LOSS),
    values={
        "0.1": (("0.1428", "0.6210", "0.6476"), ("0.1419", "0.6196", "0.6480")),
        "1": (("0.4626", "0.5756", "0.9201"), ("0.4556", "0.5731", "0.9298")),
        "2": (("0.7736", "0.5628", "1.462"), ("0.7176", "0.5606", "1.481")),
        "5": (("1.846", "0.5635", "3.268"), ("1.651", "0.5566", "3.305")),
    },
)
SQUAF = PreferenceTable(
    statement="squaf_learns_preferences_better",
    says="Trained on preferences, GPT-2 with SQUAF has a better accuracy, larger margins and a lower loss than with "
    "GELU, for every beta.",
    record="squaf-table-5-gpt2.json",
    paper="squaf",
    place="Table 5",
    network="GPT-2",
    model="gpt2",
    swap="squaf",
    title="SQUAF",
    columns=_SQUAF,
    values={
        "0.1": (("62.50", "0.1352", "0.6510"), ("62.11", "0.0977", "0.6646")),
        "0.2": (("62.89", "0.1838", "0.6544"), ("59.76", "0.1639", "0.6733")),
        "0.4": (("61.33", "0.4201", "0.6547"), ("58.59", "0.3033", "0.7184")),
    },
)
SQUAF_XL = PreferenceTable(
    statement="squaf_learns_preferences_better_in_gpt2_xl",
    says="Trained on preferences, GPT-2 XL with SQUAF is better than with GELU in the same three numbers at beta 0.1 "
    "(accuracy 63.28 against 62.89 %).",
    record="squaf-table-11-gpt2-xl.json",
    paper="squaf",
    place="Table 11",
    network="GPT-2 XL",
    model="gpt2-xl",
    swap="squaf",
    title="SQUAF",
    columns=_SQUAF,
    values={"0.1": (("63.28", "0.2190", "0.6400"), ("62.89", "0.2182", "0.6411"))},
)
SQUAF_PYTHIA = PreferenceTable(
    statement="squaf_learns_preferences_better_in_pythia",
    says="Trained on preferences, Pythia-2.8B with SQUAF is better than with GELU in the same three numbers at beta "
    "0.1 (accuracy 64.84 against 63.67 %).",
    record="squaf-table-11-pythia.json",
    paper="squaf",
    place="Table 11",
    network="Pythia-2.8B",
    model="pythia-2.8b",
    swap="squaf",
    title="SQUAF",
    columns=_SQUAF,
    values={"0.1": (("64.84", "0.4302", "0.6075"), ("63.67", "0.3883", "0.6108"))},
    options=" --micro-batch 4",
)
TABLES = (S_RELU, CRRELU, SQUAF, SQUAF_XL, SQUAF_PYTHIA)

_DIFFERENT = (
    "the pairs that are at hand (the record names them), one pass over them in each stage, where the paper does not "
    "print how many it made; in bfloat16 on a GPU; settings are those of the EAFO paper's table 8, and not every paper "
    "prints its own"
)


def preference_tables(runs: Runs, paper: str) -> Iterator[str]:
    """A section of the paper's page for each of these records that is there, the paper's numbers beside ours."""
    for table in TABLES:
        if table.paper != paper or not runs.has(table.record):
            continue
        record = runs.benchmark(table.record)
        where = f"{paper_called(paper).name}, {table.place.lower()}"
        yield f"\n### {where}: {table.network} trained on preferences (DPO)\n\n"
        head = ["β", "activation", *(text for column in table.columns for text in (f"{column.head}: paper", "here"))]
        rows = []
        for row in sorted(record.rows, key=lambda row: row["beta"]):
            pairs = zip(table.printed(row), table.columns, strict=True)
            cells = [text for theirs, column in pairs for text in (theirs, column.text(row))]
            rows.append([f"{row['beta']:g}", table.names().get(row["activation"], row["activation"]), *cells])
        yield Table(head=head, rows=rows, align="rl" + "rr" * len(table.columns), markup=True).markdown(COLONS)
        settings, machine = record.settings, record.hardware.gpu or record.hardware.cpu
        yield below_record(
            record,
            table.record,
            f"{len(record.seeds)} seeds of {settings['model']} on {machine}: mean and standard deviation, judged by "
            f"{settings['evaluation_pairs']} pairs. {record.notes[1]}",
        )


def _judge(table: PreferenceTable, record: Record) -> Evidence:
    """Every column at every beta, seed by seed."""
    rows = {(row["activation"], row["beta"]): row for row in record.rows}
    parts, words = [], []
    for beta in table.values:
        mine, theirs = (rows.get((name, float(beta))) for name in (table.swap, AS_LOADED))
        if mine is None or theirs is None:
            raise DataError(
                f"'{table.record}' lacks {table.title} or GELU at beta {beta}. Run the table whole: {table.command()}."
            )
        for column in table.columns:
            parts.append(_better(f"β = {beta}: {table.title} better than GELU in {column.head}", column, mine, theirs))
        texts = (f"{column.head} {column.text(mine)} against {column.text(theirs)}" for column in table.columns)
        words.append(f"β = {beta}: {', '.join(texts)}")
    parts = corrected(parts)
    return Evidence(
        f"{table.title} against GELU, {'; '.join(words)}. {counted(parts)} are shown to be better",
        parts=parts,
        numbers={
            f"{title} beta={beta} {column.name}": mean(column.values(rows[name, float(beta)]))
            for beta in table.values
            for name, title in table.names().items()
            for column in table.columns
            if column.name in rows[name, float(beta)]
        },
    )


def _better(says: str, column: Column, mine: Row, theirs: Row) -> Part:
    if column.name not in mine or column.name not in theirs:  # a seed diverged
        return Part(says, CANNOT_TELL)
    return better(says, column.values(mine), column.values(theirs), larger=column.larger)


def _statement(table: PreferenceTable) -> Statement:
    def decide(record: Record) -> Evidence:
        return _judge(table, record)

    decide.__doc__ = (
        f"{table.title} against GELU in each of the {len(table.columns)} numbers at each beta, seed by seed."
    )
    return statements_of(table.paper)(
        name=table.statement,
        place=f"{table.place}, {table.network}",
        says=table.says,
        needs=[table.record],
        different=_DIFFERENT,
    )(decide)


STATEMENTS = tuple(map(_statement, TABLES))
