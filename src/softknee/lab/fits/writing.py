"""All figures that run folders have something for, and their files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import DataError, ParameterError, SoftkneeError
from ...files import make_folder, write_whole
from ..chart import check_ending, png_of, write_figure
from ..report import summarise
from ..report.tables import paper_note, paper_sentences, paper_tables
from ..table import DENSE, escape_markdown
from .drawing import (
    CHOSEN,
    PAPER,
    Drawn,
    compare_pictures,
    curves,
    gallery,
    grid_of,
    heat_map,
    is_curve,
    is_plane,
    learned_fits,
    regions,
    shape_of,
    shapes,
    svg_bytes,
    theorem_figure,
)
from .runs import Run


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
