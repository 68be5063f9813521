"""Defaults: every function shows its character on a standard normal input, and what a paper used is a preset."""

import json
import math

import pytest
import torch
from torch import nn

import softknee as sk
from helpers import ZOO, every_subject
from softknee.errors import DefinitionError, ParameterError, RecipeError
from softknee.lab.studies.reading import combinations, read_recipe
from softknee.lab.studies.recipe import Recipe
from softknee.spec import Activation, positive, x

NORMAL = torch.distributions.Normal(0.0, 1.0).icdf(torch.linspace(5e-5, 1 - 5e-5, 10_001, dtype=torch.float64))
SMOOTH = [act for act in ZOO.values() if act.limit == "relu" and act.claims.distance is not None]
# LeakyReLU has torch's slope, and its distance to ReLU grows with the input; it shows on the left alone.
HARD = {"leaky_relu"}


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 8), nn.GELU(), nn.Linear(8, 1))


def study(activations: str) -> Recipe:
    return read_recipe(f"name: study\ndata: {{set: digits}}\nactivations: [{activations}]\n")


@pytest.mark.parametrize("act", SMOOTH, ids=[act.name for act in SMOOTH])
def test_a_default_is_not_its_own_hard_limit(act):
    """On a standard normal input it moves by a twentieth of a standard deviation somewhere, or more."""
    if act.name not in HARD:
        assert float((act(NORMAL) - NORMAL.relu()).abs().max()) > 0.05


@every_subject
def test_a_width_is_one_standard_deviation(act):
    """Of a function w f(x/w) the default is 1, unless the field has another (Keras: squareplus)."""
    widths = [act.param(name) for name in act.knobs if act.toward == 0.0]
    scales = widths and all("width" in p.about or "parabola" in p.about or "meets" in p.about for p in widths)
    if scales and act.name != "squareplus":
        assert all(p.default == 1.0 for p in widths)


def test_a_size_is_as_far_from_relu_as_a_width_of_one():
    far = {name: float((sk.get(name)(NORMAL) - NORMAL.relu()).abs().max()) for name in ("srelu", "crrelu")}
    assert far["srelu"] == pytest.approx(3 / 16, abs=1e-4)
    assert far["crrelu"] == pytest.approx(far["srelu"], abs=0.03)


# -- presets ----------------------------------------------------------------------------------------------


@every_subject
def test_a_preset_names_parameters_and_differs_from_the_defaults(act):
    for values in act.presets.values():
        assert {p.name: p.default for p in act.params} | values != {p.name: p.default for p in act.params}
        assert set(values) <= {p.name for p in act.params}


@pytest.mark.parametrize(("name", "parameter"), [("srelu", "delta"), ("crrelu", "eps"), ("crrelu_exact", "eps")])
def test_a_preset_is_taken_by_every_way_of_naming_a_function(name, parameter):
    text = f"{name}(preset=paper)"
    by_argument, by_text = net(), net()
    sk.swap_(by_argument, name, preset="paper")
    sk.swap_(by_text, text)
    modules = [
        sk.nn.make(name, preset="paper"),
        sk.nn.make(f"{name}(preset='paper', learn={parameter})"),
        type(sk.nn.make(name))(preset="paper", per="channel", size=3),
        sk.nn.Pointwise(sk.get(name), preset="paper"),
        by_argument[1],
        by_text[1],
    ]
    assert [getattr(module, parameter).item() for module in modules] == pytest.approx([0.01] * len(modules))
    for act in (sk.get(name, preset="paper"), sk.get(text), sk.design.definition(text)):
        assert act.param(parameter).default == 0.01
    assert study(f"{{name: {name}, preset: paper}}").activations[0].values == {parameter: 0.01}


def test_a_value_beside_a_preset_wins():
    assert float(sk.nn.make("srelu", preset="paper", delta=0.5).delta) == 0.5
    assert float(sk.nn.make("srelu(delta=0.5)", preset="paper").delta) == 0.5
    assert sk.get("srelu(delta=0.5)", preset="paper").param("delta").default == 0.5


def test_a_preset_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(ParameterError, match=r"srelu has no preset 'papr'; it has 'paper'. Did you mean 'paper'\?"):
        sk.nn.make("srelu", preset="papr")
    with pytest.raises(ParameterError, match="gelu has no preset 'paper'; it has its defaults alone"):
        sk.nn.GELU(preset="paper")
    for name in ("squaf", "kaf"):
        with pytest.raises(ParameterError, match=f"{name} has no preset 'paper'"):
            sk.swap_(net(), name, preset="paper")
    with pytest.raises(ParameterError, match="no preset"):
        sk.nn.SReLU(preset=["paper"])
    with pytest.raises(RecipeError, match=r"activations\[0\].preset: srelu has no preset 'mine'"):
        study("{name: srelu, preset: mine}")
    delta = positive("delta", 1.0)
    with pytest.raises(DefinitionError, match="delta of 'mine' must be a finite number above 0, and a preset gives -1"):
        Activation("mine", x * delta.symbol, (delta,), presets={"bad": {"delta": -1.0}})


def test_presets_are_shown_where_a_function_is_looked_up(softknee):
    code, printed, _ = softknee("design", "srelu", "--no-plot")
    assert code == 0
    assert 'preset="paper" has delta=0.01' in printed
    assert 'preset="paper"' in (sk.nn.SReLU.__doc__ or "")


# -- what is written says the number ------------------------------------------------------------------------


def test_a_trial_says_the_default_that_it_ran_with():
    """A default of ours may change; the key of a trial must change with it."""
    recipe = study("{name: crrelu, learn: true}, gelu")
    first, second = (next(combinations(choice)) for choice in recipe.activations)
    assert first.values == {"eps": 0.3}
    assert second.values == {}  # GELU is GELU


def test_a_plan_says_every_value(tmp_path):
    sk.swap_(net(), "srelu").save(tmp_path / "plan.json")
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["changes"][0]["arguments"]["delta"] == 1.0
    del plan["changes"][0]["arguments"]["delta"]  # as plans were when the default was 0.01
    (tmp_path / "old.json").write_text(json.dumps(plan))
    model = net()
    sk.apply_(model, tmp_path / "old.json")
    assert float(model[1].delta) == pytest.approx(0.01)


def test_a_formula_says_the_values_of_functions_inside_it(tmp_path):
    act = sk.design.definition("0.5 * srelu(x) + 0.5 * relu(x)", name="mixed")
    assert act.recipe == "0.5 * srelu(x, delta=1.0) + 0.5 * relu(x)"
    assert "delta=1.0" in sk.save(act, tmp_path / "mixed.json").read_text()
    assert math.isclose(float(sk.load(tmp_path / "mixed.json")(torch.zeros(1))), 3 / 32, rel_tol=1e-6)
