"""Every example in a docstring of the package runs and prints what it says."""

import doctest
import importlib
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
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        if not name.startswith(("softknee.lab", "softknee.app")):
            raise
        pytest.skip(f"{error.name} is not installed; {name} needs it")
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(module, optionflags=OPTIONS, extraglobs={"torch": torch})
    assert result.failed == 0
    if name.startswith("softknee.zoo."):
        assert result.attempted > 0, "A file of the zoo shows its function in an example."


def test_there_are_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    assert sum(bool(test.examples) for test in finder.find(importlib.import_module("softknee.spec.text"))) > 0
    assert len(MODULES) > 100
