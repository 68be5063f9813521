"""Perplexity on WikiText-2 when ReLU takes the place of the activations: of a trained model, or of one trained here.

`measure_model` asks a model from the disk: as loaded, with each activation put in without training, and with ReLU in
the place of that. `train_models` is the language study (`lab/language_models.py`: free, hardened, replaced, recovered)
on GPT-2's tokens instead of characters, and its losses as perplexities.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from ...errors import DataError, ParameterError
from ...measure.record import Quantity, Record
from .. import language_models
from ..bench.speed import choose_device
from ..data.files import VARIABLE, data_folder, read_text
from ..data.text import Characters
from .loading import AS_LOADED, LanguageModel, full_text, put_in_
from .text_perplexity import PARTS, Foretold, foretell, load_wikitext, replace_by_relu_, text_tokens

KIND = "study wikitext"
# A form of either kind that takes seconds: so many characters of each text, in pieces of so many tokens.
SMOKE_CHARACTERS, SMOKE_CONTEXT, SMOKE_BATCH = 1000, 16, 4
_SMOKE_NOTE = "A smoke run: it shows that everything works, and its numbers mean nothing."
# Where a text to train on may lie in the data folder, besides as it is named.
_FOLDERS = ("", "wikitext-2/")


def measure_model(
    language: LanguageModel,
    text: str,
    *,
    activations: Sequence[str] = (),
    text_name: str = "WikiText-2 (test)",
    context: int | None = None,
    stride: int | None = None,
    batch: int = 4,
    most: int | None = None,
    device: str = "cpu",
    smoke: bool = False,
    command: str,
    report: Callable[[str], None] = lambda _: None,
) -> Record:
    """The record of a model's perplexity before and after ReLU; the given model is left as it is.

    Args:
        smoke: only the beginning of the text, in short pieces, to see that everything works.
    """
    long = min(context or language.context, language.context)
    if smoke:
        text, long, stride, batch = text[:SMOKE_CHARACTERS], min(long, SMOKE_CONTEXT), None, SMOKE_BATCH
    options = {"context": long, "stride": stride, "batch": batch}
    tokens = text_tokens(language.tokenizer, text, most=most)
    rows: list[dict[str, Any]] = []
    for activation in (AS_LOADED, *activations):
        report(activation)
        model = copy.deepcopy(language.model)
        put_in_(model, activation)
        model.to(choose_device(device))
        if full_text(activation) == "relu":  # there is nothing to put in its place
            before, after, sites = foretell(model, tokens, **options), None, ()
        else:
            found = replace_by_relu_(model, tokens, **options)
            before, after, sites = found.before, found.after, found.sites
        row: dict[str, Any] = {
            "activation": activation,
            "text": "" if activation == AS_LOADED else full_text(activation),
            **_numbers("", before),
            "tokens": before.tokens,
            "words": before.words,
            "sites": len(sites),
        }
        rows.append(row if after is None else row | _numbers("with_relu_", after))
    return Record.now(
        KIND,
        command=command,
        rows=rows,
        settings={"model": language.name, "read": text_name, "most": most, **options, **_smoke_setting(smoke)},
        baseline="the model as loaded",
        notes=[
            "No weight was trained: activations are put in, and ReLU after them, as the model stands.",
            *([_SMOKE_NOTE] if smoke else []),
        ],
    )


def _smoke_setting(smoke: bool) -> dict[str, bool]:
    return {"smoke": True} if smoke else {}


def _numbers(prefix: str, found: Foretold) -> dict[str, float | str]:
    """Loss and perplexities; one that is infinite is left out, which the loss beside it explains."""
    each = {"loss": found.loss, "perplexity": found.perplexity, "word_perplexity": found.word_perplexity}
    return {f"{prefix}{name}": value for name, value in each.items() if math.isfinite(value)}


def read_tokens(
    tokenizer: Any,
    *,
    train: str,
    folder: str | os.PathLike[str] | None = None,
    check: bool = True,
    smoke: bool = False,
) -> Characters:
    """WikiText-2 as a tokenizer's numbers, judged by its test part.

    Args:
        train: what to train on: a part ("train", "valid") or a text file; or several with commas between, of which one
            text is made. A file is looked for as it is named, and then in the data folder.
        smoke: only the beginning of each text.
    """
    cut = SMOKE_CHARACTERS if smoke else None
    parts = [_text(one.strip(), folder, check=check)[:cut] for one in train.split(",")]
    texts = ["".join(parts), load_wikitext("test", folder, check=check)[:cut]]
    numbers = [torch.tensor(tokenizer.encode(one, add_special_tokens=False)) for one in texts]
    return Characters(train=numbers[0], validation=numbers[1], vocabulary=len(tokenizer))


def _text(name: str, folder: str | os.PathLike[str] | None, *, check: bool) -> str:
    if name == "test":
        raise ParameterError("The test part is what models are judged by; train on 'train', 'valid' or a file.")
    if name in PARTS:
        text = load_wikitext(name, folder, check=check)
    else:
        text = read_text(_text_file(name, folder), what="text to train on")
    return text if text.endswith("\n") else f"{text}\n"


def _text_file(name: str, folder: str | os.PathLike[str] | None) -> Path:
    """The file of this name here, or where a data folder may have it."""
    if os.path.exists(name):
        return Path(name)
    places = [Path(name).absolute()]
    try:
        if not os.path.isabs(name):
            places += [data_folder(folder) / f"{at}{name}" for at in _FOLDERS]
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


def for_smoke(settings: language_models.Settings) -> language_models.Settings:
    """The same rows in seconds on the CPU: one seed, four steps of a tiny network."""
    recipe = replace(
        settings.recipe,
        layers=1,
        width=8,
        heads=1,
        context=SMOKE_CONTEXT,
        batch=SMOKE_BATCH,
        steps=4,
        warmup=1,
        recover=min(settings.recipe.recover, 1),
    )
    return replace(settings, recipe=recipe, seeds=settings.seeds[:1], device="cpu")


def train_models(
    settings: language_models.Settings,
    tokens: Characters,
    *,
    train_name: str,
    command: str,
    smoke: bool = False,
    advance: Callable[[str], None] = lambda _: None,
    keep: str | os.PathLike[str] | None = None,
) -> Record:
    """Train as the language study does, on these tokens; the record has each loss as a perplexity, too.

    Args:
        smoke: these are the settings and tokens of a smoke run, which the record then says.
        keep: a folder for what each row and seed finds (`lab.kept`).
    """
    if min(len(tokens.train) - 1, len(tokens.validation)) <= settings.recipe.context:
        raise ParameterError(
            f"The texts have {len(tokens.train):,} and {len(tokens.validation):,} tokens, which is too few for a "
            f"context of {settings.recipe.context}."
        )
    record = language_models.run(settings, command=command, advance=advance, text=tokens, keep=keep)
    rows = [
        {
            **row,
            "perplexity": {
                name: Quantity.mean([math.exp(one) for one in losses], unit="perplexity")
                for name, losses in row["loss_by_seed"].items()
                if max(losses) < 709  # beyond, float64 has no number for it
            },
        }
        for row in record.rows
    ]
    return replace(
        record,
        kind=KIND,
        rows=tuple(rows),
        settings={
            "train": train_name,
            "tokens": len(tokens.train),
            **asdict(settings.recipe),
            **record.settings,
            **_smoke_setting(smoke),
        },
        notes=(
            "Loss in nats for each token of WikiText-2's test part; perplexity is its exp, per token of the tokenizer.",
            record.notes[1],
            *([] if train_name == "train" else [f"Not trained on WikiText-2's training part, but on: {train_name}."]),
            *([_SMOKE_NOTE] if smoke else []),
        ),
    )


def wikitext_markdown(record: Record) -> str:
    """The table of a record of this study, of either kind."""
    if "perplexity" in record.rows[0] and "loss_by_seed" in record.rows[0]:
        columns = language_models.columns_of(record)
        lines = [f"| perplexity | {' | '.join(columns)} |", "|---" + "|---:" * len(columns) + "|"]
        for row in record.rows:
            cells = [row["perplexity"][name].text(2) if name in row["perplexity"] else "–" for name in columns]
            lines.append(f"| {row['row']} | {' | '.join(cells)} |")
        return "\n".join(lines) + "\n"
    columns = ("perplexity", "word_perplexity", "with_relu_perplexity", "with_relu_word_perplexity")
    heads = ("perplexity", "per word", "with ReLU", "with ReLU per word")
    lines = [f"| activation | {' | '.join(heads)} |", "|---" + "|---:" * len(columns) + "|"]
    for row in record.rows:
        lines.append(
            f"| {row['activation']} | "
            + " | ".join(f"{row[name]:.2f}" if name in row else "–" for name in columns)
            + " |"
        )
    return "\n".join(lines) + "\n"
