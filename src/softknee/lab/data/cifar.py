"""CIFAR-10 and CIFAR-100 from their binary files, compared by SHA-256. Pickles are not read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ...errors import DataError
from .files import read_bytes
from .image_set import ImageSet

_PIXELS = 3 * 32 * 32
_MOST_CIFAR_BYTES = 2**28  # the largest file, CIFAR-100's of 50,000 images, has 1.6e8
_HOME = "www.cs.toronto.edu/~kriz/cifar.html"


@dataclass(frozen=True, kw_only=True)
class CifarFiles:
    """A data set as published. The last byte of the `label_bytes` of a record is the label."""

    title: str
    labels: tuple[str, ...]
    label_bytes: int
    archive: str
    folder: str
    python_folder: str
    sha256: Mapping[str, str]  # by file; those named test... are the test part


CIFAR_SETS: dict[str, CifarFiles] = {
    "cifar-10": CifarFiles(
        title="CIFAR-10",
        labels=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        label_bytes=1,
        archive="cifar-10-binary.tar.gz",
        folder="cifar-10-batches-bin",
        python_folder="cifar-10-batches-py",
        sha256={
            "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
            "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
            "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
            "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        },
    ),
    "cifar-100": CifarFiles(
        title="CIFAR-100",
        labels=tuple(map(str, range(100))),
        label_bytes=2,
        archive="cifar-100-binary.tar.gz",
        folder="cifar-100-binary",
        python_folder="cifar-100-python",
        sha256={
            "train.bin": "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
            "test.bin": "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
        },
    ),
}


def load_cifar(name: str, root: Path, *, check: bool = True) -> ImageSet:
    """CIFAR-10 or CIFAR-100 from a data folder; `check=False` takes other images in the same format."""
    published = CIFAR_SETS[name]
    folder = _find_folder(published, root)
    records = {file: _read_cifar(folder / file, published, check) for file in published.sha256}
    train = torch.cat([table for file, table in records.items() if not file.startswith("test")])
    test = torch.cat([table for file, table in records.items() if file.startswith("test")])
    before = published.label_bytes
    return ImageSet(
        name=name,
        train_images=train[:, before:].reshape(-1, 3, 32, 32),
        train_labels=train[:, before - 1].long(),
        test_images=test[:, before:].reshape(-1, 3, 32, 32),
        test_labels=test[:, before - 1].long(),
        labels=published.labels,
    )


def _find_folder(published: CifarFiles, root: Path) -> Path:
    parents = [root, root / published.title.lower(), root / published.title.lower().replace("-", "")]
    for parent in parents:
        if (parent / published.folder).is_dir():
            return parent / published.folder
    files = ", ".join(published.sha256)
    cure = (
        f"Unpack {published.archive} (the binary version) from {_HOME} there, so that it has '{published.folder}' with "
        f"{files}; softknee downloads nothing. Or name another folder with --data or SOFTKNEE_DATA."
    )
    for parent in parents:
        if (parent / published.python_folder).is_dir():
            raise DataError(
                f"'{parent / published.python_folder}' is the python version of {published.title}, which consists of "
                f"pickles, and those are not read because a pickle may run code. {cure}"
            )
    raise DataError(f"{published.title} has no folder '{published.folder}' in the data folder '{root}'. {cure}")


def _read_cifar(path: Path, published: CifarFiles, check: bool) -> Tensor:
    """The records of a file, (count, label bytes + 3,072) in uint8."""
    if not path.is_file():
        raise DataError(
            f"{published.title} has no file '{path.name}' in '{path.parent}'. It needs {', '.join(published.sha256)}; "
            f"unpack {published.archive} from {_HOME} again. softknee downloads nothing."
        )
    content = bytearray(read_bytes(path, what=f"file of {published.title}", most_bytes=_MOST_CIFAR_BYTES))
    length = published.label_bytes + _PIXELS
    if len(content) == 0 or len(content) % length:
        raise DataError(
            f"'{path}' has {len(content):,} bytes, which are no whole records of {length:,} bytes each, as "
            f"{published.title}'s are. It was cut short or is another's; get it again."
        )
    if check and hashlib.sha256(content).hexdigest() != published.sha256[path.name]:
        raise DataError(
            f"'{path}' is not the published file: its SHA-256 differs. Get it again; or, if it is meant to differ, "
            "load it with check=False (in a recipe: data.check: false)."
        )
    return torch.frombuffer(content, dtype=torch.uint8).reshape(-1, length)
