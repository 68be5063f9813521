"""Optimiser groups: activations apart, no decay on them, nothing left out or twice; two optimisers as one."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.optim.lr_scheduler import CosineAnnealingLR

import softknee as sk


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 16),
        sk.nn.SReLU(learn=True, per="channel", size=16, delta=0.5),
        nn.LayerNorm(16),
        nn.Linear(16, 16),
        sk.nn.make("squaf", k=4, q=0.5, z="gelu", learn=True),
        nn.PReLU(),
        nn.Linear(16, 1, bias=False),
    )


def names_of(model: nn.Module, groups: list[dict]) -> dict[str, set[str]]:
    names = {id(p): name for name, p in model.named_parameters()}
    return {group["name"]: {names[id(p)] for p in group["params"]} for group in groups}


def test_activations_have_their_own_group():
    model = network()
    groups = sk.param_groups(model, lr=0.1, weight_decay=0.05, lr_scale=3.0)
    assert names_of(model, groups) == {
        "weights": {"0.weight", "3.weight", "6.weight"},
        "no_decay": {"0.bias", "2.weight", "2.bias", "3.bias"},
        "activations": {name for name, _ in model.named_parameters() if name.split(".")[0] in "145"},
    }
    rates = {group["name"]: (group["lr"], group["weight_decay"]) for group in groups}
    assert rates["weights"] == (0.1, 0.05)
    assert rates["no_decay"] == (0.1, 0.0)
    assert rates["activations"] == (pytest.approx(0.3), 0.0)


def test_a_matrix_of_an_activation_is_not_decayed():
    """Squaf's z per neuron is a matrix: by its shape alone timm would let it decay."""
    model = nn.Sequential(nn.Linear(4, 6), sk.nn.make("squaf", k=2, q=0.5, z="relu", learn="z", per="neuron", size=6))
    (name,) = [name for name, p in model.named_parameters() if p.ndim == 2 and name.startswith("1.")]
    assert name in names_of(model, sk.param_groups(model, lr=0.1, weight_decay=0.1))["activations"]


def test_weights_are_grouped_as_timm_does_it():
    timm = pytest.importorskip("timm", reason="timm is not installed; the extra 'vision' brings it")
    optim = pytest.importorskip("timm.optim")
    model = timm.create_model("vit_tiny_patch16_224", act_layer=sk.nn.SReLU, depth=2, num_classes=10)
    exempt = model.no_weight_decay()
    assert exempt
    theirs = optim.param_groups_weight_decay(model, 0.05, no_weight_decay_list=exempt)
    ours = {
        group["name"]: {id(p) for p in group["params"]} for group in sk.param_groups(model, lr=1.0, weight_decay=0.05)
    }
    assert ours == {
        "no_decay": {id(p) for p in theirs[0]["params"]},
        "weights": {id(p) for p in theirs[1]["params"]},
    }


@pytest.mark.parametrize(
    "make",
    [
        torch.optim.SGD,
        torch.optim.Adam,
        torch.optim.AdamW,
        torch.optim.RMSprop,
        torch.optim.Adagrad,
        torch.optim.NAdam,
        torch.optim.Adamax,
        torch.optim.RAdam,
    ],
)
def test_every_optimiser_takes_them(make):
    model = network()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimiser = make(sk.param_groups(model, lr=0.01, weight_decay=0.01))
    model(torch.randn(32, 4)).square().sum().backward()
    optimiser.step()
    assert all(not torch.equal(before[name], p) for name, p in model.named_parameters() if p.grad.abs().sum() > 0)


def test_frozen_and_shared_parameters():
    model = network()
    model[0].weight.requires_grad_(False)
    model[6].weight = nn.Parameter(torch.zeros(16, 16))
    model[6].weight = model[3].weight  # tied
    groups = names_of(model, sk.param_groups(model, lr=0.1))
    assert groups["weights"] == {"3.weight"}


def two(model: nn.Module) -> sk.surgery.PairedOptimizer:
    return sk.optimizers(
        model,
        weights=lambda groups: torch.optim.SGD(groups, lr=0.05, momentum=0.9, weight_decay=0.01),
        activations=lambda groups: torch.optim.Adam(groups, lr=0.01),
    )


def train(model: nn.Module, optimiser, steps: int, scheduler=None) -> None:
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        optimiser.zero_grad()
        x = torch.randn(64, 4, generator=generator)
        (model(x).squeeze() - x.sum(1)).square().mean().backward()
        optimiser.step()
        if scheduler is not None:
            scheduler.step()


def test_two_optimisers_do_what_each_does_alone():
    paired, apart = network(), network()
    both = two(paired)
    parts = {group["name"]: group["params"] for group in sk.param_groups(apart, lr=1.0)}
    plain = [{"params": parts["weights"]}, {"params": parts["no_decay"], "weight_decay": 0.0}]
    first = torch.optim.SGD(plain, lr=0.05, momentum=0.9, weight_decay=0.01)
    second = torch.optim.Adam(parts["activations"], lr=0.01)

    class Alone:
        def zero_grad(self) -> None:
            first.zero_grad(), second.zero_grad()

        def step(self) -> None:
            first.step(), second.step()

    train(paired, both, 5)
    train(apart, Alone(), 5)
    assert all(torch.equal(a, b) for a, b in zip(paired.parameters(), apart.parameters(), strict=True))


def test_a_scheduler_reaches_both():
    model = network()
    both = two(model)
    train(model, both, 3, CosineAnnealingLR(both, T_max=10))
    assert both.pair["weights"].param_groups[0]["lr"] == both.param_groups[0]["lr"] < 0.05
    assert both.pair["activations"].param_groups[0]["lr"] == both.param_groups[-1]["lr"] < 0.01


def trained_and_twin():
    """A model after three steps and its optimiser; the same model with a new one."""
    model = network()
    both = two(model)
    train(model, both, 3)
    twin = network()
    twin.load_state_dict(copy.deepcopy(model.state_dict()))
    return model, both, twin, two(twin)


def test_saved_and_loaded_it_goes_on_as_before():
    model, both, twin, again = trained_and_twin()
    again.load_state_dict(copy.deepcopy(both.state_dict()))
    train(model, both, 3)
    train(twin, again, 3)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
def test_distributed_checkpoints_take_the_pair_and_the_groups_stay_theirs():
    model, both, twin, again = trained_and_twin()
    state = copy.deepcopy(get_optimizer_state_dict(model, list(both.pair.values())))
    set_optimizer_state_dict(twin, list(again.pair.values()), state)
    train(model, both, 3)
    train(twin, again, 3)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))
    # Each was loaded on its own, which makes new groups; a scheduler must reach those.
    theirs = [group for item in again.pair.values() for group in item.param_groups]
    assert all(value is other for value, other in zip(again.param_groups, theirs, strict=True))


def test_a_closure_is_evaluated_once():
    model = network()
    both, calls = two(model), []

    def closure():
        calls.append(1)
        both.zero_grad()
        loss = model(torch.ones(2, 4)).sum()
        loss.backward()
        return loss

    assert both.step(closure).item() == pytest.approx(network()(torch.ones(2, 4)).sum().item())
    assert calls == [1]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_with_its_model_trains_on_like_the_original(copied):
    model = network()
    both = two(model)
    train(model, both, 2)
    other, others = copied((model, both))
    train(model, both, 2)
    train(other, others, 2)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    others.param_groups[-1]["lr"] = 0.5
    assert others.pair["activations"].param_groups[-1]["lr"] == 0.5
    assert both.param_groups[-1]["lr"] != 0.5
    with pytest.raises(sk.InputError, match="no more groups"):
        others.add_param_group({"params": [torch.zeros(1)]})


def test_what_is_refused():
    model = network()
    with pytest.raises(sk.ParameterError, match="lr must be"):
        sk.param_groups(model, lr=-1.0)
    with pytest.raises(sk.ParameterError, match="lr_scale must be"):
        sk.param_groups(model, lr=1.0, lr_scale=float("nan"))
    with pytest.raises(sk.InputError, match="no trainable parameter"):
        sk.param_groups(nn.ReLU(), lr=0.1)
    with pytest.raises(sk.InputError, match="learn="):
        two(nn.Sequential(nn.Linear(2, 2), sk.nn.SReLU()))
    with pytest.raises(sk.InputError, match="use one optimiser"):
        two(nn.Sequential(sk.nn.SReLU(learn=True)))
    with pytest.raises(sk.InputError, match="made a list"):
        sk.optimizers(model, weights=lambda groups: groups, activations=torch.optim.Adam)
    with pytest.raises(sk.InputError, match="stands in no group"):
        sk.optimizers(model, weights=lambda groups: torch.optim.SGD(groups[:1], lr=0.1), activations=torch.optim.Adam)
    with pytest.raises(sk.InputError, match=r"'1.raw_delta' \(and . more\) stands in more than one group"):
        sk.optimizers(model, weights=lambda _: torch.optim.SGD(model.parameters()), activations=torch.optim.Adam)
    with pytest.raises(sk.InputError, match=r"weights must be a function of groups .* and float was given"):
        sk.optimizers(model, weights=0.1, activations=torch.optim.Adam)
    shared = nn.Sequential(nn.Linear(1, 1, bias=False), sk.nn.PReLU(learn=True))
    shared[0].weight = shared[1].slope
    with pytest.raises(sk.InputError, match="of its own"):
        sk.param_groups(shared, lr=0.1)


def test_a_foreign_state_is_refused_and_nothing_is_lost():
    model = network()
    both = two(model)
    train(model, both, 2)
    before = copy.deepcopy(both.state_dict())
    with pytest.raises(sk.InputError, match="another optimiser"):
        both.load_state_dict(torch.optim.SGD(model.parameters(), lr=0.1).state_dict())
    wrong = copy.deepcopy(before)
    wrong["activations"] = torch.optim.Adam([torch.zeros(1)]).state_dict() | {"param_groups": []}
    with pytest.raises(ValueError, match="param"):
        both.load_state_dict(wrong)
    assert both.state_dict()["weights"]["param_groups"] == before["weights"]["param_groups"]
    with pytest.raises(sk.InputError, match="no more groups"):
        both.add_param_group({"params": [torch.zeros(1)]})
