"""Tiny finished studies of pictures, functions and clusters, for the figures that are drawn of them."""

import tempfile
from pathlib import Path

from softknee.lab.fits import Run, read_run
from softknee.lab.studies.reading import read_recipe
from softknee.lab.studies.runner import run_study
from study_runs import Silent

_SQUAF = "{name: squaf, k: 2, q: 0.5, alpha: 5.0, z: random, learn: true}"
_EPOCHS = {"clusters": 20}  # one batch each; until several classes are told apart


def _recipe(name: str, data: str, model: str, activations: str, more: str) -> str:
    epochs = _EPOCHS.get(name, 1)
    return (
        f"name: {name}\ndata: {{set: {data}}}\nmodel: {model}\nactivations: [{activations}]\nseeds: 3\nmeasures: []\n"
        f"training: {{optimizer: adam, learning_rate: 0.02, epochs: {epochs}, batch: 40000}}\n{more}"
    )


RECIPES = {
    name: _recipe(name, data, model, activations, more)
    for name, data, model, activations, more in (
        ("camera", "camera", "{build: mlp, arguments: {hidden: [2]}}", f"relu, gelu, {_SQUAF}", ""),
        ("page", "page", "{build: mlp, arguments: {hidden: [2]}}", f"relu, {_SQUAF}", ""),
        ("line", "sine-1d", "{build: mlp, arguments: {hidden: [2]}}", f"relu, {_SQUAF}", ""),
        ("alone", "sine-1d", "{build: alone}", _SQUAF, "keep: [predictions, models]\n"),
        ("field", "sine-2d", "{build: mlp, arguments: {hidden: [2]}}", f"relu, {_SQUAF}", ""),
        (
            "clusters",
            "clusters-3",
            "{build: mlp, arguments: {hidden: [8, 8]}}",
            f"relu, {_SQUAF}",
            "keep: [predictions, models]\n",
        ),
        (
            "grid",
            "camera",
            "{build: mlp, arguments: {hidden: [2]}}",
            ", ".join(
                f"{{name: squaf, label: q={q} h={h}, k: 2, q: {q}, alpha: {h / q**2}, z: random, learn: true}}"
                for q in (0.25, 0.5)
                for h in (1, 4)
            ),
            "keep: []\npaper: {source: a paper, values: {q=0.25 h=1: {psnr: 51.5}, q=0.5 h=4: {psnr: 24.25}}}\n",
        ),
    )
}


_FOLDER = tempfile.TemporaryDirectory()  # for all tests of this process; it goes with it


def place_of(name: str) -> Path:
    """The folder of the study of that name, trained where it is not there yet."""
    place = Path(_FOLDER.name) / name
    if not place.exists():
        run_study(read_recipe(RECIPES[name]), out=place, threads=1, display=Silent())
    return place


def finished(name: str) -> Run:
    """The study of that name, read from its files."""
    return read_run(place_of(name))
