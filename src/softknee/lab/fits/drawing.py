"""Figures of what networks fitted: curves, pictures, regions of classes, grids of SQUAF's start, learned SQUAFs."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ... import design
from ...design import Fitted
from ...errors import DataError, ParameterError, SoftkneeError
from ...files import make_folder, write_whole
from ...measure.estimate import score
from ...nn import SQUAF
from ...registry import get
from ...surgery.modules import activation_modules
from ..chart import (
    INK,
    SOFT,
    Chart,
    Page,
    by_name,
    check_ending,
    coloured,
    footnote,
    line_styles,
    lines_legend,
    marks,
    number,
    outline,
    png_of,
    points,
    rgb,
    side_by_side,
    sized,
    svg_of,
    ticks,
    write_figure,
)
from ..figures import Polyline, thin
from ..report import summarise
from ..report.tables import paper_note, paper_sentences, paper_tables
from ..table import DENSE, escape_markdown
from .runs import Fit, Run, mean_of

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def written(measure: str) -> str:
    """The name of a test score.

    >>> written("psnr"), written("accuracy")
    ('PSNR', 'accuracy')
    """
    return measure.upper() if measure in ("psnr", "ssim", "mse", "auc") else measure.replace("_", " ")


def power_of_ten(value: float) -> str:
    """A small number as a product.

    >>> power_of_ten(1.34e-4), power_of_ten(0.0)
    ('1.3×10⁻⁴', '0')
    """
    if value == 0:
        return "0"
    digits, exponent = f"{value:.1e}".split("e")
    return f"{digits}×10{str(int(exponent)).translate(_RAISED)}"


# Told apart by readers who see red and green alike (Okabe and Ito; the purple is darker, and the yellow left out).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b0508c", "#56b4e9", "#e69f00", "#5a5a5a")
MARKS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x")
ERRORS = "magma_r"  # white where nothing is wrong
_LARGEST_SVG = 400_000  # bytes; what is larger is for pixels


@dataclass(frozen=True, eq=False)
class Drawn:
    """A figure and what it shows, in a sentence or two."""

    figure: Chart
    caption: str


def svg_bytes(figure: Chart) -> bytes | None:
    """The figure as SVG, where that is small."""
    if any(layer["mark"]["type"] == "image" for layer in figure.get("layer", ())):
        return None  # pixels would be inside all the same
    content = svg_of(figure, label="fitted functions").encode("utf-8")
    return content if len(content) <= _LARGEST_SVG else None


_CELL = 75, 50  # pixels
_FEWEST = 2  # values along each side that make a grid


def grid_of(run: Run) -> dict[tuple[float, float], Fit] | None:
    """The fits of a run that trains SQUAF from several q and alpha, by q and h = alpha q^2; None of another run."""
    cells: dict[tuple[float, float], Fit] = {}
    for fit in run.fits:
        values = fit.outcome.trial.activation.values
        q, alpha = values.get("q"), values.get("alpha")
        if fit.name == "squaf" and isinstance(q, int | float) and isinstance(alpha, int | float):
            # alpha is written with few digits, and h is a round number.
            cells[float(q), float(f"{alpha * q * q:.3g}")] = fit
    sides = [{cell[side] for cell in cells} for side in (0, 1)]
    judged = all("psnr" in fit.outcome.test for fit in cells.values())
    return cells if judged and min(map(len, sides)) >= _FEWEST else None


def seeds_note(run: Run, measure: str = "") -> str:
    """Which seeds a figure shows, as the beginning of a footnote."""
    count = run.recipe.seeds.count
    return "One seed was trained." if count == 1 else f"Shown is the seed with the median {written(measure)} of {count}"


def heat_map(run: Run) -> Drawn:
    """PSNR in every cell, the paper's and ours, in one scale of colours."""
    grid = grid_of(run)
    if grid is None:
        raise DataError(f"'{run.url}' is no grid of SQUAF's q and alpha with a PSNR in each cell.")
    quoted = run.recipe.paper.values if run.recipe.paper is not None else {}
    paper = {cell: quoted[fit.label]["psnr"] for cell, fit in grid.items() if "psnr" in quoted.get(fit.label, {})}
    printed = {cell: (value, f"{value:.2f}") for cell, value in paper.items()}
    ours = {cell: (mean_of(fit.each("psnr")), _psnr_words(fit)) for cell, fit in grid.items()}
    every = [value for value, _ in (*printed.values(), *ours.values()) if value is not None]
    if not every:
        raise DataError(f"'{run.url}': in every cell a seed diverged, so that there are no means to show.")
    reach = min(every), max(every)
    panels = [_cells("SQUAF paper", printed, reach)] * bool(printed) + [_cells("softknee", ours, reach)]
    count = run.recipe.seeds.count
    notes = [
        f"PSNR in dB of {run.data}, stored by a network whose SQUAFs all start with this q and alpha = h/q².",
        "One seed was trained in each cell."
        if count == 1
        else f"softknee: mean over {count} seeds, ± half of its 95 % interval. The paper has one number.",
    ]
    figure = {"hconcat": panels, "resolve": {"scale": {"color": "shared"}}, "title": footnote(*notes)}
    return Drawn(figure, f"{run.data}: PSNR of networks that start with this q and h. {' '.join(notes)}")


def _psnr_words(fit: Fit) -> str:
    """Our PSNR with half of its interval, or how many seeds diverged."""
    if fit.diverged:
        return f"{fit.diverged} seeds\ndiverged"
    psnr = score([value for value in fit.each("psnr") if value is not None], larger_is_better=True)
    half = "" if psnr.interval is None else f"\n±{(psnr.interval[1] - psnr.interval[0]) / 2:.2f}"
    return f"{psnr.value:.2f}{half}"


def _cells(
    title: str, cells: Mapping[tuple[float, float], tuple[float | None, str]], reach: tuple[float, float]
) -> Chart:
    """A row for each q and a column for each h, with the words in their cells; one without a number has no colour."""
    rows = [{"q": q, "h": h, "psnr": value, "text": words.split("\n")} for (q, h), (value, words) in cells.items()]
    across = {"title": "h = αq²", "axis": {"orient": "top", "labelAngle": 0, "grid": False}}
    where = {
        "x": {"field": "h", "type": "ordinal", **across},
        "y": {"field": "q", "type": "ordinal", "title": "q", "axis": {"grid": False}},
    }
    scale = {"scheme": "viridis", "domain": list(reach)}
    legend = {"orient": "right", "direction": "vertical"}
    colour = {"field": "psnr", "type": "quantitative", "title": "dB", "scale": scale, "legend": legend}
    dark = f"isValid(datum.psnr) && datum.psnr < {reach[0] + 0.55 * (reach[1] - reach[0])}"
    ink = {"condition": {"test": dark, "value": "white"}, "value": INK}
    layers = [
        marks("rect", rows, {**where, "color": colour}, stroke="white"),
        marks("text", rows, {**where, "text": {"field": "text"}, "color": ink}, fontSize=10, lineHeight=13),
    ]
    return {"title": title, "width": {"step": _CELL[0]}, "height": {"step": _CELL[1]}, "layer": layers}


CHOSEN = ("relu", "gelu", "ditac", "squaf")  # what is drawn of many; a larger figure has all
_LONG, _TALL = 490, 72  # pixels of a panel with fit and target


def is_curve(run: Run) -> bool:
    """Whether a run is about one quantity that depends on one number."""
    examples = run.examples
    return examples.task == "regression" and examples.outputs == 1 and examples.input_shape == (1,)


def curve_of(fit: Fit) -> tuple[Tensor, Tensor, Tensor, int] | None:
    """x in rising order, target, fit of the median seed by MSE, and that seed's place; None where all diverged."""
    if fit.predictions is None or all(value is None for value in fit.each("mse")):
        return None
    place, examples = fit.seed("mse"), fit.run.examples
    x, order = examples.test_x.flatten().double().sort()
    return x, examples.test_y.flatten().double()[order], fit.predictions[place].flatten().double()[order], place


def curves(runs: Sequence[Run], *, names: Sequence[str] | None = None) -> Drawn:
    """A row for each fit of these runs, all of one function: fit over target, and beside them the error."""
    networks_first = sorted(runs, key=lambda run: run.recipe.model.build == "alone")
    fits = [fit for run in networks_first for fit in run.with_predictions() if names is None or fit.name in names]
    drawn = [(fit, curve) for fit in fits if (curve := curve_of(fit)) is not None]
    if not drawn:
        raise DataError(f"{', '.join(repr(run.url) for run in runs)}: there are no predictions of curves to show.")
    errors = [(curve[2] - curve[1]).abs().clamp_min(1e-12) for _, curve in drawn]
    low = max(1e-9, min(float(torch.quantile(error, 0.05)) for error in errors))
    scale = number(
        "y",
        domain=(low / 2, 2 * max(float(error.max()) for error in errors)),
        scale={"type": "log"},
        axis={"tickCount": 3, "format": "~e"},
    )
    rows = []
    for place, ((fit, (x, target, y, seed)), error) in enumerate(zip(drawn, errors, strict=True)):
        colour = COLOURS[place % len(COLOURS)]
        across = number("x", domain=(float(x[0]), float(x[-1])), axis={"labels": place == len(drawn) - 1})
        most = 1.12 * float(target.abs().max())
        upright = number("y", domain=(-most, most), axis={"tickCount": 3, "minExtent": 24})
        gone = f"{fit.diverged} of {len(fit.outcome.diverged)} seeds diverged, " if fit.diverged else ""
        score = f"{gone}MSE {power_of_ten(fit.each('mse')[seed] or 0.0)}"
        scales, where = {"scale_x": _LONG / 2, "scale_y": _TALL / (2 * most)}, {"x": across, "y": upright}
        seen = [thin(Polyline(x.tolist(), values.tolist()), **scales, tolerance=0.05) for values in (target, y)]
        layers = [
            marks("line", points(line.xs, line.ys), where, color=shade, strokeWidth=wide)
            for line, shade, wide in zip(seen, ("#b5b4ae", colour), (3.4, 1.5), strict=True)
        ]
        title = {"text": fit.title, "fontSize": 11.5, "fontWeight": "bold"}
        left = sized({"title": title, "layer": [*layers, _at_the_right(score, 10.5)]}, _LONG, _TALL)
        look = {"color": colour, "strokeWidth": 0.9, "clip": True}
        stroke = marks("line", points(x.tolist(), error.tolist()), {"x": across, "y": scale}, **look)
        panel = [stroke, _at_the_right(f"seed {fit.number(seed)}", 9.5)]
        right = sized({"title": {"text": "|fit − target|", "fontSize": 11}, "layer": panel}, 260, _TALL)
        rows.append({"hconcat": [left, right], "spacing": 18})
    seeds = seeds_note(runs[0], "mse") + ("" if runs[0].recipe.seeds.count == 1 else ", and its MSE.")
    note = f"{seeds} Errors are on a logarithmic scale, the same in every row."
    title = {"text": f"{runs[0].data}: target and fit", "subtitle": note, "subtitleColor": SOFT, "offset": 14}
    figure = {"vconcat": rows, "spacing": 10, "title": title}
    return Drawn(figure, f"{runs[0].data}: grey the target, in colour the fits. {note}")


def _at_the_right(text: str, size: float) -> Chart:
    """Words above the right end of a panel."""
    where = {"x": {"value": "width"}, "y": {"value": 0}, "text": {"field": "text"}}
    return marks("text", [{"text": text}], where, align="right", baseline="bottom", dy=-6, fontSize=size)


TOLERANCES = (0.4, 0.2, 0.1, 0.05, 0.025)
_SHARPNESS = 8.0  # h of the proof's SQUAF: what is not of the two nearest points weighs e^-8
_TERMS = 30  # the rest is below 1e-9
_LOOKS = 2**14  # places on [-1, 1] where errors are measured


def takagi(x: Tensor) -> Tensor:
    """Takagi's function: the sum over i of 2^-i times the distance of 2^i x from the nearest whole number.

    >>> takagi(torch.tensor([0.0, 0.25, 1 / 3, 0.5], dtype=torch.float64))
    tensor([0.0000, 0.5000, 0.6667, 0.5000], dtype=torch.float64)
    """
    far = x.double().unsqueeze(-1) * 2.0 ** torch.arange(_TERMS, dtype=torch.float64)
    return ((far - far.round()).abs() * 2.0 ** -torch.arange(_TERMS, dtype=torch.float64)).sum(dim=-1)


def modulus(q: float) -> float:
    """omega(q) of Takagi's function: its largest change over a distance of at most q.

    d is even and d(x + y) <= d(x) + d(y), hence so is g: |g(x + h) - g(x)| <= g(h), which is met at x = 0, and
    omega(q) is the largest g on [0, q]. That lies at a third of a dyadic number for q = 2^-m, and the grid has these.

    >>> round(modulus(1.0), 6), round(modulus(0.25), 6)
    (0.666667, 0.541667)
    """
    return float(takagi(torch.linspace(0.0, min(q, 1.0), 3 * 2**11 + 1, dtype=torch.float64)).max())


def constructed(k: int) -> tuple[float, float]:
    """The SQUAF of the proof with 2k+1 points on [-1, 1], its table from the function itself: its largest error as
    measured, and the proof's bound.

    >>> error, bound = constructed(16)
    >>> error <= bound
    True
    """
    q = 1 / k
    z = takagi(torch.arange(-k, k + 1, dtype=torch.float64) * q)
    x = torch.linspace(-1.0, 1.0, _LOOKS + 1, dtype=torch.float64)
    values = get("squaf")(x, k=k, q=q, alpha=_SHARPNESS / q**2, z=z, window=None)
    rest = math.exp(-_SHARPNESS) / -math.expm1(-_SHARPNESS)
    return float((values - takagi(x)).abs().max()), modulus(q) + 4 * float(z.abs().max()) * rest


def fitted_to(tolerances: Sequence[float] = TOLERANCES) -> list[Fitted]:
    """The smallest SQUAF within each tolerance of Takagi's function on [-1, 1]; all points are summed, so that it is
    smooth."""
    return [design.fit(takagi, low=-1.0, high=1.0, tolerance=tolerance, window=None) for tolerance in tolerances]


def theorem_figure(fits: Sequence[Fitted] | None = None) -> Drawn:
    """The function with some of the fits (left out, those of TOLERANCES), and errors against the number of points."""
    fitted = fitted_to() if fits is None else fits
    counts = [2 * 2**power + 1 for power in range(9)]
    errors, bounds = zip(*(constructed(count // 2) for count in counts), strict=True)
    shown = fitted[1::2] if len(fitted) > 3 else fitted
    x = torch.linspace(-1.0, 1.0, 1501, dtype=torch.float64)
    lines = [("g, continuous and nowhere smooth", "#b5b4ae", 3.0, takagi(x))]
    for near, colour in zip(shown, (COLOURS[1], COLOURS[0], COLOURS[2]), strict=False):
        lines.append((f"k = {near.k}, error {near.sup:.2g}", colour, 1.5, near(x)))
    across = number("x", domain=(-1, 1))
    colours = by_name([line[0] for line in lines], [line[1] for line in lines], legend=lines_legend(columns=2))
    plane = {"x": across, "y": number("y"), "color": colours}
    left = [
        marks("line", points(x.tolist(), y.tolist(), name=name), plane, strokeWidth=wide) for name, _, wide, y in lines
    ]
    series = {
        "bound of the proof": (INK, [5, 3], counts, bounds),
        "SQUAF of the proof": (COLOURS[0], [1, 0], counts, errors),
        "sk.design.fit": (COLOURS[1], [1, 0], [2 * near.k + 1 for near in fitted], [near.sup for near in fitted]),
    }
    where = {
        "x": number("x", title="points of the grid, 2k + 1", axis=ticks((3, 10, 30, 100, 300)), scale={"type": "log"}),
        "y": number("y", axis=ticks((0.01, 0.03, 0.1, 0.3, 1), format="~g"), scale={"type": "log"}),
        **line_styles({name: (colour, dash) for name, (colour, dash, *_) in series.items()}, columns=2),
    }
    right = [
        marks("line", points(xs, ys, name=name), where, point={"size": 26} if dash == [1, 0] else False)
        for name, (_, dash, xs, ys) in series.items()
    ]
    note = "g is Takagi's function. Every fit is the smallest that reaches its tolerance, as found by sk.design.fit."
    figure = side_by_side(
        [
            sized({"title": "SQUAF near a function that has no slope anywhere", "layer": left}, 440, 235),
            sized({"title": "largest error on [−1, 1]", "layer": right}, 280, 235),
        ],
        columns=2,
    )
    figure["title"] = footnote(note)
    words = "Takagi's function and SQUAFs near it; the largest error against the number of points"
    return Drawn(figure, f"{words}, beside the SQUAF of the theorem's proof and its bound.")


PAPER = ("relu", "polynorm", "squaf")  # what figure 1 of the SQUAF paper shows beside the original
_COLUMNS, _SIDE, _GAP, _TITLE, _WORDS, _FOOT = 6, 1.5, 0.1, 0.26, 0.36, 0.3  # inches


@dataclass(frozen=True)
class Look:
    """How values are coloured: a ramp of colours and its ends; and which score says how good a fit is."""

    colours: str
    low: float
    high: float
    measure: str


def shape_of(run: Run) -> tuple[int, int] | None:
    """Height and width of what the test part is laid out as; None where it is no picture and no even grid."""
    examples = run.examples
    if examples.picture is not None:
        return examples.picture
    x = examples.test_x
    if examples.task != "regression" or examples.outputs != 1 or x.dim() != 2 or x.shape[1] != 2:
        return None
    sides = [column.unique() for column in x.T]
    if len(sides[0]) * len(sides[1]) != len(x) or not torch.equal(torch.cartesian_prod(*sides), x):
        return None
    return len(sides[0]), len(sides[1])


def _laid_out(run: Run, values: Tensor) -> Tensor:
    """Values as rows of pixels. A function's first input runs to the right and its second upwards."""
    shape = shape_of(run)
    if shape is None:
        raise DataError(f"'{run.url}': its test part is neither a picture nor an even grid of two inputs.")
    pixels = values.detach().reshape(shape)
    return pixels if run.examples.picture is not None else pixels.T.flip(0)


def fitted(fit: Fit, measure: str) -> tuple[Tensor, int] | None:
    """What the median seed gives at every pixel, and that seed's place; None where every seed diverged."""
    if fit.predictions is None or all(value is None for value in fit.each(measure)):
        return None
    place = fit.seed(measure)
    return _laid_out(fit.run, fit.predictions[place]), place


def look_of(run: Run) -> Look:
    if run.examples.picture is not None:
        return Look("gray", 0.0, 1.0, "psnr")
    reach = float(run.examples.test_y.abs().max())
    return Look("RdBu_r", -reach, reach, "mse")


def words_of(fit: Fit, place: int) -> str:
    """The scores beneath a picture, as means over seeds; of a function the MSE of the seed at `place`."""
    if fit.diverged:
        return f"{fit.diverged} of {len(fit.outcome.diverged)} seeds diverged"
    test = fit.outcome.test
    if "psnr" in test and "ssim" in test:
        return f"{mean_of(test['psnr']):.2f} dB, SSIM {mean_of(test['ssim']):.4f}"
    # Errors of seeds may differ by powers of ten, and their mean would be that of the worst.
    return f"MSE {power_of_ten(test['mse'][place] or 0.0)}"


# -- one run: every fit, and its errors --------------------------------------------------------------------


def gallery(run: Run) -> Drawn:
    """Target and fits of one run with a map of errors below each, in as many rows as they need."""
    fits = run.with_predictions()
    if not fits:
        raise DataError(f"'{run.url}' kept no predictions, so that there is no picture to show.")
    look, truth = look_of(run), _laid_out(run, run.examples.test_y)
    panels = len(fits) + 1
    columns = panels if panels <= _COLUMNS else _columns(panels, (6, 5, 4))
    block = _TITLE + 2 * _SIDE + _GAP + _WORDS
    pictures = {fit.label: fitted(fit, look.measure) for fit in fits}
    errors = Look(
        ERRORS, 0.0, _largest([picture[0] - truth for picture in pictures.values() if picture is not None]), ""
    )
    tall = math.ceil(panels / columns) * block + _FOOT
    sheet = Page(_GAP + columns * (_SIDE + _GAP), tall)
    below = _TITLE + _SIDE + _GAP  # where the errors are in a block
    original = "original" if _is_picture(run) else "target"
    sheet.write(_GAP + _SIDE / 2, 0.08, original, size=9)
    _image(sheet, _GAP, _TITLE, truth, look)
    for place, fit in enumerate(fits, start=1):
        left, top = _GAP + place % columns * (_SIDE + _GAP), place // columns * block
        sheet.write(left + _SIDE / 2, top + 0.08, fit.title, size=9)
        picture = pictures[fit.label]
        if picture is None:
            _absent(sheet, left, top + _TITLE, _SIDE, "every seed diverged")
            continue
        _image(sheet, left, top + _TITLE, picture[0], look)
        _image(sheet, left, top + below, (picture[0] - truth).abs(), errors)
        _scores(sheet, left + _SIDE / 2, top + below + _SIDE, fit, picture[1])
    scales = [(look, "target and fits")] * (not _is_picture(run)) + [(errors, f"|fit − {original}|")]
    for place, (scale, words) in enumerate(scales):
        _colour_bar(sheet, below + 0.35 + 0.55 * place, scale, words)
    sheet.footnote(_footnote(run, look))
    words = "Below each fit the size of its error at every place, in one scale."
    return Drawn(sheet.figure, f"{run.data}: target and fits. {words} {_footnote(run, look)}")


def _colour_bar(sheet: Page, top: float, look: Look, words: str) -> None:
    """A level scale of colours, with what it means above and its ends below."""
    left, wide = _GAP + 0.15, _SIDE - 0.3
    sheet.write(left + wide / 2, top - 0.06, words, size=7.5, colour=SOFT, baseline="bottom")
    sheet.image(left, top, wide, 0.1, coloured(torch.linspace(0, 1, 256).expand(2, -1), look.colours))
    for share, value in ((0.0, look.low), (0.5, (look.low + look.high) / 2), (1.0, look.high)):
        sheet.write(left + share * wide, top + 0.13, f"{value:.2g}".replace("-", "−"), size=7, colour=SOFT)


def _largest(errors: Sequence[Tensor]) -> float:
    """The upper end of the scale of errors: all but the largest hundredth lie within it, for every fit."""
    largest = max((float(torch.quantile(error.abs().flatten().double(), 0.99)) for error in errors), default=1.0)
    return largest or 1.0


# -- several runs: as in the paper -------------------------------------------------------------------------


def compare_pictures(runs: Sequence[Run], *, names: Sequence[str] | None = None) -> Drawn:
    """A row for each run: the original and what each activation made of it; `names` are those that are shown."""
    fits = [{fit.label: fit for fit in run.with_predictions()} for run in runs]
    every = dict.fromkeys(label for row in fits for label in row)
    chosen = [
        label for label in every if names is None or any(label in row and row[label].name in names for row in fits)
    ]
    if not chosen:
        wanted = "" if names is None else f" of {', '.join(names)}"
        raise DataError(f"{', '.join(repr(run.url) for run in runs)}: no predictions{wanted} were kept to show.")
    side, edge = 1.9 if len(chosen) < _COLUMNS else _SIDE, 0.3
    row = side + _WORDS
    sheet = Page(edge + (len(chosen) + 1) * (side + _GAP), _TITLE + len(runs) * row + _FOOT)
    sheet.write(edge + side / 2, 0.08, "original" if _is_picture(runs[0]) else "target", size=9)
    for line, run in enumerate(runs):
        look, top = look_of(run), _TITLE + line * row
        sheet.write(0.17, top + side / 2, run.data, size=9, angle=270, baseline="middle")
        _image(sheet, edge, top, _laid_out(run, run.examples.test_y), look, side=side)
        for column, label in enumerate(chosen, start=1):
            left, fit = edge + column * (side + _GAP), fits[line].get(label)
            picture = None if fit is None else fitted(fit, look.measure)
            if fit is None or picture is None:
                _absent(sheet, left, top, side, "not trained" if fit is None else "every seed diverged")
                continue
            _image(sheet, left, top, picture[0], look, side=side)
            _scores(sheet, left + side / 2, top + side, fit, picture[1])
    for column, label in enumerate(chosen, start=1):
        title = next(row[label].title for row in fits if label in row)
        sheet.write(edge + column * (side + _GAP) + side / 2, 0.08, title, size=9)
    sheet.footnote(_footnote(runs[0], look_of(runs[0])), left=edge)
    named = ", ".join(run.data for run in runs)
    return Drawn(sheet.figure, f"{named}: originals and fits side by side. {_footnote(runs[0], look_of(runs[0]))}")


def _is_picture(run: Run) -> bool:
    return run.examples.picture is not None


def _image(sheet: Page, left: float, top: float, values: Tensor, look: Look, *, side: float = _SIDE) -> None:
    sheet.image(left, top, side, side, coloured(values, look.colours, look.low, look.high))


def _absent(sheet: Page, left: float, top: float, side: float, why: str) -> None:
    sheet.box(left, top, side, side, color="#f3f2ee", stroke=SOFT, strokeWidth=0.5)
    sheet.write(left + side / 2, top + side / 2, why, size=7.5, colour=SOFT, baseline="middle")


def _scores(sheet: Page, middle: float, top: float, fit: Fit, place: int) -> None:
    """The means over seeds beneath a picture, and which seed the picture is of."""
    sheet.write(middle, top + 0.05, words_of(fit, place), size=7.5)
    sheet.write(middle, top + 0.19, f"seed {fit.number(place)}", size=6.5, colour=SOFT)


def _footnote(run: Run, look: Look) -> str:
    sides = "" if _is_picture(run) else " The first input runs to the right, the second upwards."
    count = run.recipe.seeds.count
    scores = f"PSNR and SSIM are means over {count} seeds." if _is_picture(run) else "The MSE is its own."
    return seeds_note(run, look.measure) + ("" if count == 1 else f". {scores}") + sides


_PLANE_SIDE, _PLANE_GAP, _PLANE_TITLE, _PLANE_FOOT, _LEGEND = 1.95, 0.12, 0.42, 0.3, 0.26  # inches
_POINTS = 320  # of the grid along each side
_LIGHT = 0.62  # how much white is in the colour of a region


def is_plane(run: Run) -> bool:
    """Whether a run tells classes apart by two numbers, and there are colours for them."""
    examples = run.examples
    return examples.task == "classification" and examples.input_shape == (2,) and examples.classes <= len(COLOURS)


def bounds_of(run: Run) -> tuple[float, float, float, float]:
    """Left, right, bottom and top: all test points, and a little more."""
    x = run.examples.test_x.double()
    low, high = x.amin(dim=0), x.amax(dim=0)
    room = 0.08 * (high - low)
    (left, bottom), (right, top) = (low - room).tolist(), (high + room).tolist()
    return left, right, bottom, top


@torch.inference_mode()
def classes_at(fit: Fit, place: int, x: Tensor) -> Tensor:
    """The class that the kept model of a seed gives to each row of x."""
    outputs: Any = fit.model(place)(x.float())
    return (outputs[:, 0] > 0).long() if outputs.shape[1] == 1 else outputs.argmax(dim=1)


def decided(fit: Fit, place: int, *, points: int = _POINTS) -> Tensor:
    """The class at every place of a grid, the first row at the top."""
    left, right, bottom, top = bounds_of(fit.run)
    across = torch.linspace(left, right, points, dtype=torch.float64)
    upright = torch.linspace(top, bottom, points, dtype=torch.float64)
    rows, columns = torch.meshgrid(upright, across, indexing="ij")
    return classes_at(fit, place, torch.stack([columns.flatten(), rows.flatten()], dim=1)).reshape(points, points)


def regions(run: Run, *, names: Sequence[str] | None = None) -> Drawn:
    """A panel for each activation: the regions of the median seed by accuracy, the test points, and those it missed.

    names: the activations that are shown; all if it is left out.
    """
    usable = [fit for fit in run.with_models() if any(value is not None for value in fit.each("accuracy"))]
    fits = [fit for fit in usable if names is None or fit.name in names]
    if not fits:
        raise DataError(f"'{run.url}' kept no models, so that no regions can be drawn; train with keep: [models].")
    columns = len(fits) if len(fits) < 5 else _columns(len(fits), (5, 4, 3))
    tall = math.ceil(len(fits) / columns) * (_PLANE_SIDE + _PLANE_TITLE)
    sheet = Page(_PLANE_GAP + columns * (_PLANE_SIDE + _PLANE_GAP), tall + _LEGEND + _PLANE_FOOT)
    for index, fit in enumerate(fits):
        left = _PLANE_GAP + index % columns * (_PLANE_SIDE + _PLANE_GAP)
        _panel(sheet, left, index // columns * (_PLANE_SIDE + _PLANE_TITLE), fit)
    entries = [(f"class {label}", _mark(kind, size=40)) for kind, label in enumerate(run.examples.labels)]
    left = 0.2
    for words, look in (*entries, ("missed", {**_mark(0, wrong=True, size=40), "fill": "white"})):
        sheet.points([{"x": left, "y": tall + 0.16}], **look)
        sheet.write(left + 0.1, tall + 0.16, words, size=7.5, align="left", baseline="middle")
        left += 0.32 + 0.07 * len(words)
    count = run.recipe.seeds.count
    note = f"Shown is the seed with the median accuracy; above each panel the mean over {count} seeds."
    note = seeds_note(run) if count == 1 else note
    sheet.footnote(note)
    words = f"{run.data}: the class that a network gives to every place, with the test points"
    return Drawn(sheet.figure, f"{words}; a black rim is a point that it misses. {note}")


def _columns(panels: int, counts: Sequence[int]) -> int:
    """As few empty places in the last row as can be, and rather wide than tall."""
    return min(counts, key=lambda many: -panels % many)


def _panel(sheet: Page, left: float, top: float, fit: Fit) -> None:
    place = fit.seed("accuracy")
    mean, own = mean_of(fit.each("accuracy")), fit.each("accuracy")[place]
    title = f"{fit.diverged} seeds diverged" if mean is None else f"{100 * mean:.1f} %"
    sheet.write(left, top + 0.1, fit.title, size=9.5, align="left", weight="bold")
    sheet.write(left + _PLANE_SIDE, top + 0.1, title, size=9.5, align="right")
    seed = f"seed {fit.number(place)}: {100 * (own or 0.0):.1f} %"
    sheet.write(left, top + 0.27, seed, size=7, colour=SOFT, align="left")
    examples, top = fit.run.examples, top + _PLANE_TITLE
    colours = torch.tensor([rgb(colour) for colour in COLOURS[: examples.classes]]) * (1 - _LIGHT) + _LIGHT
    sheet.image(left, top, _PLANE_SIDE, _PLANE_SIDE, colours[decided(fit, place)])
    missed = classes_at(fit, place, examples.test_x) != examples.test_y
    low_x, high_x, low_y, high_y = bounds_of(fit.run)
    for kind in range(examples.classes):
        for wrong in (False, True):
            rows = [
                {
                    "x": left + _PLANE_SIDE * (x - low_x) / (high_x - low_x),
                    "y": top + _PLANE_SIDE * (high_y - y) / (high_y - low_y),
                }
                for x, y in examples.test_x[(examples.test_y == kind) & (missed == wrong)].tolist()
            ]
            sheet.points(rows, **_mark(kind, wrong=wrong, size=30 if wrong else 20))


def _mark(kind: int, *, wrong: bool = False, size: float = 20) -> dict[str, Any]:
    rim = {"stroke": INK, "strokeWidth": 1.2} if wrong else {"stroke": "white", "strokeWidth": 0.4}
    return {"shape": outline(MARKS[kind]), "fill": COLOURS[kind], "size": size, **rim}


# -- what every SQUAF of a network learned ------------------------------------------------------------------

_SHAPE_COLUMNS, _SHAPE_TALL = 4, 168  # panels in a row; pixels
_SHAPE_POINTS, _SEEN = 1201, 4096
_MOST_SEEDS = 12  # thin lines of other seeds
_MANY_POINTS = 33  # more than that, and a panel is drawn wide
_SHAPE_LOOKS: dict[str, tuple[str, list[int]]] = {
    "start": (INK, [5, 3]),
    "learned": (COLOURS[1], [1, 0]),
    "other seeds": (COLOURS[0], [1, 0]),
    "pre-activations": ("#c9c8c2", [1, 0]),
}


@dataclass(frozen=True)
class Site:
    """One layer: its function over x at the start and after training, of the median seed and of others; the points of
    its grid and its values there; and which share of pre-activations falls between two edges (empty where not known).
    """

    path: str
    x: Tensor
    start: Tensor
    end: Tensor
    others: tuple[Tensor, ...]
    points: Tensor
    at_points: Tensor
    edges: Tensor
    shares: Tensor


def learned_fits(run: Run) -> list[Fit]:
    """The fits of a run whose SQUAFs were trained and can be drawn."""
    return [
        fit
        for fit in run.fits
        if fit.name == "squaf"
        and fit.outcome.trial.activation.learn
        and fit.outcome.trial.activation.per == "layer"
        and (fit.weights or fit.outcome.parameters)
        and any(epoch is None for epoch in fit.outcome.diverged)
    ]


@torch.inference_mode()
def sites_of(fit: Fit, measure: str) -> list[Site]:
    """Every SQUAF of a fit in order of depth, of the median seed by a test score."""
    chosen = fit.seed(measure)
    alive = [place for place, epoch in enumerate(fit.outcome.diverged) if epoch is None and place != chosen]
    before, after = _squafs(fit.model(chosen, trained=False)), _after(fit, chosen)
    others = [_after(fit, place) for place in alive[: _MOST_SEEDS - 1]]
    inputs: dict[str, Tensor] = {}
    if fit.weights and fit.outcome.trial.model.build != "alone":  # there, what comes in is the data itself
        model: Any = fit.model(chosen)
        for path, module in _squafs(model).items():
            note = lambda _, args, path=path: inputs.__setitem__(path, args[0].flatten())  # noqa: E731
            module.register_forward_pre_hook(note)
        x = fit.run.examples.train_x
        model(x[:: max(1, len(x) // _SEEN)])
    sites = []
    for path, module in after.items():
        # To the last point and half a step beyond, where SQUAF is all but constant.
        grids = [_grid(squaf) for squaf in (module, before[path])]
        reach = max(float(grid.abs().max()) + float(grid.diff().max()) for grid in grids)
        x = torch.linspace(-reach, reach, _SHAPE_POINTS)
        edges, shares = torch.empty(0), torch.empty(0)
        if path in inputs:
            counts, edges = torch.histogram(inputs[path].float().cpu(), bins=60, range=(-reach, reach))
            shares = counts / inputs[path].numel()
        sites.append(
            Site(
                path=path,
                x=x,
                start=before[path](x),
                end=module(x),
                others=tuple(other[path](x) for other in others),
                points=grids[0],
                at_points=module(grids[0]),
                edges=edges,
                shares=shares,
            )
        )
    return sites


def _squafs(model: nn.Module) -> dict[str, SQUAF]:
    return {path: module for path, module in activation_modules(model).items() if isinstance(module, SQUAF)}


def _after(fit: Fit, place: int) -> dict[str, SQUAF]:
    """The trained SQUAFs of a seed: from its kept model, or from the ends that the record has."""
    if fit.weights:
        return _squafs(fit.model(place))
    modules = _squafs(fit.model(place, trained=False))
    for path, module in modules.items():
        for p in module.params:
            name = f"{path}.{p.name}" if path else p.name
            value = module.effective(p).detach().double()
            width = value.shape[-1] if value.dim() and p.name in ("z", "grid") else 1
            names = [name] if width == 1 else [f"{name}[{entry}]" for entry in range(width)]
            ends = [
                fit.outcome.parameters[name]["end"][place] if name in fit.outcome.parameters else None for name in names
            ]
            if any(end is not None for end in ends):
                flat = value.flatten()
                new = [float(flat[entry]) if end is None else end for entry, end in enumerate(ends)]
                with torch.no_grad():
                    module._write(p, torch.tensor(new, dtype=torch.float64).reshape(value.shape))
    return modules


def _grid(module: SQUAF) -> Tensor:
    if module.k is None:
        return module.grid.detach().flatten()
    return torch.arange(-module.k, module.k + 1) * module.q.detach().float().cpu().reshape(())


def shapes(run: Run, *, measure: str) -> Drawn:
    """A panel for each layer of each trained SQUAF."""
    fits = learned_fits(run)
    if not fits:
        raise DataError(f"'{run.url}' has no SQUAF with learned parameters to draw.")
    panels: list[tuple[str, Site]] = []
    most = 0
    for fit in fits:
        sites = sites_of(fit, measure)
        most, many = max(most, len(sites)), len(sites) > 1
        for depth, site in enumerate(sites, start=1):
            parts = [fit.title] * (len(fits) > 1 or not many) + [f"layer {depth}"] * many
            panels.append((", ".join(parts), site))
    fine = any(len(site.points) > _MANY_POINTS for _, site in panels)
    columns = min(2, len(panels)) if fine else min(_SHAPE_COLUMNS, most)
    wide = max(400 if fine else 200, 440 // columns)  # the legend needs as much
    names = ["start", "learned"] + ["other seeds"] * any(site.others for _, site in panels)
    names += ["pre-activations"] * any(len(site.shares) for _, site in panels)
    seeds = dict.fromkeys(fit.number(fit.seed(measure)) for fit in fits)
    which = f" (seed {next(iter(seeds))})" if len(seeds) == 1 else ""
    figure = {
        "concat": [sized(_shape_panel(title, site, names), wide, _SHAPE_TALL) for title, site in panels],
        "columns": columns,
        "resolve": {"scale": {"color": "shared", "strokeDash": "shared"}},
        "title": footnote(f"In colour the seed with the median {written(measure)}{which}."),
    }
    words = "SQUAF of every layer before and after training; dots are the points of its grid"
    return Drawn(figure, f"{run.data}: {words}.")


def _shape_panel(title: str, site: Site, names: Sequence[str]) -> Chart:
    heights = torch.cat([site.start, site.end, *site.others])
    low, high = float(heights.min()), float(heights.max())
    room = 0.08 * ((high - low) or 1.0)
    floor = low - (3 * room if len(site.shares) else room)
    x = number("x", domain=(float(site.x[0]), float(site.x[-1])), axis={"tickCount": 5})
    y = number("y", domain=(floor, high + room), axis={"tickCount": 5})
    fine = len(site.points) > _MANY_POINTS
    where = {"x": x, "y": y, **line_styles({name: _SHAPE_LOOKS[name] for name in names}, orient="top")}
    tallest = float(site.shares.max()) or 1.0 if len(site.shares) else 1.0
    bars = [
        {"name": "pre-activations", "x": a, "to": b, "y": floor, "top": floor + 3.5 * room * share / tallest}
        for a, b, share in zip(site.edges.tolist(), site.edges.tolist()[1:], site.shares.tolist(), strict=False)
    ]
    bar_sides = {"x": x, "x2": {"field": "to"}, "y": y, "y2": {"field": "top"}, "color": where["color"]}
    layers = [marks("rect", bars, bar_sides)] if bars else []

    def drawn(kind: str, name: str, xs: Tensor, ys: Tensor, **look: Any) -> Chart:
        return marks(kind, points(xs.tolist(), ys.tolist(), name=name), where, **look)

    layers += [
        drawn("line", "other seeds", site.x[::3], other[::3], strokeWidth=0.7, opacity=0.4) for other in site.others
    ]
    layers += [
        drawn("line", "start", site.x, site.start, strokeWidth=0.8 if fine else 1.5),
        drawn("line", "learned", site.x, site.end, strokeWidth=1.6 if fine else 2.2),
        drawn("circle", "learned", site.points, site.at_points, size=10 if fine else 20, opacity=1),
    ]
    return {"title": {"text": title, "fontSize": 11.5}, "layer": layers}


def tables_of(run: Run) -> str:
    """Every number of the paper and ours, in Markdown, with notes on what is missing."""
    summary = summarise(run.recipe, [fit.outcome for fit in run.fits])
    if run.recipe.paper is None or not summary.paper_tables:
        raise DataError(f"The recipe of '{run.url}' names no numbers of a paper ('paper:'), so that there is no table.")
    parts = [f"### {escape_markdown(run.recipe.title or run.name)}"]
    parts.append("\n".join(f"- {escape_markdown(words)}" for words in paper_sentences(summary)))
    parts += [table.markdown(DENSE, links=False).rstrip() for table in paper_tables(summary)]
    parts.append(escape_markdown(paper_note(summary)))
    parts += [f"> {escape_markdown(note)}" for note in run.notes]
    return "\n\n".join(part for part in parts if part)


_FEW = 5  # fits that a figure of chosen ones is not needed for
_MOST_SHAPES = 4  # trained SQUAFs of one run whose layers are drawn


@dataclass(frozen=True)
class Written:
    """The files in the order they were written, what each figure shows by its name, and what could not be drawn."""

    files: tuple[Path, ...]
    captions: dict[str, str]
    notes: tuple[str, ...]


def draw_runs(runs: Sequence[Run]) -> tuple[dict[str, Drawn], tuple[str, ...]]:
    """Every figure by name, and sentences about what is missing."""
    figures: dict[str, Drawn] = {}
    notes: list[str] = []

    def add(name: str, make: Callable[[], Drawn]) -> None:
        try:
            figures[name] = make()
        except DataError as error:
            notes.append(str(error))

    every_run, runs = runs, [run for run in runs if _has_examples(run, notes)]
    names = [run.name for run in runs]
    for place, run in enumerate(runs):
        # Two studies of one name are numbered in their order.
        before = names[:place].count(run.name)
        _draw_run(run, f"{run.name}-{before + 1}" if before else run.name, add, notes)
    pictures = [run for run in runs if _kind(run) == "picture" and grid_of(run) is None]
    if len(pictures) > 1:
        add("pictures", lambda: compare_pictures(pictures, names=PAPER))
        add("pictures-all", lambda: compare_pictures(pictures))
    for data in dict.fromkeys(run.data for run in runs if _kind(run) == "curve"):
        same = [run for run in runs if run.data == data and _kind(run) == "curve"]
        many, name = sum(len(run.fits) for run in same) > _FEW, f"{Path(data).stem}-curves"
        add(name, lambda same=same, many=many: curves(same, names=CHOSEN if many else None))
        if many:
            add(f"{name}-all", lambda same=same: curves(same))
    every = dict.fromkeys((*(note for run in every_run for note in run.notes), *notes))
    return figures, tuple(every)


def _has_examples(run: Run, notes: list[str]) -> bool:
    try:
        return bool(run.examples)
    except SoftkneeError as error:
        notes.append(f"'{run.url}' is not drawn. {error}")
        return False


def _draw_run(run: Run, name: str, add: Callable[[str, Callable[[], Drawn]], None], notes: list[str]) -> None:
    kind = _kind(run)
    grid = grid_of(run)
    if grid is not None:
        add(f"{name}-grid", lambda: heat_map(run))
    elif kind in ("picture", "field"):
        add(f"{name}-fits", lambda: gallery(run))
    elif kind == "plane":
        add(f"{name}-regions", lambda: regions(run))
        if len(run.fits) > _FEW:
            add(f"{name}-regions-paper", lambda: regions(run, names=PAPER))
    elif kind == "":
        notes.append(
            f"'{run.url}' is about {run.data}, which has no picture of its own: pictures, functions of one or two "
            "inputs and classes in a plane have."
        )
    if grid is None and 0 < len(learned_fits(run)) <= _MOST_SHAPES:
        add(f"{name}-squaf", lambda: shapes(run, measure=_measure(run)))


def _kind(run: Run) -> str:
    if run.examples.picture is not None:
        return "picture"
    if is_curve(run):
        return "curve"
    return "field" if shape_of(run) else "plane" if is_plane(run) else ""


def _measure(run: Run) -> str:
    if run.examples.picture is not None:
        return "psnr"
    return "mse" if run.examples.task == "regression" else "accuracy"


def write_figures(figures: dict[str, Drawn], folder: str | os.PathLike[str]) -> list[Path]:
    """Each figure as NAME.png, and as NAME.svg where that stays small."""
    place = make_folder(folder, what="figures")
    written = []
    for name, drawn in figures.items():
        written.append(write_whole(place / f"{name}.png", png_of(drawn.figure), what="figure"))
        if (vector := svg_bytes(drawn.figure)) is not None:
            written.append(write_whole(place / f"{name}.svg", vector, what="figure"))
    return written


def write_fits(runs: Sequence[Run], folder: str | os.PathLike[str]) -> Written:
    """Draw all that these runs have something for, and write it into a folder."""
    figures, notes = draw_runs(runs)
    files = write_figures(figures, folder)
    return Written(tuple(files), {name: figure.caption for name, figure in figures.items()}, notes)


def default_place(run: Run) -> Path:
    """Where the figures go by default: the folder 'fits' of the study."""
    if not Path(run.url).is_dir():
        raise ParameterError(f"'{run.url}' is no folder of this machine; say with --out where the figures go.")
    return Path(run.url) / "fits"


def write_theorem(path: str | os.PathLike[str]) -> Path:
    """Draw the approximation theorem into a .png or .svg file."""
    check_ending(path)
    return write_figure(theorem_figure().figure, path, label="fitted functions")
