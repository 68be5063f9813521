"""`softknee fits`: what is drawn, what is said of what is missing, the tables, and the theorem."""

import itertools
import json
import linecache
import re
import shutil
from pathlib import Path

import pytest
import torch

from fit_runs import finished, place_of
from softknee.lab.chart import png_of
from softknee.lab.fits import draw_runs, read_run
from softknee.lab.fits.drawing import constructed, fitted_to, modulus, svg_bytes, takagi, theorem_figure

GUIDE = Path(__file__).parent.parent / "docs" / "squaf.md"


def test_it_draws_what_each_study_is_about(softknee, tmp_path: Path):
    out = tmp_path / "figures"
    code, said, err = softknee("fits", str(place_of("camera")), str(place_of("page")), "--out", str(out))
    assert code == 0, err
    drawn, learned = {"camera-fits", "page-fits", "pictures", "pictures-all"}, {"camera-squaf", "page-squaf"}
    assert {path.name for path in out.iterdir()} == {
        *(f"{item}.png" for item in drawn | learned),
        *(f"{value}.svg" for value in learned),
    }
    assert "Missing" not in said
    for name in drawn | learned:
        assert f"{name}: " in said
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_other_kinds_of_studies_have_figures_of_their_own():
    result, notes = draw_runs([finished(name) for name in ("grid", "alone", "line", "clusters")])
    assert set(result) == {
        "grid-grid",
        "alone-squaf",
        "line-squaf",
        "sine-1d-curves",
        "clusters-regions",
        "clusters-squaf",
    }
    assert notes == ()
    for name in ("grid-grid", "sine-1d-curves"):
        assert png_of(result[name].figure) == png_of(result[name].figure)
        assert svg_bytes(result[name].figure) is not None


def test_a_study_of_another_kind_or_without_its_examples_gives_a_sentence(tmp_path: Path):
    other = read_run(GUIDE.parent / "quickstart")  # digits, committed without predictions
    lost = tmp_path / "lost"
    shutil.copytree(place_of("field"), lost)
    text = (lost / "study.json").read_text(encoding="utf-8")
    (lost / "study.json").write_text(text.replace('"sine-2d"', '"clusters-3"'), encoding="utf-8")
    result, notes = draw_runs([other, read_run(lost)])
    assert result == {}
    first, second = sorted(notes, key=lambda note: "other examples" in note)
    assert "is about digits, which has no picture of its own" in first
    assert "was trained on other examples than 'clusters-3' has now" in second


def test_missing_predictions_and_trials_are_said_and_the_rest_is_drawn(softknee, tmp_path: Path):
    place = tmp_path / "partly"
    shutil.copytree(place_of("camera"), place)
    labels = {
        path.stem: json.loads(path.read_text())["settings"]["trial"]["activations"][0]["label"]
        for path in (place / "trials").iterdir()
    }
    keys = {label: key for key, label in labels.items()}
    (place / "files" / f"{keys['relu']}.predictions.safetensors").unlink()
    (place / "trials" / f"{keys['gelu']}.json").unlink()
    code, out, _ = softknee("fits", str(place))
    assert code == 0
    assert "has no predictions of relu: their files are not in the folder, so they are not drawn." in out
    assert "is unfinished: 1 of 3 activations are not trained yet (gelu)." in out
    assert (place / "fits" / "camera-fits.png").is_file()
    file = place / "files" / f"{keys['squaf']}.predictions.safetensors"
    file.write_bytes(file.read_bytes()[:-4] + b"\0\0\0\0")
    _, out, err = softknee("fits", str(place))
    assert "the file 'predictions.safetensors' of squaf is not what was written there" in out + err


def test_a_study_without_predictions_gives_a_sentence(softknee, tmp_path: Path):
    place = tmp_path / "bare"
    shutil.copytree(place_of("field"), place, ignore=shutil.ignore_patterns("files"))
    code, out, _ = softknee("fits", str(place))
    assert code == 0  # the learned SQUAF is in the records
    assert "has no predictions of relu, squaf" in out
    assert "kept no predictions, so that there is no picture to show" in out
    assert [path.name for path in sorted((place / "fits").iterdir())] == ["field-squaf.png", "field-squaf.svg"]


def test_errors_are_sentences(softknee, tmp_path: Path):
    assert "Name the folder of a study" in softknee("fits")[2]
    code, _, err = softknee("fits", str(tmp_path))
    assert code == 2
    assert "holds no study" in err
    assert "choose one of these endings" in softknee("fits", "--theorem", str(tmp_path / "x.gif"))[2]


def test_the_tables_are_those_of_the_report_without_links(softknee):
    run = finished("grid")
    code, out, err = softknee("fits", "--tables", str(place_of("grid")))
    assert code == 0, err
    assert "### grid" in out
    (line,) = [item for item in out.splitlines() if item.startswith("| q=0.25 h=1 |")]
    mean = sum(next(fit for fit in run.fits if fit.label == "q=0.25 h=1").outcome.test["psnr"]) / 3
    cells = [value.strip() for value in line.strip("|").split("|")]
    assert float(cells[1]) == 51.5
    assert float(cells[2]) == pytest.approx(mean, abs=0.006)
    assert "](../trials" not in out
    assert "names no numbers of a paper" in softknee("fits", "--tables", str(place_of("camera")))[2]


# -- the theorem -------------------------------------------------------------------------------------------


def test_the_modulus_of_continuity_is_the_largest_change_over_a_distance():
    x = torch.linspace(-1, 1, 2**11 + 1, dtype=torch.float64)
    g = takagi(x)
    # Twice d(2x) is 2 d(2x): the function is half of itself at twice the place, and a distance.
    assert torch.allclose(g, (x - x.round()).abs() + takagi(2 * x) / 2, atol=1e-8)
    for q in (0.5, 0.25, 0.125, 1 / 64):
        steps = round(q * 2**10)
        largest = max(float((g[step:] - g[:-step]).abs().max()) for step in range(1, steps + 1))
        assert largest <= modulus(q) <= largest + 0.003  # looked at 1/1024 apart


def test_the_squaf_of_the_proof_is_within_its_bound_and_both_shrink():
    results = [constructed(2**power) for power in range(1, 8)]
    for (error, bound), (finer, _) in itertools.pairwise(results):
        assert error <= bound
        assert finer < 0.75 * error
    assert results[-1][1] < 0.07


def test_the_figure_has_the_fits_and_the_table_of_the_guide_their_numbers():
    tolerances = (0.4, 0.2, 0.1)
    fits = fitted_to(tolerances)
    rows = re.findall(r"^\| ([0-9.]+) \| (\d+) \| (\d+) \| ([0-9.]+) \|$", GUIDE.read_text(encoding="utf-8"), re.M)
    assert len(rows) == 5
    for tolerance, item, row in zip(tolerances, fits, rows, strict=False):
        assert item.sup <= tolerance
        x = torch.linspace(-1, 1, 5001, dtype=torch.float64)
        assert float((item(x) - takagi(x)).abs().max()) <= item.sup + 1e-3
        assert row == (f"{tolerance:g}", str(item.k), str(2 * item.k + 1), f"{item.sup:.4f}")
    last = theorem_figure(fits).figure["concat"][1]["layer"][-1]["data"]["values"]
    assert [(row["x"], row["y"]) for row in last] == [(2 * fit.k + 1, fit.sup) for fit in fits]


def test_the_blocks_of_the_guide_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) >= 7
    code = "\n".join(blocks)
    linecache.cache["<squaf.md>"] = (len(code), None, code.splitlines(keepends=True), "<squaf.md>")
    names: dict = {"__name__": "guide"}
    exec(compile(code, "<squaf.md>", "exec"), names)
    shown = capsys.readouterr().out
    assert "35 SQUAF parameters are trained" in shown
    assert "\n68\n70\n" in shown
    assert "outside the grid" in shown
    first, second = shown.splitlines()[1:3]
    assert float(first) < 1e-6  # the layer and the formula
    assert float(second) < 0.05  # the mean of the draws and the layer
    # What was learned is worth something, and the modes are of one function.
    variance = float(names["y"].var())
    assert all(loss < 0.25 * variance for loss in names["losses"].values())
    slopes = dict(re.findall(r"^(flat|linear) \S+ (\S+)$", shown, flags=re.M))
    assert float(slopes["flat"]) < 1e-4 < 0.1 < float(slopes["linear"])
    assert re.findall(r"within (\S+): k = (\d+)", shown) == [("0.4", "1"), ("0.2", "2"), ("0.1", "5"), ("0.05", "12")]
