"""Hardener: Algorithm 1 to the number, every function with a knob, every optimiser, resumed, copied, wrapped."""

import copy
import io
import itertools
import json
import math
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import softknee as sk
from helpers import ZOO
from softknee.errors import InputError, ParameterError

TARGET = 2 / (5e-3 * math.sqrt(2 * math.pi))
F32 = torch.finfo(torch.float32).eps


class Net(nn.Module):
    def __init__(self, make=lambda i: sk.nn.LambdaGELU(lam=1.5 + i, learn=True), depth: int = 2):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(depth))
        self.acts = nn.ModuleList(make(i) for i in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer, act in zip(self.layers, self.acts, strict=True):
            x = act(layer(x))
        return x


def srelu_net() -> Net:
    return Net(lambda i: sk.nn.SReLU(delta=1.0 + i, learn=True))


def data(seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(16, 4, generator=generator), torch.randn(16, 4, generator=generator)


def train(net: nn.Module, optimizer, seed: int = 1) -> None:
    x, y = data(seed)
    optimizer.zero_grad()
    (net(x) - y).square().mean().backward()
    optimizer.step()


def adam(net: nn.Module, **settings):
    return torch.optim.AdamW(sk.param_groups(net, lr=1e-2, weight_decay=0.1), **settings)


# -- Algorithm 1 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("total", [1, 4, 7, 8, 30, 100])
def test_algorithm_1_to_the_number(total: int):
    """Against the algorithm written down once more, with the knobs trained between the steps."""
    net = Net()
    optimizer = adam(net)
    hardener = sk.Hardener(net, total=total)
    e_s = math.floor(0.25 * total)
    learned = [act.lam.item() for act in net.acts]
    for e in range(1, total + 1):
        hardener.step(e)
        for act, lam in zip(net.acts, learned, strict=True):
            wanted = lam if e <= e_s else lam + (e - e_s) / (total - e_s) * (TARGET - lam)
            assert act.lam.item() == pytest.approx(wanted, rel=2 * F32)
            assert act.raw_lam.requires_grad == (e <= e_s)
        train(net, optimizer)
        if e <= e_s:
            assert all(act.lam.item() != lam for act, lam in zip(net.acts, learned, strict=True))
            learned = [act.lam.item() for act in net.acts]  # lambda(e_s) is what epoch e_s leaves behind
    assert all(act.lam.item() == pytest.approx(159.576912161, rel=F32) for act in net.acts)


def test_the_share_is_the_decimal_that_was_written():
    assert sk.Hardener(Net(), total=100, start=0.29).last_free == 29
    assert sk.Hardener(Net(), total=100, start=0.1).last_free == 10
    assert sk.Hardener(Net(), total=10, start=3).last_free == 3
    assert sk.Hardener(Net(), total=10, start=0).last_free == 0
    assert sk.Hardener(Net(), total=10, start=1).last_free == 1


HARDENING = [name for name, act in ZOO.items() if act.knobs and name not in ("leaky_relu", "prelu", "smooth_relu")]


@pytest.mark.parametrize("learn", [True, False], ids=["learned", "fixed"])
@pytest.mark.parametrize("name", HARDENING)
def test_every_function_with_a_knob_goes_to_its_limit(name: str, learn: bool):
    act = ZOO[name]
    soft = {one: {"eps": 0.5, "lam": 1.5}.get(one, 1.25) for one in act.knobs}
    net = Net(lambda i: sk.nn.make(act, learn=list(act.knobs) if learn else False, **soft))
    before = [{k: getattr(one, k).item() for k in act.knobs} for one in net.acts]
    hardener = sk.Hardener(net, total=8, start=0.5)
    distances = []
    for e in range(1, 9):
        hardener.step(e)
        distances.append(sk.surgery.hardening.distance_bound(net.acts[0]))
        share = max(0, e - 4) / 4
        for module, begin in zip(net.acts, before, strict=True):
            for knob in act.knobs:
                end = hardener.targets["acts.0"][knob].item() if e > 4 else begin[knob]
                value = begin[knob] + share * (end - begin[knob])
                assert getattr(module, knob).item() == pytest.approx(value, rel=4 * F32)
    assert distances[:4] == [distances[0]] * 4
    assert all(after < before for before, after in itertools.pairwise(distances[3:]))
    assert distances[-1] <= 5e-3 * (1 + 4 * F32)


def test_channels_move_one_by_one():
    start = torch.tensor([1.5, 200.0, 3.0])
    module = sk.nn.LambdaGELU(lam=start, per="channel", size=3, learn=True)
    net = nn.Sequential(module)
    hardener = sk.Hardener(net, total=4, start=0.5)
    for e in range(1, 5):
        hardener.step(e)
    assert torch.allclose(module.lam, torch.tensor([TARGET, 200.0, TARGET]), rtol=2 * F32)
    hardener = sk.Hardener(nn.Sequential(sk.nn.LambdaGELU(lam=start, per="channel", size=3)), total=2, start=1)
    hardener.step(1), hardener.step(2)
    assert torch.allclose(hardener.sites[0].module.lam, torch.tensor([TARGET, 200.0, TARGET]), rtol=2 * F32)


def test_a_harder_knob_stays_and_is_named():
    net = Net(lambda i: sk.nn.LambdaGELU(lam=(500.0, 1.5)[i], learn=True))
    hardener = sk.Hardener(net, total=4)
    hardener.step(1)
    assert hardener.stays == ()
    raw = net.acts[0].raw_lam.detach().clone()
    with pytest.warns(UserWarning, match=r"1 of 2 activations are as hard as asked already .*'acts.0'"):
        hardener.step(2)
    # Where warnings are errors the step is done all the same.
    strict = sk.Hardener(Net(lambda i: sk.nn.LambdaGELU(lam=500.0)), total=4)
    strict.step(1)
    with pytest.raises(UserWarning, match="2 of 2"):
        strict.step(2)
    assert (strict.begun, strict.position) == (True, 2)
    assert hardener.stays == ("acts.0",)
    hardener.step(4)
    assert torch.equal(net.acts[0].raw_lam, raw)
    assert not net.acts[0].raw_lam.requires_grad


def test_steps_count_by_themselves_and_may_be_parts_of_an_epoch():
    net, same = Net(), Net()
    counted, told = sk.Hardener(net, total=8), sk.Hardener(same, total=8)
    for e in range(1, 9):
        assert counted.step() == told.step(e)
        told.step(e)  # again, for instance after a crash: the same
        assert torch.equal(net.acts[0].lam, same.acts[0].lam)
    assert counted.step() == 1  # more training than planned: it stays at the target
    hardener = sk.Hardener(Net(), total=np.int64(8))
    hardener.step(np.int64(2))
    assert hardener.step(2.75) == pytest.approx(0.75 / 6)
    assert json.loads(json.dumps(hardener.state_dict()))["position"] == 2.75


# -- schedules --------------------------------------------------------------------------------------------


def path_of(schedule, start: float = 4.0, target: float = 0.25) -> list[float]:
    net = Net(lambda i: sk.nn.SReLU(delta=start, learn=True), depth=1)
    hardener = sk.Hardener(net, total=5, start=1, target=target, schedule=schedule)
    return [net.acts[0].delta.item() for _ in range(5) if hardener.step() >= 0]


def test_schedules_in_closed_form():
    progress = [0, 0.25, 0.5, 0.75, 1]
    assert path_of("linear") == pytest.approx([4 - 3.75 * p for p in progress], rel=4 * F32)
    assert path_of("geometric") == pytest.approx([4, 2, 1, 0.5, 0.25], rel=4 * F32)
    cosine = [4 - 3.75 * (1 - math.cos(math.pi * p)) / 2 for p in progress]
    assert path_of("cosine") == pytest.approx(cosine, rel=4 * F32)
    assert path_of(lambda p: p**2) == pytest.approx([4 - 3.75 * p**2 for p in progress], rel=4 * F32)


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (lambda p: p + 0.3 * math.sin(2 * math.pi * p), "goes backwards"),
        (lambda p: 1 - p, "0 at progress 0"),
        (lambda p: p / 2, "1 at progress 1"),
        (lambda p: math.nan if 0.4 < p < 0.6 else p, "goes backwards"),
        (lambda p: "soon", "failed"),
        (lambda p: 1 / p, "failed"),
        ("quadratic", "'linear', 'cosine', 'geometric'"),
        ("liner", "Did you mean 'linear'"),
        (3, "name or a function"),
    ],
)
def test_schedules_that_are_refused(schedule, words):
    with pytest.raises(ParameterError, match=words):
        sk.Hardener(Net(), total=4, schedule=schedule)


def test_a_geometric_way_does_not_lead_to_or_through_zero():
    def leak(slope: float) -> Net:
        return Net(lambda i: sk.nn.make(sk.get("crrelu"), eps=slope))

    with pytest.raises(ParameterError, match="never arrives at 0"):
        sk.Hardener(leak(0.5), total=4, target=0.0, schedule="geometric")
    hardener = sk.Hardener(leak(0.5), total=4, target=-0.01, schedule="geometric")
    hardener.step(1)
    with pytest.raises(ParameterError, match="other sign"):
        hardener.step(2)
    assert not hardener.begun
    net = leak(0.5)
    hardener = sk.Hardener(net, total=4, target=0.0)
    hardener.step(1), hardener.step(4)
    assert net.acts[0].eps.item() == 0


# -- freezing ---------------------------------------------------------------------------------------------

OPTIMISERS = {
    "sgd": lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "adam": lambda groups: torch.optim.Adam(groups, lr=0.1, weight_decay=0.1),
    "adamw foreach": lambda groups: torch.optim.AdamW(groups, lr=0.1, weight_decay=0.1, foreach=True),
    "adamw fused": lambda groups: torch.optim.AdamW(groups, lr=0.1, weight_decay=0.1, fused=True),
    "rmsprop": lambda groups: torch.optim.RMSprop(groups, lr=0.1, momentum=0.9, weight_decay=0.1),
}


@pytest.mark.parametrize("optimiser", OPTIMISERS.values(), ids=OPTIMISERS)
@pytest.mark.parametrize("keep_zeros", [False, True], ids=["none", "zeros"])
def test_no_optimiser_moves_a_frozen_knob(optimiser, keep_zeros: bool):
    """Momentum and decay act on a gradient of zeros too; plain parameters() has decay on the knob."""
    net = srelu_net()
    groups = [{"params": [*net.parameters()]}]
    optimizer = optimiser(groups)
    x, y = data()

    def closure() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=not keep_zeros)
        loss = (net(x) - y).square().mean()
        loss.backward()
        return loss

    hardener = sk.Hardener(net, total=4, start=0.5)
    for e in range(1, 3):
        hardener.step(e)
        raw = net.acts[0].raw_delta.detach().clone()
        optimizer.step(closure)
        assert not torch.equal(net.acts[0].raw_delta, raw)
    for e in range(3, 5):
        hardener.step(e)
        weight = net.layers[0].weight.detach().clone()
        before = [act.delta.clone() for act in net.acts]
        for _ in range(3):
            optimizer.step(closure)
        assert all(torch.equal(act.delta, one) for act, one in zip(net.acts, before, strict=True))
        assert not torch.equal(net.layers[0].weight, weight)
    assert net.acts[0].delta.item() == pytest.approx(16 * 5e-3 / 3, rel=4 * F32)


def test_a_method_with_a_memory_is_made_anew_for_the_frozen_knobs():
    """L-BFGS mixes all directions it remembers; one that never saw a knob move does not move it."""
    net = srelu_net()
    hardener = sk.Hardener(net, total=2, start=1)
    hardener.step(1), hardener.step(2)
    before = net.acts[0].delta.clone()
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=5)
    x, y = data()

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        return loss

    first, last = [optimizer.step(closure).item() for _ in range(4)][::3]
    assert last < first
    assert torch.equal(net.acts[0].delta, before)


def test_groups_and_paired_optimisers_go_on():
    net = srelu_net()
    optimizer = sk.optimizers(
        net,
        weights=lambda groups: torch.optim.SGD(groups, lr=0.01, momentum=0.9),
        activations=lambda groups: torch.optim.Adam(groups, lr=0.01),
    )
    hardener = sk.Hardener(net, total=4)
    for e in range(1, 5):
        hardener.step(e)
        train(net, optimizer)
    assert net.acts[0].delta.item() == pytest.approx(16 * 5e-3 / 3, rel=4 * F32)
    assert [group["name"] for group in sk.param_groups(net, lr=0.1)] == ["weights", "no_decay"]
    restored = sk.optimizers(
        srelu_net(),
        weights=lambda groups: torch.optim.SGD(groups, lr=0.01, momentum=0.9),
        activations=lambda groups: torch.optim.Adam(groups, lr=0.01),
    )
    restored.load_state_dict(optimizer.state_dict())


def test_other_parameters_go_on_being_learned():
    net = Net(lambda i: sk.nn.make("leaky_smelu", beta=1.0, learn=True))
    optimizer = adam(net)
    hardener = sk.Hardener(net, total=2, start=1)
    hardener.step(1), hardener.step(2)
    leak = net.acts[0].g_minus.detach().clone()
    train(net, optimizer)
    assert not torch.equal(net.acts[0].g_minus, leak)
    assert not net.acts[0].raw_beta.requires_grad


# -- the plateau ------------------------------------------------------------------------------------------


def test_it_begins_when_the_metric_has_flattened():
    net = Net()
    hardener = sk.Hardener(net, total=20, start="plateau", better="lower", patience=2, min_delta=0.01)
    losses = [None, 1.0, 0.5, 0.499, 0.498, 0.4]  # the last is never asked for
    begun = []
    for e, loss in enumerate(losses, start=1):
        hardener.step(e, metric=loss)
        begun.append(hardener.begun)
    # 0.499 and 0.498 are not a hundredth below 0.5; the second of them is known before epoch 5.
    assert begun == [False, False, False, False, True, True]
    assert hardener.last_free == 4
    assert hardener.progress == pytest.approx(2 / 16)
    for e in range(7, 21):
        hardener.step(e)
    assert net.acts[0].lam.item() == pytest.approx(TARGET, rel=F32)


def test_higher_may_be_better_and_nonsense_is_no_improvement():
    hardener = sk.Hardener(Net(), total=20, start="plateau", better="higher", patience=2)
    for e, metric in enumerate([None, 0.5, 0.7, 0.9, math.nan, 0.9, 1.0], start=1):
        hardener.step(e, metric=metric)
    assert hardener.last_free == 5
    hardener = sk.Hardener(Net(), total=20, start="plateau", better="lower", patience=1)
    hardener.step(1, metric=1.0)
    hardener.step(1, metric=1.0)  # the same step again is not another metric
    assert not hardener.begun


def test_it_begins_at_the_latest():
    hardener = sk.Hardener(Net(), total=10, start="plateau", better="lower", latest=0.3)
    for e in range(1, 6):
        hardener.step(e, metric=1 / e)
    assert (hardener.begun, hardener.last_free) == (True, 3)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "better='lower'"),
        ({"better": "smaller"}, "better='lower'"),
        ({"better": "lower", "patience": 0}, "patience"),
        ({"better": "lower", "min_delta": -1}, "min_delta"),
        ({"better": "lower", "latest": 1.5}, "latest"),
    ],
)
def test_plateaus_that_are_refused(settings, words):
    with pytest.raises(ParameterError, match=words):
        sk.Hardener(Net(), total=8, start="plateau", **settings)


# -- resuming ---------------------------------------------------------------------------------------------


def run(net, optimizer, hardener, epochs, trace) -> None:
    for e in epochs:
        hardener.step(e, metric=1.0)
        train(net, optimizer, seed=e)
        trace.append([p.detach().clone() for p in net.state_dict().values()])


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
    for one, other in zip(through, first, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


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


# -- copies, accumulation, wrappers -----------------------------------------------------------------------


@pytest.mark.parametrize("use_buffers", [False, True])
def test_an_averaged_copy_follows(use_buffers: bool):
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    net = srelu_net()
    average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=use_buffers)
    forgotten = copy.deepcopy(average)
    optimizer = adam(net)
    hardener = sk.Hardener(net, total=6, start=0.5, copies=[average])
    for e in range(1, 7):
        hardener.step(e)
        for _ in range(3):
            train(net, optimizer)
            average.update_parameters(net)
            forgotten.update_parameters(net)
        if e == 3:
            learned = [act.delta.item() for act in average.module.acts]
        if e > 3:  # also after the updates that follow the step
            for act, one in zip(net.acts, average.module.acts, strict=True):
                assert torch.equal(act.delta, one.delta)
    assert learned != [act.delta.item() for act in net.acts]
    assert abs(forgotten.module.acts[0].delta.item() / net.acts[0].delta.item() - 1) > 0.05
    hardener.sync_(forgotten)
    assert torch.equal(forgotten.module.acts[0].delta, net.acts[0].delta)


def test_a_copy_of_something_else_is_refused():
    hardener = sk.Hardener(Net(), total=4)
    with pytest.raises(ParameterError, match=r"has nothing where the model has LambdaGELU, at 'acts.1'"):
        hardener.sync_(Net(depth=1))
    with pytest.raises(ParameterError, match="has SReLU"):
        sk.Hardener(Net(), total=4, copies=[srelu_net()])
    with pytest.raises(ParameterError, match=r"other knobs than the model at 'acts.0'"):
        hardener.sync_(Net(lambda i: sk.nn.LambdaGELU(lam=1.5)))


@pytest.mark.filterwarnings("ignore:Hardener. 1 of 2 activations:UserWarning")  # the first is hard already
def test_a_copy_of_a_knob_that_stays_is_not_left_behind():
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    net = Net(lambda i: sk.nn.SReLU(delta=(0.02, 1.0)[i], learn=True))
    average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    optimizer = adam(net)
    hardener = sk.Hardener(net, total=4, start=0.5, copies=[average])
    for e in range(1, 5):
        hardener.step(e)
        train(net, optimizer)
        average.update_parameters(net)
    assert hardener.stays == ("acts.0",)
    assert net.acts[0].raw_delta.item() != 0
    assert torch.equal(average.module.acts[0].delta, net.acts[0].delta)


def test_attached_it_counts_steps_of_the_optimiser_and_not_batches():
    net = srelu_net()
    optimizer = adam(net)
    hardener = sk.Hardener(net, total=8, start=0.25)
    handle = hardener.attach(optimizer)
    positions = []
    for batch in range(24):  # three are accumulated into one step
        x, y = data(batch)
        ((net(x) - y).square().mean() / 3).backward()
        positions.append(hardener.position)
        if batch % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()
    assert positions == [n for n in range(1, 9) for _ in range(3)]
    assert hardener.position == 8
    assert hardener.progress == 1
    handle.remove()
    assert net.acts[0].delta.item() == pytest.approx(16 * 5e-3 / 3, rel=4 * F32)


@pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning")  # there is no accelerator to pin memory for
def test_accelerate(tmp_path):
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    def parts():
        AcceleratorState._reset_state(True)
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        net = srelu_net()
        wrapped, optimizer = accelerator.prepare(net, adam(net))
        hardener = sk.Hardener(wrapped, total=6, start=0.5)
        accelerator.register_for_checkpointing(hardener)
        return accelerator, wrapped, optimizer, hardener

    def train_batches(parts, batches) -> None:
        accelerator, net, optimizer, hardener = parts
        for batch in batches:
            with accelerator.accumulate(net):
                x, y = data(batch)
                accelerator.backward((net(x) - y).square().mean())
                optimizer.step()
                optimizer.zero_grad()
                if accelerator.sync_gradients:
                    hardener.step()

    whole = parts()
    train_batches(whole, range(12))
    assert whole[3].position == 6
    assert whole[1].acts[0].delta.item() == pytest.approx(16 * 5e-3 / 3, rel=4 * F32)

    first = parts()
    train_batches(first, range(8))
    first[0].save_state(str(tmp_path))
    second = parts()
    second[0].load_state(str(tmp_path))
    assert second[3].position == 4
    train_batches(second, range(8, 12))
    states = (one[1].state_dict().values() for one in (whole, second))
    assert all(torch.equal(a, b) for a, b in zip(*states, strict=True))


def test_names_do_not_depend_on_the_wrapper():
    from torch.nn.parallel import DataParallel

    net = Net()
    for wrapped in (torch.compile(net, backend="eager"), DataParallel(net), DataParallel(torch.compile(Net()))):
        hardener = sk.Hardener(wrapped, total=8)
        assert [site.path for site in hardener.sites] == ["acts.0", "acts.1"]
        plain = sk.Hardener(Net(), total=8)
        plain.load_state_dict(hardener.state_dict())
    inside = Net()
    inside.acts[0] = torch.compile(inside.acts[0], backend="eager")
    assert [site.path for site in sk.Hardener(inside, total=8).sites] == ["acts.0", "acts.1"]


def test_a_compiled_model_sees_every_step_and_compiles_once_for_the_freeze():
    from torch._dynamo.testing import CompileCounter

    net = srelu_net()
    counter = CompileCounter()
    fast = torch.compile(net, backend=counter, fullgraph=True)
    hardener = sk.Hardener(fast, total=12, start=2)
    x, _ = data()
    counts = []
    for e in range(1, 13):
        hardener.step(e)
        assert torch.allclose(fast(x), net(x), atol=1e-6)
        counts.append(counter.frame_count)
    # Once at first, and once more because the knobs need no gradient any longer.
    # 2.11's compiler does not look at requires_grad again.
    again = 2 if torch.__version__ >= (2, 12) else 1
    assert counts == [1, 1, *[again] * 10]


def test_data_parallel_processes_that_wait_for_every_gradient_are_refused(tmp_path):
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        net = srelu_net()
        with pytest.raises(ParameterError, match=r"'acts.0'.*find_unused_parameters=True"):
            sk.Hardener(DistributedDataParallel(net), total=4)
        fixed = Net(lambda i: sk.nn.SReLU(delta=1.0))
        sk.Hardener(DistributedDataParallel(fixed), total=4)  # nothing of it is trained
        wrapped = DistributedDataParallel(net, find_unused_parameters=True)
        hardener = sk.Hardener(wrapped, total=4)
        optimizer = adam(wrapped)
        for e in range(1, 5):
            hardener.step(e)
            train(wrapped, optimizer)
            train(wrapped, optimizer)
        assert net.acts[0].delta.item() == pytest.approx(16 * 5e-3 / 3, rel=4 * F32)
        assert list(hardener.state_dict()["sites"]) == ["acts.0", "acts.1"]
    finally:
        dist.destroy_process_group()


# Two processes that harden together: test_surgery_distributed.py, beside the others that need two.


# -- bad input --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"total": 0}, "total"),
        ({"total": 2.5}, "total"),
        ({"total": True}, "total"),
        ({"start": -0.1}, "start"),
        ({"start": 1.0}, "start"),
        ({"start": 8}, "start"),
        ({"start": True}, "start"),
        ({"start": "soon"}, "'plateau'"),
        ({"tolerance": 0}, "tolerance"),
        ({"tolerance": math.inf}, "tolerance"),
        ({"tolerance": "small"}, "tolerance"),
        ({"where": "encoder.*"}, "matches none of the 2 softknee activations"),
    ],
)
def test_settings_that_are_refused(settings, words):
    with pytest.raises(ParameterError, match=words):
        sk.Hardener(Net(), **{"total": 8, **settings})


def test_models_that_are_refused():
    with pytest.raises(InputError, match="no softknee activation"):
        sk.Hardener(nn.Sequential(nn.Linear(2, 2), nn.GELU()), total=8)
    mixed = nn.Sequential(sk.nn.LambdaGELU(learn=True), sk.nn.Tanh())
    with pytest.raises(ParameterError, match=r"'1'.*tanh cannot be hardened.*where="):
        sk.Hardener(mixed, total=8)
    assert mixed[0].raw_lam.requires_grad
    assert len(sk.Hardener(mixed, total=8, where="0").sites) == 1
    assert len(sk.Hardener(mixed, total=8, where=lambda path, module: isinstance(module, sk.nn.LambdaGELU)).sites) == 1
    with pytest.raises(ParameterError, match="infinitely far"):
        sk.Hardener(nn.Sequential(sk.nn.SmoothReLU()), total=8)
    with pytest.raises(ParameterError, match="staircase"):
        sk.Hardener(nn.Sequential(sk.nn.Squaf()), total=8)
    with pytest.raises(ParameterError, match=r"hard already \(relu, prelu\)"):
        sk.Hardener(nn.Sequential(sk.nn.ReLU(), sk.nn.PReLU()), total=8)
    assert len(sk.Hardener(nn.Sequential(sk.nn.ReLU(), sk.nn.SReLU(delta=1.0)), total=8).sites) == 1


def test_time_does_not_go_back():
    net = Net()
    hardener = sk.Hardener(net, total=8)
    for e in range(1, 6):
        hardener.step(e)
    before = net.acts[0].lam.item()
    with pytest.raises(ParameterError, match="step 3 comes after step 5"):
        hardener.step(3)
    assert net.acts[0].lam.item() == before
    for nonsense in (math.nan, -1, "5", True, math.inf):
        with pytest.raises(ParameterError, match="number of an epoch"):
            hardener.step(nonsense)
    with pytest.raises(ParameterError, match="metric must be a number"):
        sk.Hardener(Net(), total=8, start="plateau", better="lower").step(1, metric="good")


def test_a_resumed_run_without_its_state_is_refused():
    """It would take the knobs as they are now for what they were when they were frozen."""
    net = Net()
    with pytest.raises(ParameterError, match=r"first step is 5.*load_state_dict"):
        sk.Hardener(net, total=8).step(5)
    assert net.acts[0].raw_lam.requires_grad
    sk.Hardener(Net(), total=8).step(2)  # before the freeze nothing is lost


def test_a_model_changed_by_surgery_is_refused():
    net = Net()
    hardener = sk.Hardener(net, total=8)
    net.acts[1] = sk.nn.LambdaGELU(learn=True)
    with pytest.raises(ParameterError, match=r"'acts.1' is not the one"):
        hardener.step(1)


def test_repr():
    hardener = sk.Hardener(Net(), total=8)
    assert repr(hardener) == "Hardener(2 sites: lambda_gelu; at 0 of 8, free until 2)"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hardener.step(1), hardener.step(5)
    assert repr(hardener) == "Hardener(2 sites: lambda_gelu; at 5 of 8, progress 50%)"
