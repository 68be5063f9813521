"""Criteo's display advertising data for a study: was an advertisement clicked, by 13 numbers and 26 categories.

What a model takes is one row of 39 floats: the numbers v as

    log(v)^2 where v > 2,   v where v <= 2,   0 where it is missing

(the transform of the winners of Criteo's challenge; the paper says "log-square-transformed" and no more), then the
bucket of each category as a whole number. `EMBEDDINGS` are the sizes d_k of equation 23, 0 for a category that is taken
one-hot: then a model's first layer has 13 + 701 + 328 = 1042 inputs. (The rule "embedded from 110 buckets on" would
embed the column of 494 buckets, whose printed size is 0. The printed sizes are taken.)

"Smooth activations and reproducibility in deep networks", appendix E.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...errors import DataError
from .criteo_shards import BUCKETS, CATEGORIES, COMMAND, MISSING, NUMBERS, Block, Shards, read_blocks
from .files import data_folder, numpy, opened

if TYPE_CHECKING:
    import numpy as np

EMBEDDINGS = (3, 9, 29, 11, 17, 0, 14, 4, 0, 12, 19, 24, 29, 0, 13, 25, 0, 8, 29, 0, 22, 0, 0, 31, 0, 29)  # equation 23
INPUTS = NUMBERS + sum(EMBEDDINGS) + sum(n for n, d in zip(BUCKETS, EMBEDDINGS, strict=True) if d == 0)
LABELS = ("no click", "click")
_SHARDS = ("criteo/shards", "criteo-shards", "criteo")
_TEXTS = {"train": "dac8k_train.tsv", "validation": "dac8k_dev.tsv", "test": "dac8k_test.tsv"}
_BLOCK = 2**16
# 37, 4 and 4 million of 45 million, in the order of time: what is predicted comes after what was learned from.
_SHARE = {"validation": 4 / 45, "test": 4 / 45}

Parts = dict[str, tuple[Tensor, Tensor]]


def log_square(numbers: np.ndarray) -> np.ndarray:
    """log(v)^2 where v > 2, else v itself, and 0 where it is missing; in float32.

    >>> import numpy as np
    >>> log_square(np.array([MISSING, -2, 0, 2, 3], dtype=np.int32)).tolist()
    [0.0, -2.0, 0.0, 2.0, 1.206948...]
    """
    np = numpy()
    values = np.where(numbers == MISSING, 0, numbers).astype(np.float64)
    return np.where(values > 2, np.log(np.maximum(values, 1.0)) ** 2, values).astype(np.float32)


def features(block: Block) -> tuple[Tensor, Tensor]:
    """Rows as a model takes them: 13 transformed numbers and 26 buckets in float32, and classes in int64."""
    x = torch.empty(len(block), NUMBERS + CATEGORIES)
    x[:, :NUMBERS] = torch.from_numpy(log_square(block.numbers)).T
    x[:, NUMBERS:] = torch.from_numpy(block.buckets).T
    return x, torch.from_numpy(block.labels).long()


def load_criteo(folder: str | os.PathLike[str] | None = None) -> Parts:
    """Inputs and classes of "train", "validation" and "test", from shards or from the small files of dac8k.

    Shards are divided in their order, the last 4/45 for the test, the 4/45 before them for validation. All of Kaggle's
    rows take 7.5 GB; for a single pass that takes little, see `Shards.blocks`.
    """
    root = data_folder(folder)
    for place in _SHARDS:
        if (root / place / "meta.json").is_file():
            return _of_shards(Shards(root / place))
    texts = {part: _text(root, name) for part, name in _TEXTS.items()}
    if all(texts.values()):
        return {part: _of_text(path) for part, path in texts.items() if path}
    raw = _text(root, "train.txt")
    if raw is not None:
        raise DataError(
            f"'{raw}' is Criteo's text, which a study reads as shards. Make them once with: {_made(raw, root)}"
        )
    raise DataError(
        f"Criteo has no files in the data folder '{root}'. Looked for: '{_SHARDS[0]}/meta.json' (shards that "
        f"`{COMMAND}` makes of Kaggle's train.txt), 'criteo/train.txt', and {_listed(_TEXTS.values())}, plain or .gz. "
        "train.txt is usually had from the Criteo Display Advertising Challenge (Kaggle) or ailab.criteo.com; softknee "
        "downloads nothing. Put it there, or name another folder with --data or SOFTKNEE_DATA."
    )


def _made(raw: Path, root: Path) -> str:
    return COMMAND.replace("RAW", str(raw)).replace("OUT", str(root / _SHARDS[0]))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'criteo/{name}'" for name in names)


def _text(root: Path, name: str) -> Path | None:
    places = [root / above / f"{name}{ending}" for above in ("criteo", ".") for ending in ("", ".gz")]
    return next(filter(Path.is_file, places), None)


def _of_text(path: Path) -> tuple[Tensor, Tensor]:
    with opened(path, what="rows of Criteo") as stream:
        pieces = [features(block) for block in read_blocks(stream, path)]
    if not pieces:
        raise DataError(f"'{path}' is empty. Take it anew.")
    x, y = zip(*pieces, strict=True)
    return torch.cat(x), torch.cat(y)


def _of_shards(shards: Shards) -> Parts:
    kept = {part: round(len(shards) * share) for part, share in _SHARE.items()}
    if min(kept.values()) == 0:
        raise DataError(f"'{shards.folder}' has {len(shards)} rows, too few to divide them 37 : 4 : 4.")
    parts, start = {}, 0
    for part, count in {"train": len(shards) - sum(kept.values()), **kept}.items():
        # Room is taken once: rows that were joined afterwards would take it twice.
        x, y = torch.empty(count, NUMBERS + CATEGORIES), torch.empty(count, dtype=torch.int64)
        at = 0
        for block in shards.blocks(size=_BLOCK, start=start, stop=start + count):
            x[at : at + len(block)], y[at : at + len(block)] = features(block)
            at += len(block)
        parts[part] = x, y
        start += count
    return parts
