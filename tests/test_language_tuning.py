"""SFT and DPO: the loss against its formula, the training against plain steps, the studies end to end."""

import copy
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from papers.preferences import CRRELU, preference_tables
from papers.runs import Runs

from language_files import write_gpt2, write_hh, write_vocabulary
from softknee.errors import DataError, InputError, ParameterError
from softknee.lab import language_models
from softknee.lab.language import (
    LanguageModel,
    Pair,
    Recipe,
    dpo_losses,
    evaluate,
    load_language_model,
    log_probabilities,
    prefer_,
    put_in_,
    read_preferences,
    scores_of,
    supervise_,
    tokenize,
    wikitext_study,
)
from softknee.lab.language import preference_study as study
from softknee.lab.language.preferences import PairTokens
from softknee.lab.language.tokenizers import StoryTokenizer
from softknee.lab.language.tuning import reply_perplexity, share_of_rate
from softknee.measure.record import Record

PAD = 259


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return load_language_model(write_gpt2(tmp_path_factory.mktemp("gpt2")), check=False)


@pytest.fixture(scope="module")
def pairs(language: LanguageModel) -> list[PairTokens]:
    texts = [Pair(prompt=f"what {n}?", chosen=" the " + "yes" * (n % 3), rejected=f" no{n}") for n in range(8)]
    return [tokenize(one, language.tokenizer, length=48, prompt_length=24) for one in texts]


def fresh(language: LanguageModel) -> Any:
    return copy.deepcopy(language.model)


def one_by_one(model: Any, pairs: list[PairTokens]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Log-probabilities of both replies of each pair, each text alone and without padding."""

    def of(prompt: tuple[int, ...], reply: tuple[int, ...]) -> torch.Tensor:
        logs = model(input_ids=torch.tensor([[*prompt, *reply]])).logits[0].log_softmax(-1)
        places = range(len(prompt) - 1, len(prompt) + len(reply) - 1)
        return torch.stack([logs[at, token] for at, token in zip(places, reply, strict=True)]).sum()

    return [(of(one.prompt, one.chosen), of(one.prompt, one.rejected)) for one in pairs]


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
    low, high = scores.accuracy_interval()
    assert 0 < low < 0.5 < high < 1
    with pytest.raises(InputError, match=r"shape \(2, pairs\)"):
        dpo_losses(policy[0], reference[0], beta=1.0)


def test_log_probabilities_know_no_padding(language: LanguageModel, pairs: list[PairTokens]) -> None:
    found = log_probabilities(language.model, pairs, batch=3, padding=PAD)
    with torch.no_grad():
        expected = torch.tensor(one_by_one(language.model, pairs)).T
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)
    tokens = sum(len(one.chosen) for one in pairs)
    assert reply_perplexity(found, pairs) == pytest.approx(math.exp(-expected[0].sum().item() / tokens), rel=1e-5)


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
    found = []
    for part in (4, 4, 1):
        recipe = Recipe(batch=4, micro_batch=part, warmup=0, learning_rate=1e-3, length=48, prompt_length=24)
        model = fresh(language)
        sft = supervise_(model, pairs, recipe, seed=3, padding=PAD)
        reference = log_probabilities(model, pairs, batch=8, padding=PAD)
        dpo = prefer_(model, pairs, recipe, beta=1.0, seed=3, padding=PAD)
        scores = evaluate(model, pairs, reference, beta=1.0, batch=part, padding=PAD)
        found.append([*sft, *dpo, scores.loss, scores.margin, scores.accuracy])
    assert found[0] == found[1]
    assert found[0] == pytest.approx(found[2], rel=1e-3)
    sft_first, sft_last, dpo_first, _, loss, margin, accuracy = found[0]
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


def test_activations_are_those_of_the_papers(language: LanguageModel) -> None:
    counts = {}
    for name in ("crrelu", "srelu", "squaf", "relu"):
        model = fresh(language)
        assert len(put_in_(model, name)) == 2
        counts[name] = sum(p.numel() for p in model.parameters()) - language.model.num_parameters()
    # The SQUAF paper counts 420 for the twelve layers of GPT-2: 33 heights, a step and a sharpness each.
    assert counts == {"crrelu": 2, "srelu": 0, "squaf": 2 * 420 // 12, "relu": 0}
    assert put_in_(fresh(language), "as loaded") == []


def test_a_pythia_is_read_changed_and_trained(tmp_path: Path, pairs: list[PairTokens]) -> None:
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    config = GPTNeoXConfig(
        vocab_size=260, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=64, attention_dropout=0.5, hidden_dropout=0.5, bos_token_id=259, eos_token_id=259,
    )  # fmt: skip
    GPTNeoXForCausalLM(config).save_pretrained(tmp_path)
    pythia = load_language_model(write_vocabulary(tmp_path), check=False)
    assert put_in_(pythia.model, "squaf") == [f"gpt_neox.layers.{layer}.mlp.act" for layer in range(2)]
    heights = pythia.model.gpt_neox.layers[0].mlp.act.z.detach().clone()
    recipe = Recipe(batch=8, micro_batch=8, epochs=2, learning_rate=1e-3, length=48, prompt_length=24)
    losses = prefer_(pythia.model, pairs, recipe, beta=0.1, seed=0, padding=PAD)
    # Exactly log 2 only because dropout is off, although the model asks for it.
    assert losses[0] == pytest.approx(math.log(2), abs=1e-6)
    assert losses[1] != losses[0]
    assert not torch.equal(pythia.model.gpt_neox.layers[0].mlp.act.z, heights)


def test_the_study_runs_from_files_to_a_record(tmp_path: Path, softknee: Callable[..., tuple[int, str, str]]) -> None:
    model = write_gpt2(tmp_path / "gpt2-tiny")
    write_hh(tmp_path / "hh-rlhf" / "train.jsonl", 6)
    write_hh(tmp_path / "hh-rlhf" / "test.jsonl", 5)
    arguments = ["study", "preference", "--model", str(model), "--data", str(tmp_path), "--own-vocabulary", "--device"]
    arguments += [
        "cpu",
        "--swap",
        "crrelu",
        "--swap",
        "srelu(delta=0.5)",
        "--smoke",
        "--json",
        str(tmp_path / "r.json"),
    ]
    code, printed, said = softknee(*arguments)
    assert code == 0, said
    assert "Smoke run: it shows that everything works, and its numbers mean nothing." in said
    record = Record.read(tmp_path / "r.json")
    assert record.settings["model"] == "gpt2-tiny"
    assert record.settings["smoke"] is True
    assert [row["activation"] for row in record.rows] == ["as loaded", "crrelu", "srelu(delta=0.5)"]
    for row in record.rows:
        assert 0 <= row["reward_accuracy"].value <= 1
        assert row["reward_margin"].value == pytest.approx(row["chosen_reward"].value - row["rejected_reward"].value)
        assert abs(row["evaluation_loss"].value - math.log(2)) < 0.1
        assert row["perplexity_sft"].value != row["perplexity_dpo"].value
    assert record.rows[1]["parameters_of_the_activation"] == 2
    assert record.rows[0]["evaluation_loss"] != record.rows[2]["evaluation_loss"]
    assert printed.count("\n") == 5
    assert "ERA" in printed
    # Such a record has its place on the page of the evidence; a smoke run has not.
    record.write(tmp_path / CRRELU.record)
    with pytest.raises(DataError, match="is the record of a smoke run, whose numbers mean nothing"):
        list(preference_tables(Runs(tmp_path), "eafo"))
    replace(record, settings={**record.settings, "smoke": False}).write(tmp_path / CRRELU.record)
    page = "".join(preference_tables(Runs(tmp_path), "eafo"))
    assert page.startswith(
        "\n### EAFO, table 4: GPT-2 trained on preferences (DPO)\n\n| β | activation | reward margin: "
    )
    ours = record.rows[1]
    cells = f"0.1428 | {ours['reward_margin'].value:.4f} | 0.6210 | {ours['reward_accuracy'].value:.4f} | 0.6476 | "
    assert f"| 0.1 | CRReLU | {cells}{ours['evaluation_loss'].value:.4f} |" in page
    assert f"[Record](records/{CRRELU.record})" in page
    assert not list(preference_tables(Runs(tmp_path), "squaf"))


def test_a_seed_that_diverged_is_said_and_not_averaged(language: LanguageModel, tmp_path: Path) -> None:
    pairs = read_preferences(write_hh(tmp_path / "train.jsonl", 4))
    wild = replace(study.SMOKE, learning_rate=1e30)
    settings = replace(study.Settings(activations=()).for_smoke(), recipe=wild)
    record = study.run(settings, language, pairs, pairs, command="softknee")
    assert record.rows[0]["not_run"] == "diverged: a loss or a perplexity is not finite with seed 0"
    assert "reward_accuracy" not in record.rows[0]
    assert "| diverged |" in study.preference_markdown(record)


def test_a_stopped_study_goes_on_and_another_model_is_refused(language: LanguageModel, tmp_path: Path) -> None:
    pairs = read_preferences(write_hh(tmp_path / "train.jsonl", 4))
    settings = study.Settings(activations=("srelu(delta=0.5)",)).for_smoke()

    def stop(name: str) -> None:
        if name.startswith("srelu DPO"):
            raise KeyboardInterrupt

    keep = tmp_path / "kept"
    with pytest.raises(KeyboardInterrupt):
        study.run(settings, language, pairs, pairs, command="softknee", advance=stop, keep=keep)
    assert [path.name for path in keep.iterdir()] == ["own-seed-0.json"]
    told: list[str] = []
    record = study.run(settings, language, pairs, pairs, command="softknee", advance=told.append, keep=keep)
    assert len(told) == study.steps(settings, len(pairs))
    assert record.rows == study.run(settings, language, pairs, pairs, command="softknee").rows
    assert record.rows == study.run(settings, language, pairs, pairs, command="softknee", keep=keep).rows
    other = replace(language, model=fresh(language))
    with torch.no_grad():
        next(other.model.parameters()).add_(1)
    with pytest.raises(ParameterError, match="was trained with weights = "):
        study.run(settings, other, pairs, pairs, command="softknee", keep=keep)
    wild = replace(settings, activations=(), recipe=replace(study.SMOKE, learning_rate=1e30))
    for _ in range(2):  # what diverged is kept, too
        lost = study.run(wild, language, pairs, pairs, command="softknee", keep=tmp_path / "wild")
        assert lost.rows[0]["not_run"] == "diverged: a loss or a perplexity is not finite with seed 0"


def test_what_cannot_be_run_is_said(language: LanguageModel, tmp_path: Path) -> None:
    few = read_preferences(write_hh(tmp_path / "train.jsonl", 4))
    settings = study.Settings(activations=("crrelu",), evaluation_pairs=4)
    with pytest.raises(ParameterError, match="nothing is left to train on"):
        study.divide(few, None, settings)
    train, test = study.divide(few, None, study.Settings(activations=("crrelu",), evaluation_pairs=1))
    assert (len(train), test.pairs) == (3, few.pairs[3:])
    assert study.divide(few, few, study.Settings(activations=(), evaluation_pairs=2))[1].pairs == few.pairs[::2]
    with pytest.raises(ParameterError, match="do not fit"):
        study.run(settings, language, few, few, command="")
    stories = replace(language, name="stories", tokenizer=StoryTokenizer([b"a"] * 259, [0.0] * 259))
    with pytest.raises(InputError, match=r"that of stories is none \(StoryTokenizer\).*--backend own"):
        study.run(replace(settings, backend="trl").for_smoke(), stories, few, few, command="")
    for wrong, said in (({"betas": (0.0,)}, "beta"), ({"backend": "x"}, "backend"), ({"seeds": ()}, "a seed")):
        with pytest.raises(ParameterError, match=said):
            study.Settings(activations=("crrelu",), **wrong)
    with pytest.raises(ParameterError, match="twice"):
        study.Settings(activations=("crrelu", "crrelu"))


def test_wikitext_before_and_after_relu(tmp_path: Path, softknee: Callable[..., tuple[int, str, str]]) -> None:
    model = write_gpt2(tmp_path / "gpt2-tiny")
    for part in ("valid", "test"):
        (tmp_path / f"{part}.txt").write_text(" the end of the story \n" * 12)
    more = tmp_path / "wikitext-2" / "more.txt"
    more.parent.mkdir(parents=True)
    more.write_text(" the other one \n")
    common = ["study", "wikitext", "--data", str(tmp_path), "--own-vocabulary", "--device", "cpu", "--json"]
    file = tmp_path / "r.json"
    code, printed, said = softknee(
        *common, str(file), "--model", str(model), "--swap", "srelu(delta=0.01)", "--most", "60"
    )
    assert code == 0, said
    loaded, swapped = Record.read(file).rows
    assert loaded["tokens"] == 59
    # S-ReLU so near to ReLU is hardly changed by it; GELU is.
    assert (
        abs(swapped["with_relu_loss"] - swapped["loss"]) < 1e-3 < abs(loaded["with_relu_loss"] - loaded["loss"]) * 100
    )
    assert loaded["perplexity"] == pytest.approx(math.exp(loaded["loss"]))
    sizes = ["--layers", "1", "--width", "8", "--heads", "1", "--context", "16", "--batch", "2", "--steps", "4"]
    # A file that is not here is found in the data folder.
    trained = ["--tokenizer", str(model), "--train", "more.txt,valid"]
    code, printed, said = softknee(*common, str(file), *sizes, *trained, "--recover", "1", "--seeds", "1")
    assert code == 0, said
    record = Record.read(file)
    row = record.rows[0]
    assert row["perplexity"]["replaced"].value == pytest.approx(math.exp(row["loss_by_seed"]["replaced"][0]))
    assert "went on" in printed
    assert json.loads(file.read_text())["settings"]["train"] == "more.txt, valid"
    assert "smoke" not in record.settings
    assert softknee(*common, str(file), "--most", "9")[0] != 0
    for kind in (trained, ["--model", str(model)]):
        code, _, said = softknee(*common, str(file), *kind, "--smoke")
        assert code == 0, said
        assert "Smoke run: it shows that everything works, and its numbers mean nothing." in said
        record = Record.read(file)
        assert record.settings["smoke"] is True
        assert record.settings["context"] == wikitext_study.SMOKE_CONTEXT
        assert "its numbers mean nothing" in record.notes[-1]


def test_a_smoke_run_on_wikitext_has_every_row_that_was_asked_for() -> None:
    settings = language_models.Settings(rows=("gelu", "lambda_gelu", "relu"))
    assert wikitext_study.for_smoke(settings).rows == settings.rows


def test_a_text_that_is_nowhere_is_said_with_every_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SOFTKNEE_DATA", raising=False)
    with pytest.raises(DataError, match=r"no text 'more.txt' to train on") as error:
        wikitext_study.read_tokens(None, train="more.txt", folder=tmp_path)
    for place in ("more.txt", "wikitext-2/more.txt"):
        assert f"'{tmp_path / place}'" in str(error.value)
    with pytest.raises(DataError, match=r"no text 'more.txt' .* No data folder was given. Pass one"):
        wikitext_study.read_tokens(None, train="more.txt")
    with pytest.raises(DataError, match=r"no text '/nowhere/x' to train on: looked for '/nowhere/x'. softknee"):
        wikitext_study.read_tokens(None, train="/nowhere/x", folder=tmp_path)
