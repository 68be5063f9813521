"""Hardener resumed from its state: the same bits; states of another run, damaged or missing, are refused."""

import copy
import io
import json
import math

import pytest
import torch

import softknee as sk
from hardening_models import Net, adam, srelu_net, train
from softknee.errors import ParameterError


def run(net, optimizer, hardener, epochs, trace) -> None:
    for e in epochs:
        hardener.step(e, metric=1.0)
        train(net, optimizer, seed=e)
        trace.append([p.detach().clone() for p in net.state_dict().values()])


@pytest.mark.slow
@pytest.mark.parametrize("stop", [1, 2, 3, 5])
@pytest.mark.parametrize("start", [0.25, "plateau"])
@pytest.mark.parametrize("make", [Net, srelu_net], ids=["lambda_gelu", "srelu"])
def test_resuming_gives_the_same_bits(stop: int, start, make):
    def parts():
        net = make()
        settings = {"better": "lower", "patience": 2} if start == "plateau" else {}
        return net, adam(net), sk.Hardener(net, total=8, start=start, schedule="cosine", **settings)

    through: list = []
    run(*parts(), range(1, 9), through)

    first: list = []
    net, optimizer, hardener = parts()
    run(net, optimizer, hardener, range(1, stop + 1), first)
    file = io.BytesIO()
    torch.save({"net": net.state_dict(), "opt": optimizer.state_dict(), "hardener": hardener.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    saved["hardener"] = json.loads(json.dumps(saved["hardener"]))  # as the Trainer of transformers keeps it

    net, optimizer, hardener = parts()
    net.load_state_dict(saved["net"])
    optimizer.load_state_dict(saved["opt"])
    hardener.load_state_dict(saved["hardener"])
    run(net, optimizer, hardener, range(stop + 1, 9), first)
    for item, other in zip(through, first, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(item, other, strict=True))


def test_a_state_sets_the_knobs_and_can_be_taken_back():
    net, other = Net(), Net()
    hardener, fresh = sk.Hardener(net, total=8), sk.Hardener(other, total=8)
    early = hardener.state_dict()
    for e in range(1, 6):
        hardener.step(e)
    fresh.load_state_dict(hardener.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), other.state_dict().values(), strict=True))
    assert not other.acts[0].raw_lam.requires_grad
    fresh.load_state_dict(early)
    assert other.acts[0].raw_lam.requires_grad
    fresh.step(1)


def test_states_that_are_refused_change_nothing():
    net = Net()
    hardener = sk.Hardener(net, total=8)
    for e in range(1, 4):
        hardener.step(e)
    state = hardener.state_dict()
    bare = sk.Hardener(Net(), total=8)

    def refused(words: str, given=None, into=bare, **changes) -> None:
        before = into.state_dict(), copy.deepcopy(into.model.state_dict())
        with pytest.raises(ParameterError, match=words):
            into.load_state_dict({**state, **changes} if given is None else given)
        assert into.state_dict() == before[0]
        now = into.model.state_dict().values()
        assert all(torch.equal(a, b) for a, b in zip(now, before[1].values(), strict=True))

    refused("version", version=7)
    refused("version", given=[1, 2])
    refused("total=9", total=9)
    refused("schedule='cosine'", schedule="cosine")
    refused("tolerance=0.1", tolerance=0.1)
    refused("trains freely for 5", last_free=5)
    refused("plateau", plateau={"best": None, "waited": 0})
    refused("damaged", position=math.nan)
    refused("another model", into=sk.Hardener(Net(depth=3), total=8))
    refused("another model: at 'acts.0'", into=sk.Hardener(srelu_net(), total=8))
    sites = copy.deepcopy(state["sites"])
    sites["acts.0"]["target"]["lam"] = [1.0, 2.0]
    refused("numbers of values", sites=sites)
    sites = copy.deepcopy(state["sites"])
    sites["acts.0"]["target"] = None
    refused("damaged", sites=sites)
    # Older states do not say their tolerance.
    bare.load_state_dict({key: value for key, value in state.items() if key != "tolerance"})


def test_a_resumed_run_without_its_state_is_refused():
    """It would take the knobs as they are now for what they were when they were frozen."""
    net = Net()
    with pytest.raises(ParameterError, match=r"first step is 5.*load_state_dict"):
        sk.Hardener(net, total=8).step(5)
    assert net.acts[0].raw_lam.requires_grad
    sk.Hardener(Net(), total=8).step(2)  # before the freeze nothing is lost
