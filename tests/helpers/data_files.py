"""Small files in the formats of CIFAR, Adult, Criteo and Tiny-ImageNet, for the tests of what reads them.

Each is written from the description of its format and not by the reader's code.
"""

import hashlib
import random
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from softknee.lab.data import adult
from softknee.lab.data.cifar import CIFAR_SETS

Part = tuple[np.ndarray, np.ndarray]  # images (count, 32, 32, 3) and labels
COUNTS = {"train": 60, "test": 20}


def pillow():
    return pytest.importorskip("PIL.Image", reason="Pillow is not installed; the extra 'vision' brings it")


# -- CIFAR --------------------------------------------------------------------------------------------------


def cifar_parts(classes: int) -> dict[str, Part]:
    rng = np.random.default_rng(0)
    return {
        part: (rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8), rng.permutation(count).astype("u1") % classes)
        for part, count in COUNTS.items()
    }


def cifar_files(name: str) -> dict[str, Part]:
    """The images of each file: five for training in CIFAR-10, one in CIFAR-100."""
    parts = cifar_parts(10 if name == "cifar-10" else 100)
    if name == "cifar-100":
        return parts
    (images, labels), pieces = parts["train"], 5
    return {
        **{f"data_batch_{n + 1}": (images[12 * n : 12 * n + 12], labels[12 * n : 12 * n + 12]) for n in range(pieces)},
        "test_batch": parts["test"],
    }


def planes(images: np.ndarray) -> np.ndarray:
    """All red, all green, all blue of each image, in a row."""
    return images.transpose(0, 3, 1, 2).reshape(len(images), -1)


def write_binary(folder: Path, name: str) -> Path:
    place = folder / {"cifar-10": "cifar-10-batches-bin", "cifar-100": "cifar-100-binary"}[name]
    place.mkdir(parents=True)
    for stem, (images, labels) in cifar_files(name).items():
        coarse = [labels[:, None] // 5] if name == "cifar-100" else []
        (place / f"{stem}.bin").write_bytes(np.hstack([*coarse, labels[:, None], planes(images)]).tobytes())
    return place


def publish_cifar(monkeypatch: pytest.MonkeyPatch, name: str, folder: Path) -> None:
    """Let these small files be what was published, so that a study reads them."""
    sums = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())}
    monkeypatch.setitem(CIFAR_SETS, name, replace(CIFAR_SETS[name], sha256=sums))


# -- Adult --------------------------------------------------------------------------------------------------


def adult_rows(count: int, *, seed: int = 0) -> list[list[str]]:
    draw = random.Random(seed)
    return [
        [
            *(draw.choice(values) if values else str(draw.randrange(1, 90)) for values in adult.COLUMNS.values()),
            draw.choice(adult.LABELS),
        ]
        for _ in range(count)
    ]


def write_adult(folder: Path, monkeypatch: pytest.MonkeyPatch | None = None) -> dict[str, list[list[str]]]:
    """Both files with their remark and marks; with `monkeypatch` they are what was published."""
    rows = {"adult.data": adult_rows(60), "adult.test": adult_rows(20, seed=1)}
    folder.mkdir(parents=True, exist_ok=True)
    for name, some in rows.items():
        head, mark = ("|1x3 Cross validator\n", ".") if name == "adult.test" else ("", "")
        content = head + "".join(", ".join(row) + mark + "\n" for row in some) + "\n"
        (folder / name).write_text(content)
        if monkeypatch is not None:
            monkeypatch.setitem(adult._MD5, name, hashlib.md5(content.encode()).hexdigest())
    return rows


# -- Criteo -------------------------------------------------------------------------------------------------


def criteo_lines(count: int, *, seed: int = 0) -> list[bytes]:
    """Rows of Kaggle's format; about a fifth of the fields is missing."""
    draw = random.Random(seed)

    def some(text: str) -> str:
        return text if draw.random() < 0.8 else ""

    return [
        "\t".join(
            [
                str(draw.randrange(2)),
                *(some(str(draw.randrange(-3, 10 ** draw.randrange(1, 7)))) for _ in range(13)),
                *(some(f"{draw.getrandbits(32):08x}") for _ in range(26)),
            ]
        ).encode()
        for _ in range(count)
    ]


def write_criteo(path: Path, count: int, *, seed: int = 0) -> list[bytes]:
    lines = criteo_lines(count, seed=seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\n".join(lines) + b"\n")
    return lines


# -- Tiny-ImageNet ------------------------------------------------------------------------------------------


def jpeg(colour: tuple[int, int, int] | int, *, side: int = 64) -> bytes:
    file = BytesIO()
    pillow().new("L" if isinstance(colour, int) else "RGB", (side, side), colour).save(file, "JPEG")
    return file.getvalue()


def tiny_imagenet_files(*, each: int = 11) -> dict[str, bytes]:
    """Three classes by name in the official layout: green grows with the number of the picture."""
    kinds = ("n03", "n01", "n02")
    files = {"wnids.txt": "".join(f"{kind}\n" for kind in kinds).encode()}
    for place, kind in enumerate(kinds):
        for number in range(each):
            files[f"train/{kind}/images/{kind}_{number}.JPEG"] = jpeg((80 * place, 20 * number, 0))
    lines = []
    for number in range(6):
        files[f"val/images/val_{number}.JPEG"] = jpeg(40 * number)
        lines.append(f"val_{number}.JPEG\t{kinds[number % 3]}\t0\t0\t63\t63\n")
    return {**files, "val/val_annotations.txt": "".join(lines).encode(), "test/images/test_0.JPEG": jpeg(0)}


def write_tree(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


# -- ImageNet -----------------------------------------------------------------------------------------------

IMAGENET_CLASSES = ("n01440764", "n01443537", "n01484850")


def write_imagenet(folder: Path, *, train: int = 4, val: int = 3) -> Path:
    """Three classes of pictures of different sizes: red is 40 times the number of the class, and one more for each."""
    for part, count in (("train", train), ("val", val)):
        for number, name in enumerate(IMAGENET_CLASSES):
            (folder / part / name).mkdir(parents=True)
            for item in range(count):
                pixels = np.zeros((30 + 7 * item, 50, 3), dtype=np.uint8)
                pixels[..., 0] = 40 * number + item
                pixels[..., 1] = np.linspace(0, 250, 50, dtype=np.uint8)  # from left to right
                path = folder / part / name / f"{name}_{item}.JPEG"
                pillow().fromarray(pixels).save(path, quality=100, subsampling=0)
    return folder
