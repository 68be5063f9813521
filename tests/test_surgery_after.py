"""What people do with a model after surgery: compile, export, run elsewhere, save memory, use half precision."""

from __future__ import annotations

import copy
import functools
import shutil
from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch.utils.checkpoint import checkpoint

import softknee as sk
from softknee.surgery.modules import activation_modules

IMAGES = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))


class Functional(nn.Module):
    """A small convolutional net as many write it: every activation is a call, and each is spelled differently."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.second = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.head = nn.Linear(16, 24)
        self.last = nn.Linear(24, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.norm(self.first(x)))
        x = torch.relu(self.second(x)).mean((2, 3))
        return self.last(self.head(x).relu())


class Short(nn.Module):
    """The same with a call after a convolution and a method after a linear layer: few kernels for a C++ compiler."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.last = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.gelu(self.first(x)).mean((2, 3))).relu()


def vit() -> nn.Module:
    return timm.create_model(
        "vit_tiny_patch16_224", img_size=16, patch_size=4, embed_dim=32, depth=2, num_heads=2, num_classes=5
    )


def operated(kind: str, *, learn: bool = True) -> nn.Module:
    """A model after its surgery: lambda-GELU in a ViT, S-ReLU with a width for each channel in the net of calls."""
    torch.manual_seed(0)
    if kind == "vit":
        model = vit()
        sk.swap_(model, "lambda_gelu", replacing="gelu", learn=learn, lam=1.5)
    else:
        model = Functional()
        sk.swap_(model, "srelu", learn=learn, per="channel" if learn else "layer", delta=0.5, example=IMAGES)
    assert len(activation_modules(model)) == {"vit": 2, "calls": 3}[kind]
    return model


every_kind = pytest.mark.parametrize("kind", ["vit", "calls"])


def run(model: nn.Module, call: Callable[[Tensor], Tensor] | None = None) -> dict[str, Tensor]:
    """The output, and the gradient of every parameter and of the input."""
    x = IMAGES.clone().requires_grad_()
    model.zero_grad(set_to_none=True)
    result = (model if call is None else call)(x)
    result.float().square().sum().backward()
    assert x.grad is not None
    results = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    assert len(results) == len(list(model.parameters()))
    return {"output": result.detach(), "input": x.grad, **results}


def same(found: dict[str, Tensor], expected: dict[str, Tensor], *, close: float) -> None:
    """Equal up to rounding, which a sum over images and tokens keeps in proportion to its largest terms."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name],
            value,
            rtol=close,
            atol=close * value.abs().max().item(),
            msg=lambda text, n=name: f"{n}: {text}",
        )


# -- the compiler -------------------------------------------------------------------------------------------------


@pytest.fixture
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@every_kind
def test_the_compiler_sees_one_graph_and_computes_the_same(kind: str, fresh_compiler: None):
    model = operated(kind)
    same(run(model, torch.compile(model, fullgraph=True, backend="aot_eager")), run(model), close=1e-5)


@pytest.mark.slow
def test_inductor_computes_the_same(fresh_compiler: None):
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        pytest.skip("torch.compile needs a C++ compiler on a CPU, and there is none here.")
    model = Short()
    sk.swap_(model, "srelu", learn=True, per="channel", delta=0.5, example=IMAGES)
    same(run(model, torch.compile(model, fullgraph=True)), run(model), close=2e-5)


def test_moving_a_knob_compiles_nothing_again(fresh_compiler: None):
    model, counter = operated("calls", learn=False), CompileCounter()
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    outputs = []
    for step in range(3):
        for module in activation_modules(model).values():
            module.set_(delta=0.5 / (step + 1))
        outputs.append(compiled(IMAGES).detach())
        torch.testing.assert_close(outputs[-1], model(IMAGES))
    assert counter.frame_count == 1
    assert not torch.equal(outputs[0], outputs[2])


def test_the_optimiser_groups_of_a_wrapped_model_are_those_of_the_model():
    """timm exempts parameters from decay by their names, which a wrapper changes."""
    model = operated("vit")
    expected = {group["name"]: [id(p) for p in group["params"]] for group in sk.param_groups(model, lr=1.0)}
    names = {id(p): name for name, p in model.named_parameters()}
    assert {"cls_token", "pos_embed"} <= {names[key] for key in expected["no_decay"]}
    for wrapped in (torch.compile(model), nn.DataParallel(model)):
        results = {group["name"]: [id(p) for p in group["params"]] for group in sk.param_groups(wrapped, lr=1.0)}
        assert results == expected


# -- exporters ----------------------------------------------------------------------------------------------------


@functools.cache
def exported(kind: str) -> tuple[nn.Module, torch.export.ExportedProgram]:
    """The model, and the program of it with a free batch size."""
    model = operated(kind).eval()
    batch = torch.export.Dim("batch", min=1, max=64)
    return model, torch.export.export(model, (IMAGES,), dynamic_shapes=({0: batch},))


MORE = torch.randn(7, 3, 16, 16, generator=torch.Generator().manual_seed(1))


@every_kind
def test_an_exported_program_computes_the_same_with_plain_operations(kind: str):
    model, program = exported(kind)
    for x in (IMAGES, MORE):
        torch.testing.assert_close(program.module()(x), model(x), rtol=1e-5, atol=1e-5)
    targets = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert not [target for target in targets if "softknee" in target]
    assert set(program.state_dict) == set(model.state_dict())


@every_kind
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_onnxruntime_computes_the_same(kind: str):
    """The exporters warn about their own parts; the numbers and the operators are what is tested here."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed.")
    model, exported_program = exported(kind)
    program = torch.onnx.export(exported_program, dynamo=True, verbose=False)
    assert program is not None
    proto = program.model_proto
    assert {node.domain for node in proto.graph.node} == {""}
    assert not proto.functions
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for x in (IMAGES, MORE):
        (result,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        torch.testing.assert_close(torch.from_numpy(result), model(x).detach(), rtol=1e-5, atol=1e-5)


# -- memory and precision -----------------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_gives_the_same_gradients(kind: str, reentrant: bool):
    model = operated(kind)
    actual = run(model, lambda x: checkpoint(model, x, use_reentrant=reentrant))  # type: ignore[return-value]
    expected = run(model)
    assert all(torch.equal(actual[name], value) for name, value in expected.items())


def test_checkpointing_as_timm_does_it():
    model = operated("vit").train()
    expected = run(model)
    model.set_grad_checkpointing(True)
    calls = []
    for module in activation_modules(model).values():
        module.register_forward_hook(lambda *_: calls.append(1))
    actual = run(model)
    assert len(calls) == 4  # twice each: the backward pass computes the block once more
    assert all(torch.equal(actual[name], value) for name, value in expected.items())


@pytest.mark.filterwarnings("ignore:`use_cache=True` is incompatible")
def test_checkpointing_as_transformers_does_it():
    torch.manual_seed(0)
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=16, n_positions=16, vocab_size=32, **ends)
    model = transformers.GPT2LMHeadModel(config).train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    words = {"input_ids": torch.arange(14).reshape(2, 7), "use_cache": False}
    sk.swap_(model, "srelu", learn=True, delta=0.5)
    calls: list[int] = []
    for module in activation_modules(model).values():
        module.register_forward_hook(lambda *_: calls.append(1))

    def gradients() -> dict[str, Tensor]:
        model.zero_grad()
        calls.clear()
        model(**words, labels=words["input_ids"]).loss.backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    expected = gradients()
    assert len(calls) == 2
    model.gradient_checkpointing_enable()
    actual = gradients()
    assert len(calls) == 4
    assert sum("act" in name for name in actual) == 2
    assert actual.keys() == expected.keys()
    assert all(torch.equal(actual[name], value) for name, value in expected.items())


# Some CPUs multiply no matrices of bfloat16; torch says so and takes another way.
@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed:UserWarning")
@every_kind
def test_mixed_precision_leaves_the_parameters_alone(kind: str):
    model = operated(kind)
    expected = run(model)

    def halved(x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x)

    seen: set[Any] = set()
    handles = [
        module.register_forward_hook(lambda _m, args, result: seen.add((args[0].dtype, result.dtype)))
        for module in activation_modules(model).values()
    ]
    actual = run(model, halved)
    for handle in handles:
        handle.remove()
    assert (torch.bfloat16, torch.bfloat16) in seen  # it was really half precision that reached them
    assert actual["output"].dtype == torch.bfloat16
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    for name, value in actual.items():
        assert value.isfinite().all(), name
    # bfloat16 has 8 bits; a few layers lose a few of them.
    scale = expected["output"].abs().max()
    assert (actual["output"].float() - expected["output"]).abs().max() < 0.05 * scale


def test_channels_last_stays_and_changes_nothing():
    model = operated("calls")
    expected = run(model)
    last = copy.deepcopy(model).to(memory_format=torch.channels_last)
    formats = []
    for module in list(activation_modules(last).values())[:2]:
        module.register_forward_hook(
            lambda _m, _a, result: formats.append(result.is_contiguous(memory_format=torch.channels_last))
        )
    actual = run(last, lambda x: last(x.to(memory_format=torch.channels_last)))
    assert formats == [True] * 2
    same(actual, expected, close=1e-5)
