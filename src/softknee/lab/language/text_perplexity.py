"""WikiText-2 and other texts: how well a language model foretells them, before and after ReLU takes over.

    perplexity = exp(-(1/n) sum log p(token))          word perplexity = exp(-(1/words) sum log p(token))

The first depends on the tokenizer; the second divides by the words of WikiText as published (with one for the end of
each line), so that models with different tokenizers can be compared.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...errors import DataError, ParameterError, did_you_mean
from ...surgery import relu_ize_, swap_
from ...surgery.modules import activation_modules
from ..data.files import data_folder, read_text
from ..data.text import part_file
from .preferences import IGNORED

PARTS = ("train", "valid", "test")
# Words of the two parts, an end for each line included, as the authors of WikiText count them.
WORDS = {"valid": 217_646, "test": 245_569}


@dataclass(frozen=True, kw_only=True)
class Foretold:
    """How well a text was predicted: loss in nats a token, its exp, and the same for a word."""

    loss: float
    perplexity: float
    word_perplexity: float
    tokens: int
    words: int


@dataclass(frozen=True, kw_only=True)
class Replaced:
    """A model before and after ReLU was put in the place of its activations, no weight changed."""

    before: Foretold
    after: Foretold
    sites: tuple[str, ...]


def load_wikitext(part: str, folder: str | os.PathLike[str] | None = None, *, check: bool = True) -> str:
    """The text of WikiText-2's "train", "valid" or "test", tokenised by its authors, with <unk> for rare words.

    Args:
        check: the number of words must be the published one (valid and test); False takes another text.
    """
    if part not in PARTS:
        raise ParameterError(f"WikiText-2 has the parts {', '.join(PARTS)}, not {part!r}.{did_you_mean(part, PARTS)}")
    path = part_file(data_folder(folder), part)
    text = read_text(path, what="text", most_bytes=2**30)
    words = count_words(text)
    if check and part in WORDS and words != WORDS[part]:
        raise DataError(
            f"'{path}' has {words:,} words, and WikiText-2's {part} part has {WORDS[part]:,}. Take it anew; or, if it "
            "is meant to differ, load it with check=False (in a recipe: task.own_vocabulary)."
        )
    return text


def count_words(text: str) -> int:
    r"""Words between spaces, and one for the end of each line.

    >>> count_words(" = A title = \n the text \n")
    8
    """
    return sum(len(line.split()) + 1 for line in text.splitlines())


@dataclass(frozen=True, kw_only=True)
class TextTokens:
    """A text as numbers, and how many words they stand for."""

    tokens: Tensor
    words: int


def text_tokens(tokenizer: Any, text: str, *, most: int | None = None) -> TextTokens:
    """The numbers of a text; with `most` only the first so many, and that share of its words."""
    tokens = torch.tensor(tokenizer.encode(text, add_special_tokens=True))
    kept = tokens if most is None else tokens[:most]
    return TextTokens(tokens=kept, words=max(1, round(count_words(text) * len(kept) / max(1, len(tokens)))))


def foretell(model: Any, text: TextTokens, *, context: int, stride: int | None = None, batch: int = 4) -> Foretold:
    """How well a model foretells a text (`text_tokens`).

    Args:
        context: tokens that the model sees at once.
        stride: how far the window moves; each token is counted once, and after the first window it has at least
            `context - stride` tokens before it. Default: the whole context.
    """
    loss, count = token_losses(model, text.tokens, context=context, stride=stride, batch=batch)
    return Foretold(
        loss=loss / count,
        perplexity=exp_or_infinite(loss / count),
        word_perplexity=exp_or_infinite(loss / text.words),
        tokens=count,
        words=text.words,
    )


def exp_or_infinite(loss: float) -> float:
    """exp, and infinity where float64 has no number for it: a broken model can be that surprised."""
    return math.exp(loss) if loss < 709 else math.inf


@torch.no_grad()
def token_losses(
    model: Any, tokens: Tensor, *, context: int, stride: int | None = None, batch: int = 4
) -> tuple[float, int]:
    """The sum of the losses of all tokens but the first, and their number."""
    step = context if stride is None else stride
    if len(tokens) < 2 or not 1 <= step <= context or context < 2:
        raise ParameterError(
            f"Foretelling needs two tokens, a context of 2 and a stride of 1 to the context; {len(tokens)} tokens, "
            f"{context} and {step} were given."
        )
    mode, device = model.training, next(model.parameters()).device
    model.eval()
    total, counted, done = 0.0, 0, 1  # the first token has nothing before it
    rows: list[tuple[Tensor, int]] = []
    for start in range(0, len(tokens) - 1, step):
        # One token more than the model sees, because the last one that it sees foretells one.
        piece = tokens[start : start + context + 1]
        rows.append((piece, done - start))
        done = start + len(piece)
        if done == len(tokens):
            break
    for at in range(0, len(rows), batch):
        loss, count = _row_losses(model, rows[at : at + batch], device)
        total, counted = total + loss, counted + count
    model.train(mode)
    return total, counted


def _row_losses(model: Any, rows: Sequence[tuple[Tensor, int]], device: torch.device) -> tuple[float, int]:
    """Windows padded on the right; in each, only what was not counted before."""
    wide = max(len(piece) for piece, _ in rows)
    tokens = torch.zeros(len(rows), wide, dtype=torch.long)
    targets = torch.full((len(rows), wide), IGNORED)
    for row, (piece, first) in enumerate(rows):
        tokens[row, : len(piece)] = piece
        targets[row, first : len(piece)] = piece[first:]
    tokens, targets = tokens.to(device), targets.to(device)
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        # The padding stands on the right of everything counted, where a causal model does not look.
        logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
    losses = F.cross_entropy(
        logits.float().flatten(0, 1), targets[:, 1:].flatten(), reduction="none", ignore_index=IGNORED
    )
    return losses.double().sum().item(), int((targets[:, 1:] != IGNORED).sum())


def replace_by_relu_(
    model: Any, text: TextTokens, *, context: int, stride: int | None = None, batch: int = 4
) -> Replaced:
    """Put torch's ReLU in the place of every activation, in place, and measure the text before and after.

    Activations of softknee, hardened or not, are replaced by their own limit (`sk.relu_ize_`); stock ones (GELU, SiLU)
    by ReLU at once.
    """

    def measure() -> Foretold:
        return foretell(model, text, context=context, stride=stride, batch=batch)

    before = measure()
    if not activation_modules(model):
        swap_(model, "relu")
    sites = tuple(relu_ize_(model, tolerance=math.inf).replaced)  # its cost is what is measured
    return Replaced(before=before, after=measure(), sites=sites)
