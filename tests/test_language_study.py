"""The language study, end to end on a text and a network that are small enough to check, and its loader."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from language_files import TEXT
from softknee.errors import DataError, ParameterError
from softknee.lab import language_models
from softknee.lab.data.text import from_bytes, load_characters
from softknee.lab.language_models import Batches, Recipe, build, train, validation_loss
from softknee.measure.record import Record

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
        losses.append(validation_loss(train(model, TEXT, recipe, seed=0, harden=False).model, TEXT, recipe))
    assert losses[0] == losses[1] < before


def test_the_whole_study_and_its_table() -> None:
    settings = language_models.Settings(recipe=TINY, seeds=(0, 1), device="cpu")
    told: list[str] = []
    record = language_models.run(settings, command="softknee study language", advance=told.append, text=TEXT)
    assert len(told) == language_models.steps(settings)
    assert Record.from_json(record.to_json()) == record
    rows = {row["row"]: row for row in record.rows}
    assert set(rows["ReLU from scratch"]["loss"]) == {"free"}
    hardened = rows["S-ReLU, hardened"]["loss"]
    # Hardened to 0.05 of ReLU, the replacement changes less than a plain swap of the free network could.
    assert abs(hardened["replaced"].value - hardened["hardened"].value) < 0.01
    assert len(rows["GELU"]["layer_by_layer"][0]) == TINY.layers
    table = language_models.language_markdown(record)
    assert table.count("\n") == 2 + len(language_models.ENTRIES)
    assert "±" in table


def test_a_stopped_study_goes_on_and_another_text_is_refused(tmp_path: Path) -> None:
    settings = language_models.Settings(
        recipe=replace(TINY, recover=0), seeds=(0,), device="cpu", rows=("lambda_gelu", "relu")
    )

    def stop(name: str) -> None:
        if name.startswith("relu"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        language_models.run(settings, command="", advance=stop, text=TEXT, keep=tmp_path / "kept")
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["lambda_gelu-seed-0.json"]
    told: list[str] = []
    record = language_models.run(settings, command="", advance=told.append, text=TEXT, keep=tmp_path / "kept")
    assert len(told) == language_models.steps(settings)
    whole = language_models.run(settings, command="", text=TEXT)
    assert [row["loss_by_seed"] for row in record.rows] == [row["loss_by_seed"] for row in whole.rows]
    assert record.rows[0]["learned_knobs"] == whole.rows[0]["learned_knobs"]
    other = replace(TEXT, train=TEXT.train.flip(0))
    with pytest.raises(ParameterError, match="was trained with text = "):
        language_models.run(settings, command="", text=other, keep=tmp_path / "kept")


def test_settings_without_enough_steps_are_refused() -> None:
    with pytest.raises(ParameterError, match="recovery step for each layer"):
        language_models.Settings(recipe=Recipe(recover=2))
    with pytest.raises(ParameterError, match="Did you mean 'srelu'"):
        language_models.Settings(rows=("gelu", "sreluu"))


def test_rows_can_be_chosen_and_nothing_recovered() -> None:
    settings = language_models.Settings(
        recipe=replace(TINY, recover=0), seeds=(0,), device="cpu", rows=("lambda_gelu", "relu")
    )
    told: list[str] = []
    record = language_models.run(settings, command="", advance=told.append, text=TEXT)
    assert len(told) == language_models.steps(settings) == 3 * TINY.steps
    hardened, relu = record.rows
    assert set(hardened["loss"]) == {"free", "bare", "hardened", "replaced"}
    assert set(relu["loss"]) == {"free"}
    assert len(hardened["learned_knobs"][0]) == TINY.layers
    assert all(1.0 <= one < 2.0 for one in hardened["learned_knobs"][0])
    # Free, the knob is far from the limit, so that the bare swap changes more than that of the hardened network.
    moved = {
        name: abs(hardened["loss"][name].value - hardened["loss"][of].value)
        for name, of in (("bare", "free"), ("replaced", "hardened"))
    }
    assert moved["bare"] > 5 * moved["replaced"]
    assert "together" not in language_models.language_markdown(record)


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
    assert sum(one.numel() for one in net.parameters()) == 124_439_808
