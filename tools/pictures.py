"""The pictures of the README and the docs that no other program writes.

    python tools/pictures.py            # all: docs/images
    python tools/pictures.py ship.svg   # one

`ship.svg` is drawn from a record, the same bytes every time. The others are taken of the workbench and of the report of
`make study` in Chromium: `sources.json` holds a digest of what they were taken of, and a test fails once that changes.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from PIL import Image

from softknee.lab.chart import INK, SOFT, Chart, marks, number, sized, svg_of
from softknee.lab.report.writing import write_report
from softknee.lab.studies.reporting import recipe_of
from softknee.lab.studies.store import KEPT, RunStore
from softknee.lab.studies.trials import Outcome
from softknee.measure import Record

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
GPT2 = ROOT / "papers" / "lambda_gelu" / "records" / "lambda-gelu-wikitext-124m.json"
QUICKSTART = ROOT / "docs" / "quickstart"
STATIC = ROOT / "src" / "softknee" / "app" / "workbench" / "static"
GOOD, BAD = "#009e73", "#d55e00"


# -- what shipping a ReLU costs, from the record ------------------------------------------------------------


def perplexities() -> dict[str, dict[str, float]]:
    """The mean perplexity of every row of the record, by the state of its activations."""
    rows = Record.from_json(GPT2.read_text(encoding="utf-8")).rows
    return {row["row"]: {state: value.value for state, value in row["perplexity"].items()} for row in rows}


def ship() -> str:
    """GPT-2 before and after ReLU takes the place of its activations, as an SVG."""
    found = perplexities()
    gelu, hard, scratch = found["GELU"], found["lambda-GELU, hardened"], found["ReLU from scratch"]
    rows = [
        {"row": "GELU, ReLU put in its place", "x": gelu["free"], "to": gelu["replaced"], "colour": BAD},
        {
            "row": "λ-GELU hardened, ReLU put in its place",
            "x": hard["hardened"],
            "to": hard["replaced"],
            "colour": GOOD,
        },
        {"row": "ReLU from the start", "x": scratch["free"], "to": scratch["free"], "colour": SOFT},
    ]
    for row in rows:
        same = f"{row['x']:.2f}" == f"{row['to']:.2f}"
        moved = f"{row['x']:.2f} → {row['to']:.2f}"
        row["text"] = f"{row['x']:.2f}" if row["colour"] == SOFT else moved
        row["at"] = row["to"] if not same else row["x"]
    across = number("x", title="perplexity on WikiText-2, lower is better", domain=(155, 345))
    down = {"field": "row", "type": "nominal", "sort": None, "title": None, "axis": {"labelColor": INK, "grid": False}}
    paint = {"field": "colour", "type": "nominal", "scale": None}
    layers = [
        marks("rule", None, {"x": across, "x2": {"field": "to"}, "y": down, "stroke": paint}, strokeWidth=3),
        marks(
            "point", None, {"x": across, "y": down, "stroke": paint}, filled=False, size=90, strokeWidth=2, opacity=1
        ),
        marks(
            "point", None, {"x": {**across, "field": "to"}, "y": down, "color": paint}, filled=True, size=110, opacity=1
        ),
        marks(
            "text",
            None,
            {"x": {**across, "field": "at"}, "y": down, "text": {"field": "text"}},
            align="left",
            dx=12,
            fontSize=13,
        ),
    ]
    chart: Chart = sized({"data": {"values": rows}, "layer": layers}, 460, 120)
    return svg_of(
        chart, label="Perplexity of GPT-2 before and after ReLU takes the place of its activations", dark=True
    )


# -- the workbench, in Chromium -----------------------------------------------------------------------------

FUNCTIONS = ("srelu", "gelu", "mollify(hardtanh, triweight, width=delta)~delta=0.4")
BENT = ("srelu", "gelu")  # the function that is bent, and the one that it is bent beside
FRAMES, PAUSE = 30, 90  # of the way there and back; milliseconds of each
SIZE, SHOWN = (1440, 900), 960  # of the page, and the width of the animation


def sources() -> dict[str, str]:
    """A digest of everything that decides how the page and the report look."""
    lab = ROOT / "src" / "softknee" / "lab"
    return {
        "workbench": _digest(path for path in STATIC.rglob("*") if path.is_file()),
        "report": _digest([QUICKSTART / "report" / "report.md", lab / "page.css", *(lab / "report").glob("*.js")]),
    }


def _digest(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def workbench() -> dict[str, bytes]:
    """The page in light and dark, and the animation of its first function being bent."""
    sys.path.insert(0, str(ROOT / "tests" / "helpers"))
    from workbench_page import Page, chromium, running

    pictures = {}
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as address, chromium() as browser:
        for scheme in ("light", "dark"):
            wide, tall = SIZE
            context = browser.new_context(viewport={"width": wide, "height": tall}, color_scheme=scheme)
            page = Page(context, address)
            _complete(page.open(*FUNCTIONS, pick="0"))
            pictures[f"workbench-{scheme}.png"] = page.tab.screenshot()
            _complete(page.open(*BENT))
            pictures[f"bend-{scheme}.webp"] = _bent(page)
            context.close()
    return pictures


# -- the report of `make study`, in Chromium ----------------------------------------------------------------


def quickstart() -> dict[str, bytes]:
    """The page that `make study` ends in, from the records in docs/quickstart: how it begins, and the whole."""
    sys.path.insert(0, str(ROOT / "tests" / "helpers"))
    from workbench_page import chromium

    store = RunStore(QUICKSTART)
    records = [Record.read(path) for path in (QUICKSTART / "trials").iterdir()]
    records.sort(key=lambda record: record.settings[KEPT]["position"])
    outcomes = [Outcome.read(record) for record in records]
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        path = write_report(recipe_of(store), outcomes, folder, command="softknee study quickstart", records=records)
        (QUICKSTART / "report" / "report.md").write_bytes((path.parent / "report.md").read_bytes())
        tab = browser.new_page(viewport={"width": 1180, "height": 900}, color_scheme="light")
        tab.goto(path.as_uri())
        tab.locator("figure svg, figure canvas").first.wait_for()
        tab.wait_for_timeout(2000)
        whole = tab.screenshot(full_page=True)
        end = tab.locator("#tests").bounding_box()["y"] - 20
        begin = tab.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": 1180, "height": end})
    return {"../quickstart.png": begin, "../quickstart/page.png": whole}


def _complete(page: Any) -> None:
    """Wait for the facts that are seen, the code and the names to pick from."""
    for fact in ("#certificate td", "#formula math", "#depth svg"):
        page.tab.locator(fact).first.wait_for()
    page.until(lambda: page.tab.locator("#take-copy").is_enabled(), "the code")
    page.until(lambda: page.tab.locator("article select").first.input_value(), "the names")


def _bent(page: Any) -> bytes:
    """The slider of the first function from wide to narrow and back, as an animated WebP."""
    slider = page.tab.locator("article input[type=range]").first
    low, high = (float(slider.get_attribute(end)) for end in ("min", "max"))
    frames = []
    for step in range(FRAMES):
        share = 0.19 + 0.17 * math.cos(2 * math.pi * step / FRAMES)
        before = page.curve()
        slider.fill(f"{low + share * (high - low):.4f}")
        page.until(lambda old=before: page.curve() != old, "the curve to follow")
        with Image.open(io.BytesIO(page.tab.screenshot())) as frame:
            tall = round(frame.height * SHOWN / frame.width)
            frames.append(frame.convert("RGB").resize((SHOWN, tall), Image.Resampling.LANCZOS))
    file = io.BytesIO()
    first, *others = frames
    first.save(file, "WEBP", save_all=True, append_images=others, duration=PAUSE, loop=0, quality=60, method=6)
    return file.getvalue()


def main(names: list[str]) -> None:
    IMAGES.mkdir(exist_ok=True)
    if not names or "ship.svg" in names:
        (IMAGES / "ship.svg").write_text(ship(), encoding="utf-8")
    if not names or any(name != "ship.svg" for name in names):
        for name, content in (workbench() | quickstart()).items():
            (IMAGES / name).write_bytes(content)
        (IMAGES / "sources.json").write_text(json.dumps(sources(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
