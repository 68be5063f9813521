"""Where things are on the page in a real browser: above the fold, on a phone, and what a long formula does."""

from collections.abc import Callable

import pytest

from browser import CHROMIUM
from workbench_page import Page

pytest.importorskip("starlette", reason="starlette is not installed; the extra 'web' brings it")
pytest.importorskip("playwright", reason="playwright is not installed; requirements/test.txt brings it")
if CHROMIUM is None:
    pytest.skip("Chromium is not installed, and the page is tested in it", allow_module_level=True)


def bottom(page: Page, selector: str) -> float:
    box = page.tab.locator(selector).first.bounding_box()
    return box["y"] + box["height"]


def test_training_and_code_are_above_the_fold(visit: Callable[..., Page]) -> None:
    page = visit("srelu~delta=1", "gelu")
    page.until(lambda: "SReLU(delta=1.0)" in page.text("#take-code") or "GELU" in page.text("#take-code"), "the code")
    for selector in ("#try-go", "#take-copy", "#take-svg", "#take-code"):
        assert bottom(page, selector) <= 900, selector


def test_on_a_phone_the_curve_stays_with_the_sliders(visit: Callable[..., Page]) -> None:
    page = visit("a * tanh(b * x) + c * x + d", "gelu", width=390)
    for slider in page.tab.locator("article input[type=range]").all():
        slider.scroll_into_view_if_needed()
        slider.evaluate("node => node.scrollIntoView({ block: 'end' })")
        panel, own = page.tab.locator(".panel.main").bounding_box(), slider.bounding_box()
        assert panel["y"] >= -1
        assert panel["y"] + panel["height"] <= own["y"] + 1
        assert own["y"] + own["height"] <= 900
    # Further down there is room for the rest.
    page.tab.locator("#take-copy").evaluate("node => node.scrollIntoView({ block: 'end' })")
    assert bottom(page, ".plots") < 100


def test_a_long_formula_says_that_it_continues_and_opens_wide(visit: Callable[..., Page]) -> None:
    page = visit("mollify(hardtanh, triweight, width=delta)~delta=0.4")
    page.until(lambda: "It continues to the right." in page.text("#formula"), "the end that is not the end")
    page.tab.get_by_role("button", name="Open wide").click()
    dialog = page.tab.locator("dialog.wide")
    assert dialog.locator("math").count() >= 3
    assert dialog.bounding_box()["width"] > 2 * page.tab.locator("#formula").bounding_box()["width"]
    page.tab.keyboard.press("Escape")
    page.until(lambda: dialog.count() == 0, "the page again")
    # With a wide kernel the pieces come in another order, and the formula says for which it is.
    assert "<" in page.text("#formula .where")
    page.tab.locator("article input[type=number]").fill("1.5")
    page.until(lambda: ">" in page.text("#formula .where"), "the other order")
