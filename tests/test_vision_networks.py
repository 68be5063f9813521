"""The networks of the vision papers: their integers, their shape, and what their weights depend on."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import softknee as sk
from softknee.errors import ParameterError, RecipeError
from softknee.lab.builders import BUILDERS, build
from softknee.lab.networks import arguments_of
from softknee.lab.studies.building import model_maker
from softknee.lab.studies.examples import load_examples
from softknee.lab.studies.reading import check
from softknee.lab.studies.recipe import Choice, Data, Model, Recipe
from softknee.lab.studies.trial import Chosen
from softknee.lab.vision_networks import NETWORKS, PreactivatedBlock, Shuffle
from softknee.surgery.modules import activation_modules

# Network, classes, parameters without and with one PReLU at each place. FORMULAS: the papers' integers.
INTEGERS = [
    ("vgg8", 100, 3_965_028, 3_965_033),
    ("vgg13", 100, 9_462_180, 9_462_190),
    ("resnet56", 100, 861_620, 861_675),
    ("resnet56", 20, 856_420, 856_475),
    ("shufflenetv1", 100, 949_258, 949_307),
    ("wrn16_2", 100, 703_284, 703_297),
    ("wrn40_2", 100, 2_255_156, 2_255_193),
    ("resnet18", 10, 11_173_962, 11_173_979),
    ("vit_tiny", 10, 5_399_818, 5_399_830),
    ("vit_tiny", 100, 5_417_188, 5_417_200),
    ("deit_tiny", 10, 5_365_076, 5_365_088),
    ("deit_tiny", 100, 5_399_816, 5_399_828),
    ("tnt_small", 10, 21_525_298, 21_525_322),
    ("tnt_small", 100, 21_559_948, 21_559_972),
    ("convnext_tiny", 10, 27_827_818, 27_827_836),
]
IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


@pytest.mark.parametrize(("name", "classes", "plain", "learned"), INTEGERS)
def test_parameters_equal_the_papers_integers(name: str, classes: int, plain: int, learned: int) -> None:
    """With PReLU they count the places as well: each has a module of its own."""
    with torch.device("meta"):
        model = NETWORKS[name](classes=classes, activation=nn.PReLU)
    places = [module for module in model.modules() if isinstance(module, nn.PReLU)]
    assert count(model) == learned
    assert count(model) - len(places) == plain


def test_parameters_at_the_size_of_imagenet() -> None:
    with torch.device("meta"):
        size = {"image": 224, "patch": 16}
        assert count(NETWORKS["vit_tiny"](classes=1000, **size)) == 5_754_472
        assert count(NETWORKS["vit_tiny"](classes=1000, pre_logits=0, **size)) == 5_717_416
        assert count(NETWORKS["vit_tiny"](classes=100, pre_logits=0, **size)) == 5_543_716
        assert count(NETWORKS["deit_tiny"](classes=1000, **size)) == 5_910_800


def test_every_name_is_a_builder() -> None:
    assert NETWORKS.keys() <= BUILDERS.keys()


@pytest.mark.parametrize("name", ["shufflenetv1", "wrn16_2", "vit_tiny"])
def test_weights_come_from_the_seed_alone(name: str) -> None:
    before = torch.random.get_rng_state()

    def weights(activation: object, seed: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(99 + seed)  # of no consequence
        made = NETWORKS[name](classes=3, activation=activation, seed=seed)
        own = {id(p) for module in activation_modules(made).values() for p in module.parameters()}
        return {key: p for key, p in made.named_parameters() if id(p) not in own}

    def random_start() -> nn.Module:
        return sk.nn.make("squaf", z="random", learn=True)

    first, second, other = weights(sk.nn.SmeLU, 5), weights(random_start, 5), weights(sk.nn.SmeLU, 6)
    assert first.keys() == second.keys()
    assert all(torch.equal(item, two) for item, two in zip(first.values(), second.values(), strict=True))
    assert not torch.equal(next(iter(first.values())), next(iter(other.values())))
    torch.random.set_rng_state(before)
    NETWORKS[name](classes=3, seed=1)
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_random_start_differs_at_each_place_and_comes_from_the_seed() -> None:
    def starts(seed: int) -> list[torch.Tensor]:
        made = NETWORKS["vgg8"](activation=lambda: sk.nn.make("squaf", z="random", learn=True), seed=seed)
        return [module.z.detach() for module in activation_modules(made).values()]

    first, again, other = starts(1), starts(1), starts(2)
    assert all(torch.equal(item, two) for item, two in zip(first, again, strict=True))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], other[0])


def test_resnet18_is_torchvisions_with_another_stem() -> None:
    torchvision = pytest.importorskip("torchvision", reason="timm, which the other networks need, brings it along")
    theirs, ours = torchvision.models.resnet18(num_classes=10), NETWORKS["resnet18"](classes=10)
    theirs.conv1, theirs.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
    for item, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert item.shape == other.shape
        other.data.copy_(item.data)
    torch.testing.assert_close(ours(IMAGES), theirs(IMAGES))


def test_a_wide_block_is_its_formula() -> None:
    block = NETWORKS["wrn16_2"]()[3]
    assert isinstance(block, PreactivatedBlock)
    assert block.shortcut is not None
    block.eval()
    x = torch.randn(2, 32, 8, 8)
    scale = (1 + 1e-5) ** -0.5  # batch norm at its start
    a = torch.relu(x * scale)
    inner = torch.relu(F.conv2d(a, block.conv1.weight, stride=2, padding=1) * scale)
    expected = F.conv2d(inner, block.conv2.weight, padding=1) + F.conv2d(a, block.shortcut.weight, stride=2)
    torch.testing.assert_close(block(x), expected)


def test_the_shuffle_is_torchs() -> None:
    x = torch.randn(2, 12, 3, 3)
    assert torch.equal(Shuffle(3)(x), nn.ChannelShuffle(3)(x))
    turned = torch.randn(3, 2, 12, 3).permute(1, 2, 3, 0)[..., :3]  # memory in another order, as after a stacked norm
    assert torch.equal(Shuffle(3)(turned), nn.ChannelShuffle(3)(turned.contiguous()))


@pytest.mark.parametrize(
    ("name", "sides"),
    [
        ("vgg8", [32, 16, 8, 4, 4]),
        ("vgg13", [32, 32, 16, 16, 8, 8, 4, 4, 4, 4]),
        ("wrn16_2", [32] * 5 + [16] * 4 + [8] * 4),  # the first place of a stage stands before its stride
        ("shufflenetv1", [32] + ([32] + [16] * 11) + ([16] + [8] * 23) + ([8] + [4] * 11)),
        ("resnet56", [32] * 19 + [16] * 18 + [8] * 18),
    ],
)
def test_places_see_images_of_the_expected_sides(name: str, sides: list[int]) -> None:
    seen: list[int] = []

    class Watch(nn.ReLU):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            seen.append(input.shape[-1])
            return super().forward(input)

    made = NETWORKS[name](classes=7, activation=Watch)
    assert made(IMAGES).shape == (2, 7)
    assert seen == sides


@pytest.mark.parametrize("name", ["deit_tiny", "tnt_small", "convnext_tiny"])
def test_timms_models_return_one_tensor_while_training(name: str) -> None:
    with torch.device("meta"):
        assert NETWORKS[name](classes=4)(IMAGES.to("meta")).shape == (2, 4)


def test_build_from_words() -> None:
    words = json.loads(json.dumps({"classes": 4, "activation": "srelu", "delta": 0.5, "learn": "delta", "seed": 3}))
    network, again = build("wrn16_2", **words), build("wrn16_2", **words)
    assert len(activation_modules(network)) == 13
    assert torch.equal(network(IMAGES), again(IMAGES))
    channels = build("vgg8", classes=4, activation="srelu", learn=True, per="channel")
    results = [tuple(module.raw_delta.shape) for module in activation_modules(channels).values()]
    assert [shape[0] for shape in results] == [64, 128, 256, 512, 512]
    plain = build("vit_tiny", classes=4, activation="torch:silu")
    assert [type(item).__name__ for item in plain.modules() if isinstance(item, nn.SiLU | nn.Tanh)] == ["SiLU"] * 12 + [
        "Tanh"
    ]


def test_a_study_builds_them() -> None:
    digits = load_examples(Data(set="digits"))
    images = replace(digits, train_x=IMAGES)
    for per, values in (("layer", 1), ("channel", 64)):
        chosen = Chosen(name="srelu", label="srelu", values={"delta": 0.5}, learn=True, per=per)
        made = model_maker(Model(build="vgg8"), chosen, images)(seed=3)
        assert made(IMAGES).shape == (2, 10)
        assert made[2].raw_delta.numel() == values
        assert torch.equal(made[0].weight, build("vgg8", classes=10, seed=3)[0].weight)


def test_a_recipe_may_name_them() -> None:
    recipe = Recipe(
        name="named",
        data=Data(set="digits", flat=False),
        model=Model(build="vit_tiny", arguments={"patch": 8}),
        activations=(Choice(name="relu"), Choice(name="srelu")),
    )
    assert check(recipe).model.build == "vit_tiny"
    assert arguments_of(NETWORKS["vit_tiny"]) == ("classes", "image", "patch", "pre_logits")
    with pytest.raises(RecipeError, match=r"model\.arguments\.pach is nothing.*Did you mean"):
        check(replace(recipe, model=Model(build="vit_tiny", arguments={"pach": 8})))
    with pytest.raises(RecipeError, match=r"vgg8"):
        check(replace(recipe, model=Model(build="vgg9")))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"classes": 0}, "classes must be a whole number above 0"),
        ({"activation": nn.ReLU()(torch.zeros(1))}, "must be a function that returns a new module"),
        ({"activation": lambda: 3}, "not a int"),
    ],
    ids=["classes", "no function", "no module"],
)
def test_refusals(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(ParameterError, match=sentence):
        NETWORKS["vgg8"](**arguments)
