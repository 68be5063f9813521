"""Surfaces computed, measured and written: a record, a figure, the numbers."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor

from ...errors import MissingToolError, ParameterError
from ...files import write_whole
from ...measure.record import Quantity, Record
from .. import chart
from .drawing import draw
from .layouts import Rows
from .network import DTYPES, REACH, WIDTHS, Setting, axis, heights
from .roughness import Roughness, roughness

ENDINGS = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Surfaces:
    """The surfaces of the first network in rows, how rough each is, and the record over all networks."""

    rows: Rows
    heights: tuple[tuple[Tensor, ...], ...]
    measures: tuple[tuple[Roughness, ...], ...]
    record: Record


def compute(
    rows: Rows,
    *,
    seed: int = 0,
    networks: int = 1,
    points: int = 121,
    dtype: str = "f64",
    command: str = "",
    report: Callable[[str], object] | None = None,
) -> Surfaces:
    """Compute and measure surfaces.

    Args:
        rows: of settings, as `rows_of` and `paper_rows` give them.
        seed: draws the weights of the network that is drawn.
        networks: how many are measured, with the seeds from `seed` on; medians and quartiles go into the record.
        points: of the grid along each input.
        dtype: "f64" or "f32".
        report: called with the name of each surface before it is computed.

    >>> found = compute(((Setting("relu"), Setting("smelu(beta=2)")),), points=25)
    >>> rough, smooth = found.measures[0]
    >>> rough.kink > 5 * smooth.kink
    True
    """
    if dtype not in DTYPES:
        raise ParameterError(f"dtype must be f64 or f32, and {dtype!r} was given.")
    if networks < 1 or seed < 0:
        raise ParameterError("There must be at least one network, and a seed of at least 0.")
    step = 2 * REACH / (points - 1) if points > 1 else 0.0
    first: list[list[Tensor]] = []
    measures: list[list[Roughness]] = []
    entries: list[dict[str, Any]] = []
    for row in rows:
        first.append([])
        measures.append([])
        for setting in row:
            if report is not None:
                report(setting.activation)
            each = [
                heights(setting, seed=seed + index, points=points, dtype=DTYPES[dtype]) for index in range(networks)
            ]
            if not all(bool(one.isfinite().all()) for one in each):
                raise ParameterError(f"The surface of {setting} is not finite in {dtype}; take a smaller v, or f64.")
            found = [roughness(one, step=step) for one in each]
            first[-1].append(each[0])
            measures[-1].append(found[0])
            entries.append(_entry(setting, found))
    record = Record.now(
        "surface",
        command=command,
        rows=entries,
        seeds=range(seed, seed + networks),
        settings={"hidden": WIDTHS, "reach": REACH, "points": points, "dtype": dtype},
        notes=(
            "kink: largest change of slope between neighbouring cells, over the steepest slope.",
            "bending: rms second derivative over rms slope, per unit of input. Both depend on the number of points.",
            "extrema: points above, or below, all eight neighbours.",
        ),
    )
    return Surfaces(rows, tuple(map(tuple, first)), tuple(map(tuple, measures)), record)


def _entry(setting: Setting, found: Sequence[Roughness]) -> dict[str, Any]:
    units = {"kink": "of the steepest slope", "bending": "1/input", "extrema": "points"}
    others = ("low", "high", "steepest")
    return {
        **asdict(setting),
        **{name: Quantity.median([getattr(one, name) for one in found], unit=unit) for name, unit in units.items()},
        **{name: Quantity.median([getattr(one, name) for one in found], unit="output") for name in others},
    }


def write_figure(surfaces: Surfaces, path: str | PathLike[str], *, view: str = "relief", dpi: int = 160) -> Path:
    """Draw the surfaces into a .png, .svg or .pdf file, with `dpi` pixels to the inch."""
    ending = check_ending(path)
    figure = draw(surfaces.rows, surfaces.heights, surfaces.measures, view=view)
    if ending == ".png":
        return write_whole(path, chart.png_of(figure, scale=dpi / 96), what="figure")
    content = chart.svg_of(figure, label="surfaces") if ending == ".svg" else chart.pdf_of(figure)
    return write_whole(path, content, what="figure")


def check_ending(path: str | PathLike[str]) -> str:
    """The ending of a figure's file, or a sentence."""
    return chart.check_ending(path, ENDINGS)


def check_archive(path: str | PathLike[str]) -> None:
    """Refuse another ending than .npz."""
    if Path(path).suffix.lower() != ".npz":
        raise ParameterError(f"The numbers are written as .npz, and {Path(path).name!r} has another ending.")


def write_numbers(surfaces: Surfaces, path: str | PathLike[str]) -> Path:
    """The heights as a NumPy archive: `axis`, `settings` (texts) and `heights` [surfaces, n, n], as in the figure."""
    try:
        import numpy as np
    except ModuleNotFoundError as error:
        raise MissingToolError("Numbers are written by NumPy: pip install 'softknee[lab]'") from error
    check_archive(path)
    flat = [one for row in surfaces.heights for one in row]
    names = [f"{one.activation} norm={one.norm} v={one.v:g} clip={one.clip}" for row in surfaces.rows for one in row]
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        axis=axis(flat[0].shape[0], flat[0].dtype).numpy(),
        settings=np.array(names),
        heights=np.stack([one.numpy() for one in flat]),
    )
    return write_whole(path, buffer.getvalue(), what="archive")
