"""Definitions in files: what was saved comes back, wherever a name can stand, and nothing hostile gets in."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sympy
import torch

import softknee as sk
from helpers import F64, ZOO
from softknee.design import definition, join, mollify, rescu
from softknee.design.texts.files import MOST_BYTES
from softknee.design.texts.given import text_of
from softknee.files import ReadError, WriteError
from softknee.registry import unregister
from softknee.spec import Activation, AtLeastOne, Between, Inner, Param, Ramp, Sigmoid, positive, real, u, x

BETA = positive("beta", 1.0, "how wide")
POINTS = torch.linspace(-4, 4, 81, dtype=F64)
GOOD: dict[str, Any] = {
    "format": "softknee activation",
    "version": 1,
    "name": "knee",
    "text": "x * sigmoid(beta * x)",
    "parameters": [
        {"name": "beta", "default": 2.0, "constraint": "positive", "learned_default": None, "about": "hardness"}
    ],
    "about": "Mine.",
}

SAVED = {
    "zoo": lambda: sk.get("srelu"),
    "formula": lambda: definition("x * sigmoid(beta * x)", params={"beta": 2.0}, name="knee"),
    "mollify": lambda: mollify("relu", "epanechnikov", 0.1, name="knee"),
    "mollify, learned": lambda: mollify("prelu", "box", "w", name="knee"),
    "mollify, a step": lambda: mollify(sympy.Heaviside(x) + sympy.Heaviside(x - 1), "biweight", "w"),
    "mollify, a fraction": lambda: mollify("relu", "box", sympy.Rational(1, 3)),
    "mixture": lambda: mollify("relu", ("box", "triangle"), "w"),
    "nested": lambda: mollify(join(0, x, between=(-1, 0)), "box", 0.1),
    "join": lambda: join("tanh", "x", between=("-beta", "beta"), smoothness=2, params=[BETA]),
    "rescu": lambda: rescu([("celu", 0), "x"], name="again"),
    "by hand": lambda: Activation("softlog", Ramp(x) ** 2 * BETA.symbol / 3, params=(BETA,), about="Mine."),
    "decimals": lambda: Activation("decimals", 0.1 * x + sympy.Float("0.30000000000000004", 17)),
    "constraints": lambda: Activation(
        "constrained",
        sympy.Symbol("lam", positive=True) * x + sympy.Symbol("eps", real=True),
        params=(
            Param("lam", 1.5, AtLeastOne(0.2), learned_default=1.6),
            Param("eps", -0.5, Between(low=-2.0, high=1.0), about="size"),
        ),
    ),
    "renamed": lambda: definition("swish", name="swosh", params={"beta": 3.0}),
}


@pytest.mark.parametrize("name", SAVED)
def test_what_was_saved_comes_back(name: str, tmp_path: Path) -> None:
    act = SAVED[name]()
    path = sk.save(act, tmp_path / "knee.json")
    assert path == (tmp_path / "knee.json").resolve()
    again = sk.load(path)
    assert (again.name, again.about, again.params) == (act.name, act.about, act.params)
    torch.testing.assert_close(again(POINTS), act(POINTS), rtol=0, atol=1e-15)
    torch.testing.assert_close(again.derivative(1)(POINTS), act.derivative(1)(POINTS), rtol=0, atol=1e-14)
    assert list(tmp_path.iterdir()) == [path]  # nothing else was left behind
    assert sk.save(again, tmp_path / "twice.json").read_text() == path.read_text()


@pytest.mark.parametrize("name", ZOO)
def test_the_whole_zoo_can_be_saved(name: str, tmp_path: Path) -> None:
    assert sk.load(sk.save(sk.get(name), tmp_path / "one.json")) is sk.get(name)


def test_a_file_stands_wherever_a_name_does(tmp_path: Path) -> None:
    act = definition("x * sigmoid(beta * x)", params={"beta": 2.0}, name="knee")
    path = str(sk.save(act, tmp_path / "knee.json"))
    result = sk.get(path)
    assert result is sk.load(path)
    assert result is sk.get(path)
    module = sk.nn.make(path, learn="beta")
    torch.testing.assert_close(module(POINTS), sk.get("swish")(POINTS, beta=2.0))
    made = mollify(str(sk.save(join(0, x, between=(-1, 1)), tmp_path / "join.json")), "box", 0.1)
    assert made.formula == mollify(join(0, x, between=(-1, 1)), "box", 0.1).formula
    assert rescu([(path, 0), path]).params == result.params


def test_a_relative_path_and_another_spelling_are_the_same_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    sk.save(definition("x + 1"), "one.json")
    assert sk.get("one.json") is sk.get("./one.json")
    assert sk.get("one.json") is sk.load(tmp_path / "one.json")


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = sk.save(definition("x + 1"), tmp_path / "one.json")
    first = sk.load(path)
    sk.save(definition("x + 2"), path)
    second = sk.load(path)
    assert second is not first
    assert second(torch.zeros(1)).item() == 2.0
    path.unlink()
    with pytest.raises(ReadError, match="could not be read"):
        sk.load(path)


# -- what cannot be saved ---------------------------------------------------------------------------------


def changed_by_hand() -> Activation:
    return replace(mollify("relu", "box", 0.1), formula=x + 5, stable={})


UNSAVABLE = {
    "inner": (lambda: Activation("a", u * Sigmoid(u), inner=Inner(2 * x)), "numerics of its own"),
    "stable": (lambda: Activation("a", x, stable={(): x + 0}), "numerics of its own"),
    "derivative": (lambda: sk.get("swish").derivative(1), "is a derivative"),
    "a table": (lambda: sk.get("squaf"), "not an element-wise formula"),
    "no word": (lambda: Activation("a", sympy.gamma(x)), "no word for gamma"),
    "a high power": (lambda: Activation("a", x**20), "whole powers"),
    "another function": (changed_by_hand, "makes another function"),
    "own constraint": (
        lambda: Activation(
            "a", x * real("g", 1.0).symbol, params=(Param("g", 1.0, type("Odd", (sk.spec.Real,), {})()),)
        ),
        "of your own making",
    ),
    "a parameter with a word's name": (
        lambda: Activation("a", x * real("tanh", 1.0).symbol, params=(real("tanh", 1.0),)),
        "means something else",
    ),
}


@pytest.mark.parametrize(("make", "words"), UNSAVABLE.values(), ids=UNSAVABLE)
def test_what_cannot_be_saved_is_refused_and_nothing_written(make, words: str, tmp_path: Path) -> None:
    with pytest.raises(sk.SoftkneeError) as refused:
        sk.save(make(), tmp_path / "a.json")
    assert words in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_files_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(sk.ParameterError, match="ends in"):
        sk.save(sk.get("relu"), tmp_path / "relu.txt")
    with pytest.raises(WriteError, match="unchanged"):
        sk.save(sk.get("relu"), tmp_path / "nowhere" / "relu.json")


def test_a_name_of_the_users_own_is_saved_as_its_formula() -> None:
    own = sk.register(Activation("own_saved", Ramp(x) / 2))
    try:
        assert text_of(own) == "relu(x) / 2"
    finally:
        unregister("own_saved")


# -- hostile and broken files -----------------------------------------------------------------------------


def parameter(**changes: Any) -> dict[str, Any]:
    return GOOD | {"parameters": [GOOD["parameters"][0] | changes]}


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in GOOD.items() if name != key}


BROKEN: dict[str, tuple[Any, str]] = {
    "another format": (GOOD | {"format": "softknee record"}, "format"),
    "a later version": (GOOD | {"version": 2}, "version 2"),
    "a version in words": (GOOD | {"version": "1"}, "'version'"),
    "a true version": (GOOD | {"version": True}, "'version'"),
    "an extra key": (GOOD | {"code": "import os"}, "means nothing here"),
    "a list": ([GOOD], "JSON object"),
    "null": (None, "JSON object"),
    "a bad name": (GOOD | {"name": "a b"}, "plain letters"),
    "a dunder name": (GOOD | {"name": "__class__"}, "plain letters"),
    "a long note": (GOOD | {"about": "a" * 2000}, "longer than"),
    "a hostile text": (GOOD | {"text": "__import__('os').system('true')"}, "called"),
    "a file in the text": (GOOD | {"text": "mollify('other.json', box)"}, "no number"),
    "a long text": (GOOD | {"text": "x" + " + x" * 1000}, "characters"),
    "an empty text": (GOOD | {"text": ""}, "cannot be read"),
    "a text without the parameter": (GOOD | {"text": "x"}, "declares beta"),
    "a text with another parameter": (GOOD | {"text": "x * sigmoid(gamma * x)"}, "'gamma'"),
    "a parameter of another kind": (
        GOOD | {"text": "prelu", "parameters": [GOOD["parameters"][0] | {"name": "slope"}]},
        "other constraints",
    ),
    "parameters as a mapping": (GOOD | {"parameters": {}}, "'parameters'"),
    "a parameter as a text": (GOOD | {"parameters": ["beta"]}, "JSON object"),
    "many parameters": (GOOD | {"parameters": GOOD["parameters"] * 100}, "100 parameters"),
    "a parameter twice": (GOOD | {"parameters": GOOD["parameters"] * 2}, "two parameters"),
    "a taken name": (parameter(name="x"), "means something else"),
    "a word's name": (parameter(name="sigmoid"), "means something else"),
    "a look-alike": (parameter(name="βeta"), "plain letters"),
    "a default in words": (parameter(default="2"), "'default'"),
    "a true default": (parameter(default=True), "'default'"),
    "a default outside": (parameter(default=-1.0), "must be"),
    "a huge default": (parameter(default=10**400), "too large"),
    "an odd constraint": (parameter(constraint="prime"), "no constraint"),
    "a constraint with code": (parameter(constraint="between(__import__('os'), 1)"), "no constraint"),
    "learned in words": (parameter(learned_default="1"), "'learned_default'"),
    **{f"no {key}": (without(key), f"no {key!r}") for key in GOOD},
}
BROKEN_TEXTS = {
    "nothing": ("", "not JSON"),
    "half": (json.dumps(GOOD)[:-5], "not JSON"),
    "Python": (repr(GOOD), "not JSON"),
    "not a number": (json.dumps(GOOD).replace("2.0", "NaN"), "NaN"),
    "infinite": (json.dumps(GOOD).replace("2.0", "1e999"), "must be"),
    "a key twice": (json.dumps(GOOD)[:-1] + ', "name": "other"}', "twice"),
    "deep": ("[" * 100_000 + "]" * 100_000, "not JSON"),
    "a long number": (json.dumps(GOOD).replace("2.0", "9" * 5000), "not JSON"),
    "a mark of order": ("\ufeff" + json.dumps(GOOD), "not JSON"),
}


def refusal(path: Path) -> str:
    with pytest.raises(sk.SoftkneeError) as refused:
        sk.load(path)
    assert isinstance(refused.value, ValueError | OSError)
    assert path.name in str(refused.value)
    assert str(refused.value).rstrip().endswith((".", "?"))
    return str(refused.value)


@pytest.mark.parametrize(("content", "words"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_refused_with_a_sentence(content: Any, words: str, tmp_path: Path) -> None:
    path = tmp_path / "knee.json"
    path.write_text(json.dumps(content))
    assert words in refusal(path)


@pytest.mark.parametrize(("content", "words"), BROKEN_TEXTS.values(), ids=BROKEN_TEXTS)
def test_what_is_not_json_is_refused_with_a_sentence(content: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "knee.json"
    path.write_text(content, encoding="utf-8")
    assert words in refusal(path)


def test_the_good_file_is_good(tmp_path: Path) -> None:
    path = tmp_path / "knee.json"
    path.write_text(json.dumps(GOOD))
    act = sk.load(path)
    assert (act.name, act.about, act.params[0].about) == ("knee", "Mine.", "hardness")


def test_what_is_no_small_text_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "large.json").write_text(" " * (MOST_BYTES + 1))
    assert "larger than 1,000,000 bytes" in refusal(tmp_path / "large.json")
    (tmp_path / "folder.json").mkdir()
    assert "folder.json" in refusal(tmp_path / "folder.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in refusal(tmp_path / "bytes.json")
    assert "could not be read" in refusal(tmp_path / "missing.json")
    os.mkfifo(tmp_path / "pipe.json")
    assert "is not a file" in refusal(tmp_path / "pipe.json")
    with pytest.raises(ReadError):
        sk.get("\0.json")


def test_a_missing_file_is_not_taken_for_a_misspelt_name() -> None:
    with pytest.raises(ReadError, match="nowhere"):
        sk.nn.make("nowhere.json")
