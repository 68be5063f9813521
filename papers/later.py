"""What three papers leave to later work: Kolmogorov-Arnold networks, answered by records of `softknee bench kan`.

Two kinds of network are compared on every function of the benchmark: the decimal logarithms of their test errors over
the seeds, without pairs (Welch), after Holm's correction over the functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from softknee.measure.record import Record
from softknee.measure.significance import compare_each

from .runs import HERE, Runs
from .statement import REVERSED, SHOWN, Evidence, Part, better, corrected

RECORDS = HERE.parent / "benchmarks" / "records"
FUNCTIONS = tuple(f"cpu-kan-{name}.json" for name in ("product", "bessel", "elliptic", "untuned"))
IMAGES, DIGITS = "cpu-kan-mnist.json", "kan-digits"
_GUIDE = "[Networks with learned edges](../../docs/guides/kan.md)"


def later_work(stem: str, folder: Path = RECORDS) -> Iterator[str]:
    """The section of a paper's page; nothing for a paper that does not name these networks."""
    sections = {"mollification": _mollification, "eafo": _eafo, "squaf": _squaf}
    if stem in sections:
        yield "\n## What it leaves to later work: Kolmogorov-Arnold networks\n\n"
        yield from sections[stem](folder)


def _mollification(folder: Path) -> Iterator[str]:
    digits = Runs(folder).study(DIGITS)
    smooth, linear = ([v for v in digits.values(label, "accuracy") if v is not None] for label in ("cubic", "relu"))
    test = compare_each(smooth, linear, paired=False)
    results = compared(function_rows(folder), "spline", "linear")
    yield (
        "The paper leaves open whether mollification carries over to these networks. Second differences of a mollified "
        "ReLU are the local functions of a smooth edge: with a triangle for a kernel the cubic B-splines, with ReLU "
        f"itself piecewise linear edges. That mollified edges fit better is **{verdict(results)}**: their error is "
        f"{_counted(results)}. On handwritten digits ({len(smooth)} seeds, `softknee study run {DIGITS}`) the accuracy "
        f"is {_percent(smooth)} % with cubic edges and {_percent(linear)} % with piecewise linear ones, "
        f"p = {test.p:.2g}. {_GUIDE}, which has the records.\n"
    )


def _eafo(folder: Path) -> Iterator[str]:
    yield (
        "The paper asks whether its correction could shape the functions on the edges of such a network. **Not run**: "
        f"edges are learned from the loss alone here. {_GUIDE}.\n"
    )


def _squaf(folder: Path) -> Iterator[str]:
    rows = function_rows(folder)
    images = {row["model"]: row["error"] for row in Record.read(folder / IMAGES).rows}
    wrong = {name: f"{100 * error.value:.1f} ± {100 * error.spread:.1f} %" for name, error in images.items()}
    theirs, mlp = compared(rows, "squaf", "pykan"), compared(rows, "squaf", "mlp")
    yield (
        "The paper sees a use for SQUAF in these networks, for instance in partial differential equations, which were "
        f"not tried. That a SQUAF on every edge fits functions better than pykan's splines is **{verdict(theirs)}**: "
        f"the error is {_counted(theirs)}. That it does so better than an MLP with as many parameters is "
        f"**{verdict(mlp)}**: {_counted(mlp)}. Of the test images of MNIST it takes {wrong['squaf']} for another "
        f"digit, FastKAN {wrong['fastkan']} and the MLP {wrong['mlp']}. {_GUIDE}, which has the records.\n"
    )


def function_rows(folder: Path = RECORDS) -> list[Mapping[str, Any]]:
    """All networks on all functions of the benchmark."""
    return [row for name in FUNCTIONS for row in Record.read(folder / name).rows]


def compared(rows: Sequence[Mapping[str, Any]], first: str, second: str) -> dict[str, Part]:
    """For each function: is the error of the first network smaller?"""
    errors = {(row["task"], row["model"]): [math.log10(e) for e in row["errors"]] for row in rows}
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    parts = [
        better(f"{task}: {first} better than {second}", errors[task, first], errors[task, second], larger=False)
        for task in tasks
    ]
    return dict(zip(tasks, corrected(parts), strict=True))


def verdict(results: Mapping[str, Part]) -> str:
    """Of all functions together, by the rule of the statements."""
    return Evidence(tuple(results.values())).direction


def ratio(part: Part) -> float:
    """The first network's error as a multiple of the second's, by geometric means over the seeds."""
    return 10 ** -(part.difference or 0.0)


def _counted(results: Mapping[str, Part]) -> str:
    smaller, larger = (sum(part.direction == sign for part in results.values()) for sign in (SHOWN, REVERSED))
    ratios = ", ".join(f"{ratio(part):.2f} times on {task}" for task, part in results.items())
    return f"shown to be smaller on {smaller} of {len(results)} functions and larger on {larger} ({ratios})"


def _percent(values: Sequence[float]) -> str:
    return f"{100 * sum(values) / len(values):.2f}"
