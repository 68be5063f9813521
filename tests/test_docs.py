"""Every example in a docstring of the zoo, of the modules and of the front page runs and prints what it says."""

import doctest
import importlib
import pkgutil
from collections.abc import Iterator

import pytest

import softknee.api
import softknee.design
import softknee.measure
import softknee.nn
import softknee.spec
import softknee.surgery
import softknee.zoo


def modules() -> Iterator[str]:
    for package in (softknee.spec, softknee.zoo, softknee.design, softknee.nn, softknee.surgery, softknee.measure):
        yield package.__name__
        yield from (found.name for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."))
    yield softknee.api.__name__


MODULES = list(modules())


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str):
    module = importlib.import_module(name)
    result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0
    if name.startswith("softknee.zoo."):
        assert result.attempted > 0, "A file of the zoo shows its function in an example."


def test_there_are_examples():
    assert len(MODULES) > 12
