"""Deploy checks of several checkpoints: grouped by network and activation, summarised over seeds, recorded, shown."""

from pathlib import Path

import pytest

from deploy_networks import needs_marabou
from softknee.errors import InputError
from softknee.lab.checkpoint import save_checkpoint
from softknee.lab.deploy import check_several, summary_record, summary_tables
from softknee.lab.networks import mlp
from softknee.measure import Quantity, Record, RecordError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("checkpoints")
    folders = []
    for activation, seeds in (("gelu", (0, 1)), ("torch:relu", (0,))):
        for seed in seeds:
            arguments = {"widths": [64, 8, 10], "activation": activation, "seed": seed}
            path = folder / f"digits-{activation.removeprefix('torch:')}-{seed}"
            save_checkpoint(
                path,
                mlp(**arguments),
                builder="mlp",
                arguments=arguments,
                task={"data": "digits", "metric": "accuracy"},
            )
            folders.append(path)
    return check_several(folders, points=1, eps=0.001, repeats=3, seconds_per_point=600)


def test_rows_are_networks_activations_and_forms(checked) -> None:
    record = summary_record(checked, command="softknee deploy-check a b c")
    assert [(row["function"], row["form"], row["checkpoints"]) for row in record.rows] == [
        ("gelu", "as saved", 2),
        ("gelu", "with ReLU", 2),
        ("relu", "as saved", 1),
        ("relu", "with ReLU", 1),
    ]
    assert Record.from_json(record.to_json()) == record


def test_numbers_are_means_over_the_checkpoints(checked) -> None:
    row = summary_record(checked, command="x").rows[0]
    each = [item.report.before.accuracy for item in checked[:2]]
    assert row["accuracy"] == Quantity.mean(each, unit="%")
    assert row["accuracy_int8"].repeats == 2
    assert row["onnxruntime_difference"] == max(value.report.before.onnx.difference for value in checked[:2])


@needs_marabou
def test_a_refusal_is_told_and_a_proof_counted(checked) -> None:
    record = summary_record(checked, command="x")
    assert "refused" in record.rows[0]["proved"]
    assert record.rows[1]["proved"]["points"] == 2
    (table,) = summary_tables(record)
    assert "refused [1]" in table.rows[0][-1]
    assert table.rows[1][-1].endswith(" of 2")
    assert "Marabou" in table.remarks[0]


def test_a_column_that_was_run_for_no_network_is_left_out(checked) -> None:
    record = summary_record(checked, command="x")
    rows = [{**row, "proved": {"not_run": "No point was asked for."}} for row in record.rows]
    (table,) = summary_tables(Record.now(record.kind, command="x", rows=rows))
    assert "points proved robust" not in table.head


def test_no_checkpoint_and_another_record_are_refused(checked) -> None:
    with pytest.raises(InputError, match="no checkpoint"):
        check_several([])
    with pytest.raises(RecordError, match="study hardening"):
        summary_tables(Record.now("study hardening", command="x", rows=[]))


def test_a_bad_checkpoint_is_refused_before_any_is_checked(tmp_path: Path) -> None:
    told: list[str] = []
    with pytest.raises(ValueError, match="nowhere"):
        check_several([tmp_path / "nowhere"], report=told.append)
    assert told == []
