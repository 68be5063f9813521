"""Checkpoints: a folder with `model.safetensors` (the weights) and `checkpoint.json` (how to build their model).

The JSON names a builder of a fixed table ("mlp", "cnn", "timm:NAME"), its arguments, the surgery that was done, and the
task; nothing in a checkpoint is ever run or unpickled. The weights carry a checksum, so that a file that was cut short
or exchanged is refused. A checkpoint is written to a temporary folder and then moved to its place as a whole.

>>> import tempfile, torch
>>> from softknee.lab import networks
>>> folder, sizes = tempfile.TemporaryDirectory(), {"widths": [4, 3, 2], "activation": "srelu"}
>>> net = networks.mlp(**sizes, seed=7)
>>> place = save_checkpoint(folder.name + "/small", net, builder="mlp", arguments=sizes, task={"data": "digits"})
>>> checkpoint = load_checkpoint(place)
>>> torch.equal(checkpoint.model(torch.ones(1, 4)), net(torch.ones(1, 4))), checkpoint.task
(True, {'data': 'digits'})
>>> folder.cleanup()
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from ..errors import MissingToolError, SoftkneeError, need_package
from ..files import ReadError, left_behind, read_small, write_folder
from ..surgery import Report, apply_
from ..version import VERSION
from .builders import build

FORMAT, SCHEMA = "softknee checkpoint", 1
WEIGHTS, DESCRIPTION = "model.safetensors", "checkpoint.json"
_MOST_DESCRIPTION = 16_000_000  # the plan of a surgery names every site; a large model has thousands
_KEYS: dict[str, type | tuple[type, ...]] = {
    "format": str,
    "schema": int,
    "softknee": str,
    "builder": str,
    "arguments": dict,
    "surgery": (dict, type(None)),
    "task": dict,
    "notes": str,
    "weights": dict,
}
_SHOWN = 4  # names of tensors in an error; the rest are counted


class CheckpointError(SoftkneeError, ValueError):
    """A checkpoint is damaged, of another version, or does not belong to the model that it describes."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A loaded checkpoint: the model, in eval mode on the CPU, and its description."""

    model: nn.Module
    builder: str
    arguments: Mapping[str, Any]
    surgery: Mapping[str, Any] | None
    task: Mapping[str, Any]
    notes: str
    softknee: str


# -- saving -----------------------------------------------------------------------------------------------


def save_checkpoint(
    folder: str | os.PathLike[str],
    model: nn.Module,
    *,
    builder: str,
    arguments: Mapping[str, Any],
    surgery: Report | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    task: Mapping[str, Any] | None = None,
    notes: str = "",
) -> Path:
    """Write the model's weights and how to build it; an earlier checkpoint in that place is replaced as a whole.

    Args:
        folder: the checkpoint, a folder of its own; its parent must exist.
        builder: "mlp", "cnn" or "timm:NAME".
        arguments: of the builder, in JSON's types.
        surgery: what `sk.swap_` did to the built model before these weights: its report, the file that `report.save`
            wrote, or the content of that file.
        task: what the model was trained for, such as {"data": "digits", "metric": "accuracy"}.

    Before anything is written, the model is built from the description and compared; one that differs is refused.
    """
    plan = _plan(surgery)
    content = {
        "format": FORMAT,
        "schema": SCHEMA,
        "softknee": VERSION,
        "builder": builder,
        "arguments": dict(arguments),
        "surgery": plan,
        "task": dict(task or {}),
        "notes": notes,
    }
    _json(content)
    tensors = _tensors(model)
    again = _built(builder, content["arguments"], plan, where="The checkpoint was not saved")
    if difference := _difference(again.state_dict(), tensors):
        raise CheckpointError(
            f"The checkpoint was not saved: builder {builder!r} with these arguments"
            f"{' and this surgery' if plan else ''} makes another model than the one given. {difference}"
        )
    weights = _safetensors().save(tensors, metadata={"format": "pt"})
    content["weights"] = {"sha256": hashlib.sha256(weights).hexdigest(), "bytes": len(weights)}
    return write_folder(folder, {WEIGHTS: weights, DESCRIPTION: _json(content)}, what="checkpoint")


def _plan(surgery: Report | Mapping[str, Any] | str | os.PathLike[str] | None) -> dict[str, Any] | None:
    if surgery is None or isinstance(surgery, Mapping):
        return None if surgery is None else dict(surgery)
    if isinstance(surgery, Report):
        with tempfile.TemporaryDirectory() as folder:
            return _plan(surgery.save(Path(folder, "surgery.json")))
    text = read_small(surgery, what="plan of a surgery", most_bytes=_MOST_DESCRIPTION)
    plan = _parsed(text, where=f"The plan of the surgery in '{surgery}'")
    if not isinstance(plan, dict):
        raise CheckpointError(f"The plan of the surgery in '{surgery}' is no JSON object; save it with report.save.")
    return plan


def _json(content: Mapping[str, Any]) -> bytes:
    try:
        text = json.dumps(content, indent=1, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"The checkpoint was not saved: its description holds what JSON cannot ({error}). Use text, finite "
            f"numbers, None, lists and mappings with text keys."
        ) from error
    if _lists(content) != json.loads(text):
        raise CheckpointError("The checkpoint was not saved: its description has keys that are no text.")
    return text.encode() + b"\n"


def _lists(value: Any) -> Any:
    """The value as JSON gives it back: tuples as lists."""
    if isinstance(value, Mapping):
        return {key: _lists(item) for key, item in value.items()}
    return [_lists(item) for item in value] if isinstance(value, list | tuple) else value


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """The state of the model on the CPU, each tensor with memory of its own, as the format wants it."""
    tensors = {}
    for name, value in model.state_dict().items():
        if not isinstance(value, Tensor) or value.is_meta:
            raise CheckpointError(
                f"The checkpoint was not saved: the model's state has {name!r}, which is "
                f"{'a tensor without values' if isinstance(value, Tensor) else 'a ' + type(value).__name__}; "
                f"only tensors can be kept."
            )
        tensors[name] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
    return tensors


# -- loading ----------------------------------------------------------------------------------------------


def load_checkpoint(folder: str | os.PathLike[str]) -> Checkpoint:
    """The checkpoint in a folder: built from its description, weights loaded strictly, in eval mode on the CPU."""
    place = Path(folder)
    if not place.is_dir():
        _refuse_missing(place)
    content = _description(place / DESCRIPTION)
    tensors = _read_weights(place / WEIGHTS, content["weights"])
    wrong = f"The checkpoint '{folder}' cannot be loaded"
    model = _built(content["builder"], content["arguments"], content["surgery"], where=wrong)
    for dtype in {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()} - {torch.float32}:
        model.to(dtype)  # several of them agree with no model, and are refused next
    if difference := _difference(model.state_dict(), tensors):
        raise CheckpointError(f"{wrong}: its weights do not belong to the model that it describes. {difference}")
    model.load_state_dict(tensors, strict=True)
    known = {key: content[key] for key in ("builder", "arguments", "surgery", "task", "notes", "softknee")}
    return Checkpoint(model=model.eval(), **known)


def _refuse_missing(place: Path) -> NoReturn:
    if (left := left_behind(place)) is not None:
        raise CheckpointError(
            f"There is no checkpoint '{place}': writing a new one was stopped half-way. The earlier one is whole; give "
            f"the folder '{left.name}' beside it its name back."
        )
    reason = "it is no folder" if place.exists() else "no such folder"
    raise CheckpointError(f"There is no checkpoint '{place}' ({reason}). Give the folder that save_checkpoint wrote.")


def _description(path: Path) -> dict[str, Any]:
    try:
        text = read_small(path, what="description of a checkpoint", most_bytes=_MOST_DESCRIPTION)
    except ReadError as error:
        raise CheckpointError(f"'{path.parent}' is no checkpoint: {error}") from error
    content = _parsed(text, where=f"'{path}'")
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"'{path}' describes no checkpoint of softknee: its format is not {FORMAT!r}.")
    if content.get("schema") != SCHEMA:
        raise CheckpointError(
            f"'{path}' has checkpoint schema {content.get('schema')!r:.40}, and this softknee ({VERSION}) reads schema "
            f"{SCHEMA}. Load it with the version that wrote it ({content.get('softknee')!r:.40})."
        )
    for key, kind in _KEYS.items():
        if key not in content:
            raise CheckpointError(f"'{path}' lacks the entry {key!r}; it was not written by softknee, or was changed.")
        if not isinstance(content[key], kind):
            raise CheckpointError(f"'{path}' has a {type(content[key]).__name__} under {key!r}, where none belongs.")
    if unknown := sorted(set(content) - set(_KEYS)):
        raise CheckpointError(f"'{path}' has the unknown entry {unknown[0]!r:.60}; it was not written by softknee.")
    return content


def _parsed(text: str, *, where: str) -> Any:
    def refuse(name: str) -> NoReturn:
        raise CheckpointError(f"{where} holds {name}, which is no number of JSON; it was not written by softknee.")

    try:
        return json.loads(text, parse_constant=refuse)
    except (json.JSONDecodeError, RecursionError) as error:
        raise CheckpointError(f"{where} is not whole: its JSON cannot be read ({error}). Save it again.") from error


def _read_weights(path: Path, recorded: Mapping[str, Any]) -> dict[str, Tensor]:
    size, digest = recorded.get("bytes"), recorded.get("sha256")
    if not isinstance(size, int) or not isinstance(digest, str):
        raise CheckpointError(f"'{path.with_name(DESCRIPTION)}' lacks the size or the checksum of the weights.")
    try:
        length = path.stat().st_size
        if length != size:
            less = "cut short" if length < size else "exchanged"
            raise CheckpointError(f"'{path}' has {length:,} bytes where {size:,} were saved: {less}. Copy it again.")
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"The weights '{path}' could not be read ({error.strerror or error}).") from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise CheckpointError(f"'{path}' is not what was saved (its checksum differs): it was altered. Copy it again.")
    library = _safetensors()
    try:
        return library.load(content)
    except Exception as error:  # the library raises several kinds for what is no safetensors file
        raise CheckpointError(f"'{path}' is no file of safetensors ({error}), and not softknee's.") from error


# -- both -------------------------------------------------------------------------------------------------


def _built(builder: str, arguments: Mapping[str, Any], plan: Mapping[str, Any] | None, *, where: str) -> nn.Module:
    """The model that the description makes, with the surgery done, before any weights."""
    try:
        model = build(builder, **arguments)
        if plan is not None:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "surgery.json")
                file.write_text(json.dumps(plan), encoding="utf-8")
                apply_(model, file)
    except MissingToolError:
        raise
    except Exception as error:  # a builder may fail in any way on arguments that were not made for it
        raise CheckpointError(f"{where}: its model cannot be built. {error}") from error
    return model


def _difference(wanted: Mapping[str, Tensor], actual: Mapping[str, Tensor]) -> str:
    """A sentence on how two states differ in names, shapes or types; empty where they do not."""
    lacking, surplus = ([name for name in a if name not in b] for a, b in ((wanted, actual), (actual, wanted)))
    if lacking or surplus:
        sides = (("The weights lack", lacking), ("The built model lacks", surplus))
        return " ".join(f"{side} {_few(names)}." for side, names in sides if names)
    for name, tensor in actual.items():
        if tensor.shape != wanted[name].shape:
            return f"{name!r} has the shape {tuple(tensor.shape)} where {tuple(wanted[name].shape)} is needed."
        if tensor.is_floating_point() != wanted[name].is_floating_point():
            return f"{name!r} is of type {tensor.dtype} where {wanted[name].dtype} is needed."
    kinds = sorted({str(tensor.dtype) for tensor in actual.values() if tensor.is_floating_point()})
    return (
        f"The weights mix the types {' and '.join(kinds)}; convert the model to one of them." if len(kinds) > 1 else ""
    )


def _few(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(repr(name) for name in names[:_SHOWN]) + more


def _safetensors() -> Any:
    return need_package("safetensors.torch", "A checkpoint needs the package 'safetensors'", "deploy")
