"""Which SQUAF parameters are trained: the counts of the paper's tables, and that choosing changes no value.

A SQUAF with k=16 has 2k+1 = 33 values z, q and alpha: 35 numbers. The paper trains (appendix A.3, table 13)

    CIFAR-100, every network    the first layer alone            1 x 35 = 35
    ResNet-18 on ImageNet       17 ReLUs, 4 of them in stage 4   13 x 35 = 455
    ResNet-34                   33 ReLUs, 6 in stage 4           27 x 35 = 945
    ViT-T, GPT-2                12 blocks with one GELU each     12 x 35 = 420
    Swin-T                      12 blocks, 2 in the last stage   10 x 35 = 350

and, table 15, MobileNet with 4,232,781 parameters: 4,231,976 and 23 x 35, of 27 ReLUs the 4 of the last stage frozen.
"""

import pytest
import torch
from torch import nn

import softknee as sk
from softknee.errors import InputError, ParameterError


def trainable(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


# The network, its classes, what is trained, how many numbers that is of how many layers, and the network's own number.
# (Table 13 prints 5,543,716 for ViT-T on ImageNet too, which is the network with 100 classes.)
PAPER = [
    ("vit_tiny_patch16_224", 100, "first", 35, 1, 5_543_716),
    ("efficientformer_l1", 100, "first", 35, 1, 11_481_728),
    ("resnet18", 1000, "all but last stage", 455, 13, 11_689_512),
    ("resnet34", 1000, "all but last stage", 945, 27, 21_797_672),
    ("vit_tiny_patch16_224", 1000, "all", 420, 12, 5_717_416),
    ("swin_tiny_patch4_window7_224", 1000, "all but last stage", 350, 10, 28_288_354),
    ("mobilenetv1_100", 1000, "all but last stage", 805, 23, 4_231_976),
]


@pytest.mark.parametrize(
    ("name", "classes", "where", "numbers", "layers", "before"), PAPER, ids=[f"{row[0]}-{row[1]}" for row in PAPER]
)
def test_counts_of_the_paper_on_the_real_networks(name, classes, where, numbers, layers, before):
    timm = pytest.importorskip("timm")
    with torch.device("meta"):
        model = timm.create_model(name, num_classes=classes)
    assert trainable(model) == before
    sk.swap_(model, "squaf", k=16, q=1.0)
    assert trainable(model) == before
    done = sk.train_squaf_(model, where=where)
    assert (done.numbers, len(done.trained)) == (numbers, layers)
    assert trainable(model) == before + numbers


def test_a_pattern_says_the_same_as_stages():
    timm = pytest.importorskip("timm")
    with torch.device("meta"):
        model = timm.create_model("resnet18")
    sk.swap_(model, "squaf", k=16, q=1.0, learn=True)
    assert sk.train_squaf_(model).numbers == 17 * 35
    assert sk.train_squaf_(model, but="layer4.*").numbers == 455
    assert sk.train_squaf_(model, where=["act1", "layer[123].*"]).numbers == 455
    assert sk.train_squaf_(model, where="first").trained == {"act1": ("q", "alpha", "z")}


class Blocks(nn.Module):
    """Twelve blocks without stages, as GPT-2 has them."""

    def __init__(self, count: int = 12, **values) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(4, 4), sk.nn.SQUAF(k=16, q=0.25, z="gelu", **values)) for _ in range(count)
        )

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return x


def test_twelve_blocks_and_their_parts():
    model = Blocks()
    assert sk.train_squaf_(model).numbers == 420
    assert sk.train_squaf_(model, "z").numbers == 12 * 33
    assert sk.train_squaf_(model, ("q", "alpha")).numbers == 24
    assert sk.train_squaf_(model, "z", where="first").numbers == 33
    assert sk.train_squaf_(model, ()).numbers == 0
    assert len(sk.train_squaf_(model, ()).frozen) == 12
    # Parts that were trained once keep their place; frozen ones are no burden to an optimiser.
    assert not any(p.requires_grad for p in model.blocks[0][1].parameters())
    with pytest.raises(InputError, match="no stages that can be told apart"):
        sk.train_squaf_(model, where="all but last stage")


class Staged(nn.Module):
    """Stages that are told apart by their names alone."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = sk.nn.SQUAF(k=16)
        self.layer1 = nn.Sequential(nn.Linear(2, 2), sk.nn.SQUAF(k=16), sk.nn.SQUAF(k=16))
        self.layer2 = nn.Sequential(nn.Linear(2, 2), sk.nn.SQUAF(k=16))
        self.head = nn.Linear(2, 2)


def test_stages_by_name():
    done = sk.train_squaf_(Staged(), where="all but last stage")
    assert (tuple(done.trained), done.frozen, done.numbers) == (("stem", "layer1.1", "layer1.2"), ("layer2.1",), 105)


@pytest.mark.parametrize("per", ["layer", "channel"])
def test_no_value_changes_and_only_what_was_asked_moves(per):
    torch.manual_seed(0)
    size = {"per": per} | ({"size": 3} if per == "channel" else {})
    act = sk.nn.SQUAF(k=4, q=0.3, z="gelu", **size)
    model = nn.Sequential(nn.Linear(3, 3), act)
    act.set_(q=0.4)
    x = torch.randn(5, 3)
    before = model(x).detach()
    done = sk.train_squaf_(model, ("q", "z"))
    torch.testing.assert_close(model(x).detach(), before, rtol=1e-6, atol=1e-6)
    count = 3 if per == "channel" else 1
    assert done.numbers == count * (1 + 9)
    old = {name: getattr(act, name).detach().clone() for name in ("q", "alpha", "z")}
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    model(x).square().sum().backward()
    optimiser.step()
    moved = {name: not torch.equal(getattr(act, name).expand_as(old[name]), old[name]) for name in old}
    assert moved == {"q": True, "alpha": False, "z": True}
    # Freezing forgets the gradient, so that an optimiser made before does not step with it again.
    sk.train_squaf_(model, "z")
    assert act.raw_q.grad is None
    q = act.q.detach().clone()
    optimiser.step()
    assert torch.equal(act.q, q)


def test_the_groups_of_an_optimiser_see_what_is_trained():
    model = Blocks(3)
    sk.train_squaf_(model, "z", where="blocks.1.*")
    groups = {group["name"]: group for group in sk.param_groups(model, lr=0.1, weight_decay=0.05)}
    assert [p.shape for p in groups["activations"]["params"]] == [model.blocks[1][1].z.shape]
    assert groups["activations"]["weight_decay"] == 0


def test_a_general_grid_and_a_shared_layer():
    act = sk.nn.SQUAF(grid=[-1.0, 0.0, 2.0], alpha=3.0)
    model = nn.ModuleDict({"a": act, "b": nn.ModuleDict({"act": act})})
    done = sk.train_squaf_(model, "q", where="b.*")
    assert (done.trained, done.numbers) == ({"a": ("grid",)}, 3)


class Called(nn.Module):
    """Its first activation is a call, which a swap registers behind the module that comes later."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.act = nn.Linear(2, 3), nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(torch.relu(self.stem(x)))


def test_the_first_layer_is_the_first_that_runs():
    model = Called()
    sk.swap_(model, "squaf", k=16, example=torch.zeros(1, 2))
    *_, early = (path for path, item in model.named_modules() if isinstance(item, sk.nn.SQUAF))
    assert early != "act"
    assert list(sk.train_squaf_(model, where="first").trained) == [early]


def test_what_cannot_be_trained_is_said_and_nothing_changes():
    model = Blocks(2)
    for arguments, error, words in [
        ({"parts": "beta"}, ParameterError, "parts q, alpha and z"),
        ({"parts": 3}, ParameterError, "any of q, alpha and z, and 3 was given"),
        ({"where": 3}, ParameterError, "where is a pattern"),
        ({"where": "stem.*"}, InputError, "no SQUAF layer matches 'stem.*'"),
        ({"but": "*"}, InputError, "leave no SQUAF layer"),
    ]:
        with pytest.raises(error, match=words.replace("*", r"\*")):
            sk.train_squaf_(model, **arguments)
    assert model.blocks[0][1].learned == ()
    with pytest.raises(InputError, match="has no SQUAF layer"):
        sk.train_squaf_(nn.ReLU())


def test_alpha_that_float16_holds_fixed_but_not_learned_is_refused_and_nothing_changes():
    model = nn.Sequential(sk.nn.SQUAF(k=4), nn.Linear(2, 2), sk.nn.SQUAF(k=4, alpha=5e4)).half()
    before = list(model.state_dict())
    with pytest.raises(ParameterError, match=r"2: squaf: anchor_alpha=72111.* is inf .*Nothing was changed"):
        sk.train_squaf_(model)
    assert list(model.state_dict()) == before
    assert sk.train_squaf_(model, ("q", "z")).numbers == 20


@pytest.mark.parametrize("q", [0.25, 0.3, 0.0071])
def test_a_bfloat16_layer_keeps_its_values_when_they_are_learned(q):
    """The scale that stands beside the raw value is rounded, which alone would move q = 0.25 to 0.25045."""
    net = nn.Sequential(sk.nn.SQUAF(k=4, q=q)).bfloat16()
    before = {name: getattr(net[0], name).clone() for name in ("q", "alpha", "z")}
    sk.train_squaf_(net)
    for name, value in before.items():
        torch.testing.assert_close(getattr(net[0], name).float(), value.float(), rtol=2e-5, atol=0)
