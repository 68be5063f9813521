"""The baselines of SQUAF's tables put into a model by name: what they learn, how they are told, how they are kept."""

import pytest
import torch
from torch import nn

import softknee as sk
from softknee.errors import ParameterError
from softknee.surgery import module_of, name_of
from softknee.surgery.modules import activation_modules

# The numbers a layer trains, as table 3 of the SQUAF paper counts them: 202, 200, 197 and 197 less 193.
COUNTS = {"ditac": ({}, 9), "kaf": ({"points": 7}, 7), "polyrelu": ({}, 4), "polynorm": ({}, 4)}
NAMES = pytest.mark.parametrize("name", list(COUNTS))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(1, 64), nn.GELU(), nn.Linear(64, 1))


@NAMES
def test_a_swapped_baseline_is_trained_and_counted(name):
    net, (settings, count) = mlp(), COUNTS[name]
    assert sum(p.numel() for p in net.parameters()) == 193
    report = sk.swap_(net, name, replacing="gelu", example=torch.randn(5, 1), **settings)
    assert sum(p.numel() for p in net.parameters() if p.requires_grad) == 193 + count
    assert list(activation_modules(net)) == ["1"]
    assert [site.path for site in report.changed] == ["1"]
    groups = {group["name"]: group for group in sk.param_groups(net, lr=0.1, weight_decay=0.5)}
    assert [p.numel() for p in groups["activations"]["params"]] == [count]
    assert groups["activations"]["weight_decay"] == 0.0
    before = net[1].effective(net[1].vector).detach().clone()
    optimizer = torch.optim.SGD(sk.param_groups(net, lr=0.01, weight_decay=0.5))
    net(torch.randn(32, 1)).square().mean().backward()
    optimizer.step()
    assert not torch.equal(net[1].effective(net[1].vector), before)


@NAMES
def test_a_swap_is_saved_repeated_and_undone(name, tmp_path):
    first, second, (settings, _) = mlp(), mlp(), COUNTS[name]
    report = sk.swap_(first, name, **settings)
    report.save(tmp_path / "plan.json")
    sk.apply_(second, tmp_path / "plan.json")
    second.load_state_dict(first.state_dict())
    x = torch.randn(7, 1)
    assert torch.equal(first(x), second(x))
    assert repr(first) == repr(second)
    sk.swap_(second, "relu", replacing=name)
    assert isinstance(second[1], sk.nn.ReLU)
    report.undo()
    assert isinstance(first[1], nn.GELU)


def test_what_a_swap_may_say():
    net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(inplace=True), nn.Linear(8, 8), nn.ReLU(inplace=True))
    sk.swap_(net, "polyrelu", learn=False, order=2)
    assert not list(net[1].parameters())
    assert net[1].a.shape == (1, 3)
    net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 4), nn.ReLU())
    sk.swap_(net, "kaf", per="channel", points=5)
    assert net[1].a.shape == (8, 5)
    assert net[3].a.shape == (4, 5)
    with pytest.raises(ParameterError, match="rows along dimension"):
        sk.swap_(net, "polynorm", replacing="kaf", per="channel")
    with pytest.raises(ParameterError, match="cells must be"):
        sk.swap_(net, "ditac", replacing="kaf", cells=1)
    assert isinstance(net[1], sk.nn.KAF)


@pytest.mark.parametrize(
    "text",
    [
        "ditac",
        "ditac(cells=5, low=-2.0)",
        "ditac(gate=none, learn=none)",
        "kaf(points=7)",
        "kaf(gamma=0.5)",
        "polynorm(order=2, eps=1e-05)",
        "polynorm(row_dim=1)",
        "polyrelu(order=5)",
        "polyrelu(learn=a)",
    ],
)
def test_a_text_gives_the_module_back(text):
    module = module_of(text)
    assert bool(module.learned) == ("learn=none" not in text)
    again = module_of(name_of(module))
    assert repr(again) == repr(module)
    assert torch.equal(again.effective(again.vector), module.effective(module.vector))


def test_texts_that_are_refused():
    with pytest.raises(ParameterError, match="ditac has no 'cels'"):
        module_of("ditac(cels=5)")
    with pytest.raises(ParameterError, match="must be a number"):
        module_of("ditac(cells=many)")
    with pytest.raises(ParameterError, match="no parameter 'b' to learn"):
        module_of("kaf(learn=b)")
    moved = sk.nn.PolyReLU([0.0, 1.0, 0.5])
    with pytest.raises(ParameterError, match="numbers=False"):
        name_of(moved)
    assert name_of(moved, numbers=False) == "softknee:polyrelu(order=2)"
    with pytest.raises(ParameterError, match="one value for each layer"):
        name_of(sk.nn.KAF(per="channel", size=3))


def test_prelu_of_the_tables_is_one_number_for_a_layer():
    net = mlp()
    sk.swap_(net, "prelu", learn=True)
    assert sum(p.numel() for p in net.parameters()) == 194
