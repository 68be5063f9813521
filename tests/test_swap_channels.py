"""per="channel" and per="neuron": how many values there are and along which dimension comes from the layer before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import softknee as sk


class Net(nn.Module):
    """Some layer, some way from it to the activation, and back to a single number."""

    def __init__(self, layer: nn.Module | None, way: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.way = layer, way
        self.act = nn.ReLU()
        self.weight = nn.Parameter(torch.eye(5))

    def forward(self, x: Tensor) -> Tensor:
        if self.layer is not None:
            x = self.layer(x)
        x = self.way(x) if not isinstance(x, tuple) else self.way(x[0])
        return self.act(x)


def conv(dims: int) -> nn.Module:
    return (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1](3, 5, 1)


def norm(x: Tensor) -> Tensor:
    return F.group_norm(x, 1)


def same(x: Tensor) -> Tensor:
    return x


def rows(*shape: int) -> Tensor:
    # Not whatever comes: numbers that are all far from 0 would show nothing of a knee.
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


LINEAR = nn.Linear(3, 5)
# Square shapes wherever a mistake about the dimension would otherwise be seen by the size alone.
CASES: dict[str, tuple[nn.Module | None, Callable[[Tensor], Tensor], Tensor, tuple[int, int] | None]] = {
    "conv1d": (conv(1), same, rows(5, 3, 5), (1, 5)),
    "conv2d": (conv(2), same, rows(5, 3, 5, 5), (1, 5)),
    "conv3d": (conv(3), same, rows(2, 3, 5, 5, 5), (1, 5)),
    "conv2d unbatched": (conv(2), same, rows(3, 5, 5), (0, 5)),
    "conv2d channels last": (conv(2), same, rows(2, 3, 5, 5).to(memory_format=torch.channels_last), (1, 5)),
    "transposed conv": (nn.ConvTranspose2d(3, 5, 2), same, rows(2, 3, 4, 4), (1, 5)),
    "conv, batch norm": (nn.Sequential(conv(2), nn.BatchNorm2d(5)), same, rows(2, 3, 5, 5), (1, 5)),
    "batch norm alone": (nn.BatchNorm1d(3), same, rows(3, 3), (1, 3)),
    "group norm": (None, norm, rows(5, 5, 5), (1, 5)),
    "conv, pool": (conv(2), lambda x: F.max_pool2d(x, 5), rows(2, 3, 5, 5), (1, 5)),
    "conv, global mean": (conv(2), lambda x: x.mean((2, 3)), rows(5, 3, 5, 5), (-1, 5)),
    "conv, mean over channels": (conv(2), lambda x: x.mean(1), rows(5, 3, 5, 5), None),
    "conv, flatten 2": (conv(2), lambda x: x.flatten(2), rows(5, 3, 5, 5), (1, 5)),
    "conv, flatten 1": (conv(2), lambda x: x.flatten(1), rows(2, 3, 5, 5), None),
    "conv, to tokens": (conv(2), lambda x: x.flatten(2).transpose(1, 2), rows(5, 3, 5, 5), (-1, 5)),
    "conv, permute": (conv(2), lambda x: x.permute(0, 2, 3, 1), rows(5, 3, 5, 5), (-1, 5)),
    "conv, permute tuple": (conv(2), lambda x: torch.permute(x, dims=(1, 0, 2, 3)), rows(5, 3, 5, 5), (0, 5)),
    "conv, movedim": (conv(2), lambda x: torch.movedim(x, source=1, destination=2), rows(5, 3, 5, 5), (2, 5)),
    "conv, named transpose": (conv(2), lambda x: torch.transpose(input=x, dim0=2, dim1=1), rows(5, 3, 5, 5), (2, 5)),
    "conv, view": (conv(2), lambda x: x.view(5, 5, 25), rows(5, 3, 5, 5), (1, 5)),
    "conv, shuffle": (conv(2), lambda x: x.reshape(5, 25, 5), rows(5, 3, 5, 5), None),
    "conv, row": (conv(2), lambda x: x[:, :, 0], rows(5, 3, 5, 5), (1, 5)),
    "conv, one channel": (conv(2), lambda x: x[:, 0], rows(5, 3, 5, 5), None),
    "conv, add": (conv(2), lambda x: x * 2 + torch.ones(5, 1, 1), rows(5, 3, 5, 5), (1, 5)),
    "conv, cat": (conv(2), lambda x: torch.cat([x, x], 1), rows(5, 3, 5, 5), None),
    "conv, in place": (conv(2), lambda x: x.add_(1.0), rows(5, 3, 5, 5), (1, 5)),
    "linear": (LINEAR, same, rows(5, 3), (-1, 5)),
    "linear on tokens": (LINEAR, same, rows(5, 5, 3), (-1, 5)),
    "linear unbatched": (LINEAR, same, rows(3), (-1, 5)),
    "linear, transpose": (LINEAR, lambda x: x.transpose(1, 2), rows(5, 5, 3), (1, 5)),
    "linear, mT": (LINEAR, lambda x: x.mT, rows(5, 5, 3), (1, 5)),
    "linear, T": (LINEAR, lambda x: x.T, rows(5, 3), (0, 5)),
    "linear, swap back": (LINEAR, lambda x: x.swapaxes(0, 1).swapdims(1, 0), rows(5, 5, 3), (-1, 5)),
    "linear, unsqueeze": (LINEAR, lambda x: x.unsqueeze(1), rows(5, 3), (-1, 5)),
    "linear, half": (nn.Linear(3, 10), lambda x: x.chunk(2, -1)[1], rows(5, 3), (-1, 5)),
    "linear, heads": (nn.Linear(3, 10), lambda x: x.view(5, 2, 5), rows(5, 3), None),
    "linear, layer norm": (nn.Sequential(LINEAR, nn.LayerNorm(5)), same, rows(5, 5, 3), (-1, 5)),
    "linear, dropout": (nn.Sequential(LINEAR, nn.Dropout()), same, rows(5, 3), (-1, 5)),
    "linear of a linear": (nn.Sequential(LINEAR, nn.Linear(5, 4)), same, rows(5, 3), (-1, 4)),
    "lstm": (nn.LSTM(3, 5, batch_first=True), same, rows(5, 5, 3), (-1, 5)),
    "attention scores": (LINEAR, lambda x: x @ x.mT, rows(5, 5, 3), None),
    "softmax": (LINEAR, lambda x: x.softmax(-1), rows(5, 3), (-1, 5)),
    "no layer": (None, same, rows(5, 5), None),
}


def changed(model: Net) -> Any:
    module: Any = model.act
    assert isinstance(module, sk.nn.SReLU)
    return module


@pytest.mark.parametrize(("layer", "way", "x", "wanted"), CASES.values(), ids=CASES)
def test_channels_come_from_the_layer_before(
    layer: nn.Module | None, way: Callable[[Tensor], Tensor], x: Tensor, wanted: tuple[int, int] | None
) -> None:
    model = Net(layer, way)
    if wanted is None:
        with pytest.raises(
            sk.InputError, match=r"produces what reaches 'act', and it cannot be told; use per='layer', or"
        ):
            sk.swap_(model, "srelu", per="channel", learn=True, example=x)
        assert isinstance(model.act, nn.ReLU)
        return
    before = model.eval()(x.clone())
    dim, count = wanted
    sk.swap_(model, "srelu", per="channel", learn=True, delta=0.5, example=x.clone())
    assert (changed(model).granularity.dim, changed(model).granularity.shape) == (dim, (count,))
    # Only the chosen channel has another width: only there may the output be another one.
    widths = torch.full((count,), 1e-6)
    widths[1] = 4.0
    changed(model).set_(delta=widths)
    moved = (model(x.clone()) - before).abs() > 1e-3
    assert moved.any()
    assert not moved.movedim(dim, 0)[torch.arange(count) != 1].any()


class Conv1D(nn.Module):
    """As GPT-2 has it: a product with a weight, and not nn.Linear."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.weight, self.bias = how, nn.Parameter(torch.randn(3, 5)), nn.Parameter(torch.zeros(5))

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "addmm":
            return torch.addmm(self.bias, x, self.weight)
        return x @ self.weight if self.how == "matmul" else torch.mm(x, self.weight.t().t())


@pytest.mark.parametrize("how", ["addmm", "matmul", "mm"])
def test_products_with_a_weight_are_linear_layers(how: str) -> None:
    model = nn.Sequential(Conv1D(how), nn.GELU())
    report = sk.swap_(model, "smelu", per="channel", learn=True, example=rows(5, 3))
    assert "per='channel', size=5, dim=-1" in report.changed[0].now


class TwoWidths(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.act = nn.Linear(3, 4), nn.Linear(4, 6), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.b(self.act(self.a(x))))


def test_one_module_after_layers_of_two_widths_becomes_two() -> None:
    x = rows(7, 3)
    for model in (TwoWidths(), nn.Sequential(nn.Linear(3, 4), act := nn.ReLU(), nn.Linear(4, 6), act)):
        wanted = model(x)
        report = sk.swap_(model, "srelu", per="channel", learn=True, delta=1e-6, example=x)
        assert ["size=4" in site.now for site in report.changed] == [True, False]
        assert ["size=6" in item.now for item in report.changed] == [False, True]
        assert torch.allclose(model(x), wanted, atol=1e-5)
        report.undo()
        assert torch.equal(model(x), wanted)


class Loop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 4), nn.Linear(4, 6)])
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.act(layer(x))
        return x


def test_a_loop_over_two_widths_is_refused() -> None:
    x = rows(7, 3)
    with pytest.raises(sk.InputError, match="'act', and it cannot be told"):
        sk.swap_(Loop(), "srelu", per="channel", learn=True, example=x)
    with pytest.raises(
        sk.InputError, match="per='neuron' needs the one shape of all that reaches 'act'; use per='layer'"
    ):
        sk.swap_(Loop(), "srelu", per="neuron", learn=True, example=x)


def test_neurons() -> None:
    model = nn.Sequential(nn.Conv2d(3, 5, 1), nn.ReLU())
    report = sk.swap_(model, "smelu", per="neuron", learn=True, example=rows(2, 3, 4, 4))
    assert "per='neuron', size=(5, 4, 4)" in report.changed[0].now
    report.undo()
    with pytest.raises(sk.InputError, match=r"reaches '1'; give example=, with a batch\.$"):
        sk.swap_(model, "smelu", per="neuron", learn=True)


def test_a_sequential_shows_its_channels_without_an_example() -> None:
    kept = (nn.BatchNorm2d(5), nn.Dropout2d(), nn.MaxPool2d(2), nn.SiLU())
    model = nn.Sequential(nn.Conv2d(3, 5, 3), *kept, nn.ReLU(), nn.Flatten(), nn.Linear(20, 7), nn.GELU())
    report = sk.swap_(model, "smelu", per="channel", learn=True)
    assert [site.now.partition("per=")[2] for site in report.changed] == [
        "'channel', size=5, dim=1)",
        "'channel', size=5, dim=1)",
        "'channel', size=7, dim=-1)",
    ]
    model = nn.Sequential(nn.Conv2d(3, 5, 3), nn.Flatten(), nn.ReLU())
    with pytest.raises(sk.InputError, match=r"reaches '2', and it cannot be told; give example=\.$"):
        sk.swap_(model, "smelu", per="channel", learn=True)
