"""Functions, pictures and clusters as data of a study: what they are, in which parts; and old data stay the same."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from skimage import data as pictures
from skimage.transform import resize

from softknee.errors import MissingToolError, ParameterError, RecipeError
from softknee.lab.data.images import DATA_SETS, IMAGE_SETS, OWN_PARTS, ROW_SETS, load_split
from softknee.lab.data.synthetic import CLUSTERS, FUNCTIONS, PICTURES, load_picture, places
from softknee.lab.studies.building import model_maker
from softknee.lab.studies.engine import pack_examples, unpack_examples
from softknee.lab.studies.examples import Examples, load_examples
from softknee.lab.studies.recipe import Choice, Data, Model, Recipe
from softknee.lab.studies.trial import Chosen
from softknee.lab.studies.trials import train_trials
from softknee.train import Replicas

PARTS = ("train", "validation", "test")
QUICKSTART = Path(__file__).parent.parent / "docs" / "quickstart" / "trials"


def of(name: str, **more: int) -> Examples:
    return load_examples(Data(set=name, **more))


def part(examples: Examples, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    return getattr(examples, f"{name}_x"), getattr(examples, f"{name}_y")


# -- functions ----------------------------------------------------------------------------------------------


def sine_1d(x: float) -> float:
    s = math.sin
    return 0.4 * s(19 * x) + 0.2 * s(23 * x) + 0.3 * s(29 * x) + 0.1 * s(31 * x)


def sine_2d(x: float, y: float) -> float:
    s = math.sin
    first = 0.4 * s(9 * x - 7 * y) + 0.1 * s(-9 * x + 11 * y) + 0.15 * s(3 * x + 13 * y)
    return first + 0.15 * s(9 * x + 9 * y) + 0.1 * s(13 * x + 5 * y) + 0.1 * s(3 * x + 19 * y)


@pytest.mark.parametrize(
    ("name", "function", "shape", "counts"),
    [("sine-1d", sine_1d, (1,), (39_200, 1000, 4001)), ("sine-2d", sine_2d, (2,), (39_200, 1000, 101**2))],
)
def test_a_function_to_fit_is_the_papers_in_its_own_units(name, function, shape, counts) -> None:
    actual = of(name)
    assert (actual.task, actual.classes, actual.outputs, actual.input_shape) == ("regression", 0, 1, shape)
    assert actual.picture is None
    places = []
    for item, count in zip(PARTS, counts, strict=True):
        x, y = part(actual, item)
        assert (len(x), tuple(y.shape)) == (count, (count, 1))
        assert x.dtype == y.dtype == torch.float32
        assert float(x.abs().max()) <= 1
        some = torch.arange(0, count, 37)
        wanted = [function(*row) for row in x[some].double().tolist()]
        assert y[some, 0].tolist() == pytest.approx(wanted, abs=6e-8)
        places.append({tuple(row) for row in x.tolist()})
        assert len(places[-1]) == count
    assert not places[0] & places[2]
    assert len(places[0] & places[1]) < 10  # on a line, float32 has so few numbers that some meet by chance
    assert len(actual.train_x) % 98 == 0
    assert len(actual.train_x) // 98 * 100 == 40_000  # the paper's iterations
    # Evenly spread: no part of the domain is left out.
    assert float(actual.train_x.mean(dim=0).abs().max()) < 0.01
    assert float(actual.train_x.var(dim=0).sub(1 / 3).abs().max()) < 0.01
    assert actual.test_x[0].tolist() == [-1.0] * shape[0]
    assert actual.test_x[-1].tolist() == [1.0] * shape[0]


def test_the_middles_are_even() -> None:
    result = of("sine-1d")
    steps = result.train_x[:, 0].double().diff()
    assert float((steps - 2 / 39_200).abs().max()) < 1.3e-7  # rounding of numbers near 1
    assert float(result.train_x[0]) == pytest.approx(-1 + 1 / 39_200)


@pytest.mark.parametrize("name", [*FUNCTIONS, *CLUSTERS])
def test_the_seed_decides_what_is_drawn(name: str) -> None:
    first, again, other = of(name), of(name), of(name, split_seed=1)
    assert first.fingerprint == again.fingerprint != other.fingerprint
    same = {item for item in PARTS if torch.equal(part(first, item)[0], part(other, item)[0])}
    assert same == {"sine-1d": {"train", "test"}, "sine-2d": {"test"}}.get(name, set())


# -- pictures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_all_its_pixels_row_by_row(name: str) -> None:
    actual = of(name)
    assert actual.picture == (128, 128)
    assert (actual.task, actual.input_shape, actual.outputs) == ("regression", (2,), 1)
    wanted = resize(getattr(pictures, name)() / 255, (128, 128), anti_aliasing=True)
    for item in PARTS:
        x, y = part(actual, item)
        assert np.array_equal(y.reshape(128, 128).numpy(), wanted.astype(np.float32))
        rows, columns = x.reshape(128, 128, 2).unbind(2)
        ends = torch.linspace(-1, 1, 128)
        assert torch.allclose(rows[:, 5], ends, atol=1e-7)
        assert torch.allclose(columns[5], ends, atol=1e-7)
        assert len(x) == 16 * 1024
    assert float(actual.test_y.min()) >= 0
    assert 0.5 < float(actual.test_y.max()) <= 1
    assert "16,384 training" in actual.sentence()


def test_places_of_a_picture_that_is_not_square() -> None:
    result = places(3, 5).reshape(3, 5, 2)
    assert result[0, 0].tolist() == [-1, -1]
    assert result[1, 4].tolist() == [0, 1]


def test_a_picture_needs_scikit_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "skimage", None)
    with pytest.raises(MissingToolError, match=r"'camera' comes with scikit-image.*pip install 'softknee\[pictures\]'"):
        of("camera")
    with pytest.raises(ParameterError, match="Did you mean 'grass'"):
        load_picture("gras")


def test_a_picture_goes_to_other_machines_whole() -> None:
    result = of("page")
    back = unpack_examples(pack_examples(result))
    assert back.picture == result.picture
    assert back.fingerprint == result.fingerprint
    assert torch.equal(back.test_y, result.test_y)


# -- clusters -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "classes"), CLUSTERS.items())
def test_clusters_are_three_of_each_class(name: str, classes: int) -> None:
    result = of(name)
    assert (result.task, result.classes, result.outputs, result.input_shape) == (
        "classification",
        classes,
        classes,
        (2,),
    )
    assert result.labels == tuple(map(str, range(classes)))
    centres = {}
    for item, count in zip(PARTS, (80, 20, 20), strict=True):
        x, y = part(result, item)
        assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
        assert y.bincount().tolist() == [3 * count] * classes
        points = x.double().reshape(3 * classes, count, 2)
        centres[item] = points.mean(dim=1)
        spread = (points - centres[item].unsqueeze(1)).square().sum().div(3 * classes * (count - 1) * 2).sqrt()
        assert float(spread) == pytest.approx(0.06, rel=0.1)
    # All parts are of one mixture, and no point is in two of them.
    for item in PARTS[1:]:
        assert float((centres[item] - centres["train"]).abs().max()) < 5 * 0.06 / 20**0.5
    every = torch.cat([part(result, value)[0] for value in PARTS])
    assert len(every.unique(dim=0)) == len(every)
    assert float(centres["train"].abs().max()) < 1.1


@pytest.mark.parametrize(("name", "paper"), [("clusters-3", 0.9389), ("clusters-4", 0.7042)])
def test_relu_is_about_as_good_as_in_the_paper(name: str, paper: float) -> None:
    result = of(name)
    make = model_maker(Model(arguments={"hidden": [64, 64]}), Chosen(name="relu", label="relu"), result)
    models = Replicas(lambda seed: make(seed=seed), count=3)
    models.fit(result.train_x, result.train_y, batch=len(result.train_x), epochs=100, lr=1e-3, optimizer="adam")
    right = (models.predict(result.test_x).argmax(2) == result.test_y).double().mean()
    assert float(right) == pytest.approx(paper, abs=0.03)


# -- in a study ---------------------------------------------------------------------------------------------


def test_the_examples_of_old_data_sets_are_the_same_to_the_bit() -> None:
    recorded = [json.loads(path.read_text())["settings"]["trial"] for path in sorted(QUICKSTART.glob("*.json"))]
    assert recorded
    digits = load_examples(Data(set="digits"), flat=True)
    assert {item["fingerprint"] for item in recorded if item["data"]["set"] == "digits"} == {digits.fingerprint}
    assert digits.picture is None


def test_shares_change_nothing_where_a_set_has_its_own_parts() -> None:
    def key(**data: float) -> str:
        recipe = Recipe(name="fit", data=Data(set="clusters-3", **data), activations=(Choice(name="relu"),))
        return train_trials(recipe, load_examples(recipe.data))[0].key

    assert key() == key(validation=0.4, test=0.1)
    assert key() != key(split_seed=1)


def test_names_of_data_sets() -> None:
    assert set(DATA_SETS) == {*IMAGE_SETS, *ROW_SETS, *OWN_PARTS}
    for name in (*ROW_SETS, *OWN_PARTS):
        with pytest.raises(ParameterError, match="for studies; there are 'digits'"):
            load_split(name)


def test_an_activation_alone_needs_one_number_in_and_out() -> None:
    relu, model = Chosen(name="relu", label="relu"), Model(build="alone")
    make = model_maker(model, relu, of("sine-1d"))
    assert make(seed=0)(torch.tensor([[-1.0], [2.0]])).tolist() == [[0.0], [2.0]]
    for name in ("sine-2d", "clusters-3"):
        with pytest.raises(RecipeError, match=r"from one number to one number.*shape \(2,\)"):
            model_maker(model, relu, of(name))
    line = of("sine-1d")
    two = replace(line, **{f"{item}_y": part(line, item)[1].expand(-1, 2) for item in PARTS})
    with pytest.raises(RecipeError, match="need 2 outputs; take 'mlp'"):
        model_maker(model, relu, two)


def test_a_random_start_differs_from_seed_to_seed() -> None:
    squaf = Chosen(name="squaf", label="squaf", values={"k": 13, "z": "random"}, learn=("z",))
    make = model_maker(Model(build="alone"), squaf, of("sine-1d"))
    tables = [make(seed=seed)[0].z.flatten() for seed in (0, 1, 0)]
    assert torch.equal(tables[0], tables[2])
    assert not torch.isin(tables[1], tables[0]).any()
    assert float(torch.cat(tables).detach().abs().max()) <= 1
