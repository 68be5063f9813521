"""The workbench in a real browser: everything a visitor can do with mouse, keyboard and files."""

import json
import re
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import softknee as sk
from browser import CHROMIUM
from workbench_page import SLOW, Page, assert_quick, number

pytest.importorskip("starlette", reason="starlette is not installed; the extra 'web' brings it")
pytest.importorskip("playwright", reason="playwright is not installed; requirements/test.txt brings it")
if CHROMIUM is None:
    pytest.skip("Chromium is not installed, and the page is tested in it", allow_module_level=True)

# One file: the server with its workers and the browser are started once, which takes as long as five of these tests.
pytestmark = pytest.mark.slow
SLIDER = "article input[type=range]"
NUMBER = "article input[type=number]"


def test_the_first_minute(visit: Callable[..., Page]) -> None:
    """A visitor who does nothing sees a curve, its limit, and all that is known of it."""
    page = visit()
    assert page.tab.title() == "softknee workbench"
    assert all(len(page.curve(order=order)) > 1000 for order in range(3))
    assert page.tab.locator(".panel.main path.limit").count() == 1
    delta = sk.get("srelu").param("delta").default
    assert page.text("#distance") == f"sup |f − relu| = {3 * delta / 16:.6g}"
    page.tab.locator("#formula math").first.wait_for(state="attached")
    assert page.tab.locator("#formula math").count() == 3
    assert page.tab.locator("#formula math mfrac").first.bounding_box()["height"] > 10
    rows = dict(row.split("\n", 1) for row in _rows(page, "#certificate"))
    assert rows["Lipschitz constant"].startswith("1")
    assert rows["smoothness"] == "C²"
    assert rows["distance to relu"].startswith(f"{3 * delta / 16:.6g}")
    assert f"−∞ … −{delta:g}" in rows["exactly 0"]
    assert "nats" in page.text("#entropy dl")
    page.tab.locator("#depth svg path").wait_for(state="attached")
    assert "gain 1." in page.text("#depth dl")
    page.tab.locator("#cost button").wait_for()
    assert page.tab.locator("#cost .bar").count() == (0 if "is busy" in page.text("#cost") else 6)
    page.until(lambda: page.tab.locator("article select option").count() > 30, "the names of the zoo")


def _rows(page: Page, place: str) -> list[str]:
    page.tab.locator(f"{place} tr").first.wait_for()
    return [row.inner_text().replace("\t", "\n") for row in page.tab.locator(f"{place} tr").all()]


def test_a_slider_bends_the_curve_within_a_twentieth_of_a_second(visit: Callable[..., Page]) -> None:
    page = visit("srelu~delta=1")
    page.tab.locator("#cost button").wait_for()  # what is measured and proved first is done
    page.tab.locator("#depth svg").wait_for()
    first, entries = page.curve(), page.tab.evaluate("() => history.length")
    times, halts = _slide(page)
    # It does not pile up: one question is on its way at a time.
    asked = page.tab.evaluate(
        "() => performance.getEntriesByType('resource').filter((one) => one.name.endsWith('/api/curve'))"
        ".map((one) => [one.startTime, one.responseEnd]).sort((a, b) => a[0] - b[0])"
    )
    assert len(asked) >= len(times)
    assert all(after[0] > before[1] - 1 for before, after in pairwise(asked)), asked  # milliseconds
    value = float(page.tab.locator("article input[type=number]").input_value())
    assert 0.2 < value < 1  # after 24 to 72 steps
    page.until(lambda: f"delta%3D{value:g}" in page.url, "the value in the address")
    wanted = f"sup |f − relu| = {float(f'{3 * value / 16:.6g}'):g}"
    page.until(lambda: page.text("#distance") == wanted, "the distance of the last value")
    # All of it is one entry of the history, but for a second of rest, which a machine may take by itself.
    entries = page.tab.evaluate("() => history.length") - entries
    assert 1 <= entries <= 1 + 2 * halts
    # By the number beside it, with a value that the slider did not reach.
    before = page.curve()
    page.tab.locator("article input[type=number]").fill("6")
    page.changed(before)
    page.tab.keyboard.press("Tab")
    assert page.tab.locator(SLIDER).get_attribute("aria-valuetext") == "6"
    page.until(lambda: page.text("#distance").endswith("= 1.125"), "the distance for 6")
    # One step back in the history is the state before, with its curve.
    page.tab.go_back()
    page.until(lambda: page.curve() == before, "the curve before")
    for _ in range(entries):
        page.tab.go_back()
    page.until(lambda: page.curve() == first, "the curve that the visitor came with")
    for _ in range(entries + 1):
        page.tab.go_forward()
    page.until(lambda: page.text("#distance").endswith("= 1.125"), "the curve after")


def _slide(page: Page) -> tuple[list[float], int]:
    """Move the slider by its keys: the milliseconds until each picture, which are few, and the halts of the machine."""
    page.tab.locator(SLIDER).first.focus()
    times, halts = [], 0
    for presses in range(72):
        begin = time.monotonic()
        page.tab.keyboard.press("ArrowLeft")
        page.tab.wait_for_timeout(60)
        times = page.tab.evaluate("() => workbench.latencies")
        halts += time.monotonic() - begin > 0.5
        # The quickest is what the page itself takes; where more runs than there are cores, everybody waits.
        if presses >= 23 and len(times) >= 8 and min(times) < 50:
            break
    return assert_quick(page), halts


def test_no_proof_is_worked_on_while_a_slider_moves(visit: Callable[..., Page]) -> None:
    """The facts of a table take many seconds of both cores: what is not ready waits until the slider rests."""
    page, slow, ended = visit("squaf"), ("certificate", "depth", "cost"), []
    bodies: dict[str, list[Any]] = {job: [] for job in slow}

    def note(request: Any) -> None:
        if (job := request.url.rsplit("/", 1)[-1]) in slow:
            bodies[job].append(request.post_data_json["function"]["values"])

    page.tab.on("request", note)
    page.tab.on("requestfailed", lambda request: ended.append(request.url.rsplit("/", 1)[-1]))
    # One is of these numbers and one of the name alone: both give way.
    page.tab.locator(NUMBER).first.fill("0.4321")
    page.until(lambda: bodies["certificate"] and bodies["cost"], "the questions")
    _slide(page)
    assert {"certificate", "cost"} <= {*ended}
    q = float(page.tab.locator(NUMBER).first.input_value())
    page.until(lambda: bodies["certificate"][-1]["q"] == q, "the proof for the last number")
    page.until(lambda: len(bodies["cost"]) > ended.count("cost"), "the measurement")


def test_a_wrong_text_is_marked_and_the_last_good_curve_stays(visit: Callable[..., Page]) -> None:
    page = visit("gelu")
    field, before = page.tab.locator("article textarea"), page.curve()
    field.fill("x * sigmiod(bta * x)")
    assert page.text(".problem mark") == "sigmiod"
    assert "There is no function 'sigmiod'" in page.text(".problem")
    assert field.get_attribute("aria-invalid") == "true"
    assert page.curve() == before
    field.fill("x * sigmoid(bta * x) +* 2")
    page.until(lambda: page.text(".problem mark") == "*", "the mark of the syntax")
    assert page.curve() == before
    field.fill("c x sigmoid(bta x) + c^2 - c|c|")  # a new name is a slider at once, and all of them
    for name in ("bta", "c"):
        page.tab.locator(f"[data-param={name}] input[type=range]").wait_for()
    field.fill("x * sigmoid(bta * x)")
    page.until(lambda: page.tab.locator("[data-param=c]").count() == 0, "the end of c")
    after = page.changed(before)
    assert not page.tab.locator(".problem").is_visible()
    page.tab.get_by_label("may be 0 or negative").check()
    page.tab.locator("[data-param=bta] input[type=number]").fill("-1")
    page.changed(after)
    field.fill("mollify(hardtanh, box, width=0.4)")
    page.tab.get_by_role("button", name="Make the width a slider").click()
    page.tab.locator("[data-param=delta] input[type=range]").wait_for()
    page.until(lambda: page.text("#distance").endswith("= 0.1"), "the distance at the same width")


@pytest.mark.parametrize("text", ["x" + "+x" * 900, "(" * 70, "__import__('os')"])
def test_a_hostile_text_is_refused_and_the_page_lives_on(visit: Callable[..., Page], text: str) -> None:
    page = visit("relu")
    field, before = page.tab.locator("article textarea"), page.curve()
    field.fill(text)
    assert page.text(".problem").rstrip().endswith((".", "?"))
    field.fill("softplus")
    page.changed(before)
    assert not page.tab.locator(".problem").is_visible()


def test_four_functions_a_link_and_a_reload(visit: Callable[..., Page]) -> None:
    page = visit("smelu~beta=1")
    for place, name in enumerate(("gelu", "hardtanh", "x * sigmoid(2 * x)"), start=1):
        page.tab.locator("#add").click()
        page.tab.locator("article textarea").nth(place).fill(name)
        page.curve(place)
        page.until(lambda name=name: name in page.text("#legend"), name)
    assert page.tab.locator("#add").is_disabled()
    styles = [
        page.tab.locator(f".panel.main path.line[data-function='{place}']").evaluate(
            "node => [getComputedStyle(node).stroke, getComputedStyle(node).strokeDasharray]"
        )
        for place in range(4)
    ]
    assert len({colour for colour, _ in styles}) == len({dash for _, dash in styles}) == 4
    page.tab.locator("article").nth(1).get_by_role("button", name="Hide").click()
    assert page.tab.locator(".panel.main path.line").count() == 3
    page.tab.locator("article").nth(2).get_by_role("button", name="Remove").click()
    page.tab.locator("#share").click()
    # It is copied a moment after the click.
    page.until(lambda: page.tab.evaluate("() => navigator.clipboard.readText()") == page.url, "the address as the copy")
    link = page.url
    drawn = [page.curve(place) for place in (0, 2)]
    page.tab.reload()
    page.until(lambda: [page.curve(place) for place in (0, 2)] == drawn, "the same curves after a reload")
    assert page.tab.locator("article").count() == 3
    assert page.tab.locator(".panel.main path.line").count() == 2
    other = visit()
    other.tab.goto(link)
    other.until(lambda: [other.curve(place) for place in (0, 2)] == drawn, "the same curves for another visitor")


def test_zoom_and_values_under_the_mouse(visit: Callable[..., Page]) -> None:
    page = visit("gelu~beta=1", x="-4,4")
    box = page.tab.locator(".panel.main svg").bounding_box()
    at = 1.25
    inner = box["width"] - 46 - 12
    page.tab.mouse.move(box["x"] + 46 + (at + 4) / 8 * inner, box["y"] + 100)
    page.tab.locator("#readout").wait_for()
    cells = [number(cell) for cell in page.tab.locator("#readout td").all_inner_texts()]
    x = number(page.text("#readout th").removeprefix("x = "))
    assert x == pytest.approx(at, abs=0.02)
    place = torch.tensor([x], dtype=torch.float64)
    truth = [sk.get("gelu").derivative(order)(place, beta=1.0).item() for order in range(3)]
    assert cells == pytest.approx(truth, rel=2e-3)
    before = page.curve()
    page.tab.mouse.wheel(0, -400)
    page.changed(before)
    page.until(lambda: _view(page)[0] > -4, "the zoom in the address")
    low, high = _view(page)
    assert -4 < low < 0.9
    assert 1.5 < high < 4
    page.tab.mouse.down()
    page.tab.mouse.move(box["x"] + 150, box["y"] + 100, steps=4)
    page.tab.mouse.up()
    page.until(lambda: _view(page)[0] > low, "a view moved by the mouse")
    panels = page.tab.locator("#panels")
    panels.focus()
    wide = _view(page)[1] - _view(page)[0]
    page.tab.keyboard.press("-")
    page.until(lambda: _view(page)[1] - _view(page)[0] > 1.2 * wide, "a wider view")
    page.tab.keyboard.press("0")
    page.until(lambda: _view(page) == (-4, 4), "the usual view")
    page.tab.keyboard.press("ArrowRight")
    page.tab.locator("#readout").wait_for()
    assert "gelu: f" in page.tab.locator("#spoken").inner_text()
    page.tab.get_by_role("button", name="Zoom in").click()
    page.until(lambda: _view(page)[1] < 4, "a narrower view")


def _view(page: Page) -> tuple[float, float]:
    match = re.search(r"[?&]x=([^&]+)", page.url)
    assert match is not None
    low, high = match[1].split("%2C")
    return float(low), float(high)


def test_inputs_by_name_and_by_file(visit: Callable[..., Page], tmp_path: Path) -> None:
    page = visit("relu")
    entropy = page.text("#entropy dl")
    strip = page.tab.locator("#histogram")
    before = strip.get_attribute("d")
    page.tab.locator("#density-kind").select_option("uniform")
    page.tab.locator("#density-mean").fill("1")
    page.tab.keyboard.press("Tab")
    page.until(lambda: page.text("#entropy dl") != entropy and "0.5, 0.5" not in page.text("#entropy dl"), "entropy")
    page.until(lambda: strip.get_attribute("d") != before, "another density under the curve")
    values = np.random.default_rng(0).normal(0.5, 0.5, 5000).astype("float32")
    np.save(tmp_path / "seen.npy", values)
    before = strip.get_attribute("d")
    page.tab.locator("#upload").set_input_files(tmp_path / "seen.npy")
    page.until(lambda: "5,000 numbers" in page.text("#upload-said"), "what was read")
    page.until(lambda: strip.get_attribute("d") != before and strip.get_attribute("d").count("Z") > 20, "bars")
    share = 100 * float((values > 0).mean())

    def said() -> float:
        match = re.search(r"([\d.]+) %, x > 0", page.text("#entropy dl"))
        return float(match[1]) if match else 0.0

    page.until(lambda: said() == pytest.approx(share, abs=0.5), "the share above 0")
    bars = strip.get_attribute("d")
    page.tab.reload()
    page.curve()
    page.until(lambda: strip.get_attribute("d") == bars, "the uploaded numbers in the link")
    (tmp_path / "bad.csv").write_text("1,2\nthree,4\n")
    page.tab.locator("#upload").set_input_files(tmp_path / "bad.csv")
    page.until(lambda: "Line 2" in page.text("#upload-said"), "the sentence about a bad file")
    with (tmp_path / "huge.npy").open("wb") as file:
        file.truncate(2**30)
    page.tab.locator("#upload").set_input_files(tmp_path / "huge.npy")
    page.until(lambda: "1024 MB, and at most 64 MB" in page.text("#upload-said"), "the sentence about a huge file")
    assert page.curve()


def test_taking_it_home(visit: Callable[..., Page], tmp_path: Path) -> None:
    page = visit("mollify(relu, box, width=delta)~delta=0.5", "gelu", x="-2,2")
    code = page.tab.locator("#take-code")
    page.until(lambda: "delta=0.5" in code.inner_text(), "the Python line")
    page.tab.locator("#take-copy").click()
    page.until(lambda: page.tab.evaluate("() => navigator.clipboard.readText()") == code.inner_text(), "the copy")
    scope: dict[str, Any] = {}
    exec(code.inner_text(), scope)
    assert scope["module"](torch.zeros(1)).item() == pytest.approx(0.125)
    page.tab.locator("#tab-python").focus()
    for kind, word in (("definition", '"format"'), ("kernel", "@triton.jit"), ("latex", r"\frac")):
        page.tab.keyboard.press("ArrowRight")
        assert page.tab.locator(f"#tab-{kind}").get_attribute("aria-selected") == "true"
        assert word in code.inner_text()
    page.tab.locator("#tab-definition").click()
    path = _download(page, "#take-save", tmp_path)
    assert sk.load(path)(torch.zeros(1)).item() == pytest.approx(0.125)
    picture = _download(page, "#take-svg", tmp_path).read_text(encoding="utf-8")
    assert "<svg" in picture
    assert _download(page, "#take-png", tmp_path).read_bytes().startswith(b"\x89PNG")


def _download(page: Page, button: str, folder: Path) -> Path:
    with page.tab.expect_download() as result:
        page.tab.locator(button).click()
    path = folder / result.value.suggested_filename
    result.value.save_as(path)
    return path


def test_try_it_trains_reloads_and_ends_in_the_report(visit: Callable[..., Page], studies: Path) -> None:
    page = visit("relu", "x * sigmoid(beta * x)~beta=4")
    page.tab.locator("#try-seeds").fill("2")
    page.tab.locator("#try-epochs").fill("2")
    page.tab.locator("#try-go").click()
    page.tab.locator("#try-stop").wait_for()  # first of all: it goes when the training has ended
    page.until(lambda: "run=" in page.url, "the name of the run in the address")
    page.tab.reload()
    # A training lets everybody else go first: where others want all cores, it takes many times as long.
    page.tab.locator("#try-charts svg").first.wait_for(timeout=5 * SLOW)
    page.tab.locator("a.report").wait_for(timeout=5 * SLOW)
    assert page.tab.locator("#try-charts path.line").count() >= 4
    with page.tab.context.expect_page() as opened:
        page.tab.locator("a.report").click()
    report = opened.value
    report.wait_for_load_state()
    assert "From the workbench: relu, x * sigmoid(beta * x), beta=4" in report.content()
    (folder,) = (path.parent.parent for path in studies.glob("workbench-*/report/report.md"))
    assert len(list((folder / "trials").glob("*.json"))) == 3  # two functions and the costs
    assert len(list((folder / "functions").glob("own_*.json"))) == 1
    record = json.loads(next((folder / "trials").glob("*.json")).read_text(encoding="utf-8"))
    assert record["command"] == "softknee workbench"


def test_a_training_can_be_stopped(visit: Callable[..., Page]) -> None:
    page = visit("relu")
    page.tab.locator("#try-seeds").fill("1")
    page.tab.locator("#try-go").click()  # the browser itself refuses a number below 2
    assert page.tab.locator("#try-seeds:invalid").count() == 1
    page.tab.locator("#try-seeds").fill("24")  # as long as the page allows: it must not end by itself before
    page.tab.locator("#try-epochs").fill("200")
    page.tab.locator("#try-go").click()
    page.tab.locator("#try-charts svg").first.wait_for(timeout=5 * SLOW)
    page.tab.locator("#try-stop").click()
    page.until(lambda: page.text("#try-state").startswith("Stopped."), "the end of the training")
    assert page.tab.locator("#try-go").is_visible()


def test_two_tabs_do_not_disturb_one_another(visit: Callable[..., Page]) -> None:
    first = visit("srelu~delta=1")
    second = visit("gelu", context=first.tab.context)
    before, url = first.curve(), first.url
    second.tab.locator(SLIDER).focus()
    other = second.curve()
    for _ in range(5):
        second.tab.keyboard.press("PageDown")
    second.changed(other)
    second.tab.locator("article textarea").fill("x +")
    second.tab.locator(".problem mark, .problem div").first.wait_for()
    assert (first.curve(), first.url) == (before, url)
    assert not first.tab.locator(".problem").is_visible()


def test_a_narrow_screen(visit: Callable[..., Page]) -> None:
    page = visit("srelu~delta=1", "generalized_smelu", width=390)
    assert _rows(page, "#certificate")
    assert page.tab.evaluate("() => document.documentElement.scrollWidth") <= 390
    curves, cards = (page.tab.locator(item).bounding_box() for item in (".panel.main", "#cards"))
    assert curves["y"] < cards["y"]
    for control in page.tab.locator("article input[type=range], article button, header button").all():
        box = control.bounding_box()
        assert 0 <= box["x"] <= box["x"] + box["width"] <= 390
        assert box["height"] >= 24
    before = page.curve()
    page.tab.locator(SLIDER).first.focus()
    page.tab.keyboard.press("PageDown")
    page.changed(before)


def brightness(page: Page) -> float:
    colour = page.tab.evaluate("() => getComputedStyle(document.body).backgroundColor")
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3


def test_light_and_dark(visit: Callable[..., Page]) -> None:
    page = visit("relu", scheme="dark")
    assert brightness(page) < 60
    page.tab.locator("#theme").click()
    assert brightness(page) > 200
    page.tab.reload()
    page.curve()
    assert brightness(page) > 200  # the choice is kept
    assert brightness(visit("relu")) > 200


def test_the_keyboard_is_enough(visit: Callable[..., Page]) -> None:
    page = visit("srelu~delta=1")
    # What comes later can be reached, too: the formulas, and the buttons for what there is to take.
    page.tab.locator("#formula math").first.wait_for(state="attached")
    page.until(lambda: page.tab.locator("#take-copy").is_enabled(), "what can be copied")
    reached = set()
    for _ in range(60):
        page.tab.keyboard.press("Tab")
        reached.add(page.tab.evaluate("() => document.activeElement.id || document.activeElement.type || 'other'"))
    wanted = {"share", "theme", "add", "panels", "range", "number", "textarea", "select-one", "try-go", "take-copy"}
    assert wanted | {"density-kind", "tab-python", "take-svg", "try-seeds"} <= reached
    assert page.tab.evaluate("() => getComputedStyle(document.activeElement).outlineStyle") != "none"


# -- what the page keeps while a visitor errs, and what its address keeps -------------------------------------


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
    assert set(_facts(page)) == {"The function cannot be read yet."}
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


# -- by hand: sliders, curves, points of a table and joints, by mouse and by finger ------------------------


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


# -- where things are: above the fold, on a phone, and what a long formula does ----------------------------


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


# -- a fact is shown under the name of the function that it belongs to, however slow its proof is ----------

FACTS = {"formula": "formulas", "certificate": "certificate"}
WAITING = {"formula": "Deriving …", "certificate": "Proving …"}


def facts_when_ready(page: Page) -> dict[str, str]:
    page.tab.wait_for_timeout(500)  # the certificate is asked for that long after the curve
    page.until(lambda: not any(page.tab.locator(f"#{fact}[aria-busy=true]").count() for fact in FACTS), "the facts")
    return {fact: page.text(f"#{fact}") for fact in FACTS}


def test_facts_of_another_function_or_of_other_numbers_are_never_shown_as_its_own(visit: Callable[..., Page]) -> None:
    page = visit("srelu~delta=1", "softplus", pick="0")
    picks = page.tab.locator("input[name=picked]")
    page.curve(0)
    first = facts_when_ready(page)
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
    second = facts_when_ready(page)
    assert all(second[fact] not in (first[fact], WAITING[fact]) for fact in FACTS)
    picks.nth(0).check()
    assert facts_when_ready(page) == first
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
    facts_when_ready(page)
    answer = {"rows": [["monotone", "no", ""]], "open": ["Something is open."], "out_of_time": True}
    questions: list[Any] = []

    def prove(route: Any) -> None:
        questions.append(route.request.post_data_json)
        if not questions[-1].get("longer"):
            route.fulfill(json=answer)  # the longer one is never answered

    page.tab.route("**/api/certificate", prove)
    page.tab.locator("article input[type=number]").fill("2")
    page.tab.get_by_role("button", name="Search ten times as long").click()
    page.until(lambda: "Proving, for up to five minutes" in page.text("#certificate"), "what is done")
    page.until(lambda: questions[-1].get("longer"), "the longer search")
    page.tab.locator("article input[type=number]").fill("3")  # ends it
    page.until(lambda: questions[-1]["function"]["values"] == {"beta": 3}, "the next question")
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
