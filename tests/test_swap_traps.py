"""Places where a swap would be ignored without a word: fast paths, fused layers, wrappers, compiled models."""

from __future__ import annotations

import copy
import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import softknee as sk
from softknee.surgery.swapping.swap import WITHOUT_EXAMPLE
from surgery_helpers import X, mlp, snapshot

# torch says this of its own prototype whenever an encoder of its own packs a padded batch.
pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage:UserWarning")

TOKENS = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(0))
PADDED = torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] * 4 + [True]])


def layer(activation: Any = "relu", **more: Any) -> nn.TransformerEncoderLayer:
    torch.manual_seed(0)
    return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation=activation, batch_first=True, **more)


def slowly(model: nn.Module, x: Tensor, **more: Any) -> Tensor:
    """In training mode, without dropout: torch's plain mathematics, which calls the activation that is there."""
    twin = copy.deepcopy(model).train()
    return twin(x, **more)


def fused(model: nn.Module, x: Tensor, **more: Any) -> bool:
    """Whether a run uses torch's fused kernel, which knows nothing of the activation."""
    with torch.no_grad(), torch.profiler.profile(acc_events=True) as profile:
        model(x, **more)
    return any("transformer_encoder_layer_fwd" in event.key for event in profile.key_averages())


@pytest.mark.parametrize(
    "activation",
    ["relu", "gelu", F.relu, nn.ReLU(), nn.GELU()],
    ids=["relu", "gelu", "F.relu", "nn.ReLU", "nn.GELU"],  # a function's own text has its address in it
)
@pytest.mark.parametrize("example", [None, TOKENS], ids=["without example", "with example"])
def test_an_encoder_layer_uses_its_new_activation_in_eval_mode(activation: Any, example: Any) -> None:
    model = layer(activation).eval()
    before = model(TOKENS)
    assert fused(model, TOKENS)
    report = sk.swap_(model, "smelu", beta=3.0, learn=True, example=example)
    assert [site.path for site in report.changed] == ["activation"]
    with torch.no_grad():
        after = model(TOKENS)
    assert torch.allclose(after, slowly(model, TOKENS), atol=1e-6)
    assert not torch.allclose(after, before, atol=1e-2)
    assert not fused(model, TOKENS)
    assert torch.allclose(copy.deepcopy(model)(TOKENS), after, atol=1e-6)
    report.undo()
    assert fused(model, TOKENS)
    assert torch.equal(model(TOKENS), before)


@pytest.mark.parametrize("where", [None, "layers.0.*", "layers.1.*"])
@pytest.mark.parametrize("mask", [None, PADDED], ids=["whole", "padded"])
def test_an_encoder_does_not_pack_what_its_layers_cannot_take(where: str | None, mask: Tensor | None) -> None:
    model = nn.TransformerEncoder(layer(), 2).eval()
    kept = ~mask if mask is not None else torch.ones(3, 5, dtype=torch.bool)
    with torch.no_grad():
        before = model(TOKENS, src_key_padding_mask=mask)
    report = sk.swap_(model, "smelu", where=where, beta=3.0)
    with torch.no_grad():
        after = model(TOKENS, src_key_padding_mask=mask)
    wanted = slowly(model, TOKENS, src_key_padding_mask=mask)
    assert torch.allclose(after[kept], wanted[kept], atol=1e-5)
    assert not torch.allclose(after[kept], before[kept], atol=1e-2)
    report.undo()
    with torch.no_grad():
        assert torch.equal(model(TOKENS, src_key_padding_mask=mask), before)


def test_a_failed_swap_leaves_the_fast_path() -> None:
    model = layer().eval()
    before = vars(model).copy()
    with pytest.raises(sk.SoftkneeError):
        sk.swap_(model, "smelu", beta=-1.0)
    half = sk.spec.Rowwise("halving", F.glu, size_out=lambda n: n // 2)
    with pytest.raises(sk.InputError, match="no longer runs on the example"):
        sk.swap_(model, half, example=TOKENS)
    assert vars(model) == before
    assert fused(model, TOKENS)


def test_apply_leaves_the_fast_path_too(tmp_path: Path) -> None:
    model, fresh = layer().eval(), layer().eval()
    path = sk.swap_(model, "smelu", beta=3.0).save(tmp_path / "surgery.json")
    report = sk.apply_(fresh, path)
    with torch.no_grad():
        assert torch.equal(fresh(TOKENS), model(TOKENS))
    assert not fused(fresh, TOKENS)
    report.undo()
    assert fused(fresh, TOKENS)


# -- activations that cannot be seen --------------------------------------------------------------------------------


class FusedMLP(nn.Module):
    """Stands for the fused layers of other libraries, which are told by their name."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(6))

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x @ self.weight)


class Unfused(FusedMLP):
    """Of the same family, with its activation in the open."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(x @ self.weight)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.cell, self.act = nn.LSTM(6, 6, batch_first=True), nn.GRUCell(6, 6), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.cell(self.lstm(x[:, None])[0][:, 0]))


def test_layers_that_hide_their_activation_are_reported() -> None:
    report = sk.swap_(Recurrent(), "srelu", example=X)
    assert [site.path for site in report.changed] == ["act"]
    assert [(item.path, item.activation) for item in report.skipped] == [("lstm", "LSTM"), ("cell", "GRUCell")]
    assert "inside a recurrent kernel" in str(report)
    report = sk.swap_(nn.Sequential(FusedMLP(), Unfused(), nn.ReLU()), "srelu")
    assert [value.path for value in report.changed] == ["1.act", "2"]
    assert ("0", "FusedMLP") in [(entry.path, entry.activation) for entry in report.skipped]
    assert not any(one.path == "1" for one in report.skipped)
    with pytest.raises(sk.InputError, match=r"that can be replaced.*hide their activation: lstm \(LSTM\)"):
        sk.swap_(nn.ModuleDict({"lstm": nn.LSTM(6, 6)}), "srelu")


def test_a_batch_norm_with_an_activation_inside_is_reported() -> None:
    class InplaceAbn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(6))

        def forward(self, x: Tensor) -> Tensor:
            return F.leaky_relu(x * self.weight)

    report = sk.swap_(nn.Sequential(InplaceAbn(), nn.ReLU()), "srelu")
    assert [site.path for site in report.changed] == ["1"]
    assert (
        report.skipped[-1].reason == "It computes its activation inside its batch norm; build the layer unfused first."
    )


# -- configurations ---------------------------------------------------------------------------------------------------


class Configured(nn.Module):
    """As transformers has it: a configuration that names the function which every layer is built with."""

    def __init__(self) -> None:
        super().__init__()
        transformers = pytest.importorskip("transformers", reason="the extra 'text' brings transformers")
        act2fn = transformers.activations.ACT2FN
        self.config = transformers.PreTrainedConfig(hidden_act="gelu", other_act=None)
        self.layers = mlp(act2fn["gelu"], act2fn["gelu"], nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def test_a_configuration_names_the_new_function(tmp_path: Path) -> None:
    model = Configured()
    report = sk.swap_(model, "srelu", replacing="gelu", delta=0.25)
    assert model.config.hidden_act == "softknee:srelu(delta=0.25)"
    fresh = Configured()
    again = sk.apply_(fresh, report.save(tmp_path / "surgery.json"))
    assert fresh.config.hidden_act == model.config.hidden_act
    again.undo()
    assert fresh.config.hidden_act == "gelu"
    sk.relu_ize_(model, tolerance=math.inf)
    assert model.config.hidden_act == "relu"


def test_a_configuration_that_cannot_say_it_is_left_with_a_note() -> None:
    model = Configured()
    first = sk.swap_(model, "srelu", where="layers.1", delta=0.25)
    assert model.config.hidden_act == "gelu"
    assert "it names one function for all layers and not all of them were changed" in first.notes[0]
    # The rest, and it can.
    second = sk.swap_(model, "srelu", where="layers.3", delta=0.25)
    assert (model.config.hidden_act, second.notes) == ("softknee:srelu(delta=0.25)", [WITHOUT_EXAMPLE])
    second.undo()
    assert model.config.hidden_act == "gelu"
    assert "the new functions differ" in sk.swap_(model, "smelu", where="layers.3").notes[0]
    dry = Configured()
    sk.swap_(dry, "srelu", dry_run=True)
    assert dry.config.hidden_act == "gelu"


# -- wrappers and compilers -----------------------------------------------------------------------------------------


def test_a_wrapped_model_is_refused(tmp_path: Path) -> None:
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        inner = mlp(nn.GELU())
        wrapped = nn.parallel.DistributedDataParallel(inner)
        before = snapshot(wrapped)
        with pytest.raises(sk.InputError, match=r"already wrapped \(DistributedDataParallel\).*swap first, then wrap"):
            sk.swap_(wrapped, "srelu", learn=True)
        assert snapshot(wrapped) == before
        assert [site.path for site in sk.sites(wrapped)] == ["module.1"]
    finally:
        torch.distributed.destroy_process_group()


def test_a_scripted_model_is_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates TorchScript
        scripted = torch.jit.script(mlp(nn.GELU()))
    with pytest.raises(sk.InputError, match="is TorchScript, whose code is fixed; change the model before"):
        sk.swap_(scripted, "srelu")


class Calls(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.act = nn.Linear(6, 6), nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(F.relu(self.fc(x)))


@pytest.mark.parametrize("example", [None, X], ids=["without example", "with example"])
def test_a_compiled_model_follows(example: Any) -> None:
    torch._dynamo.reset()
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append([node.target for node in graph.graph.nodes])
        return graph.forward

    compiled: Any = torch.compile(Calls(), backend=backend)
    before = compiled(X)
    assert len(graphs) == 1
    report = sk.swap_(compiled, "smelu", beta=3.0, example=example)
    results = [site.path for site in report.changed]
    assert results == (["_orig_mod.act"] if example is None else ["_orig_mod.relu", "_orig_mod.act"])
    smelu = sk.nn.SmeLU(beta=3.0)
    inner = F.relu if example is None else smelu
    assert torch.allclose(compiled(X), smelu(inner(compiled._orig_mod.fc(X))), atol=1e-6)
    # Compiled anew, as one graph, and not given up.
    assert len(graphs) == 2
    assert torch._C._nn.gelu in graphs[0]
    assert torch._C._nn.gelu not in graphs[1]
    report.undo()
    assert torch.equal(compiled(X), before)


class Holds(nn.Module):
    """Keeps what it built beside the module, as fused and compiled layers do."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.act = nn.Linear(6, 6), nn.GELU()
        self.parts = {"first": self.fc, "second": self.act}

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts.values():
            x = part(x)
        return x


def test_a_new_activation_that_is_not_called_is_said() -> None:
    report = sk.swap_(Holds(), "srelu", example=X)
    assert report.output_change == 0.0
    assert report.notes[0].startswith(
        "Not called any more, though its predecessor was: act. Something in the model holds"
    )
    assert report.notes[1].startswith("Never called by the example: act.")
    assert report.notes[2].startswith("The output on the example did not move")
    assert str(report).startswith("1 changed (1 never called), 0 left")
    assert sk.swap_(Calls(), "srelu", example=X).notes == []


@torch.no_grad()  # with gradients torch's compiler warns of itself
def test_a_compiled_activation_is_replaced_as_a_whole() -> None:
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(6, 6), torch.compile(nn.GELU(), backend="eager"))
    for example in (None, X):
        assert [(site.path, site.activation) for site in sk.sites(model, example)] == [("1", "gelu")]
        report = sk.swap_(model, "srelu", delta=1.0, example=example)
        assert torch.equal(model(X), sk.nn.SReLU(delta=1.0)(model[0](X)))
        report.undo()
        assert torch.allclose(model(X), F.gelu(model[0](X)))


@pytest.mark.slow
def test_the_swapped_model_compiles_whole_and_traces() -> None:
    torch._dynamo.reset()
    model = Calls()
    sk.swap_(model, "smelu", beta=3.0, learn=True, example=X)
    wanted = model(X)
    assert torch.allclose(torch.compile(model, backend="eager", fullgraph=True)(X), wanted, atol=1e-6)
    assert torch.allclose(torch.export.export(model, (X,)).module()(X), wanted, atol=1e-6)
    assert torch.allclose(torch.fx.symbolic_trace(model)(X), wanted, atol=1e-6)
