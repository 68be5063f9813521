"""Replicas as modules of their own (`compiled=True`) train as the batched program does, on a CPU."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import softknee as sk
from softknee.errors import InputError, ParameterError
from softknee.train.arguments import read_single
from softknee.train.augment import Augment
from softknee.train.program import Program, SeparateGradients
from softknee.train.stacking import Stack

# A CPU without products in bfloat16 says so once, and computes them another way.
pytestmark = pytest.mark.filterwarnings("ignore:mkldnn_matmul failed:UserWarning")

IMAGES = torch.randn(50, 2, 6, 6, generator=torch.Generator().manual_seed(0))
LABELS = (IMAGES[:, 0].mean((1, 2)) > 0).long() + (IMAGES[:, 1].mean((1, 2)) > 0).long()
ROWS, ROW_LABELS = IMAGES.flatten(1)[:, :6].contiguous(), LABELS
FIT: dict[str, Any] = {"batch": 20, "lr": 0.01, "clip": 0.6, "gradient_norms": True}
# Two ways to sum a product differ in the last bits, and training lets them grow.
NEAR = {"rtol": 5e-4, "atol": 5e-5}


def conv_net() -> nn.Module:
    # No bias before the norm: its gradient is rounding alone, which adaptive rules blow up to whole steps.
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, bias=False), nn.BatchNorm2d(6), sk.nn.LambdaGELU(lam=1.5, learn=True), nn.Dropout2d(0.2),
        nn.Flatten(), nn.Dropout(0.3), nn.Linear(96, 3),
    )  # fmt: skip


def sampled() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), sk.nn.SQUAFP(k=4, q=0.5, learn=True), nn.Linear(16, 3))


def learned() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), sk.nn.SmeLU(beta=0.5, learn="beta"), nn.Dropout(0.2), nn.Linear(16, 3))


class Tied(nn.Module):
    """Words in and words out by one weight, which a layer of each kind holds."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.hidden = nn.Embedding(7, 8), nn.Linear(8, 8)
        self.head = nn.Linear(8, 7, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.hidden(self.words(x))).mean(1))


def same(one: sk.train.Replicas, two: sk.train.Replicas, x: Tensor, **near: float) -> None:
    near = near or NEAR
    torch.testing.assert_close(one.losses, two.losses, **near)
    torch.testing.assert_close(one.gradient_norms, two.gradient_norms, **near)
    for (name, ours), theirs in zip(one.weights().items(), two.weights().values(), strict=True):
        torch.testing.assert_close(ours, theirs, **near, msg=lambda text, name=name: f"{name}: {text}")
    torch.testing.assert_close(one.predict(x), two.predict(x), **near)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "options"),
    [("sgd", {"momentum": 0.9}), ("adagrad", {}), ("adamw", {"weight_decay": 0.05})],
    ids=["sgd", "adagrad", "adamw"],
)
@pytest.mark.parametrize("net", [conv_net, sampled], ids=["conv", "sampled"])
def test_modules_apart_train_as_the_batched_program(net, optimizer, options):
    x = IMAGES if net is conv_net else ROWS
    given = FIT | {"optimizer": optimizer, "schedule": sk.train.cosine()} | options
    together = sk.train.Replicas(net, count=3).fit(x, LABELS, epochs=4, **given)
    apart = sk.train.Replicas(net, count=3).fit(x, LABELS, epochs=4, compiled=True, **given)
    assert not torch.allclose(together.losses[-1], together.losses[0], rtol=1e-2)
    assert float(together.gradient_norms.max()) > FIT["clip"]  # so that the clipping is seen
    same(together, apart, x)
    assert float(apart.weights()["0.weight"].diff(dim=0).abs().min()) > 0  # each has weights of its own


def test_freezing_and_knobs_in_between():
    def trained(**how: Any) -> sk.train.Replicas:
        made = sk.train.Replicas(learned, count=3, knobs={"beta": [0.3, 0.5, 1.0]})
        given = FIT | how | {"optimizer": "adamw", "epochs": 2}
        made.fit(ROWS, LABELS, **given)
        made.freeze_knobs().set_knobs({"beta": [0.7, 0.8, 0.9]}).fit(ROWS, LABELS, **given)
        torch.testing.assert_close(made.knobs()["1.beta"].flatten(), torch.tensor([0.7, 0.8, 0.9]))
        return made

    same(trained(), trained(compiled=True), ROWS)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_going_on_from_a_state_is_as_if_never_stopped(precision):
    given = FIT | {"compiled": True, "precision": precision, "optimizer": "adamw", "total_epochs": 4}
    whole = sk.train.Replicas(conv_net, count=2).fit(IMAGES, LABELS, epochs=4, **given)
    half = sk.train.Replicas(conv_net, count=2).fit(IMAGES, LABELS, epochs=2, **given)
    state = copy.deepcopy(half.state_dict())
    rest = sk.train.Replicas(conv_net, count=2).load_state_dict(state).fit(IMAGES, LABELS, epochs=2, **given)
    assert torch.equal(whole.losses, rest.losses)
    assert all(map(torch.equal, whole.weights().values(), rest.weights().values()))
    # The modules that are there see a state that is loaded under them.
    half.fit(IMAGES, LABELS, epochs=1, **given).load_state_dict(state)
    torch.testing.assert_close(half.predict(IMAGES), rest.load_state_dict(state).predict(IMAGES), rtol=0, atol=0)


def test_a_state_of_the_batched_program_goes_on_apart_and_back():
    given = FIT | {"optimizer": "adamw", "total_epochs": 4}
    whole = sk.train.Replicas(conv_net, count=2).fit(IMAGES, LABELS, epochs=4, **given)
    state = sk.train.Replicas(conv_net, count=2).fit(IMAGES, LABELS, epochs=1, **given).state_dict()
    mixed = sk.train.Replicas(conv_net, count=2).load_state_dict(state)
    mixed.fit(IMAGES, LABELS, epochs=2, compiled=True, **given).fit(IMAGES, LABELS, epochs=1, **given)
    same(whole, mixed, IMAGES)


def test_predicting_in_between_and_the_models_that_come_out():
    made = sk.train.Replicas(conv_net, count=2)
    seen: list[Tensor] = []
    made.fit(
        IMAGES, LABELS, epochs=2, compiled=True, on_epoch=lambda now: seen.append(now.predict(IMAGES, batch=7)), **FIT
    )
    unseen = sk.train.Replicas(conv_net, count=2).fit(IMAGES, LABELS, epochs=2, compiled=True, **FIT)
    assert torch.equal(made.losses, unseen.losses)  # looking on changes nothing, not even the running statistics
    torch.testing.assert_close(seen[-1], made.predict(IMAGES))
    for index, model in enumerate(made.models()):
        assert type(model[3]) is nn.Dropout2d  # an ordinary model
        torch.testing.assert_close(model.eval()(IMAGES), seen[-1][index])
    chances = made.predict(IMAGES, probabilities=True)
    torch.testing.assert_close(chances.sum(-1), torch.ones(2, len(IMAGES)))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_tied_weight_has_its_whole_gradient(precision):
    words = torch.randint(7, (40, 5), generator=torch.Generator().manual_seed(1))
    given = {"epochs": 1, "batch": 40, "lr": 1.0, "compiled": True, "precision": precision}
    made = sk.train.Replicas(Tied, count=2)
    names = [name for name in made.weights() if "weight" in name and "hidden" not in name]
    assert names == ["words.weight"]
    start = made.weights()["words.weight"]
    moved = made.fit(words, words[:, 0], **given).weights()["words.weight"]
    for index in range(2):
        torch.manual_seed(index)
        model = Tied()
        assert torch.equal(model.words.weight, start[index])
        F.cross_entropy(model(words), words[:, 0]).backward()
        gradient = model.words.weight.grad
        assert gradient is not None
        near = {"rtol": 1e-4, "atol": 1e-6} if precision == "float32" else {"rtol": 0.03, "atol": 1e-3}
        torch.testing.assert_close((start - moved)[index], gradient, **near)
    model = made.model(0)
    assert model.get_parameter("head.weight") is model.get_parameter("words.weight")


@pytest.mark.parametrize("net", [conv_net, learned], ids=["conv", "learned"])
def test_bfloat16_is_close_and_keeps_its_weights_in_float32(net):
    x = IMAGES if net is conv_net else ROWS
    given = FIT | {"optimizer": "adamw", "compiled": True, "epochs": 3}
    full = sk.train.Replicas(net, count=2).fit(x, LABELS, **given)
    half = sk.train.Replicas(net, count=2).fit(x, LABELS, precision="bfloat16", **given)
    assert all(weight.dtype == torch.float32 for weight in half.weights().values() if weight.is_floating_point())
    assert not torch.equal(full.losses, half.losses)
    torch.testing.assert_close(full.losses, half.losses, rtol=0.03, atol=0.01)
    # A weight that moves by less than a bfloat16 can tell still moves.
    moved = (half.weights()["0.weight"] - sk.train.Replicas(net, count=2).weights()["0.weight"]).abs()
    assert float(moved.min()) > 0


def test_copies_in_half_are_what_autocast_makes():
    """The gradients of the first step, beside those of torch's autocast alone on the same models."""
    made = sk.train.Replicas(
        lambda: nn.Sequential(nn.Conv2d(2, 6, 3), nn.GELU(), nn.Flatten(), nn.Linear(96, 3)), count=2
    )
    start, alone = made.weights(), made.models()
    given = {"lr": 1.0, "batch": 50, "epochs": 1, "compiled": True, "precision": "bfloat16"}
    moved = made.fit(IMAGES, LABELS, **given).weights()
    for index, model in enumerate(alone):
        order = sk.train.order(seeds=[index], epoch=0, length=50)[0]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = model(IMAGES[order])
        F.cross_entropy(output.float(), LABELS[order]).backward()
        for name, parameter in model.named_parameters():
            # What the subtraction of a step loses of a gradient, and no more.
            torch.testing.assert_close((start[name] - moved[name])[index], parameter.grad, rtol=1e-4, atol=1e-6)


def test_precision_is_checked():
    made = sk.train.Replicas(learned, count=2)
    with pytest.raises(ParameterError, match=r"precision='bfloat16' is for compiled models: pass compiled=True"):
        made.fit(ROWS, LABELS, epochs=1, precision="bfloat16", **FIT)
    for compiled in (False, True):
        with pytest.raises(ParameterError, match=r"precision must be 'float32' or 'bfloat16', and 'float16' was given"):
            made.fit(ROWS, LABELS, epochs=1, precision="float16", compiled=compiled, **FIT)
    with pytest.raises(InputError, match=r"The loss must be one number"):
        made.fit(
            ROWS, LABELS, epochs=1, compiled=True, loss=lambda a, b: F.cross_entropy(a, b, reduction="none"), **FIT
        )


def step_of(made: sk.train.Replicas, *, compiled: bool) -> SeparateGradients:
    stack: Stack = made._stack
    return SeparateGradients(
        template=stack.template,
        tensors=stack.tensors,
        names=list(stack.moving.values()),
        draws=made._draws,
        loss=read_single("cross_entropy"),
        precision="float32",
        compiled=compiled,
    )


@pytest.fixture
def counters() -> Any:
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    return torch._dynamo.utils.counters


X, Y = ROWS[:30].view(3, 10, 6), LABELS[:30].view(3, 10)


@pytest.mark.slow
def test_one_compiled_graph_serves_all_replicas(counters):
    """Through torch.compile in earnest, with a knob for each replica, dropout and a step that goes on."""
    kept: list[tuple[Tensor, list[list[Tensor]]]] = []
    for compiled in (False, True):
        made = sk.train.Replicas(learned, count=3, knobs={"beta": [0.3, 0.5, 1.0]})
        step = step_of(made, compiled=compiled)
        for _ in range(2):
            losses, gradients = step(X, Y)
            kept.append((losses.clone(), [[item.clone() for item in group] for group in gradients]))
            made._draws.step.add_(1)
    for plain, compiled in zip(kept[:2], kept[2:], strict=True):
        torch.testing.assert_close(plain, compiled, rtol=1e-5, atol=1e-6)
    assert not torch.equal(kept[2][0], kept[3][0])  # another step has another dropout
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]


@pytest.mark.slow
def test_many_models_are_compiled_one_after_the_other(counters, monkeypatch):
    """As many as there are, with a graph each, though torch keeps few versions of one piece of code."""
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda *args, **kwargs: real(*args, **kwargs | {"backend": "eager"}))
    nets = [learned, sampled, lambda: nn.Linear(6, 3), lambda: nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5))]
    settings = torch._dynamo.config
    limit = "recompile_limit" if hasattr(settings, "recompile_limit") else "cache_size_limit"  # as torch 2.6 calls it
    with settings.patch({limit: 2}):
        for net in nets:
            step_of(sk.train.Replicas(net, count=3), compiled=True)(X, Y)
    assert counters["stats"]["unique_graphs"] == len(nets)
    assert not counters["graph_break"]
    assert not counters["unimplemented"]


def test_a_model_that_torch_cannot_compile_is_named_with_the_cure(monkeypatch):
    real = torch.compile

    def fail(*args: Any) -> None:
        raise RuntimeError("PassManager::run failed\nand a page of what was to be compiled")

    monkeypatch.setattr(torch, "compile", lambda *args, **kwargs: real(*args, **kwargs | {"backend": fail}))
    with pytest.raises(InputError, match=r"could not compile Linear: train without it .*engine: replicas.*PassManager"):
        step_of(sk.train.Replicas(lambda: nn.Linear(6, 3), count=2), compiled=True)(X, Y)


@pytest.mark.slow
def test_a_batch_is_gathered_and_augmented_by_one_graph(counters, monkeypatch):
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda *args, **kwargs: real(*args, **kwargs | {"backend": "eager"}))
    pictures = torch.randint(256, (40, 3, 8, 8), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    more = {"randaugment": (9, 0.5), "mixup": 0.8, "cutmix": 1.0, "erasing": 0.25, "smoothing": 0.1}
    augment = Augment(crop=2, flip=True, classes=10, mean=(0.5,) * 3, std=(0.25,) * 3, **more)
    made = sk.train.Replicas(conv_net, count=2)
    unused: Any = None
    both = []
    for compiled in (False, True):
        program = Program(
            differentiate=unused, tensors={}, draws=made._draws, x=pictures, y=torch.arange(40) % 10,
            order=sk.train.order(seeds=[0, 1], epoch=0, length=40), rates=torch.zeros(4), log=torch.zeros(4, 1, 2),
            batch=10, optimizer=unused, clip=None, augment=augment, compiled=compiled,
        )  # fmt: skip
        results = []
        for step in range(3):
            program.turn.fill_(step)
            made._draws.step.fill_(step)
            results.append(program._batch(10))
        both.append(results)
    torch.testing.assert_close(both[0], both[1])
    assert not torch.equal(both[0][0][0], both[0][1][0])
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]
