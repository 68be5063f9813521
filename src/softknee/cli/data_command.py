"""`softknee data`: makes of a raw file what studies read quickly."""

from pathlib import Path
from typing import Annotated

import typer

data = typer.Typer(help="Prepare data sets that are too large to be read as they are.", no_args_is_help=True)


@data.callback()
def _data() -> None:
    """Prepare data sets that are too large to be read as they are."""


@data.command("criteo")
def data_criteo(
    raw: Annotated[Path, typer.Argument(help="Criteo's text with tabs, such as train.txt; may be gzipped")],
    out: Annotated[Path, typer.Argument(help="the folder of the shards; best criteo/shards of the data folder")],
) -> None:
    """Hash Criteo's rows into columns of numbers, shard by shard; memory does not grow with the file."""
    from ..lab.data.criteo_shards import convert
    from .screen import progress_line

    with progress_line("hashing") as report:
        shards = convert(raw, out, report=report)
    count = len(shards.counts)
    typer.echo(f"{len(shards):,} rows in {count} shard{'s' * (count != 1)} are in '{out}'.")
