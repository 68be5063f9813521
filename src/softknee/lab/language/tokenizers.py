"""Packages that the language experiments need, asked for when they are needed."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ...errors import DataError, InputError, need_package
from ..data.files import data_folder, find_file, read_bytes, read_text


def transformers(what: str) -> Any:
    """The package transformers, or the sentence that says how to get it."""
    return need_package("transformers", f"{what} needs the package 'transformers'", "text")


def trl(what: str) -> Any:
    """The package trl, or the sentence that says how to get it, or how to do without."""
    otherwise = "; or take the backend 'own', which needs nothing more."
    return need_package("trl", f"{what} needs the package 'trl'", "preference", otherwise)


END = "<|endoftext|>"
_SHA256 = {
    "encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    "vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
}
# The names that the two files have in a folder of transformers come second.
_NAMES = {"encoder.json": ("encoder.json", "vocab.json"), "vocab.bpe": ("vocab.bpe", "merges.txt")}
_SOURCE = "openaipublic.blob.core.windows.net/gpt-2 or a folder of GPT-2 on huggingface.co (vocab.json, merges.txt)"


def load_gpt2_tokenizer(folder: str | os.PathLike[str] | None = None, *, check: bool = True) -> Any:
    """A tokenizer of transformers whose padding is the end of a text, as GPT-2 has no sign of its own for it.

    Args:
        folder: what holds the two files, or the data folder with `gpt2-tokenizer` in it; by default SOFTKNEE_DATA.
        check: compare with the checksums of the published files. False takes another vocabulary of that format.
    """
    library = transformers("GPT-2's tokenizer")
    root = data_folder(folder)
    texts = {name: _read(root, name, check=check) for name in _NAMES}
    try:
        vocabulary = json.loads(texts["encoder.json"])
    except json.JSONDecodeError as error:
        raise DataError(
            f"encoder.json in '{root}' is damaged (line {error.lineno}: {error.msg}). Take it anew."
        ) from error
    if not isinstance(vocabulary, dict) or sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise DataError(f"encoder.json in '{root}' does not number its pieces from 0 on, so it is no vocabulary.")
    if END not in vocabulary:
        raise DataError(f"encoder.json in '{root}' lacks {END}, which ends a text, so it is not GPT-2's vocabulary.")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # comes with transformers

    # The same parts that transformers' own GPT-2 tokenizer is made of; this way takes the two files as they are, in
    # every version of transformers.
    parts = Tokenizer(models.BPE(vocab=vocabulary, merges=_merges(texts["vocab.bpe"], root)))
    parts.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    parts.decoder = decoders.ByteLevel()
    return library.PreTrainedTokenizerFast(
        tokenizer_object=parts, unk_token=END, bos_token=END, eos_token=END, pad_token=END
    )


def _read(root: Path, name: str, *, check: bool) -> str:
    places = [f"{at}{file}{end}" for at in ("", "gpt2-tokenizer/") for file in _NAMES[name] for end in ("", ".gz")]
    path = find_file(root, places, what=f"GPT-2's tokenizer ({name})", source=_SOURCE)
    text = read_text(path, what="vocabulary", most_bytes=2**26)
    digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
    if check and digest != _SHA256[name]:
        raise DataError(
            f"'{path}' is not GPT-2's published {name}: its sha256 is {digest[:12]}..., not {_SHA256[name][:12]}.... "
            "Take it anew; or, if it is meant to differ, load it with check=False (in a recipe: task.own_vocabulary)."
        )
    return text


def _merges(text: str, root: Path) -> list[tuple[str, str]]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#version")]
    pairs = [tuple(line.split(" ")) for line in lines]
    if any(len(pair) != 2 for pair in pairs):
        raise DataError(f"vocab.bpe in '{root}' has a line that is not two pieces. It is damaged; take it anew.")
    return [(first, second) for first, second in pairs]


_MOST_BYTES = 2**26
_LONGEST_PIECE = 2**16
_FIRST_BYTE = 3  # the pieces 3 to 258 are the 256 bytes, for characters that have no piece


class StoryTokenizer:
    """Texts to numbers and back, as llama2.c does it: 1 begins a text, 2 ends one, and a space is put in front.

    >>> pieces = [b"<unk>", b"<s>", b"</s>", *(f"<0x{byte:02X}>".encode() for byte in range(256))]
    >>> pieces += [b" ", b"a", b"b", b"ab", b" ab"]
    >>> tokenizer = StoryTokenizer(pieces, [0.0] * 259 + [-9.0, -9.0, -9.0, -1.0, -2.0])
    >>> tokenizer.encode("ab!"), tokenizer.decode([1, 263, 36])
    ([1, 263, 36], 'ab!')
    """

    bos_token_id, eos_token_id, pad_token_id = 1, 2, 2

    def __init__(self, pieces: Sequence[bytes], scores: Sequence[float]) -> None:
        if len(pieces) != len(scores) or len(pieces) < _FIRST_BYTE + 256:
            raise InputError("A story tokenizer needs a score for each piece, and at least 259 pieces.")
        transformers("A story tokenizer")
        from tokenizers import Tokenizer, decoders, models  # comes with transformers

        self._count = len(pieces)
        vocabulary: dict[str, int] = {}
        for number, piece in enumerate(pieces):
            vocabulary.setdefault(piece.decode("utf-8"), number)  # of two equal pieces the first counts
        merges = [
            (-scores[number], piece[:cut], piece[cut:])
            for piece, number in vocabulary.items()
            for cut in range(1, len(piece))
            if piece[:cut] in vocabulary and piece[cut:] in vocabulary
        ]
        merges.sort(key=lambda merge: merge[0])
        self._tokenizer = Tokenizer(
            models.BPE(vocab=vocabulary, merges=[merge[1:] for merge in merges], byte_fallback=True)
        )
        self._tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])

    def __len__(self) -> int:
        return self._count

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The numbers of a text; with `add_special_tokens` the 1 and the space in front, as a text begins."""
        if not add_special_tokens:
            return self._tokenizer.encode(text).ids
        return [self.bos_token_id, *self._tokenizer.encode(f" {text}" if text else "").ids]

    def decode(self, numbers: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """The text of numbers; the space that was put in front of it is taken away again."""
        special = (self.bos_token_id, self.eos_token_id) if skip_special_tokens else ()
        kept = [number for number in map(int, numbers) if number not in special]
        return self._tokenizer.decode(kept, skip_special_tokens=False).removeprefix(" ")


def read_story_tokenizer(path: str | os.PathLike[str]) -> StoryTokenizer:
    """The tokenizer in a file, gzipped or not."""
    content = read_bytes(path, what="llama2.c tokenizer", most_bytes=_MOST_BYTES)
    offset, pieces, scores = 4, [], []
    while offset + 8 <= len(content):
        score, length = struct.unpack_from("<fi", content, offset)
        if not 0 <= length <= _LONGEST_PIECE or offset + 8 + length > len(content):
            break
        scores.append(score)
        pieces.append(content[offset + 8 : offset + 8 + length])
        offset += 8 + length
    if offset != len(content) or len(pieces) < _FIRST_BYTE + 256:
        raise DataError(
            f"'{path}' is no whole llama2.c tokenizer: the record at byte {offset:,} is cut short or too long. Take it "
            "anew."
        )
    try:
        return StoryTokenizer(pieces, scores)
    except UnicodeDecodeError as error:
        raise DataError(f"'{path}' is no llama2.c tokenizer: a piece is not UTF-8 ({error}). Take it anew.") from error
