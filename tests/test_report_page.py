"""The page of a study: what is in it, that hostile names stay text, and that a real browser shows it as it should."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest

from browser import CHROMIUM, Browser
from report_outcomes import outcomes, recipe
from softknee.errors import MissingToolError
from softknee.lab.chart import outline
from softknee.lab.report import summarise
from softknee.lab.report.drawing import COLOURS, SYMBOLS, Spot, looks, on_paper, pdf_figures, places_for, plane, view_of
from softknee.lab.report.summary import origin_of
from softknee.lab.report.writing import render
from softknee.lab.studies.recipe import Recipe
from softknee.lab.studies.trials import Outcome

HOSTILE = "</script><img src=x onerror=window.hostile=1>\"'&amp;<b>%{x}</b>"
TITLE = "A </title><script>window.hostile=2</script> title"
COMMAND = "softknee study made-up.yaml --set 'title=<script>window.hostile=3</script>'"


def hostile(found: list[Outcome]) -> list[Outcome]:
    """The outcomes with gelu, swish and a diverged silu called by names that try to be more than names."""
    names = {"gelu": HOSTILE, "swish learned": f"swish {HOSTILE}", "silu": f"silu {HOSTILE}"}
    changed = []
    for item in found:
        acts = tuple(replace(act, label=names.get(act.label, act.label)) for act in item.trial.activations)
        cost = tuple({**entry, "label": names.get(entry["label"], entry["label"])} for entry in item.cost)
        changed.append(replace(item, trial=replace(item.trial, activations=acts), cost=cost))
    return changed


@pytest.fixture(scope="module")
def study() -> tuple[Recipe, list[Outcome]]:
    asked = recipe(title=TITLE)
    return asked, hostile(outcomes(asked, diverging="silu"))


@pytest.fixture(scope="module")
def page(study: tuple[Recipe, list[Outcome]]) -> str:
    return render(summarise(*study), origin_of(study[0], command=COMMAND))


class Reader(HTMLParser):
    """Every element with its attributes and the text right inside it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "img", "path"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            while self.open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if self.open and data.strip():
            self.texts.append((self.open[-1], data))

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def reader(page: str) -> Reader:
    return Reader(page)


def test_hostile_names_stay_text(reader: Reader) -> None:
    assert not reader.of("img")
    assert not reader.of("b")
    assert not any(name.startswith("on") for _, attributes in reader.elements for name in attributes)
    figures = len(reader.of("figure"))
    assert len(reader.of("script")) == figures + 2  # the chart of each figure, Vega, and the script of the page
    assert TITLE in [text for tag, text in reader.texts if tag == "h1"]
    assert HOSTILE in [text for tag, text in reader.texts if tag == "a"]
    assert any(COMMAND in text for tag, text in reader.texts if tag == "code")


def test_the_chart_of_every_figure_can_be_read_and_has_no_markup(page: str) -> None:
    parts = page.split('<script type="application/json">')[1:]
    assert len(parts) >= 8
    for part in parts:
        text = part.split("</script>")[0]
        assert "<" not in text
        assert ">" not in text
        assert {"layer", "params", "width", "height"} <= set(json.loads(text))


def test_every_number_leads_to_its_record(page: str, study: tuple[Recipe, list[Outcome]]) -> None:
    keys = {outcome.trial.key for outcome in study[1]}
    linked = {part.split('.json"')[0] for part in page.split('href="../trials/')[1:]}
    assert linked == keys
    tables = page.split("</main>")[0].split("<table")[1:]
    assert len(tables) == 8
    for table in tables[:-1]:  # the last one lists the settings of each trial, and links its name
        cells = [cell.split("</td>")[0] for cell in table.split('<td class="number')[1:]]
        assert cells
        assert all('href="../trials/' in cell for cell in cells)


def test_tables_and_figures_can_be_read_aloud(reader: Reader) -> None:
    assert all(entry.get("scope") in ("col", "row") for entry in reader.of("th"))
    assert len(reader.of("caption")) == len(reader.of("table"))
    names = [str(item["id"]) for _, item in reader.elements if "id" in item]
    assert len(names) == len(set(names))
    assert all(one["aria-labelledby"] in names for _, one in reader.elements if "aria-labelledby" in one)
    plots = [value for value in reader.of("div") if value.get("class") == "plot"]
    assert len(plots) == len(reader.of("figure")) == len(reader.of("figcaption"))
    assert all(plot["role"] == "img" and plot["aria-label"] for plot in plots)
    assert all(one.get("aria-pressed") in ("true", "false") for one in reader.of("button"))
    assert next(link["href"] for link in reader.of("a")) == "#results"
    assert all(str(link["href"])[1:] in names for link in reader.of("a") if str(link["href"]).startswith("#"))


def test_nothing_is_fetched(reader: Reader) -> None:
    assert not [item for tag in ("link", "iframe", "object", "embed") for item in reader.of(tag)]
    assert not any("src" in entry for _, entry in reader.elements)
    policy = next(value["content"] for value in reader.of("meta") if value.get("http-equiv"))
    assert str(policy).startswith("default-src 'none'")


def test_the_plane_joins_the_knob_in_order_with_its_intervals(study: tuple[Recipe, list[Outcome]]) -> None:
    summary = summarise(*study)
    result = plane(summary)
    assert result is not None
    _, upright, line, points, *_ = [layer["data"]["values"] for layer in result.chart["layer"]]
    path = [point for point in points if point["name"] == "smelu"]
    assert line == path
    assert [point["text"] for point in path] == ["smelu beta=0.25", "0.5", "1", "2"]  # named where there is more room
    bars = [bar for bar in upright if bar["name"] == "smelu"]
    for point, bar, row in zip(path, bars, summary.knobs[0].rows, strict=True):
        estimate = row.differences["delta_1"]
        assert point["y"] == estimate.value
        assert (bar["y"], bar["to"]) == estimate.interval
    assert not any("silu" in point["name"] for point in points)  # it diverged: it is no point of the plane


def test_a_point_far_from_the_rest_is_named_and_does_not_stretch_the_plane(study: tuple[Recipe, list[Outcome]]) -> None:
    summary = summarise(*study)
    near = view_of(summary)
    assert near is not None
    assert near.outside == ()
    (row,) = [item for item in summary.rows if item.label == "lambda_gelu hardened"]
    gone = replace(row.differences["delta_1"], value=40.0, interval=(39.0, 41.0))
    moved = replace(row, differences={**row.differences, "delta_1": gone})
    summary = replace(summary, rows=tuple(moved if entry is row else entry for entry in summary.rows))
    view, result = view_of(summary), plane(summary)
    assert view is not None
    assert result is not None
    assert [value.label for value in view.outside] == [row.label]
    assert view.spans[1][1] < 1.5 * near.spans[1][1]
    assert view.note.startswith("Outside the picture: ↑ lambda_gelu hardened (")
    assert view.note.endswith(" %, 40)")
    points = result.chart["layer"][3]
    assert points["encoding"]["y"]["scale"]["domain"] == list(view.spans[1])
    assert " ".join(on_paper([result])["title"]["text"]) == view.note
    assert "title" not in result.on_page  # it would be cut off on a phone; the caption below says it
    assert "Too far away to be shown: lambda_gelu hardened (" in result.caption
    assert not [point for point in points["data"]["values"] if point["name"] == row.label]


def test_names_of_points_do_not_cover_each_other() -> None:
    spots = [Spot(place / 10, place / 10, f"point {place}") for place in range(5)]
    assert len(set(places_for([Spot(0.0, 0.0, "one"), Spot(0.0, 0.0, "two"), Spot(1.0, 1.0, "far")])[:2])) == 2
    assert len(places_for(spots)) == 5


def test_colours_are_seen_on_light_and_on_dark() -> None:
    def light(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for colour in COLOURS:
        for paper in ("#fcfcfb", "#181817"):
            dark, bright = sorted((light(colour), light(paper)))
            assert (bright + 0.05) / (dark + 0.05) > 3, (colour, paper)
    assert len({outline(symbol) for symbol in SYMBOLS}) == len(SYMBOLS)


def test_more_rows_than_colours_are_still_told_apart() -> None:
    rows = [SimpleNamespace(label=f"row {place}") for place in range(3 * len(COLOURS))]
    result = looks(SimpleNamespace(rows=rows, knobs=[])).values()  # pyright: ignore[reportArgumentType]
    assert (
        len({(item.colour, item.symbol) for item in result})
        == len({(value.colour, value.dash) for value in result})
        == len(rows)
    )


def test_without_the_converter_the_extra_is_named(
    study: tuple[Recipe, list[Outcome]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(MissingToolError, match=r"pip install 'softknee\[lab\]'"):
        pdf_figures(summarise(*study))


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium to look at the page with")
def test_a_browser_shows_it(page: str, tmp_path: Path) -> None:
    file = tmp_path / "index.html"
    file.write_text(page, encoding="utf-8")
    with Browser() as browser:
        browser.size(390, 800)
        browser.open(file.as_uri())
        browser.evaluate("window.drawn.then(() => null)")
        figures = browser.evaluate("document.querySelectorAll('figure').length")
        assert figures == 9
        assert browser.errors() == []
        drawn = "Array.from(document.querySelectorAll('.plot'), p => p.querySelectorAll('.mark-line path').length)"
        assert min(browser.evaluate(drawn)) > 0
        assert browser.evaluate("document.documentElement.scrollWidth") == 390
        ends = "Array.from(document.querySelectorAll('.plot svg'), s => s.getBoundingClientRect().right)"
        wide = f"Math.max(...{ends})"
        assert browser.evaluate(wide) <= 390
        assert browser.evaluate("window.hostile === undefined")
        # Text of figures follows the scheme, at once.
        colour = "getComputedStyle(document.querySelector('.plot .role-axis-label text')).fill"
        before = browser.evaluate(colour)
        browser.media(scheme="dark")
        assert browser.evaluate(colour) != before
        # A name of the legend hides its lines, and shows them again.
        button = "document.querySelector('figure[data-figure^=curve] button[aria-pressed=true]')"
        lines = "document.querySelectorAll('figure[data-figure^=curve] .mark-line path').length"
        drawn = browser.evaluate(lines)
        browser.evaluate(f"{button}.click()")
        assert browser.evaluate(lines) < drawn
        browser.evaluate("document.querySelector('figure[data-figure^=curve] button[aria-pressed=false]').click()")
        assert browser.evaluate(lines) == drawn
        # Printing draws figures in light colours and as wide as the paper, and afterwards as they were.
        seen = f"[document.querySelector('.plot svg').clientWidth, {colour}]"
        browser.evaluate(f"window.addEventListener('beforeprint', () => {{ window.seen = {seen}; }})")
        on_screen = browser.evaluate(seen)
        assert browser.pdf().startswith(b"%PDF")
        assert browser.evaluate("window.seen") == [680, before]
        assert browser.evaluate(seen) == on_screen
        assert browser.errors() == []
        assert browser.requests() == [file.as_uri()]
