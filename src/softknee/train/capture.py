"""A step as a CUDA graph: recorded once, then replayed without the host issuing each kernel. All that is CUDA is here.

What a step reads and changes lies in tensors whose place stays the same (parameters, state of the optimiser, rate,
counters, the order of the examples), so that a replay does the next step.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ParameterError, first_line

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

# Kernels are compiled, and libraries take their work space, before the recording: it must not contain either.
_WARM_UP = 3


def captured(step: Callable[[], None], *, changes: Sequence[Tensor], device: torch.device) -> Callable[[], None]:
    """`step` as a graph to replay. It runs a few times to warm up, after which `changes` are put back.

    So are torch's generators: what the replays draw follows from the seed, whoever recorded them. The caller
    holds what `step` refers to (an optimiser with its state): a graph knows its tensors by their addresses alone.
    """
    with torch.cuda.device(device):
        before = [tensor.clone() for tensor in changes]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.random.fork_rng(devices=[torch.cuda.current_device()]), torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                step()
                # The counters go back each time: with few steps left they would run over the end of their tables.
                for tensor, saved in zip(changes, before, strict=True):
                    tensor.copy_(saved)
        torch.cuda.current_stream().wait_stream(side)
        del before
        graph = torch.cuda.CUDAGraph()
        with _nothing_collected(), torch.cuda.graph(graph, stream=recording_stream(device)):
            step()
    return graph.replay


class RecordedStep:
    """A step of torch's autograd and optimiser as a CUDA graph. The first steps run on a stream of their own, as what
    is to be recorded must have run before; all of them train.

    Args:
        step: from a list of batches to their loss.
        device: where everything lies.
    """

    def __init__(
        self,
        step: Callable[[list[Any]], Tensor],
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        device: torch.device,
    ) -> None:
        self.step, self.model, self.optimizer, self.device = step, model, optimizer, device
        self.parts: list[Any] | None = None
        self.graph: torch.cuda.CUDAGraph | None = None
        self.loss = torch.zeros(())
        self.trained = -1
        self.before_recording = _WARM_UP

    def __call__(self, drawn: list[Any]) -> Tensor:
        """The step on these batches, which are copied to where the first ones lay."""
        if self.parts is None:
            self.parts = [_copy_batch(batch) for batch in drawn]
        else:
            for held, batch in zip(self.parts, drawn, strict=True):
                _write_batch(held, batch)
        trained = sum(parameter.requires_grad for parameter in self.model.parameters())
        if trained != self.trained:  # at the start, and where hardening freezes parameters: it is another step then
            self.trained, self.graph, self.before_recording = trained, None, _WARM_UP
        if self.graph is not None:
            self.graph.replay()
        elif self.before_recording:
            self.before_recording -= 1
            self._aside(self.parts)
        else:
            self.graph = self._record(self.parts)
            self.graph.replay()
        return self.loss.clone()

    def _aside(self, parts: list[Any]) -> None:
        side = torch.cuda.Stream(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side), warnings.catch_warnings():
            # torch's own remark that an optimiser which can be recorded is not being recorded yet.
            warnings.filterwarnings("ignore", message="This instance was constructed with capturable")
            self.loss = self.step(parts)
        torch.cuda.current_stream(self.device).wait_stream(side)

    def _record(self, parts: list[Any]) -> torch.cuda.CUDAGraph:
        self.optimizer.zero_grad(set_to_none=True)  # the gradients' places are to be the recording's own
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.device(self.device), torch.cuda.graph(graph, stream=recording_stream(self.device)):
                self.loss = self.step(parts)
        except RuntimeError as error:
            raise ParameterError(
                f"The training step could not be recorded as a CUDA graph ({first_line(error)}). Run it step by step: "
                "capture=False, or --eager in the command."
            ) from error
        return graph


def _copy_batch(batch: Any) -> Any:
    return tuple(_copy_batch(value) for value in batch) if isinstance(batch, tuple) else batch.clone()


def _write_batch(held: Any, batch: Any) -> None:
    if not isinstance(held, tuple):
        held.copy_(batch)
        return
    for place, value in zip(held, batch, strict=True):
        _write_batch(place, value)


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
