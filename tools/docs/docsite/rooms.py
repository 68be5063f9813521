"""The picture of the rooms, read from the imports of every file, so that it shows the code as it is."""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from collections.abc import Mapping
from html import escape
from pathlib import Path
from types import ModuleType

from .places import ROOT, SOURCE

WORDS = {
    "version": "the number",
    "errors": "cause and cure",
    "files": "whole files or none",
    "registry": "names to definitions",
    "spec": "what an activation is",
    "zoo": "the functions",
    "design": "engines and proofs",
    "kernels": "plain, blocked, fused",
    "nn": "modules",
    "api": "the front page's functions",
    "": "import softknee",
    "surgery": "swap, harden, replace",
    "wire": "activations as bits",
    "train": "replicas, one loop",
    "measure": "numbers with intervals",
    "lab": "studies, reports",
    "app": "command and workbench",
    "__main__": "python -m softknee",
}
# Rooms side by side on one storey; which storey is above which follows from the order that the tests enforce.
_SMALL = ("version", "errors", "files", "registry")
_WIDE, _TALL, _GAP = 150, 54, 30


@functools.cache
def rules() -> ModuleType:
    """The test that enforces the order, which is where the order is written down."""
    place = ROOT / "tests" / "test_layers.py"
    spec = importlib.util.spec_from_file_location("rooms_of_the_tests", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def edges() -> dict[tuple[str, str], int]:
    """(room, imported room) to the number of files with such an import."""
    order, counts = rules(), {}
    for path in sorted(SOURCE.rglob("*.py")):
        here = order.room_of(order.module_of(path))
        there = {
            order.room_of(module) for module in order.imports_of(ast.parse(path.read_text(encoding="utf-8")), path)
        }
        for imported in there - {here}:
            counts[here, imported] = counts.get((here, imported), 0) + 1
    return counts


def present() -> list[str]:
    """The rooms that have files, from the ground up."""
    order = rules()
    homes = {order.room_of(order.module_of(path)) for path in SOURCE.rglob("*.py")}
    return [room for room in order.ROOMS if room in homes]


@functools.cache
def lines_of_code() -> dict[str, int]:
    """How many lines each room has."""
    order, sizes = rules(), {}
    for path in SOURCE.rglob("*.py"):
        room = order.room_of(order.module_of(path))
        sizes[room] = sizes.get(room, 0) + len(path.read_text(encoding="utf-8").splitlines())
    return sizes


def storeys() -> list[list[str]]:
    """The rooms from the ground up, the smallest ones together on the ground floor."""
    rooms = [room for room in present() if room not in ("__main__",)]
    ground = [room for room in rooms if room in _SMALL]
    height: dict[str, int] = dict.fromkeys(ground, 0)
    used = edges()
    for room in rooms:
        if room not in ground:
            below = [height[there] for here, there in used if here == room and there in height]
            height[room] = 1 + max(below, default=0)
    return [[room for room in rooms if height[room] == level] for level in range(max(height.values()) + 1)]


def picture() -> str:
    """The rooms as SVG: a room stands above all that it imports; a line is an import, thicker for more files."""
    floors = storeys()
    widest = max(len(floor) for floor in floors)
    width = widest * (_WIDE + _GAP) + _GAP
    height = len(floors) * (_TALL + _GAP) + _GAP
    at: dict[str, tuple[float, float]] = {}
    for level, floor in enumerate(floors):
        left = (width - len(floor) * (_WIDE + _GAP) + _GAP) / 2
        # Rooms that have a storey to themselves stand left and right in turn: a line down the middle stays in sight.
        left += (_WIDE / 2 + _GAP) * (1 if level % 2 else -1) * (len(floor) == 1)
        for i, room in enumerate(floor):
            at[room] = (left + i * (_WIDE + _GAP), height - (level + 1) * (_TALL + _GAP))
    lines = [
        _edge(at, here, there, files) for (here, there), files in sorted(edges().items()) if _drawn(at, here, there)
    ]
    sizes = lines_of_code()
    boxes = [_box(room, place, sizes[room]) for room, place in at.items()]
    return (
        f'<div class="wide"><svg class="rooms" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="The rooms of the package and what they import">{"".join(lines)}{"".join(boxes)}</svg></div>'
    )


def _drawn(at: Mapping[str, object], here: str, there: str) -> bool:
    # Nearly everything imports the ground floor: those lines would hide the others, and the text says so.
    return here in at and there in at and there not in _SMALL


def _edge(at: Mapping[str, tuple[float, float]], here: str, there: str, files: int) -> str:
    (x1, y1), (x2, y2) = at[here], at[there]
    a, b, c, d = x1 + _WIDE / 2, y1 + _TALL, x2 + _WIDE / 2, y2
    middle = (b + d) / 2
    return (
        f'<path d="M{a:.0f} {b:.0f}C{a:.0f} {middle:.0f} {c:.0f} {middle:.0f} {c:.0f} {d:.0f}" '
        f'stroke-width="{min(0.8 + 0.25 * files, 5):.1f}"><title>{here or "softknee"} imports {there or "softknee"} in '
        f"{files} files</title></path>"
    )


def _box(room: str, place: tuple[float, float], size: int) -> str:
    x, y = place
    name = room or "softknee"
    return (
        f'<g><rect x="{x:.0f}" y="{y:.0f}" width="{_WIDE}" height="{_TALL}" rx="8"/>'
        f'<text class="name" x="{x + _WIDE / 2:.0f}" y="{y + 22:.0f}">{escape(name)}</text>'
        f'<text x="{x + _WIDE / 2:.0f}" y="{y + 40:.0f}">{escape(WORDS.get(room, ""))}</text>'
        f"<title>{escape(name)}: {size:,} lines</title></g>"
    )


def table() -> str:
    """The rooms as a table: what each is for, how large, what it imports."""
    used, sizes = edges(), lines_of_code()
    rows = []
    for room in reversed(present()):
        below = [there or "softknee" for here, there in used if here == room]
        shown = ", ".join(f"`{other}`" for other in present() if (other or "softknee") in below)
        shown = shown.replace("``", "`softknee`")
        rows.append(f"| `{room or 'softknee'}` | {WORDS.get(room, '')} | {sizes[room]:,} | {shown} |")
    return "| room | what is in it | lines | imports |\n|---|---|---:|---|\n" + "\n".join(rows)


def fill(page: Path) -> None:
    """Put picture and table into the page of the architecture."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"^<!-- rooms: picture -->$", lambda _: picture(), text, flags=re.M)
    text = re.sub(r"^<!-- rooms: table -->$", lambda _: table(), text, flags=re.M)
    page.write_text(text, encoding="utf-8")
