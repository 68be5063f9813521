"""Hardness over depth and time, from a trace that was recorded while a model trained.

    trace = sk.measure.HardnessTrace(model)     # trace.record(epoch) after each epoch
    draw_hardness(trace, "hardness.png")        # or .svg

Left, every activation a row (the deepest on top) and every epoch a column, darker where it is harder. Right, the
profile over depth at a few epochs. A knob that grows more than tenfold has logarithmic scales: hardening takes it from
1 to 160.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ParameterError
from ..measure.hardness import HardnessTrace
from ..registry import get
from .figure_files import check_ending, write_figure
from .figure_lines import INK, RAMP, letter
from .figure_panels import drawing, furnish

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIZE = (9.2, 3.4)
_LOGARITHMIC = 10.0  # the ratio from which on equal steps would hide the small values
_NAMED = 14  # rows that still have room for their names
_LETTERS = 26  # of a path; its end tells more than its beginning
_FLOOR, _HEIGHT, _LETTER = 0.145, 0.735, 0.0072  # shares of the figure
_SOFT = "#6a6963"
_LABEL: Any = {"fontsize": 8.5, "color": _SOFT}


def draw_hardness(trace: HardnessTrace, path: str | PathLike[str]) -> Path:
    """Draw a trace into a .png or an .svg file, and return where it is.

    >>> import softknee as sk, tempfile, torch
    >>> net = torch.nn.Sequential(sk.nn.LambdaGELU(lam=1.5), torch.nn.Linear(2, 2), sk.nn.LambdaGELU(lam=2.0))
    >>> trace = sk.measure.HardnessTrace(net)
    >>> for epoch in range(3):
    ...     _ = trace.record(epoch), net[0].set_(lam=2.0 + epoch)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw_hardness(trace, folder + "/hardness.svg").name
    'hardness.svg'
    """
    check_ending(path)
    return write_figure(hardness_figure(trace), path, label="hardness of the activations over depth and time")


def hardness_figure(trace: HardnessTrace) -> Figure:
    """The figure itself; widths are drawn as they are, and coloured darker where they are smaller."""
    if len(trace.profiles) < 2:
        raise ParameterError(
            f"A figure over time needs a trace of two epochs or more, and this one has {len(trace.profiles)}; call "
            "record(epoch) while the model trains."
        )
    table = [profile.values for profile in trace.profiles]
    every = [value for row in table for value in row]
    low, high = min(every), max(every)
    logarithmic = low > 0 and high / low > _LOGARITHMIC
    with drawing(_SIZE) as figure:
        # The names of the rows take what they need, and the map the rest.
        begin = 0.035 + _LETTER * max(map(len, _short(trace.profiles[0].paths)))
        left = figure.add_axes((begin, _FLOOR, 0.485 - begin, _HEIGHT))
        bar = figure.add_axes((0.495, _FLOOR, 0.011, _HEIGHT))
        right = figure.add_axes((0.605, _FLOOR, 0.285, _HEIGHT))
        _map(figure, left, bar, trace, (low, high), logarithmic)
        _profiles(right, trace, logarithmic)
        for axes, words in ((left, f"{_knob(trace)} over depth and time"), (right, f"{_knob(trace)} over depth")):
            axes.set_title(words, loc="left", fontsize=10, color=INK, pad=7)
    return figure


def _map(
    figure: Figure, axes: Axes, bar: Axes, trace: HardnessTrace, reach: tuple[float, float], logarithmic: bool
) -> None:
    """A row for each activation, a column for each epoch."""
    from matplotlib.colors import LinearSegmentedColormap, LogNorm, Normalize

    low, high = reach if reach[0] < reach[1] else (reach[0] - 0.5, reach[1] + 0.5)
    ramp = ("#fdf1dd", *RAMP) if _hardens_upward(trace) else ("#fdf1dd", *RAMP)[::-1]
    norm: Any = LogNorm(low, high) if logarithmic else Normalize(low, high)
    paths = trace.profiles[0].paths
    rows = [[profile.values[i] for profile in trace.profiles] for i in range(len(paths))]
    drawn = axes.pcolormesh(
        _edges(trace.epochs),
        [i + 0.5 for i in range(len(paths) + 1)],
        rows,
        cmap=LinearSegmentedColormap.from_list("softknee", ramp),
        norm=norm,
        edgecolors="white",
        linewidth=0.3 if len(trace.epochs) <= 60 else 0.0,
        antialiased=True,
    )
    axes.set_xlabel("epoch", **_LABEL)
    names = _short(paths)
    shown = range(len(paths)) if len(paths) <= _NAMED else range(0, len(paths), math.ceil(len(paths) / _NAMED))
    axes.set_yticks([i + 1 for i in shown], [names[i] for i in shown])
    axes.tick_params(length=0, labelsize=7.5, labelcolor=_SOFT)
    scale = figure.colorbar(drawn, cax=bar)
    scale.ax.tick_params(length=2, width=0.5, labelsize=7.5, labelcolor=_SOFT, which="both")
    _plain_ticks(scale.ax.yaxis, (low, high), logarithmic)
    for spine in (*axes.spines.values(), *scale.ax.spines.values()):
        spine.set_visible(False)
    scale.outline.set_visible(False)  # pyright: ignore[reportCallIssue]


def _profiles(axes: Axes, trace: HardnessTrace, logarithmic: bool) -> None:
    """The profile at the first epoch, at the last, and at some between."""
    count = len(trace.profiles)
    chosen = sorted({round(i * (count - 1) / (len(RAMP) - 1)) for i in range(len(RAMP))})
    depth = range(1, len(trace.profiles[0].sites) + 1)
    values = [value for profile in trace.profiles for value in profile.values]
    low, high = min(values), max(values)
    furnish(axes)
    if logarithmic:
        room = (high / low) ** 0.07
        axes.set_ylim(low / room, high * room)  # before the scale, which would look for limits of its own
        axes.set_yscale("log")
    else:
        room = 0.07 * ((high - low) or 1.0)
        axes.set_ylim(low - room, high + room)
    shades = RAMP if len(chosen) == len(RAMP) else RAMP[-len(chosen) :]
    for index, colour in zip(chosen, shades, strict=True):
        axes.plot(
            depth,
            trace.profiles[index].values,
            color=colour,
            linewidth=1.7,
            marker="o",
            markersize=3.2,
            label=f"epoch {trace.epochs[index]:g}",
        )
    axes.set_xlim(0.6, len(depth) + 0.4)
    axes.xaxis.set_major_locator(_whole_numbers())
    _plain_ticks(axes.yaxis, (low, high), logarithmic)
    axes.set_xlabel("activation, counted from the input", **_LABEL)
    axes.legend(
        loc="upper left", bbox_to_anchor=(1.0, 1.02), fontsize=7.5, labelcolor=INK, frameon=False, handlelength=1.6
    )


# -- words and numbers ------------------------------------------------------------------------------------


def _knob(trace: HardnessTrace) -> str:
    """The knob as mathematics where all activations have the same."""
    sites = trace.profiles[0].sites
    if len({(site.activation, site.knob) for site in sites}) > 1:
        return "Knob"
    try:
        act: Any = get(sites[0].activation)
    except KeyError:  # a designed function has no name to ask for
        return sites[0].knob
    return ", ".join(f"${letter(act, name)}$" for name in sites[0].knob.split(", "))


def _hardens_upward(trace: HardnessTrace) -> bool:
    """Whether the larger knob is the harder one."""
    return math.isinf(trace.profiles[0].sites[0].toward)


def _edges(epochs: Sequence[float]) -> list[float]:
    """Where the columns meet: halfway between two epochs."""
    between = [(a + b) / 2 for a, b in pairwise(epochs)]
    return [epochs[0] - (between[0] - epochs[0]), *between, epochs[-1] + (epochs[-1] - between[-1])]


def _short(paths: Sequence[str]) -> list[str]:
    """Paths without what all of them begin with, and the end of those that are still long."""
    parts = [path.split(".") for path in paths]
    shared = 0
    while len(paths) > 1 and all(len(one) > shared + 1 and one[shared] == parts[0][shared] for one in parts):
        shared += 1
    names = [".".join(one[shared:]) for one in parts]
    return [name if len(name) <= _LETTERS else "…" + name[1 - _LETTERS :] for name in names]


def _whole_numbers() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=7, integer=True)


def _plain_ticks(axis: Any, reach: tuple[float, float], logarithmic: bool) -> None:
    """1, 2, 5, 10, ... beside a logarithmic scale, written as plain numbers."""
    if not logarithmic:
        return
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = math.floor(math.log10(reach[0])), math.ceil(math.log10(reach[1]))
    steps = (1, 2, 5) if high - low <= 3 else (1,)
    axis.set_major_locator(FixedLocator([step * 10.0**power for power in range(low, high + 1) for step in steps]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
