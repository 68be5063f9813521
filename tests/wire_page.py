"""Puts the tables of docs/wire.md in place from their records: python tests/wire_page.py"""

import re
from pathlib import Path

from softknee.lab.bench.wire import tables
from softknee.measure import Record

HOME = Path(__file__).parent.parent
PAGE = HOME / "docs" / "wire.md"
_MARK = re.compile(r"<!-- ([\w-]+) -->\n.*?(?=Record: )", flags=re.DOTALL)


def names(page: str) -> list[str]:
    """The records that the page has tables of."""
    return [match[1] for match in _MARK.finditer(page)]


def with_tables(page: str) -> str:
    """The page with each table as its record says."""

    def table(found: re.Match[str]) -> str:
        record = Record.read(HOME / "benchmarks" / "records" / f"{found[1]}.json")
        table_text = "\n".join(table.markdown() for table in tables(record))
        return f"<!-- {found[1]} -->\n\n{table_text}\n"

    return _MARK.sub(table, page)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
