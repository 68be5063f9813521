"""The sections on later work: verdicts follow from records, and the pages have their numbers."""

import pytest
from papers.claim import PAPERS
from papers.later import FUNCTIONS, IMAGES, RECORDS, compared, later_work, verdict

from softknee.measure import Record


def record_of(**errors: dict[str, list[float]]) -> Record:
    """A record of functions; errors by model and function."""
    tasks = tuple(next(iter(errors.values())))
    rows = [{"task": task, "model": model, "errors": errors[model][task]} for model in errors for task in tasks]
    return Record.now("bench kan", command="test", rows=rows, settings={"tasks": tasks})


def test_networks_are_compared_by_ratios_of_errors() -> None:
    small, large, near = [1e-3, 1.1e-3, 0.9e-3], [1e-2, 1.1e-2, 0.9e-2], [1.05e-3, 0.95e-3, 1e-3]
    record = record_of(a={"f": small, "g": small}, b={"f": large, "g": near})
    results = compared(record, "a", "b")
    assert results["f"][0] == pytest.approx(0.1)
    assert [shown for _, shown in results.values()] == [True, False]
    assert verdict(results) == "not shown"
    assert verdict({"f": results["f"]}) == "shown"
    assert verdict(compared(record, "b", "a")) == "reversed"


def test_three_papers_have_a_section_with_the_numbers_of_the_records() -> None:
    texts = {paper.stem: "".join(later_work(paper.stem)) for paper in PAPERS}
    assert {stem for stem, text in texts.items() if text} == {"mollification", "eafo", "squaf"}
    record = Record.read(RECORDS / FUNCTIONS)
    for stem, first, second in (("mollification", "spline", "linear"), ("squaf", "squaf", "pykan")):
        for task, (ratio, _) in compared(record, first, second).items():
            assert f"{ratio:.2f} times on {task}" in texts[stem]
    wrong = next(row["error"] for row in Record.read(RECORDS / IMAGES).rows if row["model"] == "squaf")
    assert f"{100 * wrong.value:.1f} ± {100 * wrong.spread:.1f} %" in texts["squaf"]
    assert "Not run" in texts["eafo"]
