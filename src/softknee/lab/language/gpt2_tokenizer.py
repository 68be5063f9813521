"""GPT-2's tokenizer from the two files that its authors published: encoder.json and vocab.bpe, gzipped or not."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from ...errors import DataError
from ..data.files import data_folder, find_file, read_text
from .tools import transformers

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
    places = [f"{at}{one}{end}" for at in ("", "gpt2-tokenizer/") for one in _NAMES[name] for end in ("", ".gz")]
    path = find_file(root, places, what=f"GPT-2's tokenizer ({name})", source=_SOURCE)
    text = read_text(path, what="vocabulary", most_bytes=2**26)
    digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
    if check and digest != _SHA256[name]:
        raise DataError(
            f"'{path}' is not GPT-2's published {name}: its sha256 is {digest[:12]}..., not {_SHA256[name][:12]}.... "
            "Take it anew; or, if it is meant to differ, load it with check=False (--own-vocabulary)."
        )
    return text


def _merges(text: str, root: Path) -> list[tuple[str, str]]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#version")]
    pairs = [tuple(line.split(" ")) for line in lines]
    if any(len(pair) != 2 for pair in pairs):
        raise DataError(f"vocab.bpe in '{root}' has a line that is not two pieces. It is damaged; take it anew.")
    return [(first, second) for first, second in pairs]
