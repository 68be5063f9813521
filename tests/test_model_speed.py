"""What a swap costs a model: counts against loops of their own, the record, the table, and what cannot be measured."""

import copy
import json
from pathlib import Path

import pytest
import timm
import torch
from torch import nn
from typer.testing import CliRunner

from softknee.app.commands import app
from softknee.errors import InputError, MissingToolError, ParameterError
from softknee.lab.bench import models
from softknee.lab.bench.calls import GELUFromPython
from softknee.lab.bench.clock import Samples
from softknee.lab.bench.models import Settings, Shape, build, compare, main_output, measure, read_config
from softknee.measure import Quantity, Record
from softknee.surgery import module_of

CPU = torch.device("cpu")
VIT = {"depth": 2, "embed_dim": 32, "num_heads": 2, "patch_size": 8, "num_classes": 5}
QUICK = {"device": CPU, "repeats": 3, "seconds_per_call": 0.05, "threads": 1, "ways": ("eager",)}


def settings(**changes) -> Settings:
    given = {"model": "timm:vit_tiny_patch16_224", "swap": "srelu", "shape": Shape(batch=2, image=32), "config": VIT}
    return Settings(**QUICK | given | changes)


class Slow(nn.Module):
    """An activation that takes its time and keeps a tensor of its own for the backward pass."""

    def forward(self, x):
        for _ in range(60):
            x = x * torch.sigmoid(x).detach() + x
            x = x / x.detach().abs().max()
        return x


def test_two_models_are_compared_by_what_they_really_do():
    torch.manual_seed(0)
    before = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
    after = copy.deepcopy(before)
    after[1] = nn.Sequential(Slow(), nn.PReLU())
    x = torch.randn(32, 64)
    weights = [p.detach().clone() for p in before.parameters()]
    with torch.no_grad():
        change = (before(x) - after(x)).abs().max().item()
        scale = before(x).abs().max().item()
    # The medians of many calls: of three, two may well be interrupted where others have the processor.
    often = settings(repeats=25, seconds_per_call=1.0)
    first, second = compare({"before": before, "after": after}, {"input": x}, settings=often)
    assert (first["variant"], second["variant"]) == ("before", "after")
    assert (first["parameters"], second["parameters"]) == (64 * 64 + 64 + 64 * 3 + 3, 64 * 64 + 64 + 64 * 3 + 3 + 1)
    assert second["output_change"] == pytest.approx(change, rel=1e-5)
    assert second["relative_change"] == pytest.approx(change / scale, rel=1e-5)
    for key in ("forward", "step"):
        assert isinstance(first[key], Quantity)
        assert first[key].unit == "ms"
        assert second[key].value > 1.5 * first[key].value
        assert second[f"{key}_ratio"].value > 1.5
        assert f"{key}_ratio" not in first
    # ReLU's output is what it keeps, and what the next layer keeps; the input of the first layer counts as well.
    assert first["held"] == 2 * 32 * 64 * 4
    assert second["held"] > 60 * 32 * 64 * 4
    assert "peak" not in first
    for old, new in zip(weights, before.parameters(), strict=True):
        torch.testing.assert_close(new, old, rtol=0, atol=1e-5)  # the steps were taken, and too small to matter


def test_a_ratio_is_that_of_each_round():
    """A host that slows down meanwhile moves both times, and not their ratio; the slower model has fewer rounds."""
    rounds = {"before": (1.0, 4.0, 2.0, 8.0), "after": (1.5, 6.0, 3.0)}
    results = [Samples(device=times, host=times, faults=(0,) * len(times)) for times in rounds.values()]
    rows = {name: {} for name in rounds}
    models._note(rows, "step", dict.fromkeys((name, "eager") for name in rounds), results)
    ratio = rows["after"]["step_ratio"]
    assert (ratio.low, ratio.value, ratio.high) == (1.5, 1.5, 1.5)
    assert rows["before"].keys() == {"step"}
    assert rows["after"]["step"].value == 3e3


def test_the_floor_is_the_same_model_with_gelu_from_python():
    first, second, floor = measure(settings(floor=True), command="softknee bench model").rows
    assert (floor["variant"], floor["parameters"]) == ("gelu from Python", first["parameters"])
    assert second["output_change"] > floor["output_change"] == 0
    assert [site["path"] for site in floor["changed"]] == ["blocks.0.mlp.act", "blocks.1.mlp.act"]
    assert floor["step_ratio"].value > 0
    x = torch.linspace(-3, 3, 50, requires_grad=True)
    values = [act(x) for act in (nn.GELU(), GELUFromPython())]
    slopes = [torch.autograd.grad(value.sum(), x)[0] for value in values]
    assert torch.equal(*values)
    assert torch.equal(*slopes)


@pytest.mark.slow
def test_eager_and_compiled_take_turns():
    before = nn.Sequential(nn.Linear(8, 8), nn.GELU())
    after = nn.Sequential(before[0], module_of("srelu(delta=0.5, learn=delta)"))
    first, second = compare(
        {"before": before, "after": after}, {"input": torch.randn(4, 8)}, settings=settings(ways=("eager", "compiled"))
    )
    assert second["parameters"] == first["parameters"] + 1
    for row in (first, second):
        assert "not_run" not in row
        assert {"forward", "step", "held", "compiled_forward", "compiled_step", "compiled_held"} <= set(row)
    torch.compiler.reset()


def test_a_model_that_fails_is_reported_and_the_other_measured():
    class Refuses(nn.Module):
        def forward(self, x):
            if self.training:
                raise RuntimeError("no training here")
            return x

    models = {"before": nn.Linear(3, 3), "after": nn.Sequential(nn.Linear(3, 3), Refuses())}
    rows = compare(models, {"input": torch.randn(2, 3)}, settings=settings())
    assert "step" in rows[0]
    assert "forward" in rows[1]
    assert "step" not in rows[1]
    assert rows[1]["not_run"] == "RuntimeError: no training here"


def test_a_timm_model_before_and_after(tmp_path: Path):
    record = measure(settings(swap="srelu(delta=0.5)", replacing="gelu", learn=("delta",)), command="test")
    before, after = record.rows
    plain = timm.create_model("vit_tiny_patch16_224", img_size=32, **VIT)
    assert before["parameters"] == sum(p.numel() for p in plain.parameters())
    assert after["parameters"] == before["parameters"] + 2
    assert [site["path"] for site in after["changed"]] == ["blocks.0.mlp.act", "blocks.1.mlp.act"]
    assert {item["was"] for item in after["changed"]} == {"gelu"}
    assert all("delta=0.5 (learned)" in value["now"] for value in after["changed"])
    assert 0 < after["relative_change"] < 5
    assert record.kind == "bench model"
    assert record.settings["inputs"] == {"x": (2, 3, 32, 32)}
    assert record.write(tmp_path / "model.json").exists()
    assert Record.read(tmp_path / "model.json") == record


def test_several_swaps_are_measured_in_one_run():
    texts = ("relu", "squaf(k=2, q=0.5, learn=z)", "polynorm")
    record = measure(settings(swap=texts[0], others=texts[1:], replacing="gelu"), command="test")
    assert [row["variant"] for row in record.rows] == ["before", *texts]
    before, relu, squaf, polynorm = record.rows
    assert relu["parameters"] == before["parameters"]
    assert squaf["parameters"] == before["parameters"] + 2 * 5
    assert polynorm["parameters"] == before["parameters"] + 2 * 4
    for row in record.rows:
        assert {"forward", "step", "held"} <= set(row)
    shown = models.tables(record)[0].markdown()
    assert all(text in shown for text in ("3 swaps", "polynorm", "+10"))
    with pytest.raises(ParameterError, match="twice"):
        settings(swap="relu", others=("relu",))


def test_a_swap_for_the_same_function_changes_no_output():
    record = measure(settings(swap="gelu", replacing="gelu"), command="test")
    assert record.rows[1]["relative_change"] < 1e-5
    assert record.rows[1]["parameters"] == record.rows[0]["parameters"]


@pytest.mark.parametrize("kind", models.TRANSFORMERS)
def test_the_kinds_of_transformers(kind: str):
    small = {
        "bert": {"num_hidden_layers": 1, "hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2},
        "distilbert": {"n_layers": 1, "dim": 16, "hidden_dim": 32, "n_heads": 2},
        "gpt2": {"n_layer": 1, "n_embd": 16, "n_head": 2},
        "llama": {"num_hidden_layers": 1, "hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2,
                  "num_key_value_heads": 2},
        "vit": {"num_hidden_layers": 1, "hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2,
                "patch_size": 8},
    }[kind]  # fmt: skip
    if kind != "vit":
        small |= {"vocab_size": 50, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
    record = measure(
        settings(
            model=f"transformers:{kind}",
            swap="swish(beta=1.5)",
            shape=Shape(batch=2, image=16, length=6),
            config=small,
            repeats=1,
        ),
        command="test",
    )
    before, after = record.rows
    assert after["changed"]
    assert "not_run" not in before
    assert "not_run" not in after
    assert after["relative_change"] > 0


def test_models_are_the_same_each_time_and_random_numbers_are_left_alone():
    state = torch.get_rng_state()
    first, inputs = build("timm:resnet18", Shape(batch=1, image=32), {"num_classes": 3})
    second, again = build("timm:resnet18", Shape(batch=1, image=32), {"num_classes": 3})
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert torch.equal(inputs["x"], again["x"])
    assert inputs["x"].shape == (1, 3, 32, 32)


def test_the_command_prints_a_table_and_writes_the_record(tmp_path: Path):
    path = tmp_path / "model.json"
    options = [f"--config={key}={value}" for key, value in VIT.items()]
    result = CliRunner().invoke(
        app,
        ["bench", "model", "timm:vit_tiny_patch16_224", "--swap", "srelu", "--replacing", "gelu", "--learn", "delta",
         "--no-compile",
         "--batch", "2", "--image", "32", "--device", "cpu", "--repeats", "3", "--seconds", "0.05", "--threads", "1",
         "--json", str(path), *options],
        catch_exceptions=False,
    )  # fmt: skip
    assert result.exit_code == 0
    for words in ("inference, ms", "training step, ms", "held, MiB", "Peak memory is counted by CUDA",
                  "cpu, eager", "+2", "largest output",
                  "2 sites changed", "gelu → SReLU(delta=1 (learned)"):  # fmt: skip
        assert words in " ".join(result.stdout.split())
    assert json.loads(path.read_text())["settings"]["config"] == VIT


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"model": "vit_tiny"}, ParameterError, "write timm:NAME"),
        ({"model": "timm:vit_tinny_patch16_224"}, ParameterError, "Did you mean 'vit_tiny_patch16_224'"),
        ({"model": "transformers:gtp2"}, ParameterError, "Did you mean 'gpt2'"),
        ({"model": "transformers:gpt2", "config": {"n_layers": 2}}, ParameterError, "has no 'n_layers'"),
        (
            {"model": "transformers:gpt2", "shape": Shape(batch=1, length=5000), "config": {}},
            ParameterError,
            "at most 1024 tokens",
        ),
        ({"config": {"depht": 2}}, InputError, "could not be built"),
        ({"swap": "srelo"}, KeyError, "Did you mean 'srelu'"),
        ({"swap": "srelu(learn=delta)", "learn": ("delta",)}, ParameterError, "leave out --learn"),
        ({"replacing": "mish"}, InputError, "mish"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_a_sentence(changes: dict, error: type, says: str):
    with pytest.raises(error, match=says):
        measure(settings(**changes), command="test")


def test_settings_are_checked():
    with pytest.raises(ParameterError, match="dtype"):
        settings(dtype="f8")
    with pytest.raises(ParameterError, match="weights in f32"):
        settings(dtype="bf16", autocast=True)
    with pytest.raises(ParameterError, match="eager or compiled"):
        settings(ways=("captured",))
    with pytest.raises(ParameterError, match="batch"):
        settings(shape=Shape(batch=0))
    with pytest.raises(ParameterError, match="KEY=NUMBER"):
        read_config(["depth"])
    with pytest.raises(ParameterError, match="KEY=NUMBER"):
        read_config(["depth=[1]"])
    assert read_config(["depth=2", "drop=1e-1", "p=.5"]) == {"depth": 2, "drop": 0.1, "p": 0.5}
    with pytest.raises(InputError, match="no tensor to make a loss from"):
        main_output({"loss": None})


def test_a_missing_library_is_named(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "timm", None)  # what Python itself does with a module that cannot be imported
    with pytest.raises(MissingToolError, match="pip install"):
        build("timm:resnet18", Shape(batch=1))
