"""The addresses of the workbench.

GET  /                    the page; /static/... its parts
POST /api/JOB             a job of `jobs.py` with a JSON body, answered by a worker
POST /api/uploaded        a .npy or .csv file as the body
POST /api/try             begin a training; GET /api/try/NAME its news; POST /api/try/NAME/stop
GET  /runs/NAME/...       the report of a training and its records
"""

from __future__ import annotations

import json
import mimetypes
from collections import OrderedDict
from pathlib import Path
from typing import Any

from ...errors import MissingToolError, SoftkneeError
from .guard import LOCAL, Guard
from .trials import Runs
from .workers import LIMITS, Answer, Gone, Workers, sentence

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

    async def answer(self, job: str, asked: dict[str, Any], gone: Gone | None = None) -> Answer:
        """The answer of a worker; what takes long and was asked before is not computed again."""
        key = self._key(job, asked)
        if key is not None and key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        found = await (self.quick if job in _QUICK else self.slow).ask(job, asked, gone)
        if key is not None and found[0] == 200:
            self._kept[key] = found
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return found

    @staticmethod
    def _key(job: str, asked: dict[str, Any]) -> str | None:
        function = asked.get("function")
        if job in _BY_TEXT and isinstance(function, dict):
            return json.dumps([job, str(function.get("text", "")).strip()])
        return json.dumps([job, asked], sort_keys=True) if job in _WHOLE else None

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

    def as_response(found: Answer) -> Response:
        return Response(found[1], found[0], media_type="application/json")

    def refused(error: SoftkneeError) -> Response:
        return JSONResponse({"error": str(error)}, 422)

    async def page(request: Request) -> Response:
        return FileResponse(STATIC / "index.html", media_type="text/html")

    async def part(request: Request) -> Response:
        return _file(STATIC, request.path_params["name"], FileResponse, Response)

    async def job(request: Request) -> Response:
        name = request.path_params["job"]
        if name not in LIMITS or name == "uploaded":
            return as_response(sentence("There is no such address.", 404))
        asked = await body(request)
        if isinstance(asked, Response):
            return asked
        return as_response(await bench.answer(name, asked, request.is_disconnected))

    async def upload(request: Request) -> Response:
        content = await request.body()
        asked = {"name": request.query_params.get("name", ""), "content": content}
        return as_response(await bench.answer("uploaded", asked))

    async def body(request: Request) -> Any:
        if not request.headers.get("content-type", "").startswith("application/json"):
            return as_response(sentence("The body of this request is JSON.", 415))
        try:
            asked = json.loads(await request.body())
        except (ValueError, RecursionError):
            return as_response(sentence("The body of this request is no JSON.", 400))
        return asked if isinstance(asked, dict) else as_response(sentence("The body is a JSON object.", 400))

    async def begin(request: Request) -> Response:
        asked = await body(request)
        if isinstance(asked, Response):
            return asked
        try:
            return JSONResponse({"name": await run_in_threadpool(bench.runs.begin, asked)})
        except SoftkneeError as error:
            return refused(error)

    async def news(request: Request) -> Response:
        after = request.query_params.get("after", "0")
        try:
            found = bench.runs.state(request.path_params["name"], after=int(after) if after.isdecimal() else 0)
        except SoftkneeError as error:
            return refused(error)
        return JSONResponse(found)

    async def stop(request: Request) -> Response:
        try:
            bench.runs.stop(request.path_params["name"])
        except SoftkneeError as error:
            return refused(error)
        return JSONResponse({})

    async def report(request: Request) -> Response:
        try:
            place = bench.runs.place(request.path_params["name"])
        except SoftkneeError as error:
            return refused(error)
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
    return Guard(
        Starlette(routes=routes), hosts=hosts, most_bytes={"/api/uploaded": _UPLOAD_BYTES}, usual_bytes=_USUAL_BYTES
    )


def _file(folder: Path, name: str, file: Any, other: Any) -> Any:
    """A file inside a folder, and nothing outside it."""
    base = folder.resolve()
    found = (base / name).resolve()
    if not found.is_relative_to(base) or not found.is_file():
        return other("There is no such page.", 404, media_type="text/plain")
    kind = mimetypes.guess_type(found.name)[0] or "application/octet-stream"
    # What a system's table of types says of scripts differs, and a browser refuses a module of another type.
    kind = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}.get(found.suffix, kind)
    return file(found, media_type=kind)


def missing(package: str) -> MissingToolError:
    """What to say where the extra is not installed."""
    return MissingToolError(
        f"The workbench needs the package {package!r}, which is not installed. Install it with: pip install "
        "'softknee[web]'"
    )
