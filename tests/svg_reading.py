"""Reads the figures of the gallery back: which curves there are, through which numbers they go, what is written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree import ElementTree

_COMMAND = re.compile(r"([MLHVz])([^MLHVz]*)")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Panel:
    """A rectangle of the picture (left, top, right, bottom, in points) and the numbers that it shows."""

    box: tuple[float, float, float, float]
    view: tuple[float, float, float, float]

    def read(self, x: float, y: float) -> tuple[float, float]:
        """The numbers at a place of the picture."""
        left, top, right, bottom = self.box
        low, high, floor, ceiling = self.view
        return low + (x - left) / (right - left) * (high - low), ceiling - (y - top) / (bottom - top) * (
            ceiling - floor
        )

    @property
    def point(self) -> tuple[float, float]:
        """What one point of the picture is in x and in y."""
        left, top, right, bottom = self.box
        return (self.view[1] - self.view[0]) / (right - left), (self.view[3] - self.view[2]) / (bottom - top)


@dataclass(frozen=True)
class Picture:
    """The panels and the strokes by id, in points, and every text."""

    panels: dict[str, Panel]
    strokes: dict[str, list[tuple[float, float]]]
    texts: list[str]

    def curve(self, panel: str, line: int) -> list[list[tuple[float, float]]]:
        """The runs of a line in numbers."""
        begin = f"line-{panel}-{line}-"
        runs = sorted((int(name.removeprefix(begin)), name) for name in self.strokes if name.startswith(begin))
        return [[self.panels[f"panel-{panel}"].read(*at) for at in self.strokes[name]] for _, name in runs]


def read(svg: str) -> Picture:
    root = ElementTree.fromstring(svg)
    panels, strokes = {}, {}
    for node in root.iter():
        name = node.get("id", "")
        if name.startswith(("panel-", "line-", "mass-")):
            places = points(node[0].attrib["d"] if len(node) else node.attrib["d"])
            strokes[name] = places
            if view := node.get("data-view"):
                xs, ys = zip(*places, strict=True)
                low, high, floor, ceiling = map(float, view.split())
                panels[name] = Panel((min(xs), min(ys), max(xs), max(ys)), (low, high, floor, ceiling))
    texts = [node.attrib["aria-label"] for node in root.iter() if "aria-label" in node.attrib]
    return Picture(panels, strokes, texts)


def points(path: str) -> list[tuple[float, float]]:
    """The corners of a path of straight lines."""
    found: list[tuple[float, float]] = []
    for command, rest in _COMMAND.findall(path):
        numbers = [float(one) for one in _NUMBER.findall(rest)]
        if command in "ML":
            found.append((numbers[0], numbers[1]))
        elif command == "H":
            found.append((numbers[0], found[-1][1]))
        elif command == "V":
            found.append((found[-1][0], numbers[0]))
    return found


def differences(one: Picture, other: Picture, *, tolerance: float = 0.02) -> list[str]:
    """In what two pictures differ by more than rounding; empty where they are the same."""
    found = [f"text: {a!r} and {b!r}" for a, b in zip(one.texts, other.texts, strict=False) if a != b]
    if len(one.texts) != len(other.texts):
        found.append(f"{len(one.texts)} and {len(other.texts)} texts")
    found += [f"only in one: {name}" for name in one.strokes.keys() ^ other.strokes.keys()]
    for name in one.strokes.keys() & other.strokes.keys():
        a, b = one.strokes[name], other.strokes[name]
        apart = len(a) != len(b) or any(abs(p[i] - q[i]) > tolerance for p, q in zip(a, b, strict=True) for i in (0, 1))
        if apart:
            found.append(f"stroke {name}")
    for name in one.panels.keys() & other.panels.keys():
        if one.panels[name].view != other.panels[name].view:
            found.append(f"view of {name}")
    return found
