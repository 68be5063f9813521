"""The sections on later work: verdicts follow from records, and the pages have their numbers."""

from typing import Any

import pytest
from papers.claim import PAPERS
from papers.later import IMAGES, RECORDS, compared, function_rows, later_work, ratio, verdict

from softknee.measure import Record


def rows_of(**errors: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Rows of a record of functions; errors by network and function."""
    return [{"task": task, "model": model, "errors": errors[model][task]} for model in errors for task in errors[model]]


def test_networks_are_compared_by_ratios_of_errors() -> None:
    small, large, near = [1e-3, 1.1e-3, 0.9e-3], [1e-2, 1.1e-2, 0.9e-2], [1.05e-3, 0.95e-3, 1e-3]
    rows = rows_of(a={"f": small, "g": small}, b={"f": large, "g": near})
    results = compared(rows, "a", "b")
    assert ratio(results["f"]) == pytest.approx(0.1)
    assert [part.direction for part in results.values()] == ["shown", "not shown"]
    assert verdict(results) == "not shown"
    assert verdict({"f": results["f"]}) == "shown"
    turned = compared(rows, "b", "a")
    assert verdict({"f": turned["f"]}) == "reversed"
    assert verdict(turned) == "not shown"  # one of two is no more than half


def test_three_papers_have_a_section_with_the_numbers_of_the_records() -> None:
    texts = {paper.stem: "".join(later_work(paper.stem)) for paper in PAPERS}
    assert {stem for stem, text in texts.items() if text} == {"mollification", "eafo", "squaf"}
    rows = function_rows()
    for stem, first, second in (("mollification", "spline", "linear"), ("squaf", "squaf", "pykan")):
        for task, part in compared(rows, first, second).items():
            assert f"{ratio(part):.2f} times on {task}" in texts[stem]
    wrong = next(row["error"] for row in Record.read(RECORDS / IMAGES).rows if row["model"] == "squaf")
    assert f"{100 * wrong.value:.1f} ± {100 * wrong.spread:.1f} %" in texts["squaf"]
    assert "Not run" in texts["eafo"]
