"""The server of the workbench as a process among others: its doors, its limits, its workers, its end."""

import asyncio
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="starlette is not installed; the extra 'web' brings it")
pytest.importorskip("uvicorn", reason="uvicorn is not installed; the extra 'web' brings it")

from softknee.app.workbench import server, workers
from softknee.app.workbench.server import Guard, Workbench, make_app
from softknee.app.workbench.training import Runs
from softknee.errors import MissingToolError, ParameterError

SOURCE = Path(__file__).parent.parent / "src"
JSON = {"content-type": "application/json"}


class Served:
    """The application under a real server in a thread; its workers are processes."""

    def __init__(self, folder: Path) -> None:
        import uvicorn

        self.bench = Workbench(folder=folder, threads=1)
        self.socket = server.bound("127.0.0.1", 0)
        self.port = self.socket.getsockname()[1]
        config = uvicorn.Config(make_app(self.bench), log_level="warning", ws="none", lifespan="off")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]}, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(20)
        self.bench.close()
        self.socket.close()

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        content = json.dumps(body).encode() if body is not None and not isinstance(body, bytes) else body
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        line.request(method, path, content, (JSON if content is not None else {}) | given)
        answer = line.getresponse()
        result = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        line.close()
        return result


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    result, limits = Served(tmp_path_factory.mktemp("studies")), dict(workers.LIMITS)
    workers.LIMITS.update(dict.fromkeys(limits, 600.0))  # of the clock: others may have the machine
    yield result
    workers.LIMITS.update(limits)
    result.close()


CURVE = {"function": {"text": "srelu", "values": {"delta": 0.5}}, "low": -1, "high": 1}


def test_the_page_loads_nothing_from_elsewhere(served: Served) -> None:
    status, headers, page = served.ask("GET", "/")
    assert status == 200
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    text = page.decode()
    for address in re.findall(r'(?:src|href)="([^"#]+)"', text):
        assert address.startswith("/static/")
        status, headers, content = served.ask("GET", address)
        assert (status, len(content) > 0) == (200, True)
    for script in (SOURCE / "softknee/app/workbench/static").iterdir():
        content = script.read_text(encoding="utf-8")
        outside = set(re.findall(r"https?://[^\s\"'`)]+", content)) - {"http://www.w3.org/2000/svg"}
        assert outside == set(), script.name
        status, headers, _ = served.ask("GET", f"/static/{script.name}")
        kinds = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html"}
        assert headers["content-type"].startswith(kinds[script.suffix])


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static//etc/passwd",
        "/static/",
        "/runs/0123456789ab/../../x",
        "/runs/..%2f..%2fetc/passwd",
        "/runs/0123456789ab/report/index.html",
        "/etc/passwd",
    ],
)
def test_no_other_file_is_served(served: Served, path: str) -> None:
    assert served.ask("GET", path)[0] in (404, 422)


def test_a_curve_and_an_error(served: Served) -> None:
    status, _, content = served.ask("POST", "/api/curve", CURVE)
    assert status == 200
    assert json.loads(content)["name"] == "srelu"
    status, _, content = served.ask("POST", "/api/curve", {"function": {"text": "x +"}})
    assert status == 422
    assert "cannot be read" in json.loads(content)["error"]


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::1", "localhost@x"]
)
def test_another_name_for_this_machine_is_refused(served: Served, host: str) -> None:
    for method, path, body in (("GET", "/", None), ("POST", "/api/curve", CURVE)):
        status, _, content = served.ask(method, path, body, Host=host)
        assert status in (400, 403)
        assert b"srelu" not in content


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "LOCALHOST:99", "[::1]:8765"])
def test_its_own_names_are_answered(served: Served, host: str) -> None:
    assert served.ask("GET", "/", Host=host)[0] == 200


def test_another_site_cannot_ask(served: Served) -> None:
    assert served.ask("POST", "/api/curve", CURVE, Origin="http://evil.example")[0] == 403
    assert served.ask("POST", "/api/curve", CURVE, Origin="null")[0] == 403
    assert served.ask("POST", "/api/curve", CURVE, Sec_Fetch_Site="cross-site")[0] == 403
    assert served.ask("POST", "/api/curve", CURVE, content_type="text/plain")[0] == 415
    own = f"http://127.0.0.1:{served.port}"
    assert served.ask("POST", "/api/curve", CURVE, Origin=own, Sec_Fetch_Site="same-origin")[0] == 200


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"3", b"[" * 60_000, b'{"function": NaN}', b"\xff\xfe"])
def test_a_body_that_is_no_request_is_a_sentence(served: Served, body: bytes) -> None:
    status, _, content = served.ask("POST", "/api/curve", body)
    assert status in (400, 422)
    assert json.loads(content)["error"]


def test_addresses_that_are_none(served: Served) -> None:
    assert served.ask("POST", "/api/nothing", {})[0] == 404
    assert served.ask("GET", "/api/curve")[0] == 405
    assert served.ask("GET", "/api/try/0123456789ab")[0] == 422
    assert served.ask("POST", "/api/try/0123456789ab/stop")[0] == 422
    assert served.ask("POST", "/api/try", {"functions": "all"})[0] in (200, 422)


def _answer(served: Served, head: str, parts: Iterator[bytes]) -> str:
    """What the server says to a request whose body goes on, until it hangs up: maybe before everything is sent."""
    said = b""
    with socket.create_connection(("127.0.0.1", served.port), timeout=600) as line:
        line.sendall(f"POST {head}\r\nHost: 127.0.0.1\r\n".encode())
        with suppress(OSError):
            for part in parts:
                line.sendall(part)
        with suppress(ConnectionError):
            while piece := line.recv(4000):
                said += piece
    return said.decode()


def test_a_gigabyte_is_refused_before_it_comes(served: Served) -> None:
    said = _answer(served, "/api/uploaded?name=big.npy HTTP/1.1", iter([b"Content-Length: 1073741824\r\n\r\nabc"]))
    assert said.startswith("HTTP/1.1 413")
    assert "larger than the 64 MB" in said  # of which three bytes were sent


def test_a_body_without_a_length_is_counted(served: Served) -> None:
    piece = b"%x\r\n%s\r\n" % (2**16, b"1" * 2**16)

    def parts() -> Iterator[bytes]:
        yield b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        for _ in range(8):
            yield piece

    assert _answer(served, "/api/curve HTTP/1.1", parts()).startswith("HTTP/1.1 413")
    assert served.ask("POST", "/api/curve", CURVE)[0] == 200  # the page lives on


def test_an_upload_goes_through_the_door(served: Served) -> None:
    text = "\n".join(str(number / 7) for number in range(100)).encode()
    status, _, content = served.ask("POST", "/api/uploaded?name=a.csv", text, content_type="text/csv")
    assert status == 200
    assert json.loads(content)["count"] == 100


def test_a_job_that_takes_too_long_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker is killed in the middle of C code, and the next question is answered by another."""
    monkeypatch.setitem(workers.LIMITS, "depth", 0.3)
    monkeypatch.setitem(workers.LIMITS, "curve", 600.0)  # a new worker imports torch, which a busy machine draws out
    pool = workers.Workers(1)
    slow = {"function": {"text": "squaf"}, "density": {"kind": "normal"}}

    async def both() -> list[Any]:
        await pool.ask("curve", CURVE)  # starts the worker
        return await asyncio.gather(pool.ask("depth", slow), pool.ask("curve", CURVE))

    try:
        late, after = asyncio.run(both())
    finally:
        pool.close()
    assert late[0] == 422
    assert "longer than 0.3 s" in json.loads(late[1])["error"]
    assert after[0] == 200


def test_a_job_that_nobody_waits_for_any_longer_is_ended() -> None:
    pool, begun = workers.Workers(1), []

    async def gone() -> None:
        await asyncio.sleep(0)  # after the job has begun
        begun.append(time.monotonic())

    endless = {"function": {"text": "squaf"}, "density": {"kind": "normal"}, "longer": True}

    async def ask() -> tuple[int, int, float]:
        await pool.ask("curve", CURVE)  # starts the worker
        ended = await pool.ask("depth", endless, gone)
        seconds = time.monotonic() - begun[0]
        return ended[0], (await pool.ask("curve", CURVE))[0], seconds

    try:
        *answers, seconds = asyncio.run(ask())
    finally:
        pool.close()
    assert answers == [422, 200]
    assert seconds < workers.LIMITS["depth"]


def test_a_job_is_not_begun_for_somebody_who_has_gone() -> None:
    pool = workers.Workers(1)

    async def gone() -> None:
        pass

    async def ask() -> list[Any]:
        await pool.ask("curve", CURVE)
        return await asyncio.gather(pool.ask("curve", CURVE), pool.ask("depth", {}, gone))

    try:
        assert [status for status, _ in asyncio.run(ask())] == [200, 499]
    finally:
        pool.close()


def test_a_worker_that_dies_is_replaced() -> None:
    pool = workers.Workers(1)
    try:
        assert asyncio.run(pool.ask("curve", CURVE))[0] == 200
        os.kill(pool._all[0]._process.pid, signal.SIGKILL)
        answers = []
        for _ in range(2):
            pool._freed = None  # each run has a loop of its own
            answers.append(asyncio.run(pool.ask("curve", CURVE))[0])
        assert answers[-1] == 200
    finally:
        pool.close()


def test_what_takes_long_is_kept(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    request = {"function": {"text": "smelu", "values": {"beta": 0.7}}}
    asked, real = [], served.bench.slow.ask

    async def counted(job: str, *rest: Any) -> Any:
        asked.append(job)
        return await real(job, *rest)

    monkeypatch.setattr(served.bench.slow, "ask", counted)
    first = served.ask("POST", "/api/certificate", request)
    assert (first[0], asked) == (200, ["certificate"])
    assert served.ask("POST", "/api/certificate", request)[2] == first[2]
    assert asked == ["certificate"]  # no worker was asked a second time
    assert served.bench._key("cost", {"function": {"text": "smelu ", "values": {"beta": 1}}}) == served.bench._key(
        "cost", {"function": {"text": "smelu", "values": {"beta": 2}}}
    )
    assert served.bench._key("curve", CURVE) is None


# -- the command ------------------------------------------------------------------------------------------


def _command(*arguments: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "softknee", "workbench", "--no-open", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C is sent to a process group here")
@pytest.mark.parametrize("when", ["at once", "while it imports", "with a worker"])
def test_ctrl_c_ends_it_cleanly(tmp_path: Path, when: str) -> None:
    process = _command("--port", "0", folder=tmp_path)
    assert process.stdout is not None
    line = process.stdout.readline()
    port = int(re.search(r"http://127\.0\.0\.1:(\d+)/", line).group(1))  # type: ignore[union-attr]
    if when == "while it imports":
        time.sleep(0.4)
    if when == "with a worker":
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        connection.request("POST", "/api/curve", json.dumps(CURVE), JSON)
        assert connection.getresponse().status == 200
        connection.close()
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the workers get it too
    out, errors = process.communicate(timeout=600)
    assert (process.returncode, errors) == (0, ""), errors
    assert "Traceback" not in out
    deadline = time.monotonic() + 300
    while _group_lives(process.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _group_lives(process.pid)


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_port_that_is_taken() -> None:
    with server.bound("127.0.0.1", 0) as taken:
        with pytest.raises(ParameterError, match="--port"):
            server.bound("127.0.0.1", taken.getsockname()[1])
        with server.bound("127.0.0.1", None) as first, server.bound("127.0.0.1", None) as second:
            assert first.getsockname()[1] != second.getsockname()[1]


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_that_this_machine_does_not_have(host: str) -> None:
    with pytest.raises(ParameterError, match=r"leave --host out\.$"):
        server.bound(host, None)


def test_a_folder_that_cannot_keep_a_training_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ParameterError, match="--out FOLDER"):
        Runs(tmp_path / "file", threads=1).begin({})


def test_without_the_extra_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, softknee: Any) -> None:
    monkeypatch.setattr(server, "find_spec", lambda name: None)
    with pytest.raises(MissingToolError, match=r"pip install 'softknee\[web\]'"):
        server.check_tools()
    code, _, errors = softknee("workbench", "--no-open")
    assert code == 2
    assert "pip install 'softknee[web]'" in errors


def test_the_page_is_part_of_the_package() -> None:
    import tomllib

    settings = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    globs = settings["tool"]["setuptools"]["package-data"]["softknee"]
    packed = {path for glob in globs for path in (SOURCE / "softknee").glob(glob)}
    assert set((SOURCE / "softknee/app/workbench/static").iterdir()) <= packed


def test_the_guard_is_around_everything() -> None:
    assert isinstance(make_app(Workbench(folder=Path(), threads=1)), Guard)
