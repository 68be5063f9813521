"""The language study, end to end on a text and a network that are small enough to check, and its loader."""

import gzip
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from language_files import TEXT, WORDS
from softknee.errors import DataError, RecipeError
from softknee.lab.data.text import from_bytes, load_characters
from softknee.lab.language_models import Batches, Recipe, build, train, validation_loss
from softknee.lab.studies.engine import pack_examples, unpack_examples
from softknee.lab.studies.reading import read_recipe
from softknee.lab.studies.recipe import Recipe as StudyRecipe
from softknee.lab.studies.running import Interrupted, SavedError, run_trial
from softknee.lab.studies.store import RunStore
from softknee.lab.studies.texts import Texts, load_texts
from softknee.lab.studies.trial import Trial
from softknee.lab.studies.trials import train_trials

TINY = Recipe(
    layers=2, width=16, heads=2, context=12, batch=4, steps=8, warmup=2, recover=2, dropout=0.0, tolerance=0.05
)


def test_the_text_is_numbered_from_zero_and_its_last_tenth_is_kept() -> None:
    content = b"abcabcabcd"
    text = from_bytes(content)
    assert text.vocabulary == 4
    assert text.train.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2]
    assert text.validation.tolist() == [3]


@pytest.mark.parametrize("name", ["input.txt", "tinyshakespeare/input.txt.gz"])
def test_another_text_is_refused_unless_it_is_asked_for(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(b"to be") if name.endswith("gz") else b"to be")
    with pytest.raises(DataError, match="not tiny-shakespeare as published"):
        load_characters(tmp_path)
    assert load_characters(tmp_path, check=False).vocabulary == 5


def test_a_damaged_or_missing_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Looked for"):
        load_characters(tmp_path)
    (tmp_path / "tinyshakespeare").mkdir()
    (tmp_path / "tinyshakespeare" / "input.txt.gz").write_bytes(gzip.compress(b"to be or not to be" * 99)[:-20])
    with pytest.raises(DataError, match="damaged"):
        load_characters(tmp_path)


def test_batches_are_pieces_of_the_text_that_the_seed_decides() -> None:
    first, second = (Batches(TEXT.train, TINY, seed=3).draw() for _ in range(2))
    assert torch.equal(first, second)
    assert first.shape == (TINY.batch, TINY.context + 1)
    whole = "".join(map(chr, TEXT.train.tolist()))
    assert all("".join(map(chr, piece)) in whole for piece in first.tolist())


def test_a_network_starts_from_the_seed_whatever_its_activation() -> None:
    nets = [build(TINY, vocabulary=5, seed=1, activation=name) for name in ("gelu", "relu", "srelu")]
    state = nets[0].state_dict()
    assert all(torch.equal(net.state_dict()[name], value) for net in nets[1:] for name, value in state.items())
    assert nets[1].state_dict().keys() == state.keys()  # a plain ReLU network


def test_training_lowers_the_loss_and_repeats() -> None:
    recipe = Recipe(layers=1, width=16, heads=2, context=12, batch=8, steps=30, warmup=2, dropout=0.0)
    losses = []
    for _ in range(2):
        model = build(recipe, vocabulary=TEXT.vocabulary, seed=0, activation="gelu")
        before = validation_loss(model, TEXT, recipe)
        train(model, TEXT, recipe, seed=0, harden=False)
        losses.append(validation_loss(model, TEXT, recipe))
    assert losses[0] == losses[1] < before


RECIPE = """
name: characters
data: {file: text.txt}
model: {build: gpt2, arguments: {layers: 2, width: 16, heads: 2, dropout: 0.0}}
activations:
  - {name: gelu, replace: true}
  - {name: lambda_gelu, learn: true, replace: true}
  - {name: lambda_gelu, label: hardened, learn: true, harden: true}
  - relu
task: {kind: language, context: 12, steps: 8, warmup: 2, recover: 2}
training: {batch: 4, weight_decay: 0.1}
hardening: {tolerance: 0.05}
seeds: 2
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text("".join(WORDS))
    return tmp_path


def trials_of(recipe: StudyRecipe, folder: Path) -> tuple[list[Trial], Texts]:
    texts = load_texts(recipe.data, recipe.task, recipe.model, base=folder)
    return train_trials(recipe, texts), texts


def test_the_whole_study_and_its_report(folder: Path, softknee: Callable[..., tuple[int, str, str]]) -> None:
    (folder / "mine.yaml").write_text(RECIPE)
    code, _, said = softknee("study", "run", str(folder / "mine.yaml"), "--out", str(folder / "study"))
    assert code == 0, said
    assert "text.txt: " in said
    outcomes = {outcome.trial.activation.label: outcome for outcome in RunStore(folder / "study").outcomes()}
    after = {"loss", "loss_replaced", "loss_recovered", "loss_continued", "loss_layerwise"}
    assert {label: set(entry.test) for label, entry in outcomes.items()} == {
        "gelu": after, "lambda_gelu": after, "hardened": after, "relu": {"loss"},
    }  # fmt: skip
    moved = {
        label: abs(item.test["loss_replaced"][0] - item.test["loss"][0])
        for label, item in outcomes.items()
        if label != "relu"
    }
    # Hardened to 0.05 of ReLU, the replacement changes less than that of the free network.
    assert moved["lambda_gelu"] > 5 * moved["hardened"]
    knobs = outcomes["lambda_gelu"].parameters
    assert [name.rpartition(".")[2] for name in knobs] == ["lam"] * TINY.layers
    assert all(1.0 <= value < 2.0 for knob in knobs.values() for value in knob["end"])
    assert not outcomes["gelu"].parameters
    report = (folder / "study" / "report" / "report.md").read_text()
    assert "| activation | loss, nats | loss with ReLU, nats | parameters |" in report
    assert "loss with ReLU, layer by layer, nats" in report
    assert {path.suffix for path in (folder / "study" / "report").iterdir()} >= {".html", ".md", ".tex", ".csv"}


def test_the_numbers_are_those_of_the_training(folder: Path) -> None:
    recipe = read_recipe(RECIPE, settings=["task.recover=0", "seeds.first=3", "seeds.count=1"])
    trials, texts = trials_of(recipe, folder)
    free = run_trial(trials[0], examples=texts).outcome
    plain = Recipe(
        layers=2, width=16, heads=2, context=12, batch=4, steps=8, warmup=2, recover=0, dropout=0.0, tolerance=0.05
    )
    model = build(plain, vocabulary=TEXT.vocabulary, seed=3, activation="gelu")
    train(model, TEXT, plain, seed=3, harden=False)
    assert free.test["loss"] == (validation_loss(model, TEXT, plain),)
    assert set(free.test) == {"loss", "loss_replaced"}
    assert free.replacement == {"limit": "ReLU", "test": {"loss": free.test["loss_replaced"]}}


class StopIn:
    """Stops a trial, as Ctrl-C does, in the step after so many; keeps what was saved last."""

    def __init__(self, steps: int) -> None:
        self.left = steps
        self.saved: Mapping[str, bytes] | None = None

    def step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Interrupted("stopped")

    def epoch(self, done: int, total: int, save: Callable[[], Mapping[str, bytes]]) -> None:
        self.saved = save()


def test_a_stopped_trial_goes_on_after_the_last_finished_seed(folder: Path) -> None:
    trial, texts = trials_of(read_recipe(RECIPE, settings=["task.recover=0"]), folder)
    whole = run_trial(trial[1], examples=texts).outcome
    watch = StopIn(12)
    with pytest.raises(Interrupted):
        run_trial(trial[1], examples=texts, watch=watch)
    again = StopIn(8)  # as many steps as one seed has
    outcome = run_trial(trial[1], examples=texts, saved=watch.saved, watch=again).outcome
    assert again.left == 0
    assert replace(outcome, seconds=0.0) == replace(whole, seconds=0.0)
    with pytest.raises(SavedError):
        run_trial(trial[0], examples=texts, saved=watch.saved)


def test_a_text_travels_to_a_worker_and_another_one_is_refused(folder: Path) -> None:
    trials, texts = trials_of(read_recipe(RECIPE), folder)
    there = unpack_examples(pack_examples(texts))
    assert there.fingerprint == texts.fingerprint
    (folder / "text.txt").write_text("".join(reversed(WORDS)))
    with pytest.raises(DataError, match="is of other examples"):
        run_trial(trials[0], base=folder)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("task.recover=1", "one for each of the 2 layers"),
        ("task.steps=2", "task.steps must be a whole number of at least 4"),
        ("task.train=[test]", "another part than that which judges"),
        ("training.epochs=3", "training.epochs is nothing that the task 'language' takes"),
        ("measures=[calibration]", "measures is nothing that the task 'language' takes"),
        ("model.build=mlp", "model.build of the task 'language' must be 'gpt2'"),
        ("model.arguments.depth=3", "depth is nothing that 'gpt2' takes"),
        ("model.arguments.layers=0", "layers must be a whole number"),
        ("data={set: digits}", "tiny-shakespeare, wikitext-2"),
        ("data={file: text.csv}", "ends in .txt or .txt.gz"),
        ("activations=[{name: gelu, select: best_val}]", "select is nothing that the task"),
        ("activations=[own]", "own"),
        ("task=null", "data.file must be a .csv or .npz file"),
    ],
)
def test_what_does_not_fit_is_a_sentence(setting: str, said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        read_recipe(RECIPE, settings=[setting])


def test_a_text_that_is_too_short_is_a_sentence(folder: Path) -> None:
    (folder / "text.txt").write_text("to be")
    with pytest.raises(RecipeError, match="too few for a context of 12"):
        trials_of(read_recipe(RECIPE), folder)


def test_attention_is_that_of_transformers() -> None:
    model = build(TINY, vocabulary=5, seed=1, activation="gelu").eval()
    tokens = torch.randint(5, (3, TINY.context), generator=torch.Generator().manual_seed(0))
    ours = model(input_ids=tokens).logits
    model.set_attn_implementation("eager")
    torch.testing.assert_close(ours, model(input_ids=tokens).logits, rtol=1e-5, atol=1e-6)


def test_gpt2_small_has_its_parameters() -> None:
    small = Recipe(layers=12, width=768, heads=12, context=1024)
    with torch.device("meta"):
        net = build(small, vocabulary=50257, seed=0, activation="gelu")
    assert sum(parameter.numel() for parameter in net.parameters()) == 124_439_808
