"""The tokenizer that comes with llama2.c: byte-pair merges by score, as the `tokenizers` package does them.

Its .bin file is the length of the longest piece, and then for each piece its score (float32), its length (int32) and
its bytes. The number of pieces is in the model's header and not here: the file is read to its end. The scores of joined
pieces differ in such a file, so that they order the merges.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence

from ...errors import DataError, InputError
from ..data.files import read_bytes
from .tools import transformers

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
        raise DataError(
            f"'{path}' is no llama2.c tokenizer: a piece is not text in UTF-8 ({error}). Take it anew."
        ) from error
