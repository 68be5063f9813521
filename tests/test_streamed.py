"""Examples read from a disk while they are trained on: bit by bit what the same examples in memory give."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import softknee as sk
from data_files import write_imagenet
from softknee.errors import DataError, InputError, ParameterError, RecipeError
from softknee.lab.data.imagenet import write_bytes
from softknee.lab.studies import examples as loading
from softknee.lab.studies.engine import pack_examples
from softknee.lab.studies.examples import Examples, load_examples
from softknee.lab.studies.recipe import Augmentation, Data, Hardening, Model, Seeds, Training
from softknee.lab.studies.running import run_trial, training
from softknee.lab.studies.trial import Chosen, Trial
from softknee.train.augment import Augment
from softknee.train.program import Program
from softknee.train.streamed import Feed, Streamed

MEAN, SPREAD = (100.0, 120.5, 131.25), (60.0, 61.5, 70.25)
SHARES: dict[str, Any] = {"mean": [item / 255 for item in MEAN], "std": [item / 255 for item in SPREAD]}
LEVELS = torch.randint(256, (53, 3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
PLACES = torch.randperm(53, generator=torch.Generator().manual_seed(1))[:47]
LABELS = torch.arange(47) % 3
FIT: dict[str, Any] = {"batch": 10, "lr": 0.05, "momentum": 0.9}  # five batches, of which the last has 7


def cnn(activation: Callable[[], nn.Module], classes: int) -> nn.Module:
    """With dropout and batch norm, which a wrong batch would show in."""
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), activation(), nn.Dropout(0.2), nn.AdaptiveAvgPool2d(3),
        nn.Flatten(), nn.Linear(54, classes),
    )  # fmt: skip


def replicas(*, device: str = "cpu", **shared: bool) -> sk.train.Replicas:
    return sk.train.Replicas(lambda: cnn(sk.nn.SmeLU, 3), count=3, device=device, **shared)


@pytest.fixture
def streamed(tmp_path: Path) -> Streamed:
    path = tmp_path / "some.bytes"
    path.write_bytes(LEVELS.numpy().tobytes())
    return Streamed(path=path, image=(3, 8, 8), places=PLACES, mean=MEAN, spread=SPREAD)


def in_memory() -> Tensor:
    mean, spread = (torch.tensor(item).view(3, 1, 1) for item in (MEAN, SPREAD))
    return (LEVELS[PLACES].float() - mean) / spread


def assert_same(one: sk.train.Replicas, other: sk.train.Replicas) -> None:
    assert torch.equal(one.losses, other.losses)
    for name, weight in one.weights().items():
        assert torch.equal(weight, other.weights()[name]), name


# -- training -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compiled", [False, True], ids=["together", "apart"])
@pytest.mark.parametrize("augment", [None, Augment(crop=2, flip=True, mixup=0.3, classes=3, **SHARES)], ids=["", "mix"])
def test_training_from_a_disk_is_that_in_memory(streamed, augment, compiled) -> None:
    """Every replica in its own order, the smaller last batch, and going on from a saved state."""
    how = {**FIT, "augment": augment, "compiled": compiled, "total_epochs": 3}
    x = in_memory() if augment is None else LEVELS[PLACES]
    whole = replicas().fit(x, LABELS, epochs=3, **how)
    part = replicas().fit(streamed, LABELS, epochs=1, **how)
    rest = replicas().load_state_dict(part.state_dict()).fit(streamed, LABELS, epochs=2, **how)
    assert_same(whole, rest)
    assert torch.equal(whole.predict(in_memory(), batch=20), rest.predict(streamed, batch=20))
    assert not torch.equal(whole.weights()["6.weight"][0], whole.weights()["6.weight"][1])


def test_a_shared_order_a_window_and_a_dropped_batch(streamed) -> None:
    for how in ({"drop_last": True}, {"shuffle": 20}, {"batch": 64}):
        shared = "shuffle" in how
        both = [replicas(share_order=shared).fit(x, LABELS, epochs=2, **FIT | how) for x in (in_memory(), streamed)]
        assert_same(*both)


def test_rows_of_numbers(streamed) -> None:
    flat, x = replace(streamed, flat=True), in_memory().flatten(1)
    assert torch.equal(flat[5:9], x[5:9])
    make = partial(nn.Linear, 192, 3)
    for augment in (None, Augment(crop=1, shape=(3, 8, 8), **SHARES)):
        how = {"epochs": 1, "augment": augment, **FIT}
        told = x if augment is None else LEVELS[PLACES].flatten(1)
        assert_same(*(sk.train.Replicas(make, count=2).fit(item, LABELS, **how) for item in (told, flat)))


def test_a_batch_is_one_graph(streamed, monkeypatch) -> None:
    """As it is on a GPU, where it is compiled and captured."""
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda *args, **kwargs: real(*args, **kwargs | {"backend": "eager"}))
    torch._dynamo.utils.counters.clear()
    unused: Any = None
    order = sk.train.order(seeds=[0, 1, 2], epoch=0, length=47)
    with Feed(streamed, orders=3, batch=10, device=torch.device("cpu")) as feed:
        program = Program(
            differentiate=unused, tensors={}, draws=replicas()._draws, x=feed, y=LABELS, order=order.clone(),
            rates=torch.zeros(5), log=torch.zeros(5, 1, 3), batch=10, optimizer=unused, clip=None, compiled=True,
        )  # fmt: skip
        program.begin_epoch(order)
        for turn in range(2):
            feed.take()
            x, y = program._batch(10)
            chosen = order[:, 10 * turn : 10 * turn + 10]
            assert torch.equal(x, in_memory()[chosen])
            assert torch.equal(y, LABELS[chosen])
            program.turn.add_(1)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert not torch._dynamo.utils.counters["graph_break"]


def test_what_cannot_be_done_is_said(streamed) -> None:
    with pytest.raises(InputError, match="torch's cat needs all examples in memory"):
        torch.cat([streamed, streamed])
    with pytest.raises(ParameterError, match="must be a tensor, and these are read from a disk"):
        replicas().fit(streamed, LABELS, epochs=1, progressive=True, **FIT)
    with pytest.raises(InputError, match="x has 47 examples and y has 46 targets"):
        replicas().fit(streamed, LABELS[:46], epochs=1, **FIT)

    def cut(step: int) -> None:
        with streamed.path.open("r+b") as file:
            file.truncate(192)

    with pytest.raises(DataError, match=r"ends before its row \d+: it was cut"):
        replicas().fit(streamed, LABELS, epochs=2, on_step=cut, **FIT)
    streamed.path.unlink()
    with pytest.raises(DataError, match=r"could not be read \(No such file"):
        streamed[:3]


# -- studies ------------------------------------------------------------------------------------------------

SIDE = 12
NET = Model(build="test_streamed:cnn")


@pytest.fixture
def on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Examples:
    pytest.importorskip("PIL.Image", reason="Pillow is not installed; the extra 'vision' brings it")
    write_imagenet(tmp_path / "imagenet", train=12, val=5)
    write_bytes(tmp_path, side=SIDE)
    monkeypatch.setattr(loading, "find_bytes", partial(loading.find_bytes, side=SIDE))
    return load_examples(Data(set="imagenet", validation=0.2), folder=tmp_path)


def held(found: Examples) -> Examples:
    """The same examples in memory, with the fingerprint of those on the disk."""
    return replace(found, train_x=found.train_x[:], validation_x=found.validation_x[:], test_x=found.test_x[:])


def asked(found: Examples, **changes: Any) -> Trial:
    training = {"batch": 8, "epochs": 3, "learning_rate": 0.05} | changes.pop("training", {})
    return Trial(
        kind="train",
        activations=(Chosen(name="lambda_gelu", label="it", learn=True, harden=True),),
        data=Data(set="imagenet", validation=0.2),
        fingerprint=found.fingerprint,
        model=NET,
        training=Training(**training),
        seeds=Seeds(count=3),
        hardening=Hardening(start=0.4),
        measures=("prediction_difference", "calibration", "activity", "entropy", "gradients", "hardness"),
        keep=("predictions", "models"),
        **changes,
    )


class Stop(Exception):
    pass


class Saving:
    """Keeps the state after the first epoch, and ends the trial there."""

    saved: Any = None

    def step(self) -> None: ...

    def epoch(self, done: int, total: int, save: Any) -> None:
        self.saved = save()
        raise Stop


@pytest.mark.parametrize("engine", ["replicas", "compiled"])
def test_a_trial_from_a_disk_is_that_in_memory(on_disk, engine) -> None:
    """Every number of the outcome, and every byte that is kept; also when it was stopped and gone on with."""
    assert on_disk.on_disk
    assert on_disk.sentence().startswith("imagenet: 29 training, 7 validation, 15 test examples of shape 3 x 12 x 12")
    augment = Augmentation(crop=2, flip=True) if engine == "compiled" else None
    trial = asked(on_disk, training={"engine": engine}, augment=augment)
    watch = Saving()
    with pytest.raises(Stop):
        run_trial(trial, examples=on_disk, watch=watch)
    memory, disk = run_trial(trial, examples=held(on_disk)), run_trial(trial, examples=on_disk, saved=watch.saved)
    assert replace(disk.outcome, seconds=0.0) == replace(memory.outcome, seconds=0.0)
    assert disk.files == memory.files
    assert disk.outcome.selected == (3, 3, 3)


def test_many_are_judged_in_parts(streamed, monkeypatch) -> None:
    """The mean over 47 examples from parts of 20, 20 and 7; the second of four models is gone in the last part."""
    outputs = torch.randn(4, 47, 3, generator=torch.Generator().manual_seed(3))
    outputs[1, 45, 0] = float("nan")
    wanted = training.judge(outputs, LABELS, task="classification", rows=[0, 3])
    monkeypatch.setattr(training, "_AT_ONCE", 20)
    parts = iter(outputs.split(20, dim=1))
    actual, gone = training.judge_on_disk(lambda x: next(parts), streamed, LABELS, rows=[0, 1, 3])
    assert gone == [1]
    for name in ("accuracy", "log_loss"):
        assert [actual[name][row] for row in (0, 3)] == pytest.approx([wanted[name][row] for row in (0, 3)], rel=1e-12)
        assert actual[name][1] is actual[name][2] is None


def test_what_has_no_part_in_it(on_disk) -> None:
    with pytest.raises(RecipeError, match=r"training\.engine: loop has all examples in memory.*data\.limit=N"):
        run_trial(asked(on_disk, training={"engine": "loop"}), examples=on_disk)
    with pytest.raises(InputError, match="--engine ray sends the examples"):
        pack_examples(on_disk)


# -- on a GPU -----------------------------------------------------------------------------------------------


def on_gpu(test: Any) -> Any:
    for mark in (
        pytest.mark.gpu,
        # torch's compiler recommends TF32, tells of sums that it leaves aside, and forks beside threads.
        pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning"),
        pytest.mark.filterwarnings(r"ignore:\s*Online softmax is disabled:UserWarning"),
        pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
    ):
        test = mark(test)
    return test


@on_gpu
@pytest.mark.parametrize("compiled", [False, True], ids=["together", "apart"])
@pytest.mark.parametrize("augment", [None, Augment(crop=2, flip=True, mixup=0.3, classes=3, **SHARES)], ids=["", "mix"])
def test_captured_training_from_a_disk_is_that_in_memory(streamed, augment, compiled) -> None:
    """Two captured steps, of whole batches and of the last one; cuDNN may choose another way to sum the second time."""
    how = {**FIT, "augment": augment, "compiled": compiled, "total_epochs": 3, "gradient_norms": True}
    x = in_memory() if augment is None else LEVELS[PLACES]
    whole = replicas(device="cuda").fit(x, LABELS, epochs=3, **how)
    part = replicas(device="cuda").fit(streamed, LABELS, epochs=1, **how)
    rest = replicas(device="cuda").load_state_dict(part.state_dict()).fit(streamed, LABELS, epochs=2, **how)
    torch.testing.assert_close(rest.losses, whole.losses, rtol=2e-3, atol=2e-4)
    torch.testing.assert_close(rest.gradient_norms, whole.gradient_norms, rtol=2e-2, atol=2e-3)
    torch.testing.assert_close(rest.predict(streamed), whole.predict(in_memory()), rtol=2e-2, atol=5e-3)


@on_gpu
@pytest.mark.parametrize("share_order", [False, True], ids=["own", "shared"])
def test_every_step_gets_its_own_batch_however_far_the_host_is_ahead(tmp_path, share_order) -> None:
    """Weights that stay as they are: each loss is a function of its batch alone. A GPU that lags sees a slot, a copy or
    the room that was overwritten too early."""
    levels = torch.randint(256, (999, 3, 64, 64), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)
    path = tmp_path / "many.bytes"
    path.write_bytes(levels.numpy().tobytes())
    x = Streamed(path=path, image=(3, 64, 64), places=torch.arange(999), mean=MEAN, spread=SPREAD, flat=True)

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(3 * 64 * 64, 512), sk.nn.SmeLU(), nn.Linear(512, 10))

    def losses(device: str, given: Any, on_step: Any = None) -> Tensor:
        made = sk.train.Replicas(make, count=3, share_order=share_order, device=device)
        return made.fit(given, torch.arange(999) % 10, epochs=4, batch=64, lr=0.0, on_step=on_step).losses

    truth = losses("cuda", x[:])
    assert truth.std() > 1e-3
    for lag in (0, 20_000_000):  # cycles that the GPU waits after each step
        result = losses("cuda", x, on_step=lambda _, lag=lag: torch.cuda._sleep(lag) if lag else None)
        torch.testing.assert_close(result, truth, rtol=1e-5, atol=1e-6)


@on_gpu
def test_a_trial_on_a_gpu_from_a_disk(on_disk) -> None:
    trial = asked(on_disk, device="cuda", training={"engine": "compiled"}, augment=Augmentation(crop=2, flip=True))
    memory, disk = (run_trial(trial, examples=item).outcome for item in (held(on_disk), on_disk))
    for part in ("train", "validation", "test"):
        actual, wanted = (getattr(value, part)["log_loss"] for value in (disk, memory))
        assert actual == pytest.approx(wanted, rel=2e-2, abs=5e-3)
