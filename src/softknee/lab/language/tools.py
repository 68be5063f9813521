"""Packages that the language experiments need, asked for when they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ...errors import MissingToolError


def transformers(what: str) -> Any:
    """The package transformers, or the sentence that says how to get it."""
    return _tool("transformers", what, "pip install 'softknee[text]'")


def trl(what: str) -> Any:
    """The package trl, or the sentence that says how to get it, or how to do without."""
    return _tool("trl", what, "pip install 'softknee[preference]'; or take the backend 'own', which needs nothing more")


def _tool(name: str, what: str, cure: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise MissingToolError(
            f"{what} needs the package {error.name or name!r}, which is not installed. Install it with: {cure}."
        ) from error
