"""What every function keeps, asked of those that are no formula of one number: soft tables, rows, baselines."""

import copy
import io
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call, grad, jacrev, jvp, stack_module_state, vmap
from torch.utils.checkpoint import checkpoint

import softknee as sk
from helpers import BF16, F16, F32, F64, rounding
from softknee.errors import InputError
from softknee.registry import unregister
from softknee.torch_compat import FOLLOWS_EVERY_PATH
from subjects import (
    CHANNELS,
    DIFFERENTIABLE,
    MODULES,
    POLYNORM,
    SWIGLU,
    Subject,
    call,
    every_differentiable,
    every_kind,
    inputs,
    of_parameters,
)


@pytest.fixture(autouse=True, scope="module")
def _registered():
    """A definition is pickled by its name."""
    for definition in (SWIGLU, POLYNORM):
        sk.register(definition)
    yield
    for definition in (SWIGLU, POLYNORM):
        unregister(definition.name)


def close(found: Tensor, expected: Tensor, dtype: torch.dtype = F64) -> None:
    size = max(1.0, expected.abs().max().item()) if expected.numel() else 1.0
    torch.testing.assert_close(found, expected, rtol=0, atol=8 * rounding(dtype) * size)


def run(function, module: nn.Module, x: Tensor, outer: Tensor | None = None) -> list[Tensor]:
    """Value, gradient by x and gradients by the parameters; a staircase has none by some of them."""
    x = x.detach().requires_grad_()
    value = call(function, x)
    outer = torch.ones_like(value) if outer is None else outer
    sources = [x, *module.parameters()]
    return [value.detach(), *torch.autograd.grad(value, sources, outer, materialize_grads=True)]


@pytest.mark.parametrize("name", [name for name, subject in MODULES.items() if subject.reference])
def test_values_are_those_of_the_reference(name: str):
    subject = MODULES[name]
    module, x = subject.module(dtype=F64, per="layer", size=None), inputs(5, 3, 6)
    close(module(x), subject.reference(module, x))


# -- derivatives ----------------------------------------------------------------------------------------------


@every_differentiable
def test_gradients_of_both_orders(subject: Subject):
    function, values = of_parameters(subject.module(dtype=F64))
    arguments = [inputs().requires_grad_(), *values]
    assert gradcheck(function, arguments, atol=subject.atol)
    arguments[0] = inputs(1, CHANNELS, 2, seed=2).requires_grad_()
    assert gradgradcheck(function, arguments, atol=subject.atol)


# torch loads its forward-mode formulas with its own deprecated function on first use.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@every_differentiable
def test_transforms(subject: Subject):
    module, x, direction = subject.module(dtype=F64), inputs(), inputs(seed=5)
    value, tangent = jvp(module, (x,), (direction,))
    close(value, module(x))
    close(tangent, sum(direction.flatten()[i] * jacrev(module)(x)[..., *where] for i, where in enumerate(places(x))))
    batch = torch.stack([x, 0.5 * x, -x])
    close(vmap(module)(batch), torch.stack([module(sample) for sample in batch]))
    close(vmap(module, in_dims=2, out_dims=2)(batch.movedim(0, 2)).movedim(2, 0), vmap(module)(batch))
    by_sample = vmap(grad(lambda one: module(one).square().sum()))(batch)
    for i, one in enumerate(batch):
        close(by_sample[i], torch.autograd.grad(module(leaf := one.requires_grad_()).square().sum(), leaf)[0])
    second = jacrev(jacrev(lambda x: module(x).sum()))(x)
    close(second, torch.autograd.functional.hessian(lambda x: module(x).sum(), x))


def places(x: Tensor) -> list[tuple[int, ...]]:
    return [tuple(where) for where in torch.ones(x.shape).nonzero().tolist()]


@every_differentiable
def test_replicas_are_single_models(subject: Subject):
    """Stacked parameters under vmap, with inputs of their own and with common ones."""
    models = [subject.module(dtype=F64) for _ in range(3)]
    for number, model in enumerate(models):
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(1 + 0.1 * number)
    state, x = stack_module_state(models), torch.stack([inputs(seed=seed) for seed in range(3)])

    def loss(params, buffers, x):
        return functional_call(models[0], (params, buffers), (x,)).square().sum()

    for own in (0, None):
        given = x if own == 0 else x[0]
        result = vmap(grad(loss, argnums=(0, 2)), in_dims=(0, 0, own))(*state, given)
        for i, model in enumerate(models):
            params, buffers = dict(model.named_parameters()), dict(model.named_buffers())
            alone = grad(loss, argnums=(0, 2))(params, buffers, x[i] if own == 0 else x[0])
            for name, gradient in alone[0].items():
                close(result[0][name][i], gradient)
            close(result[1][i], alone[1])


@pytest.mark.parametrize("penalised", [False, True])
@every_kind
def test_checkpointing_gives_the_same_gradients(subject: Subject, penalised: bool):
    """Also with a gradient taken inside, as a penalty on slopes has it. No tensor may be read twice."""
    module, x = subject.module(dtype=F64), inputs().requires_grad_()

    def loss(at: Tensor) -> Tensor:
        whole = module(at).sum()
        return torch.autograd.grad(whole, at, create_graph=True)[0].square().sum() + whole if penalised else whole

    sources, result = (x, *module.parameters()), []
    for once in (loss, lambda at: checkpoint(loss, at, use_reentrant=False)):
        result.append(torch.autograd.grad(call(once, x), sources, materialize_grads=True))
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*result, strict=True))


# -- layouts and types ----------------------------------------------------------------------------------------

LAYOUTS = {
    "transposed": lambda: inputs(4, CHANNELS, 2).permute(2, 1, 0),
    "channels_last": lambda: inputs(2, CHANNELS, 4, 6).to(memory_format=torch.channels_last),
    "strided_slice": lambda: inputs(2, CHANNELS, 8)[..., ::2],
    "expanded": lambda: inputs(2, CHANNELS, 1).expand(2, CHANNELS, 4),
    "offset": lambda: inputs(4 * CHANNELS * 2 + 1)[1:].view(2, CHANNELS, 4),
    "no_rows": lambda: inputs(0, CHANNELS, 4),
    "empty": lambda: inputs(2, CHANNELS, 0),
}


@pytest.mark.slow
@every_differentiable
def test_every_layout_gives_the_contiguous_result(subject: Subject):
    module = subject.module(dtype=F64)
    for make in LAYOUTS.values():
        x = make()
        expected = run(module, module, x.contiguous())
        for ours, theirs in zip(run(module, module, x), expected, strict=True):
            close(ours, theirs)
        outer = torch.ones((), dtype=F64).expand(expected[0].shape)
        close(run(module, module, x, outer)[1], expected[1])
        sliced = torch.ones(*expected[0].shape[:-1], 2 * expected[0].shape[-1], dtype=F64)[..., ::2]
        close(run(module, module, x, sliced)[1], expected[1])


@every_kind
def test_a_number_without_a_dimension(subject: Subject):
    module, x = subject.module(per="layer", size=None), torch.tensor(0.7, requires_grad=True)
    if subject.needs_rows:
        with pytest.raises(InputError, match=r"rows lie along|does not have"):
            module(x)
        return
    y = call(module, x)
    assert y.shape == ()
    torch.testing.assert_close(y, call(module, x[None])[0], rtol=rounding(F32), atol=rounding(F32))
    if subject.differentiable:
        assert torch.autograd.grad(y, x)[0].shape == ()


@pytest.mark.parametrize("dtype", [BF16, F16], ids=["bfloat16", "float16"])
@every_kind
def test_half_types_are_kept_and_rounded_once(subject: Subject, dtype: torch.dtype):
    module, x = subject.module(), inputs(40, CHANNELS, 4, dtype=dtype)
    result, exact = call(module, x), call(module, x.float())
    assert result.dtype == dtype
    assert exact.dtype == F32
    if subject.rounds_once:
        torch.testing.assert_close(result.float(), exact, rtol=2 * torch.finfo(dtype).eps, atol=1e-5)


@every_kind
def test_what_is_no_tensor_of_real_numbers_is_refused(subject: Subject):
    module = subject.module(per="layer", size=None)
    with pytest.raises(InputError, match="floating-point"):
        module(torch.arange(4))
    with pytest.raises(InputError, match=r"works on a torch\.Tensor, and list was given"):
        module([1.0, 2.0])


# -- compiled and exported ------------------------------------------------------------------------------------


@pytest.mark.slow
@every_kind
def test_compiled_whole_and_never_again_for_a_new_value(subject: Subject):
    module, x, counter = subject.module(dtype=F64), inputs(), CompileCounter()
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, backend=counter)
    for _ in range(5):
        with torch.no_grad():
            for p in module.parameters():
                p.mul_(1.01)
        for ours, theirs in zip(run(compiled, module, x), run(module, module, x), strict=True):
            close(ours, theirs)
    assert counter.frame_count == 1


@pytest.mark.slow
def test_through_the_compilers_autograd():
    """The way behind Dynamo's graph does not ask for the formula: one of each kind stands for all."""
    # With torch 2.6 that of DiTAC, whose steps each use the one before several times, does not come to an end.
    ditac = () if FOLLOWS_EVERY_PATH else ("ditac",)
    for name in ("squaf", "squaf_sampled", "swiglu", *ditac):
        module, x = MODULES[name].module(dtype=F64), inputs()
        torch._dynamo.reset()
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager_decomp_partition")
        for ours, theirs in zip(run(compiled, module, x), run(module, module, x), strict=True):
            close(ours, theirs)


class Everything(nn.Module):
    """Every function on one input: one export instead of a dozen."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.parts = nn.ModuleDict({name: MODULES[name].module() for name in names})

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(part(x) for part in self.parts.values())


@pytest.mark.slow
def test_an_exported_program_holds_plain_operations_and_computes_the_same():
    whole, x = Everything(list(MODULES)), inputs(dtype=F32)
    program = torch.export.export(whole, (x,))
    assert not [node for node in program.graph.nodes if "softknee" in str(node.target)]
    for name, ours, theirs in zip(MODULES, call(program.module(), x), call(whole, x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}")


# The exporter and its helpers warn about their own use of what they deprecate.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_onnx_computes_the_same():
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra softknee[export]")
    pytest.importorskip("onnxscript", reason="needs the extra softknee[export]")
    whole, x = Everything([name for name in DIFFERENTIABLE if name.startswith("squaf")]), inputs(dtype=F32)
    program = torch.onnx.export(torch.export.export(whole, (x,)), (x,), dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])
    results = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    for name, ours, theirs in zip(whole.parts, results, whole(x), strict=True):
        torch.testing.assert_close(
            torch.from_numpy(ours), theirs.detach(), rtol=1e-5, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}"
        )


# -- copies ---------------------------------------------------------------------------------------------------


@every_kind
def test_copies_and_states_are_the_same_function(subject: Subject):
    module, x = subject.module(), inputs(dtype=F32)
    with torch.no_grad():
        for p in module.parameters():
            p += 0.125  # as after training
    fresh, file = subject.module(), io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module)), fresh):
        assert torch.equal(call(other, x), call(module, x))
        assert repr(other) == repr(module)


@every_kind
def test_built_on_the_meta_device_and_reset(subject: Subject):
    x, start = inputs(dtype=F32), subject.module()
    start.reset_parameters()
    meta = subject.module(device="meta")
    assert all(t.is_meta for t in meta.state_dict().values())
    meta.to_empty(device="cpu").reset_parameters()
    assert torch.equal(call(meta, x), call(start, x))


@every_kind
def test_fixed_parameters_are_buffers_of_the_same_function(subject: Subject):
    learned = subject.module()
    fixed = subject.module(learn=False)
    assert list(fixed.parameters()) == []
    learned.reset_parameters()
    x = inputs(dtype=F32)
    torch.testing.assert_close(call(fixed, x), call(learned, x), rtol=1e-5, atol=4e-6)
