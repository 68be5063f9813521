"""Networks of the vision papers, by name: those for CIFAR written here, those of timm with the papers' settings.

Every one takes `classes`, `activation` (a function that returns a new module at each call) and `seed`. Weights come
from the seed alone: the activations are put in after the weights are drawn, so that two functions with one seed start
from the same weights. The counts are of trained parameters, without those of activations.

| name         | parameters (100 classes) | places | source                                    |
|--------------|--------------------------|--------|-------------------------------------------|
| vgg8         | 3,965,028                | 5      | here                                      |
| vgg13        | 9,462,180                | 10     | here                                      |
| resnet56     | 861,620                  | 55     | here                                      |
| shufflenetv1 | 949,258                  | 49     | here                                      |
| wrn16_2      | 703,284                  | 13     | here                                      |
| wrn40_2      | 2,255,156                | 37     | here                                      |
| resnet18     | 11,220,132               | 17     | here                                      |
| vit_tiny     | 5,417,188                | 12     | timm, a pre-logits layer of 192 put in    |
| deit_tiny    | 5,399,816                | 12     | timm                                      |
| tnt_small    | 21,559,948               | 24     | timm                                      |
| convnext_tiny| 27,897,028               | 18     | timm                                      |
| enlarged     | 5,543,716 (ViT-Tiny)     | 12     | any of timm, its images enlarged to 224   |

The SQUAF paper prints 856,420 for its ResNet-56, which is the same network with 20 classes. On CIFAR its tables 7
and 13 add 35 parameters for SQUAF, which is one SQUAF, and 5 (VGG-8) and 13 (WRN-16-2) for PReLU: one at each place.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

import softknee as sk

from ..errors import ParameterError, need_package
from .networks import arguments_of, new_activation


def resnet56(*, classes: int = 100, activation: Factory = nn.ReLU, seed: int = 0) -> nn.Module:
    """Three stages of nine basic blocks, 16, 32 and 64 wide: 55 places, 861,620 parameters with 100 classes.

    Where a stage changes the shape, the shortcut is a 1 x 1 convolution with batch norm.

    Reference: He, Zhang, Ren, Sun (2016), section 4.2.
    """
    return built(lambda: _resnet((16, 32, 64), 9, classes), activation, classes, seed)


def resnet18(*, classes: int = 10, activation: Factory = nn.ReLU, seed: int = 0) -> nn.Module:
    """Four stages of two basic blocks, 64 to 512 wide, after a 3 x 3 convolution without pooling: 17 places.

    11,173,962 parameters with 10 classes, 11,220,132 with 100.
    """
    return built(lambda: _resnet((64, 128, 256, 512), 2, classes), activation, classes, seed)


def wrn16_2(*, classes: int = 100, activation: Factory = nn.ReLU, seed: int = 0) -> nn.Module:
    """Wide residual network of depth 16 and width 2: 13 places, 703,284 parameters with 100 classes.

    Batch norm and activation come before each convolution.

    Reference: Zagoruyko, Komodakis (2016).
    """
    return built(lambda: _wide(2, classes), activation, classes, seed)


def wrn40_2(*, classes: int = 100, activation: Factory = nn.ReLU, seed: int = 0) -> nn.Module:
    """Depth 40 and width 2: 37 places, 2,255,156 parameters with 100 classes. See `wrn16_2`."""
    return built(lambda: _wide(6, classes), activation, classes, seed)


class BasicBlock(nn.Module):
    """y = act(shortcut(x) + norm(conv(act(norm(conv(x))))))."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1, self.act1 = conv(inputs, outputs, 3, stride=stride), nn.BatchNorm2d(outputs), Place()
        self.conv2, self.norm2, self.act2 = conv(outputs, outputs, 3), nn.BatchNorm2d(outputs), Place()
        self.shortcut: nn.Module = (
            nn.Identity()
            if stride == 1 and inputs == outputs
            else nn.Sequential(conv(inputs, outputs, 1, stride=stride), nn.BatchNorm2d(outputs))
        )

    def forward(self, x: Tensor) -> Tensor:
        """Of images [n, inputs, h, w]."""
        y = self.norm2(self.conv2(self.act1(self.norm1(self.conv1(x)))))
        return self.act2(y + self.shortcut(x))


class PreactivatedBlock(nn.Module):
    """y = conv(act(norm(conv(a)))) + x with a = act(norm(x)); where the shape changes, x becomes conv(a)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.act1, self.conv1 = nn.BatchNorm2d(inputs), Place(), conv(inputs, outputs, 3, stride=stride)
        self.norm2, self.act2, self.conv2 = nn.BatchNorm2d(outputs), Place(), conv(outputs, outputs, 3)
        self.shortcut = None if inputs == outputs else conv(inputs, outputs, 1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        """Of images [n, inputs, h, w]."""
        a = self.act1(self.norm1(x))
        y = self.conv2(self.act2(self.norm2(self.conv1(a))))
        return y + (x if self.shortcut is None else self.shortcut(a))


def _blocks(kind: type[nn.Module], widths: Sequence[int], depth: int) -> list[nn.Module]:
    """Stages of `depth` blocks; widths begin with that of the input, and every stage but the first halves the image."""
    return [
        kind(inputs if first else outputs, outputs, 2 if first and stage else 1)
        for stage, (inputs, outputs) in enumerate(pairwise(widths))
        for first in [True] + [False] * (depth - 1)
    ]


def _resnet(widths: Sequence[int], depth: int, classes: int) -> nn.Sequential:
    stem = [conv(3, widths[0], 3), nn.BatchNorm2d(widths[0]), Place()]
    blocks = _blocks(BasicBlock, (widths[0], *widths), depth)
    model = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], classes))
    draw_by_outputs_(model)
    return model


def _wide(depth: int, classes: int) -> nn.Sequential:
    blocks = _blocks(PreactivatedBlock, (16, 32, 64, 128), depth)
    head = nn.Linear(128, classes)
    end = [nn.BatchNorm2d(128), Place(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), head]
    model = nn.Sequential(conv(3, 16, 3), *blocks, *end)
    draw_by_outputs_(model)
    nn.init.zeros_(head.bias)
    return model


_GROUPS = 3
_STEM = 24
_STAGES = ((240, 4), (480, 8), (960, 4))  # channels and units


def shufflenetv1(*, classes: int = 100, activation: Factory = nn.ReLU, seed: int = 0) -> nn.Module:
    """Three stages of 4, 8 and 4 units after a 1 x 1 convolution: 49 places, 949,258 parameters with 100 classes.

    As the distillation literature has it, the depthwise convolution is followed by an activation too, which the first
    paper leaves out: three places in each of the 16 units, and one after the stem.

    Reference: Zhang, Zhou, Lin, Sun (2018); the form for CIFAR is that of Tian, Krishnan, Isola (2019).
    """
    return built(lambda: _shufflenet(classes), activation, classes, seed)


class Shuffle(nn.Module):
    """Channel c of group g becomes channel g of group c, so that the next grouped convolution sees all groups."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        """Of images [n, c, h, w].

        >>> Shuffle(2)(torch.arange(6.0).view(1, 6, 1, 1)).flatten()
        tensor([0., 3., 1., 4., 2., 5.])
        """
        n, channels, height, width = x.shape
        grouped = x.reshape(n, self.groups, channels // self.groups, height, width)
        return grouped.transpose(1, 2).reshape(n, channels, height, width)


class Unit(nn.Module):
    """Grouped 1 x 1, shuffle, depthwise 3 x 3, grouped 1 x 1; added to x, or joined to its 3 x 3 mean at stride 2."""

    def __init__(self, inputs: int, outputs: int, *, halve: bool) -> None:
        super().__init__()
        made = outputs - inputs if halve else outputs
        middle = made // 4  # of what the unit itself makes: with a quarter of all outputs the paper's count is missed
        first = 1 if inputs == _STEM else _GROUPS  # the stem has too few channels to part them
        self.conv1, self.norm1, self.act1 = conv(inputs, middle, 1, groups=first), nn.BatchNorm2d(middle), Place()
        self.shuffle = Shuffle(first)
        self.conv2 = conv(middle, middle, 3, stride=2 if halve else 1, groups=middle)
        self.norm2, self.act2 = nn.BatchNorm2d(middle), Place()
        self.conv3, self.norm3, self.act3 = conv(middle, made, 1, groups=_GROUPS), nn.BatchNorm2d(made), Place()
        self.pool = nn.AvgPool2d(3, stride=2, padding=1) if halve else None

    def forward(self, x: Tensor) -> Tensor:
        """Of images [n, inputs, h, w]."""
        y = self.shuffle(self.act1(self.norm1(self.conv1(x))))
        y = self.norm3(self.conv3(self.act2(self.norm2(self.conv2(y)))))
        return self.act3(y + x if self.pool is None else torch.cat([y, self.pool(x)], dim=1))


def _shufflenet(classes: int) -> nn.Sequential:
    layers: list[nn.Module] = [conv(3, _STEM, 1), nn.BatchNorm2d(_STEM), Place()]
    inputs = _STEM
    for width, units in _STAGES:
        layers += [Unit(width if turn else inputs, width, halve=turn == 0) for turn in range(units)]
        inputs = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


_WIDTHS = (64, 128, 256, 512, 512)
_HALVED = 3  # stages that end in a maximum over 2 x 2; the last two stay at 4 x 4


def vgg8(*, classes: int = 100, activation: Factory = nn.ReLU, seed: int = 0) -> nn.Module:
    """Five stages of one convolution: 5 places, 3,965,028 parameters with 100 classes.

    >>> import softknee as sk
    >>> sum(p.numel() for p in vgg8(activation=lambda: sk.nn.SmeLU(beta=0.5)).parameters())
    3965028

    Reference: Simonyan, Zisserman (2014); the form for CIFAR is that of Tian, Krishnan, Isola (2019).
    """
    return built(lambda: _vgg((1, 1, 1, 1, 1), classes), activation, classes, seed)


def vgg13(*, classes: int = 100, activation: Factory = nn.ReLU, seed: int = 0) -> nn.Module:
    """Five stages of two convolutions: 10 places, 9,462,180 parameters with 100 classes. See `vgg8`."""
    return built(lambda: _vgg((2, 2, 2, 2, 2), classes), activation, classes, seed)


def _vgg(depths: Sequence[int], classes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    inputs = 3
    for stage, (width, depth) in enumerate(zip(_WIDTHS, depths, strict=True)):
        for _ in range(depth):
            layers += [conv(inputs, width, 3, bias=True), nn.BatchNorm2d(width), Place()]
            inputs = width
        if stage < _HALVED:
            layers.append(nn.MaxPool2d(2))
    head = nn.Linear(inputs, classes)
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)
    draw_by_outputs_(model)
    nn.init.normal_(head.weight, std=0.01)
    nn.init.zeros_(head.bias)
    return model


def vit_tiny(
    *,
    classes: int = 10,
    activation: Factory = nn.GELU,
    seed: int = 0,
    image: int = 32,
    patch: int = 4,
    pre_logits: int = 192,
) -> nn.Module:
    """ViT-Tiny with a pre-logits layer (linear, tanh) before the head: 12 places.

    5,399,818 parameters with 10 classes and 5,417,188 with 100; image=224 and patch=16 with 1000 have 5,754,472. The
    tanh is no place: the papers add 12 parameters for a function with one.

    Args:
        pre_logits: the width of that layer; 0 leaves it out, as timm does today (the SQUAF paper's ViT-T).
    """

    def make() -> nn.Module:
        model = _timm("vit_tiny_patch16_224", classes=classes, img_size=image, patch_size=patch)
        if pre_logits:
            width = model.head.in_features
            fc, head = nn.Linear(width, pre_logits), nn.Linear(pre_logits, classes)
            for linear in (fc, head):  # as timm draws every linear map of this model
                nn.init.trunc_normal_(linear.weight, std=0.02)
                nn.init.zeros_(linear.bias)
            model.head = nn.Sequential(OrderedDict(pre_logits=fc, tanh=nn.Tanh(), head=head))
        return model

    return built(make, activation, classes, seed, _is_gelu)


def deit_tiny(
    *, classes: int = 10, activation: Factory = nn.GELU, seed: int = 0, image: int = 32, patch: int = 4
) -> nn.Module:
    """DeiT-Tiny with a distillation token and two heads, whose mean it returns: 12 places.

    5,365,076 parameters with 10 classes and 5,399,816 with 100; image=224 and patch=16 with 1000 have 5,910,800.
    """
    sizes = {"classes": classes, "img_size": image, "patch_size": patch}
    return built(lambda: _timm("deit_tiny_distilled_patch16_224", **sizes), activation, classes, seed, _is_gelu)


def tnt_small(
    *, classes: int = 10, activation: Factory = nn.GELU, seed: int = 0, image: int = 32, patch: int = 4
) -> nn.Module:
    """TNT-Small, an inner and an outer transformer in each of 12 blocks: 24 places.

    21,525,298 parameters with 10 classes and 21,559,948 with 100.
    """
    sizes = {"classes": classes, "img_size": image, "patch_size": patch}
    return built(lambda: _timm("tnt_s_legacy_patch16_224", **sizes), activation, classes, seed, _is_gelu)


def convnext_tiny(*, classes: int = 10, activation: Factory = nn.GELU, seed: int = 0) -> nn.Module:
    """ConvNeXt-Tiny, whose stem takes patches of 4 x 4: 18 places; 27,827,818 parameters with 10 classes.

    Images of 32 x 32 leave one pixel in the last stage.
    """
    return built(lambda: _timm("convnext_tiny", classes=classes), activation, classes, seed, _is_gelu)


def _timm(name: str, *, classes: int, **arguments: Any) -> Any:
    timm = need_package("timm", f"The network {name!r} is built by the package 'timm'", "vision")
    return timm.create_model(name, pretrained=False, num_classes=classes, **arguments)


def _is_gelu(module: nn.Module) -> bool:
    return type(module).__name__ == "GELU"  # torch's, or timm's own of that name


_ACTIVATIONS = ("GELU", "ReLU", "ReLU6", "SiLU", "Hardswish")  # torch's, or timm's own of these names


def enlarged(
    *,
    classes: int = 100,
    activation: Factory = nn.GELU,
    seed: int = 0,
    model: str = "vit_tiny_patch16_224",
    side: int = 224,
) -> nn.Module:
    """A network of timm behind bilinear interpolation to `side` x `side`, an activation of yours at each of its own."""

    def make() -> nn.Module:
        made: Any = _timm(model, classes=classes)
        return nn.Sequential(nn.Upsample(size=(side, side), mode="bilinear", align_corners=False), made)

    return built(make, activation, classes, seed, lambda module: type(module).__name__ in _ACTIVATIONS)


Factory = Callable[[], nn.Module]


class Place(nn.Identity):
    """Where an activation will stand."""


def built(
    make: Callable[[], nn.Module],
    activation: Factory,
    classes: int,
    seed: int,
    is_place: Callable[[nn.Module], bool] = lambda module: isinstance(module, Place),
) -> nn.Module:
    """What `make` returns, drawn from the seed, with a module of its own at each place.

    Torch's global random state is neither used nor changed. An activation that starts at random is drawn from the seed
    too, after all weights.
    """
    if not isinstance(classes, int) or isinstance(classes, bool) or classes < 1:
        raise ParameterError(f"classes must be a whole number above 0, and {classes!r} was given.")
    if not callable(activation):
        raise ParameterError(
            "activation must be a function that returns a new module at each call, such as torch.nn.GELU or "
            f"lambda: sk.nn.SmeLU(beta=0.5), and {type(activation).__name__} was given."
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = make()
        for path, module in list(model.named_modules()):
            if is_place(module):
                parent, _, name = path.rpartition(".")
                made = activation()
                if not isinstance(made, nn.Module):
                    raise ParameterError(f"activation() must return an nn.Module, not a {type(made).__name__}.")
                setattr(model.get_submodule(parent), name, made)
    return model


def conv(inputs: int, outputs: int, size: int, *, stride: int = 1, groups: int = 1, bias: bool = False) -> nn.Conv2d:
    """A convolution that keeps height and width, but for its stride."""
    return nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, groups=groups, bias=bias)


def draw_by_outputs_(model: nn.Module) -> None:
    """Normal weights of variance 2 / (outputs * size of the kernel): what He's rule says of the backward pass."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            fan = module.out_channels * math.prod(module.kernel_size)
            nn.init.normal_(module.weight, std=math.sqrt(2 / fan))
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def build_by_name(network: str, *, activation: str = "relu", seed: int = 0, **knobs: Any) -> nn.Module:
    """The network with an activation by its name; what is no argument of the network is a knob of the activation.

    >>> made = build_by_name("wrn16_2", classes=10, activation="srelu", delta=0.5, learn="delta", per="channel")
    >>> made[1].act2
    SReLU(delta=0.5 (learned), per='channel', size=32, dim=1)
    """
    own = {name: knobs.pop(name) for name in arguments_of(NETWORKS[network]) if name in knobs}
    # One size for all places is left to the activation, which says where it does not fit.
    sized = not activation.startswith("torch:") and knobs.get("per", "layer") != "layer" and "size" not in knobs
    per = knobs.pop("per") if sized else "layer"
    made: list[nn.Module] = []

    def new() -> nn.Module:
        made.append(new_activation(activation, knobs, channels=1))
        return made[-1]

    model = NETWORKS[network](**own, activation=new, seed=seed)
    if sized:  # the sizes are known once an image has passed
        ours, side = {id(module) for module in made}, own.get("image", 32)
        example = torch.zeros(2, 3, side, side)
        sk.swap_(model, activation, where=lambda site: id(site.place.old) in ours, per=per, example=example, **knobs)
    return model


NETWORKS: dict[str, Callable[..., nn.Module]] = {
    network.__name__: network
    for network in (
        *(vgg8, vgg13, resnet56, shufflenetv1, wrn16_2, wrn40_2, resnet18),
        *(vit_tiny, deit_tiny, tnt_small, convnext_tiny, enlarged),
    )
}
"""The networks that a recipe may name, by their names."""
