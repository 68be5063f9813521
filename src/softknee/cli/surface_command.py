"""What `softknee surface` does: surfaces are computed, measured, drawn and written."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import ParameterError
from .typed import RecordFile, command_line

if TYPE_CHECKING:
    from ..measure.record import Record

_ONLY = "relu,smelu(beta=0.5),smelu(beta=1),smelu(beta=2),gelu,linear"


def surface(
    only: Annotated[
        str, typer.Option(help="activations with commas between, such as 'relu,smelu(beta=0.5)'; linear for none")
    ] = "",
    norm: Annotated[str, typer.Option(help="weight, layer or none; several make a row each")] = "",
    v: Annotated[str, typer.Option("--v", help="the value of the norm; several make a row each")] = "",
    clip: Annotated[str, typer.Option(help="where activations are clipped, or none; several make a row each")] = "",
    paper: Annotated[int | None, typer.Option(help="a figure of the SmeLU paper instead: 2, 5, 6 or 7")] = None,
    seed: Annotated[int, typer.Option(min=0, help="draws the weights, the same for every surface")] = 0,
    networks: Annotated[
        int, typer.Option(min=1, help="how many to measure, from that seed on; the first is drawn")
    ] = 1,
    points: Annotated[int, typer.Option(min=3, help="of the grid along each input")] = 121,
    dtype: Annotated[str, typer.Option(help="f64 or f32")] = "f64",
    view: Annotated[str, typer.Option(help="relief, or map with contours")] = "relief",
    dpi: Annotated[int, typer.Option(min=20, max=1200, help="pixels to the inch")] = 160,
    out: Annotated[Path, typer.Option(help="the .png, .svg or .pdf to draw")] = Path("surface.png"),
    numbers: Annotated[Path | None, typer.Option(help="write the heights to this .npz file")] = None,
    json: RecordFile = None,
) -> None:
    """Draw and measure the output of a random network over two inputs, for several activations and norms."""
    from ..lab import surface as room
    from .screen import console_of, progress_line

    room.check_ending(out)
    room.check_view(view)
    if numbers is not None:
        room.check_archive(numbers)
    if paper is not None:
        if only or norm or v or clip:
            raise ParameterError("--paper says what is drawn: leave out --only, --norm, --v and --clip.")
        rows = room.paper_rows(paper)
    else:
        rows = room.rows_of(
            room.split_texts(only or _ONLY),
            norms=room.split_texts(norm or "weight"),
            vs=room.read_numbers("--v", v or "1"),
            clips=room.read_clips(clip or "none"),
        )
    command = command_line()
    with progress_line("surface:") as report:
        found = room.compute(
            rows, seed=seed, networks=networks, points=points, dtype=dtype, command=command, report=report
        )
        report("drawing")
        drawn = room.write_figure(found, out, view=view, dpi=dpi)
        if numbers is not None:
            room.write_numbers(found, numbers)
    if json is not None:
        found.record.write(json)
    _print_table(found.record)
    console_of().print(f"\nThe surfaces are in {drawn.name}.", markup=False)


def _print_table(record: "Record") -> None:
    """A line for each surface: what it is of, and how rough."""
    from rich import box
    from rich.table import Table

    from .screen import console_of

    count = len(record.seeds)
    over = f"{count} networks: medians, and half the distance of the quartiles" if count > 1 else "one network"
    drawn = Table(title=f"Roughness of {over}", box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for name in ("activation", "norm", "v", "clip", "kink", "bending", "extrema", "low", "high"):
        drawn.add_column(name, justify="left" if name in ("activation", "norm") else "right", no_wrap=True)
    for row in record.rows:
        v = "" if row["norm"] == "none" else f"{row['v']:g}"
        clip = "" if row["clip"] is None else f"{row['clip']:g}"
        numbers = [row[name].text(digits) for name, digits in (("kink", 3), ("bending", 3), ("extrema", 0))]
        ends = [f"{row[name].value:.3g}" if abs(row[name].value) > 1e-9 else "0" for name in ("low", "high")]
        drawn.add_row(row["activation"], row["norm"], v, clip, *numbers, *ends)
    console_of().print(drawn)
