"""SQUAF under vmap, forward mode, activation checkpointing, torch.compile, export, ONNX and opcheck."""

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from softknee.kernels.squaf import choose_path, squaf, squaf_sampled, squaf_step
from softknee.kernels.squaf.layout import arrange
from softknee.kernels.squaf.marginal import squaf_marginal
from softknee.nn.baselines import bend
from squaf_reference import inputs, parameters


@pytest.mark.parametrize("shape", [(1,), (3, 1)])
def test_vmap_over_replicas_equals_a_loop_and_itself(shape):
    replicas = [parameters(shape, dtype=torch.float32, seed=s) for s in range(4)]
    stacked = {name: torch.stack([r[name] for r in replicas]) for name in replicas[0]}
    x = inputs(4, 6, 3, 5, dtype=torch.float32)

    def loss(p, x):
        return squaf(x, **p).square().sum()

    runs = [torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)))(stacked, x) for _ in range(2)]
    assert torch.equal(runs[0][1], runs[1][1])
    assert all(torch.equal(runs[0][0][name], runs[1][0][name]) for name in stacked)
    for number, replica in enumerate(replicas):
        alone = torch.func.grad(loss, argnums=(0, 1))(replica, x[number])
        torch.testing.assert_close(runs[0][1][number], alone[1], rtol=1e-5, atol=1e-6)
        for name in replica:
            torch.testing.assert_close(runs[0][0][name][number], alone[0][name], rtol=1e-5, atol=1e-5)


def test_vmap_maps_what_is_mapped_along_any_dimension():
    p = parameters()
    x = inputs(4, 5)
    columns = torch.func.vmap(lambda t: squaf(t, **p), in_dims=1, out_dims=1)(x)
    torch.testing.assert_close(columns, squaf(x, **p))
    many = torch.stack([p["z"], -p["z"]], 1)
    both = torch.func.vmap(lambda z: squaf(x, q=p["q"], alpha=p["alpha"], z=z), in_dims=1)(many)
    torch.testing.assert_close(both, torch.stack([squaf(x, **p), -squaf(x, **p)]))
    scalars = torch.func.vmap(torch.func.vmap(lambda t: squaf(t, **p)))(x)
    torch.testing.assert_close(scalars, squaf(x, **p))
    raw = torch.func.vmap(lambda z: torch.ops.softknee.squaf(x, p["q"], p["alpha"], z, 5, False), in_dims=1)(many)
    torch.testing.assert_close(raw, both)


def _subjects():
    p = {name: value.requires_grad_() for name, value in parameters().items()}
    grid = {"q": p["q"], "alpha": p["alpha"]}
    theta = inputs(7, seed=4).requires_grad_()
    return {
        "soft": (lambda x: squaf(x, **p), p.values()),
        "sampled": (lambda x: squaf_sampled(x, **p), p.values()),
        "step": (lambda x: squaf_step(x, q=p["q"], z=p["z"]), (p["q"], p["z"])),
        "marginal": (lambda x: squaf_marginal(x, **grid, points=p["z"].shape[-1]).square(), grid.values()),
        "bend": (lambda x: bend(x, theta, low=-3.0, high=3.0, gated=True), (theta,)),
    }


@pytest.mark.parametrize("penalised", [False, True])
@pytest.mark.parametrize("name", _subjects())
def test_activation_checkpointing_gives_the_same_gradients(name, penalised):
    # Also with a gradient taken inside, as a penalty on slopes has it. Checkpointing lets no tensor be read twice.
    value, sources = _subjects()[name]
    x = inputs(6, 5).requires_grad_()

    def loss(at):
        whole = value(at).sum()
        return torch.autograd.grad(whole, at, create_graph=True)[0].square().sum() + whole if penalised else whole

    found = []
    for run in (loss, lambda at: checkpoint(loss, at, use_reentrant=False)):
        torch.manual_seed(6)
        found.append(torch.autograd.grad(run(x), (x, *sources), materialize_grads=True))
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*found, strict=True))


# torch loads its forward-mode formulas with its own deprecated function on first use.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_forward_mode_and_hessian():
    p = parameters()
    x, direction = inputs(6), inputs(6, seed=9)
    value, tangent = torch.func.jvp(lambda t: squaf(t, **p), (x,), (direction,))
    slope = torch.func.grad(lambda t: squaf(t, **p).sum())(x)
    torch.testing.assert_close(value, squaf(x, **p))
    torch.testing.assert_close(tangent, slope * direction)
    hessian = torch.func.hessian(lambda t: squaf(t, **p).sum())(x)
    by_rows = torch.func.jacrev(torch.func.jacrev(lambda t: squaf(t, **p).sum()))(x)
    torch.testing.assert_close(hessian, by_rows)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, direction)
        assert choose_path(dual)[0] == "plain"
        seen = torch.autograd.forward_ad.unpack_dual(squaf(dual, **p)).tangent
    torch.testing.assert_close(seen, tangent)


def test_compiled_in_one_graph_it_stays_one_operator():
    p = {name: t.requires_grad_() for name, t in parameters(dtype=torch.float32).items()}
    x = inputs(3, 40, dtype=torch.float32).requires_grad_()
    seen: list[str] = []

    def count(graph, _):
        seen.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    def model(x):
        return (squaf(x * 2, **p) + 1).square()

    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend=count)
    torch.testing.assert_close(compiled(x), model(x))
    assert sum("softknee.squaf" in name for name in seen) == 1
    torch._dynamo.reset()
    traced = torch.compile(model, fullgraph=True, backend="aot_eager")
    ours = torch.autograd.grad(traced(x).sum(), [x, *p.values()])
    theirs = torch.autograd.grad(model(x).sum(), [x, *p.values()])
    torch.testing.assert_close(ours, theirs)


def test_stepping_a_parameter_recompiles_nothing():
    p = parameters(dtype=torch.float32)
    x = inputs(20, dtype=torch.float32)
    builds = []

    def count(graph, _):
        builds.append(graph)
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(lambda x, alpha: squaf(x, q=p["q"], alpha=alpha, z=p["z"]), backend=count, fullgraph=True)
    for step in range(100):
        compiled(x, p["alpha"] * (1 + step / 10))
    assert len(builds) == 1


@pytest.mark.parametrize("window", [5, None])
def test_export_uses_plain_operations(window):
    p = parameters((3, 1), dtype=torch.float32)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, value in p.items():
                self.register_buffer(name, value)

        def forward(self, x: Tensor) -> Tensor:
            return squaf(x, **dict(self.named_buffers()), window=window)

    x = inputs(2, 3, 4, dtype=torch.float32)
    program = torch.export.export(Model(), (x,))
    assert not any("softknee" in str(node.target) for node in program.graph.nodes)
    torch.testing.assert_close(program.module()(x), squaf(x, **p, window=window))


# The exporter and its helpers warn about their own use of what they deprecate.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(("window", "weights"), [(5, "gaussian"), (None, "laplacian")])
def test_onnx_export_computes_the_same(window, weights, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra softknee[export]")
    pytest.importorskip("onnxscript", reason="needs the extra softknee[export]")
    p = parameters((3, 1), dtype=torch.float32)

    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return squaf(x, **p, window=window, weights=weights)

    x = inputs(2, 3, 4, dtype=torch.float32)
    path = str(tmp_path / "squaf.onnx")
    torch.onnx.export(Model().eval(), (x,), path, dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(path)
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    expected = squaf(x, **p, window=window, weights=weights)
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-5, atol=1e-6)


def test_opcheck_passes_for_both_operators():
    p = parameters((2, 1))
    tensors = [t.requires_grad_() for t in (inputs(3, 2, 4), p["q"], p["alpha"], p["z"])]
    torch.library.opcheck(torch.ops.softknee.squaf.default, (*tensors, 5, False))
    torch.library.opcheck(torch.ops.softknee.squaf_backward.default, (inputs(3, 2, 4, seed=3), *tensors, 5, False))
    lying = inputs(3, 4, 2).transpose(1, 2).requires_grad_()
    torch.library.opcheck(torch.ops.softknee.squaf.default, (lying, *tensors[1:], 0, True))


@pytest.mark.parametrize("shape", [(), (2, 1), (2, 4)])
def test_gradients_of_parameters_are_not_columns_of_one_table(shape):
    x, q = inputs(3, 2, 4), torch.ones(shape or (1,))
    layout = arrange(x, parameter_shape=q.shape)
    sums = torch.arange(5.0 * layout.groups).reshape(layout.groups, 5)
    of_q = layout.unfold_parameter(sums[:, 3], like=q)
    of_z = layout.unfold_parameter(sums[:, :3], like=torch.ones(*q.shape, 3), table=True)
    assert torch.equal(of_q.flatten(), sums[:, 3])
    assert torch.equal(of_z.reshape(-1, 3), sums[:, :3])
    for one in (of_q, of_z):
        assert one.is_contiguous()
        assert one.storage_offset() == 0
        assert one.untyped_storage().data_ptr() != sums.untyped_storage().data_ptr()
