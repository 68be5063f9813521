"""What is run and recorded at once: one activation with one set of values, trained with every seed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ...errors import RecipeError
from .fitting import Section, fit, later, to_plain
from .recipe import Augmentation, Choice, Data, Hardening, Model, Seeds, Task, Training, Value


@dataclass(frozen=True, kw_only=True)
class Chosen(Choice, where="activation"):
    """An activation of a recipe with one of its combinations: a number for each parameter that was given."""

    label: str  # pyright: ignore[reportGeneralTypeIssues] - one of a recipe need not have it
    values: Mapping[str, Value] = field(default_factory=dict)
    rate: float | None = later(None)
    price: float | None = later(None)


@dataclass(frozen=True, kw_only=True)
class Trial(Section, where="trial"):
    """The resolved recipe of one run: all that its result depends on, and nothing else.

    kind:        "train"; "tune" (chooses learning rate and decay by validation; never reads the test set); "cost"
                 (times one training step and one inference of every activation in turns); "teacher" (the network that
                 the students of a distillation learn from).
    teacher:     the key of that network's trial; empty where there is none.
    fingerprint: SHA-256 of the examples, so that a changed file is another trial.
    source:      SHA-256 of the file with the function of your own that makes the model; empty for a network by name.
    """

    kind: Literal["train", "tune", "cost", "teacher"]
    activations: tuple[Chosen, ...]
    data: Data
    fingerprint: str
    model: Model
    training: Training
    seeds: Seeds
    init: str = "default"
    select: str = "last"
    hardening: Hardening | None = None
    measures: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    cost_baseline: str = "gelu"
    device: str = "cpu"
    source: str = ""
    augment: Augmentation | None = later(None)
    task: Task | None = later(None)
    teacher: str = later("")

    @property
    def selects(self) -> str:
        """Which epoch is reported: "last" or "best_val". `select` does not speak of a hardened activation."""
        return self.activation.select or ("last" if self.activation.harden else self.select)

    @property
    def activation(self) -> Chosen:
        """The activation of a trial that has one alone."""
        (chosen,) = self.activations
        return chosen

    def plain(self) -> dict[str, Any]:
        """The trial as JSON's own types."""
        return json.loads(json.dumps(to_plain(self), sort_keys=True))

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> Trial:
        """The trial that `plain` was made of; a RecipeError where it is none, or one of another version.

        >>> chosen = Chosen(name="smelu", label="smelu", values={"beta": 0.5})
        >>> trial = Trial(kind="train", activations=(chosen,), data=Data(set="digits"), fingerprint="0" * 64,
        ...               model=Model(), training=Training(), seeds=Seeds())
        >>> Trial.read(trial.plain()) == trial
        True
        """
        trial = fit(plain, cls, "trial")
        if trial.plain() != json.loads(json.dumps(plain)):
            raise RecipeError("A trial must have every one of its keys; this was written by another version.")
        return trial

    @property
    def key(self) -> str:
        """What its record is called: the first 16 hexadecimal digits of the SHA-256 of its canonical JSON."""
        text = json.dumps(self.plain(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]
