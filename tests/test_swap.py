"""swap_: what is meant is replaced by another function, everywhere or nowhere, and nothing else changes."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import softknee as sk
from softknee.surgery.modules import activation_modules
from surgery_helpers import X, mlp, snapshot


class Mine(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


class Odd(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x)


def many() -> nn.Sequential:
    """At 1, 3, ...: GELU, its tanh form, SiLU, quick GELU, ReLU, CELU, tanh, a stranger."""
    return mlp(nn.GELU(), nn.GELU("tanh"), nn.SiLU(), Mine(), nn.ReLU(inplace=True), nn.CELU(), nn.Tanh(), Odd())


def changed(report: Any) -> list[str]:
    return [site.path for site in report.changed]


# -- what is replaced ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replacing", "wanted"),
    [
        (None, [1, 3, 5, 7, 9, 11]),
        ("gelu", [1, 3]),
        ("gelu_tanh", [3]),
        ("silu", [5]),
        ("swish", [5, 7]),
        ("relu", [9]),
        ("celu", [11]),
        ("elu", [11]),
        ("tanh", [13]),
        ("Odd", [15]),
        ("Mine", [7]),
        (Odd, [15]),
        (nn.GELU, [1, 3]),
        (nn.Module, [1, 3, 5, 7, 9, 11, 13, 15]),
        (["gelu", nn.Tanh], [1, 3, 13]),
        (("gelu_tanh", "Odd"), [3, 15]),
    ],
)
def test_replacing(replacing: Any, wanted: list[int]) -> None:
    report = sk.swap_(many(), "srelu", replacing=replacing, dry_run=True)
    assert changed(report) == [str(item) for item in wanted]
    left = {site.path: site.reason for site in report.skipped}
    assert sorted([*changed(report), *left], key=int) == [str(value) for value in range(1, 16, 2)]
    assert all(reason.endswith(".") for reason in left.values())


def test_own_definitions_are_replaced_by_name_or_as_they_are() -> None:
    knee = sk.design.mollify("relu", "biweight")
    model = mlp(sk.nn.make(knee), sk.nn.SReLU(), sk.nn.Swish(beta=2.0), sk.nn.SiLU())
    for replacing, wanted in (
        (knee, ["1"]),
        (knee.name, ["1"]),
        ("srelu", ["3"]),
        ("silu", ["7"]),
        ("swish", ["5", "7"]),
    ):
        assert changed(sk.swap_(model, "relu", replacing=replacing, dry_run=True)) == wanted


def test_where() -> None:
    for where, wanted in (
        ("1", ["1"]),
        ("[13]", ["1", "3"]),
        (["3", "5"], ["3", "5"]),
        (lambda site: site.activation == "silu", ["5"]),
    ):
        report = sk.swap_(many(), "srelu", where=where)
        assert changed(report) == wanted
        assert {item.path for item in report.skipped} >= {"9"}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"where": "blocks.*"}, r"^where='blocks\.\*' matches none of the 8 activations of Sequential\. Did you mean"),
        ({"where": ["a", "b"]}, r"^where=\['a', 'b'\] matches none"),
        ({"where": lambda site: False}, r"^The function where= matches none"),
        ({"where": 3}, "where takes a pattern .* and int was given"),
        ({"where": ["1", 3]}, "where takes a pattern .* and int was given"),
        ({"replacing": "gleu"}, r"no activation here that is 'gleu': it computes .*Did you mean 'gelu'"),
        ({"replacing": "gellu"}, r"Did you mean 'gelu' or '(?!gelu')"),
        ({"replacing": "mish"}, r"no activation here that is 'mish'[^?]* Give example="),
        ({"replacing": nn.Mish}, "no activation here that is Mish"),
        ({"replacing": 3}, "replacing takes the name of a function or a class.* int was given"),
        ({"replacing": []}, "with nothing in it"),
        ({"where": "13"}, r"nothing that is replaced unasked: it computes tanh\. Name what to replace, such as"),
        ({"activation": "rleu"}, "There is no activation named 'rleu'. Did you mean 'relu'"),
        (
            {"activation": nn.ReLU},
            r"takes the new activation by name or as a definition, and the class ReLU was given;",
        ),
        ({"dleta": 0.1}, "has no parameter 'dleta'.*Did you mean 'delta'"),
        ({"delta": -1.0}, "delta must be"),
        (
            {"delta": "rising"},
            r"delta starts at a number, a list, or one of uniform, increasing, decreasing, not 'rising'",
        ),
        ({"delta": [0.1, 0.2]}, "delta was given 2 values for 6 sites; give one for each"),
        ({"learn": "gamma"}, "no parameter 'gamma' to learn"),
        ({"learn": 3}, "learn takes the name of a parameter, several, or True for all, and int was given"),
        ({"per": "row"}, "per must be 'layer', 'channel' or 'neuron'"),
        ({"example": torch.zeros(2, 7)}, "The example does not fit Sequential: RuntimeError"),
        (
            {"activation": "shifted_smelu", "shift": "increasing"},
            "usually starts at 0, from where 'increasing' leads nowhere",
        ),
        ({"delta": [0.1, 0.2, -1.0, 0.4, 0.5, 0.6]}, "delta must be"),
        ({"activation": "squaf", "grid": [-1.0, 0.0, 1.0], "z": "fit"}, "z='fit' needs a uniform grid"),
        ({"per": "channel", "where": "3", "example": (X, X)}, "does not fit Sequential"),
    ],
)
def test_bad_input_changes_nothing(asked: dict[str, Any], message: str) -> None:
    model = many()
    before = snapshot(model)
    asked = {"activation": "srelu", **asked}
    with pytest.raises(sk.SoftkneeError, match=message) as caught:
        sk.swap_(model, **asked)
    assert str(caught.value)[-1] in ".?"
    assert snapshot(model) == before


def test_models_that_cannot_be_changed() -> None:
    for model, message in (
        (nn.Linear(2, 2), "Linear has no activation that can be replaced. Give example="),
        (nn.GELU(), r"is itself an activation \(gelu\)"),
        (sk.nn.SReLU(), r"is itself an activation \(srelu\)"),
        (nn.DataParallel(mlp(nn.ReLU())), r"already wrapped \(DataParallel\).*swap first, then wrap"),
        ("model", "swap_: a torch.nn.Module is needed, and str was given; build or load the model"),
    ):
        with pytest.raises(sk.InputError, match=message):
            sk.swap_(model, "srelu", example=X if isinstance(model, torch.fx.GraphModule) else None)


class Called(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.extra = nn.Linear(6, 6), False

    def forward(self, x: Tensor) -> Tensor:
        if self.extra:
            x = F.gelu(x)
        return F.relu(self.fc(x))


def test_calls_that_the_example_does_not_reach_are_said() -> None:
    model = nn.Sequential(Called(), nn.ReLU())
    report = sk.swap_(model, "srelu", example=X)
    assert changed(report) == ["0.relu", "1"]
    (left,) = report.skipped
    assert left.path == "0.gelu"
    assert left.reason == (
        "It is called in Called.forward as 'F.gelu(x)', which the example, run in eval mode, did not reach; give one "
        "that does, or make it a module of its own."
    )
    report.undo()
    report = sk.swap_(model, "srelu")
    assert changed(report) == ["1"]
    assert [site.path for site in report.skipped] == ["0.gelu", "0.relu"]
    assert all(item.reason.endswith("; give example= to change it, too.") for item in report.skipped)
    with pytest.raises(sk.InputError, match=r"Nothing of Called can be changed.*give example= to change it, too"):
        sk.swap_(Called(), "srelu")
    # After a swap the source still reads as before: what was replaced is not to be reported as left.
    model = nn.Sequential(Called(), nn.ReLU())
    sk.swap_(model, "srelu", example=X)
    assert [value.path for value in sk.swap_(model, "smelu").skipped] == ["0.gelu"]


class OneLine(Called):
    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(self.fc(x)) if self.extra else F.relu(self.fc(x).relu())


def test_of_two_calls_in_one_line_the_one_that_did_not_run_is_said() -> None:
    report = sk.swap_(OneLine(), "srelu", example=X)
    assert (changed(report), [site.path for site in report.skipped]) == (["relu", "relu_2"], ["gelu"])


# -- all or nothing ------------------------------------------------------------------------------------------------


class Halves(nn.Module):
    """Runs with any activation that gives back as many numbers as it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.act = nn.Linear(6, 6), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.fc(x))
        return self.act(self.fc(y)) + self.act(self.fc(x))


def glu(x: Tensor) -> Tensor:
    return F.glu(x)


def test_a_model_that_no_longer_runs_is_put_back() -> None:
    model = Halves()
    before, kind = snapshot(model), type(model)
    half = sk.spec.Rowwise("halving", glu, size_out=lambda n: n // 2)
    with pytest.raises(
        sk.InputError, match=r"^With halving in place, Halves no longer runs on the example \(RuntimeError"
    ):
        sk.swap_(model, half, example=X)
    assert snapshot(model) == before
    assert type(model) is kind


class Sealed(nn.Module):
    """Cannot be given another class, and so its calls cannot be replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def __init_subclass__(cls) -> None:
        raise TypeError("sealed")

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.fc(x))


def test_when_the_second_of_three_fails_the_first_is_put_back() -> None:
    model = nn.Sequential(Called(), Sealed(), nn.ReLU())
    before, kind = snapshot(model), type(model[0])
    with pytest.raises(sk.InputError, match=r"class of Sealed cannot be changed \(sealed\), so that 'F.relu\(self.fc"):
        sk.swap_(model, "srelu", example=X)
    assert (snapshot(model), type(model[0])) == (before, kind)
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Unflatten(1, (2, 3)), nn.ReLU(), nn.Linear(3, 3), nn.ReLU())
    before = snapshot(model)
    with pytest.raises(sk.InputError, match="what reaches '3', and it cannot be told"):
        sk.swap_(model, "srelu", learn=True, per="channel", example=X)
    assert snapshot(model) == before


def test_dry_run_changes_nothing() -> None:
    for model, example in ((many(), None), (many(), X), (Halves(), X), (Called(), X)):
        before = snapshot(model)
        report = sk.swap_(model, "srelu", learn=True, example=example, dry_run=True)
        assert report.dry_run
        assert "(dry run)" in str(report)
        assert report.changed
        assert snapshot(model) == before
        with pytest.raises(sk.InputError, match="report is of a dry run: nothing was changed"):
            report.undo()


# -- numbers over depth --------------------------------------------------------------------------------------------


def test_values_over_depth() -> None:
    def lambdas(value: Any, **more: Any) -> list[float]:
        model = mlp(*(nn.GELU() for _ in range(5)))
        sk.swap_(model, "lambda_gelu", lam=value, **more)
        return [round(module.lam.item(), 6) for module in activation_modules(model).values()]

    assert lambdas(1.5) == [1.5] * 5
    assert lambdas([1.1, 1.2, 1.3, 1.4, 1.5]) == [1.1, 1.2, 1.3, 1.4, 1.5]
    # The paper: lambda monotone over depth, between 1 and 2; to be learned it must lie above 1.
    assert lambdas("uniform") == [1.0] * 5
    assert lambdas("increasing") == [1.0, 1.25, 1.5, 1.75, 2.0]
    assert lambdas("decreasing") == [2.0, 1.75, 1.5, 1.25, 1.0]
    assert lambdas("uniform", learn=True) == [1.01] * 5
    up = lambdas("increasing", learn="lam", temperature=0.5)
    assert (up[0], up[-1]) == (1.01, 2.0)
    assert up == sorted(up)
    assert lambdas("decreasing", learn=["lam"]) == up[::-1]


def test_groups_variants_files_and_engines(tmp_path: Path) -> None:
    mixed = sk.design.mollify("relu", ("box", "triangle"))
    model = mlp(nn.GELU())
    report = sk.swap_(model, mixed, learn="weights", weights=[0.25, 0.75], delta=0.5)
    assert torch.allclose(model[1].weights, torch.tensor([0.25, 0.75]))
    report.undo()
    sk.swap_(model, "gelu", approximate="tanh").undo()
    path = sk.save(sk.design.definition("x * sigmoid(b * x)", params={"b": 2.0}, name="knee"), tmp_path / "knee.json")
    for name in (str(path), path):
        report = sk.swap_(model, name)
        assert torch.allclose(model[1](X), X * torch.sigmoid(2 * X))
        report.undo()
    with pytest.raises(sk.ParameterError, match="weights takes 2 numbers"):
        sk.swap_(model, mixed, weights=[1.0])


@pytest.mark.parametrize("act", [nn.GELU(), nn.PReLU(init=0.4), sk.nn.SReLU(delta=1.5), Odd()])
@pytest.mark.parametrize("weights", ["gaussian", "laplacian"])
def test_squaf_starts_nearer_when_it_is_fitted(act: nn.Module, weights: str) -> None:
    x = 0.5 * torch.randn(64, 6, generator=torch.Generator().manual_seed(0))
    grid = {"k": 16, "q": 0.25, "alpha": "auto", "weights": weights, "replacing": nn.Module}
    fitted = sk.swap_(mlp(act), "squaf", z="fit", example=x, **grid)
    sampled = sk.swap_(mlp(act), "squaf", z=copy.deepcopy(act).double(), example=x, **grid)
    assert fitted.output_change is not None
    assert sampled.output_change is not None
    assert 0 < fitted.output_change < sampled.output_change


class Calling(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.fc, self.act = nn.Linear(6, 6), function

    def forward(self, x: Tensor) -> Tensor:
        return self.act(F.tanhshrink(F.gelu(self.fc(x))))


def test_squaf_is_fitted_to_functions_too() -> None:
    torch.manual_seed(1)  # with one draw of six, more than 2 % of the output are left
    x = 0.5 * torch.randn(64, 6)
    model = Calling(torch.sin)  # softknee does not know it, and can ask it
    model.act = lambda x: torch.sin(x)
    grid = {"k": 16, "q": 0.25, "alpha": "auto", "example": x}
    near = sk.swap_(model, "squaf", z="fit", where=["gelu", "act"], replacing=["gelu", "<lambda>"], **grid)
    assert [site.path for site in near.changed] == ["gelu", "act"]
    assert near.relative_change is not None
    assert near.relative_change < 0.02
    with pytest.raises(sk.ParameterError, match=r"cannot be fitted to 1 .*, because .*Leave the site out"):
        sk.swap_(mlp(nn.PReLU(6)), "squaf", z="fit", where="1", replacing=nn.PReLU, **grid)
    with pytest.raises(sk.ParameterError, match="needs one q and one alpha"):
        sk.swap_(mlp(nn.GELU()), "squaf", z="fit", k=4, q=torch.full((6,), 0.5), alpha=5.0, per="channel", example=x)


class Ragged(nn.Module):
    """Gives as many rows as the activation leaves above 0.5, and one that is not finite."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.act(x * self.scale)
        return y[y > 0.5], torch.full((2,), -torch.inf)


def test_outputs_of_other_shapes_and_infinite_ones() -> None:
    assert sk.swap_(Ragged(), "relu", example=X).output_change == 0.0
    report = sk.swap_(Ragged(), "smelu", beta=4.0, example=X)
    assert report.output_change == math.inf
    assert "Largest change of an output on the example: inf" in str(report)


def test_output_change_is_the_largest_difference() -> None:
    model = many()
    before = model(X)
    report = sk.swap_(model, "smelu", beta=2.0, example=X)
    wanted = (model(X).double() - before.double()).abs().max().item()
    assert report.output_change == pytest.approx(wanted, rel=1e-12)
    assert report.relative_change == pytest.approx(wanted / before.abs().max().item(), rel=1e-6)
    assert f"{wanted:.3g}" in str(report)
    assert math.isfinite(wanted)
    assert json.dumps(str(report))
    assert copy.copy(report).changed == report.changed
