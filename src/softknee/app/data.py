"""`softknee data`: converts raw files to a form that studies read quickly."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import ParameterError
from .screen import command_line, print_table, progress_line

data = typer.Typer(
    help="Prepare data sets that are too large to be read as they are: criteo, imagenet.", no_args_is_help=True
)


@data.callback()
def _group() -> None:
    """Prepare data sets that are too large to be read as they are: criteo, imagenet."""


@data.command("criteo")
def data_criteo(
    raw: Annotated[Path, typer.Argument(help="Criteo's text with tabs, such as train.txt; may be gzipped")],
    out: Annotated[Path, typer.Argument(help="the folder of the shards; best criteo/shards of the data folder")],
) -> None:
    """Hash Criteo's rows into columns of numbers, shard by shard; memory does not grow with the file."""
    from ..lab.data.criteo import convert

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
    from ..lab.data.files import data_folder
    from ..lab.data.imagenet import write_bytes

    root = data_folder(folder)
    with progress_line("decoding") as report:
        written = write_bytes(root, limit=limit, begin=lambda line: typer.echo(line, err=True), report=report)
    train, test = (f"{len(written.labels[part]):,}" for part in ("train", "val"))
    typer.echo(f"{train} pictures to train on and {test} to test with are in '{written.folder}'.")


def compare(
    old: Annotated[Path, typer.Argument(help="a checkpoint's folder, a .safetensors file, or .npz predictions")],
    new: Annotated[Path, typer.Argument(help="what takes its place, of the same kinds")],
    data: Annotated[
        str | None, typer.Option(help="digits, mnist, fashion-mnist, or a .csv or .npz file; default the checkpoint's")
    ] = None,
    target: Annotated[str | None, typer.Option(help="the target's column of a .csv, or array of a .npz")] = None,
    part: Annotated[str, typer.Option(help="of the data: test, validation, train or all")] = "test",
    model: Annotated[
        list[str] | None,
        typer.Option(help="for weights: package.module:function builds the model; twice for two models"),
    ] = None,
    argument: Annotated[
        list[str] | None, typer.Option(help="of that function: NAME=VALUE in JSON; may be given again")
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="take the inputs of a file as they are, not standardised")] = False,
    flat: Annotated[bool, typer.Option("--flat", help="give each example as one row of numbers")] = False,
    level: Annotated[float, typer.Option(help="of the intervals")] = 0.95,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "cpu",
    data_folder: Annotated[Path | None, typer.Option(help="of the data sets; default $SOFTKNEE_DATA")] = None,
    record: Annotated[Path | None, typer.Option("--json", help="write the record to this file")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="print Markdown instead of a table")] = False,
) -> None:
    """Compare the predictions of a new model with those of the old one that it replaces, with intervals."""
    from ..lab import compare as room
    from ..lab.bench.speed import choose_device

    with progress_line("comparing"):
        comparison = room.compare(
            old,
            new,
            data=_data(data, target=target, raw=raw, flat=flat),
            part=part,  # pyright: ignore[reportArgumentType]
            model=model or None,
            arguments=read_arguments(argument or []),
            level=level,
            device=choose_device(device),
            data_folder=data_folder,
        )
    if record is not None:
        comparison.record(command=command_line()).write(record)
    print_table(comparison.table(), markdown=markdown)


def read_arguments(options: list[str]) -> dict[str, Any]:
    """NAME=VALUE with a value of JSON; what is no JSON is text.

    >>> read_arguments(["hidden=[64, 64]", "activation=smelu"])
    {'hidden': [64, 64], 'activation': 'smelu'}
    """
    arguments: dict[str, Any] = {}
    for option in options:
        name, is_there, text = option.partition("=")
        if not is_there or not name.isidentifier():
            raise ParameterError(f"--argument takes NAME=VALUE, such as hidden=[64], and {option!r} was given.")
        try:
            arguments[name] = json.loads(text)
        except json.JSONDecodeError:
            arguments[name] = text
    return arguments


def _data(data: str | None, *, target: str | None, raw: bool, flat: bool) -> Any:
    """The data to predict, from the options; None where no option names any."""
    from ..lab.data.images import DATA_SETS
    from ..lab.studies.recipe import Data

    if data is not None and data.lower().endswith((".csv", ".npz")):
        return Data(file=data, target=target, standardise=not raw, flat=flat or None)
    if target is not None or raw:
        raise ParameterError("--target and --raw are for a file: give one with --data, a .csv or a .npz.")
    return Data(set=data, flat=True) if flat and data in DATA_SETS else data
