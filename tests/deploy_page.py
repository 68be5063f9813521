"""Puts the tables of docs/deploy.md in place from their records: python tests/deploy_page.py"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

from papers.lambda_gelu.language import LANGUAGE, language_markdown
from papers.runs import Runs, Study

from softknee.lab.deploy import summary_tables
from softknee.lab.table import Table
from softknee.measure import Record

HOME = Path(__file__).parent.parent
PAGE = HOME / "docs" / "deploy.md"
RECORDS = HOME / "benchmarks" / "records"
_MARK = re.compile(r"<!-- ([\w-]+) -->\n.*?(?=Record: )", flags=re.DOTALL)

COSTS = "costs"
_OF_THE_PAPER = {"GELU": ("gelu", ""), "lambda-GELU": ("λ-GELU uniform", "λ-GELU hardened")}
_OWN = {
    "GELU": ("gelu", ""),
    "lambda-GELU": ("lambda_gelu", "lambda_gelu hardened"),
    "S-ReLU": ("srelu", "srelu hardened"),
}
# By study: what was trained, and by activation the labels of its free and its hardened networks.
STUDIES: Mapping[str, tuple[str, Mapping[str, tuple[str, str]]]] = {
    "hardening-digits": ("MLP, handwritten digits", _OWN),
    "lambda-gelu-adult": ("MLP, Adult", _OF_THE_PAPER),
    "lambda-gelu-fashion": ("MLP, Fashion-MNIST", _OF_THE_PAPER),
    "lambda-gelu-cifar-10": ("ResNet-18, CIFAR-10", _OF_THE_PAPER),
    "lambda-gelu-cifar-100-small": ("ResNet of four blocks, CIFAR-100", _OF_THE_PAPER),
}


def costs() -> str:
    """What replacing by ReLU costs: a row for each network and activation of the studies."""
    runs, rows = Runs(RECORDS, *HOME.glob("papers/*/records")), []
    for name, (network, labels) in STUDIES.items():
        study = runs.study(name)
        for activation, (free, hardened) in labels.items():
            cells = [_both(study, label) if label else ("–", "–") for label in (free, hardened)]
            relu = _accuracy(study.values("relu", "accuracy"))
            rows.append((network, str(study.seeds(free)), activation, *(text for pair in cells for text in pair), relu))
    head = ("network and data", "seeds", "activation", "free", "swapped directly", "hardened", "replaced", "ReLU")
    return Table(head=head, rows=rows, markup=True).markdown()


def _both(study: Study, label: str) -> tuple[str, str]:
    """The test accuracy with the activation and with ReLU in its place."""
    replacement = study.outcomes[label].replacement
    after = "–" if replacement is None else _accuracy(replacement["test"]["accuracy"])
    return _accuracy(study.values(label, "accuracy")), after


def _accuracy(values: Sequence[float | None]) -> str:
    numbers = [100 * value for value in values if value is not None]
    assert len(numbers) == len(values)
    return f"{fmean(numbers):.2f} ± {stdev(numbers):.2f}"


def table(name: str) -> str:
    """The table of this name, by what its record is of."""
    if name == COSTS:
        return costs()
    record = Record.read(RECORDS / f"{name}.json")
    if record.kind == LANGUAGE:
        return language_markdown(record)
    return "\n".join(item.markdown().rstrip() + "\n" for item in summary_tables(record))


def names(page: str) -> list[str]:
    """The tables of a page."""
    return [match[1] for match in _MARK.finditer(page)]


def with_tables(page: str) -> str:
    """The page with each table as its record says."""
    return _MARK.sub(lambda found: f"<!-- {found[1]} -->\n\n{table(found[1])}\n", page)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
