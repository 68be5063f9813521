"""Rows of fixed norm: values and gradients against a loop, all or nothing, and that it can be taken away again."""

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import softknee as sk
from softknee.nn import UnitRows, row_norm

LAYERS: list[tuple[Any, tuple[int, ...]]] = [
    (lambda: nn.Linear(5, 7), (3, 5)),
    (lambda: nn.Conv1d(4, 6, 3, groups=2), (2, 4, 9)),
    (lambda: nn.Conv2d(3, 4, (3, 2)), (2, 3, 6, 6)),
    (lambda: nn.Conv3d(2, 3, 2), (1, 2, 4, 4, 4)),
    (lambda: nn.ConvTranspose1d(3, 5, 4), (2, 3, 6)),
    (lambda: nn.ConvTranspose2d(4, 6, 3, groups=2), (2, 4, 5, 5)),
]


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 3, 3), sk.nn.SmeLU(), nn.Flatten(), nn.Linear(27, 6), nn.ReLU(), nn.Linear(6, 2))


def incoming(layer: nn.Module, weight: Tensor, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Everything that comes into each output neuron, found out by probing: the weights that change its output."""
    probe = copy.deepcopy(layer)
    rows = []
    x = torch.rand(shape) + 1
    free = weight.detach().clone().requires_grad_()
    out = torch.func.functional_call(probe, {"weight": free}, (x,))
    channel = out.dim() - 1 if isinstance(layer, nn.Linear) else 1
    for index in range(out.shape[channel]):
        (grad,) = torch.autograd.grad(out.select(channel, index).sum(), free, retain_graph=True)
        rows.append(weight.detach().double().numpy()[grad.numpy() != 0])
    return rows


@pytest.mark.parametrize("number", range(len(LAYERS)))
@pytest.mark.parametrize("p", [1, 2, 3.5, math.inf])
def test_what_comes_into_a_neuron_has_the_norm(number: int, p: float):
    make, shape = LAYERS[number]
    torch.manual_seed(number)
    layer = make()
    before = incoming(layer, layer.weight, shape)
    model = nn.Sequential(layer)
    row_norm(model, v=1.5, p=p)
    after = layer.weight.detach().clone()
    plain = make()
    for old, new in zip(before, incoming(plain, after, shape), strict=True):
        assert np.linalg.norm(new, ord=p) == pytest.approx(1.5, rel=1e-5)
        assert new == pytest.approx(1.5 * old / np.linalg.norm(old, ord=p), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("groups", [None, 2])
@pytest.mark.parametrize("p", [1, 2, 3.5, math.inf])
def test_gradients_against_finite_differences(p: float, groups: int | None):
    weight = torch.randn(4, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    rows = UnitRows(v=0.7, p=p, groups=groups)
    assert torch.autograd.gradcheck(rows, weight)
    assert torch.autograd.gradgradcheck(rows, weight)


def test_the_gradient_is_across_the_row():
    """The length of a row does nothing, so the gradient has no part along it; it falls as one over the length."""
    weight = torch.randn(3, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    pull = torch.randn(3, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    grads = []
    for scale in (1.0, 10.0):
        free = (scale * weight).requires_grad_()
        (grad,) = torch.autograd.grad((UnitRows()(free) * pull).sum(), free)
        assert (grad * free).sum(1).abs().max() < 1e-13
        grads.append(grad)
    torch.testing.assert_close(grads[0], 10 * grads[1])


@pytest.mark.parametrize(("dtype", "sizes"), [(torch.float32, (1e-30, 1e30)), (torch.float16, (1e-6, 6e4))])
def test_tiny_and_huge_rows_keep_their_direction(dtype: torch.dtype, sizes: tuple[float, float]):
    for size in sizes:
        weight = torch.tensor([[3.0, -4.0]], dtype=torch.float64).mul(size / 4).to(dtype)
        expected = weight.double() / weight.double().norm()
        torch.testing.assert_close(UnitRows()(weight).double(), expected, rtol=2e-3, atol=0)


def test_a_row_that_becomes_zero_stays_there_without_nan():
    weight = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    out = UnitRows(v=5.0)(weight)
    assert out.tolist() == [[0.0, 0.0], pytest.approx([3.0, 4.0])]
    out.square().sum().backward()
    assert weight.grad is not None
    assert weight.grad.isfinite().all()


def test_training_keeps_the_norm_and_the_optimizer_keeps_working():
    model, x = net(), torch.randn(8, 1, 5, 5)
    sgd = torch.optim.SGD(model.parameters(), lr=0.5)
    first = {id(parameter) for parameter in model.parameters()}
    row_norm(model, v=1.2)
    assert {id(item) for item in model.parameters()} == first
    start = model[3].weight.detach().clone()
    for _ in range(3):
        sgd.zero_grad()
        model(x).square().mean().backward()
        sgd.step()
    assert not torch.allclose(model[3].weight, start, atol=1e-4)
    for layer in (model[0], model[3], model[5]):
        torch.testing.assert_close(layer.weight.flatten(1).norm(dim=1), torch.full((len(layer.weight),), 1.2))


@pytest.mark.parametrize("keep", [True, False])
def test_it_can_be_taken_away(keep: bool):
    model, x = net(), torch.randn(4, 1, 5, 5)
    plain = {name: item.clone() for name, item in model.state_dict().items()}
    out = model(x)
    done = row_norm(model, v=0.5)
    normed = model(x)
    assert not torch.allclose(out, normed)
    done.remove_(keep=keep)
    assert not any(parametrize.is_parametrized(module) for module in model.modules())
    assert list(model.state_dict()) == list(plain)
    assert torch.equal(model(x), normed if keep else out)
    done.remove_()  # twice does nothing
    if not keep:
        assert all(torch.equal(plain[name], value) for name, value in model.state_dict().items())


def test_a_state_goes_to_another_model_and_copies_are_their_own():
    item, other, x = net(), net(), torch.randn(4, 1, 5, 5)
    with torch.no_grad():
        other[3].weight.add_(1.0)
    row_norm(item, v=2)
    row_norm(other, v=2)
    assert not torch.allclose(item(x), other(x))
    other.load_state_dict(item.state_dict())
    assert torch.equal(item(x), other(x))
    assert "3.parametrizations.weight.original" in item.state_dict()
    twin = copy.deepcopy(item)
    with torch.no_grad():
        twin[3].weight = torch.ones(6, 27)
    assert torch.allclose(twin[3].weight, torch.full((6, 27), 2 / math.sqrt(27)))
    assert torch.equal(item(x), other(x))


@pytest.mark.slow
def test_compiled_in_one_graph():
    model, x = net(), torch.randn(4, 1, 5, 5)
    row_norm(model, v=2.0, p=3)
    torch._dynamo.reset()  # torch gives up after eight modules, and other tests of this process compile some, too
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), model(x))
    grads = []
    for run in (compiled, model):
        model.zero_grad()
        run(x).square().sum().backward()
        grads.append([parameter.grad.clone() for parameter in model.parameters()])
    torch.testing.assert_close(grads[0], grads[1])


def test_vmapped_over_stacked_weights():
    model, x = nn.Linear(4, 3), torch.randn(5, 4)
    row_norm(model, v=2.0)
    stacked = {name: torch.stack([item, item + 1, item - 1]) for name, item in model.named_parameters()}
    result = torch.func.vmap(lambda params: torch.func.functional_call(model, params, (x,)))(stacked)
    for index in range(3):
        alone = {name: value[index] for name, value in stacked.items()}
        torch.testing.assert_close(result[index], torch.func.functional_call(model, alone, (x,)))


def test_where_says_which():
    model = nn.ModuleDict({"body": net(), "head": nn.Linear(2, 2)})
    assert row_norm(model, where="body.*").paths == ("body.0", "body.3", "body.5")
    assert row_norm(model, where=["head", "nothing"]).paths == ("head",)


def with_zero_row(model: nn.Sequential) -> nn.Sequential:
    with torch.no_grad():
        model[5].weight[1] = 0
    return model


def already(model: nn.Sequential) -> nn.Sequential:
    nn.utils.parametrizations.weight_norm(model[5])
    return model


def twice(model: nn.Sequential) -> nn.Sequential:
    row_norm(model, where="5")
    return model


def tied(model: nn.Sequential) -> nn.Module:
    embedding = nn.Embedding(2, 6)
    model[5].weight = embedding.weight
    return nn.ModuleDict({"net": model, "words": embedding})


@pytest.mark.parametrize(
    ("change", "more", "words"),
    [
        (with_zero_row, {}, "row 1 of the weight of '5' is all zeros"),
        (already, {}, "another parametrization already"),
        (twice, {}, "a row norm already"),
        (tied, {}, "'net.5' is that of 'words.weight'"),
        (lambda model: model.append(nn.LazyLinear(3)), {}, "lazy layer"),
        (lambda model: model, {"where": "fc*"}, "matches none of the 3"),
        (lambda model: model, {"where": ()}, "matches none of the 3"),
        (lambda model: nn.Sequential(nn.ReLU()), {}, "no linear layer and no convolution"),
        (lambda model: model, {"v": 0}, "above 0"),
        (lambda model: model, {"v": math.inf}, "finite"),
        (lambda model: model, {"v": math.nan}, "finite"),
        (lambda model: model, {"p": 0.5}, "at least 1"),
        (lambda model: model, {"p": "2"}, "at least 1|number"),
    ],
)
def test_refused_with_nothing_changed(change: Any, more: dict[str, Any], words: str):
    model = change(net())
    before = {name: id(item) for name, item in model.named_parameters()}
    with pytest.raises(sk.ParameterError, match=words):
        row_norm(model, **more)
    assert {name: id(value) for name, value in model.named_parameters()} == before


def test_an_error_half_way_takes_back_what_was_done(monkeypatch: pytest.MonkeyPatch):
    model, register, calls = net(), parametrize.register_parametrization, []

    def failing(*given: Any) -> nn.Module:
        calls.append(given)
        if len(calls) == 3:
            raise RuntimeError("no more")
        return register(*given)

    plain = {name: item.clone() for name, item in model.state_dict().items()}
    monkeypatch.setattr(parametrize, "register_parametrization", failing)
    with pytest.raises(RuntimeError, match="no more"):
        row_norm(model)
    assert list(model.state_dict()) == list(plain)
    assert all(torch.equal(plain[name], value) for name, value in model.state_dict().items())


def test_rows_without_elements_stay_and_tensors_without_rows_are_refused():
    rows = sk.nn.UnitRows()
    assert rows(torch.zeros(3, 0)).shape == (3, 0)
    for shape in ((), (5,)):
        with pytest.raises(sk.InputError, match="a dimension of rows"):
            rows(torch.zeros(shape))
