"""What `softknee fits` does: pictures of what the networks of finished studies learned."""

from pathlib import Path
from typing import Annotated

import typer

from ..errors import ParameterError


def fits(
    runs: Annotated[list[str] | None, typer.Argument(help="folders or URLs of studies, as --out named them")] = None,
    out: Annotated[
        Path | None, typer.Option(help="the folder for the figures; default 'figures' in the folder of the first study")
    ] = None,
    tables: Annotated[
        bool, typer.Option("--tables", help="print the tables beside the paper's in Markdown, and draw nothing")
    ] = False,
    theorem: Annotated[
        Path | None, typer.Option(help="draw the approximation theorem of SQUAF into this .png or .svg; needs no study")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="the folder of the data sets; default $SOFTKNEE_DATA")] = None,
) -> None:
    """Draw what finished studies fitted: pictures, curves, regions of classes, learned SQUAFs, grids of q and alpha.

    Several studies of pictures become one figure side by side, several of one function are drawn together. What a study
    lacks is said, and the rest is drawn.
    """
    from ..lab import fits as room

    if not runs and theorem is None:
        raise ParameterError("Name the folder of a study, as --out named it; or draw the theorem with --theorem FILE.")
    if theorem is not None:
        typer.echo(f"{room.write_theorem(theorem)} is drawn.")
    if not runs:
        return
    found = [room.read_run(one, data_folder=data) for one in runs]
    if tables:
        typer.echo("\n\n".join(map(room.tables_of, found)))
        return
    written = room.write_fits(found, room.default_place(found[0]) if out is None else out)
    for name, caption in written.captions.items():
        typer.echo(f"{name}: {caption}")
    for note in written.notes:
        typer.echo(f"Missing: {note}")
    if not written.files:
        raise typer.Exit(1)
    typer.echo(f"{len(written.files)} files written to {written.files[0].parent}.")
