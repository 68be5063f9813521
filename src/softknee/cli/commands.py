"""The commands and their options. Rooms are imported inside them, so that `--help` waits for none."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..errors import ParameterError
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


@app.command("claims")
def claims(
    file: Annotated[Path | None, typer.Argument(help="with --json: write the record here, not on the screen")] = None,
    json: Annotated[bool, typer.Option("--json", help="print the record as JSON, and nothing else")] = False,
    paper: Annotated[str, typer.Option(help="any of mollification,smelu,lambda_gelu,eafo,squaf; default all")] = "",
    docs: Annotated[Path | None, typer.Option(help="write the page of the documentation to this file")] = None,
) -> None:
    """Check every mathematical claim of the papers; code 1 if a verdict is not the one on record."""
    from ..lab import ledger
    from .claims_table import print_claims
    from .screen import progress_bar

    if file is not None and not json:
        raise ParameterError(f"The file {file.name!r} is for the record: write it with --json {file.name}.")
    if docs is not None and paper:
        raise ParameterError("The page holds the claims of every paper: leave out --paper to write it.")
    found = ledger.find(_several(paper))
    with progress_bar("checking", total=len(found)) as advance:
        entries = ledger.run(found, advance=advance)
    if docs is not None:
        ledger.write_page(entries, docs)
    if json and file is not None:
        ledger.record(entries, command=_command()).write(file)
    if json and file is None:
        typer.echo(ledger.record(entries, command=_command()).to_json(), nl=False)
    else:
        print_claims(entries)
    raise typer.Exit(0 if all(one.as_expected for one in entries) else 1)


@app.command("gallery")
def gallery(
    out: Annotated[Path, typer.Option(help="the folder to write into")] = Path("docs/zoo"),
    only: Annotated[str, typer.Option(help="function names with commas between; default all, and the index")] = "",
) -> None:
    """Draw f, f' and f'' of every function and write its page: formulas, claims, certified constants."""
    from ..lab import gallery
    from .screen import progress_line

    with progress_line("drawing") as report:
        written = gallery.write(out, only=_several(only), report=report)
    typer.echo(f"{len(written)} files written to {out}.")


@app.command("design")
def design(
    text: Annotated[str, typer.Argument(help="a formula, a call such as 'mollify(relu, box, width=0.1)', or a file")],
    param: Annotated[
        list[str] | None, typer.Option(help="a parameter: beta=1.0, or g=0.1:real; may be given again")
    ] = None,
    name: Annotated[str | None, typer.Option(help="what to call the result")] = None,
    plot: Annotated[Path | None, typer.Option(help="the .png, .svg or .html to draw; default NAME.html")] = None,
    no_plot: Annotated[bool, typer.Option("--no-plot", help="draw nothing")] = False,
    save: Annotated[Path | None, typer.Option(help="write the definition to this .json file")] = None,
) -> None:
    """Make an activation from a text; print its closed form and its proven constants, draw it, save it."""
    from .design_command import run

    run(text, param=param or [], name=name, plot=None if no_plot else (plot or Path()), save=save)


def _several(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _command() -> str:
    """The command line as typed, for the record."""
    return shlex.join(["softknee", *sys.argv[1:]])
