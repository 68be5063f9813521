"""SFT and DPO: the loss against its formula, the training against plain steps, the studies end to end."""

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from papers.preferences import preference_tables
from papers.runs import Runs
from safetensors.torch import load_file, save_file

import softknee as sk
from language_files import llama_arrays, llama_bytes, story_bytes, write_gpt2, write_hh, write_vocabulary
from softknee.errors import DataError, InputError, ParameterError, RecipeError
from softknee.lab.language.loading import LanguageModel, load_language_model
from softknee.lab.language.preferences import Pair, PairTokens, dpo_losses, read_preferences, scores_of, tokenize
from softknee.lab.language.tuning import Recipe, log_probabilities, prefer_, reply_perplexity, share_of_rate, supervise_
from softknee.lab.studies.reading import read_recipe, to_yaml
from softknee.lab.studies.recipe import LanguageTask
from softknee.lab.studies.runner import smoke
from softknee.lab.studies.running import run_trial
from softknee.lab.studies.store import RunStore
from softknee.lab.studies.texts import Texts, divide, load_texts
from softknee.lab.studies.trial import Trial
from softknee.lab.studies.trials import Outcome, train_trials
from softknee.surgery import swap_

PAD = 259


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return load_language_model(write_gpt2(tmp_path_factory.mktemp("gpt2")), check=False)


@pytest.fixture(scope="module")
def pairs(language: LanguageModel) -> list[PairTokens]:
    texts = [Pair(prompt=f"what {n}?", chosen=" the " + "yes" * (n % 3), rejected=f" no{n}") for n in range(8)]
    return [tokenize(text, language.tokenizer, length=48, prompt_length=24) for text in texts]


def fresh(language: LanguageModel) -> Any:
    return copy.deepcopy(language.model)


def one_by_one(model: Any, pairs: list[PairTokens]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Log-probabilities of both replies of each pair, each text alone and without padding."""

    def of(prompt: tuple[int, ...], reply: tuple[int, ...]) -> torch.Tensor:
        logs = model(input_ids=torch.tensor([[*prompt, *reply]])).logits[0].log_softmax(-1)
        places = range(len(prompt) - 1, len(prompt) + len(reply) - 1)
        return torch.stack([logs[at, token] for at, token in zip(places, reply, strict=True)]).sum()

    return [(of(pair.prompt, pair.chosen), of(pair.prompt, pair.rejected)) for pair in pairs]


def test_the_loss_is_its_formula_and_the_scores_are_its_means() -> None:
    policy, reference = torch.tensor([[-3.0, -8.0], [-4.0, -5.0]]), torch.tensor([[-4.0, -6.0], [-4.5, -5.0]])
    beta = 0.5
    # pairs: (-3, -4) against (-4, -4.5), and (-8, -5) against (-6, -5)
    margins = [beta * ((-3 + 4) - (-4 + 4.5)), beta * ((-8 + 6) - (-5 + 5))]
    losses, chosen, rejected = dpo_losses(policy, reference, beta=beta)
    expected = [math.log(1 + math.exp(-margin)) for margin in margins]
    assert losses.tolist() == pytest.approx(expected)
    assert (chosen - rejected).tolist() == pytest.approx(margins)
    scores = scores_of(policy, reference, beta=beta)
    assert scores.loss == pytest.approx(sum(expected) / 2)
    assert scores.margin == pytest.approx(sum(margins) / 2)
    assert (scores.accuracy, scores.preferred, scores.pairs) == (0.5, 1, 2)
    assert scores.chosen_reward == pytest.approx(beta * (1 - 2) / 2)
    with pytest.raises(InputError, match=r"shape \(2, pairs\)"):
        dpo_losses(policy[0], reference[0], beta=1.0)


def test_log_probabilities_know_no_padding(language: LanguageModel, pairs: list[PairTokens]) -> None:
    actual = log_probabilities(language.model, pairs, batch=3, padding=PAD)
    with torch.no_grad():
        expected = torch.tensor(one_by_one(language.model, pairs)).T
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-4)
    tokens = sum(len(pair.chosen) for pair in pairs)
    assert reply_perplexity(actual, pairs) == pytest.approx(math.exp(-expected[0].sum().item() / tokens), rel=1e-5)


def test_dpo_is_the_plain_computation_step_by_step(language: LanguageModel, pairs: list[PairTokens]) -> None:
    recipe = Recipe(
        batch=8, micro_batch=8, epochs=3, warmup=2, learning_rate=1e-3, clip=0.5, length=48, prompt_length=24
    )
    beta, trained = 0.7, fresh(language)
    losses = prefer_(trained, pairs, recipe, beta=beta, seed=0, padding=PAD)
    plain = fresh(language).eval()
    with torch.no_grad():
        reference = one_by_one(plain, pairs)
    optimizer = torch.optim.RMSprop(plain.parameters(), lr=1e-3)
    expected = []
    for step in range(3):  # every batch holds all pairs, so their order does not matter
        optimizer.param_groups[0]["lr"] = 1e-3 * min(1.0, (step + 1) / 3)
        now = one_by_one(plain, pairs)
        gaps = [beta * ((a - c) - (b - d)) for (a, b), (c, d) in zip(now, reference, strict=True)]
        loss = torch.stack([torch.log1p(torch.exp(-gap)) for gap in gaps]).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
        optimizer.step()
        expected.append(loss.item())
    assert losses[0] == pytest.approx(math.log(2), abs=1e-6)
    assert losses == pytest.approx(expected, rel=1e-3)
    assert losses[2] < losses[0]
    with pytest.raises(ParameterError, match="beta of DPO"):
        prefer_(trained, pairs, recipe, beta=0.0, seed=0, padding=PAD)


def test_training_repeats_and_parts_add_up_to_the_batch(language: LanguageModel, pairs: list[PairTokens]) -> None:
    results = []
    for part in (4, 4, 1):
        recipe = Recipe(batch=4, micro_batch=part, warmup=0, learning_rate=1e-3, length=48, prompt_length=24)
        model = fresh(language)
        sft = supervise_(model, pairs, recipe, seed=3, padding=PAD)
        reference = log_probabilities(model, pairs, batch=8, padding=PAD)
        dpo = prefer_(model, pairs, recipe, beta=1.0, seed=3, padding=PAD)
        scores = scores_of(log_probabilities(model, pairs, batch=part, padding=PAD), reference, beta=1.0)
        results.append([*sft, *dpo, scores.loss, scores.margin, scores.accuracy])
    assert results[0] == results[1]
    assert results[0] == pytest.approx(results[2], rel=1e-3)
    sft_first, sft_last, dpo_first, _, loss, margin, accuracy = results[0]
    assert sft_last < sft_first
    assert dpo_first == pytest.approx(math.log(2), abs=1e-6)
    assert loss < math.log(2)
    assert margin > 0
    assert accuracy > 0.5


def test_the_rate_rises_in_a_line_and_stays() -> None:
    assert [share_of_rate(step, 3) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    recipe = Recipe()
    assert (recipe.learning_rate, recipe.warmup, recipe.clip, recipe.batch) == (5e-7, 150, 10.0, 32)
    assert (recipe.length, recipe.prompt_length) == (512, 256)
    assert [recipe.steps_of(pairs) for pairs in (32, 100)] == [1, 3]
    with pytest.raises(ParameterError, match="do not fill a batch"):
        recipe.steps_of(31)
    with pytest.raises(ParameterError, match="choose a divisor"):
        Recipe(batch=32, micro_batch=5)


def test_a_pythia_is_read_changed_and_trained(tmp_path: Path, pairs: list[PairTokens]) -> None:
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    config = GPTNeoXConfig(
        vocab_size=260, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=64, attention_dropout=0.5, hidden_dropout=0.5, bos_token_id=259, eos_token_id=259,
    )  # fmt: skip
    GPTNeoXForCausalLM(config).save_pretrained(tmp_path)
    pythia = load_language_model(write_vocabulary(tmp_path), check=False)
    report = swap_(pythia.model, "squaf(k=16, q=1, z=gelu, learn=all)")
    assert [site.path for site in report.changed] == [f"gpt_neox.layers.{layer}.mlp.act" for layer in range(2)]
    heights = pythia.model.gpt_neox.layers[0].mlp.act.z.detach().clone()
    recipe = Recipe(batch=8, micro_batch=8, epochs=2, learning_rate=1e-3, length=48, prompt_length=24)
    losses = prefer_(pythia.model, pairs, recipe, beta=0.1, seed=0, padding=PAD)
    # Exactly log 2 only because dropout is off, although the model asks for it.
    assert losses[0] == pytest.approx(math.log(2), abs=1e-6)
    assert losses[1] != losses[0]
    assert not torch.equal(pythia.model.gpt_neox.layers[0].mlp.act.z, heights)


PREFERENCE = """
name: eafo-table-4
data: {set: hh}
model: {build: "pretrained:gpt2-tiny"}
activations: [{name: own, label: gelu}, {name: crrelu, eps: 0.01, learn: true}]
task:
  kind: preference
  betas: [0.1, 5]
  warmup: 1
  length: 48
  prompt_length: 24
  evaluation_pairs: 4
  own_vocabulary: true
training: {learning_rate: 1e-5, batch: 2, epochs: 1, activation_rate: 1}
seeds: 1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder with a model, pairs and the parts of a text."""
    write_gpt2(tmp_path / "gpt2-tiny")
    write_hh(tmp_path / "hh-rlhf" / "train.jsonl", 6)
    write_hh(tmp_path / "hh-rlhf" / "test.jsonl", 5)
    for part in ("valid", "test"):
        (tmp_path / f"{part}.txt").write_text(" the end of the story \n" * 12)
    return tmp_path


def trials_of(folder: Path, text: str, *settings: str) -> tuple[list[Trial], Texts]:
    recipe = read_recipe(text, settings=settings)
    assert isinstance(recipe.task, LanguageTask)
    texts = load_texts(recipe.data, recipe.task, recipe.model, folder=folder)
    return train_trials(recipe, texts), texts


def test_the_study_runs_from_files_to_the_page_of_its_paper(
    folder: Path, softknee: Callable[..., tuple[int, str, str]]
) -> None:
    (folder / "table-4.yaml").write_text(PREFERENCE)
    records = folder / "records"
    records.mkdir()
    out = records / "eafo-table-4"
    code, printed, said = softknee(
        "study", "run", str(folder / "table-4.yaml"), "--data", str(folder), "--out", str(out)
    )
    assert code == 0, said
    assert "to train on 6 pairs; to evaluate on 4 pairs" in said
    assert "reward accuracy, β = 0.1, %" in " ".join(printed.split())
    own, crrelu = RunStore(out).outcomes()
    assert own.trial.model.build == "pretrained:gpt2-tiny"
    for outcome in (own, crrelu):
        for beta in (" beta=0.1", " beta=5"):
            items = {name.removesuffix(beta): each[0] for name, each in outcome.test.items() if name.endswith(beta)}
            assert 0 <= items["reward_accuracy"] <= 1
            assert items["reward_margin"] == pytest.approx(items["chosen_reward"] - items["rejected_reward"], abs=1e-6)
            assert 0 < items["evaluation_loss"] < math.log(2)
            assert items["perplexity_dpo"] != outcome.test["perplexity_sft"][0]
    assert crrelu.trained == own.trained + 2
    assert [name.rpartition(".")[2] for name in crrelu.parameters] == ["eps", "eps"]
    report = (out / "report" / "report.md").read_text()
    assert "Reward accuracies are shares of 4 pairs: gelu with seed 0 prefers " in report
    assert "perplexity of replies after DPO, β = 5" in report
    with pytest.raises(DataError, match=r"lacks crrelu at beta 1\. Run the table whole"):
        list(preference_tables(Runs(records), "eafo"))
    assert not list(preference_tables(Runs(records), "squaf"))


def crrelu_(model: Any) -> None:
    swap_(model, "crrelu(eps=0.01, learn=all)")


def fitted_squaf_(model: Any) -> None:
    swap_(model, "squaf(k=4, q=1.0, learn=all)")
    start = sk.design.start("gelu", k=4, q=1.0)
    for layer in model.modules():
        if isinstance(layer, sk.nn.SQUAF):
            layer.set_(z=start.z, alpha=start.alpha)


@pytest.mark.parametrize(
    ("activation", "change"),
    [("crrelu, eps: 0.01", crrelu_), ("squaf, k: 4, q: 1.0, fitted: gelu", fitted_squaf_)],
    ids=["crrelu", "squaf"],
)
def test_the_numbers_are_those_of_the_training(
    folder: Path, language: LanguageModel, activation: str, change: Callable[[Any], None]
) -> None:
    text = PREFERENCE.replace("crrelu, eps: 0.01", activation)
    (own, changed), texts = trials_of(folder, text, "task.betas=[0.1]", "seeds.first=4")
    recipe = Recipe(batch=2, micro_batch=2, warmup=1, learning_rate=1e-5, length=48, prompt_length=24)
    train, test = texts.content
    for trial in (own, changed):
        model = fresh(language)
        if trial is changed:
            change(model)
        supervise_(model, train, recipe, seed=4, padding=PAD)
        reference = log_probabilities(model, test, batch=2, padding=PAD)
        prefer_(model, train, recipe, beta=0.1, seed=4, padding=PAD)
        expected = scores_of(log_probabilities(model, test, batch=2, padding=PAD), reference, beta=0.1)
        actual = run_trial(trial, examples=texts).outcome.test
        assert actual["evaluation_loss"] == (expected.loss,)
        assert actual["reward_margin"] == (expected.margin,)
        assert actual["perplexity_sft"] == (reply_perplexity(reference, test),)


def test_a_seed_that_diverged_is_said_and_not_averaged(folder: Path) -> None:
    (own, _), texts = trials_of(folder, PREFERENCE, "training.learning_rate=1e30", "seeds=2")
    outcome = run_trial(own, examples=texts).outcome
    assert outcome.diverged == (1, 1)
    assert outcome.test["reward_accuracy beta=5"] == (None, None)
    assert Outcome.read(outcome.record(command="softknee", git=None)) == outcome


def test_another_model_makes_another_trial(folder: Path) -> None:
    first, texts = trials_of(folder, PREFERENCE)
    moved = folder / "elsewhere"
    (folder / "gpt2-tiny").rename(moved)
    again, _ = trials_of(folder, PREFERENCE, f"model.build=pretrained:{moved}")
    assert again[0].fingerprint == texts.fingerprint  # the place says nothing
    assert "/" not in again[0].model.build
    file = moved / "model.safetensors"
    weights = load_file(file)
    next(iter(weights.values())).add_(1)
    save_file(weights, file, metadata={"format": "pt"})
    other, changed = trials_of(folder, PREFERENCE, f"model.build=pretrained:{moved}")
    assert other[0].key != again[0].key
    with pytest.raises(DataError, match="is of other examples"):
        run_trial(first[0], examples=changed)


def test_what_cannot_be_run_is_said(folder: Path) -> None:
    few = read_preferences(write_hh(folder / "pairs.jsonl", 4))
    with pytest.raises(RecipeError, match="nothing is left to train on"):
        divide(few, None, count=4)
    train, test = divide(few, None, count=1)
    assert (len(train), test.pairs) == (3, few.pairs[3:])
    assert divide(few, few, count=2)[1].pairs == few.pairs[::2]
    with pytest.raises(RecipeError, match=r"There are 5 pairs to evaluate on.*ask for fewer"):
        trials_of(folder, PREFERENCE, "task.evaluation_pairs=9")
    with pytest.raises(RecipeError, match="do not fit gpt2-tiny, which takes 64"):
        trials_of(folder, PREFERENCE, "task.length=100")
    (folder / "stories.bin").write_bytes(llama_bytes(llama_arrays(tied=True)))
    (folder / "tokenizer.bin").write_bytes(story_bytes())
    with pytest.raises(InputError, match=r"that of stories is none \(StoryTokenizer\).*task.backend=own"):
        trials_of(folder, PREFERENCE, "model.build=pretrained:stories.bin", "task.backend=trl", "task.length=8")
    file = trials_of(folder, PREFERENCE, "data={file: pairs.jsonl}", "task.evaluation_pairs=1")[1]
    assert file.sentence() == "pairs.jsonl: to train on 3 pairs; to evaluate on 1 pairs"
    for setting, said in (
        ("task.betas=[0]", "task.betas must be a list of numbers above 0"),
        ("task.betas=[1, 1]", "names 1.0 twice"),
        ("task.backend=x", "'own' or 'trl'"),
        ("model.build=gpt2", "must be 'pretrained:'"),
        ("data.set=wikitext-2", "hh, shp, hh\\+shp"),
        ("activations=[own, own]", "Two of the activations"),
        ("training.warmup=0.1", "training.warmup is nothing that the task 'preference' takes"),
        ("task=null", "is for language models: add 'task: {kind: preference}'"),
    ):
        with pytest.raises(RecipeError, match=said):
            read_recipe(PREFERENCE, settings=[setting])


WIKITEXT = """
name: wiki
data: {set: wikitext-2}
model: {build: "pretrained:gpt2-tiny"}
activations: [own, "srelu(delta=0.01)", relu]
task: {kind: perplexity, most: 60, own_vocabulary: true}
seeds: 1
"""


def test_perplexity_before_and_after_relu(folder: Path) -> None:
    trials, texts = trials_of(folder, WIKITEXT)
    own, srelu, relu = (run_trial(trial, examples=texts).outcome for trial in trials)
    assert texts.content.tokens.numel() == 60
    # S-ReLU so near to ReLU is hardly changed by it; GELU is.
    change = [abs(item.test["loss_replaced"][0] - item.test["loss"][0]) for item in (srelu, own)]
    assert change[0] < 1e-3 < change[1] * 100
    assert own.test["perplexity"][0] == pytest.approx(math.exp(own.test["loss"][0]))
    assert set(relu.test) == {"loss", "perplexity", "word_perplexity"}
    assert own.replacement["test"]["perplexity"] == own.test["perplexity_replaced"]
    assert own.trained is None
    with pytest.raises(RecipeError, match="write 'seeds: 1'"):
        read_recipe(WIKITEXT, settings=["seeds=3"])


SCRATCH = """
name: scratch
data: {set: wikitext-2}
model: {build: gpt2, arguments: {layers: 1, width: 8, heads: 1}}
activations: [{name: gelu, replace: true}]
task:
  kind: language
  train: [more.txt, valid]
  context: 16
  steps: 4
  recover: 1
  tokenizer: gpt2-tiny
  own_vocabulary: true
training: {batch: 2}
seeds: 1
"""


def test_gpt2_from_scratch_on_tokens(folder: Path) -> None:
    more = folder / "wikitext-2" / "more.txt"  # not here, but in the data folder
    more.parent.mkdir()
    more.write_text(" the other one \n")
    (trial,), texts = trials_of(folder, SCRATCH)
    assert texts.content.vocabulary == 260
    test = run_trial(trial, examples=texts).outcome.test
    assert test["perplexity_replaced"][0] == pytest.approx(math.exp(test["loss_replaced"][0]))
    assert {"perplexity_recovered", "perplexity_layerwise", "perplexity_continued"} <= set(test)
    whole = trials_of(folder, SCRATCH, f"task.train=[{more}, valid]")[0][0]
    assert whole.key == trial.key  # where the file lies says nothing


@pytest.mark.parametrize("text", [PREFERENCE, WIKITEXT, SCRATCH], ids=["preference", "perplexity", "language"])
def test_a_smoke_run_is_small_and_its_recipe_can_be_read_again(text: str) -> None:
    small = smoke(read_recipe(text, settings=["task.stride=4"] if text == WIKITEXT else []))
    assert read_recipe(to_yaml(small)) == small
    assert small.device == "cpu"
    assert small.seeds.count == 1
    assert small.name.endswith("-smoke")


def test_a_text_that_is_nowhere_is_said_with_every_place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.delenv("SOFTKNEE_DATA", raising=False)
    with pytest.raises(DataError, match=r"no text 'more.txt' to train on") as error:
        trials_of(folder, SCRATCH)
    for place in ("more.txt", "wikitext-2/more.txt"):
        assert f"'{folder / place}'" in str(error.value)
    with pytest.raises(DataError, match=r"no text '/nowhere/x' to train on: looked for '/nowhere/x'. softknee"):
        trials_of(folder, SCRATCH, "task.train=[/nowhere/x]")
    with pytest.raises(DataError, match=r"No data folder was given. Pass one"):
        load_texts(*(getattr(read_recipe(SCRATCH), name) for name in ("data", "task", "model")))
