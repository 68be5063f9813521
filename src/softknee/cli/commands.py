"""The commands and their options. Rooms are imported inside them, so that `--help` waits for none."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..version import VERSION

app = typer.Typer(
    help="Activation functions as data: measure them and study them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
bench = typer.Typer(help="Measure speed and memory.", no_args_is_help=True)
study = typer.Typer(help="Train and compare.", no_args_is_help=True)
app.add_typer(bench, name="bench")
app.add_typer(study, name="study")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"softknee {VERSION}")
        raise typer.Exit


@app.callback()
def softknee(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Activation functions as data: measure them and study them."""


@bench.command("kernels")
def bench_kernels(
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    elements: Annotated[str | None, typer.Option(help="such as 64M; default 64M on a GPU, 4M on a CPU")] = None,
    dtype: Annotated[str | None, typer.Option(help="any of bf16,f16,f32,f64; default bf16,f32 (CPU: f32)")] = None,
    only: Annotated[str, typer.Option(help="function names with commas between; default all")] = "",
    variants: Annotated[str, typer.Option(help="variant names with commas between; default all")] = "",
    repeats: Annotated[int, typer.Option(min=1, help="samples of each call")] = 25,
    seconds: Annotated[float, typer.Option(min=0.01, help="time for each call; a slow one gets fewer samples")] = 2.0,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads; default as torch has it")] = None,
    json: Annotated[Path | None, typer.Option(help="write the record to this file")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="print Markdown instead of a table")] = False,
) -> None:
    """Time every function, forward and backward, as a multiple of copying the same tensor."""
    from ..measure import speed
    from .screen import print_speed, progress_line

    chosen = speed.choose_device(device)
    on_gpu = chosen.type == "cuda"
    settings = speed.Settings(
        device=chosen,
        elements=speed.parse_elements(elements or ("64M" if on_gpu else "4M")),
        dtypes=_several(dtype or ("bf16,f32" if on_gpu else "f32")),
        functions=_several(only),
        variants=_several(variants),
        repeats=repeats,
        seconds_per_call=seconds,
        **({} if threads is None else {"threads": threads}),
    )
    with progress_line("measuring") as report:
        record = speed.measure(settings, command=_command(), report=report)
    if json is not None:
        record.write(json)
    print_speed(record, markdown=markdown)


@study.command("quickstart")
def study_quickstart(
    seeds: Annotated[int, typer.Option(min=1, help="how many seeds")] = 3,
    epochs: Annotated[int, typer.Option(min=1, help="passes over the training data")] = 30,
    out: Annotated[Path, typer.Option(help="the page to write")] = Path("quickstart.html"),
    json: Annotated[Path | None, typer.Option(help="write the record to this file")] = None,
) -> None:
    """Train a small network on the digits with five activations, and draw what became of each."""
    from ..lab import quickstart
    from ..lab.page import write_page
    from .screen import print_quickstart, progress_bar

    settings = quickstart.Settings(seeds=tuple(range(seeds)), epochs=epochs)
    with progress_bar("training", total=quickstart.steps(settings)) as advance:
        result = quickstart.run(settings, command=_command(), advance=advance)
    page = write_page(result, out)
    if json is not None:
        result.record.write(json)
    print_quickstart(result, page=page)


def _several(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _command() -> str:
    """The command line as typed, for the record."""
    return shlex.join(["softknee", *sys.argv[1:]])
