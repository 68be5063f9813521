"""ONNX: which operators an exported model needs, and whether onnxruntime computes the same with them."""

from __future__ import annotations

import logging
import os
import platform
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...measure.record import Quantity
from ..bench.clock import Clock
from .layers import BATCH, NotRun, need, words

_STANDARD = ("", "ai.onnx")


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A model as ONNX: its bytes, the name of its input, its operators."""

    content: bytes
    input: str
    opset: int
    operators: Mapping[str, int]
    foreign: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class OnnxCheck:
    """operators: how often each is used. foreign: those that are not in the standard (domain ai.onnx).

    difference: the largest abs(onnxruntime - torch) over all outputs of the test data.
    """

    opset: int
    operators: Mapping[str, int]
    foreign: tuple[str, ...]
    bytes: int
    difference: float


def export(model: nn.Module, example: Tensor) -> Exported:
    """The model as ONNX with a free batch size, by torch's exporter."""
    onnx = need("onnx", what="The export to ONNX")
    need("onnxscript", what="The export to ONNX")
    with quiet():
        program = torch.onnx.export(
            model, (example,), dynamo=True, verbose=False, dynamic_shapes=({0: torch.export.Dim("batch")},)
        )
    assert program is not None
    proto = program.model_proto
    _strip(proto)
    opset = next(entry.version for entry in proto.opset_import if entry.domain in _STANDARD)
    nodes = [*proto.graph.node, *(node for function in proto.functions for node in function.node)]
    names = [f"{node.domain}:{node.op_type}" if node.domain not in _STANDARD else node.op_type for node in nodes]
    known = {name: onnx.defs.has(name, opset) for name in names if ":" not in name}
    return Exported(
        content=proto.SerializeToString(),
        input=proto.graph.input[0].name,
        opset=opset,
        operators=dict(sorted(Counter(names).items())),
        foreign=tuple(sorted({name for name in names if not known.get(name, False)})),
    )


def _strip(proto: Any) -> None:
    """Take out what the exporter writes for debugging: it says where the code lies, and can outweigh a small model."""
    graph = proto.graph
    for part in (proto, graph, *graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")


def check_onnx(exported: Exported, images: Tensor, expected: Tensor) -> OnnxCheck:
    """Run the export on the data and compare with what torch computes."""
    outputs = predict(session(exported.content, threads=1), exported.input, images)
    return OnnxCheck(
        opset=exported.opset,
        operators=exported.operators,
        foreign=exported.foreign,
        bytes=len(exported.content),
        difference=float((outputs - expected).abs().max()),
    )


def session(content: bytes, *, threads: int, optimised: str | None = None) -> Any:
    """An onnxruntime session on the CPU; `optimised` is where to write the graph that really runs."""
    runtime = need("onnxruntime", what="Running ONNX")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # warns, otherwise, that a graph optimised for this CPU should not be shipped
    if optimised is not None:
        options.optimized_model_filepath = optimised
    return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def predict(running: Any, name: str, images: Tensor) -> Tensor:
    """The outputs of a session for all images."""
    parts = [running.run(None, {name: part.numpy()})[0] for part in images.split(BATCH)]
    return torch.cat([torch.from_numpy(part) for part in parts])


@contextmanager
def quiet() -> Iterator[None]:
    """Without the tools' advice to their own developers; errors still come."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


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
        for name, model in (("float", exported.content), ("int8", content)):
            optimised = os.fspath(Path(folder, f"{name}-optimised.onnx"))
            sessions.append(session(model, threads=threads, optimised=optimised))
            # With onnxruntime's own operators by their bare names (QGemm, FusedConv, ...).
            counts = Counter(node.op_type for node in onnx.load(optimised).graph.node)
            runs.append(dict(sorted(counts.items())))
    return Quantised(exported=exported, content=content, sessions=tuple(sessions), runs=tuple(runs))


def seven_bits() -> bool:
    """Whether this CPU sums products of bytes in 16 bits: x86 without VNNI."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    try:
        return "vnni" not in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True  # the safe choice where the CPU is not known


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
    ready = [model for model in models if isinstance(model, Quantised)]
    first = images[:batch].numpy()
    calls = [
        lambda running=running, name=quantised.exported.input: running.run(None, {name: first})
        for quantised in ready
        for running in quantised.sessions
    ]
    samples = iter(Clock(device=torch.device("cpu"), repeats=repeats).race(calls))
    results: list[Int8Check | NotRun] = []
    for model in models:
        if isinstance(model, NotRun):
            results.append(model)
            continue
        times = [next(samples), next(samples)]
        failed = next((time for time in times if isinstance(time, Exception)), None)
        if failed is not None:
            results.append(NotRun(reason=f"The quantised model did not run: {words(failed)}."))
            continue
        latency = [Quantity.median(time.device, unit="s") for time in times if not isinstance(time, Exception)]
        right = [accuracy(predict(quantised, model.exported.input, images), labels) for quantised in model.sessions]
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
