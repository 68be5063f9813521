"""The surfaces of random networks: their numbers against plain arithmetic, roughness against closed forms."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from softknee.errors import ParameterError
from softknee.lab.surface import (
    WIDTHS,
    Setting,
    axis,
    compute,
    heights,
    named,
    network,
    paper_rows,
    roughness,
    rows_of,
    split_texts,
    titles,
)

POINTS = 9


def by_hand(setting: Setting, seed: int) -> np.ndarray:
    """The definition, one point after the other."""
    drawn = torch.Generator().manual_seed(seed)
    sizes = (2, *WIDTHS, 1)
    weights = [torch.empty(n, m, dtype=torch.float64).normal_(generator=drawn).numpy() for m, n in pairwise(sizes)]
    if setting.norm == "weight":
        weights = [setting.v * w / np.sqrt((w * w).sum(1, keepdims=True)) for w in weights]
    result = np.empty((POINTS, POINTS))
    for i, first in enumerate(np.linspace(-6, 6, POINTS)):
        for j, second in enumerate(np.linspace(-6, 6, POINTS)):
            a = np.array([first, second])
            for w in weights[:-1]:
                a = w @ a
                if setting.norm == "layer":
                    a = setting.v * (a - a.mean()) / np.sqrt(a.var() + 1e-5)
                if setting.activation == "relu":
                    a = np.maximum(a, 0)
                elif setting.activation == "smelu(beta=0.5)":
                    a = np.where(np.abs(a) < 0.5, (a + 0.5) ** 2 / 2, np.maximum(a, 0))
                if setting.clip is not None:
                    a = np.clip(a, -setting.clip, setting.clip)
            result[i, j] = (weights[-1] @ a)[0]
    return result


@pytest.mark.parametrize("activation", ["relu", "smelu(beta=0.5)", "linear"])
@pytest.mark.parametrize(("norm", "v", "clip"), [("weight", 2.0, None), ("layer", 0.5, 0.4), ("none", 1.0, 6.0)])
def test_heights_are_those_of_the_definition(activation: str, norm: str, v: float, clip: float | None) -> None:
    setting = Setting(activation, norm=norm, v=v, clip=clip)
    actual = heights(setting, seed=3, points=POINTS)
    wanted = by_hand(setting, 3)
    np.testing.assert_allclose(actual.numpy(), wanted, rtol=1e-9, atol=1e-10 * np.abs(wanted).max())
    assert actual.dtype == torch.float64
    single = heights(setting, seed=3, points=POINTS, dtype=torch.float32)
    assert single.dtype == torch.float32
    # Without norm a clipped network multiplies rounding by its slopes, layer after layer.
    if norm != "none":
        np.testing.assert_allclose(single.double().numpy(), wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())


def test_every_function_and_norm_has_the_same_weights() -> None:
    settings = (Setting("relu"), Setting("gelu", norm="none"), Setting("linear", norm="layer", v=2.0, clip=1.0))
    kept = [[p for name, p in network(setting, seed=1).named_parameters() if p.dim() == 2] for setting in settings]
    for other in kept[1:]:
        assert all(torch.equal(a, b) for a, b in zip(kept[0], other, strict=True))
    assert [tuple(item.shape) for item in kept[0]] == [(256, 2), (128, 256), (64, 128), (32, 64), (16, 32), (1, 16)]
    assert torch.cat([value.flatten() for value in kept[0]]).std().item() == pytest.approx(1.0, abs=0.02)
    assert not heights(settings[0], seed=1, points=5).equal(heights(settings[0], seed=2, points=5))


def test_the_value_of_the_norm_only_scales_relu_and_linear_networks() -> None:
    for activation in ("relu", "linear"):
        one = heights(Setting(activation), seed=0, points=POINTS)
        torch.testing.assert_close(heights(Setting(activation, v=2.0), seed=0, points=POINTS), 2.0**6 * one)
        layered = [heights(Setting(activation, norm="layer", v=v), seed=0, points=10) for v in (1.0, 3.0)]
        torch.testing.assert_close(layered[1], 3.0 * layered[0], rtol=1e-4, atol=1e-4)  # but for the 1e-5 in the root
    smooth = [heights(Setting("smelu(beta=1)", v=v), seed=0, points=POINTS) for v in (1.0, 2.0)]
    assert not torch.allclose(smooth[1], 2.0**6 * smooth[0], rtol=0.05)


def test_scaling_the_input_is_scaling_the_width() -> None:
    x = torch.cartesian_prod(axis(5), axis(5))
    wide, narrow = (network(Setting(f"smelu(beta={beta})"), seed=0) for beta in (2, 0.5))
    torch.testing.assert_close(wide(4 * x), 4 * narrow(x))


# -- roughness ----------------------------------------------------------------------------------------------


def grid(points: int) -> tuple[torch.Tensor, torch.Tensor, float]:
    along = torch.linspace(-1, 1, points, dtype=torch.float64)
    x, y = torch.meshgrid(along, along, indexing="ij")
    return x, y, 2 / (points - 1)


def test_a_plane_is_not_rough_and_a_flat_one_neither() -> None:
    x, y, step = grid(11)
    result = roughness(3 * x - 2 * y + 1, step=step)
    assert result.kink == pytest.approx(0, abs=1e-12)
    assert result.bending == pytest.approx(0, abs=1e-12)
    assert (result.extrema, result.low, result.high) == (0, -4.0, 6.0)
    assert result.steepest == pytest.approx(3)
    still = roughness(torch.ones(5, 5), step=0.5)
    assert (still.kink, still.bending, still.extrema, still.steepest) == (0, 0, 0, 0)


def test_a_paraboloid_by_its_closed_form() -> None:
    x, y, step = grid(41)
    result = roughness((x**2 + y**2) / 2, step=step)
    slopes = np.arange(-1 + step / 2, 1, step)
    assert result.kink == pytest.approx(step / slopes.max(), rel=1e-9)
    assert result.bending == pytest.approx(1 / math.sqrt((slopes**2).mean()), rel=1e-9)
    assert result.extrema == 1


def test_a_kink_stays_as_the_grid_gets_finer_and_a_curve_does_not() -> None:
    folds, curves = [], []
    for points in (41, 81):
        x, y, step = grid(points)
        folds.append(roughness(x.abs() + y, step=step))
        curves.append(roughness(torch.cosh(x) + y, step=step))
    assert folds[0].kink == pytest.approx(2)
    assert folds[1].kink == pytest.approx(2)
    assert folds[1].bending / folds[0].bending == pytest.approx(math.sqrt(2), rel=0.02)
    assert curves[1].kink / curves[0].kink == pytest.approx(0.5, rel=0.03)
    assert curves[1].bending / curves[0].bending == pytest.approx(1, rel=0.03)


def test_hills_and_valleys_are_counted() -> None:
    x, y, step = grid(121)
    egg_box = torch.cos(4 * math.pi * x) * torch.cos(4 * math.pi * y)
    # Extrema inside at multiples of 1/4, seven along each side; all of the lattice is one.
    assert roughness(egg_box, step=step).extrema == 49
    lifted, plain = roughness(1000 * egg_box - 7, step=step), roughness(egg_box, step=step)
    assert lifted.kink == pytest.approx(plain.kink)
    assert lifted.bending == pytest.approx(plain.bending)
    assert lifted.extrema == 49


def test_relu_has_kinks_and_wide_smelu_has_none() -> None:
    rows = rows_of(["relu", "smelu(beta=2)"])
    coarse, fine = (compute(rows, points=points).measures[0] for points in (41, 81))
    assert fine[0].kink > 0.7 * coarse[0].kink
    assert fine[1].kink < 0.65 * coarse[1].kink
    assert fine[0].kink > 5 * fine[1].kink


# -- what is drawn ------------------------------------------------------------------------------------------


def test_lists_of_activations_and_rows() -> None:
    assert split_texts("relu,selu(lam=1, beta=2), gelu ,") == ("relu", "selu(lam=1, beta=2)", "gelu")
    assert [len(row) for row in rows_of(["relu"] * 6)] == [3, 3]
    assert [len(row) for row in rows_of(["relu"] * 13)] == [4, 4, 4, 1]
    rows = rows_of(["relu", "linear"], norms=("weight", "none"), vs=(1.0, 2.0), clips=(None, 6.0))
    assert [(row[0].norm, row[0].v, row[0].clip) for row in rows] == [
        ("weight", 1.0, None),
        ("weight", 1.0, 6.0),
        ("weight", 2.0, None),
        ("weight", 2.0, 6.0),
        ("none", 1.0, None),
        ("none", 1.0, 6.0),
    ]
    assert {number: [len(row) for row in paper_rows(number)] for number in (2, 5, 6, 7)} == {
        2: [6, 6],
        5: [6, 6, 6, 6],
        6: [6, 6],
        7: [6, 6, 6],
    }


def test_each_place_says_only_what_tells_surfaces_apart() -> None:
    assert named("generalized_smelu(alpha=1, g_minus=0.1)") == "generalized smelu, α = 1, g₋ = 0.1"
    caption, labels, own = titles(rows_of(["relu", "gelu"], clips=(None, 6.0)))
    assert caption == "weight norm, v = 1"
    assert labels == ["no clipping", "clipped at 6"]
    assert own == [["relu", "gelu"], ["relu", "gelu"]]
    caption, labels, own = titles(paper_rows(7))
    assert caption == "no clipping"
    assert labels == ["no activation", "relu", "smelu, β = 0.5"]
    assert own[0][3] == "layer norm, v = 0.5"
    assert titles([[Setting("relu", norm="none")]]) == ("", [""], [["relu, no norm, no clipping"]])


def test_refusals() -> None:
    for words, arguments in (
        ("Did you mean 'layer'", {"norm": "layers"}),
        ("above 0", {"v": 0.0}),
        ("above 0", {"clip": -1.0}),
        ("smelu has no 'betta'", {"activation": "smelu(betta=1)"}),
    ):
        with pytest.raises(ParameterError, match=words):
            Setting(**{"activation": "relu", **arguments})  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="not finite"):
        compute([[Setting("linear", v=1e30)]], points=3, dtype="f32")
    with pytest.raises(ParameterError, match="at least 3 points"):
        compute([[Setting("relu")]], points=2)
    with pytest.raises(ParameterError, match="too many"):
        rows_of(["relu"] * 7, vs=(1.0, 2.0))
    with pytest.raises(ParameterError, match="figures 2, 5, 6, 7"):
        paper_rows(3)
