"""trl itself on a tiny GPT-2: it trains what our own loop trains, to the same weights, and changes nothing else."""

import copy
import math
import re
import sys
from pathlib import Path

import pytest
import torch

from language_files import dialogue, write_gpt2, write_hh
from softknee.errors import MissingToolError
from softknee.lab.language.loading import LanguageModel, load_language_model
from softknee.lab.language.preferences import (
    Pair,
    PairTokens,
    chosen_batch,
    read_preferences,
    reply_log_probabilities,
    tokenize,
)
from softknee.lab.language.tokenizers import trl
from softknee.lab.language.tuning import Recipe, prefer_, supervise_
from softknee.lab.studies.reading import read_recipe
from softknee.lab.studies.recipe import Preference
from softknee.lab.studies.running import run_trial
from softknee.lab.studies.texts import load_texts
from softknee.lab.studies.trials import train_trials
from softknee.surgery import swap_

pytest.importorskip("trl", reason="trl is not installed; the extra 'preference' brings it")

from softknee.lab.language.trl_backend import prefer_with_trl_, supervise_with_trl_

# All pairs in one batch, so that the order, which is trl's own, does not matter.
RECIPE = Recipe(batch=4, micro_batch=4, epochs=3, warmup=2, learning_rate=1e-3, length=64, prompt_length=24, clip=1.0)


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return load_language_model(write_gpt2(tmp_path_factory.mktemp("gpt2")), check=False)


@pytest.fixture(scope="module")
def pairs(language: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> list[PairTokens]:
    result = list(read_preferences(write_hh(tmp_path_factory.mktemp("hh") / "train.jsonl", 3)).pairs)
    # One is longer than the length: it is cut by our rules, also for trl.
    result.append(Pair(prompt=dialogue("the end " * 9, "")[:-1], chosen=" the other one " * 3, rejected=" no"))
    tokens = [tokenize(item, language.tokenizer, length=64, prompt_length=24) for item in result]
    assert len(tokens[3].prompt) == 24
    return tokens


def fresh(language: LanguageModel) -> torch.nn.Module:
    model = copy.deepcopy(language.model)
    swap_(model, "crrelu(eps=0.01, learn=all)")  # with a group of its own in the optimiser
    return model


def assert_same_weights(first: torch.nn.Module, second: torch.nn.Module, start: torch.nn.Module) -> None:
    moved = 0.0
    for name, ours in first.state_dict().items():
        torch.testing.assert_close(ours, second.state_dict()[name], rtol=1e-3, atol=2e-5)
        moved = max(moved, float((ours - start.state_dict()[name]).abs().max()))
    assert moved > 1e-3  # against which they agree


def test_dpo_by_trl_is_ours(language: LanguageModel, pairs: list[PairTokens]) -> None:
    own, theirs = fresh(language), fresh(language)
    told: list[int] = []
    padding = language.tokenizer.pad_token_id
    ours = prefer_(own, pairs, RECIPE, beta=0.5, seed=0, padding=padding)
    trls = prefer_with_trl_(theirs, language.tokenizer, pairs, RECIPE, beta=0.5, seed=0, advance=lambda: told.append(1))
    assert len(ours) == len(trls) == len(told) == 3
    assert trls == pytest.approx(ours, abs=1e-4)
    assert ours[0] == pytest.approx(math.log(2), abs=1e-6)
    assert ours[2] < ours[0] - 0.001
    assert_same_weights(own, theirs, fresh(language))


def test_parts_of_a_batch_add_up_in_trl_too(language: LanguageModel, pairs: list[PairTokens]) -> None:
    results = []
    for micro in (4, 2):
        model = fresh(language)
        recipe = Recipe(batch=4, micro_batch=micro, warmup=0, learning_rate=1e-3, length=64, prompt_length=24)
        prefer_with_trl_(model, language.tokenizer, pairs, recipe, beta=0.5, seed=0)
        results.append(model)
    assert_same_weights(*results, fresh(language))


def test_sft_by_trl_is_ours_with_the_mean_over_tokens(language: LanguageModel, pairs: list[PairTokens]) -> None:
    model, told = fresh(language), []
    batch = chosen_batch(pairs, padding=language.tokenizer.pad_token_id)
    with torch.no_grad():
        expected = -reply_log_probabilities(model.eval(), batch).sum() / sum(len(value.chosen) for value in pairs)
    losses = supervise_with_trl_(model, language.tokenizer, pairs, RECIPE, seed=0, advance=lambda: told.append(1))
    assert len(losses) == len(told) == 3
    assert losses[0] == pytest.approx(expected.item(), abs=1e-4)
    assert losses[2] < losses[0]
    # Replies of one length: then the two losses differ by a factor, which RMSprop divides out (but for its epsilon).
    same = [PairTokens(prompt=pair.prompt, chosen=pair.chosen[:4], rejected=pair.rejected) for pair in pairs]
    wide = Recipe(batch=4, micro_batch=4, epochs=3, warmup=2, learning_rate=1e-4, length=64, prompt_length=24, clip=1e9)
    own, theirs = fresh(language), fresh(language)
    supervise_(own, same, wide, seed=0, padding=language.tokenizer.pad_token_id)
    supervise_with_trl_(theirs, language.tokenizer, same, wide, seed=0)
    weights = [
        torch.cat([item.flatten() for name, item in net.state_dict().items() if "ln" not in name])
        for net in (own, theirs, fresh(language))
    ]
    moved = [weight - weights[2] for weight in weights[:2]]
    assert torch.nn.functional.cosine_similarity(*moved, dim=0) > 0.99


def test_the_model_is_left_as_it_was_but_for_its_weights(language: LanguageModel, pairs: list[PairTokens]) -> None:
    model = fresh(language)
    settings, attributes = model.config.to_dict(), set(vars(model))
    supervise_with_trl_(model, language.tokenizer, pairs, RECIPE, seed=0)
    prefer_with_trl_(model, language.tokenizer, pairs, RECIPE, beta=0.1, seed=0)
    assert "forward" not in vars(model)
    assert (set(vars(model)), model.config.to_dict()) == (attributes, settings)
    assert not model.training
    assert model(input_ids=torch.tensor([[1, 2, 3]])).logits.shape == (1, 3, 260)


RECIPE_WITH_TRL = """
name: with-trl
data: {set: hh}
model: {build: "pretrained:gpt2"}
activations: ["srelu(delta=0.001)"]
task:
  kind: preference
  backend: trl
  steps: 1
  length: 48
  prompt_length: 24
  evaluation_pairs: 4
  own_vocabulary: true
training: {learning_rate: 1e-5, batch: 2, epochs: 1}
seeds: 1
"""


def test_a_trial_with_trl(tmp_path: Path) -> None:
    write_hh(tmp_path / "hh-rlhf" / "train.jsonl", 6)
    write_hh(tmp_path / "hh-rlhf" / "test.jsonl", 4)
    write_gpt2(tmp_path / "gpt2")
    recipe = read_recipe(RECIPE_WITH_TRL)
    assert isinstance(recipe.task, Preference)
    texts = load_texts(recipe.data, recipe.task, recipe.model, folder=tmp_path)
    (trial,) = train_trials(recipe, texts)
    outcome = run_trial(trial, examples=texts).outcome
    assert outcome.diverged == (None,)
    assert all(math.isfinite(values[0]) for values in outcome.test.values())


def test_a_missing_package_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trl", None)
    cure = re.escape("Install it with: pip install 'softknee[preference]'; or take the backend 'own'")
    with pytest.raises(MissingToolError, match=f"This needs the package 'trl', which is not installed. {cure}"):
        trl("This")
