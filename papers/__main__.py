"""python -m papers: check the papers' mathematical claims, judge their findings by records, write the pages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from softknee.app import run
from softknee.app.screen import command_line, progress_bar, several
from softknee.errors import ParameterError
from softknee.measure import Record

from . import ledger
from .ledger import print_claims, print_statements
from .pages import write_pages
from .runs import Runs
from .statement import judge
from .statement import record as record_of_statements

app = typer.Typer(add_completion=False)
PROGRAM = "python -m papers"


@app.command()
def papers(
    file: Annotated[Path | None, typer.Argument(help="with --json: write the record here, not on the screen")] = None,
    json: Annotated[bool, typer.Option("--json", help="print the record as JSON, and nothing else")] = False,
    paper: Annotated[str, typer.Option(help="any of mollification,smelu,lambda_gelu,eafo,squaf; default all")] = "",
    pages: Annotated[
        bool, typer.Option("--pages", help="write README.md here and in the folder of each paper")
    ] = False,
    empirical: Annotated[
        bool, typer.Option("--empirical", help="what only training can test, by stored records")
    ] = False,
    results: Annotated[
        Path | None, typer.Option(help="a folder of finished studies to judge by; default the records of the papers")
    ] = None,
) -> None:
    """Check every mathematical claim of the papers; code 1 if a verdict is not the one on record.

    With --empirical, judge what the papers found by training, by the records of finished studies.
    """
    if file is not None and not json:
        raise ParameterError(f"The file {file.name!r} is for the record: write it with --json {file.name}.")
    if pages and (paper or empirical or results is not None):
        raise ParameterError("--pages writes the claims and findings of every paper: leave the other options out.")
    if empirical:
        runs = Runs.committed() if results is None else Runs(results)
        judged = judge(ledger.find_statements(several(paper)), runs)
        if json:
            _write(record_of_statements(judged, command=command_line(PROGRAM)), file)
        if not json or file is not None:
            print_statements(judged)
        return
    claims = ledger.find_claims(several(paper))
    with progress_bar("checking", total=len(claims)) as advance:
        entries = ledger.run(claims, advance=advance)
    if pages:
        runs = Runs.committed()
        write_pages(entries, judge(ledger.find_statements(), runs), runs)
    if json:
        _write(ledger.record(entries, command=command_line(PROGRAM)), file)
    if not json or file is not None:
        print_claims(entries)
    raise typer.Exit(0 if all(entry.as_expected for entry in entries) else 1)


def _write(record: Record, file: Path | None) -> None:
    if file is None:
        typer.echo(record.to_json(), nl=False)
    else:
        record.write(file)


def main() -> None:
    """Run the command; an error made on purpose is printed as its sentence, with exit code 2."""
    run(lambda: app(prog_name=PROGRAM), name="papers")


if __name__ == "__main__":
    main()
