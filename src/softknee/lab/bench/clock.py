"""Times calls and counts what autograd holds, on a CPU and on a GPU, in a way that compares fairly.

The calls to be compared take turns, one sample each per round, so that a change of the clock rate or of the
load meets all of them alike; in each round in another order, as what came before decides what the caches hold.
On a GPU the time is the device's own, between two events; a short wait queued before the first event lets the
host run ahead, so that launching is not counted as work of the device (it is measured beside it, as `host`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...errors import ParameterError, did_you_mean, first_line
from ...measure.record import Quantity, Record, without_paths

try:
    import resource
except ImportError:  # Windows has none
    resource = None

# A GPU's second-level cache holds 50 MiB or so; writing several times that leaves nothing else in it.
_FLUSH_BYTES = 256 * 2**20
# Clock cycles per second assumed for the wait that is queued ahead; a GPU is rather slower, and waits longer.
_CYCLES_PER_SECOND = 2e9
_FEWEST_SAMPLES = 3


@dataclass(frozen=True, kw_only=True)
class Samples:
    """The times of one call in seconds: on the device, and for the host to issue it.

    On a CPU `faults` are the pages of memory that the system had to provide meanwhile.
    """

    device: tuple[float, ...]
    host: tuple[float, ...]
    faults: tuple[int, ...]

    @classmethod
    def of(cls, samples: Sequence[tuple[float, float, int]]) -> Samples:
        device, host, faults = zip(*samples, strict=True)
        return cls(device=device, host=host, faults=faults)


@dataclass(frozen=True, kw_only=True)
class Clock:
    """How often to measure, and for how long at most: a slow call gets fewer samples, never fewer than 3."""

    device: torch.device
    repeats: int = 25
    seconds_per_call: float = 2.0
    flush: bool = False
    ahead: float = 2e-3  # seconds that a GPU waits at first, for the host to run ahead; 0 counts the host's delays too

    def race(self, calls: Sequence[Callable[[], object]]) -> list[Samples | Exception]:
        """The samples of every call, taken in turns; a call that fails gives the exception it raised."""
        buffer = torch.empty(_FLUSH_BYTES, dtype=torch.int8, device=self.device) if self.flush else None
        samples: list[list[tuple[float, float, int]]] = [[] for _ in calls]
        errors: dict[int, Exception] = {}
        wanted = [1] * len(calls)  # until a call was warmed up
        order, shuffle = list(enumerate(calls)), random.Random(0).shuffle
        for turn in range(self.repeats + 1):
            for index, call in order:
                if index in errors or turn > wanted[index]:
                    continue
                try:
                    if turn == 0:
                        affordable = int(self.seconds_per_call / max(self._warm_up(call), 1e-9))
                        wanted[index] = min(self.repeats, max(_FEWEST_SAMPLES, affordable))
                    else:
                        samples[index].append(self._sample(call, buffer))
                except Exception as error:
                    errors[index] = error
                    if self.device.type == "cuda":
                        torch.cuda.empty_cache()
            shuffle(order)
        return [errors.get(index) or Samples.of(pairs) for index, pairs in enumerate(samples)]

    def _warm_up(self, call: Callable[[], object]) -> float:
        """Compile, fill caches and pools; returns the seconds of the last call."""
        seconds = self._wall(call)
        for _ in range(2):
            if seconds > self.seconds_per_call:
                # Once more, since the first call may have spent its time in a compiler.
                return self._wall(call)
            seconds = self._wall(call)
        return seconds

    def _wall(self, call: Callable[[], object]) -> float:
        start = now(self.device)
        call()
        return now(self.device) - start

    def _sample(self, call: Callable[[], object], buffer: Tensor | None) -> tuple[float, float, int]:
        if self.device.type != "cuda":
            faults = _page_faults()
            start = time.perf_counter()
            call()
            seconds = time.perf_counter() - start
            return seconds, seconds, _page_faults() - faults
        if buffer is not None:
            buffer.zero_()
        torch.cuda.synchronize(self.device)
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.device(self.device):
            # 2 ms cover the launches of everything but long chains, whose device time dwarfs their launches. (A
            # backward pass is issued by a thread of its own, which alone can take half a millisecond to wake.)
            if self.ahead:
                torch.cuda._sleep(int(self.ahead * _CYCLES_PER_SECOND))
            first.record()
            start = time.perf_counter()
            call()
            host = time.perf_counter() - start
            last.record()
        torch.cuda.synchronize(self.device)
        return first.elapsed_time(last) / 1e3, host, 0


def _page_faults() -> int:
    return 0 if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def check_settings(settings: Any, *names: str) -> None:
    """Refuse settings of which one of these is below 1."""
    for name in names:
        if getattr(settings, name) < 1:
            raise ParameterError(f"The benchmark needs {name} of at least 1, not {getattr(settings, name)}.")


def check_names(names: Iterable[str], known: Iterable[str], what: str) -> None:
    """Refuse a name that is not among the known ones."""
    known = tuple(known)
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or f" Known are {', '.join(known)}."
            raise ParameterError(f"There is no {what} called {name!r} to measure.{hint}")


def check_counts(counts: Sequence[int], what: str) -> None:
    """Refuse numbers of models that are below 1 or occur twice."""
    if not counts or min(counts) < 1 or len(set(counts)) < len(counts):
        raise ParameterError(f"The benchmark needs different numbers of {what}, each at least 1, and got {counts}.")


def chosen_settings(settings: Any, *names: str) -> dict[str, Any]:
    """The device and these settings, for a record."""
    return {"device": settings.device.type} | {name: getattr(settings, name) for name in names}


def machine(record: Record) -> str:
    """What a record was measured on, for the title of a table."""
    if record.settings["device"] == "cuda":
        return record.hardware.gpu or "cuda"
    threads = record.settings.get("threads")
    return record.hardware.cpu if threads is None else f"CPU, {threads} threads"


def failures(record: Record, *names: str) -> list[str]:
    """A sentence for each row that was not run, which these columns name."""
    rows = [row for row in record.rows if "not_run" in row]
    return [f"{', '.join(str(row[name]) for name in names)}: {row['not_run']}" for row in rows]


@contextmanager
def cpu_threads(count: int) -> Iterator[None]:
    """Within it torch has so many CPU threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def matmul_precision(name: str) -> Iterator[None]:
    """Within it torch computes products of float32 in this precision: "highest", "high" (TF32 on a GPU) or "medium"."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def now(device: torch.device) -> float:
    """The host's clock in seconds, once everything given to the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def put_time(row: dict[str, Any], name: str, samples: Samples | Exception, *, count: int = 1) -> None:
    """The median time of one of `count` things done in a sample, in ms, into a row; or why there is none."""
    if isinstance(samples, Exception):
        row["not_run"] = why_not(samples)
    else:
        row[name] = Quantity.median([1e3 * seconds / count for seconds in samples.device], unit="ms")


def why_not(error: Exception) -> str:
    """Why something did not run, in one line, without paths: what a record says under "not_run"."""
    if isinstance(error, torch.OutOfMemoryError):
        return "It ran out of memory."
    return f"{type(error).__name__}: {without_paths(first_line(error))[:200]}"


def bytes_held(call: Callable[[], Tensor], *, excluded: Sequence[Tensor] = ()) -> int:
    """The bytes that autograd keeps alive between the forward and the backward pass of `call`.

    Each storage counts once, however many saved tensors share it; those of `excluded` (the parameters) do not
    count. Seen are the tensors saved by torch's operations and by custom functions, whether these used
    `save_for_backward` or simply kept a tensor on their context.
    """
    saved: dict[int, Tensor] = {}

    def note(tensor: Tensor) -> Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        output = call()
    _note_context_attributes(output, note)
    addresses = {tensor.untyped_storage().data_ptr() for tensor in excluded}
    return sum(held.untyped_storage().nbytes() for address, held in saved.items() if address not in addresses)


def _note_context_attributes(output: Tensor, note: Callable[[Tensor], Tensor]) -> None:
    """Tensors that custom functions keep as plain attributes, out of reach of the saving hooks."""
    waiting, seen = [output.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        waiting.extend(following for following, _ in node.next_functions)
        for value in getattr(node, "__dict__", {}).values():
            if isinstance(value, Tensor):
                note(value)
