"""What a study of language models is given: a text or pairs of replies as tokens, and a pretrained model."""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from ...errors import DataError, RecipeError
from ..data.files import VARIABLE, data_folder, read_bytes, read_text
from ..data.text import Characters, from_bytes, load_characters
from ..language.loading import HUB, LanguageModel, find_pairs, load_language_model
from ..language.preferences import PairTokens, Preferences, read_preferences, tokenize
from ..language.text_perplexity import PARTS, TextTokens, load_wikitext, text_tokens
from ..language.tokenizers import load_gpt2_tokenizer
from ..language.trl_backend import need_tokenizer_of_transformers
from .examples import resolve
from .recipe import PRETRAINED, Data, Language, LanguageTask, Model, Perplexity, Preference

Place = str | os.PathLike[str] | None
Pairs = tuple[Sequence[PairTokens], Sequence[PairTokens]]
_MOST_BYTES = 2**31
# Where a text to train on may lie in the data folder, besides as it is named.
_FOLDERS = ("", "wikitext-2/")


@dataclass(frozen=True, kw_only=True)
class Texts:
    """The tokens of a text, or of pairs to train on and to evaluate on; with the pretrained model, where there is one.

    data, task, model, folder: what they were loaded from, so that another process can load them again.
    fingerprint: SHA-256 of the tokens, and of a sample of each of the model's weights.
    base:        the folder that the recipe's own files are looked for in.
    """

    content: Characters | TextTokens | Pairs
    language: LanguageModel | None
    name: str
    words: str
    fingerprint: str
    data: Data
    task: LanguageTask
    model: Model
    folder: str | None
    base: str | None

    def sentence(self) -> str:
        """What there is, for the screen."""
        return f"{self.name}: {self.words}"


def load_texts(data: Data, task: LanguageTask, model: Model, *, folder: Place = None, base: Place = None) -> Texts:
    """The tokens that a task asks for, and its model.

    Args:
        folder: what holds the data sets; by default the one that SOFTKNEE_DATA names.
        base: the folder of the recipe, where files and models are looked for before the current folder.
    """
    language = None
    if not isinstance(task, Language):
        place = model.build.removeprefix(PRETRAINED)
        language = load_language_model(
            place if place.startswith(HUB) else _find(place, folder, base),
            tokenizer=None if task.tokenizer is None else _find(task.tokenizer, folder, base),
            check=not task.own_vocabulary,
        )
    if isinstance(task, Language):
        content, words = _characters(data, task, folder, base)
    elif isinstance(task, Perplexity):
        content, words = _text(data, task, cast(LanguageModel, language), folder, base)
    else:
        content, words = _pairs(data, task, cast(LanguageModel, language), folder, base)
    return Texts(
        content=content,
        language=language,
        name=data.set or Path(str(data.file)).name,
        words=words,
        fingerprint=_fingerprint(content, language),
        data=data,
        task=task,
        model=model,
        folder=None if folder is None else os.path.abspath(folder),
        base=None if base is None else os.path.abspath(base),
    )


def _find(place: str, folder: Place, base: Place) -> Path:
    """A file or folder beside the recipe, seen from the current folder, or in the data folder."""
    path = resolve(place, base)
    if path.exists() or (folder is None and not os.environ.get(VARIABLE)):
        return path
    there = data_folder(folder) / place
    return there if there.exists() else path


def _characters(data: Data, task: Language, folder: Place, base: Place) -> tuple[Characters, str]:
    check, cut = not task.own_vocabulary, data.limit
    if data.set == "wikitext-2":
        tokenizer = load_gpt2_tokenizer(
            data_folder(folder) if task.tokenizer is None else _find(task.tokenizer, folder, base), check=check
        )
        parts = [_training_text(name, folder, base, check=check)[:cut] for name in task.train]
        texts = ["".join(parts), load_wikitext("test", folder, check=check)[:cut]]
        train, validation = (torch.tensor(tokenizer.encode(text, add_special_tokens=False)) for text in texts)
        content = Characters(train=train, validation=validation, vocabulary=len(tokenizer))
    else:
        if data.set is None:
            content = from_bytes(
                read_bytes(_find(str(data.file), folder, base), what="text of characters", most_bytes=_MOST_BYTES)
            )
        else:
            content = load_characters(folder, check=check)
        content = replace(content, train=content.train[:cut], validation=content.validation[:cut])
    if task.validation:
        content = content.hold_out(task.validation)
    shortest = min(
        len(content.train) - 1, *(len(text) for text in (content.validation, content.held_out) if text is not None)
    )
    if shortest <= task.context:
        raise RecipeError(
            f"The texts have {len(content.train):,} and {len(content.validation):,} tokens, which is too few for a "
            f"context of {task.context}. Give a smaller task.context, or longer texts."
        )
    return content, f"{len(content.train):,} tokens to train on, {len(content.validation):,} to judge by"


def _training_text(name: str, folder: Place, base: Place, *, check: bool) -> str:
    if name in PARTS:
        text = load_wikitext(name, folder, check=check)
    else:
        text = read_text(_training_file(name, folder, base), what="text to train on")
    return text if text.endswith("\n") else f"{text}\n"


def _training_file(name: str, folder: Place, base: Place) -> Path:
    """The file of this name beside the recipe, here, or where a data folder may have it."""
    places = [Path(base or ".", name).absolute(), Path(name).absolute()]
    try:
        if not os.path.isabs(name) and not any(place.is_file() for place in places):
            places += [data_folder(folder) / f"{inside}{name}" for inside in _FOLDERS]
    except DataError as error:
        raise DataError(f"There is no text '{name}' to train on: looked for '{places[0]}'. {error}") from error
    for place in places:
        if place.is_file():
            return place
    looked = ", ".join(f"'{place}'" for place in dict.fromkeys(places))
    raise DataError(
        f"There is no text '{name}' to train on: looked for {looked}. softknee downloads nothing: put it in one of "
        f"these places, give its whole path, or name another data folder with --data or {VARIABLE}."
    )


def _text(data: Data, task: Perplexity, language: LanguageModel, folder: Place, base: Place) -> tuple[TextTokens, str]:
    if data.set is None:
        text = read_text(_find(str(data.file), folder, base), what="text")
    else:
        text = load_wikitext(task.part, folder, check=not task.own_vocabulary)
    content = text_tokens(language.tokenizer, text[: data.limit], most=task.most)
    return content, f"{len(content.tokens):,} tokens, {content.words:,} words"


def _pairs(data: Data, task: Preference, language: LanguageModel, folder: Place, base: Place) -> tuple[Pairs, str]:
    if task.length > language.context:
        raise RecipeError(
            f"Texts of {task.length} tokens do not fit {language.name}, which takes {language.context}. Give a smaller "
            "task.length."
        )
    if task.backend == "trl":
        need_tokenizer_of_transformers(language.tokenizer, name=language.name)
    if data.set is None:
        train_files, test_files = find_pairs(_find(str(data.file), folder, base))
    else:
        train_files, test_files = find_pairs(folder, sets=data.set.split("+"))
    if task.evaluate is not None:
        test_files = [_find(task.evaluate, folder, base)]
    preferences = read_preferences(train_files), read_preferences(test_files) if test_files else None
    train, test = divide(*preferences, count=task.evaluation_pairs, limit=data.limit)
    sizes = {"length": task.length, "prompt_length": task.prompt_length}
    tokens = [[tokenize(pair, language.tokenizer, **sizes) for pair in part.pairs] for part in (train, test)]
    return (tokens[0], tokens[1]), f"to train on {train.sentence()}; to evaluate on {test.sentence()}"


def divide(
    train: Preferences, test: Preferences | None, *, count: int, limit: int | None = None
) -> tuple[Preferences, Preferences]:
    """The pairs to train on and those to evaluate on.

    The latter are so many of the test files, evenly spread over them, so that every file has its share; where there is
    no test file, the last of those to train on.
    """
    if limit is not None:
        train = replace(train, pairs=train.pairs[: limit + (count if test is None else 0)])
    if test is not None:
        if len(test) < count:
            raise RecipeError(
                f"There are {len(test)} pairs to evaluate on, not task.evaluation_pairs {count}: ask for fewer."
            )
        return train, replace(test, pairs=tuple(test.pairs[at * len(test) // count] for at in range(count)))
    if len(train) <= count:
        raise RecipeError(
            f"There are {len(train)} pairs, and {count} of them are to be kept for evaluation; nothing is left to "
            "train on. Ask for fewer with task.evaluation_pairs, or name a file with task.evaluate."
        )
    return replace(train, pairs=train.pairs[:-count]), Preferences(pairs=train.pairs[-count:])


def _fingerprint(content: Characters | TextTokens | Pairs, language: LanguageModel | None) -> str:
    digest = hashlib.sha256()
    for numbers in _numbers(content):
        digest.update(f" {len(numbers) // 8} ".encode())
        digest.update(numbers)
    if language is not None:
        _add_weights(digest, language.model)
    return digest.hexdigest()


def _numbers(content: Characters | TextTokens | Pairs) -> Iterable[bytes]:
    if isinstance(content, Characters):
        yield from map(_bytes, (content.train, content.validation, torch.tensor([content.vocabulary])))
        if content.held_out is not None:
            yield _bytes(content.held_out)
    elif isinstance(content, TextTokens):
        yield from map(_bytes, (content.tokens, torch.tensor([content.words])))
    else:
        for pair in (pair for part in content for pair in part):
            for tokens in (pair.prompt, pair.chosen, pair.rejected):
                yield array("q", tokens).tobytes()


def _bytes(numbers: Tensor) -> bytes:
    return numbers.numpy().tobytes()


def _add_weights(digest: Any, model: nn.Module) -> None:
    """Some of the weights: two models that are called the same are rarely alike in them."""
    for name, weights in model.state_dict().items():
        digest.update(f"{name} {tuple(weights.shape)}".encode())
        digest.update(weights.detach().flatten()[:64].float().cpu().numpy().tobytes())
