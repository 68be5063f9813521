"""WikiText-2 as one stream of words or of characters for each part.

Files wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens (or train.txt, valid.txt, test.txt), plain or gzipped. A
word is what stands between spaces, `<unk>` among them, and every line ends with `<eos>`: 217,646 words for validation
and 245,569 for the test, as published. Characters are those of the text as it is.

Merity et al., "Pointer Sentinel Mixture Models", 2016.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from ...errors import DataError, ParameterError
from .files import data_folder, find_file, read_bytes, read_text

PARTS = ("train", "validation", "test")
END = "<eos>"
_FILES = {"train": "train", "validation": "valid", "test": "test"}
_FOLDERS = ("wikitext-2/", "wikitext-2-v1/", "")
_SOURCE = "the WikiText page of Merity et al. (wikitext-2-v1.zip), or the data set 'wikitext' of the Hugging Face hub"
_MOST_BYTES = 2**28  # the training part of WikiText-2 has 11 MB


@dataclass(frozen=True, kw_only=True)
class Streams:
    """The parts as class numbers in int64, one after the other, and what the numbers stand for."""

    parts: Mapping[str, Tensor]
    vocabulary: tuple[str, ...]

    def to(self, device: torch.device | str) -> Streams:
        """The same streams on another device."""
        return replace(self, parts={part: stream.to(device) for part, stream in self.parts.items()})


def load_wikitext(
    folder: str | os.PathLike[str] | None = None,
    *,
    level: Literal["words", "characters"] = "words",
    parts: Sequence[str] = PARTS,
) -> Streams:
    """WikiText-2 from a data folder.

    Args:
        parts: which are read; one that is not named need not be there. The vocabulary is that of the parts read, in the
            order in which each word or character comes first.
    """
    unknown = [part for part in parts if part not in PARTS]
    if unknown or not parts or level not in ("words", "characters"):
        raise ParameterError(
            f"WikiText-2 has the parts {', '.join(PARTS)} as 'words' or 'characters', and {list(parts)} as {level!r} "
            "were given."
        )
    root = data_folder(folder)
    return streams({part: _read(root, part) for part in parts}, level=level)


def streams(texts: Mapping[str, str], *, level: Literal["words", "characters"] = "words") -> Streams:
    """Texts by the name of their part as streams.

    >>> words = streams({"train": "a b a\\n", "test": " b \\n\\n"})
    >>> words.vocabulary, words.parts["test"].tolist()
    (('a', 'b', '<eos>'), [1, 2, 2])
    """
    vocabulary: dict[str, int] = {}
    parts = {
        part: torch.tensor(
            [vocabulary.setdefault(piece, len(vocabulary)) for piece in _pieces(text, level)], dtype=torch.int64
        )
        for part, text in texts.items()
    }
    return Streams(parts=parts, vocabulary=tuple(vocabulary))


def _pieces(text: str, level: str) -> Sequence[str]:
    if level == "characters":
        return text
    # At line feeds alone: other marks that Python takes for the end of a line occur within one.
    lines = text.removesuffix("\n").split("\n")
    return [word for line in lines for word in (*line.split(), END)]


def part_file(root: Path, short: str, *, called: str | None = None) -> Path:
    """The file of "train", "valid" or "test" in a data folder; `called` is the part's name in a sentence about it."""
    names = [f"wiki.{short}.tokens", f"{short}.txt"]
    places = [f"{folder}{name}{ending}" for folder in _FOLDERS for name in names for ending in ("", ".gz")]
    return find_file(root, places, what=f"WikiText-2 ({called or short})", source=_SOURCE)


def _read(root: Path, part: str) -> str:
    path = part_file(root, _FILES[part], called=part)
    text = read_text(path, what="part of WikiText-2", most_bytes=_MOST_BYTES)
    if not text.strip():
        raise DataError(f"'{path}' is empty. Get it again from {_SOURCE}.")
    return text


_PLACES = ("tinyshakespeare/input.txt", "tinyshakespeare/input.txt.gz", "input.txt")
_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
_SHAKESPEARE = "github.com/karpathy/char-rnn (data/tinyshakespeare/input.txt)"
_MOST_SHAKESPEARE = 2**24


@dataclass(frozen=True, kw_only=True)
class Characters:
    """The characters as numbers from 0, and how many different ones there are; the last tenth is for validation."""

    train: Tensor
    validation: Tensor
    vocabulary: int

    def to(self, device: torch.device | str) -> Characters:
        train, validation = self.train.to(device), self.validation.to(device)
        return Characters(train=train, validation=validation, vocabulary=self.vocabulary)


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
