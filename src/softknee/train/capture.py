"""A step as a CUDA graph: recorded once, then replayed without the host issuing each kernel. All that is CUDA is here.

What a step reads and changes lies in tensors whose place stays the same (parameters, state of the optimiser, rate,
counters, the order of the examples), so that a replay does the next step.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor

# -- torch.compile for a method of one object among many --------------------------------------------------


def compile_method(method: Any) -> Any:
    """The bound method through torch.compile, for sizes that stay as they are.

    torch keeps eight versions of a piece of code, counted over all objects that run it, and runs what comes after them
    as it is: the fifth model that is trained with batches of two sizes would not be compiled. So each object gets a
    copy of the code, whose versions also go when it does.
    """
    plain = method.__func__
    assert not hasattr(plain, "__wrapped__")  # of a decorated method this would be the decorator's code
    copied = FunctionType(
        plain.__code__.replace(), plain.__globals__, plain.__name__, plain.__defaults__, plain.__closure__
    )
    return torch.compile(MethodType(copied, method.__self__), dynamic=False)


# -- a step as a CUDA graph -------------------------------------------------------------------------------
#
# Recorded once, then replayed without the host issuing each kernel. All that is CUDA is here.


# Kernels are compiled, and libraries take their work space, before the recording: it must not contain either.
_WARM_UP = 3


def captured(step: Callable[[], None], *, changes: Sequence[Tensor], device: torch.device) -> Callable[[], None]:
    """`step` as a graph to replay. It runs a few times to warm up, after which `changes` are put back.

    So are torch's generators: what the replays draw follows from the seed, whoever recorded them.
    """
    with torch.cuda.device(device):
        before = [one.clone() for one in changes]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.random.fork_rng(devices=[torch.cuda.current_device()]), torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                step()
                # The counters go back each time: with few steps left they would run over the end of their tables.
                for one, saved in zip(changes, before, strict=True):
                    one.copy_(saved)
        torch.cuda.current_stream().wait_stream(side)
        del before
        graph = torch.cuda.CUDAGraph()
        with _nothing_collected(), torch.cuda.graph(graph, stream=recording_stream(device)):
            step()
    return graph.replay


def recording_stream(device: torch.device) -> torch.cuda.Stream:
    """The stream that steps of this device are recorded on.

    torch has one for all, on the device of the process's first recording; what runs on another device would not be
    recorded there. Not the one of the warm-up: the work space of libraries is to be the recording's own.
    """
    return _stream_of(torch.cuda.current_device() if device.index is None else device.index)


@cache
def _stream_of(index: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(index)


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Python's collector waits. A graph of an earlier training that it found now would end this recording."""
    gc.collect()
    held = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if held:
            gc.enable()
