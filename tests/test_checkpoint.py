"""Checkpoints: what is saved comes back to the bit, whole or not at all; what is damaged is refused with a sentence."""

import hashlib
import json
import pickle
import resource
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import softknee as sk
from softknee.errors import MissingToolError
from softknee.files import WriteError
from softknee.lab.builders import build
from softknee.lab.checkpoint import CheckpointError, load_checkpoint, save_checkpoint

pytest.importorskip("safetensors", reason="safetensors is not installed; the extra 'deploy' brings it")

SMALL: dict[str, Any] = {"widths": [4, 3, 2], "activation": "srelu", "learn": "delta", "per": "channel"}
CONV = {"channels": [2, 3], "classes": 3, "image": [1, 8, 8], "activation": "torch:gelu"}


def network(**changes: Any) -> nn.Module:
    """A network whose every number differs from what a builder starts with."""
    model = build("mlp", **(SMALL | changes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.linspace(0.1, 0.7, parameter.numel()).reshape(parameter.shape))
    return model


def save(folder: Path, model: nn.Module | None = None, **changes: Any) -> Path:
    description: dict[str, Any] = {"builder": "mlp", "arguments": SMALL, "task": {"data": "digits"}} | changes
    return save_checkpoint(folder / "point", network() if model is None else model, **description)


def content(place: Path) -> dict[str, Any]:
    return json.loads((place / "checkpoint.json").read_text(encoding="utf-8"))


def rewrite(place: Path, **changes: Any) -> None:
    (place / "checkpoint.json").write_text(json.dumps(content(place) | changes), encoding="utf-8")


def put_weights(place: Path, weights: bytes) -> None:
    """Other weights with a description that fits them, as somebody with intent would write them."""
    (place / "model.safetensors").write_bytes(weights)
    rewrite(place, weights={"sha256": hashlib.sha256(weights).hexdigest(), "bytes": len(weights)})


def same(first: nn.Module, second: nn.Module) -> bool:
    item, other = first.state_dict(), second.state_dict()
    return list(item) == list(other) and all(torch.equal(item[key], other[key]) for key in item)


# -- there and back ---------------------------------------------------------------------------------------


def test_everything_comes_back(tmp_path: Path) -> None:
    model = network().train()
    place = save(tmp_path, model, task={"data": "digits", "metric": "accuracy"}, notes="after 3 epochs")
    assert sorted(path.name for path in place.iterdir()) == ["checkpoint.json", "model.safetensors"]
    result = load_checkpoint(place)
    assert same(result.model, model)
    assert not result.model.training
    assert model.training
    assert (result.builder, result.arguments) == ("mlp", SMALL)
    assert (result.task, result.notes) == ({"data": "digits", "metric": "accuracy"}, "after 3 epochs")
    x = torch.linspace(-3, 3, 20).reshape(5, 4)
    assert torch.equal(result.model(x), model.eval()(x))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_type_of_the_numbers_comes_back(tmp_path: Path, dtype: torch.dtype) -> None:
    model = network().to(dtype)
    result = load_checkpoint(save(tmp_path, model)).model
    assert same(result, model)
    assert {parameter.dtype for parameter in result.parameters()} == {dtype}


@pytest.mark.parametrize(
    ("builder", "arguments"), [("cnn", CONV), ("timm:resnet10t", {"num_classes": 3, "in_chans": 1})]
)
def test_other_builders(tmp_path: Path, builder: str, arguments: dict[str, Any]) -> None:
    if builder.startswith("timm"):
        pytest.importorskip("timm", reason="timm is not installed")
    torch.manual_seed(5)
    model = build(builder, **arguments).eval()
    if builder.startswith("timm"):
        model.train()(torch.randn(4, 1, 32, 32))  # moves the batch statistics, which are buffers
        model.eval()
    result = load_checkpoint(save(tmp_path, model, builder=builder, arguments=arguments)).model
    x = torch.randn(2, 1, 8, 8) if builder == "cnn" else torch.randn(2, 1, 32, 32)
    assert torch.equal(result(x), model(x))


@pytest.mark.parametrize("how", ["report", "file", "mapping"])
def test_surgery_is_repeated_before_the_weights(tmp_path: Path, how: str) -> None:
    arguments = {"widths": [4, 3, 2], "activation": "torch:gelu"}
    model = build("mlp", **arguments)
    report = sk.swap_(model, "smelu", replacing="gelu", learn="beta", beta=0.5)
    with torch.no_grad():
        model.get_submodule("1").raw_beta.add_(0.3)
    file = report.save(tmp_path / "surgery.json")
    surgery = {"report": report, "file": file, "mapping": json.loads(file.read_text(encoding="utf-8"))}[how]
    place = save(tmp_path, model, arguments=arguments, surgery=surgery)
    assert content(place)["surgery"] == json.loads(file.read_text(encoding="utf-8"))
    result = load_checkpoint(place).model
    assert same(result, model)
    assert isinstance(result.get_submodule("1"), sk.nn.SmeLU)


def test_tied_and_strided_weights_are_kept(tmp_path: Path) -> None:
    model = build("mlp", widths=[3, 3, 3], activation="relu")
    model[2].weight = model[0].weight  # type: ignore[index]
    model[0].bias.data = torch.arange(6.0)[::2]  # type: ignore[index]
    result = load_checkpoint(save(tmp_path, model, arguments={"widths": [3, 3, 3], "activation": "relu"})).model
    assert same(result, model)


# -- whole or not at all ----------------------------------------------------------------------------------


def test_a_second_checkpoint_replaces_the_first(tmp_path: Path) -> None:
    save(tmp_path)
    second = network()
    nn.init.constant_(second.get_submodule("0").weight, 5.0)  # type: ignore[arg-type]
    place = save(tmp_path, second)
    assert same(load_checkpoint(place).model, second)
    assert [path.name for path in tmp_path.iterdir()] == ["point"]


def test_what_is_no_checkpoint_is_not_replaced(tmp_path: Path) -> None:
    place = save(tmp_path)
    (place / "log.txt").write_text("hours of work", encoding="utf-8")
    with pytest.raises(WriteError, match=r"'log.txt' is there, which is no part of a checkpoint"):
        save(tmp_path)
    assert (place / "log.txt").read_text(encoding="utf-8") == "hours of work"
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(WriteError, match="is there"):
        save_checkpoint(tmp_path / "file", network(), builder="mlp", arguments=SMALL)
    with pytest.raises(WriteError, match="whose parent exists"):
        save(tmp_path / "nowhere")


def test_a_full_disk_leaves_the_first_checkpoint(tmp_path: Path) -> None:
    model = network()
    place = save(tmp_path, model)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))  # a file cannot grow beyond, as on a full disk
    try:
        with pytest.raises(WriteError, match="what stood there before, if anything, is unchanged"):
            save(tmp_path, network())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.name for path in tmp_path.iterdir()] == ["point"]
    assert same(load_checkpoint(place).model, model)


KILLED = """
    import os, sys
    from pathlib import Path
    from softknee.files import write_folder

    rename, left = Path.rename, int(sys.argv[2])
    def stop(self, target):
        global left
        if left == 0:
            os._exit(9)
        left -= 1
        return rename(self, target)
    Path.rename = stop
    write_folder(sys.argv[1], {"model.safetensors": b"new", "checkpoint.json": b"new"}, what="checkpoint")
"""


@pytest.mark.parametrize("renames", [0, 1])
def test_a_process_killed_half_way_loses_nothing(tmp_path: Path, renames: int) -> None:
    """Before the first of the two renames nothing has happened; between them both checkpoints lie beside the place."""
    model = network()
    nn.init.constant_(model.get_submodule("0").weight, 5.0)  # type: ignore[arg-type]
    place = save(tmp_path, model)
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(place), str(renames)]
    assert subprocess.run(command, check=False).returncode == 9
    if renames == 1:
        with pytest.raises(CheckpointError, match=r"was stopped half-way. The earlier one is whole") as raised:
            load_checkpoint(place)
        (left,) = tmp_path.glob("*.old")
        assert left.name in str(raised.value)
        left.rename(place)
    assert same(load_checkpoint(place).model, model)


# -- refused ----------------------------------------------------------------------------------------------


def cut(place: Path) -> None:
    file = place / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-3])


def flip(place: Path) -> None:
    file = place / "model.safetensors"
    whole = bytearray(file.read_bytes())
    whole[-1] ^= 1
    file.write_bytes(bytes(whole))


def reshape(place: Path) -> None:
    import safetensors.torch

    tensors = network().state_dict() | {"0.weight": torch.zeros(3, 5)}
    put_weights(place, safetensors.torch.save(tensors))


def other_names(place: Path) -> None:
    import safetensors.torch

    tensors = {"stranger": torch.zeros(1)} | {k: v for k, v in network().state_dict().items() if k != "0.bias"}
    put_weights(place, safetensors.torch.save(tensors))


def mixed_types(place: Path) -> None:
    import safetensors.torch

    tensors = network().state_dict()
    put_weights(place, safetensors.torch.save(tensors | {"0.bias": tensors["0.bias"].double()}))


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "cut short": (cut, r"bytes where .* were saved: cut short"),
    "altered": (flip, "its checksum differs"),
    "no weights": (lambda place: (place / "model.safetensors").unlink(), "could not be read"),
    "no description": (lambda place: (place / "checkpoint.json").unlink(), "is no checkpoint"),
    "other schema": (lambda place: rewrite(place, schema=2, softknee="9.0"), r"schema 2, .* reads schema 1.*'9\.0'"),
    "other format": (lambda place: rewrite(place, format="zip"), "format is not 'softknee checkpoint'"),
    "unknown entry": (lambda place: rewrite(place, code="x"), "unknown entry 'code'"),
    "wrong kind": (lambda place: rewrite(place, arguments=[1]), "a list under 'arguments'"),
    "no checksum": (lambda place: rewrite(place, weights={"bytes": 3}), "lacks the size or the checksum"),
    "unknown builder": (lambda place: rewrite(place, builder="os.system"), "no builder 'os.system'"),
    "bad arguments": (lambda place: rewrite(place, arguments={"widths": [4, -3, 2]}), "whole numbers above 0"),
    "unknown activation": (lambda place: rewrite(place, arguments=SMALL | {"activation": "no"}), "cannot be built"),
    "other shapes": (reshape, r"'0.weight' has the shape \(3, 5\) where \(3, 4\) is needed"),
    "other names": (other_names, r"weights lack '0.bias'. The built model lacks 'stranger'"),
    "mixed types": (mixed_types, "mix the types"),
    "no tensors": (lambda place: put_weights(place, b"x" * 100), "is no file of safetensors"),
    "bad surgery": (lambda place: rewrite(place, surgery={"format": "?"}), "cannot be built"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_refused_with_a_sentence(tmp_path: Path, name: str) -> None:
    damage, sentence = DAMAGE[name]
    place = save(tmp_path)
    load_checkpoint(place)
    damage(place)
    with pytest.raises(CheckpointError, match=sentence) as raised:
        load_checkpoint(place)
    assert str(raised.value).endswith(".")


@pytest.mark.parametrize("key", ["builder", "arguments", "surgery", "task", "notes", "softknee", "weights"])
def test_a_missing_entry_is_named(tmp_path: Path, key: str) -> None:
    place = save(tmp_path)
    left = {name: value for name, value in content(place).items() if name != key}
    (place / "checkpoint.json").write_text(json.dumps(left), encoding="utf-8")
    with pytest.raises(CheckpointError, match=f"lacks the entry '{key}'"):
        load_checkpoint(place)


@pytest.mark.parametrize("text", ["", "{", "[1]", "{'a': 1}", '{"format": NaN}', "[" * 100_000, "\x00", "null"])
def test_a_description_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    place = save(tmp_path)
    (place / "checkpoint.json").write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError):
        load_checkpoint(place)


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such folder"):
        load_checkpoint(tmp_path / "nothing")
    with pytest.raises(CheckpointError, match="it is no folder"):
        load_checkpoint(__file__)
    with pytest.raises(CheckpointError, match="is no checkpoint"):
        load_checkpoint(tmp_path)


class Bomb:
    """Whoever unpickles it makes a file."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.place,)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    place = save(tmp_path)
    put_weights(place, pickle.dumps(Bomb(tmp_path / "exploded")))
    with pytest.raises(CheckpointError, match="no file of safetensors"):
        load_checkpoint(place)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("timm:hf-hub:somebody/model", {}, "timm has no model"),
        ("timm:local-dir:model", {}, "timm has no model"),
        ("timm:../model", {}, "timm has no model"),
        ("timm:resnet18", {"checkpoint_path": "weights.pth"}, "loads something from elsewhere"),
        ("timm:resnet18", {"pretrained": True}, "loads something from elsewhere"),
        ("timm:resnet18", {"pretrained_cfg": {"url": "x"}}, "loads something from elsewhere"),
    ],
)
def test_a_checkpoint_fetches_nothing(tmp_path: Path, name: str, arguments: dict[str, Any], sentence: str) -> None:
    pytest.importorskip("timm", reason="timm is not installed")
    place = save(tmp_path)
    rewrite(place, builder=name, arguments=arguments)
    with pytest.raises(CheckpointError, match=sentence):
        load_checkpoint(place)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"arguments": SMALL | {"widths": [4, 5, 2]}}, r"makes another model .* shape \(3, 4\) where \(5, 4\)"),
        ({"arguments": SMALL | {"learn": False}}, "makes another model"),
        ({"arguments": {"widths": (4, 3, 2), "seed": object()}}, "holds what JSON cannot"),
        ({"task": {"data": float("nan")}}, "holds what JSON cannot"),
        ({"task": {1: "digits"}}, "keys that are no text"),
        ({"builder": "mpl"}, "no builder 'mpl'"),
    ],
)
def test_what_cannot_be_loaded_again_is_not_saved(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CheckpointError, match=sentence):
        save(tmp_path, **changes)
    assert list(tmp_path.iterdir()) == []


def test_a_model_without_values_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="a tensor without values"):
        save(tmp_path, network().to("meta"))


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(MissingToolError, match=r"pip install 'softknee\[deploy\]'"):
        save(tmp_path)
    assert list(tmp_path.iterdir()) == []
