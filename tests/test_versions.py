"""`make test-versions`: which files are the core suite, and how what became of them is counted."""

import json
from pathlib import Path

import pytest
from core_suite import LIBRARY, core_suite
from version_runs import BEGIN, PAGE, RECORD, counted, line_of, oldest_torch, pinned, pinned_torch, table

from layers import ROOMS

TESTS = Path(__file__).parent


def test_the_core_suite_holds_the_library_and_not_the_lab() -> None:
    files, left_out = core_suite(TESTS)
    wanted = "values gradient extremes compile export transforms layout half module learned certify sites swap"
    assert {f"test_{name}.py" for name in wanted.split()} <= set(files)
    assert "softknee.lab" in left_out["test_study_run.py"]
    assert "the checkout" in left_out["test_package.py"]
    assert set(files) | set(left_out) == {path.name for path in TESTS.glob("test_*.py")}


def test_the_rooms_of_the_library_are_rooms() -> None:
    assert set(ROOMS) - LIBRARY == {"", "lab", "app", "__main__"}


@pytest.mark.parametrize(
    ("source", "needs"),
    [
        ("import torch\nimport numpy as np\nfrom softknee.nn import make", []),
        ("from shared import x", ["timm"]),
        ("from softknee import InputError, design", []),
        ("import timm", ["timm"]),
        ("from helper import x", ["timm"]),
        ("import softknee.lab.data.images", ["softknee.lab"]),
        ("from softknee import lab", ["softknee.lab"]),
        ('import pytest\nImage = pytest.importorskip("PIL.Image", reason="no")', ["PIL"]),
        ("def test():\n    import timm", []),
        ("from pathlib import Path\nROOT = Path(__file__).parent.parent", ["the checkout"]),
    ],
)
def test_what_a_file_needs(source: str, needs: list[str], tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("import timm\nx = timm", encoding="utf-8")
    (tmp_path / "helpers").mkdir()
    (tmp_path / "helpers" / "shared.py").write_text("from helper import x", encoding="utf-8")
    (tmp_path / "test_it.py").write_text(source, encoding="utf-8")
    files, left_out = core_suite(tmp_path)
    assert (files, left_out) == ((["test_it.py"], {}) if not needs else ([], {"test_it.py": needs}))


def test_the_oldest_torch_is_that_of_the_package() -> None:
    assert oldest_torch() == "2.6"


def test_tools_are_pinned() -> None:
    assert pinned_torch().startswith("2.")
    assert len(pinned()) == 6
    assert all("==" in item for item in pinned())


def test_a_report_is_counted_and_a_missing_one_is_no_success(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite><testcase classname="a" name="b"/>'
        '<testcase classname="a" name="c"><failure/></testcase>'
        '<testcase classname="a" name="d"><skipped message="no GPU"/></testcase></testsuite></testsuites>',
        encoding="utf-8",
    )
    result = counted(report)
    assert (result["passed"], result["failures"], result["skipped for"]) == (1, ["a::c"], {"no GPU": 1})
    about = {"python": "3.11.7", "torch": "2.6.0", "seconds": 9, "log": "build/x.log"}
    assert "1 passed, 1 failed, 1 skipped in 9 s" in line_of(about | result)
    assert "did not end within 9 s" in line_of(about | counted(tmp_path / "nothing.xml"))


def test_the_page_holds_the_record() -> None:
    """And no version with a failing test is listed as one that works."""
    results = json.loads(RECORD.read_text(encoding="utf-8"))
    assert f"{BEGIN}\n\n{table(results)}\n" in PAGE.read_text(encoding="utf-8")
    assert all(result["ended"] and not result["failed"] and result["passed"] for result in results)
    assert any(item["torch"].startswith(f"{oldest_torch()}.") for item in results)
