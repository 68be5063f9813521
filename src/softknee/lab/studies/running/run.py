"""run_trial: the one way from a trial to its outcome, for a study on this machine and for a worker elsewhere."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from ....errors import DataError
from ..building import model_maker
from ..cost import measure_cost
from ..examples import Examples, load_examples
from ..outcome import Finished, Outcome
from ..trial import Trial
from .augmenting import training_inputs
from .finishing import finish, looked_at
from .sites import profiles, site_entropies
from .trainer import make_trainer
from .training import train
from .watch import QUIET, Watch


def run_trial(
    trial: Trial,
    *,
    examples: Examples | None = None,
    data_folder: str | os.PathLike[str] | None = None,
    saved: Mapping[str, bytes] | None = None,
    watch: Watch = QUIET,
    base: str | os.PathLike[str] | None = None,
) -> Finished:
    """Run a trial to its end.

    Args:
        examples: the data, if they are there already; otherwise they are loaded as the trial says.
        data_folder: where the data sets by name lie.
        saved: what a `Watch` saved of this trial; it goes on from there, on a CPU to the same bits.
        watch: told of every step and epoch.
        base: the folder of the recipe, where a file or a function of your own is looked for.

    "train" reads the test set once, at the end, with the weights of the selected epochs (a hardened trial's last: only
    there its knobs are at their targets); "tune" never reads it; "cost" trains nothing and times every activation.

    >>> from softknee.lab.studies.recipe import Data, Model, Seeds, Training
    >>> from softknee.lab.studies.trial import Chosen
    >>> digits = load_examples(Data(set="digits"), flat=True)
    >>> asked = Trial(kind="train", activations=(Chosen(name="smelu", label="smelu"),), data=Data(set="digits"),
    ...               fingerprint=digits.fingerprint, model=Model(arguments={"hidden": [16]}),
    ...               training=Training(epochs=2), seeds=Seeds(count=3))
    >>> found = run_trial(asked, examples=digits).outcome
    >>> found.selected, len(found.test["accuracy"]), min(found.test["accuracy"]) > 0.2
    ((2, 2, 2), 3, True)
    """
    if examples is None:
        examples = load_examples(trial.data, folder=data_folder, base=base, flat=trial.model.build == "mlp")
    if examples.fingerprint != trial.fingerprint:
        raise DataError(
            f"The trial {trial.key} is of other examples (fingerprint {trial.fingerprint[:12]}) than those that are "
            f"here now ({examples.fingerprint[:12]}); a changed file makes new trials: plan the study anew."
        )
    # What no record can hold is said now, and not after the training.
    Outcome(trial=trial, seconds=0.0).record(command="softknee study", git=None)
    if trial.kind == "cost":
        return measure_cost(trial, examples)
    maker = model_maker(trial.model, trial.activation, examples, init=trial.init, loss=trial.training.loss)
    trainer = make_trainer(trial, maker)
    trained = sum(one.numel() for one in trainer.model(0).parameters() if one.requires_grad)
    everyone = range(trainer.count)
    start_profiles = profiles(trainer, everyone, distances=False) if "hardness" in trial.measures else []
    wanted = trial.kind == "train" and "entropy" in trial.measures
    start_entropies = site_entropies(trainer, looked_at(examples), everyone) if wanted else {}
    validation = None
    if len(examples.validation_x):
        kept = examples.validation_x if examples.on_disk else examples.validation_x.to(trainer.device)
        validation = kept, examples.validation_y.to(trainer.device)
    inputs, augment = training_inputs(trial, examples)
    progress = train(
        trial,
        trainer,
        task=examples.task,
        train_examples=(inputs, examples.train_y),
        validation=validation,
        saved=saved,
        watch=watch,
        augment=augment,
    )
    finished = finish(
        trial, trainer, progress, examples, start_profiles=start_profiles, start_entropies=start_entropies
    )
    # Where every epoch was noted their numbers go without saying.
    epochs = tuple(progress.epochs) if trial.training.every > 1 else ()
    return replace(finished, outcome=replace(finished.outcome, epochs=epochs, trained=trained))
