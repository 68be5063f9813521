"""Puts the tables of docs/deploy.md in place from their records: python tests/deploy_page.py"""

import re
from pathlib import Path

from papers.lambda_gelu.language import LANGUAGE, language_markdown

from softknee.lab.deploy import summary_tables
from softknee.lab.hardening import hardening_markdown
from softknee.measure import Record

HOME = Path(__file__).parent.parent
PAGE = HOME / "docs" / "deploy.md"
_MARK = re.compile(r"<!-- ([\w-]+) -->\n.*?(?=Record: )", flags=re.DOTALL)


def table(name: str) -> str:
    """The table of a record, by what the record is of."""
    record = Record.read(HOME / "benchmarks" / "records" / f"{name}.json")
    if record.kind == "study hardening":
        return hardening_markdown(record)
    if record.kind == LANGUAGE:
        return language_markdown(record)
    return "\n".join(item.markdown().rstrip() + "\n" for item in summary_tables(record))


def names(page: str) -> list[str]:
    """The records that a page has tables of."""
    return [match[1] for match in _MARK.finditer(page)]


def with_tables(page: str) -> str:
    """The page with each table as its record says."""
    return _MARK.sub(lambda found: f"<!-- {found[1]} -->\n\n{table(found[1])}\n", page)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
