"""Surgery on models of transformers: their configuration tells the truth, and what is saved comes back to the bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

import softknee as sk
from softknee.surgery.modules import activation_modules
from softknee.surgery.swapping.swap import WITHOUT_EXAMPLE

WORDS = {"vocab_size": 32, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
LAYERS = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
KEYS = {"gpt2": "activation_function", "bert": "hidden_act", "vit": "hidden_act", "llama": "hidden_act"}
# What each computes, where it sits, and how wide the layer before it is.
FUNCTIONS = {"gpt2": "gelu_tanh", "bert": "gelu", "vit": "gelu", "llama": "silu"}
WIDTHS = {"gpt2": [64, 64], "bert": [24, 24, 16], "vit": [24, 24], "llama": [24, 24]}
every_kind = pytest.mark.parametrize("kind", KEYS)


def config_of(kind: str, **options: Any) -> Any:
    if kind == "gpt2":
        return transformers.GPT2Config(n_layer=2, n_head=2, n_embd=16, n_positions=16, **WORDS, **options)
    if kind == "vit":
        return transformers.ViTConfig(image_size=8, patch_size=4, **LAYERS, **options)
    return {"bert": transformers.BertConfig, "llama": transformers.LlamaConfig}[kind](**LAYERS, **WORDS, **options)


CLASSES = {
    "gpt2": transformers.GPT2LMHeadModel,
    "bert": transformers.BertForMaskedLM,
    "vit": transformers.ViTForImageClassification,
    "llama": transformers.LlamaForCausalLM,
}


def build(kind: str, **options: Any) -> Any:
    torch.manual_seed(0)
    model = CLASSES[kind](config_of(kind, **options)).eval()
    with torch.no_grad():  # a start of 0.02 keeps every pre-activation near 0, where all these functions are alike
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(8)
    return model


def example(kind: str) -> dict[str, Tensor]:
    if kind == "vit":
        return {"pixel_values": torch.linspace(-1, 1, 384).reshape(2, 3, 8, 8)}
    return {"input_ids": torch.arange(14).reshape(2, 7) % 32}


@torch.no_grad()
def output(model: nn.Module, kind: str) -> Tensor:
    return model(**example(kind)).logits


def train_a_little(model: nn.Module, kind: str) -> None:
    """Two steps, so that every layer has values of its own."""
    optimiser = torch.optim.AdamW(sk.param_groups(model, lr=0.01, weight_decay=0.01))
    for _ in range(2):
        optimiser.zero_grad()
        model(**example(kind)).logits.square().mean().backward()
        optimiser.step()


def act(model: Any, kind: str) -> str:
    return getattr(model.config, KEYS[kind])


# -- the configuration names the new function -----------------------------------------------------------------------


@every_kind
def test_a_swapped_and_trained_model_comes_back_from_its_folder(kind: str, tmp_path: Path):
    model = build(kind)
    usual, was = output(model, kind), act(model, kind)
    report = sk.swap_(model, "srelu", replacing=FUNCTIONS[kind], learn="delta", delta=0.3, example=example(kind))
    assert len(report.changed) == len(WIDTHS[kind])
    assert not report.notes
    assert (output(model, kind) - usual).abs().max().item() == pytest.approx(report.output_change)
    assert act(model, kind) == "softknee:srelu(delta=0.3, learn=delta)"
    train_a_little(model, kind)
    values = [module.delta.item() for module in activation_modules(model).values()]
    assert len(set(values)) == len(values)
    model.save_pretrained(tmp_path)
    again = CLASSES[kind].from_pretrained(tmp_path).eval()
    assert torch.equal(output(again, kind), output(model, kind))
    assert [module.delta.item() for module in activation_modules(again).values()] == values
    assert again.state_dict().keys() == model.state_dict().keys()
    # The way back: the old functions, the old configuration, the trained weights.
    report.undo()
    assert act(model, kind) == was
    assert not activation_modules(model)
    model.save_pretrained(tmp_path / "undone")
    stock = CLASSES[kind].from_pretrained(tmp_path / "undone").eval()
    assert torch.equal(output(stock, kind), output(model, kind))


@every_kind
def test_undo_without_training_gives_the_old_numbers(kind: str):
    model = build(kind)
    usual, configuration = output(model, kind), model.config.to_dict()
    report = sk.swap_(model, "smelu", beta=1.0, learn=True)
    assert model.config.to_dict() != configuration
    assert not torch.equal(output(model, kind), usual)
    report.undo()
    assert torch.equal(output(model, kind), usual)
    assert model.config.to_dict() == configuration


@every_kind
def test_weights_saved_before_the_swap_load_after_it(kind: str, tmp_path: Path):
    """Through transformers, too: a stock checkpoint with the new function in its configuration starts as swapped."""
    model = build(kind)
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    model.save_pretrained(tmp_path)
    sk.swap_(model, "srelu", learn="delta", delta=0.3)
    model.load_state_dict(weights, strict=True)
    named = CLASSES[kind].from_pretrained(tmp_path, **{KEYS[kind]: act(model, kind)}).eval()
    assert torch.equal(output(named, kind), output(model, kind))


@pytest.mark.parametrize(("kind", "name"), [("gpt2", "squaf"), ("bert", "lambda_gelu"), ("vit", "relu")])
def test_other_functions_are_named_as_well(kind: str, name: str, tmp_path: Path):
    """A fitted table has no name of its own; its values come with the weights."""
    model = build(kind)
    options: dict[str, Any] = {
        "squaf": {"k": 8, "q": 0.5, "z": "fit", "learn": True},
        "lambda_gelu": {"lam": "increasing", "learn": True},
        "relu": {},
    }[name]
    sk.swap_(model, name, **options)
    assert act(model, kind).startswith(f"softknee:{name}")
    model.save_pretrained(tmp_path)
    again = CLASSES[kind].from_pretrained(tmp_path).eval()
    assert torch.equal(output(again, kind), output(model, kind))


# -- what a configuration cannot say ---------------------------------------------------------------------------------


def reloaded(kind: str, model: Any, report: Any, folder: Path) -> Any:
    """The way that the note describes: build, repeat the surgery, load the weights."""
    file = report.save(folder / "surgery.json")
    fresh = CLASSES[kind](config_of(kind)).eval()
    applied = sk.apply_(fresh, file)
    assert [site.path for site in applied.changed] == [item.path for item in report.changed]
    fresh.load_state_dict(model.state_dict(), strict=True)
    return fresh


@every_kind
def test_some_layers_alone_leave_the_configuration_with_a_note(kind: str, tmp_path: Path):
    model = build(kind)
    was = act(model, kind)
    report = sk.swap_(model, "srelu", where="*.0.*", learn="delta", delta=0.3)
    assert len(report.changed) == 1
    assert act(model, kind) == was
    note, without_example = report.notes
    assert without_example == WITHOUT_EXAMPLE
    assert f"{KEYS[kind]}={was!r}" in note
    assert "not all of them were changed" in note
    assert "sk.apply_" in note
    assert note in str(report)
    train_a_little(model, kind)
    assert torch.equal(output(reloaded(kind, model, report, tmp_path), kind), output(model, kind))


@every_kind
def test_a_value_for_each_channel_leaves_the_configuration_with_a_note(kind: str, tmp_path: Path):
    model = build(kind)
    was = act(model, kind)
    report = sk.swap_(model, "srelu", learn="delta", per="channel", delta=0.3, example=example(kind))
    made = [model.get_submodule(site.path) for site in report.changed]
    assert [(module.granularity.dim, module.raw_delta.numel()) for module in made] == [(-1, w) for w in WIDTHS[kind]]
    assert act(model, kind) == was
    (note,) = report.notes
    assert "cannot carry this function" in note
    train_a_little(model, kind)
    assert torch.equal(output(reloaded(kind, model, report, tmp_path), kind), output(model, kind))


STUBBORN: dict[str, Callable[[], Any]] = {
    # Fills the entry anew from another one when it is loaded.
    "t5": lambda: transformers.T5ForConditionalGeneration(
        transformers.T5Config(d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2, **WORDS)
    ),
    # Has no entry for its GELU.
    "bloom": lambda: transformers.BloomForCausalLM(
        transformers.BloomConfig(hidden_size=16, n_layer=1, n_head=2, **WORDS)
    ),
    # Keeps the name of the entry, and has its convolution call the function by that name.
    "mamba": lambda: transformers.MambaForCausalLM(
        transformers.MambaConfig(hidden_size=16, num_hidden_layers=2, state_size=4, **WORDS)
    ),
    # Builds a part of its layers with ReLU, whatever the entry says.
    "resnet": lambda: transformers.ResNetForImageClassification(
        transformers.ResNetConfig(embedding_size=4, hidden_sizes=[8], depths=[1])
    ),
}


@pytest.mark.parametrize("kind", STUBBORN)
def test_functions_that_no_entry_brings_back_are_noted(kind: str, tmp_path: Path):
    """Without a note the old function would come back from the folder, and nobody would know."""
    model = STUBBORN[kind]().eval()
    configuration = model.config.to_dict()
    report = sk.swap_(model, "srelu", learn="delta", delta=0.3)
    assert model.config.to_dict() == configuration
    notes = [note for note in report.notes if note != WITHOUT_EXAMPLE]
    assert notes
    assert all("from_pretrained will build" in note and "sk.apply_" in note for note in notes)
    # What the note advises.
    file = report.save(tmp_path / "surgery.json")
    fresh = STUBBORN[kind]().eval()
    sk.apply_(fresh, file)
    fresh.load_state_dict(model.state_dict(), strict=True)
    # Back at ReLU, those built with ReLU are stock models again, and the other is not.
    assert bool(sk.relu_ize_(model, tolerance=math.inf).notes) == (kind in ("bloom", "mamba"))


def test_a_swapped_mamba_computes_what_it_computed_when_it_comes_back(tmp_path: Path):
    torch.manual_seed(0)
    model, words = STUBBORN["mamba"]().eval(), torch.arange(14).reshape(2, 7) % 32
    report = sk.swap_(model, "relu")
    assert "also calls a function by that name" in report.notes[0]
    model.save_pretrained(tmp_path)
    again = transformers.MambaForCausalLM.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        assert torch.equal(again(words).logits, model(words).logits)


def test_a_swap_on_top_of_a_swap_and_back():
    model = build("gpt2")
    sk.swap_(model, "srelu", learn="delta", delta=0.3)
    second = sk.swap_(model, "smelu", replacing="srelu", beta=0.5)
    assert act(model, "gpt2") == "softknee:smelu(beta=0.5)"
    second.undo()
    assert act(model, "gpt2") == "softknee:srelu(delta=0.3, learn=delta)"


# -- relu_ize_ --------------------------------------------------------------------------------------------------------


@every_kind
def test_the_relu_ised_model_is_a_stock_model(kind: str, tmp_path: Path):
    model = build(kind)
    sk.swap_(model, "srelu", learn="delta", delta=0.01)
    smooth = output(model, kind)
    result = sk.relu_ize_(model, data=example(kind), tolerance=math.inf)
    assert act(model, kind) == "relu"
    assert not activation_modules(model)
    assert not result.notes
    assert list(result.bounds.values()) == [pytest.approx(3 * 0.01 / 16, rel=1e-6)] * len(WIDTHS[kind])
    hard = output(model, kind)
    assert result.output_change == pytest.approx((hard - smooth).abs().max().item())
    # Strictly into a stock model with that configuration, and by transformers' own way.
    stock = CLASSES[kind](config_of(kind, **{KEYS[kind]: "relu"})).eval()
    stock.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(output(stock, kind), hard)
    model.save_pretrained(tmp_path)
    assert torch.equal(output(CLASSES[kind].from_pretrained(tmp_path).eval(), kind), hard)
    # Nothing that is saved names softknee: whoever loads it does not need it.
    assert not [path.name for path in tmp_path.iterdir() if b"softknee" in path.read_bytes()]
    # A cache is no tensor, and no exporter of torch returns one.
    inputs = example(kind) | ({"use_cache": False} if kind in ("gpt2", "llama") else {})
    program = torch.export.export(model, (), kwargs=inputs)
    torch.testing.assert_close(program.module()(**inputs).logits, hard, rtol=1e-6, atol=1e-6)


def test_a_slope_that_no_name_of_transformers_has_is_not_named(tmp_path: Path):
    """Its leaky_relu has the slope 0.01 and no other: the configuration must not promise it for 0.25."""
    for slope, said in ((0.01, "leaky_relu"), (0.25, "softknee:leaky_smelu(beta=0.01, g_minus=0.25)")):
        model = build("gpt2")
        sk.swap_(model, "leaky_smelu", g_minus=slope, beta=0.01)
        result = sk.relu_ize_(model, tolerance=math.inf)
        assert act(model, "gpt2") == said
        assert bool(result.notes) == (slope == 0.25)
    model = build("gpt2")
    sk.swap_(model, "leaky_smelu", g_minus=0.01, beta=0.01)
    sk.relu_ize_(model, tolerance=math.inf)
    model.save_pretrained(tmp_path)
    again = CLASSES["gpt2"].from_pretrained(tmp_path).eval()
    assert torch.equal(output(again, "gpt2"), output(model, "gpt2"))


class OnlyOneName(transformers.PretrainedConfig):
    """A configuration that checks its entries, and takes one name."""

    hidden_act = "relu"

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "hidden_act" and value != "relu":
            raise TypeError(f"Field 'hidden_act' expected one of ('relu',), got {value}")
        super().__setattr__(name, value)


class TakesOneName(transformers.PreTrainedModel):
    config_class = OnlyOneName

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.fc, self.act = torch.nn.Linear(4, 4), transformers.activations.ACT2FN[config.hidden_act]

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.fc(x))


def test_a_configuration_that_takes_no_other_name_stays_with_a_note():
    config = OnlyOneName()
    config.__dict__["hidden_act"] = "relu"
    model = TakesOneName(config)
    report = sk.swap_(model, "srelu", delta=0.3, example=torch.zeros(1, 4))
    assert len(report.changed) == 1
    assert config.hidden_act == "relu"
    assert any("because it takes no other name" in note for note in report.notes)
