"""Bending by hand in a real browser: sliders, curves, points of a table and joints, by mouse and by finger."""

from collections.abc import Callable

import pytest

from browser import CHROMIUM
from workbench_page import Page, assert_quick

pytest.importorskip("starlette", reason="starlette is not installed; the extra 'web' brings it")
pytest.importorskip("playwright", reason="playwright is not installed; requirements/test.txt brings it")
if CHROMIUM is None:
    pytest.skip("Chromium is not installed, and the page is tested in it", allow_module_level=True)

SLIDER = "article input[type=range]"
NUMBER = "article input[type=number]"


def place(page: Page, x: float, y: float) -> tuple[float, float]:
    """Where a point of the first panel is on the screen, by the curve: S-ReLU goes through (-3, 0) and (3, 3)."""
    box = page.tab.locator(".panel.main svg").bounding_box()
    numbers = [tuple(map(float, pair.split(" "))) for pair in page.curve().replace("M", "L").split("L")[1:]]
    (left, zero), (right, three) = numbers[0], numbers[-1]
    return box["x"] + left + (x + 3) / 6 * (right - left), box["y"] + zero + (three - zero) * y / 3


def delta(page: Page) -> float:
    return float(page.tab.locator(NUMBER).input_value())


def test_a_large_number_stretches_the_slider_and_a_small_one_brings_it_back(visit: Callable[..., Page]) -> None:
    page = visit("srelu~delta=1")
    slider, number = page.tab.locator(SLIDER), page.tab.locator(NUMBER)
    before = slider.input_value()
    for value in ("1000", "1"):
        number.fill(value)
        number.press("Tab")
        page.until(lambda value=value: slider.get_attribute("aria-valuetext") == value, value)
        page.until(lambda value=value: (slider.input_value() == before) == (value == "1"), f"the place of {value}")


def test_no_digit_of_a_number_is_cut_off(visit: Callable[..., Page]) -> None:
    for width in (1440, 390):
        page = visit("srelu~delta=0.123456789012345", width=width)
        fits = "node => node.scrollWidth <= node.clientWidth"
        assert page.tab.locator(NUMBER).input_value() == "0.123456789012345"
        assert page.tab.locator(NUMBER).evaluate(fits)
        assert page.tab.evaluate("() => document.documentElement.scrollWidth") <= width


def test_the_curve_can_be_dragged(visit: Callable[..., Page]) -> None:
    page = visit("srelu~delta=1", x="-3,3")
    page.tab.locator("#cost button").wait_for()  # what is measured and proved first is done
    page.tab.locator("#depth svg").wait_for()
    page.tab.evaluate("() => workbench.latencies.splice(0)")
    entries = page.tab.evaluate("() => history.length")
    page.tab.mouse.move(*place(page, 0, 0.1875))
    assert page.tab.locator(".panel.main svg.graspable").count() == 1
    start, end = place(page, 0, 0.1875), place(page, 0, 0.45)
    page.tab.mouse.down()
    for step in range(1, 21):
        page.tab.mouse.move(start[0], start[1] + (end[1] - start[1]) * step / 20)
        page.tab.wait_for_timeout(40)
    page.tab.mouse.up()
    page.until(lambda: delta(page) == pytest.approx(16 / 3 * 0.45, rel=0.03), "the parameter")
    page.until(lambda: page.text("#distance").startswith("sup |f − relu| = 0.4"), "the distance")
    page.until(lambda: f"delta%3D{delta(page):g}" in page.url, "the value in the address")
    assert_quick(page)
    assert page.tab.evaluate("() => history.length") == entries + 1
    page.tab.go_back()
    page.until(lambda: delta(page) == 1, "the curve before")
    # Beside the curve it is the view that moves.
    before = page.url
    page.tab.mouse.move(*place(page, -2, 1.5))
    assert page.tab.locator(".panel.main svg.graspable").count() == 0
    page.tab.mouse.down()
    page.tab.mouse.move(*place(page, -1, 1.5), steps=4)
    page.tab.mouse.up()
    page.until(lambda: page.url != before and "delta%3D1&" in page.url, "another view")


def test_a_joint_can_be_dragged(visit: Callable[..., Page]) -> None:
    page = visit("srelu~delta=1", x="-3,3")
    assert page.tab.locator("circle.handle").count() == 2
    page.tab.mouse.move(*place(page, 1, 1))
    page.tab.mouse.down()
    page.tab.mouse.move(*place(page, 2, 1), steps=6)
    page.tab.mouse.up()
    page.until(lambda: delta(page) == pytest.approx(2, abs=0.05), "the parameter")


def test_a_point_of_a_table_can_be_dragged_and_is_in_the_link(visit: Callable[..., Page]) -> None:
    page = visit("squaf", x="-2,5")
    before, point = page.curve(), page.tab.locator("circle.handle.point").nth(6)
    box, height = point.bounding_box(), float(point.get_attribute("cy"))
    at = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.tab.mouse.move(*at)
    page.tab.mouse.down()
    page.tab.mouse.move(at[0], at[1] - 100, steps=5)
    page.tab.mouse.up()
    after = page.changed(before)
    page.until(lambda: "z6%3D" in page.url, "the point in the address")
    page.until(lambda: float(point.get_attribute("cy")) < height - 60, "the point on its way")
    page.until(lambda: "z=(" in page.text("#take-code"), "the table in the code")
    after = page.curve()
    page.tab.reload()
    page.until(lambda: page.curve() == after, "the same table after a reload")


def test_a_finger_bends_the_curve_and_scrolls_the_page_beside_it(browser, address: str) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = Page(context, address)
    page.open("srelu~delta=1", x="-3,3")
    session = context.new_cdp_session(page.tab)

    def swipe(x: float, y: float, up: float) -> None:
        touch = {"x": x, "y": y}
        session.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [touch]})
        for step in range(1, 11):
            touch = {"x": x, "y": y - up * step / 10}
            session.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [touch]})
            page.tab.wait_for_timeout(30)
        session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

    top = page.tab.evaluate("() => scrollY")
    swipe(*place(page, 0, 0.1875), 15)
    page.until(lambda: delta(page) > 1.3, "the parameter")
    assert page.tab.evaluate("() => scrollY") == top
    swipe(*place(page, -2.5, 2), 200)
    page.until(lambda: page.tab.evaluate("() => scrollY") > top, "the rest of the page")
    assert page.complaints == []
    context.close()
