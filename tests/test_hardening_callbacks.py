"""The hardener inside the real Trainers of transformers and Lightning, resumed from their own checkpoints."""

import json
import math

import pytest
import torch
from torch import nn

import softknee as sk
from softknee.errors import MissingToolError, ParameterError

TARGET = 2 / (5e-3 * math.sqrt(2 * math.pi))
F32 = torch.finfo(torch.float32).eps

pytestmark = [
    # Lightning recommends workers for its loaders; the data here are four batches in memory.
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    # Lightning walks its loaders with a class that torch has deprecated.
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*:FutureWarning"),
]


def wanted(begin: float, e: int, e_s: int, total: int) -> float:
    return begin if e <= e_s else begin + (e - e_s) / (total - e_s) * (TARGET - begin)


# -- transformers -----------------------------------------------------------------------------------------


def gpt2() -> nn.Module:
    pytest.importorskip("transformers", reason="transformers is not installed; the extra 'text' brings it")
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=17, n_positions=8, n_embd=8, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    )
    for block in model.transformer.h:
        block.mlp.act = sk.nn.LambdaGELU(lam=1.5, learn=True)
    return model


def text() -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    rows = torch.randint(0, 17, (8, 8), generator=generator)
    return [{"input_ids": row, "labels": row} for row in rows]


class Watch:
    """What lambda each optimiser step was taken with, by a hook of the optimiser itself."""

    def __init__(self, act: sk.nn.LambdaGELU) -> None:
        self.act, self.lam = act, []

    def on(self, optimizer) -> None:
        optimizer.register_step_pre_hook(lambda *_: self.lam.append(self.act.lam.item()))


def hf_trainer(folder, model, callback, **settings):
    pytest.importorskip("accelerate", reason="accelerate, which transformers trains with, is not installed")
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=2,
        learning_rate=1e-2,
        save_strategy="steps",
        logging_strategy="no",
        report_to=[],
        use_cpu=True,
        seed=0,
        disable_tqdm=True,
        **{"num_train_epochs": 3, "save_steps": 2, **settings},
    )
    data = text()
    trainer = Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data[:2], callbacks=[callback])
    trainer.create_optimizer()
    return trainer


@pytest.mark.parametrize(
    ("every", "restore"), [("epoch", False), ("step", True)], ids=["epoch by itself", "step restored by the Trainer"]
)
def test_transformers_trainer_resumed(tmp_path, every: str, restore: bool):
    """4 steps an epoch, 3 epochs; stopped after 6 of 12 steps and resumed by another process's objects."""
    total = 3 if every == "epoch" else 12
    e_s = total // 3

    def parts(folder):
        model = gpt2()
        hardener = sk.Hardener(model, total=total, start=e_s)
        trainer = hf_trainer(
            folder,
            model,
            hardener.transformers_callback(every=every),
            restore_callback_states_from_checkpoint=restore,
        )
        watch = Watch(model.transformer.h[0].mlp.act)
        watch.on(trainer.optimizer)
        return model, hardener, trainer, watch

    model, hardener, trainer, watch = parts(tmp_path / "whole")
    trainer.train()
    assert len(watch.lam) == 12
    begin = hardener.begin["transformer.h.0.mlp.act"]["lam"].item()
    free = 4 * e_s if every == "epoch" else e_s
    assert begin != 1.5
    for step, lam in enumerate(watch.lam[free:], start=free + 1):
        e = math.ceil(step / 4) if every == "epoch" else step
        assert lam == pytest.approx(wanted(begin, e, e_s, total), rel=2 * F32)
    assert model.transformer.h[1].mlp.act.lam.item() == pytest.approx(TARGET, rel=2 * F32)
    saved = json.loads((tmp_path / "whole" / "checkpoint-6" / "trainer_state.json").read_text())
    assert any(name.startswith("Hardener_") for name in saved["stateful_callbacks"])

    again, late, trainer, seen = parts(tmp_path / "again")
    trainer.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-6"))
    assert seen.lam == watch.lam[6:]
    assert late.state_dict() == hardener.state_dict()
    for (name, item), other in zip(model.state_dict().items(), again.state_dict().values(), strict=True):
        assert torch.equal(item, other), name


def test_transformers_counts_optimiser_steps_and_watches_a_metric(tmp_path):
    model = gpt2()
    hardener = sk.Hardener(model, total=6, start="plateau", better="lower", patience=1, min_delta=0.9)
    callback = hardener.transformers_callback(every="step", metric="eval_loss")
    trainer = hf_trainer(
        tmp_path,
        model,
        callback,
        gradient_accumulation_steps=2,
        eval_strategy="steps",
        eval_steps=1,
        save_steps=100,
    )
    trainer.train()
    # Evaluated after steps 1 and 2; the second loss is not a tenth of the first, so step 3 begins.
    assert (hardener.last_free, hardener.position) == (2, 6)
    assert model.transformer.h[0].mlp.act.lam.item() == pytest.approx(TARGET, rel=2 * F32)


def test_a_trainer_that_ends_too_early_is_refused(tmp_path):
    model = gpt2()
    trainer = hf_trainer(tmp_path, model, sk.Hardener(model, total=9).transformers_callback())
    with pytest.raises(ParameterError, match=r"needs 9 epochs .* trains for 3"):
        trainer.train()


# -- Lightning --------------------------------------------------------------------------------------------


def lightning_parts(folder, *, every: str, epochs: int = 3, callbacks=(), metric=None, hardener=None, **settings):
    pytest.importorskip("lightning", reason="lightning is not installed")
    import lightning.pytorch as pl

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.net = nn.Sequential(nn.Linear(4, 8), sk.nn.LambdaGELU(lam=1.5, learn=True), nn.Linear(8, 1))
            self.lam: list[float] = []

        def training_step(self, batch, _):
            x, y = batch
            return (self.net(x) - y).square().mean()

        def validation_step(self, batch, _):
            self.log("val_loss", 1.0)

        def on_before_optimizer_step(self, optimizer) -> None:
            self.lam.append(self.net[1].lam.item())

        def configure_optimizers(self):
            # Called while a checkpoint is restored: a knob frozen by then would be left out of the groups.
            return torch.optim.AdamW(sk.param_groups(self, lr=1e-2, weight_decay=0.01))

    module = Module()
    hardener = hardener(module) if hardener else None
    own = hardener.lightning_callback(every=every, metric=metric)
    trainer = pl.Trainer(
        default_root_dir=folder,
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[own, *callbacks],
        num_sanity_val_steps=0,
        **{"enable_checkpointing": bool(callbacks), **settings},
    )
    return module, hardener, trainer


def loader() -> torch.utils.data.DataLoader:
    generator = torch.Generator().manual_seed(7)
    x, y = torch.randn(16, 4, generator=generator), torch.randn(16, 1, generator=generator)
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4)


@pytest.mark.parametrize("every", ["epoch", "step"])
def test_lightning_trainer_resumed(tmp_path, every: str):
    pytest.importorskip("lightning", reason="lightning is not installed")
    from lightning.pytorch.callbacks import ModelCheckpoint

    total = 3 if every == "epoch" else 12
    e_s = total // 3

    def parts(*callbacks):
        return lightning_parts(
            tmp_path, every=every, callbacks=callbacks, hardener=lambda m: sk.Hardener(m, total=total, start=e_s)
        )

    keep = ModelCheckpoint(dirpath=tmp_path, save_top_k=-1, filename="after-{epoch}")
    module, hardener, trainer = parts(keep)
    trainer.fit(module, loader(), loader())
    begin = hardener.begin["net.1"]["lam"].item()
    assert len(module.lam) == 12
    free = 4 * e_s if every == "epoch" else e_s
    assert module.lam[0] == 1.5
    assert begin != 1.5
    for step, lam in enumerate(module.lam[free:], start=free + 1):
        e = math.ceil(step / 4) if every == "epoch" else step
        assert lam == pytest.approx(wanted(begin, e, e_s, total), rel=2 * F32)
    assert module.net[1].lam.item() == pytest.approx(TARGET, rel=2 * F32)

    for epoch in (0, 1):  # once before the freeze (or just at it), once on the way
        again, late, trainer = parts(ModelCheckpoint(dirpath=tmp_path, save_top_k=0))
        trainer.fit(again, loader(), loader(), ckpt_path=tmp_path / f"after-epoch={epoch}.ckpt", weights_only=True)
        assert again.lam == module.lam[4 * (epoch + 1) :]
        assert late.state_dict() == hardener.state_dict()
        for (name, item), other in zip(module.state_dict().items(), again.state_dict().values(), strict=True):
            assert torch.equal(item, other), name


def test_lightning_accumulates_and_watches_a_metric(tmp_path):
    module, hardener, trainer = lightning_parts(
        tmp_path,
        every="step",
        metric="val_loss",
        accumulate_grad_batches=2,
        hardener=lambda m: sk.Hardener(m, total=6, start="plateau", better="lower", patience=1, latest=0.9),
    )
    trainer.fit(module, loader(), loader())
    # Two optimiser steps an epoch, a validation after each epoch: the second brings nothing new, so step 5 begins.
    assert (hardener.last_free, hardener.position) == (4, 6)
    assert len(module.lam) == 6
    assert module.net[1].lam.item() == pytest.approx(TARGET, rel=2 * F32)


def test_lightning_refusals(tmp_path):
    module, _, trainer = lightning_parts(tmp_path, every="epoch", hardener=lambda m: sk.Hardener(m, total=9))
    with pytest.raises(ParameterError, match=r"needs 9 epochs .* trains for 3"):
        trainer.fit(module, loader(), loader())
    module, _, trainer = lightning_parts(
        tmp_path,
        every="epoch",
        metric="accuracy",
        hardener=lambda m: sk.Hardener(m, total=3, start="plateau", better="higher"),
    )
    with pytest.raises(ParameterError, match="'accuracy' to flatten, and there are val_loss"):
        trainer.fit(module, loader(), loader())


# -- both -------------------------------------------------------------------------------------------------


def test_arguments_that_are_refused():
    net = nn.Sequential(sk.nn.LambdaGELU(learn=True))
    hardener = sk.Hardener(net, total=4)
    waiting = sk.Hardener(net, total=4, start="plateau", better="lower")
    for make in ("transformers_callback", "lightning_callback"):
        with pytest.raises(ParameterError, match="'epoch' or every 'step'"):
            getattr(hardener, make)(every="batch")
        with pytest.raises(ParameterError, match="metric="):
            getattr(waiting, make)()


def test_a_missing_package_is_named(monkeypatch):
    import sys

    hardener = sk.Hardener(nn.Sequential(sk.nn.LambdaGELU(learn=True)), total=4)
    monkeypatch.setitem(sys.modules, "transformers.trainer_callback", None)
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    for make in ("transformers_callback", "lightning_callback"):
        with pytest.raises(MissingToolError, match="pip install"):
            getattr(hardener, make)()
