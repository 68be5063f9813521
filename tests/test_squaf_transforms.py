"""SQUAF under vmap and torch.compile, its operators, and the marginal under activation checkpointing."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

import softknee as sk
from softknee.kernels.squaf import squaf
from softknee.kernels.squaf.layout import arrange
from softknee.kernels.squaf.marginal import squaf_marginal
from softknee.nn.squaf import in_mode
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


@pytest.mark.parametrize("penalised", [False, True])
def test_checkpointing_the_marginal_gives_the_same_gradients(penalised):
    p = {name: value.requires_grad_() for name, value in parameters().items() if name != "z"}
    x = inputs(6, 5).requires_grad_()

    def loss(at):
        whole = squaf_marginal(at, **p, points=9).square().sum()
        return torch.autograd.grad(whole, at, create_graph=True)[0].square().sum() + whole if penalised else whole

    results = [
        torch.autograd.grad(run(x), (x, *p.values()))
        for run in (loss, lambda at: checkpoint(loss, at, use_reentrant=False))
    ]
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*results, strict=True))


@pytest.mark.slow
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


_FAKE_GPU = pytest.mark.skipif(
    not torch.backends.cuda.is_built() or (torch.__version__ < (2, 8) and not torch.cuda.is_available()),
    reason="a torch built without CUDA, and torch 2.6 where there is no GPU, crash on fake CUDA tensors",
)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda:0", marks=_FAKE_GPU)])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("mode", "per", "operators"),
    [
        ("soft", "layer", ["squaf_table"]),
        ("soft", "channel", ["squaf"]),
        ("sampled", "layer", ["squaf_seed", "squaf_sample"]),
    ],
)
def test_a_compiled_model_has_one_operator_for_a_layer(mode, per, operators, training, device):
    seen: list[str] = []

    def note(graph, _):
        seen.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    size = {} if per == "layer" else {"size": 16, "dim": -1}
    layer = sk.nn.SQUAF(learn=True, per=per, **size)
    net = nn.Sequential(nn.Linear(8, 16), in_mode(layer, mode), nn.Linear(16, 8)).train(training)
    torch._dynamo.reset()
    # Tensors that say they are on a GPU: what is traced for them can be read where there is none.
    with FakeTensorMode(), torch.set_grad_enabled(training):
        for module in net.modules():
            for name, tensor in module._parameters.items():
                module._parameters[name] = nn.Parameter(torch.empty(tensor.shape, device=device))
            for name, tensor in module._buffers.items():
                module._buffers[name] = torch.empty(tensor.shape, device=device)
        y = torch.compile(net, fullgraph=True, backend=note)(torch.ones(4, 8, device=device))
    assert (y.device, y.requires_grad) == (torch.device(device), training)
    assert [name.removeprefix("softknee.") for name in seen if name.startswith("softknee.")] == operators
    assert not any("exp" in name for name in seen)


@pytest.mark.slow
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
    for item in (of_q, of_z):
        assert item.is_contiguous()
        assert item.storage_offset() == 0
        assert item.untyped_storage().data_ptr() != sums.untyped_storage().data_ptr()
