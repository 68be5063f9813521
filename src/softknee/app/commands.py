"""The commands and their options. Rooms are imported inside them, so that `--help` waits for none."""

from pathlib import Path
from typing import Annotated

import typer

from ..version import VERSION
from .bench import bench
from .data import compare, data
from .screen import RecordFile, command_line, print_table, progress_line, several
from .search import search
from .study import fits, report, study, surface

_IN_PYTHON = (
    "`softknee COMMAND --help` shows the options of a command. In Python, `import softknee as sk; help(sk)` lists what "
    "there is: sk.swap_ puts an activation into a model."
)
app = typer.Typer(
    help="Activation functions as data: measure them and study them.",
    epilog=_IN_PYTHON,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(bench, name="bench")
app.add_typer(study, name="study")
app.add_typer(data, name="data")


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


@app.command("deploy-check")
def deploy_check(
    checkpoints: Annotated[
        list[Path], typer.Argument(help="folders of checkpoints, or of studies that kept their models")
    ],
    data: Annotated[Path | None, typer.Option(help="the folder of the data sets; default $SOFTKNEE_DATA")] = None,
    json: RecordFile = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="print Markdown instead of a table")] = False,
    points: Annotated[int, typer.Option(min=0, help="test points to ask Marabou about")] = 10,
    eps: Annotated[float, typer.Option(help="how far each input may move")] = 0.05,
    seconds: Annotated[float, typer.Option(help="time for each point")] = 20.0,
    seed: Annotated[int, typer.Option(help="draws the points")] = 0,
) -> None:
    """What ONNX, int8, pruning and Marabou make of a trained network, and of the same network with ReLU.

    Several checkpoints, and those of a study with `keep: [models]`, are summarised: one line for each network and
    activation, over the seeds.
    """
    from ..lab.deploy import check_several, deploy_table, summary_record, summary_tables

    with progress_line("checking") as report:
        checked = check_several(
            checkpoints, data=data, points=points, eps=eps, seconds_per_point=seconds, seed=seed, report=report
        )
    if len(checked) == 1:
        record, tables = checked[0].report.record(command=command_line()), [deploy_table(checked[0].report)]
    else:
        record = summary_record(checked, command=command_line())
        tables = summary_tables(record)
    if json is not None:
        record.write(json)
    for table in tables:
        print_table(table, markdown=markdown)


@app.command("gallery")
def gallery(
    out: Annotated[Path, typer.Option(help="the folder to write into")] = Path("docs/zoo"),
    only: Annotated[str, typer.Option(help="function names with commas between; default all, and the index")] = "",
) -> None:
    """Draw f, f' and f'' of every function and write its page: formulas, claims, certified constants."""
    from ..lab import gallery

    with progress_line("drawing") as report:
        written = gallery.write(out, only=several(only), report=report)
    typer.echo(f"{len(written)} files written to {out}.")


@app.command("design")
def design(
    text: Annotated[str, typer.Argument(help="a name, a formula, a call such as 'mollify(relu, box)', or a file")],
    param: Annotated[
        list[str] | None, typer.Option(help="a parameter: beta=1.0, or g=0.1:real; may be given again")
    ] = None,
    name: Annotated[str | None, typer.Option(help="what to call the result")] = None,
    plot: Annotated[Path | None, typer.Option(help="the .png, .svg or .html to draw; default NAME.html")] = None,
    no_plot: Annotated[bool, typer.Option("--no-plot", help="draw nothing")] = False,
    save: Annotated[Path | None, typer.Option(help="write the definition to this .json file")] = None,
) -> None:
    """Show or make an activation: closed form, defaults, presets and proven constants; draw it, save it."""
    from .design import run

    run(text, param=param or [], name=name, plot=None if no_plot else (plot or Path()), save=save)


@app.command("workbench")
def workbench(
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="default 8765, or the next that is free")] = None,
    host: Annotated[str, typer.Option(help="the address to bind; other machines cannot reach 127.0.0.1")] = "127.0.0.1",
    no_open: Annotated[bool, typer.Option("--no-open", help="do not open the browser")] = False,
    out: Annotated[str, typer.Option(help="the folder in which trainings of 'Try it' are kept")] = "studies",
) -> None:
    """Bend activation functions in the browser: curves, proofs, signal, a training, and code to take home."""
    from .workbench.server import serve

    serve(host=host, port=port, open_browser=not no_open, folder=out, say=typer.echo)


app.command("compare")(compare)
app.command("fits")(fits)
app.command("report")(report)
app.command("search")(search)
app.command("surface")(surface)
