"""Distillation with other activations: its loss, a small study from images to table and figure, the paper's counts."""

import json
import math
from dataclasses import replace

import pytest
import torch
from papers.runs import recipe_named
from softknee.lab.image_training import Plan, build, draw_shapes, squaf, trained_numbers
from torch import nn

from data_files import publish_cifar, write_binary
from small_images import tiny_vggs, two_halves
from softknee.errors import InputError, ParameterError
from softknee.lab import distilling
from softknee.measure.record import Record

SMALL = distilling.Settings(
    teacher="vgg13",
    student="vgg8",
    entries=distilling.choose_entries(["relu", "polynorm", "squaf"]),
    seeds=(0, 1),
    plan=Plan(epochs=6, batch=8, learning_rate=0.02, crop=0, every=3),
    device="cpu",
)


@pytest.fixture(scope="module", autouse=True)
def _tiny():
    with tiny_vggs():
        yield


@pytest.fixture(scope="module")
def record(_tiny):
    seen = []
    found = distilling.run(SMALL, command="softknee study distil", advance=seen.append, data=two_halves())
    assert len(seen) == distilling.steps(SMALL) == 6 * 7
    return found


class Fixed(nn.Module):
    """Says the same of every image."""

    def __init__(self, logits):
        super().__init__()
        self.logits = torch.tensor(logits, dtype=torch.float64)

    def forward(self, images):
        return self.logits.expand(len(images), -1)


def test_the_loss_is_the_formula():
    teacher, student, temperature = [1.0, -2.0, 0.5], [0.3, 0.1, -0.7], 3.0

    def shares(logits, by):
        each = [math.exp(one / by) for one in logits]
        return [one / sum(each) for one in each]

    wanted, found = shares(teacher, temperature), shares(student, temperature)
    apart = sum(p * math.log(p / q) for p, q in zip(wanted, found, strict=True))
    plain = -math.log(shares(student, 1.0)[2])
    images, labels = torch.zeros(5, 1), torch.full((5,), 2)
    output = torch.tensor([student] * 5, requires_grad=True)
    for share in (0.0, 0.9, 1.0):
        loss = distilling.distilling(Fixed(teacher), temperature=temperature, share=share)(images, labels, output)
        assert loss.item() == pytest.approx((1 - share) * plain + share * temperature**2 * apart, rel=1e-5)
    (slope,) = torch.autograd.grad(loss, output)  # of share 1: T (q - p) / n
    expected = [temperature * (q - p) / 5 for p, q in zip(wanted, found, strict=True)]
    torch.testing.assert_close(slope[0], torch.tensor(expected), rtol=1e-4, atol=1e-6)
    same = distilling.distilling(Fixed(student), temperature=temperature, share=1.0)(images, labels, output)
    assert abs(same.item()) < 1e-5


def test_students_learn_from_their_teacher(record):
    teacher, relu, polynorm, squaf_row = record.rows
    assert [row["activation"] for row in record.rows] == ["teacher, ReLU", "ReLU", "PolyNorm", "SQUAF"]
    assert len(teacher["accuracy_by_seed"]) == 1
    assert teacher["accuracy"].value > 80
    assert max(relu["accuracy"].value, squaf_row["accuracy"].value) > 80
    assert squaf_row["trained"] == relu["trained"] + 35
    assert polynorm["trained"] == relu["trained"] + 12
    for row in record.rows:
        assert row["curve"]["epochs"] == (3, 6)
        for seed, accuracy in enumerate(row["accuracy_by_seed"]):
            assert row["curve"]["test"][seed][-1] == accuracy
            assert row["gap_by_seed"][seed] == pytest.approx(row["curve"]["train"][seed][-1] - accuracy)
    assert list(squaf_row["start"]) == ["2"]
    assert squaf_row["learned"][0]["2"]["z"] != squaf_row["start"]["2"]["z"]
    assert Record.from_json(record.to_json()) == record


def test_with_no_share_of_the_teacher_it_might_as_well_not_be_there():
    few = {"entries": distilling.choose_entries(["relu"]), "seeds": (0,), "plan": replace(SMALL.plan, epochs=1)}
    alone = distilling.run(replace(SMALL, teacher=None, **few), command="-", data=two_halves(8)).rows
    beside = distilling.run(replace(SMALL, share=0.0, **few), command="-", data=two_halves(8)).rows
    assert (len(alone), len(beside)) == (1, 2)
    assert alone[0]["curve"] == beside[1]["curve"]


def test_table_figure_and_shapes(record, tmp_path):
    with pytest.raises(ParameterError, match="'softknee study distil', and this one is of 'bench'"):
        distilling.distil_markdown(replace(record, kind="bench"))
    table = distilling.distil_markdown(record).splitlines()
    assert len(table) == 2 + 4 + 2
    assert [part.strip() for part in table[2].split("|")][3:6:2] == ["9,462,180", "74.64"]
    assert [part.strip() for part in table[5].split("|")][3:8:2] == ["3,965,063", "74.95", "20.68"]
    assert table[-1] == "The paper's: tables 7 and 14, cifar-100; here vgg13 → vgg8, halves, 6 epochs."
    assert distilling.draw_distil(record, tmp_path / "gap.png").read_bytes().startswith(b"\x89PNG")
    assert draw_shapes(record, tmp_path / "shapes.svg").read_text().startswith("<svg")
    with pytest.raises(ParameterError, match="softknee study distil"):
        distilling.draw_distil(replace(record, kind="study rate"), tmp_path / "gap.png")


def test_the_counts_are_the_papers():
    reported = distilling.PAPER["wrn40_2", "wrn16_2"]
    for entry in distilling.ENTRIES.values():
        if entry.title in reported.parameters:
            model = build("wrn16_2", entry, classes=100, seed=0)
            assert trained_numbers(model) == reported.parameters[entry.title], entry.title
    assert trained_numbers(build("wrn40_2", distilling.ENTRIES["relu"], classes=100, seed=0)) == 2_255_156
    eight = distilling.PAPER["vgg13", "vgg8"]
    alone = distilling.PAPER[None, "vgg8"]
    assert alone.parameters == {name: count for name, count in eight.parameters.items() if name != "teacher"}
    printed = recipe_named("squaf-table-6-vgg8").paper.values
    assert {distilling.ENTRIES[name].title: row["accuracy"] for name, row in printed.items()} == alone.accuracy
    # The same number at each of the five places, or 35 at the first of them, on 3,965,028.
    each = {"PReLU": 1, "Swish": 1, "CRReLU": 1, "PolyReLU": 4, "PolyNorm": 4, "DiTAC": 9}
    assert {name: eight.parameters[name] - 3_965_028 for name in each} == {name: 5 * own for name, own in each.items()}


def test_table_15_is_timms_mobilenet_with_the_last_stage_frozen():
    pytest.importorskip("timm", reason="timm is not installed; the extra 'vision' brings it")
    student = "timm:mobilenetv1_100"
    model = build(student, squaf(where="all but last stage"), classes=1000, seed=0)
    assert trained_numbers(model) == distilling.PAPER["timm:resnet18", student].parameters["SQUAF"] == 4_232_781


def test_what_cannot_be_is_refused():
    for wrong, said in (
        ({"student": "vgg7"}, "no network 'vgg7'"),
        ({"share": 1.5}, r"share must be in \[0, 1\]"),
        ({"seeds": ()}, "a seed at least"),
    ):
        with pytest.raises(ParameterError, match=said):
            distilling.Settings(**wrong)
    with pytest.raises(ParameterError, match="Did you mean 'swish'"):
        distilling.choose_entries(["swich"])
    (last,) = distilling.choose_entries(["squaf"], where="all")
    assert last.where == "all"


def test_layers_that_are_not_there_are_said_before_anything_is_trained():
    entries = distilling.choose_entries(["relu", "squaf"], where="nowhere")
    trained = []
    with pytest.raises(InputError, match="no SQUAF layer matches 'nowhere'"):
        distilling.run(replace(SMALL, entries=entries), command="-", data=two_halves(), advance=trained.append)
    assert not trained


def test_the_command_from_the_files_to_the_table(softknee, tmp_path, monkeypatch):
    publish_cifar(monkeypatch, "cifar-100", write_binary(tmp_path / "data", "cifar-100"))
    monkeypatch.setenv("SOFTKNEE_DATA", str(tmp_path / "data"))
    kept = str(tmp_path / "distil.json")
    code, out, err = softknee("study", "distil", "--smoke", "--json", kept)
    assert code == 0, err
    found = json.loads((tmp_path / "distil.json").read_text())
    assert [row["activation"] for row in found["rows"]] == ["teacher, ReLU", "ReLU", "SQUAF"]
    assert (found["settings"]["temperature"], found["settings"]["share"], found["settings"]["smoke"]) == (
        4.0,
        0.9,
        True,
    )
    code, again, err = softknee("study", "distil", "--from", kept, "--figure", str(tmp_path / "gap.png"))
    assert (code, again) == (0, out), err
    assert softknee("study", "distil", "--smoke", "--only", "nothing")[0] != 0
