"""Pairs of replies of which people preferred one: Anthropic's HH and Stanford's SHP, in the files they come in.

Three formats, told apart by their fields:

    chosen, rejected            HH: two whole dialogues, one object a line. The prompt is everything up to and with the
                                last "\\n\\nAssistant:" of the chosen one; the replies are what follows.
    prompt, chosen, rejected    HH reduced to one question: a list of objects, or one a line.
    history, human_ref_A, human_ref_B, labels, score_A, score_B    SHP: one object a line.

A question that stands alone is written as HH writes it, "\\n\\nHuman: ...\\n\\nAssistant:", and its replies begin with
a space. A pair that cannot be used is left out and counted under its reason; it is never filled in.

Reference: Rafailov et al., Direct preference optimization (2023), whose settings for both sets these are.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import DataError
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
            found = _pair(row, where, least_ratio)
            if isinstance(found, Pair):
                pairs.append(found)
            else:
                skipped[found] += 1
    if not pairs:
        left = ", ".join(f"{count} with {reason}" for reason, count in skipped.items()) or "it is empty"
        named = ", ".join(f"'{one}'" for one in several) or "no file"
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
        found = split_dialogue(chosen, rejected)
        if isinstance(found, str):
            return EMPTY if not (chosen.strip() and rejected.strip()) else found
        (prompt, chosen, rejected), kept = found, "end"
    return _filled(Pair(prompt=prompt, chosen=chosen, rejected=rejected, kept=kept))


def _of_shp(row: Mapping[str, Any], where: str, least_ratio: float) -> Pair | str:
    """label 1: people preferred A. The scores are the votes of the two comments."""
    missing = [name for name in _SHP_FIELDS if name not in row]
    if missing:
        raise DataError(f"{where} lacks {missing[0]!r}; a pair of SHP has {', '.join(_SHP_FIELDS)}.")
    scores = [row["score_A"], row["score_B"]]
    if row["labels"] not in (0, 1) or not all(isinstance(one, int | float) for one in scores):
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
