"""What a study asks for: data, model, activations, training, seeds, what to measure. Plain values, checked when made.

A recipe is a YAML file (`reading.py`) with the names of these fields; every field that has a default may be left out.
Each part checks its own types and ranges; whether names exist and parts fit together is `reading.check`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from ...errors import RecipeError, did_you_mean
from ...train.augment import Augment
from ...train.optimizers import KINDS, read_options
from ..data.images import DATA_SETS
from .fitting import Limits, OneOf, Section, at_least, later, located, refusal

# The test scores, prediction differences, and "parameters": how many numbers of one model are trained.
PAPER_MEASURES = (
    *("accuracy", "log_loss", "auc", "calibration_error", "mse", "r2", "psnr", "ssim"),
    *("loss", "perplexity", "reward_accuracy", "reward_margin", "evaluation_loss", "chosen_reward", "rejected_reward"),
    *("delta_1", "delta_2", "relative", "binary", "true_label", "hamming"),
    *("bits", "parameters"),
)

Positive = Annotated[float, Limits("a number above 0", lambda value: value > 0)]
NotNegative = Annotated[float, Limits("a number of at least 0", lambda value: value >= 0)]
Count = Annotated[int, at_least(1)]
Long = Annotated[Count, Limits("a whole number below 2**31", lambda value: value < 2**31)]
Share = Annotated[float, Limits("a share between 0 and 1", lambda value: 0 < value < 1)]
ShareOfRate = Annotated[float, Limits("a share of the rate in [0, 1)", lambda value: 0 <= value < 1)]
ShareOfAll = Annotated[float, Limits("a share above 0 and at most 1", lambda value: 0 < value <= 1)]
UpToOne = Annotated[float, Limits("a number above 0 and at most 1", lambda value: 0 < value <= 1)]
Pixels = Annotated[int, Limits("a whole number of pixels, at least 0", lambda value: value >= 0)]
Positives = Annotated[tuple[float, ...], Limits("a list of numbers above 0", lambda each: all(x > 0 for x in each))]


@dataclass(frozen=True, kw_only=True)
class Paper(Section, where="paper"):
    """What a paper reports.

    source: where, such as "SQUAF, table 3".
    values: by the label of an activation its numbers by measure, in the unit that the report shows: percent for
            accuracies, AUC, calibration error, r2 and hamming, dB for psnr. With several betas of DPO a measure is
            named with its own: "reward_margin beta=0.1".
    note:   what is done otherwise here than there.

    >>> Paper(source="SQUAF, table 1", values={"relu": {"psnr": 26.75}}).values
    {'relu': {'psnr': 26.75}}
    """

    source: str
    values: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    note: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        for label, numbers in self.values.items():
            for measure in numbers:
                if measure.partition(" beta=")[0] not in PAPER_MEASURES:
                    raise RecipeError(
                        f"paper.values.{label}.{measure} is nothing that is measured."
                        f"{did_you_mean(measure, PAPER_MEASURES)} There are {', '.join(PAPER_MEASURES)}."
                    )

    def of(self, labels: Iterable[str]) -> Paper:
        """Its numbers for these labels alone."""
        kept = set(labels)
        return replace(self, values={label: numbers for label, numbers in self.values.items() if label in kept})

    def refuse_others(self, labels: Iterable[str]) -> None:
        """A sentence where it names a label that none of the activations has."""
        known = list(labels)
        for label in self.values:
            if label not in known:
                raise RecipeError(
                    f"paper.values.{label} is no label of the activations ({', '.join(known)})."
                    f"{did_you_mean(label, known)}"
                )


_WHEN = ("probability", "from_epoch")  # these say how often, and not what


@dataclass(frozen=True, kw_only=True)
class Augmentation(Section, where="augment"):
    """What is done to the images of a training batch, drawn for each seed from its own key; nothing by default.

    crop, flip, randaugment, mixup, cutmix, erasing, smoothing: as in `sk.train.augment.Augment`; `randaugment` is a
                 list of the magnitude and its standard deviation, [9, 0.5] for timm's "rand-m9-mstd0.5-inc1".
    shift:       in place of `crop`, which is the same: up to so many pixels up or down and left or right, each way as
                 often as any other; what comes in from outside is black.
    probability: that an image is cropped or shifted at all.
    from_epoch:  the first epoch, from 1, in which anything is done.

    Images are changed as bytes and normalised afterwards, so that what is outside of them is black. Validation and test
    images, and the training images that are scored at the end, are as they are.

    >>> Augmentation(shift=3, probability=0.5, from_epoch=2).words()
    'shift 3, probability 0.5, from epoch 2'
    """

    crop: Pixels = later(0)
    flip: bool = later(False)
    randaugment: tuple[float, ...] | None = later(None)
    mixup: float = later(0.0)
    cutmix: float = later(0.0)
    erasing: float = later(0.0)
    smoothing: float = later(0.0)
    shift: Pixels = later(0)
    probability: UpToOne = later(1.0)
    from_epoch: Annotated[int, Limits("an epoch, a whole number of at least 1", lambda value: value >= 1)] = later(1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.crop and self.shift:
            raise RecipeError("augment.crop and augment.shift are two names of one thing; give one of them.")
        if self.probability < 1 and not self.crop and not self.shift:
            raise RecipeError("augment.probability is that of a crop or shift, and neither is asked for.")
        if not any(name not in _WHEN for name in self.changes()):
            raise RecipeError(
                "augment asks for nothing: leave it out, or give it a 'crop', 'flip', 'mixup' or another."
            )
        with located("augment"):
            self.augment()

    def augment(self, *, steps_of_epoch: int = 1, **of_examples: Any) -> Augment:
        """What training is given; `of_examples` are classes, mean, std and shape."""
        return Augment(
            crop=self.crop or self.shift,
            flip=self.flip,
            randaugment=self.randaugment,  # pyright: ignore[reportArgumentType] - its length is checked there
            mixup=self.mixup,
            cutmix=self.cutmix,
            erasing=self.erasing,
            smoothing=self.smoothing,
            probability=self.probability,
            from_step=(self.from_epoch - 1) * steps_of_epoch,
            **of_examples,
        )

    def changes(self) -> dict[str, Any]:
        """What differs from doing nothing, by name."""
        return {item.name: value for item in fields(self) if (value := getattr(self, item.name)) != item.default}

    def words(self) -> str:
        """The same for a reader, in one line."""
        parts = []
        for name, value in self.changes().items():
            numbers = value if isinstance(value, tuple) else (value,)
            parts.append(name if value is True else f"{name} {' '.join(f'{number:g}' for number in numbers)}")
        return ", ".join(parts).replace("from_epoch", "from epoch")


Parts = Mapping[str, tuple[Tensor, Tensor]]  # inputs and targets by the name of the part


def split(among: Tensor, *, share: float, seed: int, stratified: bool = True) -> tuple[Tensor, Tensor]:
    """Places of the examples that are kept apart, and of the rest: the share of every class, to the nearest example.

    `among` are the classes of the examples. One example of each class stays at least with the rest.

    >>> kept, rest = split(torch.tensor([0] * 10 + [1] * 5), share=0.4, seed=0)
    >>> sorted(kept.tolist()), len(rest)
    ([0, 2, 3, 4, 12, 14], 9)
    """
    order = torch.randperm(len(among), generator=torch.Generator().manual_seed(seed))
    groups = among[order] if stratified else torch.zeros(len(among), dtype=torch.int64)
    classes, counts = groups.unique(return_counts=True)
    exact = counts.double() * share
    take = exact.floor().long()
    # What rounding down left over goes to the classes that lost most by it.
    missing = round(float(exact.sum())) - int(take.sum())
    if missing > 0:
        take[(exact - take).argsort(descending=True, stable=True)[:missing]] += 1
    take = take.minimum(counts - 1)
    kept = torch.zeros(len(among), dtype=torch.bool)
    for label, number in zip(classes.tolist(), take.tolist(), strict=True):
        kept[(groups == label).nonzero().flatten()[:number]] = True
    return order[kept], order[~kept]


def standardised(parts: Parts, *, targets_too: bool) -> dict[str, tuple[Tensor, Tensor]]:
    """By the part "train": every column of a row by its own mean and spread, an image by one of each.

    targets_too: also the targets, as a regression wants it.
    """
    x, y = parts["train"]
    scale_x = _scale(x, whole=x.dim() > 2)
    scale_y = _scale(y, whole=False) if targets_too else None
    return {
        part: (_scaled(inputs, scale_x), _scaled(target, scale_y) if scale_y else target)
        for part, (inputs, target) in parts.items()
    }


def _scale(x: Tensor, *, whole: bool) -> tuple[Tensor, Tensor]:
    # Summed in float64 and then rounded to float32: another order of summation on another machine gives the same.
    wide = x.double()
    mean = wide.mean() if whole else wide.mean(dim=0)
    off = (wide - mean).square()
    spread = (off.mean() if whole else off.mean(dim=0)).sqrt()
    # What is constant in training, but for rounding, has no spread of its own.
    constant = spread <= 1e-12 * mean.abs()
    return mean.float(), spread.float().masked_fill(constant, 1.0)


def _scaled(x: Tensor, scale: tuple[Tensor, Tensor]) -> Tensor:
    return (x - scale[0]) / scale[1]


MEASURES = ("prediction_difference", "calibration", "activity", "hardness", "gradients", "cost")
# "entropy" has to be asked for: what a study measures without being asked is part of the keys of its trials.
KNOWN_MEASURES = (*MEASURES, "entropy")
KEEPS = ("predictions", "models")
FIRST_TUNING_SEED = 1_000_000  # tuning takes its seeds from here on, so that none is one of the study's

Value = int | float | str  # in this order: a whole number stays one

# Texts and pairs of replies, for the tasks of language models.
TEXT_SETS = ("tiny-shakespeare", "wikitext-2")
PAIR_SETS = ("hh", "shp", "hh+shp")
GPT2 = "gpt2"  # the network of a language task
PRETRAINED = "pretrained:"  # and what stands before the place of a model that is trained already
OWN = "own"  # the activation that such a model has


@dataclass(frozen=True, kw_only=True)
class Data(Section, where="data"):
    """Where the examples come from: a data set by name, or a file of your own.

    set:         images: "digits", "mnist", "fashion-mnist", "cifar-10", "cifar-100", "tiny-imagenet",
                 "imagenet"; rows: "adult";
                 rows of clicks: "criteo"; made ones to fit or to tell apart: "sine-1d", "sine-2d", "clusters-3",
                 "clusters-4"; the pixels of a picture: "camera", "grass", "page". The last eight come in three parts:
                 `test` and `validation` are not for them. For language models, whose `task` says so: the texts
                 "tiny-shakespeare" and "wikitext-2", the pairs of replies "hh", "shp" and "hh+shp".
    file:        a .csv or .npz file instead; its folder is where the recipe is, or the current one. For language models
                 a .txt or a .jsonl of pairs, also .gz.
    target:      the column of a .csv (default the last), or the array of a .npz (default "y"; inputs are "x").
    ignore:      columns of a .csv that are no inputs, such as a number that only identifies the row.
    task:        "auto" takes text and whole numbers in the target for classes, and other numbers for quantities.
    test:        the share of a file's examples that is kept for the test; a data set by name has its own.
    validation:  the share of the remaining examples that checkpoints and learning rates are chosen by.
    split_seed:  decides which examples these are; the same for every activation and seed.
    standardise: inputs (and the quantities of a regression, whose mean squared error is then a share of their variance)
                 are scaled by the mean and spread of the training examples.
    flat:        every example as one row of numbers; by default for "mlp" and "kan".
    limit:       so many examples of each part at most, the first ones: for a look at whether everything runs. A picture
                 is tested whole; of a text these are characters.
    check:       compare the files of images and of Adult with what was published; false takes others of the same
                 format, such as the same images in another order.
    """

    set: Annotated[str, OneOf((*DATA_SETS, *TEXT_SETS, *PAIR_SETS))] | None = None
    file: str | None = None
    target: str | None = None
    ignore: tuple[str, ...] = ()
    task: Literal["auto", "classification", "regression"] = "auto"
    test: Share = 0.2
    validation: Share = 0.2
    split_seed: Annotated[int, Limits("a whole number in [0, 2**63)", lambda seed: 0 <= seed < 2**63)] = 0
    standardise: bool = True
    flat: bool | None = None
    limit: Count | None = later(None)
    check: bool = later(True)


@dataclass(frozen=True, kw_only=True)
class Model(Section, where="model"):
    """What is trained: a network by name ("mlp", "cnn", "alone", "kan", "timm:NAME") or your own
    "package.module:function".

    For language models: "gpt2", whose `arguments` are layers, width, heads and dropout; or "pretrained:" and the folder
    of a model of transformers, a llama2.c checkpoint or hub:OWNER/NAME, which may download.

    arguments: what it is called with. If it takes `activation`, it is given a function that makes a new module each
               time it is called; otherwise the model's own activations are replaced by surgery (`replacing`, `where`).
               It is also given `seed`, `classes` (the number of outputs) and `input_shape` (of one example), if it has
               arguments of that name.
    "alone" is the activation and nothing else, for data of one number in and one out. "kan" has learned edges made of
    the activation, see `lab.networks.kan`. "vgg8", "resnet56", "vit_tiny" and the others of `lab.vision_networks` are
    those of the papers on images, "click_model" that of `lab.clicks`. `hidden` of "mlp" and "kan" are their widths
    without the first and the last, which follow from the data, as `classes` and `image` of "cnn" do; the `dropout` of
    "mlp" is {input: 0.2, hidden: 0.5}, either or both. A function of your own is code that runs: take a recipe that
    names one only from where you would take a program.
    """

    build: str = "mlp"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    replacing: str | None = None
    where: str | None = None


@dataclass(frozen=True, kw_only=True)
class Choice(Section, where="activation"):
    """One activation of the comparison. In a recipe, its parameters stand beside `name`: {name: smelu, beta: [0.5, 1]}.

    name:   as `sk.get` takes it; "own" leaves the one that a pretrained language model has.
    values: for each parameter a number, or several: one trial for each combination; `preset: paper` stands for those of
            the function's paper.
    learn:  which parameters are trained: true for all, false for none, a name or a list of names.
    harden: moved to its hard limit as `hardening` says, and replaced by it after training.
    replace: also replaced by its hard limit after training without having been moved there: what the bare swap costs.
    last:   {parameter: number} at the last place of the model, where it differs from the first; places between them lie
            on a line. The modes "increasing" and "decreasing" of the lambda-GELU paper.
    rate:   the learning rate of its parameters as a multiple of the weights', in place of training.activation_rate; of
            several, one trial for each.
    fitted: of SQUAF: z and alpha start as `sk.design.start` fits them to this function, as the paper's networks do.
    trained: of SQUAF: at which places it learns: first, all but last stage, or a pattern for their paths.
    select: the epoch that is reported, in place of the recipe's `select`. A hardened activation is reported at its last
            epoch, where it is hardest, unless it says "best_val" here: then at the best epoch by validation of those
            after its knobs froze, as in Algorithm 1 of the lambda-GELU paper.
    mode:   of squaf: "soft", "sampled" for SQUAF-P or "step" for SQUAF-S, in training and after it.
    price:  of a bit per activation in the loss, for a sampled squaf; see `Code`. A list makes a trial of each.
    """

    name: str
    label: Annotated[str, Limits("a text that is not empty", lambda text: bool(text.strip()))] | None = None
    values: Mapping[str, Value | tuple[Value, ...]] = field(default_factory=dict)
    learn: bool | str | tuple[str, ...] = False
    per: Literal["layer", "channel", "neuron"] = "layer"
    harden: bool = False
    replace: bool = later(False)
    last: Mapping[str, float] | None = later(None)
    rate: float | tuple[float, ...] | None = later(None)
    fitted: str | None = later(None)
    trained: str | None = later(None)
    select: Literal["last", "best_val"] | None = later(None)
    mode: Literal["soft", "sampled", "step"] | None = later(None)
    price: float | tuple[float, ...] | None = later(None)

    def __post_init__(self) -> None:
        super().__post_init__()
        place = f"activation {self.name!r}"
        for key in ("fitted", "trained", "mode", "price"):
            _need(self.name == "squaf" or getattr(self, key) is None, f"{place}: {key}", "for squaf alone", "it")
        learns = self.trained is None or self.learn is not False
        _need(learns, f"{place}: trained", "beside learn, which says what is trained", "it")
        _need(self.price is None or self.mode == "sampled", f"{place}: price", "beside mode: sampled", self.price)
        for key in ("rate", "price"):
            given = getattr(self, key)
            numbers = given if isinstance(given, tuple) else () if given is None else (given,)
            _need(given != () and all(number >= 0 for number in numbers), f"{place}: {key}", "at least 0", given)
        for name, value in self.values.items():
            _need(value != (), f"{place}: {name}", "a number, or several in a list", value)

    @property
    def title(self) -> str:
        """What it is called in tables: the label, or else the name."""
        return self.name if self.label is None else self.label


@dataclass(frozen=True, kw_only=True)
class Training(Section, where="training"):
    """How each model is trained; the same for every activation, but for what `tuning` chooses.

    engine: "replicas" trains all seeds at once as one batched program; "compiled" all at once, each as a model of its
            own that torch.compile has fused, which is for models that fill a GPU (on a CPU nothing is compiled); "loop"
            one after the other, and across processes under torchrun (strategy "ddp" or "fsdp2").
    precision: "tf32" takes the products of float32 from a GPU's TF32 units; "bfloat16" trains compiled models under
            autocast. All are judged in float32 after training.
    activation_rate: the learning rate of activation parameters as a multiple of the weights'; they never decay.
    activation_optimizer: one that moves the activation parameters instead, with torch's own settings, such as "adam".
    activation_learning_rate: its rate, in the place of activation_rate: no multiple of the weights', and it stays as it
            is, whatever warm-up, schedule and tuning do to theirs.
    schedule: "step" multiplies the rate by `factor` at each of the `milestones`, epochs after which it is lower; one
            that lies beyond the last epoch is never reached.
    floor:  the share of the rate that "linear" and "cosine" fall to.
    warmup_start: the share of the rate that warm-up begins with.
    every:  validation and curves are noted after every so many epochs, and after the last.
    shuffle: within so many examples that follow one another: they come in their order, as from a stream, and each seed
            shuffles what is near. 1 is the order of the data for every seed. Left out, everything is shuffled.
    progressive: a single pass in which every example is predicted before it is trained on. What is judged in the place
            of the test are these predictions, of this share of the training examples, the last ones: 1 is all of them.
    """

    optimizer: Annotated[str, OneOf(tuple(KINDS))] = "adamw"
    learning_rate: Positive = 1e-3
    weight_decay: NotNegative = 0.0
    momentum: Annotated[float, Limits("a number in [0, 1)", lambda value: 0 <= value < 1)] = 0.0
    options: Mapping[str, Any] = field(default_factory=dict)
    batch: Long = 64
    epochs: Long = 30
    schedule: Literal["constant", "linear", "cosine", "step"] = "constant"
    warmup: Annotated[float, Limits("a share of the training in [0, 1)", lambda value: 0 <= value < 1)] = 0.0
    clip: Positive | None = None
    activation_rate: NotNegative = 9.0
    loss: Literal["auto", "cross_entropy", "bce_with_logits", "mse"] = "auto"
    engine: Literal["replicas", "compiled", "loop"] = "replicas"
    strategy: Literal["none", "ddp", "fsdp2"] = "none"
    milestones: tuple[Annotated[int, at_least(1)], ...] = later(())
    factor: UpToOne = later(0.1)
    every: Long = later(1)
    floor: ShareOfRate = later(0.0)
    warmup_start: ShareOfRate = later(0.0)
    precision: Literal["float32", "tf32", "bfloat16"] = later("float32")
    shuffle: Annotated[int, Limits("a number of examples", lambda value: value >= 1)] | None = later(None)
    progressive: Annotated[float, Limits("a share above 0 and at most 1", lambda value: 0 < value <= 1)] | None = later(
        None
    )
    activation_optimizer: Annotated[str, OneOf(tuple(KINDS))] | None = later(None)
    activation_learning_rate: Positive | None = later(None)

    def __post_init__(self) -> None:
        super().__post_init__()
        name, rate = self.activation_optimizer, self.activation_learning_rate
        if (name is None) != (rate is None):
            given, missing = ("activation_optimizer", "activation_learning_rate")[:: -1 if name is None else 1]
            raise RecipeError(f"training.{given} needs training.{missing}: an optimiser, and the rate that it has.")
        left_out = name is None or self.activation_rate == Training.activation_rate
        words = "left out beside training.activation_learning_rate, which is no multiple of the weights'"
        _need(left_out, "training.activation_rate", words, self.activation_rate)
        for name in ("weight_decay", "momentum"):
            _need(name not in self.options, f"training.options.{name}", f"written as training.{name}", "it")
        betas = self.options.get("betas", ())
        _need(isinstance(betas, tuple | list), "training.options.betas", "two numbers, such as [0.9, 0.999]", betas)
        with located("training.options"):
            read_options(self.optimizer, self.optimizer_options)
        _refuse_twice(self.milestones, "training.milestones")
        self._refuse_together()

    def _refuse_together(self) -> None:
        """Refuse settings that do not go with one another."""
        steps = self.schedule == "step"
        refusals = {
            "training.schedule 'step' needs training.milestones, the epochs at which the rate falls, such as [500].": (
                steps and not self.milestones
            ),
            f"training.milestones and training.factor are for the schedule 'step', and it is {self.schedule!r}.": (
                not steps and (bool(self.milestones) or self.factor != Training.factor)
            ),
            f"training.floor is what the schedules 'linear' and 'cosine' fall to, and it is {self.schedule!r}.": (
                self.floor > 0 and self.schedule not in ("linear", "cosine")
            ),
            "training.warmup_start is where warm-up begins, and training.warmup is 0: give it a share.": (
                self.warmup_start > 0 and not self.warmup
            ),
            "training.progressive judges what was said of examples before they were seen: it needs training.epochs 1 "
            f"and training.engine 'replicas', and they are {self.epochs} and {self.engine!r}.": (
                self.progressive is not None and (self.epochs != 1 or self.engine != "replicas")
            ),
            f"training.strategy {self.strategy!r} is for one model across processes: it needs training.engine 'loop', "
            f"and it is {self.engine!r}.": self.strategy != "none" and self.engine != "loop",
            f"training.precision {self.precision!r} needs training.engine 'compiled', and it is {self.engine!r}.": (
                self.precision == "bfloat16" and self.engine != "compiled"
            ),
        }
        for sentence, refused in refusals.items():
            if refused:
                raise RecipeError(sentence)

    @property
    def optimizer_options(self) -> dict[str, Any]:
        """What the optimiser is given beside the learning rate."""
        momentum = {"momentum": self.momentum} if self.momentum else {}
        return {"weight_decay": self.weight_decay, **momentum, **self.options}


@dataclass(frozen=True, kw_only=True)
class Seeds(Section, where="seeds"):
    """How many models each activation gets, and what they share. `seeds: 12` is short for {count: 12}."""

    count: Annotated[Count, Limits("a whole number of at most 100,000", lambda count: count <= 100_000)] = 12
    first: Annotated[int, Limits("a whole number of at least 0 and below 2**62", lambda seed: 0 <= seed < 2**62)] = 0
    share_init: bool = False
    share_order: bool = False
    share_dropout: bool = False

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(range(self.first, self.first + self.count))


@dataclass(frozen=True, kw_only=True)
class Hardening(Section, where="hardening"):
    """Learn freely for a share `start` of the epochs, then move the knob to within `tolerance` of the hard limit."""

    start: Annotated[float, Limits("a share of the epochs in [0, 1)", lambda value: 0 <= value < 1)] = 0.25
    tolerance: Positive = 5e-3


@dataclass(frozen=True, kw_only=True)
class Tuning(Section, where="tuning"):
    """The budget that every activation has: all combinations are trained, the best on validation is taken.

    The seeds are none of the study's own: what is reported was not chosen by luck.
    """

    learning_rate: Positives = ()
    weight_decay: tuple[NotNegative, ...] = ()
    seeds: Count = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("learning_rate", "weight_decay"):
            _refuse_twice(getattr(self, name), f"tuning.{name}")


@dataclass(frozen=True, kw_only=True)
class Distil(Section, where="task"):
    """`task: {kind: distil, teacher: vgg13}`: students learn from the labels and from a teacher.

    The teacher is trained first, as the students are, with the first seed of the study; its record is kept with
    theirs. The loss of a student is (1 - share) CE(labels) + share T^2 KL(teacher || student), the probabilities of
    both at the temperature T (Hinton et al., 2015).

    teacher:     its network, as `model.build` names one.
    arguments:   what that is called with, as `model.arguments`.
    activation:  the teacher's, by name.
    share:       of the teacher in the loss.
    temperature: T.
    """

    kind: Literal["distil"] = "distil"
    teacher: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    activation: str = later("relu")
    share: Annotated[float, Limits("a number in [0, 1]", lambda value: 0 <= value <= 1)] = 0.9
    temperature: Positive = 4.0


@dataclass(frozen=True, kw_only=True)
class Code(Section, where="task"):
    """`task: {kind: code}`: activations become symbols, and a bit has a price in the loss.

    `price` of a SQUAF is the weight of its rate (equation 12 of the SQUAF paper) in the loss; with several, each is a
    trial. After training every SQUAF that is not soft is measured as SQUAF, SQUAF-P and SQUAF-S: accuracy, rate, and
    the bits that each coder takes for the symbols, each layer a message of its own with table and header.

    examples: the symbols of so many test examples are coded; VGG-8 has 131,072 in each.
    draws:    the accuracy of SQUAF-P is the mean over so many draws.
    """

    kind: Literal["code"] = "code"
    examples: Count = 16
    draws: Count = 8


@dataclass(frozen=True, kw_only=True)
class Language(Section, where="task"):
    """`task: {kind: language}`: GPT-2s learn from scratch to predict a text, and ReLU takes their activations' place.

    AdamW with betas 0.9 and 0.99, gradients clipped to a norm of 1, and a rate that rises over `warmup` steps and falls
    along half a cosine to a tenth. Of `training` it takes learning_rate, weight_decay, batch and activation_rate. A
    model whose activation has `harden` or `replace` is judged once more with ReLU in its place, after a recovery of all
    layers together and of one layer after the other, and, as a comparison, after as many steps without ReLU.

    context:      characters of tiny-shakespeare or of a file, or GPT-2's tokens of WikiText-2, that are seen at once.
    recover:      steps of each recovery, at the constant rate `recover_rate`; 0 recovers in no way.
    layerwise:    also recover layer by layer, which measures the loss twice for every layer.
    eager:        no CUDA graph of the step.
    train:        of WikiText-2: "train", "valid" and files of text to train on; the test part judges.
    validation:   the share of the text to train on, its end, that is kept apart: candidates of a search compete on it.
    tokenizer:    the folder of GPT-2's vocabulary; by default the data folder.
    own_vocabulary: take another vocabulary, or another text, than the published one.
    """

    kind: Literal["language"] = "language"
    context: Annotated[int, at_least(2)] = 256
    steps: Annotated[int, at_least(4)] = 2000
    warmup: Count = 100
    recover: Annotated[int, at_least(0)] = 240
    recover_rate: Positive = 1e-4
    layerwise: bool = True
    eager: bool = False
    train: tuple[str, ...] = ("train",)
    tokenizer: str | None = None
    own_vocabulary: bool = False
    validation: Annotated[float, Limits("a share in [0, 1)", lambda value: 0 <= value < 1)] = later(0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        _need(bool(self.train), "task.train", "'train', 'valid' or files of text, at least one", self.train)
        _need("test" not in self.train, "task.train", "another part than that which judges", "test")


@dataclass(frozen=True, kw_only=True)
class Perplexity(Section, where="task"):
    """`task: {kind: perplexity}`: how well a pretrained model predicts a text, with ReLU in its place, too.

    Nothing is trained. Perplexity is exp of the mean loss of a token; per word, the same loss is divided by the words
    that WikiText's authors count.

    part:    of WikiText-2.
    context: tokens seen at once; by default as many as the model takes.
    stride:  how far the window moves; by default by the whole context.
    most:    only so many tokens, the first ones.
    tokenizer, own_vocabulary: as in `Language`; by default the tokenizer lies with the model.
    """

    kind: Literal["perplexity"] = "perplexity"
    part: Literal["valid", "test"] = "test"
    context: Annotated[int, at_least(2)] | None = None
    stride: Count | None = None
    most: Annotated[int, at_least(2)] | None = None
    tokenizer: str | None = None
    own_vocabulary: bool = False


@dataclass(frozen=True, kw_only=True)
class Preference(Section, where="task"):
    """`task: {kind: preference}`: a pretrained model is fine-tuned, and from there trained on preferences (DPO).

    RMSprop, gradients clipped to a norm of 10, no dropout. Of `training` it takes learning_rate, batch (pairs),
    epochs (of each stage) and activation_rate.

    betas:            penalties of DPO; the second stage is run with each.
    steps:            of each stage, at most.
    warmup:           steps over which the rate rises.
    micro_batch:      pairs that go through the model at once; by default the batch.
    length:           tokens of prompt and reply; prompt_length: of a prompt that has to be cut.
    evaluation_pairs: how many pairs judge; without files for that, the last of those to train on.
    evaluate:         a file of pairs for that.
    backend:          "own", or "trl" where it is installed.
    tokenizer, own_vocabulary: as in `Perplexity`.
    """

    kind: Literal["preference"] = "preference"
    betas: Positives = (0.1,)
    steps: Count | None = None
    warmup: Annotated[int, at_least(0)] = 150
    micro_batch: Count | None = None
    length: Annotated[int, at_least(2)] = 512
    prompt_length: Count = 256
    evaluation_pairs: Count = 256
    evaluate: str | None = None
    backend: Literal["own", "trl"] = "own"
    tokenizer: str | None = None
    own_vocabulary: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _need(bool(self.betas), "task.betas", "a list of numbers above 0", self.betas)
        _refuse_twice(self.betas, "task.betas")

    def measure(self, name: str, beta: float) -> str:
        """What a number is called in the outcome: with its beta, where there are several."""
        return name if len(self.betas) == 1 else f"{name} beta={beta:g}"


LanguageTask = Language | Perplexity | Preference  # these have a training, data and models of their own
Task = Distil | Code | LanguageTask


FORMS = ("function", "mollify", "join", "gate", "sum", "product", "eafo")
KERNELS = ("box", "triangle", "epanechnikov", "biweight", "triweight", "gaussian", "logistic")
FIRST_SEARCH_SEED = 2_000_000  # a search takes its seeds from here on; what it finds is judged with the study's


@dataclass(frozen=True, kw_only=True)
class Constraints(Section, where="search.constraints"):
    """What every candidate of a search is proved to be before it is trained; by default nothing.

    lipschitz:  its Lipschitz constant is at most this.
    monotone:   it never decreases.
    zeros:      it is exactly 0 on an interval, as ReLU is below 0.
    smoothness: it has at least so many continuous derivatives.
    cost:       its formula has at most so many transcendental functions; 0 allows polynomials in pieces alone.
    limit:      its hard limit is the function of this name, and the distance to it is finite: relu can be shipped
                in its place.
    """

    lipschitz: Positive | None = None
    monotone: bool = False
    zeros: bool = False
    smoothness: Annotated[int, at_least(0)] | None = None
    cost: Annotated[int, at_least(0)] | None = None
    limit: str | None = None


@dataclass(frozen=True, kw_only=True)
class Search(Section, where="search"):
    """What `softknee search` tries in the place of the recipe's activations, which are the baselines.

    A candidate is one of these forms, with numbers that the sampler chooses:

        function  f                                       of `functions`, its parameters free
        mollify   mollify(f, kernel, width)               of `hard` and `kernels`
        join      join(g x, x, between=(-a, b))           with 1 to 3 continuous derivatives
        gate      x G(b x + c)                            of `gates`
        sum       a f(x) + (1 - a) g(x)                   of `functions`
        product   f(x) G(b x)                             of `functions` and `gates`
        eafo      f(x) + eps c(x)                         EAFO's correction of `hard` for one of `densities`; "data" is
                                                          the named one that lies nearest to the pre-activations of the
                                                          baseline after the shortest training

    candidates:  how many are drawn.
    constraints: what is proved of each before it is trained; what is not proved in `seconds` is dropped.
    learn:       whether their numbers are trained with the weights, from what the sampler chose.
    generation:  so many are drawn together, then proved, trained and compared.
    rungs, keep: successive halving: a first training of a few epochs, and the share `keep` goes on to one that is
                 1 / keep times as long, up to training.epochs in the last of the rungs; steps of a language model.
    seeds:       models of each candidate, on seeds that the study has not.
    finalists:   the best by validation loss, trained again with the study's seeds beside the baselines and judged once.
    sampler:     of Optuna: "tpe", "evolution" (a genetic algorithm) or "random".
    seed:        of the sampler.
    """

    candidates: Count = 1000
    forms: tuple[Annotated[str, OneOf(FORMS)], ...] = FORMS
    functions: tuple[str, ...] = ("relu", "leaky_relu", "srelu", "gelu", "swish", "mish", "softplus", "celu", "tanh")
    hard: tuple[str, ...] = ("relu", "leaky_relu", "relu6", "hardtanh")
    kernels: tuple[Annotated[str, OneOf((*KERNELS, "bump"))], ...] = KERNELS
    gates: tuple[Literal["sigmoid", "normal", "algebraic", "arctan", "hard"], ...] = (
        *("sigmoid", "normal", "algebraic", "arctan", "hard"),
    )
    densities: tuple[Literal["normal", "laplace", "logistic", "data"], ...] = ("normal", "laplace", "logistic")
    constraints: Constraints = field(default_factory=Constraints)
    seconds: Positive = 1.0
    learn: bool = False
    generation: Count = 100
    rungs: Count = 3
    keep: Share = 1 / 3
    seeds: Count = 2
    finalists: Count = 4
    sampler: Literal["tpe", "evolution", "random"] = "tpe"
    seed: Annotated[int, Limits("a whole number in [0, 2**32)", lambda seed: 0 <= seed < 2**32)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("forms", "functions", "hard", "kernels", "gates", "densities"):
            _need(bool(getattr(self, name)), f"search.{name}", "a list of at least one", "none")
            _refuse_twice(getattr(self, name), f"search.{name}")

    def lengths(self, longest: int) -> tuple[int, ...]:
        """How long each rung trains, up to the longest.

        >>> Search().lengths(27), Search(rungs=2, keep=0.25).lengths(2)
        ((3, 9, 27), (1, 2))
        """
        each = [max(1, round(longest * self.keep ** (self.rungs - 1 - rung))) for rung in range(self.rungs)]
        return tuple(dict.fromkeys(each))


@dataclass(frozen=True, kw_only=True)
class Recipe(Section):
    """A study. See the fields of its parts.

    search:        what `softknee search` tries; a study of the same recipe has the activations alone.
    task:          what is trained for, where that is more than to classify or to predict quantities.

    baseline:      the label of the activation that the others are compared with; left out, relu where it is there, else
                   the first.
    cost_baseline: the activation whose cost is 1; one that is not in the study is measured for its cost alone.
    paper:         numbers of a paper that the report sets its own beside; no trial depends on them.
    """

    # It becomes the name of a folder.
    name: Annotated[
        str,
        Limits(
            "letters, digits, '-', '_' and '.', at most 64 and the first none of the signs",
            re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}").fullmatch,
        ),
    ]
    title: str = ""
    data: Data = field(default_factory=Data)
    model: Model = field(default_factory=Model)
    activations: tuple[Choice, ...] = ()
    training: Training = field(default_factory=Training)
    augment: Augmentation | None = later(None)
    seeds: Seeds = field(default_factory=Seeds)
    init: Literal["default", "matched", "keras"] = "default"
    select: Literal["last", "best_val"] = "last"
    hardening: Hardening | None = None
    tuning: Tuning | None = None
    measures: tuple[Annotated[str, OneOf(KNOWN_MEASURES)], ...] = MEASURES
    baseline: str = "relu"
    cost_baseline: str = "gelu"
    # Also "models": the weights of every seed as safetensors.
    keep: tuple[Annotated[str, OneOf(KEEPS)], ...] = ("predictions",)
    device: Annotated[
        str, Limits("'cpu', 'mps', 'cuda' or one GPU, such as 'cuda:1'", re.compile(r"cpu|mps|cuda(:\d+)?").fullmatch)
    ] = "cpu"
    paper: Paper | None = None
    task: Task | None = later(None)
    search: Search | None = later(None)

    def __post_init__(self) -> None:
        super().__post_init__()
        for place in ("measures", "keep"):
            _refuse_twice(getattr(self, place), place)

    @property
    def length(self) -> int:
        """Of a training, in epochs; of a language model from scratch, in steps."""
        return self.task.steps if isinstance(self.task, Language) else self.training.epochs

    def with_length(self, length: int) -> Recipe:
        """The recipe with a shorter or longer training; the warm-up of a language model keeps its share of it."""
        if not isinstance(self.task, Language):
            return replace(self, training=replace(self.training, epochs=length))
        warmup = max(1, round(self.task.warmup * length / self.task.steps))
        return replace(self, task=replace(self.task, steps=length, warmup=warmup))


def _need(holds: bool, where: str, wanted: str, value: Any) -> None:
    if not holds:
        raise refusal(where, wanted, value)


def _refuse_twice(given: tuple[Any, ...], where: str) -> None:
    for name in given:
        if given.count(name) > 1:
            raise RecipeError(f"{where} names {name!r} twice; once is enough.")
