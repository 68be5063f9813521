"""A model cut in two real processes (gloo): it trains as in one, its bytes are counted, and no failure hangs."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import processes
import wire_processes as those
from softknee.lab.data.images import load_digits
from softknee.wire.channel import CHECK_BYTES, HEADER_BYTES
from wire_page import PAGE, names, with_tables

SECONDS = 1800  # for both processes together; on an idle machine they need about twenty
SOON = those.PATIENCE / 2  # long before an end would give up by itself

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="This torch was built without gloo."
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("ends")
    data = load_digits()
    torch.save([data.ready(data.train_images), data.train_labels], place / "digits.pt")
    (example,) = re.findall(r"```python\n(import tempfile.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    (place / "example.py").write_text(example, encoding="utf-8")
    return str(place)


@pytest.fixture(scope="module")
def found(folder: str) -> list[dict[str, Any]]:
    """What rank 0 and rank 1 found, and what rank 0 found when rank 1 was killed."""
    started = [processes.context().Process(target=those.process, args=(rank, folder)) for rank in (0, 1)]
    for item in started:
        item.start()
    end = time.monotonic() + SECONDS
    for item in started:
        item.join(max(0, end - time.monotonic()))
    codes = [value.exitcode for value in started]
    for item in started:
        item.kill()
    assert codes == [0, -9]
    return [torch.load(Path(folder) / f"{name}.pt", weights_only=True) for name in ("0", "1", "end")]


def test_the_example_of_the_documentation_runs(found: list[Any]):
    said, silent = (item["example"] for item in found[:2])
    told = re.match(r"20 messages of ([\d,]+) activations in all: .* ([\d.]+) bits each \(entropy ([\d.]+)\)", said)
    assert told is not None, said
    assert told[1] == f"{20 * 64 * 256:,}"
    assert float(told[3]) < float(told[2]) < 5
    assert silent == ""


def test_every_table_of_the_documentation_is_made_from_its_record():
    page = PAGE.read_text(encoding="utf-8")
    assert "cpu-wire" in names(page)
    assert with_tables(page) == page


def both(found: list[dict[str, Any]], key: str) -> dict[str, torch.Tensor]:
    return found[0][key]["state"] | found[1][key]["state"]


def near(ours: dict[str, Any], losses: list[float], expected: dict[str, Any]) -> None:
    """Symbols, values and gradients are the same bits; the rounding of sums is left, which training lets grow."""
    torch.testing.assert_close(losses, expected["losses"], rtol=1e-5, atol=1e-6)
    assert ours.keys() == expected["state"].keys()
    for key, value in expected["state"].items():
        torch.testing.assert_close(ours[key], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in those.LAYERS if name != "half"])
def test_two_processes_train_as_one_does(name: str, found: list[Any], folder: str):
    """Loss curve, weights and the layer's z, q and alpha; per layer, channel and neuron; sampled and stepped."""
    key = f"train {name}"
    expected = those.alone(name, folder)
    near(both(found, key), found[1][key]["losses"], expected)
    assert expected["losses"][-1] < expected["losses"][0] - 0.1


def test_what_is_trained_moves(found: list[Any]):
    """Otherwise the comparison above would compare nothing."""
    start = those.network().state_dict()
    moved = both(found, "train auto")
    for name, place in (("first.weight", "0.weight"), ("layer.z", "1.z"), ("layer.raw_q", "1.raw_q")):
        assert not torch.equal(moved[name], start[place])


def test_gradients_in_half_the_bytes_train_nearly_the_same(found: list[Any], folder: str):
    losses, expected = found[1]["train half"]["losses"], those.alone("half", folder)["losses"]
    assert losses != expected
    torch.testing.assert_close(losses, expected, rtol=5e-2, atol=5e-2)
    assert losses[0] == pytest.approx(expected[0], rel=1e-6)


@pytest.mark.parametrize("name", those.LAYERS)
def test_bytes_are_those_that_were_sent(name: str, found: list[Any]):
    ours, theirs = (item[f"train {name}"] for item in found[:2])
    case, count = those.LAYERS[name], those.STEPS * those.BATCH * 6 * 8 * 8
    traffic = ours["traffic"]
    assert {**traffic, "entropy": None} == theirs["traffic"]  # both ends count the same
    assert traffic["payload"] + traffic["tables"] + traffic["headers"] == ours["sent"]
    assert traffic["gradients"] + traffic["gradient_headers"] == theirs["sent"]
    assert traffic["activations"] == count
    assert traffic["messages"] == traffic["gradient_messages"] == those.STEPS
    assert traffic["headers"] == those.STEPS * (HEADER_BYTES + CHECK_BYTES)
    assert traffic["gradients"] == (2 if name == "half" else 4) * count
    if case["coder"] is None:
        assert (traffic["payload"], traffic["tables"], traffic["entropy"]) == (4 * count, 0, None)
        return
    points, rows = (9, 6 * 8 * 8) if name == "packed" else (33, 6 if name == "huffman" else 1)
    assert traffic["tables"] == those.STEPS * 4 * points * rows  # z is trained, and so it is new at each step
    bits = 8 * traffic["payload"] / count
    if case["coder"] == "packed":
        assert bits == pytest.approx(8 / 2.5 if points == 9 else 16 / 3, rel=1e-3)  # 5 of 9 levels in 2 bytes
    else:
        assert traffic["entropy"] < bits < traffic["entropy"] + 0.15
    assert "times less than float32" in ours["text"]


def test_a_rate_penalty_reaches_the_layer_at_the_cut(found: list[Any]):
    with_rate, without = (found[0][f"train {name}"]["traffic"] for name in ("rate", "auto"))
    assert with_rate["entropy"] < without["entropy"] - 0.1
    assert with_rate["payload"] < without["payload"]


@pytest.mark.parametrize("name", ["GPipe", "1F1B", "trial"])
def test_a_pipeline_schedule_carries_the_cut(name: str, found: list[Any], folder: str):
    """torch.distributed.pipelining with 4 microbatches, shapes told, or found by its own trial run."""
    key = f"pipeline {name}"
    losses = found[1][key]["losses"]
    expected = those.micro_alone(folder)
    if name == "trial" and losses[0] != pytest.approx(expected["losses"][0], rel=1e-5):
        expected = those.micro_alone(folder, trial=True)  # torch 2.11 draws in its trial run, 2.12 does not
    near(both(found, key), losses, expected)
    traffic, runs = found[0][key]["traffic"], those.STEPS * those.MICRO + (name == "trial")
    assert traffic["messages"] == traffic["gradient_messages"] == runs
    assert traffic["tables"] == those.STEPS * 4 * 33  # once a step: microbatches share their table
    assert 8 * (traffic["payload"] + traffic["tables"] + traffic["headers"]) < 5 * traffic["activations"]


def test_without_gradients_and_with_misuse(found: list[Any]):
    sender, receiver = (item["still"] for item in found[:2])
    assert receiver["equal"] == [True, True, True]
    assert not sender["needs"]
    assert not receiver["needs"]
    assert sender["tables"] == receiver["tables"] == 2 * 4 * 33  # at first, and when z had changed
    assert receiver["empty"] == [[0, 5], "torch.float64"]
    assert all(value.startswith("Boundary: 2 of 35 pre-activations are NaN") for value in sender["nan"])
    assert "sending end" in sender["sending"]
    assert "second time" in sender["twice"]
    assert all(entry["closed"].endswith("It was closed.") for entry in (sender, receiver))
    assert all("a rank from 0 to 1 and not this one" in text for text in sender["ranks"])
    assert "a finite number above 0" in sender["timeout"]


def test_altered_bytes_give_an_error_and_never_activations(found: list[Any]):
    told = found[1]["altered"]
    assert len(told) == 10
    for text, kinds, _ in told[:9]:
        assert text.endswith("activations of message 0 were altered on their way.")
        assert "WireError" in kinds
    assert told[9][0] == "Rank 0 sent a gradient in place of activations."


def test_an_end_that_keeps_to_nothing_gives_an_error_and_takes_no_memory(found: list[Any]):
    """gloo ended the process where more came than was awaited, and a header of 4 TB reached the allocator."""
    sender, receiver = (item["hostile"] for item in found[:2])
    assert receiver["whole"]
    for ours, name, error, words in (
        (receiver, "noise", "WireError", "no header of a Boundary"),
        (receiver, "header", "WireError", "a table of 549,755,813,888 numbers, and at most 67,108,864"),
        (receiver, "longer body", "WireError", "no header of a Boundary"),
        (receiver, "shorter body", "PeerError", "Rank 0 ended or closed the connection"),
        (sender, "large gradient", "WireError", "and shape (67108864,) for activations of shape (50,)"),
        (sender, "strange gradient", "WireError", "gradient of message 7, of which none is awaited"),
        (sender, "wide gradient", "WireError", "a gradient of torch.float64"),
    ):
        text, kinds, _, counts = ours[name]
        assert words in text
        assert error in kinds
        assert counts
        assert max(counts) <= 208  # bytes: a header, or the body that was agreed


def test_a_stranger_at_the_door_does_not_keep_the_ends_apart(found: list[Any]):
    assert found[1]["strangers"] == {"got": [0, 1, 2, 3, 4]}


def test_an_end_that_closes_takes_what_is_on_its_way_and_tells_the_other(found: list[Any]):
    """A message that nobody took ended the whole process, inside of gloo."""
    for rank, item in enumerate(end["closing"] for end in found[:2]):
        other = 1 - rank
        assert item["on their way"][0] == item["own error"][0] == ""
        assert item["waits"][0].startswith(f"Rank {other} closed its end of the Boundary when it should send")
        assert max(item[key][2] for key in ("on their way", "own error", "waits", "most")) < SOON
        assert f"rank {other} can no longer be used" in item["after most"][0]
    assert found[1]["closing"]["most"][0].startswith("The header announces 50 activations, and at most 10")
    assert found[0]["closing"]["most"][0].startswith("Rank 1 ended or closed the connection")


def test_an_end_that_does_not_answer_is_named_in_time(found: list[Any]):
    sender, receiver = (item["silent"] for item in found[:2])
    for text, kinds, seconds in (sender["gradient"], receiver["activations"]):
        assert "within 1 seconds" in text
        assert "PeerError SoftkneeError TimeoutError" in kinds
        assert 0.9 < seconds < SOON
    assert sender["gradient"][0].startswith("Rank 1 did not send the gradient")
    assert sender["gradient"][0].endswith("put both ends under torch.no_grad(), or neither.")
    assert "no_grad" not in receiver["activations"][0]
    assert receiver["activations"][0].startswith("Rank 0 did not send activations")
    assert sender["again"][0].startswith("The Boundary to rank 1 can no longer be used: Rank 1 did not")


def test_a_killed_end_is_named_at_once(found: list[Any]):
    """Long before the time that the boundary would wait."""
    text, kinds, seconds = found[2]["gradient"]
    assert text.startswith("Rank 1 ended or closed the connection when it should send the gradient")
    assert "PeerError SoftkneeError TimeoutError" in kinds
    assert seconds < SOON
    assert "rank 1 can no longer be used" in found[2]["send"][0]
