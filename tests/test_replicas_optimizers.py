"""Each stacked optimiser moves every replica as torch.optim moves one model."""

from functools import partial

import pytest
import torch

import softknee as sk
from softknee.errors import ParameterError
from softknee.train.optimizers import KINDS, StackedOptimizer, read_options

TORCH = {
    "sgd": torch.optim.SGD,
    "adagrad": torch.optim.Adagrad,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
}
CASES = [
    ("sgd", {}),
    ("sgd", {"momentum": 0.9}),
    ("sgd", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("adagrad", {}),
    ("adagrad", {"lr_decay": 0.1, "initial_accumulator_value": 0.5, "weight_decay": 0.01}),
    ("adam", {}),
    ("adam", {"betas": (0.8, 0.95), "weight_decay": 0.01}),
    ("adamw", {}),
    ("adamw", {"weight_decay": 0.1, "eps": 1e-6}),
    ("rmsprop", {}),
    ("rmsprop", {"momentum": 0.9, "centered": True, "alpha": 0.9, "weight_decay": 0.01}),
]
REPLICAS, STEPS = 3, 30


def rates(step: int) -> float:
    return 0.02 * (1 - step / STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("each", [True, False], ids=["a rate each", "one rate"])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_every_replica_moves_as_with_torch(name: str, options: dict, fused: bool, each: bool):
    draw = torch.Generator().manual_seed(1)
    shapes = [(4, 3), (4,), (1,)]
    start = [torch.randn(REPLICAS, *shape, generator=draw) for shape in shapes]
    gradients = [[torch.randn(REPLICAS, *shape, generator=draw) for shape in shapes] for _ in range(STEPS)]
    factors = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64) if each else torch.ones(1, dtype=torch.float64)
    # The second group has neither decay nor the plain rate, as the parameters of activations.
    stacked = [value.clone() for value in start]
    optimizer = StackedOptimizer(
        name, [(stacked[:2], 1.0, True), (stacked[2:], 9.0, False)], options=options, fused=fused
    )
    for step, g in enumerate(gradients):
        optimizer.step([g[:2], g[2:]], (factors * rates(step)).reshape(-1) if each else factors[0] * rates(step))
    for i in range(REPLICAS):
        own = [torch.nn.Parameter(entry[i].clone()) for entry in start]
        alone = TORCH[name](
            [{"params": own[:2]}, {"params": own[2:], "weight_decay": 0.0}], lr=0.02, **options, foreach=False
        )
        for step, g in enumerate(gradients):
            for group, scale in zip(alone.param_groups, (1.0, 9.0), strict=True):
                group["lr"] = rates(step) * scale * (float(factors[i]) if each else 1.0)
            for p, item in zip(own, g, strict=True):
                p.grad = item[i].clone()
            alone.step()
        for p, result in zip(own, stacked, strict=True):
            torch.testing.assert_close(result[i], p.detach(), rtol=3e-6, atol=3e-6)
        assert not torch.equal(own[0].detach(), start[0][i])


def test_every_optimiser_is_tested_and_has_the_defaults_of_torch():
    assert {name for name, _ in CASES} == set(KINDS) == set(TORCH)
    for name, kind in KINDS.items():
        theirs = TORCH[name]([torch.nn.Parameter(torch.zeros(1))], lr=0.1).defaults
        assert {key: theirs[key] for key in kind.options} == kind.options


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("adma", {}, "Did you mean 'adam'"),
        ("lion", {}, "Known are sgd"),
        ("sgd", {"momentun": 0.9}, "Did you mean 'momentum'"),
        ("sgd", {"nesterov": True}, "needs a momentum above 0"),
        ("sgd", {"momentum": -1.0}, "finite number of at least 0"),
        ("sgd", {"momentum": 0.9, "nesterov": 1}, "True or False"),
        ("adam", {"betas": (0.9, 1.0)}, r"two numbers in \[0, 1\)"),
    ],
)
def test_options_are_checked(name: str, options: dict, says: str):
    with pytest.raises(ParameterError, match=says):
        read_options(name, options)


def test_schedules():
    assert [sk.train.linear()(p) for p in (0.0, 0.25, 0.5)] == [1.0, 0.75, 0.5]
    assert sk.train.cosine(floor=0.1)(0.5) == pytest.approx(0.55)
    warm = [sk.train.linear, sk.train.cosine, sk.train.constant, partial(sk.train.step, milestones=[0.9])]
    for kind in warm:
        shares = [kind(warmup=0.2, start=0.5)(progress) for progress in (0.0, 0.1, 0.2)]
        assert shares == pytest.approx([0.5, 0.75, 1.0])
    with pytest.raises(ParameterError, match=r"start must be in \[0, 1\)"):
        sk.train.cosine(warmup=0.2, start=1.0)
    assert [sk.train.constant(warmup=0.5)(p) for p in (0.0, 0.25, 0.5, 0.9)] == [0.0, 0.5, 1.0, 1.0]
    with pytest.raises(ParameterError, match="warmup"):
        sk.train.cosine(warmup=1.0)
