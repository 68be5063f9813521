"""What the page keeps while a visitor errs, and what its address keeps: in a real browser."""

from collections.abc import Callable

import pytest

from browser import CHROMIUM
from workbench_page import Page

pytest.importorskip("starlette", reason="starlette is not installed; the extra 'web' brings it")
pytest.importorskip("playwright", reason="playwright is not installed; requirements/test.txt brings it")
if CHROMIUM is None:
    pytest.skip("Chromium is not installed, and the page is tested in it", allow_module_level=True)

NUMBER = "article input[type=number]"


def _facts(page: Page) -> list[str]:
    """The facts and the code, once nothing is on its way."""
    page.tab.wait_for_timeout(1000)  # the last of them is asked for that long after the curve
    page.until(lambda: page.tab.locator("[aria-busy=true]").count() == 0, "every answer")
    return [page.text(f"#{item}") for item in ("formula", "certificate", "entropy", "depth", "take-code")]


def test_facts_and_code_of_the_last_good_function_stay(visit: Callable[..., Page]) -> None:
    page = visit("2 * (", "srelu~delta=1", pick="1")
    page.until(lambda: "SReLU(delta=1.0)" in page.text("#take-code"), "the code")
    before, problem = _facts(page), page.tab.locator(".problem").last
    for place, content in (("article textarea", "srelu + bogus("), (NUMBER, "-1")):
        field = page.tab.locator(place).last
        kept = field.input_value()
        field.fill(content)
        problem.wait_for()
        assert _facts(page) == before
        field.fill(kept)
        page.until(lambda: not problem.is_visible(), "the end of the complaint")
    # One that could never be read has none, and does not stand beside another's.
    page.tab.locator("input[name=picked]").first.check()
    assert set(_facts(page)) == {"As soon as the function can be read."}
    assert page.tab.locator("#take-copy").is_disabled()
    page.tab.goto(f"{page.address}?f=2+*+(")
    page.tab.locator(".problem").wait_for()
    assert not page.tab.locator("#waking").is_visible()


def test_a_number_that_is_refused_leaves_the_slider_whole(visit: Callable[..., Page]) -> None:
    page = visit("srelu~delta=1")
    number, slider = page.tab.locator(NUMBER), page.tab.locator("article input[type=range]")
    place = slider.input_value()
    for content in ("-1", "1"):
        number.fill(content)
        number.press("Tab")
        page.until(lambda wrong=content == "-1": page.tab.locator(".problem").is_visible() == wrong, content)
    assert slider.input_value() == place
    slider.press("ArrowRight")
    assert 1 < float(number.input_value()) < 1.05


def test_a_link_holds_every_digit_and_the_narrowest_view(visit: Callable[..., Page]) -> None:
    page = visit("srelu~delta=1", x="2.999,3.001")
    page.tab.locator(NUMBER).fill("0.123456789")
    page.tab.locator(NUMBER).press("Tab")
    for _ in range(14):
        page.tab.locator("[data-view=in]").click()
    page.until(lambda: "delta%3D0.123456789" in page.url and "x=2.99999" in page.url, "the numbers in the address")
    page.until(lambda: page.text("#distance") == "sup |f − relu| = 0.0231481", "the distance")
    drawn, link = page.tab.locator(".panel.main text").all_text_contents(), page.url
    other = visit()
    other.tab.goto(link)
    other.until(lambda: other.tab.locator(".panel.main text").all_text_contents() == drawn, "the same ticks")
    assert other.tab.locator(NUMBER).input_value() == "0.123456789"


def test_a_view_that_cannot_be_drawn_is_not_taken_from_a_link(visit: Callable[..., Page]) -> None:
    """Between those two numbers are no others: a tick would never come to the end."""
    page = visit("gelu", x="1e16,1.0000000000000002e16")
    page.until(lambda: "x=-4%2C4" in page.url, "the usual view")


def test_every_function_has_a_say_in_the_first_view(visit: Callable[..., Page]) -> None:
    """Whichever is answered first: S-ReLU alone is shown from -3 to 3, GELU from -4 to 4."""
    for functions in (("gelu", "srelu"), ("srelu", "gelu")):
        page = visit(*functions)
        page.until(lambda page=page: "x=-4%2C4" in page.url, "a view for both")


def test_the_field_in_which_a_density_is_chosen_keeps_the_focus(visit: Callable[..., Page]) -> None:
    """By the keyboard alone: arrows go through the list, a tabulator to the next field."""
    page = visit("gelu")
    focused = "() => document.activeElement.id"
    page.tab.locator("#density-kind").focus()
    for kind in ("laplace", "logistic"):
        page.tab.keyboard.press("ArrowDown")
        page.until(lambda kind=kind: f"in={kind}" in page.url, kind)
    for name in ("mean", "scale"):
        page.tab.keyboard.press("Tab")
        assert page.tab.evaluate(focused) == f"density-{name}"
        page.tab.keyboard.type("2")
    page.tab.keyboard.press("Tab")
    assert page.tab.evaluate(focused) == "upload-button"
    page.until(lambda: "in=logistic%2C2%2C2" in page.url, "both numbers")
