"""The loop in two real processes: DDP and FSDP2 train what one process trains, to rounding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import loop_processes as those
import processes
from softknee.errors import ParameterError
from softknee.lab.studies.distributed import run_distributed
from softknee.train import OneByOne, parallel

pytest.importorskip("lightning", reason="lightning is not installed")

NEAR = {"rtol": 2e-4, "atol": 2e-5}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (dist.is_available() and dist.is_gloo_available()), reason="This torch was built without gloo."
    ),
]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the processes found, one dict each."""
    folder = tmp_path_factory.mktemp("processes")
    # The store is here, as it is with torchrun itself: a port that was only looked up may be taken when they bind it.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    as_torchrun = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "WORLD_SIZE": str(those.WORLD)}
    processes.run(those.process, str(folder), environment=as_torchrun | {"TORCHELASTIC_USE_AGENT_STORE": "True"})
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(those.WORLD)]


@pytest.fixture(scope="module")
def alone() -> dict[str, dict[str, Any]]:
    return {name: those.train(name, "none") for name in those.MODELS}


def close(found: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            close(found[key], expected[key])
    else:
        torch.testing.assert_close(found, expected, **NEAR)


every_model = pytest.mark.parametrize("name", those.MODELS)
both_ways = pytest.mark.parametrize("way", ["ddp", "fsdp2"])
KEYS = ("losses", "norms", "predictions", "epochs", "weights", "knobs", "model")


@every_model
@both_ways
def test_two_processes_train_as_one_does(name: str, way: str, results: list, alone: dict):
    """Losses, norms, predictions, weights and learned widths, in both processes, with uneven parts of batches."""
    for result in results:
        for key in KEYS:
            close(result[f"{way} {name}"][key], alone[name][key])


@every_model
@both_ways
def test_both_processes_tell_the_same_to_the_bit(name: str, way: str, results: list):
    first, second = (result[f"{way} {name}"] for result in results)
    for key in ("losses", "norms", "predictions"):
        assert torch.equal(first[key], second[key])
    for part in ("weights", "knobs"):
        assert all(torch.equal(item, second[part][key]) for key, item in first[part].items())


@every_model
def test_what_is_trained_moves_and_what_is_frozen_does_not(name: str, alone: dict):
    """Otherwise the comparison above would compare nothing."""
    state, after = alone[name]["state"]["tensors"], alone[name]["weights"]
    start = OneByOne(those.MODELS[name], count=len(those.SEEDS[name]), seeds=those.SEEDS[name]).weights()
    raw = [key for key in start if "raw_" in key]
    assert raw
    assert all((state[key] != start[key]).any() for key in start if "anchor" not in key and "unused.bias" not in key)
    assert all(torch.equal(state[key], after[key]) for key in raw[1:])
    assert (alone[name]["norms"][:3] > 1.0).any()  # some gradients were clipped


def test_each_process_holds_its_shards_alone(results: list, alone: dict):
    held = [result["fsdp2 blocks"]["shards"] for result in results]
    assert sum(held) == alone["blocks"]["shards"]
    assert max(held) < 0.6 * sum(held)
    assert [match["ddp blocks"]["shards"] for match in results] == [alone["blocks"]["shards"]] * 2


def test_a_state_of_one_way_goes_on_in_another(results: list, alone: dict):
    """Optimiser and all, from DDP to FSDP2 and from FSDP2 to a single process."""
    expected = those.resumed(alone["blocks"]["state"], "none")
    close(results[0]["resumed"], expected)
    close(those.resumed(results[1]["fsdp2 blocks"]["state"], "none"), expected)


def test_how_many_processes_there_are(results: list):
    assert [result["world"] for result in results] == [2, 2]
    assert parallel.world() == 1


def test_a_study_under_torchrun_is_that_of_one_process(results: list, tmp_path: Path):
    """Stopped by Ctrl-C after the second epoch and resumed: the main process has the outcomes, the other none."""
    main, other = (result["study"] for result in results)
    assert "Stopped; 0 trials are finished" in main["stopped"]
    assert main["stopped"].endswith("Go on with: torchrun --nproc-per-node 2 -m softknee study x --resume")
    assert (other["stopped"], other["outcomes"], other["epochs"]) == ("", None, 0)
    assert main["epochs"] == 4  # one of the first trial, three of the second
    expected = those.told(run_distributed(those.recipe("none"), out=tmp_path / "study", display=those.Silent()))
    assert expected is not None
    assert len(expected) == 2
    near(main["outcomes"], expected)
    with pytest.raises(ParameterError, match="torchrun --nproc-per-node"):
        run_distributed(those.recipe("ddp"), out=tmp_path / "other")


def near(found: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            near(found[key], expected[key])
    elif isinstance(expected, list | tuple):
        for item, other in zip(found, expected, strict=True):
            near(item, other)
    else:
        assert found == (pytest.approx(expected, rel=1e-3, abs=1e-4) if isinstance(expected, float) else expected)
