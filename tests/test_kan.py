"""KAN layers: values against SQUAF and B-splines, gradients, grids, pruning, certificates, closed forms, export."""

import copy
import io
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import softknee as sk
from softknee.errors import InputError, ParameterError
from softknee.nn.kan import spread_bound

EDGES = ("squaf", "spline", "srelu", "smelu(beta=0.5)", "relu")


def layer_of(edge: Any = "squaf", *, n_in: int = 3, n_out: int = 2, **arguments: Any) -> sk.nn.KANLinear:
    torch.manual_seed(0)
    layer = sk.nn.KANLinear(n_in, n_out, edge=edge, dtype=torch.float64, **arguments)
    for p in (layer.table, layer.weight, layer.bias):
        if p is not None:
            nn.init.normal_(p)
    return layer


def inputs(*shape: int) -> Tensor:
    return 3 * torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) - 1.5


# -- values -----------------------------------------------------------------------------------------------


def test_an_edge_of_a_soft_table_is_a_squaf() -> None:
    layer = layer_of(base=None, grid=11, low=-0.8, high=0.8)
    x = inputs(50, 3)
    step = 1.6 / 8
    values = layer.edges(x)
    for i in range(3):
        for o in range(2):
            squaf = sk.get("squaf")(x[:, i], k=5, q=step, alpha=1.5 / step**2, z=layer.z[:, i, o], window=None)
            torch.testing.assert_close(values[:, i, o], squaf, rtol=0, atol=1e-9)


def test_an_output_is_the_sum_of_its_edges() -> None:
    for edge in EDGES:
        layer = layer_of(edge)
        x = inputs(4, 5, 3)
        torch.testing.assert_close(layer(x), layer.edges(x).sum(-2) + layer.bias)


def cubic(u: Tensor) -> Tensor:
    a = u.abs()
    return torch.where(a < 1, 2 / 3 - a**2 + a**3 / 2, (2 - a).clamp(min=0) ** 3 / 6)


def quadratic(u: Tensor) -> Tensor:
    a = u.abs()
    return torch.where(a < 0.5, 3 / 4 - a**2, (1.5 - a).clamp(min=0) ** 2 / 2)


@pytest.mark.parametrize(
    ("edge", "reference"),
    [("spline", cubic), ("smelu(beta=0.5)", quadratic), ("relu", lambda u: (1 - u.abs()).clamp(min=0))],
)
def test_splines_are_the_b_splines(edge: str, reference: Any) -> None:
    layer = layer_of(edge, grid=8, base=None, low=0.0, high=5.0)  # steps of 1, points at -1..6
    x = torch.linspace(-3, 8, 111, dtype=torch.float64)[:, None].expand(-1, 3)
    points = torch.arange(-1, 7, dtype=torch.float64)
    torch.testing.assert_close(layer.basis(x).mT, reference(x[..., None] - points), rtol=0, atol=1e-12)


def test_the_base_stands_on_every_edge() -> None:
    layer = layer_of(base="tanh")
    with torch.no_grad():
        layer.table.zero_()
    x = inputs(6, 3)
    assert layer.weight is not None
    torch.testing.assert_close(layer(x), x.tanh() @ layer.weight + layer.bias)


# -- training ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("edge", ["squaf", "spline", "srelu"])
def test_gradients(edge: str) -> None:
    layer = layer_of(edge, grid=6)
    x = inputs(4, 3).requires_grad_()

    def run(x: Tensor, *params: Tensor) -> Tensor:
        return torch.func.functional_call(layer, dict(zip(("table", "weight", "bias"), params, strict=True)), (x,))

    assert layer.weight is not None
    arguments = (x, *(p.detach().requires_grad_() for p in (layer.table, layer.weight, layer.bias)))
    assert torch.autograd.gradcheck(run, arguments)
    assert torch.autograd.gradgradcheck(run, arguments)


def test_a_width_is_learned_with_the_table() -> None:
    layer = layer_of("srelu", learn="delta")
    layer(inputs(5, 3)).square().sum().backward()
    assert layer.knee is not None
    moved = {name for name, p in layer.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    assert moved == {"table", "weight", "bias", "knee.raw_delta"}


def test_points_are_exact_in_types_of_few_digits_and_after_memory_was_empty() -> None:
    layer = layer_of(grid=65).float()
    x = inputs(64, 3).float()
    table, half = layer.basis(x), copy.deepcopy(layer).bfloat16()
    half.middle, half.step = layer.middle, layer.step
    assert torch.equal(half.basis(x), table)
    state = layer.state_dict()
    empty = sk.nn.KANLinear(3, 2, grid=65, device="meta").to_empty(device="cpu")
    empty.load_state_dict(state)
    assert torch.equal(empty(x), layer(x))


@pytest.mark.parametrize("grid", [11, 65])
def test_float32_is_near_float64(grid: int) -> None:
    layer = layer_of(grid=grid)
    x = inputs(1000, 3)
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(p.float())
        x = x.float()
        single = copy.deepcopy(layer).float()
        step = layer.z.diff(dim=0).abs().amax()
        assert (single(x) - layer(x.double())).abs().max() < 5e-5 * step


def test_far_and_infinite_inputs_are_finite_and_nan_is_nan() -> None:
    for edge in EDGES:
        layer = layer_of(edge, base=None)
        x = torch.tensor([[math.inf, -math.inf, 1e30]], dtype=torch.float64, requires_grad=True)
        layer(x).sum().backward()
        assert x.grad is not None
        assert layer(x).isfinite().all(), edge
        assert x.grad.isfinite().all(), edge
        assert layer(torch.full((1, 3), math.nan, dtype=torch.float64)).isnan().all(), edge


def test_states_copies_devices_types_and_empty_batches() -> None:
    layer = layer_of("srelu", grid=7)
    layer.prune_(0.5)
    x = inputs(5, 3)
    other = sk.nn.KANLinear(3, 2, edge="srelu", grid=7, low=-4.0, dtype=torch.float64)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x), layer(x))
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))
    buffer = io.BytesIO()
    torch.save(layer, buffer)
    buffer.seek(0)
    assert torch.equal(torch.load(buffer, weights_only=False)(x), layer(x))
    single = copy.deepcopy(layer).float()
    torch.testing.assert_close(single(x.float()).double(), layer(x), rtol=1e-4, atol=1e-4)
    assert layer(x[:0]).shape == (0, 2)
    assert layer.to("meta")(x.to("meta")).shape == (5, 2)
    half = single.bfloat16()
    assert half(x.bfloat16()).dtype == torch.bfloat16


def test_autocast_computes_the_basis_in_float32() -> None:
    layer = layer_of().float()
    x = inputs(64, 3).float()
    with torch.autocast("cpu", torch.bfloat16):
        rough = layer(x)
        assert layer.basis(x).dtype == torch.float32
    torch.testing.assert_close(rough.float(), layer(x), rtol=0.05, atol=0.1)
    rough.sum().backward()
    assert layer.table.grad is not None


@pytest.mark.parametrize("edge", ["squaf", "srelu"])
def test_compiled_is_the_same(edge: str) -> None:
    layer, x = layer_of(edge), inputs(9, 3)
    torch.testing.assert_close(torch.compile(layer, fullgraph=True, backend="aot_eager")(x), layer(x))


def test_vmap_over_replicas_is_each_alone() -> None:
    layers = [layer_of(n_out=n) for n in (2, 2)]
    nn.init.normal_(layers[1].table)
    params, buffers = torch.func.stack_module_state(layers)  # type: ignore[arg-type]
    x = inputs(5, 3)
    together = torch.func.vmap(lambda p, b: torch.func.functional_call(layers[0], (p, b), (x,)))(params, buffers)
    torch.testing.assert_close(together, torch.stack([layer(x) for layer in layers]))


def test_fx_has_one_node_of_it() -> None:
    net = nn.Sequential(sk.nn.KANLinear(2, 3), sk.nn.KANLinear(3, 1))
    traced = torch.fx.symbolic_trace(net)
    x = torch.rand(4, 2)
    assert torch.equal(traced(x), net(x))
    with pytest.raises(InputError, match="cannot be scripted"):
        net[0].__prepare_scriptable__()


# -- the grid ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("edge", ["squaf", "spline"])
def test_a_finer_grid_over_the_data_keeps_the_function(edge: str) -> None:
    layer = layer_of(edge)
    with torch.no_grad():  # a smooth edge, as training makes them
        layer.table[:] = torch.linspace(-1, 1, 11, dtype=torch.float64)[:, None, None].sin()
    x = 0.8 * inputs(200, 3).clamp(-1, 1)
    before = layer(x)
    moved = layer.update_grid_(x, grid=21)
    assert layer.grid == 21
    assert moved < 2e-3
    assert (layer(x) - before).abs().max() <= 3 * moved + 1e-12
    assert torch.allclose(layer.low, x.amin(0) - 0.05 * (x.amax(0) - x.amin(0)))
    assert torch.allclose(layer.high, x.amax(0) + 0.05 * (x.amax(0) - x.amin(0)))


def test_the_same_grid_changes_nothing() -> None:
    layer = layer_of()
    x = torch.tensor([[-1.0] * 3, [1.0] * 3], dtype=torch.float64)
    table, places = layer.table, inputs(20, 3)
    before = layer(places)
    assert layer.update_grid_(x, margin=0.0) < 1e-12
    assert layer.table is table
    torch.testing.assert_close(layer(places), before)


def test_a_constant_input_keeps_the_width_of_its_grid() -> None:
    layer = layer_of()
    layer.update_grid_(torch.zeros(5, 3, dtype=torch.float64), margin=0.0)
    assert torch.allclose(layer.high - layer.low, torch.full((3,), 2.0, dtype=torch.float64))


# -- pruning ----------------------------------------------------------------------------------------------


def test_pruned_edges_are_constants_that_stay_away() -> None:
    layer = layer_of()
    with torch.no_grad():
        layer.table[:, 0, 1] *= 0.01
        assert layer.weight is not None
        layer.weight[0, 1] *= 0.01
    x = layer.places()
    before, edges = layer(x), layer.edges(x)
    ranges = edges.amax(0) - edges.amin(0)
    report = layer.prune_(0.1)
    assert (report.edges, report.gone) == (5, 1)
    assert (layer(x) - before).abs().amax(0)[1] <= report.error[1] + 1e-12
    assert torch.equal(layer(x)[:, 0], before[:, 0])
    assert report.error[0] == 0
    assert ranges[0, 1] <= 0.1 * ranges.max()
    torch.testing.assert_close(report.error[1], ranges[0, 1] / 2)
    layer(x).sum().backward()
    assert layer.table.grad is not None
    assert layer.table.grad[:, 0, 1].abs().sum() == 0
    assert layer.prune_(0.1).gone == 0
    assert "pruned=1" in repr(layer)
    layer.reset_parameters()
    assert layer.kept is None


def test_pruning_by_data_sees_the_data_alone() -> None:
    layer = layer_of()
    assert layer.prune_(1e-6, torch.zeros(4, 3, dtype=torch.float64)).gone == 6


# -- surgery ----------------------------------------------------------------------------------------------


def test_soft_relu_and_base_are_activations_for_surgery() -> None:
    net = nn.Sequential(layer_of("srelu"), layer_of("squaf", n_in=2, n_out=1))
    assert [site.path for site in sk.sites(net)] == ["0.knee", "0.base", "1.base"]
    sk.swap_(net, "softplus", where="*.base")
    assert isinstance(net[0].base, sk.nn.Softplus)
    assert (torch.autograd.functional.jacobian(net, inputs(3)).abs() <= sk.nn.jacobian_bound(net)).all()


def test_a_spline_becomes_piecewise_linear_with_relu_in_its_place() -> None:
    layer, hard = layer_of("srelu", base="relu"), layer_of("relu", base="relu")
    sk.relu_ize_(nn.Sequential(layer), tolerance=math.inf)
    x = inputs(40, 3)
    torch.testing.assert_close(layer(x), hard(x))
    torch.testing.assert_close(layer.lipschitz(), hard.lipschitz())


# -- a definition on each edge --------------------------------------------------------------------------------


def pointwise_layer(edge: Any = "swish", **arguments: Any) -> sk.nn.KANPointwise:
    torch.manual_seed(0)
    layer = sk.nn.KANPointwise(3, 2, edge=edge, dtype=torch.float64, **arguments)
    with torch.no_grad():
        for p in layer.parameters():
            p += 0.3 * torch.randn_like(p)
    return layer


def test_each_edge_has_parameters_of_its_own() -> None:
    layer = pointwise_layer()
    x = inputs(4, 5, 3)
    beta = layer.edge.effective(layer.edge.params[0])
    assert beta.shape == (3, 2)
    assert beta.unique().numel() == 6
    expected = sum(layer.weight[i] * x[..., i, None] * torch.sigmoid(beta[i] * x[..., i, None]) for i in range(3))
    torch.testing.assert_close(layer(x), expected + layer.bias)
    torch.testing.assert_close(layer(x), layer.edges(x).sum(-2) + layer.bias)


@pytest.mark.parametrize("edge", ["swish", "srelu", "let(sin(b*x + c), b=2.0, c=0.3)"])
def test_gradients_of_definitions(edge: str) -> None:
    layer = pointwise_layer(edge)
    names, params = zip(*layer.named_parameters(), strict=True)
    arguments = (inputs(4, 3).requires_grad_(), *(p.detach().requires_grad_() for p in params))

    def run(x: Tensor, *params: Tensor) -> Tensor:
        return torch.func.functional_call(layer, dict(zip(names, params, strict=True)), (x,))

    assert len(params) > 2
    assert torch.autograd.gradcheck(run, arguments)


def test_a_large_batch_is_cut_and_has_the_same_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = pointwise_layer(), inputs(50, 3).requires_grad_()

    def results() -> tuple[list[Tensor], int]:
        held = 0

        def note(tensor: Tensor) -> Tensor:
            nonlocal held
            held = max(held, tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            out = layer(x)
        return [out, *torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])], held

    whole, largest = results()
    monkeypatch.setattr("softknee.nn.kan._VALUES", 4 * 6)
    cut, held = results()
    for a, b in zip(whole, cut, strict=True):
        torch.testing.assert_close(a, b)
    assert largest == 50 * 6
    assert held < 50 * 6


def test_certificates_of_definitions() -> None:
    net = nn.Sequential(pointwise_layer(), sk.nn.KANPointwise(2, 1, edge="tanh", dtype=torch.float64))
    bound = sk.nn.jacobian_bound(net)
    for x in inputs(50, 3):
        assert (torch.autograd.functional.jacobian(net, x).abs() <= bound).all()
    x = torch.linspace(-8, 8, 4001, dtype=torch.float64)[:, None].expand(-1, 3).clone().requires_grad_()
    for o, constants in enumerate(net[0].lipschitz()):
        slopes = torch.autograd.grad(net[0].edges(x)[..., o].sum(), x)[0].abs().amax(0)
        assert (slopes <= constants).all()
        assert (constants <= 1.01 * slopes).all()


def test_surgery_on_definitions() -> None:
    net = nn.Sequential(pointwise_layer("srelu"))
    assert [site.path for site in sk.sites(net)] == ["0.edge"]
    sk.relu_ize_(net, tolerance=math.inf)
    x = inputs(9, 3)
    torch.testing.assert_close(net(x), x.relu() @ net[0].weight + net[0].bias)
    torch.testing.assert_close(sk.nn.jacobian_bound(net), net[0].weight.abs().T.detach())


def test_a_soft_table_is_no_formula() -> None:
    with pytest.raises(ParameterError, match="edge must be an element-wise formula"):
        sk.nn.KANPointwise(2, 2, edge="squaf")


# -- certificates -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("edge", ["squaf", "spline", "srelu", "relu", "softplus"])
def test_no_slope_is_above_the_certified_constant(edge: str) -> None:
    layer = layer_of(edge)
    x = torch.linspace(-3, 3, 4001, dtype=torch.float64)[:, None].expand(-1, 3).clone().requires_grad_()
    constants = layer.lipschitz()
    for o in range(2):
        slopes = torch.autograd.grad(layer.edges(x)[..., o].sum(), x)[0].abs().amax(0)
        assert (slopes <= constants[o]).all()
        wide = 20 if edge == "softplus" else 4  # its hats reach over many steps
        assert (constants[o] <= wide * slopes).all(), "the bound says something"


@pytest.mark.parametrize(("grid", "sharpness"), [(5, 0.5), (11, 1.5), (8, 3.0), (65, 1.5)])
def test_the_slope_of_the_mean_point_is_bounded_tightly(grid: int, sharpness: float) -> None:
    points = torch.arange(grid, dtype=torch.float64)
    u = torch.linspace(-4, grid + 3, 100 * grid, dtype=torch.float64)[:, None]
    weights = torch.softmax(-sharpness * (u - points).square(), dim=1)
    variance = (weights * points.square()).sum(1) - (weights * points).sum(1).square()
    largest = float(2 * sharpness * variance.max())
    assert largest <= spread_bound(grid, sharpness) <= 1.02 * largest


def test_a_network_is_bounded_entry_by_entry() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(sk.nn.KANLinear(2, 4), nn.Linear(4, 3), sk.nn.make("gelu"), sk.nn.KANLinear(3, 2)).double()
    bound = sk.nn.jacobian_bound(net)
    for x in inputs(50, 2):
        jacobian = torch.autograd.functional.jacobian(net, x)
        assert (jacobian.abs() <= bound).all()
    with pytest.raises(InputError, match="Conv1d"):
        sk.nn.jacobian_bound(nn.Conv1d(1, 1, 1))


def test_a_spline_that_is_not_convex_has_no_certificate() -> None:
    with pytest.raises(ParameterError, match="gelu is not proved"):
        layer_of("gelu").lipschitz()


# -- closed forms -----------------------------------------------------------------------------------------


def fitted_to(functions: list[list[Any]], grid: int = 23) -> sk.nn.KANLinear:
    """A layer whose edge from i to o is functions[i][o], as near as its table can be."""
    layer = layer_of(n_in=len(functions), n_out=len(functions[0]), grid=grid)
    places = layer.places()
    with torch.no_grad():
        layer.bias.zero_()
        assert layer.weight is not None
        layer.weight.zero_()
        for i, row in enumerate(functions):
            for o, function in enumerate(row):
                rows, values = layer.basis(places)[..., i], function(places[:, i])
                layer.table[:, i, o] = torch.linalg.lstsq(rows, values).solution
    return layer


def test_edges_become_the_functions_they_were_fitted_to() -> None:
    layer = fitted_to([[lambda x: x**2 - 1, lambda x: (x + 0.5).exp()], [lambda x: 3 * x, lambda x: (4 * x).tanh()]])
    forms = layer.closed_forms(4e-3)
    assert [edge.function for edge in forms.edges] == ["x**2", "exp(x)", "x", "tanh"]
    exponential = forms.edges[1]
    assert abs(exponential.rate - 1) < 0.01
    tanh = forms.edges[3]
    assert abs(abs(tanh.rate) - 4) < 0.05
    net, x = forms.module(), layer.places()
    assert (net(x) - layer(x)).abs().max() <= forms.error + 1e-9
    assert forms.error <= 2 * 4e-3
    assert "tanh(" in forms.texts[1]
    net(x).sum().backward()
    assert all(p.grad is not None for p in net.parameters())


def test_an_edge_that_is_no_function_of_the_library_becomes_a_table() -> None:
    layer = fitted_to([[lambda x: (2 * x).sin() * x.exp()]], grid=11)
    forms = layer.closed_forms(0.05, library=("x", "relu"))
    (edge,) = forms.edges
    assert edge.table is not None
    x = layer.places()
    allowed = 0.05 * (layer(x).max() - layer(x).min()).item()
    assert edge.error <= 1.001 * allowed
    assert (forms.module()(x) - layer(x)).abs().max() <= 1.1 * allowed


def test_pruned_edges_have_no_form() -> None:
    layer = fitted_to([[lambda x: 3 * x], [lambda x: 0.001 * x]])
    layer.prune_(0.1)
    forms = layer.closed_forms(0.02)
    assert [(edge.i, edge.function) for edge in forms.edges] == [(0, "x")]
    torch.testing.assert_close(forms.module()(layer.places()), layer(layer.places()), rtol=0, atol=0.02)


def test_a_form_is_written_with_its_numbers() -> None:
    from softknee.nn.kan_forms import EdgeForm

    texts = [str(EdgeForm(0, 0, f, 2.0, 3.0, 0.5, 1.0, 0.0)) for f in ("x", "x**2", "exp(x)", "tanh", "1/x")]
    inner = "(3*x0+0.5)"
    assert texts == ["6*x0+2", f"2*{inner}**2+1", f"2*exp{inner}+1", f"2*tanh{inner}+1", f"2*1/{inner}+1"]


# -- export -----------------------------------------------------------------------------------------------


class Everything(nn.Module):
    """Every kind of edge on one input: one export instead of four."""

    def __init__(self) -> None:
        super().__init__()
        forms = fitted_to([[lambda x: x**2], [lambda x: x.exp()], [lambda x: -x]]).closed_forms(0.01).module()
        stacks = {edge: nn.Sequential(layer_of(edge), layer_of(edge, n_in=2, n_out=1)) for edge in ("squaf", "spline")}
        self.parts = nn.ModuleDict({"forms": forms, "swish": pointwise_layer("swish"), **stacks})

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(part(x) for part in self.parts.values())


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
def test_onnx(tmp_path: Any) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    net, x = Everything().float().eval(), inputs(6, 3).float()
    path = str(tmp_path / "kan.onnx")
    torch.onnx.export(net, (x,), path, dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    results = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    for edge, ours, theirs in zip(net.parts, results, net(x), strict=True):
        close = {"rtol": 1e-4, "atol": 1e-4, "msg": lambda text, edge=edge: f"{edge}: {text}"}
        torch.testing.assert_close(torch.from_numpy(ours), theirs.detach(), **close)


# -- sentences --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"edge": "tanh"}, "has no ReLU as its limit"),
        ({"edge": "srelu", "grid": 4}, "grid must be a whole number of at least 5"),
        ({"low": 1.0, "high": 1.0}, "low must be below high"),
        ({"sharpness": 0.0}, "sharpness must be a finite number above 0"),
        ({"learn": "alpha"}, "the table is always learned"),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        sk.nn.KANLinear(2, 2, **arguments)


@pytest.mark.parametrize(
    "input", [torch.zeros(3, 4), torch.zeros(3), torch.zeros(2, dtype=torch.int64), torch.tensor(1.0)]
)
def test_inputs_that_do_not_fit(input: Tensor) -> None:
    with pytest.raises(InputError, match=r"\(\.\.\., 2\)"):
        sk.nn.KANLinear(2, 2)(input)


def test_grids_need_finite_examples() -> None:
    layer = layer_of()
    for bad in (torch.zeros(0, 3), torch.zeros(4, 2), torch.full((2, 3), math.nan)):
        with pytest.raises(InputError, match="update_grid_ needs finite examples"):
            layer.update_grid_(bad)
