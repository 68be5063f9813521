"""`softknee search`: find activations for a recipe's model and data."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .screen import STOPPED, Name, Settings, command_line, console_of, print_table, progress_line

if TYPE_CHECKING:
    from ..lab.searching import SearchResult


def search(
    name: Name,
    settings: Settings = None,
    out: Annotated[Path | None, typer.Option(help="the search's folder; default studies/NAME")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with a search that was stopped or killed")] = False,
    engine: Annotated[str, typer.Option(help="local, or ray for a Ray cluster (RAY_ADDRESS)")] = "local",
    processes: Annotated[
        int | None, typer.Option(min=1, help="that prove and train here; default one for each processor")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="the folder of the data sets; default $SOFTKNEE_DATA")] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="keep the records, and draw no page")] = False,
) -> None:
    """Find activations: candidates are proved, trained and halved; the best are judged with fresh seeds.

    The recipe's activations are the baselines, and its section `search` says what to try and what to prove. Ctrl-C
    stops it, --resume goes on with it.
    """
    from ..lab import searching
    from ..lab.studies.engine import StudyStopped
    from ..lab.studies.reporting import check_tools

    if not no_report:
        check_tools()
    try:
        with progress_line("search:") as report:
            result = searching.search(
                name,
                out=out,
                resume=resume,
                engine=searching.read_engine(engine),
                processes=processes,
                data_folder=data,
                settings=settings or (),
                command=command_line(),
                report=report,
            )
            page = None if no_report else searching.write_page(result, result.folder, command=command_line())
    except StudyStopped as stopped:
        typer.echo(str(stopped), err=True)
        raise typer.Exit(128 + stopped.number) from None
    except KeyboardInterrupt:
        typer.echo("Stopped at once; every whole generation is kept. Go on with --resume.", err=True)
        raise typer.Exit(STOPPED) from None
    print_result(result)
    made = f"softknee report {result.folder}"
    typer.echo(f"The page is {page}." if page is not None else f"The page is made by: {made}")


def print_result(result: "SearchResult") -> None:
    """What a search came to, on the screen."""
    from ..lab import searching

    print_table(searching.luck_table(result))
    console_of().print(searching.headline(result), markup=False)
