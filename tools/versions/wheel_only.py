"""A pytest plugin: the tests stop before the first one unless softknee is the one that is installed."""

import sys
from pathlib import Path

import pytest

import softknee


def pytest_sessionstart(session: pytest.Session) -> None:
    """In every worker, as each imports the package for itself."""
    home = Path(softknee.__file__).resolve()
    if not home.is_relative_to(Path(sys.prefix).resolve()):
        raise pytest.UsageError(f"softknee was imported from {home}, and not from the wheel in {sys.prefix}.")
