"""Small files of the format of MNIST, for the tests of what reads them."""

import gzip
import hashlib
import struct
from dataclasses import replace
from pathlib import Path

import torch

from softknee.lab.data import idx

COUNTS = {"train": 50, "t10k": 20}


def idx_bytes(tensor: torch.Tensor, *, type_code: int = 8) -> bytes:
    """The format, written from its description and not by the reader's code."""
    head = struct.pack(f">BBBB{tensor.ndim}I", 0, 0, type_code, tensor.ndim, *tensor.shape)
    return head + bytes(tensor.int().flatten().tolist())


def contents() -> dict[str, bytes]:
    """Four small files of the real format."""
    random = torch.Generator().manual_seed(0)
    made = {}
    for kind, count in COUNTS.items():
        images = torch.randint(256, (count, 28, 28), generator=random, dtype=torch.uint8)
        labels = torch.randint(10, (count,), generator=random, dtype=torch.uint8)
        made[f"{kind}-images-idx3-ubyte"], made[f"{kind}-labels-idx1-ubyte"] = idx_bytes(images), idx_bytes(labels)
    return made


def write(folder: Path, *, zipped: bool = True, dots: bool = False, **changed: bytes | None) -> None:
    """The four files in a folder; `changed` replaces or, with None, leaves out those whose name begins like that."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in contents().items():
        for start, other in changed.items():
            if name.startswith(start.replace("_", "-")):
                data = other
        if data is not None:
            named = name.replace("-idx", ".idx") if dots else name
            (folder / (f"{named}.gz" if zipped else named)).write_bytes(gzip.compress(data) if zipped else data)


def as_published(name: str) -> idx.Published:
    """The data set of that name as if these small files were what was published."""
    made = contents()
    sums = {
        part: hashlib.sha256(next(data for file, data in made.items() if file.startswith(stem))).hexdigest()
        for part, (stem, _) in idx._PARTS.items()
    }
    return replace(idx.SETS[name], sha256=sums)
