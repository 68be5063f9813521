"""Activations as one text: the grammar, the way there and back, and the texts inside transformers' own configs."""

import json
import os
import subprocess
import sys
import types
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import processes
import softknee as sk
from softknee import transformers_names
from softknee.errors import ParameterError, SoftkneeError, UnknownActivationError
from softknee.registry import resolve
from softknee.spec import Activation, Rowwise
from softknee.surgery import module_of, name_of

X = torch.linspace(-5, 5, 101)


# -- the grammar --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "values", "learn"),
    [
        ("srelu", "srelu", {}, False),
        ("softknee:gelu", "gelu", {}, False),
        ("srelu()", "srelu", {}, False),
        (" softknee: srelu ( delta = 5e-2 , learn = 'delta' ) ", "srelu", {"delta": 0.05}, ("delta",)),
        ('srelu(learn="delta", per=layer)', "srelu", {}, ("delta",)),
        ("generalized_smelu(g_minus=-0.1,t=+.5,learn=alpha + beta)", "generalized_smelu", {"g_minus": -0.1, "t": 0.5},
         ("alpha", "beta")),
        ("squaf(k=16, q=0.25, z=gelu, window=auto, learn=all)", "squaf", {"k": 16, "q": 0.25, "z": "gelu",
         "window": "auto"}, True),
        ("gelu(approximate=tanh)", "gelu", {"approximate": "tanh"}, False),
    ],
)  # fmt: skip
def test_a_text_says(text: str, name: str, values: dict, learn: object):
    read = resolve(text)
    assert (read.definition.name, dict(read.values), read.learn or False) == (name, values, learn)
    assert all(type(read.values[key]) is type(value) for key, value in values.items())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "cannot be read"),
        ("srelu(delta=0.05", "cannot be read"),
        ("srelu)delta=1(", "cannot be read"),
        ("knee.json", "could not be read"),
        ("../srelu", "cannot be read"),
        ("srelu(x" + " " * 5000 + ")", "are allowed"),
        ("other:srelu", "cannot be read"),
        ("srelu(0.05)", "has no x"),
        ("srelu(delta=)", "neither"),
        ("srelu(delta=0.05, delta=0.1)", "twice"),
        ("srelu(delta=[1, 2])", "takes one argument inside a formula"),
        ("srelu(delta=__import__('os').getcwd())", "neither"),
        ("srelu(delta=1+2)", "neither"),
        ("srelu(delta=0x10)", "neither"),
        ("srelu(delta=nan)", "must be a number"),
        ("srelu(detla=0.1)", "Did you mean 'delta'"),
        ("srelu(device=cpu)", "no 'device' that a text can carry"),
        ("srelu(inplace=1)", "no 'inplace' that a text can carry"),
        ("srelu(definition=1)", "no 'definition'"),
        ("squaf(grid=1)", "no 'grid'"),
        ("srelu(per=channel)", "per=layer"),
        ("srelu(size=4)", "per=layer"),
        ("srelu(learn=1)", "names of parameters"),
        ("srelu(learn=beta)", "no parameter 'beta' to learn"),
        ("srelu(delta=-1)", "must be a finite number above 0"),
        ("srelu(delta=1e999)", "must be a finite number above 0"),
        ("squaf(z=nosuch)", "no activation named 'nosuch'"),
    ],
)
def test_what_is_no_text_is_refused_with_a_sentence(text: str, says: str):
    with pytest.raises(SoftkneeError) as caught:
        module_of(text)
    assert says in str(caught.value)
    assert str(caught.value).rstrip().endswith((".", "?"))


def test_an_unknown_name_has_a_did_you_mean():
    with pytest.raises(UnknownActivationError, match=r"Did you mean 'srelu'"):
        module_of("srelo(delta=0.1)")


# -- from a module to its text and back ---------------------------------------------------------------------------

MODULES = {
    **{name: partial(sk.nn.make, name) for name in sk.names()},
    "odd digits": partial(sk.nn.SReLU, delta=1 / 3),
    "float64": partial(sk.nn.SReLU, delta=1 / 3, dtype=torch.float64),
    "bfloat16": partial(sk.nn.SReLU, delta=1 / 3, dtype=torch.bfloat16),
    "learned": partial(sk.nn.SReLU, delta=0.05, learn=True),
    "learned tiny": partial(sk.nn.SmeLU, beta=1.2345e-7, learn="beta"),
    "two of five": partial(sk.nn.GeneralizedSmeLU, alpha=0.3, g_minus=-0.1, learn=("alpha", "beta")),
    "temperature": partial(sk.nn.LambdaGELU, lam=1.7, learn=True, temperature=0.25),
    "variant": partial(sk.nn.GELU, approximate="tanh", beta=2.0),
    "squaf": partial(sk.nn.make, "squaf", k=16, q=0.25, z="gelu", learn=("z", "alpha")),
    "squaf, full sum": partial(sk.nn.make, "squaf", k=3, q=0.1, z="tanh", window=None, weights="laplacian"),
    "squaf, auto": partial(sk.nn.make, "squaf", k=16, q=0.25, alpha=4.0, window="auto", tolerance=1e-6, learn="q"),
    "selu": partial(sk.nn.SELU),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", MODULES)
def test_a_module_comes_back_from_its_text(case: str):
    module = MODULES[case]()
    kind = next((t.dtype for t in [*module.parameters(), *module.buffers()] if t.is_floating_point()), X.dtype)
    x, text = X.to(kind), name_of(module)
    try:
        torch.set_default_dtype(kind)
        again, structure = module_of(text), module_of(name_of(module, numbers=False))
    finally:
        torch.set_default_dtype(torch.float32)
    assert again.definition is module.definition
    assert again.learned == module.learned
    assert name_of(again) == text
    # A learned value is scale * softplus(raw): what is written is the product, which comes back to a few last bits.
    near = 4 * torch.finfo(kind).eps if module.learned else 0.0
    torch.testing.assert_close(again(x), module(x), rtol=near, atol=near * 5)
    structure.load_state_dict(module.state_dict())
    assert torch.equal(structure(x), module(x))


def test_every_number_has_the_fewest_digits():
    assert name_of(sk.nn.SReLU(delta=0.05)) == "softknee:srelu(delta=0.05)"
    assert name_of(sk.nn.SReLU(delta=0.1, dtype=torch.float64)) == "softknee:srelu(delta=0.1)"
    assert name_of(sk.nn.ReLU()) == "softknee:relu"


def test_a_trained_module_keeps_its_value():
    module = sk.nn.SReLU(delta=0.05, learn=True)
    with torch.no_grad():
        module.raw_delta += 0.7
    again = module_of(name_of(module))
    torch.testing.assert_close(again.delta, module.delta, rtol=3e-7, atol=0.0)


def saturated() -> nn.Module:
    module = sk.nn.LambdaGELU(learn=True)
    with torch.no_grad():
        module.raw_lam.fill_(-100.0)
    return module


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: sk.nn.SReLU(learn=True, per="channel", size=4), "one value for each layer"),
        (lambda: nn.GELU(), "Only modules of softknee"),
        (lambda: sk.nn.make("squaf", z=[1.0, 0.5, 3.0]), "not the sample of a function"),
        (lambda: sk.nn.make("squaf", grid=[0.0, 1.0, 3.0], z="relu"), "general grid"),
        (lambda: sk.nn.make(sk.design.mollify("relu", "box", width=0.5, name="mine")), "register"),
        (lambda: sk.nn.SReLU(device="meta"), "numbers=False"),
        (saturated, "cannot be learned"),
    ],
)
def test_what_a_text_cannot_carry_is_refused(make: object, says: str):
    with pytest.raises(ParameterError, match=says):
        name_of(make())


def test_a_trained_table_is_left_to_the_checkpoint():
    module = sk.nn.make("squaf", k=2, z=[0.0, -1.0, 0.5, 1.0, 7.0], learn="z")
    assert name_of(module, numbers=False) == "softknee:squaf(k=2, window=5, learn=z)"


# -- transformers -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table() -> object:
    pytest.importorskip("transformers", reason="transformers is not installed; the extra 'text' brings it")
    from transformers.activations import ACT2FN

    return ACT2FN


def test_names_of_transformers_keep_their_meaning(table):
    from transformers.activations import ACT2CLS, GELUActivation

    assert type(table["gelu"]) is GELUActivation
    theirs = [name for name in sk.names() if name in list(table)]
    assert {"gelu", "relu", "silu", "swish", "mish", "tanh", "leaky_relu", "prelu"} <= set(theirs)
    for name in theirs:
        assert not type(table[name]).__module__.startswith("softknee")
        ours = table[f"softknee:{name}"]
        assert type(ours).__module__.startswith("softknee")
        with torch.no_grad():
            # Its xielu has its numbers in bfloat16.
            near = 2.0**-8 if name == "xielu" else 1e-6
            torch.testing.assert_close(table[name](X), ours(X), rtol=near, atol=20 * near if name == "xielu" else near)
    assert set(sk.names()) <= set(ACT2CLS)
    assert torch.equal(ACT2CLS["srelu"]()(X), sk.get("srelu")(X))


def test_every_name_works_and_gives_a_new_module(table):
    for name in sk.names():
        assert name in table
        assert f"softknee:{name}" in table
        first, second = table[f"softknee:{name}"], table[f"softknee:{name}"]
        assert first is not second
        assert torch.equal(first(X), second(X))
    first, second = (table["srelu(delta=0.05, learn=delta)"] for _ in range(2))
    assert first.raw_delta is not second.raw_delta


def test_registering_twice_changes_nothing_and_later_names_work(table):
    kind, count = type(table), len(table)
    sk.register_transformers()
    assert (type(table), len(table)) == (kind, count)
    assert "later" not in table
    sk.register(Activation("later", 2 * sk.spec.x))
    try:
        assert "later" in table
        assert torch.equal(table["later"](X), 2 * X)
    finally:
        sk.registry.unregister("later")


def test_wrong_names_are_told_apart(table):
    with pytest.raises(KeyError, match=r"Did you mean 'gelu_new'"):
        table["gelu_nwe"]
    with pytest.raises(UnknownActivationError, match=r"Did you mean 'srelu'"):
        table["softknee:srelo(delta=1)"]
    with pytest.raises(ParameterError, match="Did you mean 'delta'"):
        table["srelu(detla=1)"]
    with pytest.raises(KeyError):
        table[None]
    assert "srelo" not in table
    assert None not in table
    assert "srelu(detla=1)" not in table


def build(kind: str, text: str) -> tuple[nn.Module, dict]:
    """A real model of transformers, tiny, with its activation named by a text; and an input for it."""
    import transformers as t

    torch.manual_seed(0)
    words = {"input_ids": torch.arange(14).reshape(2, 7) % 32}
    small = {"vocab_size": 32, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
    layers = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    if kind == "gpt2":
        config = t.GPT2Config(n_layer=2, n_head=2, n_embd=16, n_positions=16, activation_function=text, **small)
        return t.GPT2LMHeadModel(config).eval(), words
    if kind == "bert":
        return t.BertForMaskedLM(t.BertConfig(hidden_act=text, **layers, **small)).eval(), words
    if kind == "llama":
        return t.LlamaForCausalLM(t.LlamaConfig(hidden_act=text, **layers, **small)).eval(), words
    config = t.ViTConfig(hidden_act=text, image_size=8, patch_size=4, **layers)
    return t.ViTForImageClassification(config).eval(), {"pixel_values": torch.linspace(-1, 1, 384).reshape(2, 3, 8, 8)}


TEXTS = {
    "gpt2": "softknee:srelu(delta=0.05, learn=delta)",
    "bert": "squaf(k=4, q=0.25, alpha=9, z=gelu, window=auto, learn=q+z)",
    "vit": "lambda_gelu(lam=1.5, learn=lam)",
    "llama": "softknee:swish(beta=2)",
}

# Runs in a process of its own, which has seen none of this one and imports softknee first.
FRESH = """
import json, sys, torch, softknee as sk
folder, report = sys.argv[1], {"imported": "transformers" in sys.modules}
import transformers
with open(folder + "/names.json") as file:
    classes, words = json.load(file)
for kind, name in classes.items():
    model = getattr(transformers, name).from_pretrained(f"{folder}/{kind}").eval()
    inputs = torch.load(f"{folder}/{kind}.in", weights_only=True)
    with torch.no_grad():
        torch.save(model(**inputs).logits, f"{folder}/{kind}.out")
    report[kind] = [str(m) for m in model.modules() if isinstance(m, sk.nn.Pointwise | sk.nn.Squaf)]
# Weights of a model that had another function: what the checkpoint lacks starts where the text says.
for text in words:
    model = transformers.GPT2LMHeadModel.from_pretrained(folder + "/plain", activation_function=text)
    report[text] = [str(block.mlp.act) for block in model.transformer.h]
with open(folder + "/report.json", "w") as file:
    json.dump(report, file)
"""
WITHOUT_VALUES = (
    "srelu(delta=0.05, learn=delta)",
    "srelu(delta=0.05)",
    "lambda_gelu(lam=1.5, learn=lam)",
    "squaf(k=2, q=0.5, z=gelu, window=auto, learn=all)",
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory, table) -> tuple[Path, dict, dict]:
    """Four models, changed as training would, saved by transformers and loaded in a process of its own."""
    folder = tmp_path_factory.mktemp("saved")
    models = {}
    for kind, text in TEXTS.items():
        model, inputs = build(kind, text)
        with torch.no_grad():
            for index, (name, parameter) in enumerate(model.named_parameters()):
                if "act" in name:
                    parameter += 0.1 * (index + 1)
            for module in model.modules():
                if isinstance(module, sk.nn.Swish):
                    module.set_(beta=2.5)
        model.save_pretrained(folder / kind)
        torch.save(inputs, folder / f"{kind}.in")
        models[kind] = (model, inputs)
    build("gpt2", "gelu_new")[0].save_pretrained(folder / "plain")
    classes = {kind: type(model).__name__ for kind, (model, _) in models.items()}
    (folder / "names.json").write_text(json.dumps([classes, WITHOUT_VALUES]))
    processes.run(processes.execute, FRESH, str(folder), count=1, environment={"HF_HUB_OFFLINE": "1"})
    return folder, models, json.loads((folder / "report.json").read_text())


@pytest.mark.parametrize("kind", TEXTS)
def test_a_saved_model_comes_back_in_a_fresh_process(kind: str, saved):
    folder, models, report = saved
    model, inputs = models[kind]
    config = json.loads((folder / kind / "config.json").read_text())
    assert config["activation_function" if kind == "gpt2" else "hidden_act"] == TEXTS[kind]
    with torch.no_grad():
        # Not bit by bit: another process may take another kernel for the same product (other alignment of memory).
        torch.testing.assert_close(torch.load(folder / f"{kind}.out", weights_only=True), model(**inputs).logits)
    mine = [str(m) for m in model.modules() if isinstance(m, sk.nn.Pointwise | sk.nn.Squaf)]
    assert report[kind] == mine
    assert len(set(mine)) == len(mine) or kind == "llama"  # every layer had a value of its own


def test_softknee_alone_does_not_import_transformers(saved):
    assert saved[2]["imported"] is False


# A new interpreter: that of a colleague who has transformers and a checkpoint, and later imports softknee.
LATE = """
import sys
from transformers import GPT2LMHeadModel
try:
    GPT2LMHeadModel.from_pretrained(sys.argv[1])
except KeyError as error:
    print("KeyError:", error.args[0], "softknee" in sys.modules)
import softknee
print(GPT2LMHeadModel.from_pretrained(sys.argv[1]).transformer.h[0].mlp.act)
"""


def test_transformers_first_stops_with_a_text_that_names_softknee_until_it_is_imported(saved):
    folder, models, _ = saved
    result = subprocess.run(
        [sys.executable, "-c", LATE, str(folder / "gpt2")],
        env=os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    module = models["gpt2"][0].transformer.h[0].mlp.act
    assert result.stdout.splitlines() == [f"KeyError: {TEXTS['gpt2']} False", str(module)]


def test_tables_of_another_version_do_not_stop_its_import(monkeypatch):
    monkeypatch.setitem(sys.modules, transformers_names.TABLES, types.ModuleType("activations"))
    transformers_names.watch()
    with pytest.raises(AttributeError, match="ACT2FN"):
        sk.register_transformers()


@pytest.mark.parametrize("text", WITHOUT_VALUES)
def test_weights_of_another_function_start_where_the_text_says(text: str, saved):
    assert saved[2][text] == [str(module_of(text))] * 2


def test_values_that_were_set_survive_transformers_initialisation(table):
    """transformers asks modules more than once whether they are initialised; only one built without memory is reset."""
    model, _ = build("gpt2", "srelu(delta=0.05)")
    act = model.transformer.h[0].mlp.act
    act.set_(delta=0.7)
    model.initialize_weights()
    assert act.delta.item() == pytest.approx(0.7)
    empty = sk.nn.SReLU(delta=0.3, learn=True, device="meta").to_empty(device="cpu")
    assert empty._is_hf_initialized
    assert empty.delta.item() == pytest.approx(0.3)
    loaded = sk.nn.SReLU(delta=0.3, learn=True, device="meta").to_empty(device="cpu")
    loaded.load_state_dict(sk.nn.SReLU(delta=0.9, learn=True).state_dict())
    loaded._is_hf_initialized = True  # what transformers 4 says of a module that is in the checkpoint
    assert loaded._is_hf_initialized
    assert loaded.delta.item() == pytest.approx(0.9)


def test_a_function_of_rows_has_a_text_too():
    name = sk.register(Rowwise("by_norm", lambda x, *, c: x / (x.norm(dim=-1, keepdim=True) + c),
                               params=(sk.spec.positive("c", 1.0),))).name  # fmt: skip
    try:
        module = sk.nn.make(name, c=0.25, learn="c")
        assert name_of(module) == "softknee:by_norm(c=0.25, learn=c)"
        torch.testing.assert_close(module_of(name_of(module))(X), module(X))
    finally:
        sk.registry.unregister(name)
