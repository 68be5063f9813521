"""The same trials on a real Ray cluster of several nodes: the same bits, also when a node is lost on the way."""

import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from ray_trials import told_trial
from softknee.errors import MissingToolError
from softknee.lab.studies.engine import ClusterError, StudyStopped, pack_examples, run_order, unpack_examples
from softknee.lab.studies.examples import recipe_examples
from softknee.lab.studies.reading import read_recipe
from softknee.lab.studies.runner import run_study
from softknee.lab.studies.store import RunStore
from softknee.lab.studies.trials import train_trials
from study_runs import Silent, quick_trial, results, small_recipe, write_points

# Ray leaves its log files and sockets for the collector when it is shut down, and tells Python so.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_points(tmp_path)
    (tmp_path / "started").mkdir()
    return tmp_path


@pytest.fixture(scope="module")
def started() -> Iterator[tuple[Any, Any]]:
    """A cluster whose head runs nothing, and a node with one CPU; what starts later finds the tests' helpers."""
    pytest.importorskip("ray", reason="ray is not installed; the extra 'cluster' brings it")
    here = Path(__file__).parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(here / "helpers"), str(here.parent / "src")]))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        from ray.cluster_utils import Cluster

        # A node is given up after ten seconds: sooner, and a busy machine would lose nodes that are alive.
        quick = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 1000}
        quick["health_check_failure_threshold"] = 10
        head = {"num_cpus": 0, "include_dashboard": False, "_system_config": quick}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        yield cluster, cluster.add_node(num_cpus=1)
        cluster.shutdown()


@pytest.fixture
def cluster(started: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("RAY_ADDRESS", started[0].address)
    return started[0]


def study(folder: Path, out: str, **others: Any) -> Any:
    given = {"base": folder, "command": "softknee study small", "threads": 1, "display": Silent()} | others
    return run_study(small_recipe(), out=folder / out, **given)


@pytest.mark.slow
def test_a_node_is_lost_and_nothing_is_lost_or_doubled(cluster: Any, started: tuple[Any, Any], folder: Path) -> None:
    study(folder, "local")
    nodes = {node.node_id: node for node in (started[1], cluster.add_node(num_cpus=1))}
    lost: list[str] = []

    def lose_a_node() -> None:
        """When both nodes run a trial, take one away; then let all go on, whatever came of it: trials wait for it."""
        end = time.monotonic() + 600  # where four others want the two cores, Ray has started nothing after 180
        while len({item.name.split()[1] for item in (folder / "started").iterdir()}) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        try:
            key, node, process, _ = min(value.name for value in (folder / "started").iterdir()).split()
            cluster.remove_node(nodes[node], allow_graceful=False)
            # The worker looks for its node once a second: let go on, it might bring the trial to its end before that.
            with suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)
            lost.append(key)
        finally:
            (folder / "hold").unlink()

    (folder / "hold").touch()
    thief = threading.Thread(target=lose_a_node)
    thief.start()
    try:
        outcomes = study(folder, "cluster", engine="ray", run_trial=told_trial)
    finally:
        (folder / "hold").unlink(missing_ok=True)
        thief.join()
    starts = Counter(path.name.split()[0] for path in (folder / "started").iterdir())
    keys = [outcome.trial.key for outcome in outcomes]
    assert len(keys) == 3
    assert starts[lost[0]] == 2
    assert sum(starts.values()) == 4
    assert RunStore(folder / "cluster").finished() == sorted(keys)
    assert RunStore(folder / "cluster").outcomes() == outcomes
    assert results(folder / "cluster") == results(folder / "local")
    stop_and_go_on(folder)


def stop_and_go_on(folder: Path) -> None:
    """Ctrl-C while a trial waits on the cluster: the study ends at once, and goes on on this machine."""
    (folder / "hold").touch()
    before = len(list((folder / "started").iterdir()))

    def press_ctrl_c() -> None:
        end = time.monotonic() + 300
        while len(list((folder / "started").iterdir())) == before and time.monotonic() < end:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    finger = threading.Thread(target=press_ctrl_c)
    finger.start()
    with pytest.raises(StudyStopped, match=r"0 trials are finished .* --resume"):
        study(folder, "stopped", engine="ray", run_trial=told_trial)
    finger.join()
    study(folder, "stopped", resume=True)
    assert results(folder / "stopped") == results(folder / "local")


def test_examples_travel_as_bytes(folder: Path) -> None:
    examples = recipe_examples(small_recipe(), base=str(folder))
    again = unpack_examples(pack_examples(examples))
    assert vars(again).keys() == vars(examples).keys()
    for name, value in vars(examples).items():
        other = getattr(again, name)
        assert torch.equal(other, value) if isinstance(value, torch.Tensor) else other == value, name


def test_a_worker_answers_with_a_record_or_a_sentence(folder: Path) -> None:
    examples = recipe_examples(small_recipe(), base=str(folder))
    trial = train_trials(small_recipe(), examples)[0]
    order = {
        "trial": trial.plain(),
        "run": "study_runs:quick_trial",
        "arguments": {"data_folder": None, "base": str(folder)},
        "command": "softknee study small",
        "git": None,
        "threads": torch.get_num_threads(),
        "saved": None,
    }
    answer = run_order(order, pack_examples(examples))
    assert answer["files"] == quick_trial(trial).files
    assert f'"key": "{trial.key}"' in answer["record"]
    changed = order | {
        "run": "softknee.lab.studies.running:run_trial",
        "trial": trial.plain() | {"fingerprint": "0" * 64},
    }
    assert "other examples" in run_order(changed, pack_examples(examples))["error"]
    # A state that cannot be gone on from is left out, and the trial begins anew.
    damaged = order | {"run": "softknee.lab.studies.running:run_trial", "saved": b""}
    assert "record" in run_order(damaged, pack_examples(examples))


def test_without_ray_or_cluster_it_says_what_to_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "ray", None)
        with pytest.raises(MissingToolError, match=r"pip install 'softknee\[cluster\]'"):
            study(folder, "study", engine="ray")
    pytest.importorskip("ray", reason="ray is not installed; the extra 'cluster' brings it")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(ClusterError, match=r"refused.*Check RAY_ADDRESS"):
        study(folder, "study", engine="ray", resume=True)


SEARCH = """
name: small
data: {set: digits, limit: 200}
model: {build: mlp, arguments: {hidden: [8]}}
activations: [relu]
training: {epochs: 2, learning_rate: 1e-2, batch: 32}
seeds: 2
measures: [prediction_difference]
cost_baseline: relu
search:
  candidates: 6
  generation: 3
  rungs: 2
  keep: 0.5
  finalists: 1
  forms: [function, mollify, gate]
  functions: [leaky_relu, srelu]
  constraints: {lipschitz: 1.3}
  seconds: 60
"""


@pytest.mark.slow
def test_a_search_on_a_cluster_is_that_of_one_machine(cluster: Any, tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="the extra 'search' brings it")
    pytest.importorskip("flint", reason="the extra 'design' brings it")
    from softknee.lab.searching import search

    assert cluster.worker_nodes  # one is lost above, and one is left
    recipe = read_recipe(SEARCH)
    there = search(recipe, out=tmp_path / "cluster", engine="ray")
    here = search(recipe, out=tmp_path / "here", processes=1)
    assert len(there.tried) == 7
    assert [each.row() for each in there.tried] == [each.row() for each in here.tried]
    assert there.finalists.keys() == here.finalists.keys()
    assert [outcome.test for outcome in there.outcomes] == [outcome.test for outcome in here.outcomes]
