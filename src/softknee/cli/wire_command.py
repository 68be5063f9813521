"""What `softknee bench wire` does. Rooms are imported inside, so that `--help` waits for none."""

from typing import Annotated

import typer

from ..errors import ParameterError
from .typed import RecordFile, command_line, several


def bench_wire(
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    rates: Annotated[str, typer.Option(help="weights of the rate penalty")] = "0,0.1,0.3",
    epochs: Annotated[int, typer.Option(min=1, help="passes over the digits")] = 15,
    elements: Annotated[int | None, typer.Option(min=1, help="activations to code; default 16M (CPU: 4M)")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="samples of each")] = 9,
    forms: Annotated[str, typer.Option(help="any of rans,huffman,packed,bfloat16; default all")] = "",
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads; default as torch has it")] = None,
    json: RecordFile = None,
) -> None:
    """Train a CNN over two processes with coded activations between; time the coders; say which link each is for."""
    from ..lab.splits import load_split
    from ..measure import wire_speed
    from ..measure.speed import choose_device
    from .screen import progress_line
    from .wire_table import print_wire

    chosen = choose_device(device)
    settings = wire_speed.Settings(
        device=chosen,
        rates=_numbers(rates),
        epochs=epochs,
        elements=elements or (16_000_000 if chosen.type == "cuda" else 4_000_000),
        repeats=repeats,
        forms=several(forms) or wire_speed.FORMS,
        **({} if threads is None else {"threads": threads}),
    )
    command = command_line()
    split = load_split("digits")
    data = wire_speed.Data(
        train_images=split.train_images,
        train_labels=split.train_labels,
        test_images=split.test_images,
        test_labels=split.test_labels,
    )
    with progress_line("wire:") as report:
        record = wire_speed.measure(settings, data, command=command, report=report)
    if json is not None:
        record.write(json)
    print_wire(record)


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ParameterError(
            f"--rates takes numbers with commas between, such as 0,0.1, and {text!r} was given."
        ) from None
