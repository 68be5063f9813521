"""Processes that compute the jobs of the page, with a time limit that always works: a late process is killed.

A formula of a stranger can keep SymPy or a proof busy for ever, in C code that no exception reaches. Each job therefore
runs in a worker; one that is late is killed and replaced, which takes milliseconds, because new ones are forked from a
server process that has everything imported. A worker that has seen many functions is replaced too: what is compiled for
a function is never forgotten while a process lives.
"""

from __future__ import annotations

import asyncio
import json
import math
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ...errors import SoftkneeError
from ...lab.gallery import names
from ...registry import get
from .cost import cost
from .export import picture, take
from .inputs import depth, entropy, shape, uploaded
from .reading import refusal
from .sheet import LONGER, certificate, curve, formulas


def zoo(query: dict[str, Any]) -> dict[str, Any]:
    """The functions to pick from."""
    return {"functions": [{"name": name, "about": get(name).about} for name in names()]}


JOBS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "zoo": zoo,
    "curve": curve,
    "formulas": formulas,
    "certificate": certificate,
    "entropy": entropy,
    "depth": depth,
    "cost": cost,
    "shape": shape,
    "take": take,
    "picture": picture,
    "uploaded": uploaded,
}


def answer(job: str, query: dict[str, Any]) -> tuple[int, bytes]:
    """The status and the JSON of an answer; an error is one too, with its sentence and its place in the text."""
    try:
        return 200, _json(JOBS[job](query))
    except SoftkneeError as error:
        function = query.get("function")
        text = function.get("text", "") if isinstance(function, dict) else ""
        return 422, _json(refusal(error, text if isinstance(text, str) else ""))
    except (MemoryError, RecursionError, OverflowError):
        return 422, _json({"error": "This function is too large to be worked with here; write a smaller one."})
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        message = f"This could not be computed ({type(error).__name__}). Try other numbers, or another function."
        return 422, _json({"error": message})


def _json(content: dict[str, Any]) -> bytes:
    try:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:  # a number that is not finite
        return json.dumps(_finite(content), allow_nan=False, separators=(",", ":")).encode()


def _finite(value: Any) -> Any:
    """The same value with None in the place of each number that is not finite."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


_PRELOADED = "softknee.app.workbench.workers"
_MOST_WAITING = 60
_BOOT_SECONDS = 120.0
_MOST_FUNCTIONS = 150  # of one worker before it is replaced
_MEMORY = 6 * 2**30  # bytes that a worker may ask for
# Seconds for each job. A curve takes milliseconds, but the derivatives of a new function may take some seconds once.
LIMITS = {
    "curve": 20.0,
    "shape": 5.0,
    "entropy": 15.0,
    "certificate": 30.0,
    "depth": 45.0,
    "cost": 45.0,
    "take": 30.0,
    "picture": 30.0,
    "uploaded": 30.0,
    "zoo": 30.0,
    "formulas": 40.0,
}
Answer = tuple[int, bytes]
Gone = Callable[[], Coroutine[Any, Any, None]]  # waits until whoever asked has gone


def context() -> Any:
    """How processes are started: forked from a clean server where the system can, spawned elsewhere."""
    methods = multiprocessing.get_all_start_methods()
    chosen: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if hasattr(chosen, "set_forkserver_preload"):
        chosen.set_forkserver_preload([_PRELOADED])
    return chosen


def sentence(text: str, status: int = 503, **more: Any) -> Answer:
    """An answer that is a sentence."""
    return status, json.dumps({"error": text, **more}).encode()


class _Worker:
    def __init__(self, started: Any, nice: int) -> None:
        self._context, self._nice = started, nice
        self.functions: dict[str, None] = {}
        self._process: Any = None
        self._pipe: Any = None
        self._lock = threading.Lock()
        self._ending = False

    def ask(self, job: str, query: dict[str, Any], seconds: float) -> Answer:
        """The answer, or a sentence that says why there is none."""
        with self._lock:
            return self._ask(job, query, seconds)

    def hurry(self) -> None:
        """End the process from outside, whoever waits for it; there will be no other."""
        self._ending = True
        self.interrupt()

    def interrupt(self) -> None:
        """End the process from outside, because nobody waits for its answer."""
        process = self._process
        if process is not None and process.pid is not None:
            process.kill()

    def _ask(self, job: str, query: dict[str, Any], seconds: float) -> Answer:
        if self._ending:
            return sentence("The workbench is ending.")
        try:
            if self._process is None or not self._process.is_alive() or len(self.functions) > _MOST_FUNCTIONS:
                self.stop()
                self._start()
            self._pipe.send((job, query))
            if self._pipe.poll(seconds):
                return self._pipe.recv()
        except (EOFError, OSError):
            self.stop()
            return sentence("The computation ended early, perhaps for want of memory; write a smaller function.", 422)
        self.stop()
        stopped = f"This took longer than {seconds:g} s and was stopped; write a simpler function."
        return sentence(stopped, 422, out_of_time=True)

    def _start(self) -> None:
        self._pipe, theirs = self._context.Pipe()
        self._process = self._context.Process(target=_serve, args=(theirs, self._nice), daemon=True)
        self._process.start()
        theirs.close()
        if not self._pipe.poll(_BOOT_SECONDS):
            raise EOFError
        self._pipe.recv()

    def stop(self) -> None:
        """End the process now, whatever it is doing."""
        self.functions.clear()
        if self._process is not None:
            if self._process.pid is not None:
                self._process.kill()
                self._process.join(5)
            self._pipe.close()
            self._process = None


class Workers:
    """Several workers; a job waits for a free one, preferably one that knows the function already."""

    def __init__(self, count: int, *, nice: int = 0) -> None:
        self._all = [_Worker(context(), nice) for _ in range(count)]
        self._idle = list(self._all)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="workbench")
        self._freed: asyncio.Condition | None = None
        self._waiting = 0

    def warm(self) -> None:
        """Start the first worker in the background, so that the page does not wait for it."""
        worker = self._all[0]
        threading.Thread(target=worker.ask, args=("zoo", {}, _BOOT_SECONDS), daemon=True).start()

    async def ask(self, job: str, query: dict[str, Any], gone: Gone | None = None) -> Answer:
        """The status and the JSON of the answer to one job; nothing is computed for someone who has gone meanwhile."""
        if self._waiting > _MOST_WAITING:
            return sentence("Too many are asking at once; try again in a moment.")
        left = asyncio.ensure_future(gone() if gone is not None else asyncio.Event().wait())
        try:
            return await self._ask(job, query, left)
        finally:
            left.cancel()

    async def _ask(self, job: str, query: dict[str, Any], left: asyncio.Future[Any]) -> Answer:
        self._freed = self._freed or asyncio.Condition()
        function = query.get("function")
        text = function.get("text") if isinstance(function, dict) else None
        self._waiting += 1
        try:
            async with self._freed:
                await self._freed.wait_for(lambda: bool(self._idle))
                worker = next((idle for idle in self._idle if text in idle.functions), self._idle[0])
                self._idle.remove(worker)
        finally:
            self._waiting -= 1
        if isinstance(text, str):
            worker.functions[text[:4000]] = None
        loop = asyncio.get_running_loop()
        try:
            if left.done():
                return sentence("Nobody waits for this any longer.", 499)
            seconds = LIMITS[job] * (LONGER if query.get("longer") else 1)
            answer = loop.run_in_executor(self._threads, worker.ask, job, query, seconds)
            await asyncio.wait({answer, left}, return_when=asyncio.FIRST_COMPLETED)
            while not answer.done():  # more than once where its process is only being started
                worker.interrupt()
                await asyncio.wait({answer}, timeout=0.05)
            return await answer
        finally:
            # At the end: the one that has rested longest comes first, and all share the work of new functions.
            async with self._freed:
                self._idle.append(worker)
                self._freed.notify()

    def hurry(self) -> None:
        """Answer everybody now, because the server is ending."""
        for worker in self._all:
            worker.hurry()

    def close(self) -> None:
        """End every worker."""
        self.hurry()
        for worker in self._all:
            worker.stop()
        self._threads.shutdown(wait=False, cancel_futures=True)


def begin_nursery() -> None:
    """Start the process that new ones are forked from, with Ctrl-C blocked, which is for the server.

    By itself it would ignore Ctrl-C only after its imports, which take seconds.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return
    from multiprocessing import forkserver, resource_tracker

    resource_tracker.ensure_running()  # started on the way otherwise, it would unblock the signal again
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def end_nursery() -> None:
    """End the process that new ones are forked from: it may still be importing, and would outlive the command."""
    from multiprocessing import forkserver

    pid = getattr(getattr(forkserver, "_forkserver", None), "_forkserver_pid", None)
    if pid is not None:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _serve(pipe: Connection, nice: int) -> None:
    """The life of a worker: a job, its answer, the next."""
    if hasattr(os, "nice"):
        os.nice(nice)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends its workers itself
    _limit_memory()
    import torch

    torch.set_num_threads(1)
    with suppress(EOFError, OSError):  # the server has gone
        pipe.send("ready")
        while True:
            job, query = pipe.recv()
            pipe.send(answer(job, query))


def _limit_memory() -> None:
    if sys.platform != "linux":
        return
    import resource

    have = os.sysconf("SC_PAGE_SIZE") * int(Path("/proc/self/statm").read_text().split()[5])
    resource.setrlimit(resource.RLIMIT_DATA, (have + _MEMORY, have + _MEMORY))
