"""The tokenizer that comes with llama2.c: pieces of text with scores, merged greedily, best score first.

Its .bin file is the length of the longest piece, and then for each piece its score (float32), its length (int32) and
its bytes. The number of pieces stands in the model's header and not here: the file is read to its end.
"""

from __future__ import annotations

import heapq
import os
import struct
from collections.abc import Iterable, Sequence

from ...errors import DataError, InputError
from ..compressed import read_bytes

_MOST_BYTES = 2**26
_LONGEST_PIECE = 2**16
_FIRST_BYTE = 3  # the pieces 3 to 258 stand for the 256 bytes


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
        self.pieces, self.scores = list(pieces), list(scores)
        self.numbers: dict[bytes, int] = {}
        for number in range(len(pieces) - 1, -1, -1):  # of two equal pieces the first counts
            self.numbers[pieces[number]] = number

    def __len__(self) -> int:
        return len(self.pieces)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The numbers of a text; with `add_special_tokens` the 1 and the space in front, as a text begins."""
        start = [self.bos_token_id] if add_special_tokens else []
        shown = f" {text}" if add_special_tokens and text else text
        return start + self._merged([number for sign in shown for number in self._sign(sign)])

    def decode(self, numbers: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """The text of numbers; the space that was put in front of it is taken away again."""
        found = b""
        for number in map(int, numbers):
            if number in (self.bos_token_id, self.eos_token_id):
                found += b"" if skip_special_tokens else self.pieces[number]
            elif _FIRST_BYTE <= number < _FIRST_BYTE + 256:
                found += bytes([number - _FIRST_BYTE])
            else:
                found += self.pieces[number]
        return found.decode("utf-8", errors="replace").removeprefix(" ")

    def _sign(self, sign: str) -> list[int]:
        """A character as its piece, or as its bytes where it has none."""
        written = sign.encode("utf-8")
        number = self.numbers.get(written)
        return [byte + _FIRST_BYTE for byte in written] if number is None else [number]

    def _merged(self, tokens: list[int]) -> list[int]:
        """Neighbours joined as long as two of them form a piece: the best score first, of equals the leftmost."""
        before = list(range(-1, len(tokens) - 1))
        after = [*range(1, len(tokens)), -1]
        queue: list[tuple[float, int, int, int, int]] = []

        def offer(left: int, right: int) -> None:
            if left >= 0 and right >= 0:
                whole = self.numbers.get(self.pieces[tokens[left]] + self.pieces[tokens[right]])
                if whole is not None:
                    heapq.heappush(queue, (-self.scores[whole], left, tokens[left], right, tokens[right]))

        for at in range(len(tokens) - 1):
            offer(at, at + 1)
        while queue:
            _, left, was_left, right, was_right = heapq.heappop(queue)
            # An offer is stale once one of the two was joined to something else.
            if after[left] != right or tokens[left] != was_left or tokens[right] != was_right:
                continue
            tokens[left] = self.numbers[self.pieces[was_left] + self.pieces[was_right]]
            tokens[right] = -1
            after[left] = after[right]
            after[right] = -1
            if after[left] >= 0:
                before[after[left]] = left
            offer(before[left], left)
            offer(left, after[left])
        return [token for token in tokens if token >= 0]


def read_story_tokenizer(path: str | os.PathLike[str]) -> StoryTokenizer:
    """The tokenizer in a file, gzipped or not."""
    content = read_bytes(path, what="llama2.c tokenizer", most_bytes=_MOST_BYTES)
    at, pieces, scores = 4, [], []
    while at + 8 <= len(content):
        score, length = struct.unpack_from("<fi", content, at)
        if not 0 <= length <= _LONGEST_PIECE or at + 8 + length > len(content):
            break
        scores.append(score)
        pieces.append(content[at + 8 : at + 8 + length])
        at += 8 + length
    if at != len(content) or len(pieces) < _FIRST_BYTE + 256:
        raise DataError(f"'{path}' is no whole llama2.c tokenizer: it stops making sense at byte {at:,}. Take it anew.")
    return StoryTokenizer(pieces, scores)
