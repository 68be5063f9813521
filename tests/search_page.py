"""Puts the tables of docs/searches.md in place from their records: python tests/search_page.py"""

import re
from pathlib import Path

from softknee.lab.report import summarise, tables
from softknee.lab.searching import SearchResult, headline, judged_table, overview_table, read_search
from softknee.lab.studies.reporting import recipe_of
from softknee.lab.studies.store import RunStore

HOME = Path(__file__).parent.parent
PAGE = HOME / "docs" / "searches.md"
RECORDS = HOME / "benchmarks" / "records"
STUDIES = ("search-transfer", "knee-and-slope", "left-slope")  # of what searches found
_MARK = re.compile(r"<!-- ([\w-]+) -->\n.*?(?=Records?: )", flags=re.DOTALL)


def every_search() -> dict[str, SearchResult]:
    """The searches among the records, by the name of their folder."""
    return {file.parent.name: read_search(file.parent) for file in sorted(RECORDS.glob("*/search.json"))}


def names(page: str) -> list[str]:
    """The searches that a page has tables of; "all" is all of them together."""
    return [match[1] for match in _MARK.finditer(page)]


def with_tables(page: str) -> str:
    """The page with each table as its records say."""
    results = every_search()

    def made(mark: re.Match[str]) -> str:
        name = mark[1]
        if name == "all":
            return f"<!-- all -->\n\n{overview_table(results).markdown()}\n"
        if name in STUDIES:
            return f"<!-- {name} -->\n\n{_study(RECORDS / name)}\n"
        result = results[name]
        return f"<!-- {name} -->\n\n{headline(result)}\n\n{judged_table(result).markdown()}\n"

    return _MARK.sub(made, page)


def _study(folder: Path) -> str:
    """The recommendation of a study and its first table."""
    store = RunStore(str(folder))
    summary = summarise(recipe_of(store), store.outcomes(with_files=False))
    table = tables.headline(summary).markdown().replace("../trials", f"../{folder.relative_to(HOME).as_posix()}/trials")
    return f"{summary.recommendation}\n\n{table}"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
