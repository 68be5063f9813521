"""Processes for tests that need several, forked from a server that imports torch and the package once for all.

A process that is started anew spends seconds on these imports. The server has imported them and done nothing else, so
that its children differ from new processes in nothing that these tests look at.
"""

import functools
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing import forkserver
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp

_IMPORTED = [
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "softknee.nn",
    "softknee.surgery",
    "softknee.train",
    "softknee.wire",
    "softknee.lab.searching",
    "sklearn.model_selection",  # brings the digits
]
_SECONDS = 1800  # for all processes of a test; on an idle machine they need a few


@functools.cache
def context() -> Any:
    """Of `multiprocessing`: what `context().Process` starts comes from the server.

    The environment of such a process is the server's, with a seed of its own for Python's hashes; what differs is set
    in the process itself. Where the workbench was tested before, its server is there already and serves here, too,
    with fewer imports done.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        patch.setenv("PYTHONHASHSEED", "4711")
        multiprocessing.set_forkserver_preload(_IMPORTED)
        forkserver.ensure_running()
    return mp.get_context("forkserver")


def run(
    function: Callable[..., None], *arguments: Any, count: int = 2, environment: Mapping[str, str] | None = None
) -> None:
    """Call `function(rank, *arguments)` in so many processes; what one of them raises is raised here."""
    context()
    started = mp.start_processes(
        _call, (function, arguments, dict(environment or {})), nprocs=count, join=False, start_method="forkserver"
    )
    assert started is not None
    end = time.monotonic() + _SECONDS
    while not started.join(timeout=5):
        if time.monotonic() > end:
            for process in started.processes:
                process.kill()
            raise AssertionError(f"The processes did not finish within {_SECONDS} seconds.")


def _call(rank: int, function: Callable[..., None], arguments: tuple[Any, ...], environment: dict[str, str]) -> None:
    os.environ |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"} | environment
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # the workbench's server blocks it
    torch.set_num_threads(1)
    function(rank, *arguments)


def execute(rank: int, program: str, *arguments: str) -> None:
    """For `run`: a program that stands in a test as text, with its arguments."""
    sys.argv = ["program", *arguments]
    exec(compile(program, "program", "exec"), {"__name__": "__main__"})
