"""The deploy check: what quantisation, pruning and verification make of a model before and after it became ReLU."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ...errors import InputError, ParameterError
from .int8_check import Quantised, quantise, race, seven_bits
from .layers import BATCH, Layer, NotRun, Refused, activation_layers, attempt, layers
from .marabou_check import RobustnessCheck, check_robustness
from .onnx_check import Exported, OnnxCheck, check_onnx, export
from .pruning_check import AT_RANDOM, BY_APOZ, BY_SIZE, PruningCheck, check_pruning, count_parameters
from .report import DeployReport, ModelReport


def deploy_check(
    before: nn.Module,
    after: nn.Module,
    *,
    images: Tensor,
    labels: Tensor,
    calibration: Tensor,
    title: str = "Before and after",
    names: tuple[str, str] = ("before", "after"),
    share: float = 0.3,
    points: int = 10,
    eps: float = 0.05,
    seconds_per_point: float = 20.0,
    batch: int = 64,
    repeats: int = 51,
    threads: int = 1,
    seed: int = 0,
    report: Callable[[str], None] = lambda _: None,
) -> DeployReport:
    """What real tools make of two classifiers: ONNX, int8, exact zeros, pruning, and proofs of robustness.

    Args:
        before, after: as trained, and replaced by ReLU. Neither is changed; copies on the CPU in float32 are checked.
        images, labels: the test data, as the models take it.
        calibration: training images, for the ranges of int8 and for the ranking of units.
        share: of the units to prune.
        points, eps, seconds_per_point: how many test points Marabou is asked about, how far every input may move, and
            how long it may take for one point. The points are drawn with `seed` from those that both have right.
        batch, repeats, threads: of the timing in onnxruntime.
        report: is told what is being done.

    Returns:
        A `DeployReport`. What could not run is in it with the reason.
    """
    _check(images, labels, calibration, share=share, points=points, eps=eps, seconds=seconds_per_point, batch=batch)
    models = [copy.deepcopy(model).cpu().float().eval() for model in (before, after)]
    images, calibration, labels = images.detach().cpu().float(), calibration.detach().cpu().float(), labels.cpu()
    logits = [_logits(model, images, labels) for model in models]
    chosen = _points(logits, labels, points, seed=seed)

    exports: list[Exported | NotRun] = []
    for model, name in zip(models, names, strict=True):
        report(f"{name}: ONNX")
        exports.append(attempt(lambda model=model: export(model, images[:2]), what="The export to ONNX"))
    quantised: list[Quantised | NotRun] = []
    for one, name in zip(exports, names, strict=True):
        report(f"{name}: int8")
        quantised.append(
            one
            if isinstance(one, NotRun)
            else attempt(lambda one=one: quantise(one, calibration, threads=threads), what="Quantisation")
        )
    timed = race(quantised, images, labels, batch=batch, repeats=repeats, accuracy=_accuracy)

    found = []
    for index, (model, name) in enumerate(zip(models, names, strict=True)):
        one = exports[index]
        report(f"{name}: zeros and pruning")
        right = _accuracy(logits[index], labels)
        pruned = _pruned(model, calibration, images, labels, share=share, accuracy_before=right, seed=seed)
        report(f"{name}: robustness")
        kinds = Counter(type(module).__name__ for module, _ in activation_layers(model).values())
        found.append(
            ModelReport(
                name=name,
                activations=dict(kinds),
                accuracy=right,
                parameters=count_parameters(model),
                onnx=_onnx(one, images, logits[index]),
                int8=timed[index],
                layers=_zeros(model, images),
                pruned_by_apoz=pruned[0],
                pruned_by_size=pruned[1],
                pruned_at_random=pruned[2],
                robustness=_robustness(model, one, images, labels, eps=eps, chosen=chosen, seconds=seconds_per_point),
            )
        )
    return DeployReport(
        before=found[0],
        after=found[1],
        seed=seed,
        settings={
            "title": title,
            "test": len(images),
            "calibration": len(calibration),
            "share": share,
            "points": points,
            "eps": eps,
            "seconds_per_point": seconds_per_point,
            "batch": min(batch, len(images)),
            "repeats": repeats,
            "threads": threads,
            "quantisation": "static, QDQ, uint8 activations, int8 weights per channel",
            "bits_of_weights": 7 if seven_bits() else 8,
        },
    )


def _onnx(exported: Exported | NotRun, images: Tensor, expected: Tensor) -> OnnxCheck | NotRun:
    if isinstance(exported, NotRun):
        return exported
    return attempt(lambda: check_onnx(exported, images, expected), what="Running the exported model")


def _zeros(model: nn.Module, images: Tensor) -> tuple[Layer, ...] | NotRun:
    found = attempt(lambda: tuple(layers(model, images)), what="Counting zeros")
    return found or NotRun(
        reason="No activation module was called: functions called inside a forward cannot be watched."
    )


def _pruned(
    model: nn.Module,
    calibration: Tensor,
    images: Tensor,
    labels: Tensor,
    *,
    share: float,
    accuracy_before: float,
    seed: int,
) -> list[PruningCheck | NotRun]:
    def evaluate(one: nn.Module) -> float:
        return _accuracy(_logits(one, images, labels), labels)

    def by(criterion: str, measured: list[Layer]) -> PruningCheck | NotRun:
        return check_pruning(
            model,
            measured,
            images[:2],
            share=share,
            criterion=criterion,
            evaluate=evaluate,
            accuracy_before=accuracy_before,
            seed=seed,
        )

    found = attempt(lambda: layers(model, calibration), what="Counting zeros")
    if isinstance(found, NotRun):
        return [found] * 3
    return [attempt(lambda how=how, of=found: by(how, of), what="Pruning") for how in (BY_APOZ, BY_SIZE, AT_RANDOM)]


def _robustness(
    model: nn.Module,
    exported: Exported | NotRun,
    images: Tensor,
    labels: Tensor,
    *,
    eps: float,
    chosen: list[int],
    seconds: float,
) -> RobustnessCheck | Refused | NotRun:
    if isinstance(exported, NotRun):
        return exported
    if not chosen:
        return NotRun(reason="No point was asked for, or there is no test point that both models have right.")
    return attempt(
        lambda: check_robustness(model, exported, images, labels, eps=eps, chosen=chosen, seconds=seconds),
        what="The proof of robustness",
    )


def _points(logits: list[Tensor], labels: Tensor, count: int, *, seed: int) -> list[int]:
    """Test points that both models have right, drawn without replacement."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    right = [one.argmax(dim=1) == labels for one in logits]
    return order[(right[0] & right[1])[order]][:count].tolist()


def _accuracy(logits: Tensor, labels: Tensor) -> float:
    return 100 * float((logits.argmax(dim=1) == labels).double().mean())


@torch.no_grad()
def _logits(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """The outputs for all images, after a look at whether this is a classifier of them."""
    try:
        parts = [model(part) for part in images.split(BATCH)]
    except Exception as error:
        raise InputError(
            f"deploy_check: {type(model).__name__} does not take images of shape {tuple(images.shape[1:])} ({error})."
        ) from error
    first = parts[0]
    if not isinstance(first, Tensor) or first.dim() != 2 or first.shape[1] <= int(labels.max()):
        shape = tuple(first.shape) if isinstance(first, Tensor) else type(first).__name__
        raise InputError(
            f"deploy_check: a classifier gives one row of scores per image, with a column for each of the "
            f"{int(labels.max()) + 1} classes; {type(model).__name__} gave {shape} for {len(images[:BATCH])} images."
        )
    return torch.cat(parts)


def _check(
    images: Tensor,
    labels: Tensor,
    calibration: Tensor,
    *,
    share: float,
    points: int,
    eps: float,
    seconds: float,
    batch: int,
) -> None:
    if len(images) == 0 or len(calibration) == 0 or labels.shape != images.shape[:1]:
        raise InputError(
            f"deploy_check: images and one label for each are needed, and images to calibrate with; given were "
            f"{tuple(images.shape)}, {tuple(labels.shape)} and {tuple(calibration.shape)}."
        )
    if calibration.shape[1:] != images.shape[1:] or labels.is_floating_point():
        raise InputError(
            f"deploy_check: calibration images must be like the test images ({tuple(images.shape[1:])}, and "
            f"{tuple(calibration.shape[1:])} was given), and labels whole numbers ({labels.dtype} was given)."
        )
    for name, value, allowed, what in (
        ("share", share, 0 < share < 1, "between 0 and 1"),
        ("points", points, points >= 0, "at least 0"),
        ("eps", eps, eps > 0, "above 0"),
        ("seconds_per_point", seconds, seconds > 0, "above 0"),
        ("batch", batch, batch >= 1, "at least 1"),
    ):
        if not allowed:
            raise ParameterError(f"deploy_check: {name} must be {what}, and {value!r} was given.")
