"""`softknee study rate` and `softknee study distil`: the SQUAF paper's experiments on image networks."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .screen import Keep, RecordFile, announce_smoke, command_line, kept_in, numbers, several, write_record

if TYPE_CHECKING:
    from ..measure.record import Record

Data = Annotated[Path | None, typer.Option(help="the data folder; default $SOFTKNEE_DATA")]
DataSet = Annotated[str, typer.Option(help="cifar-10, cifar-100, tiny-imagenet or imagenet")]
Seeds = Annotated[int, typer.Option(min=1, help="how many seeds")]
Epochs = Annotated[int, typer.Option(min=1, help="passes over the training images; the paper has 240")]
Batch = Annotated[int, typer.Option(min=1, help="images in a step; the paper has 64")]
Rate = Annotated[float, typer.Option(help="of SGD; the paper has 0.05 for batches of 64")]
Precision = Annotated[str, typer.Option(help="auto (bf16 on a GPU), f32 or bf16")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda")]
Figure = Annotated[Path | None, typer.Option(help="draw the curves into this .png or .svg")]
Shapes = Annotated[Path | None, typer.Option(help="draw the learned SQUAFs into this .png or .svg")]
Known = Annotated[Path | None, typer.Option("--from", help="a record that is there already: nothing is trained")]
Smoke = Annotated[bool, typer.Option("--smoke", help="a few images, one epoch, on the CPU: only to see that it runs")]
_SMOKE_IMAGES = 4  # two batches


def rate(
    data: Data = None,
    data_set: DataSet = "cifar-10",
    network: Annotated[str, typer.Option(help="vgg8 as in the paper, or another of the vision networks")] = "vgg8",
    weights: Annotated[
        str, typer.Option(help="prices of a bit in the loss, with commas between; the paper has 0 to 0.006")
    ] = "",
    seeds: Seeds = 3,
    epochs: Epochs = 40,
    batch: Batch = 256,
    learning_rate: Rate = 0.1,
    q: Annotated[float, typer.Option(help="where the spacing of SQUAF-P starts")] = 0.125,
    coded_images: Annotated[int, typer.Option(min=1, help="test images whose symbols are coded")] = 16,
    draws: Annotated[int, typer.Option(min=1, help="draws of SQUAF-P whose accuracies are averaged")] = 8,
    baselines: Annotated[str, typer.Option(help="beside it: any of relu,gelu,squaf")] = "relu,gelu,squaf",
    plain_rate: Annotated[bool, typer.Option("--plain-rate", help="take the rate by sk.nn.RatePenalty")] = False,
    precision: Precision = "auto",
    device: Device = "auto",
    smoke: Smoke = False,
    known: Known = None,
    figure: Figure = None,
    shapes: Shapes = None,
    json: RecordFile = None,
    keep: Keep = None,
) -> None:
    """The rate-accuracy curve of SQUAF-P (figure 3 of its paper): bits per activation against accuracy."""
    from ..lab import rates as room
    from ..lab.image_training import Plan

    _check(figure, shapes)
    if known is None:
        settings = room.Settings(
            network=network,
            data_set=data_set,
            weights=numbers("--weights", weights) or room.WEIGHTS,
            seeds=tuple(range(seeds)),
            q=q,
            coded_images=coded_images,
            draws=draws,
            baselines=room.choose_baselines(several(baselines)),
            plain_rate=plain_rate,
            plan=Plan(epochs=epochs, batch=batch, learning_rate=learning_rate, precision=precision, every=10),
            device="cpu" if smoke else device,
        )
        record = _trained(room, settings, data, smoke=smoke, keep=keep, json=json)
        write_record(record, json, keep=keep)
    else:
        record = _read(known, json)
    table = room.rate_markdown(record)
    _finish(record, figure=figure, draw=room.draw_rate, shapes=shapes, table=table)


def distil(
    data: Data = None,
    data_set: DataSet = "cifar-100",
    teacher: Annotated[str, typer.Option(help="vgg13, wrn40_2, timm:NAME ...; none: labels alone")] = "vgg13",
    student: Annotated[str, typer.Option(help="vgg8, wrn16_2, timm:NAME ...")] = "vgg8",
    only: Annotated[str, typer.Option(help="activations of the student with commas between; default all")] = "",
    where: Annotated[
        str, typer.Option(help="which SQUAFs are trained: first, all, 'all but last stage', or a pattern")
    ] = "first",
    share: Annotated[float, typer.Option(help="of the teacher in the loss")] = 0.9,
    temperature: Annotated[float, typer.Option(help="of the teacher's and the student's probabilities")] = 4.0,
    seeds: Seeds = 3,
    epochs: Epochs = 240,
    batch: Batch = 64,
    learning_rate: Rate = 0.05,
    every: Annotated[int, typer.Option(min=1, help="epochs from one point of the curves to the next")] = 5,
    precision: Precision = "auto",
    device: Device = "auto",
    smoke: Smoke = False,
    known: Known = None,
    figure: Figure = None,
    shapes: Shapes = None,
    json: RecordFile = None,
    keep: Keep = None,
) -> None:
    """Students of one teacher with different activations (tables 7, 14 and 15, figure 5 of the SQUAF paper)."""
    from ..lab import distilling as room
    from ..lab.image_training import Plan

    _check(figure, shapes)
    if known is None:
        settings = room.Settings(
            teacher=None if teacher == "none" else teacher,
            student=student,
            entries=room.choose_entries(several(only), where=where),
            data_set=data_set,
            share=share,
            temperature=temperature,
            seeds=tuple(range(seeds)),
            plan=Plan(epochs=epochs, batch=batch, learning_rate=learning_rate, precision=precision, every=every),
            device="cpu" if smoke else device,
        )
        record = _trained(room, settings, data, smoke=smoke, keep=keep, json=json)
        write_record(record, json, keep=keep)
    else:
        record = _read(known, json)
    table = room.distil_markdown(record)
    _finish(record, figure=figure, draw=room.draw_distil, shapes=shapes, table=table)


def _check(*figures: Path | None) -> None:
    """Refuse an ending that no figure has before anything is trained."""
    from ..lab.chart import check_ending

    for path in figures:
        if path is not None:
            check_ending(path)


def _trained(
    room: Any, settings: Any, data: Path | None, *, smoke: bool, keep: Path | None, json: Path | None
) -> "Record":
    """What a study of this room finds with these settings."""
    from ..lab.data.images import load_image_set
    from ..lab.image_training import few_images
    from .screen import progress_bar

    announce_smoke(smoke)
    images = load_image_set(settings.data_set, data)
    if smoke:
        settings, images = settings.for_smoke(), few_images(images, _SMOKE_IMAGES)
    with kept_in(keep, json) as place, progress_bar("training", total=room.steps(settings)) as advance:
        return room.run(settings, command=command_line(), advance=advance, data=images, keep=place)


def _read(path: Path, json: Path | None) -> "Record":
    """The record in a file, written to the other one where that is asked."""
    from ..measure.record import Record

    record = Record.read(path)
    if json is not None:
        record.write(json)
    return record


def _finish(
    record: "Record",
    *,
    figure: Path | None,
    draw: Callable[["Record", Path], object],
    shapes: Path | None,
    table: str,
) -> None:
    """Figures and table; the record is written already, so that a figure that fails loses nothing."""
    if figure is not None:
        draw(record, figure)
    if shapes is not None:
        from ..lab.image_training import draw_shapes

        draw_shapes(record, shapes)
    typer.echo(table, nl=False)
