"""Image networks trained with a loss of one's own: the same as a plain loop with torch's optimisers."""

import pytest
import torch
from softknee.lab.image_training import Batches, Entry, ImageTraining, Plan, accuracy, build, squaf, trained_numbers
from torch.nn import functional as F

from small_images import tiny, two_halves
from softknee.errors import InputError, ParameterError
from softknee.lab.rates import QuickRate
from softknee.lab.vision_networks import NETWORKS
from softknee.nn import SQUAF
from softknee.surgery.groups import activation_parameters
from softknee.train.random_keys import order

PLAIN = {"crop": 0, "flip": False, "precision": "f32"}
RELU = Entry(title="ReLU", name="relu")


@pytest.fixture(autouse=True)
def _tiny(monkeypatch):
    monkeypatch.setitem(NETWORKS, "tiny", tiny)


def test_a_training_is_that_of_torchs_optimisers_on_the_same_batches():
    data, plan = two_halves(10), Plan(epochs=2, batch=4, milestones=(0.5,), weight_decay=0.1, **PLAIN)
    model = build("tiny", squaf(), classes=2, seed=3)
    start = {name: one.clone() for name, one in model.state_dict().items()}
    training = ImageTraining(model, data, plan, device="cpu").begin(start, seed=5).run()

    plain = build("tiny", squaf(), classes=2, seed=3)
    own = activation_parameters(plain)
    weights = [one for one in plain.parameters() if one.requires_grad and id(one) not in own]
    knobs = [one for one in plain.parameters() if one.requires_grad and id(one) in own]
    assert sum(one.numel() for one in knobs) == 35
    sgd = torch.optim.SGD(weights, lr=0.05, momentum=0.9, weight_decay=0.1)
    adam = torch.optim.Adam(knobs, lr=1e-3)
    x, losses = data.ready(data.train_images), []
    for epoch in range(2):
        sgd.param_groups[0]["lr"] = 0.05 * 0.1**epoch
        shuffled = order(seeds=[5], epoch=epoch, length=10)[0]
        for row in (shuffled[:4], shuffled[4:8]):  # two images are left over
            loss = F.cross_entropy(plain(x[row]), data.train_labels[row])
            losses.append(loss.detach())
            for one in (sgd, adam):
                one.zero_grad()
            loss.backward()
            for one in (sgd, adam):
                one.step()
    torch.testing.assert_close(training.losses, torch.stack(losses), rtol=1e-4, atol=1e-5)
    for name, one in plain.state_dict().items():
        torch.testing.assert_close(training.model.state_dict()[name], one, rtol=1e-3, atol=1e-4, msg=name)


def test_beginning_again_gives_the_same_and_another_seed_another():
    data, plan = two_halves(8), Plan(epochs=2, batch=4, every=1, precision="f32")
    model = build("tiny", squaf("SQUAF-P", q=0.25, mode="sampled"), classes=2, seed=0)
    start = {name: one.clone() for name, one in model.state_dict().items()}
    training = ImageTraining(model, data, plan, device="cpu")
    first, tests = training.begin(start, seed=0).run().losses, dict(training.tests)
    assert torch.equal(training.begin(start, seed=0).run().losses, first)
    assert training.tests == tests
    assert list(tests) == [1, 2]
    assert not torch.equal(training.begin(start, seed=1).run().losses, first)


def test_it_learns_and_says_how_much_was_right():
    data = two_halves()
    model = build("tiny", RELU, classes=2, seed=0)
    seen = []
    training = ImageTraining(model, data, Plan(epochs=8, batch=8, learning_rate=0.02, **PLAIN), device="cpu")
    training.begin({name: one.clone() for name, one in model.state_dict().items()}, seed=0).run(
        lambda: seen.append(training.epoch)
    )
    assert seen == list(range(1, 9))
    assert len(training.train_accuracy) == 8
    assert training.train_accuracy[-1] > max(90, training.train_accuracy[0])
    assert accuracy(training.snapshot(), data) == training.tests[8] > 90


def test_bfloat16_trains_to_nearly_the_same():
    data, seen, losses = two_halves(), [], []
    for precision in ("f32", "bf16"):
        model = build("tiny", squaf("SQUAF-P", q=0.125, mode="sampled"), classes=2, seed=0)
        start = {name: one.clone() for name, one in model.state_dict().items()}
        rate = QuickRate(model)
        model[2].register_forward_hook(lambda module, given, output: seen.append(output.dtype))
        plan = Plan(epochs=2, batch=8, learning_rate=0.02, crop=0, precision=precision)
        judge = lambda x, y, output, rate=rate: F.cross_entropy(output, y) + rate()  # noqa: E731
        training = ImageTraining(model, data, plan, device="cpu", judge=judge).begin(start, seed=0).run()
        losses.append(training.losses)
        assert training.tests[2] > 90
        assert next(model.parameters()).dtype == torch.float32
    assert set(seen) == {torch.float32, torch.bfloat16}
    torch.testing.assert_close(*losses, rtol=0.02, atol=0.02)


def test_the_numbers_of_the_papers_tables():
    counts = {"vgg8": 3_965_063, "wrn16_2": 703_319}  # table 7, SQUAF
    for network, count in counts.items():
        assert trained_numbers(build(network, squaf(), classes=100, seed=0)) == count
    prelu = Entry(title="PReLU", name="prelu", learn=True)
    assert trained_numbers(build("vgg8", prelu, classes=100, seed=0)) == 3_965_033
    first, *others = (one for one in build("vgg8", squaf(), classes=100, seed=0).modules() if isinstance(one, SQUAF))
    assert [one.requires_grad for one in first.parameters()] == [True] * 3
    assert not any(one.requires_grad for other in others for one in other.parameters())
    assert (first.k, first.q.item(), len(others)) == (16, 1.0, 4)


def test_what_cannot_be_is_refused():
    for wrong in ({"epochs": 0}, {"precision": "f8"}, {"momentum": 1.0}, {"learning_rate": float("nan")}):
        with pytest.raises(ParameterError, match=f"{next(iter(wrong))} must be"):
            Plan(**wrong)
    with pytest.raises(ParameterError, match=r"no network 'vgg9'.*Did you mean 'vgg8'"):
        build("vgg9", RELU, classes=2, seed=0)
    with pytest.raises(ParameterError, match="mode must be one of soft, sampled, step"):
        Entry(title="SQUAF", name="squaf", mode="hard")
    model = build("tiny", RELU, classes=2, seed=0)
    each = ImageTraining(model, two_halves(4), Plan(epochs=1, batch=4), device="cpu", judge=lambda x, y, o: o.sum(1))
    with pytest.raises(InputError, match="must be one number"):
        each.begin(model.state_dict(), seed=0).run()


def test_trainings_that_share_their_batches_see_what_they_would_see_alone():
    data, plan = two_halves(8), Plan(epochs=2, batch=4, precision="f32")
    shared, found = Batches(data, plan, device="cpu"), {}
    for batches in (shared, data):
        for name in ("relu", "gelu"):
            model = build("tiny", Entry(title=name, name=name), classes=2, seed=0)
            start = {key: one.clone() for key, one in model.state_dict().items()}
            losses = ImageTraining(model, batches, plan, device="cpu").begin(start, seed=1).run().losses
            found.setdefault(name, []).append(losses)
    for one, other in found.values():
        assert torch.equal(one, other)


@pytest.mark.gpu
def test_on_a_gpu_the_compiled_batches_are_those_of_a_cpu():
    data, plan = two_halves(16, side=32), Plan(epochs=1, batch=8)
    here, there = (Batches(data, plan, device=device) for device in ("cpu", "cuda"))
    for batches in (here, there):
        batches.begin(3)
        batches.begin_epoch(3, 0)
    for _ in range(2):
        (x, y), (u, v) = here.next(), there.next()
        torch.testing.assert_close(u.cpu(), x)
        assert torch.equal(v.cpu(), y)
        for counter in (*here.counters, *there.counters):
            counter.add_(1)


def test_batches_begin_at_the_first_turn():
    # A step is recorded after `begin` and before the first epoch, by running it: it must find a batch there.
    batches = Batches(two_halves(16, side=32), Plan(epochs=1, batch=8), device="cpu")
    batches.begin_epoch(0, 0)
    for counter in batches.counters:
        counter.add_(2)
    batches.begin(1)
    assert [int(one) for one in batches.counters] == [0, 0]
    assert len(batches.next()[1]) == 8


@pytest.mark.gpu
def test_on_a_gpu_networks_one_after_the_other_share_their_batches():
    data, plan = two_halves(20), Plan(epochs=1, batch=8, crop=0)  # no third batch fits
    batches = Batches(data, plan, device="cuda")
    for name in ("relu", "gelu"):
        model = build("tiny", Entry(title=name, name=name), classes=2, seed=0)
        training = ImageTraining(model, batches, plan, device="cuda")
        assert training.begin(model.state_dict(), seed=0).run().losses.isfinite().all()


@pytest.mark.gpu
def test_on_a_gpu_the_recorded_step_learns_and_serves_every_training():
    data, plan = two_halves(), Plan(epochs=8, batch=8, learning_rate=0.02, crop=0)
    model = build("tiny", squaf("SQUAF-P", q=0.125, mode="sampled"), classes=2, seed=0)
    start = {name: one.clone() for name, one in model.state_dict().items()}
    rate, price = QuickRate(model), torch.zeros((), device="cuda")
    training = ImageTraining(
        model,
        data,
        plan,
        device="cuda",
        judge=lambda x, y, output: F.cross_entropy(output, y) + price * rate(),
        holds={"price": price},
    )
    losses = {held: training.begin(start, seed=0, price=held).run().losses for held in (0.0, 2.0)}
    again = training.begin(start, seed=0, price=0.0).run()
    assert again.tests[8] > 90
    torch.testing.assert_close(again.losses, losses[0.0], rtol=0.1, atol=0.05)
    assert (losses[2.0] - losses[0.0])[:3].min() > 4  # two for every bit
