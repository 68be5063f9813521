"""The tools of the deploy checks: each is optional, and what cannot run says why in the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import Any, TypeVar

from ...errors import MissingToolError
from ...measure import without_paths

T = TypeVar("T")
PIP = "pip install 'softknee[deploy]'"
# The distribution of each module, where they differ.
_DISTRIBUTIONS = {"torch_pruning": "torch-pruning"}
_LONGEST_REASON = 400


@dataclass(frozen=True, kw_only=True)
class NotRun:
    """A check that has no result, and the reason as a sentence."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A tool that does not take the model, in its own words."""

    tool: str
    message: str

    @property
    def sentence(self) -> str:
        """The refusal in words."""
        return f"{self.tool} refuses this network: {self.message}"


def need(module: str, *, what: str) -> Any:
    """An optional module, or a sentence with the command that installs it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = _DISTRIBUTIONS.get((error.name or module).partition(".")[0], (error.name or module).partition(".")[0])
        raise MissingToolError(
            f"{what} needs the package {package!r}, which is not installed. Install it with: {PIP}"
        ) from error


def attempt(call: Callable[[], T], *, what: str) -> T | NotRun:
    """What a check gives, or why it gave nothing: a missing tool, or the tool's own failure."""
    try:
        return call()
    except MissingToolError as error:
        return NotRun(reason=str(error))
    except Exception as error:  # a tool of others may fail on a model in any way, and the other checks still count
        return NotRun(reason=f"{what} failed: {words(error)}.")


def words(error: BaseException) -> str:
    """An error as part of a sentence: its kind and its first line, without places on a disk."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")
    return without_paths(f"{type(error).__name__}: {first}")[:_LONGEST_REASON].rstrip(". ")


def tool_versions() -> dict[str, str]:
    """The versions of what a record does not name by itself."""
    found = {}
    for name in ("torch-pruning", "maraboupy", "onnxscript", "safetensors"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
