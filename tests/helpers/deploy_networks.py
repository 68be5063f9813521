"""Networks that the tests of the deploy checks share: one trained a little, and one written as ONNX."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from softknee.lab import networks
from softknee.lab.data.image_set import ImageSet
from softknee.lab.data.images import load_digits
from softknee.lab.deploy.marabou_check import why_not
from softknee.lab.deploy.onnx_check import Exported

WIDTHS = (64, 16, 12, 10)
needs_marabou = pytest.mark.skipif(bool(why_not()), reason=why_not())


def flat_digits() -> ImageSet:
    """The digits as rows of 64 standardised numbers."""
    digits = load_digits()
    train, test = (digits.ready(images).flatten(1) for images in (digits.train_images, digits.test_images))
    return replace(digits, train_images=train, test_images=test)


def trained(activation: str, **knobs: Any) -> nn.Sequential:
    """A few passes over the digits: enough to have most of them right."""
    digits = flat_digits()
    rows = digits.train_images
    model = networks.mlp(WIDTHS, activation=activation, seed=1, **knobs)
    adam = torch.optim.Adam(model.parameters(), lr=1e-2)
    order = torch.Generator().manual_seed(0)
    for _ in range(6):
        for part in torch.randperm(len(digits.train_labels), generator=order).split(64):
            adam.zero_grad()
            F.cross_entropy(model(rows[part]), digits.train_labels[part]).backward()
            adam.step()
    return model


def written(model: nn.Module) -> Exported:
    """Linear layers with ReLU between them as ONNX, written node by node: quicker than the exporter, and apart from it.

    A bias of 0 is left out, as the exporter does it.
    """
    import onnx

    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    nodes, weights, last = [], [], "x"
    for number, linear in enumerate(linears):
        named = {f"weight{number}": linear.weight} | ({f"bias{number}": linear.bias} if linear.bias.any() else {})
        weights += [onnx.numpy_helper.from_array(value.detach().numpy(), name) for name, value in named.items()]
        nodes.append(onnx.helper.make_node("Gemm", [last, *named], [f"sum{number}"], transB=1))
        last = f"sum{number}"
        if number < len(linears) - 1:
            nodes.append(onnx.helper.make_node("Relu", [last], [f"relu{number}"]))
            last = f"relu{number}"
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", width])
        for name, width in (("x", linears[0].in_features), (last, linears[-1].out_features))
    ]
    graph = onnx.helper.make_graph(nodes, "network", ends[:1], ends[1:], weights)
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
    return Exported(content=proto.SerializeToString(), input="x", opset=20, operators={}, foreign=())
