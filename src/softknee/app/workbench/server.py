"""Serves the workbench: its addresses, a port, a browser, and a clean end.

GET  /                    the page; /static/... its parts
POST /api/JOB             a job of `workers.py` with a JSON body, answered by a worker
POST /api/uploaded        a .npy or .csv file as the body
POST /api/try             begin a training; GET /api/try/NAME its news; POST /api/try/NAME/stop
GET  /runs/NAME/...       the report of a training and its records
"""

from __future__ import annotations

import errno
import json
import mimetypes
import os
import signal
import socket
import threading
import webbrowser
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ...errors import MissingToolError, ParameterError, SoftkneeError
from .training import Runs
from .workers import LIMITS, Answer, Gone, Workers, begin_nursery, end_nursery, sentence

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# A report carries its script and style inside it; it runs as a site of its own that can reach nothing.
REPORT_POLICY = (
    "sandbox allow-scripts allow-downloads allow-popups; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data: blob:; font-src data:; frame-ancestors 'none'"
)
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
LOCAL = ("127.0.0.1", "localhost", "::1")


class TooLargeError(Exception):
    """More of a body has come than is allowed."""


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: Any, *, hosts: tuple[str, ...], most_bytes: dict[str, int], usual_bytes: int) -> None:
        self._app, self._hosts, self._most, self._usual = app, hosts, most_bytes, usual_bytes

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if refused := self._refusal(scope["method"], headers):
            await _reply(send, 403, refused)
            return
        most = self._most.get(scope["path"], self._usual)
        size = f"{most // 2**20} MB" if most >= 2**20 else f"{most // 2**10} kB"
        too_large = f"This is larger than the {size} that are taken here; send less."
        if headers.get("content-length", "0").isdecimal() and int(headers.get("content-length", "0")) > most:
            await _reply(send, 413, too_large)
            return
        seen = 0

        async def counted() -> Any:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > most:
                raise TooLargeError
            return message

        async def furnished(message: Any) -> None:
            if seen > most:
                return  # what the application makes of the broken body; the answer is ours
            if message["type"] == "http.response.start":
                policy = REPORT_POLICY if scope["path"].startswith("/runs/") else PAGE_POLICY
                extra = {**_HEADERS, "content-security-policy": policy}
                own = [(name.encode(), value.encode()) for name, value in extra.items()]
                sent = [pair for pair in message.get("headers", []) if pair[0].decode().lower() not in extra]
                message = {**message, "headers": [*sent, *own]}
            await send(message)

        try:
            await self._app(scope, counted, furnished)
        except TooLargeError:
            await _reply(send, 413, too_large)

    def _refusal(self, method: str, headers: dict[str, str]) -> str:
        """Why a request is refused; empty if it is not."""
        if _name(headers.get("host", "")) not in self._hosts:
            return "The workbench answers under its own address only; open the one that softknee printed."
        if method in ("GET", "HEAD"):
            return ""
        origin = headers.get("origin")
        foreign = origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
        if foreign or headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return "This request comes from another site, and is refused."
        return ""


def _name(host: str) -> str:
    """The name in a Host header, without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


async def _reply(send: Any, status: int, text: str) -> None:
    body = json.dumps({"error": text}).encode()
    headers = {**_HEADERS, "content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
    start = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})


STATIC = Path(__file__).parent / "static"
_USUAL_BYTES, _UPLOAD_BYTES = 64 * 2**10, 64 * 2**20
_QUICK = ("curve", "shape", "zoo")
_MOST_KEPT = 400
# Answers that hang on the function's text alone; the cost of a call does not change with the numbers in it.
_BY_TEXT = ("cost",)
_WHOLE = ("formulas", "certificate", "depth", "take")


class Workbench:
    """Everything the addresses share."""

    def __init__(self, *, folder: Path, threads: int) -> None:
        # A proof can wait for a slider.
        self.quick, self.slow = Workers(3), Workers(2, nice=5)
        self.runs = Runs(folder, threads=threads)
        self._kept: OrderedDict[str, Answer] = OrderedDict()

    async def answer(self, job: str, query: dict[str, Any], gone: Gone | None = None) -> Answer:
        """The answer of a worker; slow answers are cached."""
        key = self._key(job, query)
        if key is not None and key in self._kept and not query.get("again"):
            self._kept.move_to_end(key)
            return self._kept[key]
        answer = await (self.quick if job in _QUICK else self.slow).ask(job, query, gone)
        if key is not None and answer[0] == 200:
            self._kept[key] = answer
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return answer

    @staticmethod
    def _key(job: str, query: dict[str, Any]) -> str | None:
        function = query.get("function")
        if job in _BY_TEXT and isinstance(function, dict):
            return json.dumps([job, str(function.get("text", "")).strip()])
        return json.dumps([job, query], sort_keys=True) if job in _WHOLE else None

    def hurry(self) -> None:
        """Let no request wait any longer."""
        self.quick.hurry()
        self.slow.hurry()

    def close(self) -> None:
        self.quick.close()
        self.slow.close()
        self.runs.close()


def make_app(bench: Workbench, *, hosts: tuple[str, ...] = LOCAL) -> Any:
    """The ASGI application around a workbench."""
    try:
        from starlette.applications import Starlette
        from starlette.concurrency import run_in_threadpool
        from starlette.requests import Request
        from starlette.responses import FileResponse, JSONResponse, Response
        from starlette.routing import Route
    except ModuleNotFoundError as error:
        raise missing("starlette") from error

    def as_response(answer: Answer) -> Response:
        return Response(answer[1], answer[0], media_type="application/json")

    async def refused(request: Request, error: Exception) -> Response:
        return JSONResponse({"error": str(error)}, 422)

    async def page(request: Request) -> Response:
        return FileResponse(STATIC / "index.html", media_type="text/html")

    async def part(request: Request) -> Response:
        return _file(STATIC, request.path_params["name"], FileResponse, Response)

    async def job(request: Request) -> Response:
        name = request.path_params["job"]
        if name not in LIMITS or name == "uploaded":
            return as_response(sentence("There is no such address.", 404))
        query = await body(request)
        if isinstance(query, Response):
            return query

        async def gone() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        return as_response(await bench.answer(name, query, gone))

    async def upload(request: Request) -> Response:
        content = await request.body()
        query = {"name": request.query_params.get("name", ""), "content": content}
        return as_response(await bench.answer("uploaded", query))

    async def body(request: Request) -> Any:
        if not request.headers.get("content-type", "").startswith("application/json"):
            return as_response(sentence("The body of this request is JSON.", 415))
        try:
            query = json.loads(await request.body())
        except (ValueError, RecursionError):
            return as_response(sentence("The body of this request is no JSON.", 400))
        return query if isinstance(query, dict) else as_response(sentence("The body is a JSON object.", 400))

    async def begin(request: Request) -> Response:
        query = await body(request)
        if isinstance(query, Response):
            return query
        return JSONResponse({"name": await run_in_threadpool(bench.runs.begin, query)})

    async def news(request: Request) -> Response:
        after = request.query_params.get("after", "0")
        state = bench.runs.state(request.path_params["name"], after=int(after) if after.isdecimal() else 0)
        return JSONResponse(state)

    async def stop(request: Request) -> Response:
        bench.runs.stop(request.path_params["name"])
        return JSONResponse({})

    async def report(request: Request) -> Response:
        place = bench.runs.place(request.path_params["name"])
        return _file(place, request.path_params["path"], FileResponse, Response)

    routes = [
        Route("/", page),
        Route("/static/{name:path}", part),
        Route("/api/uploaded", upload, methods=["POST"]),
        Route("/api/try", begin, methods=["POST"]),
        Route("/api/try/{name}", news),
        Route("/api/try/{name}/stop", stop, methods=["POST"]),
        Route("/api/{job}", job, methods=["POST"]),
        Route("/runs/{name}/{path:path}", report),
    ]
    site = Starlette(routes=routes, exception_handlers={SoftkneeError: refused})
    return Guard(site, hosts=hosts, most_bytes={"/api/uploaded": _UPLOAD_BYTES}, usual_bytes=_USUAL_BYTES)


def _file(folder: Path, name: str, file: Any, other: Any) -> Any:
    """A file inside a folder, and nothing outside it."""
    base = folder.resolve()
    path = (base / name).resolve()
    if not path.is_relative_to(base) or not path.is_file():
        return other("There is no such page.", 404, media_type="text/plain")
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    # What a system's table of types says of scripts differs, and a browser refuses a module of another type.
    kind = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}.get(path.suffix, kind)
    return file(path, media_type=kind)


def missing(package: str) -> MissingToolError:
    """What to say where the extra is not installed."""
    return MissingToolError(
        f"The workbench needs the package {package!r}, which is not installed. Install it with: pip install "
        "'softknee[web]'"
    )


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
        address = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}/"
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
