"""The output of a random network over two inputs: figures 2 and 5 to 7 of the SmeLU paper, and any setting."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.functional import avg_pool2d, grid_sample, interpolate

from ..errors import ParameterError, did_you_mean
from ..files import write_whole
from ..measure.record import Quantity, Record
from ..nn.row_norm import row_norm
from ..registry import resolve
from ..surgery.activation_text import module_of
from ..surgery.clipping import clip_activations_
from . import chart
from .chart import INK, SOFT, Chart, Page, coloured, rgb
from .data.files import numpy
from .figures import sign


def named(activation: str) -> str:
    """An activation for readers, with its parameters as letters.

    >>> named("smelu(beta=0.5)"), named("linear")
    ('smelu, β = 0.5', 'no activation')
    """
    if activation == LINEAR:
        return "no activation"
    values = resolve(activation).values
    parts = [f"{sign(key)} = {value:g}" for key, value in values.items() if isinstance(value, int | float)]
    name = activation.partition("(")[0] if parts else activation
    return ", ".join([name.replace("_", " "), *parts])


def titles(rows: Rows) -> tuple[str, list[str], list[list[str]]]:
    """What all surfaces have in common, what those of each row share besides, and what each has alone."""

    def parts(setting: Setting) -> tuple[str, str, str]:
        norm = "no norm" if setting.norm == "none" else f"{setting.norm} norm, v = {setting.v:g}"
        clip = "no clipping" if setting.clip is None else f"clipped at {setting.clip:g}"
        return named(setting.activation), norm, clip

    texts = [[parts(setting) for setting in row] for row in rows]
    several = len(rows) > 1 or len(rows[0]) > 1
    common = [part for part in range(3) if several and len({text[part] for row in texts for text in row}) == 1]
    rest = [part for part in range(3) if part not in common]
    labels, own = [], []
    for row in texts:
        # A row of one surface says everything above it.
        same = [part for part in rest if len({text[part] for text in row}) == 1] if min(len(rows), len(row)) > 1 else []
        labels.append("\n".join(row[0][part] for part in same))
        own.append([", ".join(text[part] for part in rest if part not in same) for text in row])
    return ", ".join(texts[0][0][part] for part in common), labels, own


def check_choice(name: str, known: Sequence[str], what: str) -> None:
    """Refuse an unknown name."""
    if name not in known:
        near = did_you_mean(name, known) or f" Known are {', '.join(known)}."
        raise ParameterError(f"There is no {what} called {name!r}.{near}")


WIDTHS = (256, 128, 64, 32, 16)
REACH = 6.0
LINEAR = "linear"
NORMS = ("weight", "layer", "none")
DTYPES = {"f32": torch.float32, "f64": torch.float64}
_CHUNK = 1024  # points at a time: their 256 neurons stay in the cache


@dataclass(frozen=True)
class Setting:
    """What one surface is of.

    activation: its text, as `sk.surgery.module_of` reads it, or "linear" for none.
    norm, v:    "weight", "layer" or "none", and the norm's value.
    clip:       where activations are clipped; None for nowhere.

    >>> Setting("smelu(beta=0.5)", norm="weight", v=2.0)
    Setting(activation='smelu(beta=0.5)', norm='weight', v=2.0, clip=None)
    """

    activation: str
    norm: str = "weight"
    v: float = 1.0
    clip: float | None = None

    def __post_init__(self) -> None:
        check_choice(self.norm, NORMS, "norm")
        for name, value in (("v", self.v), ("clip", self.clip)):
            if value is not None and not 0 < value < math.inf:
                raise ParameterError(f"{name} must be a finite number above 0, and {value!r} was given.")
        if self.activation != LINEAR:
            resolve(self.activation)


def network(setting: Setting, *, seed: int, dtype: torch.dtype = torch.float64) -> nn.Sequential:
    """The network, its weights drawn from that seed."""
    drawn = torch.Generator().manual_seed(seed)
    layers: list[nn.Module] = []
    for depth, (incoming, outgoing) in enumerate(pairwise((2, *WIDTHS, 1))):
        linear = nn.Linear(incoming, outgoing, bias=False, dtype=torch.float64)
        nn.init.normal_(linear.weight, generator=drawn)
        layers.append(linear)
        if depth == len(WIDTHS):
            break
        if setting.norm == "layer":
            layers.append(nn.LayerNorm(outgoing, dtype=torch.float64))
            nn.init.constant_(layers[-1].get_parameter("weight"), setting.v)
        if setting.activation != LINEAR:
            layers.append(module_of(setting.activation))
        else:
            layers.append(nn.Identity() if setting.clip is None else nn.Hardtanh(-setting.clip, setting.clip))
    made = nn.Sequential(*layers).to(dtype).eval()
    if setting.norm == "weight":
        row_norm(made, v=setting.v)
    if setting.clip is not None and setting.activation != LINEAR:
        clip_activations_(made, limit=setting.clip)
    return made


def axis(points: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """The coordinates of the grid along either input."""
    return torch.linspace(-REACH, REACH, points, dtype=torch.float64).to(dtype)


@torch.inference_mode()
def heights(setting: Setting, *, seed: int, points: int = 121, dtype: torch.dtype = torch.float64) -> Tensor:
    """The output over the grid, [points, points]; the first index is that of the first input.

    >>> heights(Setting("relu"), seed=0, points=5).shape
    torch.Size([5, 5])
    """
    if points < 3:
        raise ParameterError(f"A surface needs at least 3 points along each input, and {points} were given.")
    made: Any = network(setting, seed=seed, dtype=dtype)
    along = axis(points, dtype)
    x = torch.cartesian_prod(along, along)
    return torch.cat([made(part) for part in x.split(_CHUNK)]).view(points, points)


Rows = Sequence[Sequence[Setting]]
MOST_COLUMNS = 6


def split_texts(text: str) -> tuple[str, ...]:
    """Activations with commas between; commas in parentheses are their own.

    >>> split_texts("relu, selu(lam=1, beta=2)")
    ('relu', 'selu(lam=1, beta=2)')
    """
    parts = re.split(r",(?![^(]*\))", text)
    return tuple(part.strip() for part in parts if part.strip())


def rows_of(
    activations: Sequence[str],
    *,
    norms: Sequence[str] = ("weight",),
    vs: Sequence[float] = (1.0,),
    clips: Sequence[float | None] = (None,),
) -> Rows:
    """A row for each norm, value and clipping, a column for each activation; a single row is folded where it is long.

    >>> [len(row) for row in rows_of(["relu", "smelu", "gelu", "swish"])], len(rows_of(["relu"], vs=(0.5, 1.0)))
    ([2, 2], 2)
    """
    if not activations:
        raise ParameterError("There is nothing to draw: name at least one activation.")
    rows = [
        tuple(Setting(text, norm=norm, v=v, clip=clip) for text in activations)
        for norm in norms
        for v in (vs if norm != "none" else vs[:1])
        for clip in clips
    ]
    if len(rows) > 1 and len(activations) > MOST_COLUMNS:
        raise ParameterError(
            f"{len(activations)} activations in each of {len(rows)} rows are too many for one figure; leave the "
            f"rows at one (one norm, one v, one clip), or draw at most {MOST_COLUMNS} activations."
        )
    if len(rows) > 1 or len(activations) < 4:
        return tuple(rows)
    lines = -(-len(activations) // 4) if len(activations) > 6 else 2
    wide = -(-len(activations) // lines)
    return tuple(rows[0][first : first + wide] for first in range(0, len(activations), wide))


def _along(name: str, *values: float, parameter: str = "beta") -> list[str]:
    return [f"{name}({parameter}={value:g})" for value in values]


_SMELU = _along("smelu", 0.5, 1, 2, 4)
_NORMS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


def _by_v(activation: str, norm: str, vs: Sequence[float]) -> tuple[Setting, ...]:
    return tuple(Setting(activation, norm=norm, v=v) for v in vs)


# The figures' axes and rows are the paper's; the values of beta and v are ours, for its text does not name them.
PAPER: dict[int, Rows] = {
    2: (
        tuple(Setting(text) for text in ("relu", *_SMELU, LINEAR)),
        _by_v("smelu(beta=0.5)", "weight", _NORMS),
    ),
    5: rows_of(["relu", *_SMELU, LINEAR], norms=("weight", "none"), clips=(None, 6.0)),
    6: (
        tuple(Setting(text) for text in (*_along("swish", 0.5, 1, 4), *_along("softplus", 0.5, 1, 4))),
        tuple(Setting(text) for text in (*_along("gelu", 0.5, 1, 4), *_along("selu", 1, 2, 10))),
    ),
    7: (
        (*_by_v(LINEAR, "weight", (0.5, 1.0, 2.0)), *_by_v(LINEAR, "layer", (0.5, 1.0, 2.0))),
        (*_by_v("relu", "weight", (0.5, 1.0, 2.0)), *_by_v("relu", "layer", (0.5, 1.0, 2.0))),
        _by_v("smelu(beta=0.5)", "layer", _NORMS),
    ),
}


def paper_rows(figure: int) -> Rows:
    """The rows of that figure of the SmeLU paper."""
    if figure not in PAPER:
        known = ", ".join(map(str, PAPER))
        raise ParameterError(f"The surfaces of the paper are its figures {known}, and {figure} was given.")
    return PAPER[figure]


@dataclass(frozen=True)
class Roughness:
    """How rough a surface is; `compute` says in its record what kink, bending and extrema are."""

    kink: float
    bending: float
    extrema: int
    low: float
    high: float
    steepest: float


def roughness(surface: Tensor, *, step: float) -> Roughness:
    """Measure a surface [n, n] of grid step `step`.

    >>> import torch
    >>> x = torch.linspace(-1, 1, 5)
    >>> fold = roughness(x.abs().expand(5, 5), step=0.5)
    >>> fold.kink, fold.extrema, fold.steepest
    (2.0, 0, 1.0)
    """
    z = surface.double()
    slopes = [z.diff(dim=side) / step for side in (0, 1)]
    bend = torch.cat([slope.diff(dim=side).flatten() for side, slope in enumerate(slopes)])
    slope = torch.cat([slope.flatten() for slope in slopes])
    steepest = float(slope.abs().max())
    # An extremum is strictly above, or below, all eight neighbours; the rim has too few of them to be judged.
    around = F.unfold(z[None, None], 3)[0]
    others = torch.cat([around[:4], around[5:]])
    extrema = (around[4] > others.amax(0)) | (around[4] < others.amin(0))
    return Roughness(
        kink=0.0 if steepest == 0 else float(bend.abs().max()) / steepest,
        bending=0.0 if steepest == 0 else float(bend.square().mean().sqrt() / step / slope.square().mean().sqrt()),
        extrema=int(extrema.sum()),
        low=float(z.min()),
        high=float(z.max()),
        steepest=steepest,
    )


VIEWS = ("relief", "map")
_HAIR = "#d9d8d2"
_TURN, _TILT, _RISE = math.radians(35), math.radians(32), 8.0  # of the relief; its height, where the floor has side 12
_SIDE, _LABEL, _TITLE, _CAPTION = 2.35, 0.55, 0.42, 0.34  # inches
_FINE = 300  # pixels of a picture to the inch
_LEVELS = 13
_MOST_EXTREMA = 200  # more than that, and contours hide the picture


def draw(
    rows: Rows, surfaces: Sequence[Sequence[Tensor]], measures: Sequence[Sequence[Roughness]], *, view: str
) -> Chart:
    """A figure of the surfaces, [n, n] each, in these rows."""
    check_choice(view, VIEWS, "view")
    caption, labels, names = titles(rows)
    columns = max(len(row) for row in rows)
    left = _LABEL if any(labels) else 0.2
    side = _SIDE if columns > 2 else 3.2
    tall = side * (0.79 if view == "relief" else 1.0) + _TITLE
    sheet = Page(left + columns * side + 0.08, len(rows) * tall + _CAPTION)
    for line, row in enumerate(rows):
        top = line * tall
        sheet.write(0.2, top + tall / 2, labels[line], size=9, angle=270, baseline="middle")
        for column in range(len(row)):
            measured, start = measures[line][column], left + column * side
            heights = (surfaces[line][column] - measured.low) / ((measured.high - measured.low) or 1.0)
            (_relief if view == "relief" else _map)(sheet, (start, top + _TITLE, side), heights.float(), measured)
            note = f"kink {_short(measured.kink)}, bending {_short(measured.bending)}, extrema {measured.extrema}"
            sheet.write(start + side / 2, top + 0.09, names[line][column], size=9)
            sheet.write(start + side / 2, top + 0.27, note, size=6.5, colour=SOFT)
    sheet.write(
        0.12, sheet.tall - 0.1, f"{caption[:1].upper()}{caption[1:]}", colour=SOFT, align="left", baseline="bottom"
    )
    return sheet.figure


def _shaded(heights: Tensor) -> Tensor:
    """Colours [n, n, 3] of heights in [0, 1], lit from the left."""
    step = 2 * REACH / (heights.shape[0] - 1)
    first, second = torch.gradient(heights * _RISE, spacing=step)
    normal = torch.nn.functional.normalize(torch.stack([-first, -second, torch.ones_like(first)], dim=2), dim=2)
    light = torch.nn.functional.normalize(torch.tensor([-0.62, 0.18, 0.76]), dim=0)
    shade = (normal @ light).clamp(0, 1).unsqueeze(2)
    return (coloured(heights, "viridis") * (0.45 + 0.65 * shade) + 0.1 * shade**6).clamp(0, 1)


def _short(value: float) -> str:
    """Three digits, thousands as k, with the sign that typographers use."""
    if abs(value) < 1e-6:
        return "0"
    size = abs(value)
    text = f"{value:.3g}" if size < 999.5 else f"{value / 1000:.3g}k" if size < 999_500 else f"{value:.1e}"
    return text.replace("-", "−")


# -- the relief -------------------------------------------------------------------------------------------


def _seen(x: float, y: float, z: float) -> tuple[float, float]:
    """Where a point is seen, to the right and upwards; z in [0, 1]."""
    right = x * math.cos(_TURN) - y * math.sin(_TURN)
    away = x * math.sin(_TURN) + y * math.cos(_TURN)
    return right, away * math.sin(_TILT) + z * _RISE * math.cos(_TILT)


def _relief(sheet: Page, place: tuple[float, float, float], heights: Tensor, measured: Roughness) -> None:
    """The surface over its floor, the two inputs along the front edges, the heights beside the left corner."""
    edge = _seen(-REACH, REACH, 0.0)[0] - 1.5
    left, right = edge - 3.4, _seen(REACH, -REACH, 0.0)[0] + 0.9
    bottom, top = _seen(-REACH, -REACH, 0.0)[1] - 1.3, _seen(REACH, REACH, 1.0)[1]
    inch = place[2] / (right - left)

    def at(seen: tuple[float, float]) -> tuple[float, float]:
        return place[0] + (seen[0] - left) * inch, place[1] + (top - seen[1]) * inch

    for value in (-REACH, -REACH / 2, 0.0, REACH / 2, REACH):
        sheet.line([at(_seen(value, -REACH, 0.0)), at(_seen(value, REACH, 0.0))], color=_HAIR, strokeWidth=0.8)
        sheet.line([at(_seen(-REACH, value, 0.0)), at(_seen(REACH, value, 0.0))], color=_HAIR, strokeWidth=0.8)
    picture = _painted(heights, (left, right, bottom, top), round(_FINE * place[2]))
    sheet.image(place[0], place[1], place[2], (top - bottom) * inch, picture, framed=False)
    for value in (-REACH, 0.0, REACH):
        for seen, name in ((_seen(value, -REACH - 1.2, 0.0), "x₁"), (_seen(-REACH - 1.2, value, 0.0), "x₂")):
            sheet.write(*at(seen), name if value == 0 else _short(value), size=6.5, colour=SOFT, baseline="middle")
    ends = _seen(-REACH, REACH, 0.0)[1], _seen(-REACH, REACH, 1.0)[1]
    sheet.line([at((edge, ends[0])), at((edge, ends[1]))], color=SOFT, strokeWidth=1)
    for height, value in zip(ends, (measured.low, measured.high), strict=True):
        sheet.line([at((edge - 0.2, height)), at((edge, height))], color=SOFT, strokeWidth=1)
        text = at((edge - 0.35, height))
        sheet.write(*text, _short(value), size=6.5, colour=SOFT, align="right", baseline="middle")


def _painted(heights: Tensor, view: tuple[float, float, float, float], columns: int) -> Tensor:
    """The relief as pixels [rows, columns, 4]: in each column of the picture the surface is followed from the front to
    the back, and a pixel shows what first rises to it. Twice as fine, and averaged.
    """
    left, right, bottom, top = view
    rows = round(columns * (top - bottom) / (right - left))
    across = torch.linspace(left, right, 2 * columns)
    upright = torch.linspace(top, bottom, 2 * rows)
    far = math.hypot(REACH, REACH)
    away = torch.linspace(-far, far, 4 * columns)
    x = across[:, None] * math.cos(_TURN) + away * math.sin(_TURN)
    y = away * math.cos(_TURN) - across[:, None] * math.sin(_TURN)
    inside = (x.abs() <= REACH) & (y.abs() <= REACH)
    z = _sampled(heights.unsqueeze(2), x, y)[..., 0]
    rises = torch.where(inside, away * math.sin(_TILT) + z * _RISE * math.cos(_TILT), -math.inf)
    highest, _ = rises.cummax(dim=1)
    first = torch.searchsorted(highest.contiguous(), upright.expand(2 * columns, -1).contiguous())
    nearest = rises.gather(1, inside.int().argmax(dim=1, keepdim=True))
    there = (first < len(away)) & (upright >= nearest) & inside.any(dim=1, keepdim=True)
    first = first.clamp(max=len(away) - 1)
    colours = _sampled(_shaded(heights), x.gather(1, first), y.gather(1, first))
    picture = torch.cat([colours * there.unsqueeze(2), there.unsqueeze(2)], dim=2).transpose(0, 1)
    coarse = avg_pool2d(picture.permute(2, 0, 1), 2).permute(1, 2, 0)
    return torch.cat([coarse[..., :3] / coarse[..., 3:].clamp_min(1e-6), coarse[..., 3:]], dim=2)


def _sampled(grid: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Values [..., c] of a grid [n, n, c] over the floor, at these places."""
    places = torch.stack([y, x], dim=-1).unsqueeze(0) / REACH
    values = grid_sample(grid.permute(2, 0, 1).unsqueeze(0), places, padding_mode="border", align_corners=True)
    return values[0].permute(1, 2, 0)


# -- the map ----------------------------------------------------------------------------------------------


def _map(sheet: Page, place: tuple[float, float, float], heights: Tensor, measured: Roughness) -> None:
    """The surface from above, the first input to the right and the second upwards."""
    inch = place[2] / (2 * REACH + 1.6)
    left, top, side = place[0] + 1.1 * inch, place[1] + 0.3 * inch, 2 * REACH * inch
    pixels = round(_FINE * side)

    def upwards(values: Tensor) -> Tensor:
        wide = interpolate(
            values.permute(2, 1, 0).unsqueeze(0), size=(pixels, pixels), mode="bilinear", align_corners=True
        )
        return wide[0].permute(1, 2, 0).flip(0)

    picture = upwards(_shaded(heights))
    if measured.high > measured.low and measured.extrema < _MOST_EXTREMA:
        levels = (upwards(heights.unsqueeze(2))[..., 0] * _LEVELS).floor()
        edges = torch.zeros_like(levels, dtype=torch.bool)
        for half in (slice(1, None), slice(None, -1)):
            edges[:, half] |= levels.diff(dim=1) != 0
            edges[half] |= levels.diff(dim=0) != 0
        picture = torch.where(edges.unsqueeze(2), 0.6 * picture + 0.4 * torch.tensor(rgb(INK)), picture)
    sheet.image(left, top, side, side, picture, framed=False)
    for value in (-REACH, 0.0, REACH):
        along = (value + REACH) * inch
        words = "x₁" if value == 0 else _short(value), "x₂" if value == 0 else _short(value)
        sheet.write(left + along, top + side + 0.25 * inch, words[0], size=6.5, colour=SOFT)
        where = left - 0.25 * inch, top + side - along
        sheet.write(*where, words[1], size=6.5, colour=SOFT, align="right", baseline="middle")


ENDINGS = (".png", ".svg", ".pdf")
_UNITS = {"kink": "of the steepest slope", "bending": "1/input", "extrema": "points"}
_UNITS |= dict.fromkeys(("low", "high", "steepest"), "output")


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
    report: Callable[[str], object] = lambda _: None,
) -> Surfaces:
    """Compute and measure surfaces.

    Args:
        rows: of settings, as `rows_of` and `paper_rows` give them.
        seed: draws the weights of the network that is drawn.
        networks: how many are measured, with the seeds from `seed` on; medians and quartiles go into the record.
        points: of the grid along each input.
        dtype: "f64" or "f32".
        report: called with the name of each surface before it is computed.

    >>> surfaces = compute(((Setting("relu"), Setting("smelu(beta=2)")),), points=25)
    >>> rough, smooth = surfaces.measures[0]
    >>> rough.kink > 5 * smooth.kink
    True
    """
    if dtype not in DTYPES:
        raise ParameterError(f"dtype must be f64 or f32, and {dtype!r} was given.")
    if networks < 1 or seed < 0:
        raise ParameterError("There must be at least one network, and a seed of at least 0.")
    step = 2 * REACH / (points - 1) if points > 1 else 0.0
    first, measures, entries = [], [], []
    for row in rows:
        drawn: list[tuple[Tensor, Roughness]] = []
        for setting in row:
            report(setting.activation)
            each = [
                heights(setting, seed=seed + index, points=points, dtype=DTYPES[dtype]) for index in range(networks)
            ]
            if not all(bool(value.isfinite().all()) for value in each):
                raise ParameterError(f"The surface of {setting} is not finite in {dtype}; take a smaller v, or f64.")
            measured = [roughness(value, step=step) for value in each]
            drawn.append((each[0], measured[0]))
            medians = {
                name: Quantity.median([getattr(surface, name) for surface in measured], unit=unit)
                for name, unit in _UNITS.items()
            }
            entries.append(asdict(setting) | medians)
        first.append(tuple(surface for surface, _ in drawn))
        measures.append(tuple(surface for _, surface in drawn))
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
    return Surfaces(rows, tuple(first), tuple(measures), record)


def write_figure(surfaces: Surfaces, path: str | PathLike[str], *, view: str = "relief", dpi: int = 160) -> Path:
    """Draw the surfaces into a .png, .svg or .pdf file, with `dpi` pixels to the inch."""
    figure = draw(surfaces.rows, surfaces.heights, surfaces.measures, view=view)
    return chart.write_figure(figure, path, label="surfaces", endings=ENDINGS, scale=dpi / 96)


def check_archive(path: str | PathLike[str]) -> None:
    """Refuse another ending than .npz."""
    if Path(path).suffix.lower() != ".npz":
        raise ParameterError(f"The numbers are written as .npz, and {Path(path).name!r} has another ending.")


def write_numbers(surfaces: Surfaces, path: str | PathLike[str]) -> Path:
    """The heights as a NumPy archive: `axis`, `settings` (texts) and `heights` [surfaces, n, n], as in the figure."""
    np = numpy()
    check_archive(path)
    flat = [surface for row in surfaces.heights for surface in row]
    settings = [setting for row in surfaces.rows for setting in row]
    names = [f"{each.activation} norm={each.norm} v={each.v:g} clip={each.clip}" for each in settings]
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        axis=axis(flat[0].shape[0], flat[0].dtype).numpy(),
        settings=np.array(names),
        heights=np.stack([surface.numpy() for surface in flat]),
    )
    return write_whole(path, buffer.getvalue(), what="archive")
