"""What `softknee bench epoch` does. Rooms are imported inside, so that `--help` waits for none."""

from typing import Annotated

import typer

from ..errors import ParameterError
from .typed import RecordFile, command_line, several


def bench_epoch(
    model: Annotated[str, typer.Argument(help="timm:NAME, or transformers:vit")] = "timm:vit_tiny_patch16_224",
    image: Annotated[int, typer.Option(min=1, help="side of the images")] = 32,
    config: Annotated[
        list[str] | None, typer.Option(help="built with KEY=NUMBER; may be given again; a ViT has patch_size=4")
    ] = None,
    swap: Annotated[str | None, typer.Option(help="what to put in, such as 'srelu(delta=0.001)'")] = None,
    counts: Annotated[str, typer.Option(help="numbers of models trained at once")] = "1,3",
    augment: Annotated[str, typer.Option(help="any of crop-flip,full")] = "crop-flip,full",
    examples: Annotated[int, typer.Option(min=1, help="images in an epoch")] = 50_000,
    batch: Annotated[int, typer.Option(min=1, help="images in a step of each model")] = 256,
    steps: Annotated[int | None, typer.Option(min=1, help="how many are timed; default those of an epoch")] = None,
    epochs: Annotated[int, typer.Option(min=1, help="of the whole training whose seconds are computed")] = 100,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    precision: Annotated[
        str | None, typer.Option(help="bfloat16 or float32; default bfloat16 on a GPU, else float32")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="samples of each")] = 2,
    no_plain: Annotated[bool, typer.Option("--no-plain", help="leave the plain loop out")] = False,
    json: RecordFile = None,
) -> None:
    """Time an epoch of training on images: a plain eager loop beside compiled models trained at once.

    Made for a GPU; a look on a CPU: --counts 1 --batch 32 --steps 2
    """
    from ..measure import epoch_speed
    from ..measure.built_models import read_config
    from ..measure.speed import choose_device
    from .epoch_table import print_epoch
    from .screen import progress_line

    chosen = choose_device(device)
    settings = epoch_speed.Settings(
        model=model,
        device=chosen,
        image=image,
        config=read_config(config or []),
        swap=swap,
        counts=_whole_numbers(counts),
        augment=several(augment),
        examples=examples,
        batch=batch,
        steps=steps,
        epochs=epochs,
        # Many CPUs have no arithmetic in bfloat16: where it is imitated, nine minutes were not enough for a few steps.
        precision=precision or ("bfloat16" if chosen.type == "cuda" else "float32"),
        repeats=repeats,
        plain=not no_plain,
    )
    with progress_line("epoch:") as report:
        record = epoch_speed.measure(settings, command=command_line(), report=report)
    if json is not None:
        record.write(json)
    print_epoch(record)


def _whole_numbers(text: str) -> tuple[int, ...]:
    parts = several(text)
    if not all(part.isdecimal() for part in parts):
        raise ParameterError(f"--counts takes whole numbers with commas between, such as 1,3, and {text!r} was given.")
    return tuple(int(part) for part in parts)
