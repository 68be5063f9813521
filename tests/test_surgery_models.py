"""Surgery on real models of timm: every site found, exactly so many parameters added, and the way back to the bit."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest
import timm
import torch
from torch import Tensor, nn

import softknee as sk
from softknee.surgery.modules import activation_modules

LAST, SECOND = -1, 1


def repeated(*pairs: tuple[int, int]) -> list[int]:
    return [width for width, times in pairs for _ in range(times)]


@dataclass(frozen=True)
class Subject:
    """A model, and what its architecture says about it, written down from its paper and not asked of softknee."""

    name: str
    functions: dict[str, int]
    """How many sites there are of each function."""
    parameters: int
    """Trainable parameters of the stock model: FORMULAS, "Integers to hit", or timm's own table (ConvNeXt)."""
    channels: list[tuple[int, int]]
    """For each site in order of depth: the dimension of its channels, and how many the layer before it makes."""
    image: int = 32
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return sum(self.functions.values())


def along(dim: int, widths: list[int]) -> list[tuple[int, int]]:
    return [(dim, width) for width in widths]


SMALL = {"img_size": 32, "patch_size": 4, "num_classes": 10}
# A block of MobileNet is a depthwise convolution (as wide as what comes in) and a pointwise one.
MOBILE = [32, 64, 128, 128, 256, 256, *[512] * 6, 1024, 1024]
SUBJECTS = {
    item.name: item
    for item in (
        Subject("vit_tiny_patch16_224", {"gelu": 12}, 5_362_762, along(LAST, [4 * 192] * 12), options=SMALL),
        Subject("deit_tiny_distilled_patch16_224", {"gelu": 12}, 5_365_076, along(LAST, [4 * 192] * 12), options=SMALL),
        # Each of the twelve blocks has an MLP for pixels (24 wide) and one for patches (384 wide).
        Subject("tnt_s_legacy_patch16_224", {"gelu": 24}, 21_525_298, along(LAST, [96, 1536] * 12), options=SMALL),
        Subject(
            "convnext_tiny",
            {"gelu": 18},
            28_589_128,
            along(LAST, repeated((4 * 96, 3), (4 * 192, 3), (4 * 384, 9), (4 * 768, 3))),
        ),
        Subject(
            "swin_tiny_patch4_window7_224",
            {"gelu": 12},
            28_288_354,
            along(LAST, repeated((4 * 96, 2), (4 * 192, 2), (4 * 384, 6), (4 * 768, 2))),
            image=64,
            options={"strict_img_size": False},
        ),
        Subject(
            "resnet18",
            {"relu": 17},
            11_689_512,
            along(SECOND, repeated((64, 1), (64, 4), (128, 4), (256, 4), (512, 4))),
        ),
        # Two ReLUs in the stem, convolutional MLPs, and one block of attention with linear layers at the end.
        Subject(
            "efficientformer_l1",
            {"gelu": 15, "relu": 2},
            11_481_728,
            [
                *along(SECOND, [24, 48, *repeated((4 * 48, 3), (4 * 96, 2), (4 * 224, 6), (4 * 448, 3))]),
                *along(LAST, [4 * 448]),
            ],
            image=224,
            options={"num_classes": 100},
        ),
        Subject(
            "mobilenetv1_100",
            {"relu6": 27},
            4_231_976,
            along(SECOND, [32, *(width for pair in itertools.pairwise(MOBILE) for width in pair)]),
        ),
    )
}
assert all(len(subject.channels) == subject.count for subject in SUBJECTS.values())
every_model = pytest.mark.parametrize("name", SUBJECTS)


@functools.cache
def stock(name: str) -> nn.Module:
    """The model as timm builds it; every test leaves it as it was."""
    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False, **SUBJECTS[name].options).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if key.endswith((".gamma", ".weight")) and parameter.abs().max() < 1e-4:
                parameter.fill_(0.5)  # a layer scale of 1e-6, or a norm of 0, would hide the whole block
    return model


@functools.cache
def image(name: str) -> Tensor:
    size = SUBJECTS[name].image
    return torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(1))


@functools.cache
@torch.no_grad()
def usual(name: str) -> Tensor:
    """What the stock model computes."""
    return stock(name)(image(name))


@pytest.fixture(scope="module", autouse=True)
def _quick_and_forgotten_models() -> Iterator[None]:
    """timm's truncated normal distribution takes as long as everything else here; the plain one does as well."""
    with patch("timm.layers.weight_init._trunc_normal_", lambda tensor, mean, std, *_: tensor.normal_(mean, std)):
        yield
    for cached in (stock, image, usual):
        cached.cache_clear()


@contextmanager
def swapped(name: str, activation: str, **options: Any) -> Iterator[sk.surgery.Report]:
    """The swap inside, the stock model again outside, to the bit."""
    model, before = stock(name), usual(name)
    keys, modules = list(model.state_dict()), dict(model.named_modules())
    report = sk.swap_(model, activation, **options)
    try:
        yield report
    finally:
        report.undo()
        model.zero_grad(set_to_none=True)
    assert list(model.state_dict()) == keys
    assert all(modules[path] is module for path, module in model.named_modules())
    with torch.no_grad():
        assert torch.equal(model(image(name)), before)


def size_of(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


# -- sites --------------------------------------------------------------------------------------------------------


@every_model
def test_every_site_is_found_with_and_without_an_example(name: str):
    subject, model = SUBJECTS[name], stock(name)
    assert size_of(model) == subject.parameters
    for result in (sk.sites(model), sk.sites(model, image(name))):
        assert Counter(site.activation for site in result) == subject.functions
        assert {site.kind for site in result} == {"module"}
        assert not any(site.shared or site.trouble for site in result)
        for site in result:
            assert model.get_submodule(site.path) is getattr(model.get_submodule(site.owner), site.place.name)


def test_the_five_line_loop_changes_nothing_in_convnext_and_the_swap_changes_eighteen():
    """timm's GELU is a class of its own, so that the usual loop runs without complaint past every one of them."""
    name = "convnext_tiny"
    model = stock(name)
    for parent in list(model.modules()):
        for key, child in parent.named_children():
            if isinstance(child, nn.GELU):
                setattr(parent, key, sk.nn.SReLU())
    assert not activation_modules(model)
    with torch.no_grad():
        assert torch.equal(model(image(name)), usual(name))
    with swapped(name, "srelu", replacing="gelu") as report, torch.no_grad():
        assert len(report.changed) == len(activation_modules(model)) == 18
        assert not torch.equal(model(image(name)), usual(name))


# -- swaps --------------------------------------------------------------------------------------------------------


@every_model
def test_a_learned_number_for_each_site(name: str):
    """So many parameters more, old weights that still load, another output, and gradients for all that is new."""
    subject, model, x = SUBJECTS[name], stock(name), image(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with swapped(name, "srelu", replacing=list(subject.functions), learn="delta", delta=1.0, example=x) as report:
        assert not report.skipped
        assert not report.notes
        assert len(report.changed) == len(activation_modules(model)) == subject.count
        assert size_of(model) == subject.parameters + subject.count
        model.load_state_dict(before, strict=True)
        after = model.state_dict()
        assert all(torch.equal(after[key], value) for key, value in before.items())
        output = model(x)
        change = (output.detach() - usual(name)).abs().max().item()
        assert change > 1e-3
        assert report.output_change == pytest.approx(change, rel=1e-6)
        output.square().sum().backward()
        new = {key: item for key, item in model.named_parameters() if key not in before}
        assert len(new) == subject.count
        for key, parameter in new.items():
            assert parameter.shape == (1,)
            assert parameter.grad is not None, key
            assert parameter.grad.isfinite().all(), key
            assert parameter.grad.abs() > 0, key


@every_model
def test_a_value_for_each_channel_has_the_width_of_the_layer_before_it(name: str):
    subject, model, x = SUBJECTS[name], stock(name), image(name)
    with swapped(
        name, "smelu", replacing=list(subject.functions), learn=True, per="channel", beta=0.5, example=x
    ) as report:
        made = [model.get_submodule(site.path) for site in report.changed]
        results = [(module.granularity.dim, module.raw_beta.numel()) for module in made]
        assert results == subject.channels
        assert size_of(model) == subject.parameters + sum(width for _, width in subject.channels)


# The way is that of a learned number above: two models stand for all.
@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "mobilenetv1_100"])
def test_a_soft_table_for_each_site_adds_35(name: str):
    """k=16: 33 values, q and alpha. MobileNet has 27 sites: 4,232,921 and not the paper's 4,232,781 (23 sites)."""
    subject, model = SUBJECTS[name], stock(name)
    with swapped(name, "squaf", replacing=list(subject.functions), learn=True, k=16, q=0.25, z="gelu"):
        assert size_of(model) == subject.parameters + 35 * subject.count
        if name == "mobilenetv1_100":
            assert size_of(model) == 4_232_921


def test_one_function_of_two_is_replaced():
    name = "efficientformer_l1"
    with swapped(name, "srelu", replacing="gelu") as report:
        assert len(report.changed) == 15
        assert [(site.path, site.activation) for site in report.skipped] == [
            ("stem.act1", "relu"),
            ("stem.act2", "relu"),
        ]
    with swapped(name, "srelu", where="stem.*") as report:
        assert len(report.changed) == 2
        assert Counter(item.activation for item in report.skipped) == {"gelu": 15}


def test_the_pre_logits_of_the_paper_keep_their_tanh():
    """ViT-Tiny with a 192-wide layer before its head: 5,399,818 parameters, of learned hardness 12 more."""
    with torch.device("meta"):
        model = timm.create_model("vit_tiny_patch16_224", pretrained=False, **SMALL)
        model.head = nn.Sequential(nn.Linear(192, 192), nn.Tanh(), nn.Linear(192, 10))
    assert size_of(model) == 5_399_818
    report = sk.swap_(model, "lambda_gelu", learn=True)
    assert size_of(model) == 5_399_830
    assert [(site.path, site.activation) for site in report.skipped] == [("head.1", "tanh")]


@pytest.mark.parametrize(
    ("name", "options", "stock_size"),
    [
        ("vit_tiny_patch16_224", SMALL | {"num_classes": 100}, 5_417_188 - (192 * 192 + 192)),
        ("vit_tiny_patch16_224", {"num_classes": 1000}, 5_717_416),
        ("vit_tiny_patch16_224", {"num_classes": 100}, 5_543_716),
        ("deit_tiny_distilled_patch16_224", SMALL | {"num_classes": 100}, 5_399_816),
        ("deit_tiny_distilled_patch16_224", {"num_classes": 1000}, 5_910_800),
        ("tnt_s_legacy_patch16_224", SMALL | {"num_classes": 100}, 21_559_948),
        ("resnet34", {}, 21_797_672),
    ],
)
def test_the_integers_of_the_papers(name: str, options: dict[str, Any], stock_size: int):
    """On the meta device, where a model costs nothing; the new parameters are made there, too."""
    with torch.device("meta"):
        model = timm.create_model(name, pretrained=False, **options)
    assert size_of(model) == stock_size
    sk.swap_(model, "lambda_gelu", learn=True)
    added = {"vit": 12, "deit": 12, "tnt": 24, "resnet34": 33}[name.partition("_")[0]]
    assert size_of(model) == stock_size + added
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}


def test_weights_trained_after_a_swap_stay_when_it_is_undone():
    name = "resnet18"
    model = timm.create_model(name, pretrained=False, num_classes=4)
    report = sk.swap_(model, "srelu", learn=True)
    optimiser = torch.optim.SGD(sk.param_groups(model, lr=0.1))
    model(torch.randn(2, 3, 32, 32)).square().sum().backward()
    optimiser.step()
    trained = {key: value.clone() for key, value in model.state_dict().items()}
    report.undo()
    after = model.state_dict()
    assert set(trained) - set(after) == {key for key in trained if key.endswith(("raw_delta", "anchor_delta"))}
    assert all(torch.equal(trained[key], value) for key, value in after.items())
    assert not activation_modules(model)


# -- timm's own way -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "count"), [("vit_tiny_patch16_224", 12), ("convnext_tiny", 18), ("resnet18", 17)], ids=lambda one: str(one)
)
def test_act_layer_takes_our_classes(name: str, count: int):
    options = SUBJECTS[name].options
    layer = functools.partial(sk.nn.SReLU, delta=0.5, learn=True)
    with torch.device("meta"):  # their weights come later, or never
        fixed = timm.create_model(name, pretrained=False, act_layer=sk.nn.SReLU, **options)
        learned = timm.create_model(name, pretrained=False, act_layer=layer, **options).eval()
    assert len(activation_modules(fixed)) == count
    assert {type(site.place.old) for site in sk.sites(fixed)} == {sk.nn.SReLU}
    assert size_of(fixed) == SUBJECTS[name].parameters
    assert len({id(module) for module in activation_modules(learned).values()}) == count
    assert size_of(learned) == SUBJECTS[name].parameters + count
    # Built so or swapped so is the same model, with the same names.
    with swapped(name, "srelu", learn="delta", delta=0.3):
        learned.load_state_dict(stock(name).state_dict(), strict=True, assign=True)
        with torch.no_grad():
            assert torch.equal(learned(image(name)), stock(name)(image(name)))
