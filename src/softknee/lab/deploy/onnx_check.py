"""ONNX: which operators an exported model needs, and whether onnxruntime computes the same with them."""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .layers import BATCH, need

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
    opset = next(one.version for one in proto.opset_import if one.domain in _STANDARD)
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
    for one in (proto, graph, *graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer):
        one.ClearField("metadata_props")
        one.ClearField("doc_string")


def check_onnx(exported: Exported, images: Tensor, expected: Tensor) -> OnnxCheck:
    """Run the export on the data and compare with what torch computes."""
    found = predict(session(exported.content, threads=1), exported.input, images)
    return OnnxCheck(
        opset=exported.opset,
        operators=exported.operators,
        foreign=exported.foreign,
        bytes=len(exported.content),
        difference=float((found - expected).abs().max()),
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
