"""`softknee workbench`: the page on which functions are bent."""

from typing import Annotated

import typer


def workbench(
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="default 8765, or the next that is free")] = None,
    host: Annotated[str, typer.Option(help="the address to bind; other machines cannot reach 127.0.0.1")] = "127.0.0.1",
    no_open: Annotated[bool, typer.Option("--no-open", help="do not open the browser")] = False,
    out: Annotated[str, typer.Option(help="the folder in which trainings of 'Try it' are kept")] = "studies",
) -> None:
    """Bend activation functions in the browser: curves, proofs, signal, a training, and code to take home."""
    from .server import serve

    serve(host=host, port=port, open_browser=not no_open, folder=out, say=lambda text: typer.echo(text))
