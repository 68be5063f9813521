"""Every example in a docstring of the package runs and prints what it says."""

import doctest
import importlib
import importlib.util
from pathlib import Path

import pytest
import torch

import softknee

FOLDER = Path(softknee.__file__).parent
MODULES = sorted(
    ".".join(("softknee", *path.relative_to(FOLDER).with_suffix("").parts)).removesuffix(".__init__")
    for path in FOLDER.rglob("*.py")
    if path.name != "__main__.py"
)
# What the extras bring that the lab and the command need.
LAB = ("typer", "rich", "sklearn", "pandas", "vl_convert", "yaml", "fsspec", "starlette", "latex2mathml")
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def is_missing(package: str) -> bool:
    return importlib.util.find_spec(package) is None


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if name.startswith(("softknee.lab", "softknee.app")) and (missing := next(filter(is_missing, LAB), None)):
        pytest.skip(f"{missing} is not installed; the extra 'lab' brings it")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "triton":
            raise
        pytest.skip("triton is not installed; torch brings it on most machines")
    monkeypatch.chdir(tmp_path)
    # The debugger of each docstring's runner, which nobody uses, would look for changes of every file read so far.
    monkeypatch.setattr("linecache.checkcache", lambda filename=None: None)
    result = doctest.testmod(module, optionflags=OPTIONS, extraglobs={"torch": torch})
    assert result.failed == 0
    if name.startswith("softknee.zoo."):
        assert result.attempted > 0, "A file of the zoo shows its function in an example."


def test_there_are_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    assert sum(bool(test.examples) for test in finder.find(importlib.import_module("softknee.spec.text"))) > 0
    assert len(MODULES) > 100
