"""What the SQUAF paper reports of distillation and of VGG-8 alone: tables 6, 7, 14 and 15, percent and numbers of
trained parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Reported:
    """One student of one teacher, or of none.

    accuracy, gap: of the test (validation) images, and training less test accuracy at the end, in percent.
    parameters: how many are trained; PolyReLU, which does not converge there, has no accuracy.
    """

    source: str
    data: str
    teacher_accuracy: float | None = None
    accuracy: Mapping[str, float]
    gap: Mapping[str, float] = field(default_factory=dict)
    parameters: Mapping[str, int] = field(default_factory=dict)


_VGG_8 = {
    "ReLU": 3_965_028, "GELU": 3_965_028, "LReLU": 3_965_028, "PReLU": 3_965_033, "Swish": 3_965_033,
    "CRReLU": 3_965_033, "PolyReLU": 3_965_048, "PolyNorm": 3_965_048, "DiTAC": 3_965_073, "SQUAF": 3_965_063,
}  # fmt: skip
PAPER: dict[tuple[str | None, str], Reported] = {
    (None, "vgg8"): Reported(
        source="table 6",
        data="cifar-100",
        accuracy={
            "ReLU": 70.36, "GELU": 69.94, "LReLU": 70.48, "PReLU": 68.30, "SiLU": 70.28, "Swish": 70.50,
            "CRReLU": 68.22, "PolyNorm": 66.65, "DiTAC": 71.03, "SQUAF": 72.57,
        },
        parameters=_VGG_8,
    ),
    ("vgg13", "vgg8"): Reported(
        source="tables 7 and 14",
        data="cifar-100",
        teacher_accuracy=74.64,
        accuracy={
            "ReLU": 72.98, "GELU": 73.51, "LReLU": 73.37, "PReLU": 72.27, "Swish": 73.45, "CRReLU": 72.88,
            "PolyNorm": 70.44, "DiTAC": 73.49, "SQUAF": 74.95,
        },
        gap={
            "GELU": 22.57, "LReLU": 21.52, "PReLU": 23.43, "Swish": 22.52, "CRReLU": 24.78, "PolyNorm": 24.23,
            "DiTAC": 22.53, "SQUAF": 20.68,
        },
        parameters={"teacher": 9_462_180, **_VGG_8},
    ),
    ("wrn40_2", "wrn16_2"): Reported(
        source="tables 7 and 14",
        data="cifar-100",
        teacher_accuracy=75.61,
        accuracy={
            "ReLU": 74.92, "GELU": 75.30, "LReLU": 74.90, "PReLU": 74.93, "Swish": 75.36, "CRReLU": 74.98,
            "PolyNorm": 72.86, "DiTAC": 75.45, "SQUAF": 75.93,
        },
        gap={
            "GELU": 14.87, "LReLU": 13.76, "PReLU": 14.31, "Swish": 14.95, "CRReLU": 15.61, "PolyNorm": 16.50,
            "DiTAC": 15.54, "SQUAF": 13.12,
        },
        parameters={
            "teacher": 2_255_156, "ReLU": 703_284, "GELU": 703_284, "LReLU": 703_284, "PReLU": 703_297,
            "Swish": 703_297, "CRReLU": 703_297, "PolyReLU": 703_336, "PolyNorm": 703_336, "DiTAC": 703_401,
            "SQUAF": 703_319,
        },
    ),
    ("timm:resnet18", "timm:mobilenetv1_100"): Reported(
        source="table 15",
        data="imagenet-1k",
        teacher_accuracy=69.76,
        accuracy={"ReLU": 69.71, "SQUAF": 70.87},
        parameters={"teacher": 11_689_512, "SQUAF": 4_232_781},  # the teacher's stands in table 13
    ),
}  # fmt: skip
