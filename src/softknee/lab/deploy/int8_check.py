"""Eight bits: static quantisation by onnxruntime, its accuracy, its size, and how long a batch takes.

The format is QDQ, which onnxruntime advises for CPUs: its quantiser puts QuantizeLinear/DequantizeLinear pairs around
the layers, and the runtime fuses them into integer kernels. A ReLU disappears in that: clipping at the zero point is
part of every requantisation. A smooth activation has no integer kernel: its input is converted back to floats and its
output to integers again, in every layer.

Weights are int8 with a scale per channel; activations are uint8 with one scale per tensor, from the range that the
calibration data shows. That is onnxruntime's advice for x86; on an ARM Neoverse-N1 int8 activations took the same time.
On an x86 CPU without VNNI weights have 7 bits, because it sums two products of bytes in 16 bits.
"""

from __future__ import annotations

import os
import platform
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...measure.record import Quantity
from ..bench.clock import Clock
from .layers import NotRun, need, words
from .onnx_check import Exported, predict, quiet, session

_CALIBRATION_BATCH = 64


@dataclass(frozen=True, kw_only=True)
class Int8Check:
    """Accuracy in percent, seconds per batch and bytes of file; `runs` is what is left after onnxruntime's fusions."""

    accuracy_float: float
    accuracy_int8: float
    latency_float: Quantity
    latency_int8: Quantity
    bytes_float: int
    bytes_int8: int
    runs_float: Mapping[str, int]
    runs_int8: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Quantised:
    """Both forms of a model, ready to run."""

    exported: Exported
    content: bytes
    sessions: tuple[Any, Any]
    runs: tuple[Mapping[str, int], Mapping[str, int]]


def quantise(exported: Exported, calibration: Tensor, *, threads: int) -> Quantised:
    """The model in eight bits, with the ranges that its activations have on the calibration data."""
    onnx = need("onnx", what="Quantisation")
    library = need("onnxruntime.quantization", what="Quantisation")
    batches = iter([{exported.input: part.numpy()} for part in calibration.split(_CALIBRATION_BATCH)])

    class Reader(library.CalibrationDataReader):
        def get_next(self) -> dict[str, Any] | None:
            return next(batches, None)

    with tempfile.TemporaryDirectory() as folder, quiet():
        source, target = Path(folder, "float.onnx"), Path(folder, "int8.onnx")
        source.write_bytes(exported.content)
        library.quantize_static(
            source,
            target,
            Reader(),
            quant_format=library.QuantFormat.QDQ,
            per_channel=True,
            reduce_range=seven_bits(),
            activation_type=library.QuantType.QUInt8,
            weight_type=library.QuantType.QInt8,
        )
        content = target.read_bytes()
        sessions, runs = [], []
        for name, one in (("float", exported.content), ("int8", content)):
            optimised = os.fspath(Path(folder, f"{name}-optimised.onnx"))
            sessions.append(session(one, threads=threads, optimised=optimised))
            runs.append(_operators(onnx.load(optimised)))
    return Quantised(exported=exported, content=content, sessions=tuple(sessions), runs=tuple(runs))


def seven_bits() -> bool:
    """Whether this CPU sums products of bytes in 16 bits: x86 without VNNI."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    try:
        return "vnni" not in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True  # the safe choice where the CPU cannot be asked


def race(
    models: Sequence[Quantised | NotRun],
    images: Tensor,
    labels: Tensor,
    *,
    batch: int,
    repeats: int,
    accuracy: Callable[[Tensor, Tensor], float],
) -> list[Int8Check | NotRun]:
    """Accuracy and times of all the models; they take turns, so that the machine's moods meet all alike."""
    ready = [one for one in models if isinstance(one, Quantised)]
    first = images[:batch].numpy()
    calls = [_call(running, one.exported.input, first) for one in ready for running in one.sessions]
    samples = iter(Clock(device=torch.device("cpu"), repeats=repeats).race(calls))
    results: list[Int8Check | NotRun] = []
    for model in models:
        if isinstance(model, NotRun):
            results.append(model)
            continue
        times = [next(samples), next(samples)]
        failed = next((one for one in times if isinstance(one, Exception)), None)
        if failed is not None:
            results.append(NotRun(reason=f"The quantised model did not run: {words(failed)}."))
            continue
        latency = [Quantity.median(one.device, unit="s") for one in times if not isinstance(one, Exception)]
        right = [accuracy(predict(one, model.exported.input, images), labels) for one in model.sessions]
        results.append(
            Int8Check(
                accuracy_float=right[0],
                accuracy_int8=right[1],
                latency_float=latency[0],
                latency_int8=latency[1],
                bytes_float=len(model.exported.content),
                bytes_int8=len(model.content),
                runs_float=model.runs[0],
                runs_int8=model.runs[1],
            )
        )
    return results


def _call(running: Any, name: str, images: Any) -> Callable[[], object]:
    return lambda: running.run(None, {name: images})


def _operators(proto: Any) -> dict[str, int]:
    """What runs, with onnxruntime's own operators by their bare names (QGemm, FusedConv, ...)."""
    return dict(sorted(Counter(node.op_type for node in proto.graph.node).items()))
