"""The speed of every function, as a ratio to copying the same tensor, and the memory it holds.

A copy reads and writes each element once: no function can be faster, and an ideal fused one is as fast. Every
group of rows is measured beside a copy of its own, in the same run and in turns (see `clock`).
"""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

import softknee as sk

from ...devices import need_device
from ...errors import ParameterError
from ...measure.record import Quantity, Record
from ...registry import FILE_ENDING
from ..table import Table
from .candidates import VARIANTS, Candidate, candidates_for, every_function, held_per_element, too_large
from .clock import Clock, Samples, check_names, check_settings, chosen_settings, cpu_threads, why_not

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "f64": torch.float64}
BASELINE = "y.copy_(x) of the same tensor on the same device, measured in turns in the same run"
# A smaller tensor may still be in a GPU's second-level cache, which is then flushed before each sample.
_FLUSH_BELOW_BYTES = 64 * 2**20


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What to measure. `functions` and `variants` empty means all of them."""

    device: torch.device
    elements: int
    dtypes: tuple[str, ...] = ("bf16", "f32")
    functions: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    repeats: int = 25
    seconds_per_call: float = 2.0
    threads: int = field(default_factory=torch.get_num_threads)

    def __post_init__(self) -> None:
        check_names(self.dtypes, DTYPES, "dtype")
        check_names(self.variants, VARIANTS, "variant")
        check_names([name for name in self.functions if not name.endswith(FILE_ENDING)], sk.names(), "function")
        for name in self.functions:
            if name.endswith(FILE_ENDING):
                sk.load(name)
        check_settings(self, "elements", "repeats", "threads")


def measure(settings: Settings, *, command: str, report: Callable[[str], None] = lambda _: None) -> Record:
    """Measure everything that `settings` asks for; `report` is called with the name of each group first."""
    with cpu_threads(settings.threads):
        rows = [row for dtype in settings.dtypes for row in _rows_of_dtype(settings, dtype, report)]
    return Record.now(
        "bench kernels",
        command=command,
        rows=rows,
        baseline=BASELINE,
        settings=chosen_settings(settings, "elements", "repeats", "seconds_per_call", "threads")
        | {"input": "normal, mean 0, standard deviation 1"}
        | {name: value for name, value in os.environ.items() if name.startswith("MALLOC_")},
        notes=(
            "forward runs without autograd; forward_backward yields the gradients of x and all parameters",
            "held counts the bytes per element that autograd keeps for the backward pass, the input included",
            "on a GPU times are the device's own, between events; host is the time to issue one forward call",
            "faults counts the pages of memory that the system provided during a call on a CPU",
        ),
    )


def parse_elements(text: str) -> int:
    """A number of elements such as 4096, 64K, 64M or 1G, where K, M and G are powers of 1024."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text.strip().upper().replace("_", ""))
    if not match or int(match.group(1)) == 0:
        raise ParameterError(f"{text!r} is no number of elements: write it like 4096, 64K, 64M or 1G.")
    return int(match.group(1)) * 1024 ** " KMG".index(match.group(2) or " ")


def choose_device(name: str) -> torch.device:
    """The device called `name`, where "auto" is the GPU if there is one, else the CPU."""
    if name not in ("auto", "cpu", "cuda"):
        raise ParameterError(f"There is no device choice {name!r}: it is auto, cpu or cuda.")
    if name == "cuda":
        return need_device(name, cures="use --device cpu, or run where there is one")
    return torch.device("cuda" if torch.cuda.is_available() and name == "auto" else "cpu")


def _rows_of_dtype(settings: Settings, dtype: str, report: Callable[[str], None]) -> Iterable[dict[str, Any]]:
    """The groups of one dtype: torch's own functions, then ours, each beside a copy."""
    variants = settings.variants or VARIANTS
    own = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu} if "torch" in variants else {}
    references = [Candidate(function=name, variant="torch", call=call) for name, call in own.items()]
    report(f"torch's own, {dtype}")
    yield from _race(settings, dtype, references, with_copy=True)
    for name in settings.functions or every_function():
        report(f"{name}, {dtype}")
        # Compiled graphs are cached per code object, and all definitions share one: start afresh for each.
        torch.compiler.reset()
        group = list(candidates_for(name, variants=variants, device=settings.device, dtype=DTYPES[dtype]))
        # Apart: a rival that fills the memory would make ours wait for the allocator in every round.
        for ours in (True, False):
            part = [candidate for candidate in group if candidate.variant.startswith("softknee") == ours]
            yield from _race(settings, dtype, part, with_copy=False)


def _race(
    settings: Settings, dtype: str, candidates: Sequence[Candidate], *, with_copy: bool
) -> Iterable[dict[str, Any]]:
    """The rows of one group: one for the copy with `with_copy`, and one for each candidate, measured or not."""
    if not candidates and not with_copy:
        return
    like = {"device": settings.device, "dtype": DTYPES[dtype]}
    generator = torch.Generator(device=settings.device).manual_seed(0)
    x = torch.randn(settings.elements, generator=generator, **like).requires_grad_()
    incoming, target = torch.ones(settings.elements, **like), torch.empty(settings.elements, **like)
    clock = Clock(
        device=settings.device,
        repeats=settings.repeats,
        seconds_per_call=settings.seconds_per_call,
        flush=settings.device.type == "cuda" and x.nbytes < _FLUSH_BELOW_BYTES,
    )
    plain = x.detach()
    refusals = [too_large(candidate, x) for candidate in candidates]
    fit = [candidate for candidate, refusal in zip(candidates, refusals, strict=True) if refusal is None]
    forwards = [torch.no_grad()(lambda candidate=candidate: candidate.forward(plain)) for candidate in fit]
    # The gradients of everything, returned and not accumulated: an addition would be timed.
    wanted = [[x, *candidate.parameters.values()] for candidate in fit]
    steps = [
        lambda candidate=candidate, inputs=inputs: torch.autograd.grad(candidate.forward(x), inputs, incoming)
        for candidate, inputs in zip(fit, wanted, strict=True)
    ]
    copy, *timed = clock.race([lambda: target.copy_(plain), *forwards, *steps])
    if isinstance(copy, Exception):
        raise copy
    shared = {"dtype": dtype, "elements": settings.elements}
    time = Quantity.median(copy.device, unit="s")
    if with_copy:
        yield {"function": "copy", "variant": "copy", **shared, "time": time}
    measured = iter(zip(timed[: len(fit)], timed[len(fit) :], strict=True))
    for candidate, refusal in zip(candidates, refusals, strict=True):
        row = {"function": candidate.function, "variant": candidate.variant, **shared}
        if refusal is not None:
            yield row | {"not_run": refusal}
            continue
        forward, step = next(measured)
        held = held_per_element(candidate, x)
        yield row | _results(forward, step, time.value) | ({} if held is None else {"held": held})
    gc.collect()
    if settings.device.type == "cuda":
        torch.cuda.empty_cache()


def _results(forward: Samples | Exception, step: Samples | Exception, copy: float) -> dict[str, Quantity | str]:
    row: dict[str, Quantity | str] = {}
    for name, samples in (("forward", forward), ("forward_backward", step)):
        if isinstance(samples, Samples):
            row[name] = Quantity.median([seconds / copy for seconds in samples.device], unit="x copy")
            if any(samples.faults):
                row[f"{name}_faults"] = Quantity.median(samples.faults, unit="pages")
    if isinstance(forward, Samples):
        row["host"] = Quantity.median([seconds * 1e6 for seconds in forward.host], unit="us")
    failures = {why_not(result): None for result in (forward, step) if isinstance(result, Exception)}
    return row | ({"not_run": " ".join(failures)} if failures else {})


# -- the record as tables: one for each dtype, a line for each function, a column for each variant --------

_COLUMNS = {
    "softknee eager": "softknee",
    "softknee compiled": "compiled",
    "pseudocode eager": "pseudocode",
    "pseudocode compiled": "pseudocode compiled",
}


def tables(record: Record) -> list[Table]:
    """One table for each dtype of the record, in the order in which they were measured."""
    dtypes = dict.fromkeys(row["dtype"] for row in record.rows)
    return [_table(record, dtype, [row for row in record.rows if row["dtype"] == dtype]) for dtype in dtypes]


def _table(record: Record, dtype: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    measured = {(row["function"], row["variant"]): row for row in rows}
    columns = [name for name in _COLUMNS if any(row["variant"] == name for row in rows)]
    lines = []
    for function in dict.fromkeys(row["function"] for row in rows if row["variant"] in _COLUMNS):
        variants = [measured.get((function, column), {}) for column in columns]
        held = "/".join(f"{row['held']:.0f}" if "held" in row else "-" for row in variants)
        lines.append((function, *map(_pair, variants), held, _widest_spread(variants)))
    where = record.hardware.gpu if record.settings["device"] == "cuda" else record.hardware.cpu
    return Table(
        title=f"{dtype}, {_count(record.settings['elements'])} elements, {where}",
        head=("function", *(_COLUMNS[column] for column in columns), "bytes held", "spread"),
        rows=lines,
        remarks=_remarks(record, rows),
        markup=True,
    )


def _remarks(record: Record, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    remarks = [
        "Cells are forward / forward+backward with all parameter gradients, as multiples of a copy of "
        "the same tensor; bytes held for backward are per element, in the order of the columns; spread "
        "is the widest half interquartile range of the line.",
    ]
    if own := [f"{row['function']} {_pair(row)}" for row in rows if row["variant"] == "torch"]:
        remarks.append("torch's own: " + ", ".join(own) + ".")
    for copy in (row["time"] for row in rows if row["variant"] == "copy"):
        low, middle, high = (f"{1e6 * seconds:.1f}" for seconds in (copy.low, copy.value, copy.high))
        remarks.append(f"The copy takes {middle} us (quartiles {low} to {high}).")
    missing: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if "not_run" in row:
            missing.setdefault((row["variant"], row["not_run"]), []).append(row["function"])
    for (variant, reason), functions in missing.items():
        remarks.append(f"Did not run as {variant}: {', '.join(functions)}. {reason}")
    remarks.append(f"{record.hardware.sentence()}; {record.versions.sentence()}; {record.created}.")
    return remarks


def _pair(row: Mapping[str, Any]) -> str:
    """Forward / forward+backward, both as multiples of a copy."""
    if not row or not ("forward" in row or "forward_backward" in row):
        return "not run" if row else "-"
    ratios = [row[name].value if name in row else None for name in ("forward", "forward_backward")]
    return " / ".join(
        "not run" if ratio is None else f"{ratio:,.{2 if ratio < 10 else 1 if ratio < 100 else 0}f}" for ratio in ratios
    )


def _widest_spread(rows: Sequence[Mapping[str, Any]]) -> str:
    measured = [row[name] for row in rows for name in ("forward", "forward_backward") if name in row]
    spreads = [quantity.spread / quantity.value for quantity in measured if quantity.value > 0]
    return f"{100 * max(spreads):.1f}%" if spreads else "-"


def _count(elements: int) -> str:
    for size, letter in ((2**30, "G"), (2**20, "M"), (2**10, "K")):
        if elements % size == 0:
            return f"{elements // size}{letter}"
    return str(elements)
