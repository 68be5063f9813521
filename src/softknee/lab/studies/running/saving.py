"""The state of a trial as bytes: one file of JSON and one of safetensors, with checksums; nothing is unpickled.

A state is a tree of mappings and lists whose leaves are tensors, numbers, text, True, False and None. The tensors go to
the second file, and their places in the tree name them.

>>> import torch
>>> saved = pack({"epoch": 3, "weights": {"a": torch.ones(2)}}, of="some trial")
>>> sorted(saved)
['state.json', 'state.safetensors']
>>> unpack(saved, of="some trial")
{'epoch': 3, 'weights': {'a': tensor([1., 1.])}}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ....errors import MissingToolError, SoftkneeError

FORMAT, SCHEMA = "softknee trial in progress", 1
TREE, TENSORS = "state.json", "state.safetensors"
_PLACE = "$tensor"
_ANEW = "Leave it out, and the trial begins anew."


class SavedError(SoftkneeError, ValueError):
    """The saved state of a trial is damaged, of another trial, or of another version."""


def pack(tree: Mapping[str, Any], *, of: str) -> dict[str, bytes]:
    """The state of the trial with the key `of` as two files by name."""
    tensors: dict[str, Tensor] = {}
    content = {"format": FORMAT, "schema": SCHEMA, "of": of, "tree": _without_tensors(tree, "", tensors)}
    weights = write_tensors(tensors)
    content["tensors"] = _digest(weights)
    text = _json(content)
    whole = json.dumps({"sha256": _digest(text), "content": content}, allow_nan=False).encode()
    return {TREE: whole, TENSORS: weights}


def unpack(saved: Mapping[str, bytes], *, of: str) -> dict[str, Any]:
    """The state that `pack` was given; a sentence where it is not whole or not of that trial."""
    for name in (TREE, TENSORS):
        if not isinstance(saved.get(name), bytes):
            raise SavedError(f"The saved state of the trial lacks {name!r}. {_ANEW}")
    try:
        found = json.loads(saved[TREE])
        content = found["content"]
        intact = found["sha256"] == _digest(_json(content))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise SavedError(f"The saved state of the trial is damaged: {TREE!r} cannot be read. {_ANEW}") from error
    if not intact or content.get("format") != FORMAT:
        raise SavedError(f"The saved state of the trial is damaged: {TREE!r} is not what was saved. {_ANEW}")
    if content["schema"] != SCHEMA:
        raise SavedError(f"The saved state has schema {content['schema']}, and this softknee reads {SCHEMA}. {_ANEW}")
    if content["of"] != of:
        raise SavedError(f"The saved state is of the trial {content['of']}, and not of {of}. {_ANEW}")
    if _digest(saved[TENSORS]) != content["tensors"]:
        raise SavedError(f"The saved state of the trial is damaged: {TENSORS!r} is not what was saved. {_ANEW}")
    return _with_tensors(content["tree"], read_tensors(saved[TENSORS]))


def write_tensors(tensors: Mapping[str, Tensor]) -> bytes:
    """A file of safetensors; the same tensors give the same bytes."""
    own = {name: one.detach().cpu().clone(memory_format=torch.contiguous_format) for name, one in tensors.items()}
    return _safetensors().save(own)


def read_tensors(content: bytes) -> dict[str, Tensor]:
    """The tensors in a file of safetensors."""
    library = _safetensors()
    try:
        return library.load(content)
    except Exception as error:  # the library raises several kinds for what is no safetensors file
        raise SavedError(f"The tensors of the trial are no file of safetensors ({error}). {_ANEW}") from error


def _without_tensors(value: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        tensors[place] = value
        return {_PLACE: place}
    if isinstance(value, Mapping):
        return {key: _without_tensors(one, f"{place}/{key}", tensors) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_tensors(one, f"{place}/{index}", tensors) for index, one in enumerate(value)]
    return value


def _with_tensors(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if value.keys() == {_PLACE}:
            return tensors[value[_PLACE]]
        return {key: _with_tensors(one, tensors) for key, one in value.items()}
    return [_with_tensors(one, tensors) for one in value] if isinstance(value, list) else value


def _json(content: Any) -> bytes:
    return json.dumps(content, sort_keys=True, allow_nan=False).encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ModuleNotFoundError as error:
        raise MissingToolError(
            "What a trial keeps is written with the package 'safetensors', which is not installed. Install it with: "
            "pip install safetensors"
        ) from error
    return safetensors.torch
