"""Serves the workbench: a port, a browser, and a clean end."""

from __future__ import annotations

import errno
import os
import signal
import socket
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from ...errors import ParameterError
from .app import LOCAL, Workbench, make_app, missing
from .workers import begin_nursery, end_nursery

HOST, PORT = "127.0.0.1", 8765
_NEEDED = ("starlette", "uvicorn", "latex2mathml", "numpy", "yaml")
_OTHER_PORTS = 20  # tried after the usual one where that is taken


def check_tools() -> None:
    """Raise where the extra is not installed."""
    for package in _NEEDED:
        if find_spec(package) is None:
            raise missing(package)


def serve(
    *,
    host: str = HOST,
    port: int | None = None,
    open_browser: bool = True,
    folder: str | os.PathLike[str] = "studies",
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Serve until Ctrl-C.

    host:   the address to bind; other machines can reach the page only if this is not 127.0.0.1.
    port:   default 8765, or one of the next where that is taken; 0 lets the system choose.
    folder: where trainings of 'Try it' are kept.
    say:    called with a sentence that names the address, once the page can be opened.
    """
    check_tools()
    import uvicorn

    with bound(host, port) as listener:
        address = f"http://{_shown(host)}:{listener.getsockname()[1]}/"
        # Threads that wait for one another sleep instead of spinning; workers and trainings share few cores.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        bench = Workbench(folder=Path(folder), threads=max(1, (os.cpu_count() or 2) - 1))
        settings = uvicorn.Config(
            make_app(bench, hosts=(*LOCAL, host.lower())),
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=2,
            ws="none",
            lifespan="off",
        )

        class Server(uvicorn.Server):
            """Waits for requests before it ends; those that wait for a worker are answered at once."""

            def handle_exit(self, sig: int, frame: Any) -> None:
                bench.hurry()
                super().handle_exit(sig, frame)

        server = Server(settings)
        with _ending_on_interrupt(server):
            try:
                begin_nursery()
                bench.quick.warm()
                say(f"The workbench is at {address} (Ctrl-C ends it).")
                if open_browser:
                    threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
                server.run(sockets=[listener])
            finally:
                bench.close()
                end_nursery()


@contextmanager
def _ending_on_interrupt(server: Any) -> Iterator[None]:
    """Ctrl-C asks the server to end, also while it begins or has ended; uvicorn listens for it in between only."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals go to the main thread alone
        return

    def ask(number: int, frame: Any) -> None:
        server.should_exit = True

    held = signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, held)


def bound(host: str, port: int | None) -> socket.socket:
    """A socket that listens there; a sentence where it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    ports = [port] if port is not None else range(PORT, PORT + _OTHER_PORTS)
    reason = ""
    for number in ports:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, number))
            listener.listen(128)
        except (OSError, OverflowError) as error:
            listener.close()
            reason = getattr(error, "strerror", None) or str(error)
            if isinstance(error, socket.gaierror) or getattr(error, "errno", None) == errno.EADDRNOTAVAIL:
                raise ParameterError(
                    f"The workbench could not listen at {host}: {reason}. Name an address that this machine has, or "
                    "leave --host out."
                ) from error
            continue
        return listener
    raise ParameterError(
        f"The workbench could not listen at {host}, port {ports[0]}: {reason}. Choose another with --port, or 0 for "
        "any that is free."
    )


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def workbench(
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="default 8765, or the next that is free")] = None,
    host: Annotated[str, typer.Option(help="the address to bind; other machines cannot reach 127.0.0.1")] = "127.0.0.1",
    no_open: Annotated[bool, typer.Option("--no-open", help="do not open the browser")] = False,
    out: Annotated[str, typer.Option(help="the folder in which trainings of 'Try it' are kept")] = "studies",
) -> None:
    """Bend activation functions in the browser: curves, proofs, signal, a training, and code to take home."""

    serve(host=host, port=port, open_browser=not no_open, folder=out, say=lambda text: typer.echo(text))
