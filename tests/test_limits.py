"""with_limit: what algebra shows to be homogeneous has its limit at every scale and can be hardened."""

import math

import pytest
import torch

import softknee as sk
from softknee.errors import DefinitionError, FormulaError, ParameterError
from softknee.surgery import Hardener, relu_ize_
from softknee.surgery.hardening import hard_module

GATE = "let(with_limit(x * normal_cdf(b * x + c), relu, knob=b), b=1.3, c='0.2:real')"
JOIN = "let(with_limit(join(0, x, between=(-a, b), smoothness=2), relu, knob=(a, b)), a=1.5, b=0.25)"


@pytest.mark.parametrize(("text", "knob", "toward"), [(GATE, "b", math.inf), (JOIN, ("a", "b"), 0.0)])
def test_the_limit_is_that_of_every_scale(text: str, knob: str | tuple[str, ...], toward: float) -> None:
    act = sk.get(text)
    assert (act.limit, act.knob, act.toward) == ("relu", knob, toward)
    x = torch.linspace(-9, 9, 201, dtype=torch.float64)
    scale = 7.0
    knobs = {p: act.param(p).default for p in act.knobs}
    softer = {p: value / scale if toward == math.inf else scale * value for p, value in knobs.items()}
    torch.testing.assert_close(act(scale * x, **softer), scale * act(x))
    harder = {p: value * 1e6 if toward == math.inf else value / 1e6 for p, value in knobs.items()}
    torch.testing.assert_close(act(x, **harder), x.relu(), rtol=0, atol=2e-6)
    assert sk.get(act.recipe).limit == "relu"


@pytest.mark.parametrize("text", [GATE, JOIN])
def test_the_proved_distance_scales_with_the_knob(text: str) -> None:
    pytest.importorskip("flint", reason="the extra 'design' brings it")
    act = sk.get(text)
    times = {p: act.param(p).default * (4 if act.toward == math.inf else 1 / 4) for p in act.knobs}
    soft, hard = sk.design.certify(act), sk.design.certify(act, **times)
    assert soft.distance is not None
    assert hard.distance is not None
    assert float(soft.distance.upper) / float(hard.distance.upper) == pytest.approx(4, rel=1e-9)


def test_it_is_hardened_and_replaced() -> None:
    pytest.importorskip("flint", reason="the extra 'design' brings it")
    torch.manual_seed(0)
    for text in (GATE, JOIN):
        model = torch.nn.Sequential(torch.nn.Linear(3, 8), sk.nn.make(text), torch.nn.Linear(8, 2))
        hardener = Hardener(model, 4, start=0.25, tolerance=1e-3)
        for _ in range(4):
            hardener.step()
        x = torch.randn(64, 3)
        soft = model(x)
        assert isinstance(hard_module(model[1]), torch.nn.ReLU)
        relu_ize_(model)
        assert isinstance(model[1], torch.nn.ReLU)
        torch.testing.assert_close(model(x), soft, rtol=0, atol=5e-3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("let(with_limit(x * sigmoid(b * x + x), relu, knob=b), b=1.0)", "at every scale"),
        ("let(with_limit(b * x * sigmoid(x), relu, knob=b), b=1.0)", "at every scale"),
        ("let(with_limit(2 * x * sigmoid(b * x), relu, knob=b), b=1.0)", "far from 0"),
        ("let(with_limit(x * sigmoid(-b * x), relu, knob=b), b=1.0)", "far from 0"),
        ("let(with_limit(x * sigmoid(b * x), gelu, knob=b), b=1.0)", "'gelu' was given"),
        ("let(with_limit(x * sigmoid(b * x), relu, knob=q), b=1.0)", "q"),
        ("let(with_limit(x * sigmoid(b * x), relu), b=1.0)", "needs knob"),
    ],
)
def test_what_has_another_limit_is_refused(text: str, words: str) -> None:
    with pytest.raises(FormulaError, match=words):
        sk.get(text)


def test_of_a_definition() -> None:
    own = sk.design.definition("softplus(b * x) / b", params={"b": 1.0})
    assert sk.design.with_limit(own, knob="b").limit == "relu"
    with pytest.raises(DefinitionError, match="formula in x"):
        sk.design.with_limit(own.derivative(1), knob="b")
    with pytest.raises(ParameterError, match="at least one"):
        sk.design.with_limit(own, knob=())
