"""Texts: the files of WikiText-2, and tiny-shakespeare as characters.

WikiText-2 has wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens (or train.txt, valid.txt, test.txt), plain or
gzipped.

Merity et al., "Pointer Sentinel Mixture Models", 2016.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from ...errors import DataError
from .files import data_folder, find_file, read_bytes

_FOLDERS = ("wikitext-2/", "wikitext-2-v1/", "")
_SOURCE = "the WikiText page of Merity et al. (wikitext-2-v1.zip), or the data set 'wikitext' of the Hugging Face hub"


def part_file(root: Path, part: str) -> Path:
    """The file of "train", "valid" or "test" in a data folder."""
    names = [f"wiki.{part}.tokens", f"{part}.txt"]
    places = [f"{folder}{name}{ending}" for folder in _FOLDERS for name in names for ending in ("", ".gz")]
    return find_file(root, places, what=f"WikiText-2 ({part})", source=_SOURCE)


_PLACES = ("tinyshakespeare/input.txt", "tinyshakespeare/input.txt.gz", "input.txt")
_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
_SHAKESPEARE = "github.com/karpathy/char-rnn (data/tinyshakespeare/input.txt)"
_MOST_SHAKESPEARE = 2**24


@dataclass(frozen=True, kw_only=True)
class Characters:
    """The characters as numbers from 0, and how many different ones there are; the last tenth is for validation.

    held_out: the end of what there was to train on, where it is kept for choices that `validation` then judges.
    """

    train: Tensor
    validation: Tensor
    vocabulary: int
    held_out: Tensor | None = None

    def to(self, device: torch.device | str) -> Characters:
        held_out = None if self.held_out is None else self.held_out.to(device)
        return replace(self, train=self.train.to(device), validation=self.validation.to(device), held_out=held_out)

    def hold_out(self, share: float) -> Characters:
        """With the end of the text to train on kept apart."""
        cut = len(self.train) - round(len(self.train) * share)
        return replace(self, train=self.train[:cut], held_out=self.train[cut:])


def load_characters(folder: str | os.PathLike[str] | None = None, *, check: bool = True) -> Characters:
    """Tiny-shakespeare from the data folder; `check=False` takes another text under its name."""
    path = find_file(data_folder(folder), _PLACES, what="Tiny-shakespeare", source=_SHAKESPEARE)
    content = read_bytes(path, what="text of characters", most_bytes=_MOST_SHAKESPEARE)
    if check and hashlib.sha256(content).hexdigest() != _SHA256:
        raise DataError(
            f"The file '{path}' is not tiny-shakespeare as published (its SHA-256 differs); take it again from "
            f"{_SHAKESPEARE}, or pass check=False to use another text."
        )
    return from_bytes(content)


def from_bytes(content: bytes) -> Characters:
    """A text of any kind, byte by byte."""
    values = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    kinds, numbers = values.unique(return_inverse=True)
    cut = len(numbers) - len(numbers) // 10
    return Characters(train=numbers[:cut].long(), validation=numbers[cut:].long(), vocabulary=len(kinds))
