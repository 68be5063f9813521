"""Claims of the SQUAF paper about rates and about the numbers of parameters in its tables."""

from __future__ import annotations

import heapq
import itertools
import math

import torch

from .entry import Finding, claims_of
from .tools import F64

claim = claims_of("squaf")


def _huffman(probabilities: list[float]) -> float:
    """The mean length of a Huffman code, in bits: the sum of all the merged weights."""
    order = itertools.count()
    heap = [(p, next(order)) for p in probabilities if p > 0]
    heapq.heapify(heap)
    total = 0.0
    while len(heap) > 1:
        weight = heapq.heappop(heap)[0] + heapq.heappop(heap)[0]
        total += weight
        heapq.heappush(heap, (weight, next(order)))
    return total


@claim(
    place="Equation 12",
    says="The entropy of the mean conditional distribution is a close proxy of the rate of a Huffman code.",
    expect="holds",
)
def entropy_is_nearly_the_huffman_rate() -> Finding:
    """The marginal of a SQUAF-P with k = 16 over normal pre-activations, its entropy, and the code built for it."""
    inputs = torch.special.ndtri((torch.arange(20000, dtype=F64) + 0.5) / 20000)
    grid = torch.arange(-16, 17, dtype=F64)
    rows = {}
    for q in (0.125, 0.25, 1.0):
        p = torch.softmax(-1.5 * (inputs[:, None] / q - grid) ** 2, dim=1).mean(0)
        entropy = -(p * p.clamp(min=1e-300).log2()).sum().item()
        rows[q] = (entropy, _huffman(p.tolist()))
    text = ", ".join(f"{h:.3f} and {length:.3f} bits at q = {q:g}" for q, (h, length) in rows.items())
    return Finding(
        rf"over $N(0, 1)$ with $k = 16$, $\alpha q^2 = 1.5$: {text} (entropy and code); a code is never shorter and "
        rf"less than 1 bit longer. 3.4 bits of 32 are a factor "
        f"{32 / 3.4:.2f}, as printed",
        parts={
            "close": all(h <= length < h + 0.1 for h, length in rows.values()),
            "factor 9.4": round(32 / 3.4, 1) == 9.4,
        },
        numbers={f"entropy_at_{q:g}": h for q, (h, _) in rows.items()}
        | {f"huffman_at_{q:g}": length for q, (_, length) in rows.items()},
    )


def _mlp(*widths: int) -> int:
    return sum((a + 1) * b for a, b in itertools.pairwise(widths))


def _own(k: int, *, spacing: bool = True) -> int:
    """The parameters of one SQUAF: 2k+1 heights, alpha, and q where it is trained."""
    return 2 * k + 2 + spacing


@claim(
    place="Tables 2, 3 and 7",
    says="The numbers of trainable parameters with SQUAF: 200 and 208 in function fitting, 192 and 28 for SQUAF alone, "
    "4561 and 4626 in toy classification, 35 more in distillation.",
    expect="holds",
)
def parameters_of_the_small_models() -> Finding:
    """Counted from the layers' widths and k; q is frozen where SQUAF stands alone."""
    counts = {
        "1D": (_mlp(1, 64, 1) + _own(2), 200),
        "2D": (_mlp(2, 50, 1) + _own(2), 208),
        "alone, k = 95": (_own(95, spacing=False), 192),
        "alone, k = 13": (_own(13, spacing=False), 28),
        "3 classes": (_mlp(2, 64, 64, 3) + 2 * _own(2), 4561),
        "4 classes": (_mlp(2, 64, 64, 4) + 2 * _own(2), 4626),
        "VGG-8": (3965028 + _own(16), 3965063),
        "WRN-16-2": (703284 + _own(16), 703319),
    }
    compression = 2255156 / 703319
    return Finding(
        f"all eight, and the ratios drawn from them: {202 / 28:.1f} to DiTAC, {compression:.1f} from teacher to "
        f"student",
        parts={name: found == printed for name, (found, printed) in counts.items()}
        | {"ratios": round(202 / 28, 1) == 7.2 and round(compression, 1) == 3.2},
        numbers={name: found for name, (found, _) in counts.items()},
    )


def _vit_tiny(classes: int) -> int:
    """ViT-T for 224 pixels and patches of 16: width 192, 12 blocks."""
    width, places = 192, 197
    block = (
        4 * width + (width + 1) * 3 * width + (width + 1) * width + (width + 1) * 4 * width + (4 * width + 1) * width
    )
    return (3 * 16 * 16 + 1) * width + width + places * width + 12 * block + 2 * width + (width + 1) * classes


def _resnet56(classes: int) -> int:
    """ResNet-56 for CIFAR: 9 blocks each of 16, 32 and 64 channels, with projections where the width changes."""
    total = 3 * 9 * 16 + 2 * 16
    before = 16
    for width in (16, 32, 64):
        for _ in range(9):
            total += before * 9 * width + width * 9 * width + 4 * width
            total += before * width + 2 * width if before != width else 0
            before = width
    return total + (64 + 1) * classes


@claim(
    place="Table 13",
    says="ViT-T has 5,543,716 parameters on CIFAR-100 and on ImageNet-1K; ResNet-56 has 856,420 on CIFAR-100.",
    expect="partly",
)
def parameters_of_the_networks() -> Finding:
    """Counted from the layers' shapes, for the number of classes that each data set has."""
    vit = {classes: _vit_tiny(classes) for classes in (100, 1000)}
    resnet = {classes: _resnet56(classes) for classes in (20, 100)}
    return Finding(
        f"ViT-T: {vit[100]:,} with 100 classes, right; with 1000 it has {vit[1000]:,}. ResNet-56 with 100 classes has "
        f"{resnet[100]:,}; the printed number is that of 20 classes ({resnet[20]:,})",
        parts={
            "ViT-T, 100 classes": vit[100] == 5543716,
            "ViT-T, 1000 classes": vit[1000] == 5543716,
            "ResNet-56, 100 classes": resnet[100] == 856420,
        },
        numbers={f"vit_t_{c}": n for c, n in vit.items()} | {f"resnet56_{c}": n for c, n in resnet.items()},
    )


@claim(
    place="Tables 13 and 15, appendix A.7",
    says="SQUAF adds 35 parameters per trained activation: 455, 945, 420, 350 and 420 in the larger models, at most "
    "0.0076%; 805 in MobileNet.",
    expect="holds",
)
def parameters_added() -> Finding:
    """Sites times 2k+3 with k = 16, less those of the last stage, which is frozen in networks with stages (A.3.2)."""
    sites = {"ResNet-18": 17 - 4, "ResNet-34": 33 - 6, "ViT-T": 12, "Swin-T": 12 - 2, "GPT-2": 12, "MobileNet": 27 - 4}
    printed = {
        "ResNet-18": 455,
        "ResNet-34": 945,
        "ViT-T": 420,
        "Swin-T": 350,
        "GPT-2": 420,
        "MobileNet": 4232781 - 4231976,
    }
    each = _own(16)
    rate = 100 * 420 / 5543716
    true_rate = 100 * 420 / _vit_tiny(1000)
    return Finding(
        f"{each} each; with the last stage frozen (appendix A.3.2; in MobileNet 4 of 27 activations) all six follow. "
        f"{rate:.4f}% is of the printed ViT-T; of one with 1000 classes 420 are {true_rate:.4f}%",
        parts={
            "counts": all(sites[name] * each == printed[name] for name in sites),
            "largest share": math.isclose(rate, 0.0076, abs_tol=5e-5),
        },
        numbers={"per_activation": each} | {name: count * each for name, count in sites.items()},
    )
