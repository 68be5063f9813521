"""Pairs of replies of which people preferred one: Anthropic's HH and Stanford's SHP, in the files they come in.

Three formats, told apart by their fields:

    chosen, rejected            HH: two whole dialogues, one object a line. The prompt is everything up to and with the
                                last "\n\nAssistant:" of the chosen one; the replies are what follows.
    prompt, chosen, rejected    HH reduced to one question: a list of objects, or one a line.
    history, human_ref_A, human_ref_B, labels, score_A, score_B    SHP: one object a line.

A question that stands alone is written as HH writes it, "\n\nHuman: ...\n\nAssistant:", and its replies begin with
a space. A pair that cannot be used is left out and counted under its reason; it is never filled in.

Reference: Rafailov et al., Direct preference optimization (2023), whose settings for both sets these are.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...errors import DataError, InputError, ParameterError
from ..data.files import read_text

ASSISTANT = "\n\nAssistant:"
HUMAN = "\n\nHuman: "
EMPTY = "an empty reply"
DIFFERENT = "the dialogues differ before the last reply"
UNSURE = "the scores differ by less than the asked ratio"
_SHP_FIELDS = ("history", "human_ref_A", "human_ref_B", "labels", "score_A", "score_B")
_LEAST_RATIO = 2.0


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A prompt and two replies to it; `kept` is the end of a too long prompt that stays ("end" for HH)."""

    prompt: str
    chosen: str
    rejected: str
    kept: str = "end"


@dataclass(frozen=True, kw_only=True)
class Preferences:
    """The pairs of one or several files, and how many were left out for which reason."""

    pairs: tuple[Pair, ...]
    skipped: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.pairs)

    def sentence(self) -> str:
        """What there is, for a record."""
        left = [f"{count:,} left out ({reason})" for reason, count in self.skipped.items()]
        return ", ".join([f"{len(self.pairs):,} pairs", *left])


def read_preferences(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], *, least_ratio: float = _LEAST_RATIO
) -> Preferences:
    """The pairs of files (.jsonl, .json, also .gz) in their order.

    Args:
        least_ratio: pairs of SHP whose two scores differ by less than this factor are left out (DPO's authors: 2).
    """
    several = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    pairs: list[Pair] = []
    skipped: Counter[str] = Counter()
    for path in several:
        for where, row in _rows(Path(path)):
            pair = _pair(row, where, least_ratio)
            if isinstance(pair, Pair):
                pairs.append(pair)
            else:
                skipped[pair] += 1
    if not pairs:
        left = ", ".join(f"{count} with {reason}" for reason, count in skipped.items()) or "it is empty"
        named = ", ".join(f"'{path}'" for path in several) or "no file"
        raise DataError(f"No usable pair was found in {named}: {left}. Take it anew, or name another file.")
    return Preferences(pairs=tuple(pairs), skipped=dict(skipped))


def split_dialogue(chosen: str, rejected: str) -> tuple[str, str, str] | str:
    r"""The prompt and the two replies, or the reason why there are none.

    >>> split_dialogue("\n\nHuman: Hi!\n\nAssistant: Hello.", "\n\nHuman: Hi!\n\nAssistant: No.")
    ('\n\nHuman: Hi!\n\nAssistant:', ' Hello.', ' No.')
    """
    at = chosen.rfind(ASSISTANT)
    prompt = chosen[: at + len(ASSISTANT)]
    if at < 0 or not rejected.startswith(prompt):
        return DIFFERENT
    return prompt, chosen[len(prompt) :], rejected[len(prompt) :]


def as_dialogue(question: str) -> str:
    """A question that stands alone, in the words of HH."""
    return f"{HUMAN}{question}{ASSISTANT}"


def _pair(row: Any, where: str, least_ratio: float) -> Pair | str:
    """The pair of one object, or the reason why it is left out."""
    if not isinstance(row, dict):
        raise DataError(f"{where} is a {type(row).__name__}, and a pair is an object with named fields.")
    if "human_ref_A" in row:
        return _of_shp(row, where, least_ratio)
    chosen, rejected = _text(row, "chosen", where), _text(row, "rejected", where)
    if "prompt" in row:
        prompt, kept = as_dialogue(_text(row, "prompt", where)), "end"
        chosen, rejected = f" {chosen}", f" {rejected}"
    else:
        parts = split_dialogue(chosen, rejected)
        if isinstance(parts, str):
            return EMPTY if not (chosen.strip() and rejected.strip()) else parts
        (prompt, chosen, rejected), kept = parts, "end"
    return _filled(Pair(prompt=prompt, chosen=chosen, rejected=rejected, kept=kept))


def _of_shp(row: Mapping[str, Any], where: str, least_ratio: float) -> Pair | str:
    """label 1: people preferred A. The scores are the votes of the two comments."""
    missing = [name for name in _SHP_FIELDS if name not in row]
    if missing:
        raise DataError(f"{where} lacks {missing[0]!r}; a pair of SHP has {', '.join(_SHP_FIELDS)}.")
    scores = [row["score_A"], row["score_B"]]
    if row["labels"] not in (0, 1) or not all(isinstance(score, int | float) for score in scores):
        raise DataError(f"{where}: 'labels' must be 0 or 1 and the scores numbers, and they are not.")
    low, high = min(scores), max(scores)
    if low <= 0 or high / low < least_ratio:
        return UNSURE
    replies = [f" {_text(row, name, where)}" for name in ("human_ref_A", "human_ref_B")]
    chosen, rejected = replies if row["labels"] == 1 else reversed(replies)
    return _filled(
        Pair(prompt=as_dialogue(_text(row, "history", where)), chosen=chosen, rejected=rejected, kept="start")
    )


def _filled(pair: Pair) -> Pair | str:
    return pair if pair.chosen.strip() and pair.rejected.strip() else EMPTY


def _text(row: Mapping[str, Any], name: str, where: str) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        known = ", ".join(map(repr, list(row)[:6]))
        raise DataError(f"{where} has no text under {name!r}; its fields are {known}. It is no file of pairs.")
    return value


def _rows(path: Path) -> Iterator[tuple[str, Any]]:
    """Every object of a file with the words that say where it is: a list of them, or one on each line."""
    text = read_text(path, what="file of pairs")
    if text.lstrip().startswith("["):
        try:
            yield from ((f"Pair {number} of '{path}'", row) for number, row in enumerate(json.loads(text), 1))
        except (ValueError, RecursionError) as error:  # also numbers too long, and lists too deep, for Python
            raise DataError(f"'{path}' is damaged ({error}). Take it anew.") from error
        return
    for number, line in enumerate(text.split("\n"), 1):  # splitlines would also cut at signs inside a text
        if not line.strip():
            continue
        try:
            yield f"Line {number} of '{path}'", json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"Line {number} of '{path}' is no JSON ({error}). It is damaged; take it anew.") from error


IGNORED = -100


@dataclass(frozen=True, kw_only=True)
class PairTokens:
    """The numbers of a prompt and of its two replies."""

    prompt: tuple[int, ...]
    chosen: tuple[int, ...]
    rejected: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows of tokens padded on the right, what of them is real, and the targets (-100 where nothing is asked)."""

    tokens: Tensor
    real: Tensor
    targets: Tensor

    def to(self, device: torch.device | str) -> Batch:
        return Batch(tokens=self.tokens.to(device), real=self.real.to(device), targets=self.targets.to(device))


def tokenize(pair: Pair, tokenizer: Any, *, length: int = 512, prompt_length: int = 256) -> PairTokens:
    """The numbers of a pair, cut to the lengths."""
    if not 0 < prompt_length < length:
        raise ParameterError(
            f"The length of a prompt must be positive and less than the whole length, and {prompt_length} and {length} "
            f"were given."
        )
    prompt = tokenizer.encode(pair.prompt, add_special_tokens=False)
    end = [tokenizer.eos_token_id]
    replies = [tokenizer.encode(reply, add_special_tokens=False) + end for reply in (pair.chosen, pair.rejected)]
    longest = max(map(len, replies))
    if len(prompt) + longest > length:
        prompt = prompt[-prompt_length:] if pair.kept == "end" else prompt[:prompt_length]
    if len(prompt) + longest > length:
        replies = [reply[: length - prompt_length] for reply in replies]
    return PairTokens(prompt=tuple(prompt), chosen=tuple(replies[0]), rejected=tuple(replies[1]))


def reply_batch(prompts: Sequence[Sequence[int]], replies: Sequence[Sequence[int]], *, padding: int) -> Batch:
    """Prompts followed by replies, a row each.

    >>> reply_batch([[1, 2], [3]], [[4], [5]], padding=0).targets.tolist()
    [[-100, -100, 4], [-100, 5, -100]]
    """
    wide = max(len(prompt) + len(other) for prompt, other in zip(prompts, replies, strict=True))
    tokens = torch.full((len(prompts), wide), padding)
    real = torch.zeros(len(prompts), wide, dtype=torch.long)
    targets = torch.full((len(prompts), wide), IGNORED)
    for row, (prompt, reply) in enumerate(zip(prompts, replies, strict=True)):
        both = len(prompt) + len(reply)
        tokens[row, :both] = torch.tensor([*prompt, *reply])
        real[row, :both] = 1
        targets[row, len(prompt) : both] = torch.tensor(list(reply))
    return Batch(tokens=tokens, real=real, targets=targets)


def pair_batch(pairs: Sequence[PairTokens], *, padding: int) -> Batch:
    """The chosen replies of all pairs, then the rejected ones, in one batch: both go through the model at once."""
    prompts = [pair.prompt for pair in pairs]
    return reply_batch(
        [*prompts, *prompts], [*(p.chosen for p in pairs), *(p.rejected for p in pairs)], padding=padding
    )


def chosen_batch(pairs: Sequence[PairTokens], *, padding: int) -> Batch:
    """The chosen replies alone, as supervised fine-tuning takes them."""
    return reply_batch([pair.prompt for pair in pairs], [pair.chosen for pair in pairs], padding=padding)


@dataclass(frozen=True, kw_only=True)
class PreferenceScores:
    """What the papers report of a set of pairs: evaluation loss, reward margin, reward accuracy, and the rewards.

    `preferred` of `pairs` are right; the accuracy is their share. An equal reward is not right.
    """

    loss: float
    margin: float
    accuracy: float
    chosen_reward: float
    rejected_reward: float
    pairs: int
    preferred: int


def reply_log_probabilities(model: Any, batch: Batch) -> Tensor:
    """For each row the log-probability of its reply, summed over its tokens in float32."""
    on_gpu = batch.tokens.is_cuda
    with torch.autocast(batch.tokens.device.type, torch.bfloat16, enabled=on_gpu):
        logits = model(input_ids=batch.tokens, attention_mask=batch.real, use_cache=False).logits
    targets = batch.targets[:, 1:]
    counted = targets != IGNORED
    # Only the places that count are made float32: prompts and padding would take as much memory for nothing.
    losses = F.cross_entropy(logits[:, :-1][counted].float(), targets[counted], reduction="none")
    return -torch.zeros(targets.shape, device=losses.device).masked_scatter(counted, losses).sum(1)


def dpo_losses(policy: Tensor, reference: Tensor, *, beta: float) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of every pair and its two rewards, chosen and rejected.

    Args:
        policy, reference: log-probabilities of shape (2, pairs): of the chosen replies, and of the rejected ones.

    >>> same = torch.tensor([[-3.0], [-5.0]])
    >>> losses, chosen, rejected = dpo_losses(same, same, beta=0.1)
    >>> round(losses.item(), 4), chosen.item(), rejected.item()
    (0.6931, 0.0, 0.0)
    """
    if policy.shape != reference.shape or policy.ndim != 2 or len(policy) != 2:
        raise InputError(
            f"dpo_losses takes log-probabilities of shape (2, pairs) twice, and {tuple(policy.shape)} and "
            f"{tuple(reference.shape)} were given."
        )
    chosen, rejected = beta * (policy - reference)
    return -F.logsigmoid(chosen - rejected), chosen.detach(), rejected.detach()


def scores_of(policy: Tensor, reference: Tensor, *, beta: float) -> PreferenceScores:
    """The scores of log-probabilities of shape (2, pairs), with means in float64."""
    losses, chosen, rejected = dpo_losses(policy.double(), reference.double(), beta=beta)
    preferred = int((chosen > rejected).sum())
    return PreferenceScores(
        loss=losses.mean().item(),
        margin=(chosen - rejected).mean().item(),
        accuracy=preferred / len(losses),
        chosen_reward=chosen.mean().item(),
        rejected_reward=rejected.mean().item(),
        pairs=len(losses),
        preferred=preferred,
    )
