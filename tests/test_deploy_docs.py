"""The page on what replacing by ReLU costs and buys: its tables are those of the records."""

from deploy_page import PAGE, names, with_tables


def test_every_table_is_made_from_its_record() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert len(names(page)) == 4
    assert with_tables(page) == page
