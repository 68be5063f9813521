"""Reads the figures of the gallery back: which curves there are, through which numbers they go, what is written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree import ElementTree

import numpy as np

_COMMAND = re.compile(r"([MLHV])([^MLHVZ]*)")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
_VIEW = re.compile(r"x (\S+) to (\S+), y (\S+) to (\S+)")


@dataclass(frozen=True)
class Panel:
    """A rectangle of the picture (left, top, right, bottom, in pixels) and the numbers that it shows."""

    box: tuple[float, float, float, float]
    view: tuple[float, float, float, float]

    def read(self, x: float, y: float) -> tuple[float, float]:
        """The numbers at a place of the panel."""
        low, _, _, ceiling = self.view
        wide, tall = self.point
        return low + x * wide, ceiling - y * tall

    @property
    def point(self) -> tuple[float, float]:
        """What one pixel of the picture is in x and in y."""
        left, top, right, bottom = self.box
        return (self.view[1] - self.view[0]) / (right - left), (self.view[3] - self.view[2]) / (bottom - top)


@dataclass(frozen=True)
class Picture:
    """The panels, the strokes by name in pixels from the corner of their panel, and every text."""

    panels: dict[str, Panel]
    strokes: dict[str, list[tuple[float, float]]]
    texts: list[str]

    def curve(self, panel: str, line: int) -> list[list[tuple[float, float]]]:
        """The runs of a line in numbers."""
        begin = f"line_{panel}_{line}_"
        runs = sorted((int(name.removeprefix(begin)), name) for name in self.strokes if name.startswith(begin))
        return [[self.panels[f"panel_{panel}"].read(*at) for at in self.strokes[name]] for _, name in runs]


def read(svg: str) -> Picture:
    root = ElementTree.fromstring(svg)
    picture = Picture({}, {}, [node.text or "" for node in root.iter() if node.tag.endswith("}text")])
    _walk(root, (0.0, 0.0), picture)
    return picture


def _walk(node: ElementTree.Element, corner: tuple[float, float], picture: Picture) -> None:
    x, y = (float(item) for item in _NUMBER.findall(node.get("transform", ""))[:2] or (0, 0))
    corner = corner[0] + x, corner[1] + y
    for name in node.get("class", "").split():
        if name.startswith(("line_", "mass_")) and name.endswith("_marks"):
            picture.strokes[name.removesuffix("_marks")] = points(node[0].attrib["d"])
        elif name.startswith("panel_") and name.endswith("_group"):
            match = _VIEW.search(node[0].get("aria-label", ""))
            wide, tall = map(float, re.findall(r"[hv](\d+)", node[0][0].attrib["d"])[:2])
            x, y = (float(value) for value in _NUMBER.findall(node[0].get("transform", ""))[:2])
            box = corner[0] + x, corner[1] + y, corner[0] + x + wide, corner[1] + y + tall
            assert match, "a panel says what it shows"
            low, high, bottom, top = map(float, match.groups())
            picture.panels[name.removesuffix("_group")] = Panel(box, (low, high, bottom, top))
    for child in node:
        _walk(child, corner, picture)


def points(path: str) -> list[tuple[float, float]]:
    """The corners of a path of straight lines."""
    result: list[tuple[float, float]] = []
    for command, rest in _COMMAND.findall(path):
        numbers = [float(item) for item in _NUMBER.findall(rest)]
        if command in "ML":
            result.append((numbers[0], numbers[1]))
        elif command == "H":
            result.append((numbers[0], result[-1][1]))
        else:
            result.append((result[-1][0], numbers[0]))
    return result


def differences(one: Picture, other: Picture, *, tolerance: float = 0.15) -> list[str]:
    """In what two pictures differ by more than rounding; empty where they are the same.

    Lines are compared as drawn, to a fraction of a pixel: which corners a nearly straight stretch is drawn through, and
    at which side of a jump a line breaks, is a matter of the last digit, and differs from processor to processor.
    """
    results = [f"text: {a!r} and {b!r}" for a, b in zip(one.texts, other.texts, strict=False) if a != b]
    if len(one.texts) != len(other.texts):
        results.append(f"{len(one.texts)} and {len(other.texts)} texts")
    mine, theirs = _lines(one), _lines(other)
    results += [f"only in one: {name}" for name in mine.keys() ^ theirs.keys()]
    for name in mine.keys() & theirs.keys():
        if max(_distance(mine[name], theirs[name]), _distance(theirs[name], mine[name])) > tolerance:
            results.append(f"line {name}")
    for name in one.panels.keys() & other.panels.keys():
        if one.panels[name].view != other.panels[name].view:
            results.append(f"view of {name}")
    return results


def _lines(picture: Picture) -> dict[str, list[list[tuple[float, float]]]]:
    """The runs of every line: strokes of one name but for the last number."""
    lines: dict[str, list[list[tuple[float, float]]]] = {}
    for name, stroke in picture.strokes.items():
        lines.setdefault(name.rpartition("_")[0] if name.startswith("line_") else name, []).append(stroke)
    return lines


def _distance(runs: list[list[tuple[float, float]]], others: list[list[tuple[float, float]]]) -> float:
    """How far the farthest corner of a line lies from the other line, in pixels."""
    begin = np.array([p for run in others for p in run])
    end = np.array([p for run in others for p in [*run[1:], run[-1]]])
    corners = np.array([p for run in runs for p in run])[:, None]
    along = end - begin
    length = np.maximum((along**2).sum(-1), 1e-12)
    share = (((corners - begin) * along).sum(-1) / length).clip(0, 1)[..., None]
    return float(np.sqrt(((corners - begin - share * along) ** 2).sum(-1)).min(1).max())
