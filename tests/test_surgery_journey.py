"""The whole way of a new user: swap, train with the right groups, harden, replace by ReLU, export, run elsewhere."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn

import softknee as sk
from softknee.surgery.modules import activation_modules

pytestmark = pytest.mark.slow
STEPS, FREE, TOLERANCE = 24, 6, 5e-3  # a quarter of the steps is free

VIT = {"img_size": 16, "patch_size": 4, "embed_dim": 32, "depth": 3, "num_heads": 2, "num_classes": 5}
GPT2 = {"n_layer": 3, "n_head": 2, "n_embd": 32, "n_positions": 16, "vocab_size": 40}
GPT2 |= {"bos_token_id": 0, "eos_token_id": 0, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}


class Logits(nn.Module):
    """What an exporter wants of a model of transformers: tensors in, one tensor out."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.model(input_ids=input_ids, use_cache=False).logits


class Journey:
    """What differs between the two models, and nothing else."""

    def __init__(self, kind: str) -> None:
        torch.manual_seed(0)
        draw = torch.Generator().manual_seed(0)
        self.kind = kind
        if kind == "vit":
            self.model: Any = timm.create_model("vit_tiny_patch16_224", **VIT)
            self.x: Any = torch.randn(16, 3, 16, 16, generator=draw)
            self.labels = torch.randint(5, (16,), generator=draw)
            # The function of the paper with its own distance, E(lam) = 2/(lam sqrt(2 pi)).
            self.activation, self.knob, self.target = "lambda_gelu", "lam", 2 / (TOLERANCE * math.sqrt(2 * math.pi))
        else:
            self.model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2))
            self.x = {"input_ids": torch.randint(40, (8, 12), generator=draw)}
            self.labels = self.x["input_ids"]
            # sup |srelu - relu| = 3 delta/16
            self.activation, self.knob, self.target = "srelu", "delta", 16 * TOLERANCE / 3

    def logits(self, model: nn.Module) -> Tensor:
        return model(self.x) if self.kind == "vit" else model(**self.x).logits

    def loss(self, model: nn.Module) -> Tensor:
        if self.kind == "vit":
            return F.cross_entropy(self.logits(model), self.labels)
        return model(**self.x, labels=self.labels).loss

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> float:
        return self.loss(model.eval()).item()

    def stock(self) -> nn.Module:
        """The library's own model with ReLU."""
        if self.kind == "vit":
            return timm.create_model("vit_tiny_patch16_224", act_layer=nn.ReLU, **VIT)
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2, activation_function="relu"))

    def second_layer(self, path: str) -> tuple[nn.Module, Tensor]:
        """The linear layer that follows an activation, and its weights with one row for each output."""
        mlp = self.model.get_submodule(path.rpartition(".")[0])
        return (mlp.fc2, mlp.fc2.weight) if self.kind == "vit" else (mlp.c_proj, mlp.c_proj.weight.T)

    def knobs(self) -> list[float]:
        return [getattr(module, self.knob).item() for module in activation_modules(self.model).values()]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning:torch")
@pytest.mark.parametrize("kind", ["vit", "gpt2"])
def test_the_whole_way(kind: str, tmp_path: Path):
    """Step after step on one model, each with what it promises. (The ONNX exporter warns about its own parts.)"""
    go = Journey(kind)
    model = go.model

    # Swap: every site, by the function that it computes.
    report = sk.swap_(model, go.activation, replacing="gelu", learn=True, example=go.x, **{go.knob: 1.5})
    paths = [site.path for site in report.changed]
    assert len(paths) == 3
    assert not report.skipped
    assert report.output_change is not None
    assert report.output_change > 0

    # Train with groups: hardness without decay and with nine times the rate.
    groups = sk.param_groups(model, lr=2e-3, weight_decay=0.05)
    (own,) = [group for group in groups if group["name"] == "activations"]
    assert len(own["params"]) == 3
    assert (own["lr"], own["weight_decay"]) == (pytest.approx(0.018), 0.0)
    optimiser = torch.optim.AdamW(groups)

    # Harden: free for a quarter, then straight to the target.
    hardener = sk.Hardener(model, total=STEPS, tolerance=TOLERANCE)
    start = go.evaluate(model)
    trace = []
    for step in range(1, STEPS + 1):
        hardener.step(step)
        model.train()
        optimiser.zero_grad()
        go.loss(model).backward()
        optimiser.step()
        trace.append(go.knobs())
        if step == FREE:
            unhardened = {key: value.clone() for key, value in model.state_dict().items()}
    learned = trace[FREE - 1]
    assert all(abs(value - 1.5) > 1e-3 for value in learned)
    assert len(set(learned)) == 3  # each block has learned its own
    for step, knobs in enumerate(trace[FREE:], start=1):
        share = step / (STEPS - FREE)
        assert knobs == pytest.approx([k + share * (go.target - k) for k in learned], rel=1e-5)
    assert go.knobs() == pytest.approx([go.target] * 3, rel=1e-6)
    trained = go.evaluate(model)
    assert trained < 0.8 * start

    # Replace: what the certificate says, layer by layer, and little change in all.
    before = _layer_output(go, paths[0])
    with torch.no_grad():
        smooth = go.logits(model)
    result = sk.relu_ize_(model, go.evaluate, data=go.x, tolerance=math.inf)
    bound = result.bounds[paths[0]]
    assert bound <= TOLERANCE * (1 + 1e-6)
    assert {type(model.get_submodule(path)) for path in paths} == {nn.ReLU}
    assert not activation_modules(model)
    rows = go.second_layer(paths[0])[1].abs().sum(1)
    assert ((_layer_output(go, paths[0]) - before).abs() <= bound * rows * 1.001 + 1e-6).all()
    with torch.no_grad():
        hard = go.logits(model)
    assert result.output_change == pytest.approx((hard - smooth).abs().max().item(), rel=1e-6)
    assert result.output_change < 0.02 * smooth.abs().max()
    assert result.before == pytest.approx(trained)
    assert result.after == pytest.approx(go.evaluate(model))
    assert abs(result.after - result.before) < 0.01

    # What hardening was for: the same replacement without it moves the outputs many times as far.
    soft = Journey(kind)
    sk.swap_(soft.model, soft.activation, learn=True)
    soft.model.load_state_dict(unhardened)
    direct = sk.relu_ize_(soft.model, data=soft.x, tolerance=math.inf).output_change
    assert direct is not None
    assert direct > 10 * result.output_change

    # It is a stock model now.
    stock = go.stock().eval()
    stock.load_state_dict(model.state_dict(), strict=True)
    with torch.no_grad():
        assert torch.equal(go.logits(stock), hard)
    if kind == "gpt2":
        model.save_pretrained(tmp_path)
        assert transformers.AutoConfig.from_pretrained(tmp_path).activation_function == "relu"

    # Export: standard operators alone, and the same numbers elsewhere.
    actual, operators = _through_onnx(model if kind == "vit" else Logits(model), go.x)
    torch.testing.assert_close(actual, hard, rtol=1e-5, atol=1e-5)
    assert operators["Relu"] == 3
    assert not {"Erf", "Gelu", "Softplus", "Exp"} & set(operators)


@torch.no_grad()
def _layer_output(go: Journey, path: str) -> Tensor:
    """What the layer behind an activation computes."""
    seen: list[Tensor] = []
    handle = go.second_layer(path)[0].register_forward_hook(lambda _m, _a, result: seen.append(result))
    go.logits(go.model.eval())
    handle.remove()
    return seen[0]


def _through_onnx(model: nn.Module, example: Any) -> tuple[Tensor, Counter[str]]:
    """The output of the exported model in onnxruntime, and the operators it has, all of the standard."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed.")
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed.")
    x = example["input_ids"] if isinstance(example, dict) else example
    program = torch.onnx.export(model.eval(), (x,), dynamo=True, verbose=False)
    assert program is not None
    proto = program.model_proto
    onnx.checker.check_model(proto)
    assert {node.domain for node in proto.graph.node} == {""}
    assert not proto.functions
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    return torch.from_numpy(result), Counter(node.op_type for node in proto.graph.node)
