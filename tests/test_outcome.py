"""An outcome goes to a record and comes back equal; what is no record of a trial is refused with the reason."""

import json
from dataclasses import replace
from typing import Any

import pytest

from softknee.lab.studies.trials import Outcome
from softknee.measure import Quantity, Record, RecordError
from trial_models import trial


def outcome(**changes: Any) -> Outcome:
    given: dict[str, Any] = {
        "trial": trial(values={"beta": 0.1}, learn=("beta",)),
        "seconds": 1.25,
        "diverged": [None, 2, None],
        "selected": [3, None, 4],
        "test": {"accuracy": [0.1 + 0.2, None, 1.0]},
        "curves": {"train_loss": [[1.0, 2.0, 3.0], [0.5, None, 0.25]]},
        "difference": {"delta_1": {"value": 0.5, "stdev": None, "interval": None, "without": ()}},
        "parameters": {"1.beta": {"start": 0.1, "end": [0.2, None, 0.3], "curve": [[0.1, None, 0.2]]}},
        "activity": [{"path": "1", "zero_fraction": [0.5, None, 0.5]}],
        "replacement": {"limit": "ReLU", "test": {"accuracy": [1.0, None, 1.0]}, "changed": [0.0, None, 0.0]},
    }
    return Outcome(**given | changes)


def rows_changed(text: str, change) -> Record:
    content = json.loads(text)
    change(content)
    return Record.from_json(json.dumps(content))


def test_it_comes_back_equal_through_json():
    result = outcome()
    record = result.record(command="softknee study own.yaml", git={"commit": "0123abc", "changed": False})
    assert (record.kind, record.seeds, record.baseline) == ("trial", (0, 1, 2), None)
    assert record.settings["key"] == result.trial.key
    assert record.settings["git"] == {"commit": "0123abc", "changed": False}
    assert Outcome.read(record) == Outcome.read(Record.from_json(record.to_json())) == result
    assert Outcome.read(record) != replace(result, seconds=2.0)


def test_a_record_of_before_the_new_fields_is_read():
    result = outcome(epochs=(2, 4), trained=123)
    assert result.noted == (2, 4)
    text = result.record(command="softknee study own.yaml", git=None).to_json()
    assert Outcome.read(Record.from_json(text)) == result
    old = rows_changed(text, lambda r: [r["rows"][0].pop(name) for name in ("epochs", "trained")])
    assert Outcome.read(old) == outcome()
    assert (Outcome.read(old).noted, Outcome.read(old).trained) == ((1, 2), None)


def test_the_quantities_of_a_cost_come_back():
    time = Quantity.median([1.0, 2.0, 4.0], unit="ms")
    cost = ({"label": "relu", "train": time, "infer": time, "train_ratio": time, "peak_memory": None},)
    result = Outcome(trial=trial(kind="cost"), seconds=3.0, cost=cost)
    record = result.record(command="softknee study own.yaml", git=None)
    assert record.seeds == ()
    assert Outcome.read(Record.from_json(record.to_json())) == result


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda r: r.update(kind="bench kernels"), "kind 'bench kernels'"),
        (lambda r: r["settings"].pop("trial"), "kind 'trial'"),
        (lambda r: r["settings"].update(key="0" * 16), "says to be '0000000000000000'.*altered"),
        (lambda r: r["settings"]["trial"]["training"].update(epochs=5), "altered"),
        (lambda r: r["settings"]["trial"].pop("device"), "trial cannot be read"),
        (lambda r: r["settings"]["trial"].update(colour="blue"), "trial cannot be read"),
        (lambda r: r["settings"].update(trial=[1, 2]), "trial cannot be read"),
        (lambda r: r["rows"].clear(), "not those that an outcome has"),
        (lambda r: r["rows"][0].pop("test"), "not those that an outcome has"),
        (lambda r: r["rows"][0].update(luck=1), "not those that an outcome has"),
        (lambda r: r["rows"][0].update(epochs=[1, 2, 3]), "not of the epochs"),
        (lambda r: r["rows"][0]["diverged"].append(None), "3 seeds"),
        (lambda r: r.update(seeds=[0, 1]), "3 seeds"),
    ],
    ids=[
        "kind",
        "no trial",
        "key",
        "trial",
        "lacks",
        "unknown",
        "list",
        "empty",
        "field",
        "more",
        "epochs",
        "count",
        "seeds",
    ],
)
def test_a_foreign_or_altered_record_is_refused(change, says):
    text = outcome().record(command="softknee study own.yaml", git=None).to_json()
    with pytest.raises(RecordError, match=says):
        Outcome.read(rows_changed(text, change))
