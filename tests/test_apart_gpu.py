"""Compiled and captured training on a GPU, against the batched program; dropout masks, batches and coarse functions."""

from typing import Any

import pytest
import torch
from torch import nn

import softknee as sk
from half import assert_rounds_well, every_number
from softknee.train.augment import Augment
from softknee.train.program import Program
from softknee.train.random_keys import bits, fold, masks, seed_keys
from softknee.train.stacked_modules import Draws

pytestmark = [
    pytest.mark.gpu,
    # torch's compiler recommends TF32, which would hide what is compared here.
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning"),
    # It also tells when it leaves one of its own ways to sum aside.
    pytest.mark.filterwarnings(r"ignore:\s*Online softmax is disabled:UserWarning"),
    # From Python 3.12 on a process with threads that forks is told so; the compiler starts its helpers that way.
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

IMAGES = torch.randn(90, 3, 8, 8, generator=torch.Generator().manual_seed(0))
LABELS = (IMAGES[:, 0].mean((1, 2)) > 0).long() + (IMAGES[:, 1].mean((1, 2)) > 0).long()
FIT: dict[str, Any] = {"batch": 32, "lr": 3e-3, "optimizer": "adamw", "clip": 1.0, "gradient_norms": True}


def net() -> nn.Module:
    # No bias before the norm: its gradient is rounding alone, which adaptive rules blow up to whole steps.
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, bias=False), nn.BatchNorm2d(16), sk.nn.LambdaGELU(lam=1.5, learn=True), nn.Dropout(0.2),
        nn.Conv2d(16, 16, 3), sk.nn.SReLU(delta=0.1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def exact_products():
    """TF32 would hide what is compared here."""
    held = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = held


def fitted(device: str = "cuda", *, epochs: int = 3, **how: Any) -> sk.train.Replicas:
    return sk.train.Replicas(net, count=2, device=device).fit(IMAGES, LABELS, epochs=epochs, **FIT | how)


def test_compiled_training_is_that_of_the_batched_program():
    """Three batches of an epoch, of which the last is smaller: two captured steps."""
    together, apart, on_cpu = fitted(), fitted(compiled=True), fitted("cpu")
    for other in (together, on_cpu):
        torch.testing.assert_close(apart.losses, other.losses, rtol=2e-3, atol=2e-4)
        torch.testing.assert_close(apart.gradient_norms, other.gradient_norms, rtol=2e-2, atol=2e-3)
    torch.testing.assert_close(apart.predict(IMAGES), together.predict(IMAGES), rtol=2e-2, atol=5e-3)
    for name in ("1.running_mean", "1.running_var", "1.num_batches_tracked"):
        torch.testing.assert_close(apart.weights()[name], together.weights()[name], rtol=2e-3, atol=2e-4)


def test_bfloat16_is_close_and_keeps_its_weights_in_float32():
    full, half = fitted(compiled=True), fitted(compiled=True, precision="bfloat16")
    assert all(weight.dtype == torch.float32 for weight in half.weights().values() if weight.is_floating_point())
    assert not torch.equal(full.losses, half.losses)
    torch.testing.assert_close(full.losses, half.losses, rtol=0.05, atol=0.02)
    assert float(half.losses[-3:].mean()) < float(half.losses[:3].mean())


def test_going_on_from_a_state_is_as_if_never_stopped():
    how = {"compiled": True, "total_epochs": 3}
    whole, part = fitted(**how), fitted(epochs=1, **how)
    rest = sk.train.Replicas(net, count=2, device="cuda").load_state_dict(part.state_dict())
    rest.fit(IMAGES, LABELS, epochs=2, **FIT | how)
    # cuDNN may choose another way to sum the second time.
    torch.testing.assert_close(whole.losses, rest.losses, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["f32", "bf16", "f16"])
@pytest.mark.parametrize("p", [0.1, 0.5, 1.0])
def test_masks_of_the_kernel_are_those_of_torch_operations(p, dtype):
    keys = fold(seed_keys([0, 5, 2**40 + 7]), 3)
    threshold, scale = round(p * 2**32), 1 / (1 - p) if p < 1 else 0.0
    for length in (1, 1024, 100_003):
        result = masks(keys.cuda(), length, threshold=threshold, scale=scale, dtype=dtype)
        assert torch.equal(result.cpu(), masks(keys, length, threshold=threshold, scale=scale, dtype=dtype))
        kept = (bits(keys.cuda(), length) >= threshold) & (scale > 0)
        assert torch.equal(result != 0, kept)


def test_a_compiled_mask_is_the_same():
    draws = Draws(seed_keys([1, 2], device="cuda"), torch.zeros(1, dtype=torch.int64, device="cuda"))
    draws.know("0")

    def mask() -> torch.Tensor:
        draws.passed.clear()
        return draws.mask("0", 5000, p=0.3, dtype=torch.float32)

    assert torch.equal(torch.compile(mask, dynamic=False)(), mask())


@pytest.mark.parametrize("full", [False, True], ids=["crop-flip", "full"])
def test_a_compiled_batch_is_the_eager_one(full):
    pictures = torch.randint(256, (40, 3, 16, 16), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    labels = torch.arange(40) % 10
    more = {"randaugment": (9, 0.5), "mixup": 0.8, "cutmix": 1.0, "erasing": 0.25, "smoothing": 0.1} if full else {}
    augment = Augment(crop=4, flip=True, classes=10, mean=(0.5,) * 3, std=(0.25,) * 3, **more)
    draws = Draws(seed_keys([0, 7], device="cuda"), torch.zeros(1, dtype=torch.int64, device="cuda"))
    order = sk.train.order(seeds=[0, 7], epoch=0, length=40, device="cuda")

    def batches(compiled: bool) -> list[tuple[torch.Tensor, torch.Tensor]]:
        unused: Any = None
        program = Program(
            differentiate=unused, tensors={}, draws=draws, x=pictures.cuda(), y=labels.cuda(), order=order,
            rates=torch.zeros(4, device="cuda"), log=torch.zeros(4, 1, 2, device="cuda"), batch=10, optimizer=unused,
            clip=None, augment=augment, compiled=compiled,
        )  # fmt: skip
        results = []
        for step in range(3):
            program.turn.fill_(step)
            draws.step.fill_(step)
            results.append(program._batch(10))
        return results

    for (images, targets), (plain_images, plain_targets) in zip(batches(True), batches(False), strict=True):
        torch.testing.assert_close(targets, plain_targets, rtol=1e-5, atol=1e-6)
        if not full:
            torch.testing.assert_close(images, plain_images, rtol=1e-5, atol=1e-5)
        else:
            # A level of 255 may be rounded the other way, and a picture on the seam of two places drawn next to it.
            far = (images - plain_images).abs() > 1.5 * 4 / 255
            assert float(far.float().mean()) < 0.01


@pytest.mark.parametrize("name", ["gelu", "lambda_gelu"])
def test_coarse_functions_under_the_compiler_round_well(name):
    """In bfloat16, every number of it: at most one unit from float64, value and slope."""
    act = sk.get(name)
    numbers = every_number(torch.bfloat16)
    numbers = numbers[numbers.abs() >= torch.finfo(torch.bfloat16).smallest_normal]
    exact = numbers.double().requires_grad_()
    truth = act(exact)
    (slope,) = torch.autograd.grad(truth.sum(), exact)
    x = numbers.cuda().requires_grad_()
    got = torch.compile(lambda one: act(one), dynamic=False)(x)
    (gradient,) = torch.autograd.grad(got.sum(), x)
    assert got.dtype == torch.bfloat16
    # The GPU's exponential gives 0 where its result would be subnormal.
    floor = 2.0**-110
    assert_rounds_well(got.detach().cpu(), truth.detach(), numbers, floor)
    assert_rounds_well(gradient.cpu(), slope, numbers, floor)


def test_many_models_are_compiled_one_after_the_other():
    """Each is compiled, though torch keeps eight versions of a piece of code."""
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    for name in ("relu", "gelu", "silu", "mish", "softplus"):
        sk.train.Replicas(
            lambda name=name: nn.Sequential(nn.Linear(4, 8), sk.nn.make(name), nn.Linear(8, 3)), count=2, device="cuda"
        ).fit(IMAGES[:, 0, 0, :4], LABELS, epochs=1, batch=32, lr=0.1, compiled=True)
    assert not torch._dynamo.utils.counters["unimplemented"]
    assert not torch._dynamo.utils.counters["graph_break"]
