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


@data.command("imagenet")
def data_imagenet(
    folder: Annotated[
        Path | None,
        typer.Option("--data", help="the data folder, with imagenet/train and imagenet/val; or SOFTKNEE_DATA"),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="so many pictures of each part at most, a random part")] = None,
) -> None:
    """Decode ImageNet's pictures once, into files of bytes that studies read their batches from."""
    from ..lab.data.imagenet_bytes import write_bytes
    from ..lab.data_folder import data_folder
    from .screen import progress_line

    root = data_folder(folder)
    with progress_line("decoding") as report:
        found = write_bytes(root, limit=limit, begin=lambda said: typer.echo(said, err=True), report=report)
    train, test = (f"{len(found.labels[part]):,}" for part in ("train", "val"))
    typer.echo(f"{train} pictures to train on and {test} to test with are in '{found.folder}'.")
