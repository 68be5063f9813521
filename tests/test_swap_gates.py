"""`swap_(..., fuse=True)`: blocks that compute self.act(a) * b do so in one call, and everything else stays."""

import copy
import math
import pickle

import pytest
import torch
from torch import Tensor, nn

import softknee as sk
from softknee.nn.gated import GatedPointwise

transformers = pytest.importorskip("transformers", reason="the extra 'text' brings transformers")

SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 99}
FAMILIES = {"Llama": {}, "Mistral": {}, "Qwen2": {}, "Gemma": {"head_dim": 16}, "Phi3": {}}
WORDS = torch.randint(99, (2, 9), generator=torch.Generator().manual_seed(1))


def language_model(family: str) -> nn.Module:
    config = getattr(transformers, f"{family}Config")
    torch.manual_seed(0)
    settings = config(**SMALL, num_key_value_heads=2, pad_token_id=0, **FAMILIES[family])
    return getattr(transformers, f"{family}ForCausalLM")(settings).eval()


def gates(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if isinstance(module, GatedPointwise)]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_fused_model_computes_and_saves_what_the_other_does(family):
    model, other = language_model(family), language_model(family)
    before, keys = model(WORDS).logits, list(model.state_dict())
    report = sk.swap_(model, "srelu", delta=0.5, learn=True, fuse=True, example=WORDS)
    sk.swap_(other, "srelu", delta=0.5, learn=True, example=WORDS)
    assert len(gates(model)) == 2
    assert not report.notes
    assert report.output_change > 0
    assert list(model.state_dict()) == list(other.state_dict())
    results = [each(WORDS).logits for each in (model, other)]
    torch.testing.assert_close(*results)
    for result in results:
        result.square().sum().backward()
    for (name, p), q in zip(model.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-3, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")
    report.undo()
    assert torch.equal(model(WORDS).logits, before)
    assert list(model.state_dict()) == keys


def test_copies_pickles_and_files_of_surgery_stay_fused(tmp_path):
    model = language_model("Llama")
    sk.swap_(model, "smelu", learn=True, fuse=True).save(tmp_path / "surgery.json")
    again = language_model("Llama")
    sk.apply_(again, tmp_path / "surgery.json")
    again.load_state_dict(model.state_dict())
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), again):
        assert len(gates(twin)) == 2
        torch.testing.assert_close(twin(WORDS).logits, model(WORDS).logits)


def test_surgery_after_surgery():
    model = language_model("Llama")
    sk.swap_(model, "srelu", fuse=True)
    fused = model(WORDS).logits
    apart = sk.swap_(model, "smelu", example=WORDS)
    assert not gates(model)
    apart.undo()
    assert len(gates(model)) == 2
    assert torch.equal(model(WORDS).logits, fused)
    again = sk.swap_(model, "smelu", fuse=True, example=WORDS)
    assert len(gates(model)) == 2
    again.undo()
    assert torch.equal(model(WORDS).logits, fused)
    sk.relu_ize_(model, tolerance=math.inf)
    assert type(model.model.layers[0].mlp) is type(language_model("Llama").model.layers[0].mlp)
    assert type(model.model.layers[0].mlp.act_fn) is nn.ReLU
    model(WORDS)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act, self.other, self.late, self.table = nn.SiLU(), nn.SiLU(), nn.SiLU(), nn.SiLU()
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(x) * x + self.other(x)
        y = y + self.drop(x) * self.late(self.drop(y))  # what is drawn first must stay first
        return y + self.table(x) * x


def test_what_is_no_product_of_that_form_stays_apart():
    model, x = Block(), torch.randn(4, 8)
    torch.manual_seed(0)
    sk.swap_(model, "srelu", delta=0.5)
    wanted = model(x)
    fused = Block()
    report = sk.swap_(fused, "srelu", delta=0.5, fuse=True)
    torch.manual_seed(0)
    torch.testing.assert_close(fused(x), wanted)
    kinds = [isinstance(getattr(fused, name), GatedPointwise) for name in ("act", "other", "late", "table")]
    assert kinds == [True, False, False, True]
    assert any("of 4 activations 2 stay apart" in note for note in report.notes)


def test_a_soft_table_stays_apart_and_says_so():
    model = language_model("Llama")
    report = sk.swap_(model, "squaf", k=4, q=0.5, z="gelu", fuse=True, example=WORDS)
    assert not gates(model)
    assert any("2 stay apart" in note for note in report.notes)
