"""Models of clicks: their inputs, the order of a stream, and progressive validation against a plain loop."""

import pytest
import torch
from torch import nn

import softknee as sk
from click_streams import EMBEDDINGS, FEW, dense, parameters, plain_stream, stream_model, write_small_criteo
from softknee.errors import InputError, ParameterError, RecipeError
from softknee.lab.builders import build
from softknee.lab.clicks import ClickInputs, build_by_name, click_model
from softknee.lab.data.criteo import BUCKETS, load_criteo
from softknee.lab.studies.reading import read_recipe
from softknee.lab.studies.runner import run_study
from softknee.train import random_keys
from softknee.train.random_keys import order


@pytest.fixture
def data(tmp_path):
    return write_small_criteo(tmp_path / "data")


# -- the model ------------------------------------------------------------------------------------------------


def test_inputs_are_numbers_embeddings_and_one_hots(data):
    x, _ = load_criteo(data)["train"]
    inputs = ClickInputs({f"C{k + 1}": d for k, d in enumerate(EMBEDDINGS)})
    actual = inputs(x)
    assert actual.shape == (len(x), 1042)
    for row, given in zip(actual.tolist()[:5], x.tolist()[:5], strict=True):
        wanted = given[:13]
        for k, (n, d) in enumerate(zip(BUCKETS, EMBEDDINGS, strict=True)):
            bucket = int(given[13 + k])
            if d:
                wanted += inputs.tables[f"C{k + 1}"][bucket].tolist()
            else:
                wanted += [float(place == bucket) for place in range(n)]
        assert row == wanted


def test_a_seed_decides_the_weights_and_hidden_rows_keep_their_norm():
    made = [click_model(hidden=(6, 4), embed=FEW, weight_norm=2.0, seed=seed) for seed in (1, 1, 2)]
    state = [dict(item.named_parameters()) for item in made]
    assert all(torch.equal(value, state[1][name]) for name, value in state[0].items())
    assert not torch.equal(state[0]["0.tables.C9"], state[2]["0.tables.C9"])
    torch.testing.assert_close(made[0][1].weight.norm(dim=1), torch.full((6,), 2.0))
    torch.testing.assert_close(made[0][3].weight.norm(dim=1), torch.full((4,), 2.0))
    assert made[0][5].weight.norm() != 2.0  # the output is no hidden neuron
    begun = ClickInputs({"C9": 50}, spread=0.25).tables["C9"].detach()
    assert begun.abs().max().item() == pytest.approx(0.25, rel=0.02)


def test_it_is_built_by_name_with_activations_by_channel():
    model = build("click_model", hidden=[6, 4], embed=FEW, activation="smelu", beta=2.0, per="channel", learn=True)
    assert [tuple(item.beta.shape) for item in (model[2], model[4])] == [(6,), (4,)]
    assert parameters(build_by_name(hidden=[6], embed={"C9": 3})) == 14 * 3 + dense(16, 6, 1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"hidden": []}, "hidden must be whole numbers"),
        ({"embed": {"C27": 3}}, "C1 to C26"),
        ({"embed": {"C1": -1}}, "size of C1"),
        ({"embed": [3]}, "embed is"),
        ({"embed": {}, "numbers": False}, "nothing to predict from"),
        ({"spread": 0.0}, "spread"),
    ],
    ids=["hidden", "column", "size", "list", "nothing", "spread"],
)
def test_what_is_no_model_is_refused(given, message):
    with pytest.raises(ParameterError, match=message):
        click_model(**given)


def test_rows_of_another_kind_are_refused():
    with pytest.raises(InputError, match="13 numbers and 26 buckets"):
        click_model(hidden=(4,), embed=FEW)(torch.zeros(2, 64))


# -- the order of a stream ------------------------------------------------------------------------------------


def test_a_window_keeps_the_order_of_what_lies_apart(monkeypatch):
    result = order(seeds=[0, 5], epoch=1, length=25, window=10)
    for start, stop in ((0, 10), (10, 20), (20, 25)):
        for row in result[:, start:stop].tolist():
            assert sorted(row) == list(range(start, stop))
    assert result[0].tolist() != result[1].tolist()
    assert order(seeds=[3], epoch=0, length=7, window=1).tolist() == [list(range(7))]
    assert torch.equal(order(seeds=[3], epoch=0, length=7, window=7), order(seeds=[3], epoch=0, length=7))
    monkeypatch.setattr(random_keys, "_LONG", 8)  # many examples are ordered seed by seed
    assert torch.equal(order(seeds=[0, 5], epoch=1, length=25, window=10), result)
    with pytest.raises(ParameterError, match="window"):
        order(seeds=[0], epoch=0, length=7, window=0)


# -- progressive validation -----------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", [None, 1.0], ids=["free", "normed"])
def test_progressive_predictions_are_those_of_a_plain_loop(data, norm):
    x, y = load_criteo(data)["train"]
    x = x[:90]  # the last batch is smaller
    y = y[:90]
    replicas = sk.train.Replicas(lambda seed: stream_model(seed, norm), count=3, seeds=[4, 5, 6], share_init=True)
    replicas.fit(
        *(x, y), epochs=1, batch=16, lr=0.1, optimizer="adagrad", initial_accumulator_value=0.1,
        loss="bce_with_logits", shuffle=32, progressive=True,
    )  # fmt: skip
    predictions, losses = plain_stream(x, y, seeds=[4, 5, 6], shared=True, window=32, batch=16, lr=0.1, norm=norm)
    torch.testing.assert_close(replicas.progressive_predictions.squeeze(2), predictions, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(replicas.losses, losses, rtol=1e-4, atol=1e-5)
    # Whatever was said at the end, after training, is something else.
    assert (replicas.predict(x).squeeze(2) - predictions).abs().max() > 0.01
    replicas.fit(x, y, epochs=1, batch=16, lr=0.1, loss="bce_with_logits")
    assert replicas.progressive_predictions is None


def test_what_is_no_single_pass_of_predictions_is_refused(data):
    x, y = load_criteo(data)["train"]
    usual = {"batch": 16, "lr": 0.1, "loss": "bce_with_logits", "progressive": True}
    with pytest.raises(ParameterError, match="epochs must be 1"):
        sk.train.Replicas(stream_model, count=2).fit(x, y, epochs=2, **usual)
    for odd in (nn.Dropout(0.5), nn.BatchNorm1d(39)):
        other = sk.train.Replicas(lambda odd=odd: nn.Sequential(odd, nn.Linear(39, 1)), count=2)
        with pytest.raises(ParameterError, match=f"'0' \\({type(odd).__name__}\\)"):
            other.fit(x, y, epochs=1, **usual)


def test_other_data_are_refused_with_what_the_model_takes(tmp_path):
    model = "{build: click_model, arguments: {hidden: [4]}}"
    text = f"name: x\ndata: {{set: clusters-3}}\nmodel: {model}\nactivations: [relu]\nseeds: 2\n"
    with pytest.raises(RecipeError, match="rows of 13 numbers"):
        run_study(read_recipe(text), out=tmp_path / "study", threads=1)
