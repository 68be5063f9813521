"""A fact is shown under the name of the function that it belongs to, however slow its proof is: in a real browser."""

from collections.abc import Callable
from typing import Any

import pytest

from browser import CHROMIUM
from workbench_page import Page

pytest.importorskip("starlette", reason="starlette is not installed; the extra 'web' brings it")
pytest.importorskip("playwright", reason="playwright is not installed; requirements/test.txt brings it")
if CHROMIUM is None:
    pytest.skip("Chromium is not installed, and the page is tested in it", allow_module_level=True)

FACTS = {"formula": "formulas", "certificate": "certificate"}
WAITING = {"formula": "Deriving …", "certificate": "Proving …"}


def settled(page: Page) -> dict[str, str]:
    page.tab.wait_for_timeout(500)  # the certificate is asked for that long after the curve
    page.until(lambda: not any(page.tab.locator(f"#{fact}[aria-busy=true]").count() for fact in FACTS), "the facts")
    return {fact: page.text(f"#{fact}") for fact in FACTS}


def test_facts_of_another_function_or_of_other_numbers_are_never_shown_as_its_own(visit: Callable[..., Page]) -> None:
    page = visit("srelu~delta=1", "softplus", pick="0")
    picks = page.tab.locator("input[name=picked]")
    page.curve(0)
    first = settled(page)
    held: list[Any] = []
    for job in FACTS.values():
        page.tab.route(f"**/api/{job}", lambda route: held.append(route))  # a slow prover

    def answer() -> None:
        page.until(lambda: held, "the question")
        while held:
            held.pop(0).continue_()

    picks.nth(1).check()
    assert {fact: page.text(f"#{fact}") for fact in FACTS} == WAITING
    assert page.text(".chip") == "softplus"
    # Back before the answer, and away again: whatever arrives late belongs to the name above it.
    picks.nth(0).check()
    assert {fact: page.text(f"#{fact}") for fact in FACTS} == WAITING
    picks.nth(1).check()
    answer()
    page.tab.wait_for_timeout(600)
    if held:
        answer()
    page.tab.unroute_all(behavior="ignoreErrors")
    second = settled(page)
    assert all(second[fact] not in (first[fact], WAITING[fact]) for fact in FACTS)
    picks.nth(0).check()
    assert settled(page) == first
    # Other numbers: what is still there says for which it was proved.
    page.tab.route("**/api/certificate", lambda route: held.append(route))
    page.tab.locator("article input[type=number]").first.fill("2")
    page.until(lambda: "For delta = 1. Proving …" in page.text("#certificate"), "the numbers of the old certificate")
    answer()
    page.until(lambda: "Proving" not in page.text("#certificate"), "the new certificate")
    assert "0.375" in page.text("#certificate")


def test_a_function_that_is_not_defined_everywhere(visit: Callable[..., Page]) -> None:
    page = visit("log(x)")
    page.until(lambda: "defined for\nx > 0" in page.text("#certificate"), "where it is defined")
    assert "Proved" not in page.text("#certificate")


def test_a_proof_that_runs_out_of_time_can_go_on(visit: Callable[..., Page]) -> None:
    page = visit("gelu")
    settled(page)
    answer = {"rows": [["monotone", "no", ""]], "open": ["Something is open."], "out_of_time": True}
    asked: list[Any] = []

    def prove(route: Any) -> None:
        asked.append(route.request.post_data_json)
        if not asked[-1].get("longer"):
            route.fulfill(json=answer)  # the longer one is never answered

    page.tab.route("**/api/certificate", prove)
    page.tab.locator("article input[type=number]").fill("2")
    page.tab.get_by_role("button", name="Search ten times as long").click()
    page.until(lambda: "Proving, for up to five minutes" in page.text("#certificate"), "what is done")
    page.until(lambda: asked[-1].get("longer"), "the longer search")
    page.tab.locator("article input[type=number]").fill("3")  # ends it
    page.until(lambda: asked[-1]["function"]["values"] == {"beta": 3}, "the next question")
    page.until(lambda: "The proof ran out of time." in page.text("#certificate"), "its answer")


def test_a_cost_is_measured_again_when_asked_and_a_busy_machine_has_none(visit: Callable[..., Page]) -> None:
    page = visit("srelu~delta=1")
    button = page.tab.locator("#cost button")
    button.wait_for()
    asked: list[Any] = []
    page.tab.on("request", lambda request: asked.append(request) if request.url.endswith("/api/cost") else None)
    button.click()
    page.until(lambda: asked, "another measurement")
    assert asked[0].post_data_json["again"] == 1
    rows = [
        {"name": "gelu", "ours": ours, **{key: {"value": 1, "low": 0.2, "high": 9} for key in ("forward", "step")}}
        for ours in (False, True)
    ]
    page.tab.route("**/api/cost", lambda route: route.fulfill(json={"rows": rows, "elements": 1, "busy": True}))
    page.until(lambda: page.tab.locator("#cost[aria-busy=true]").count() == 0, "the cost")
    button.click()
    page.until(lambda: "This machine is busy" in page.text("#cost"), "the word for it")
    assert "×" not in page.text("#cost")
