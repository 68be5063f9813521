"""What no recipe may say: each refusal names the place, what was given and what is allowed, before any training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recipe_text import text
from softknee.errors import RecipeError
from softknee.files import ReadError
from softknee.lab.studies.reading import read_recipe
from softknee.lab.studies.recipe import Choice, Data, Recipe, Seeds, Training


def refused(**changes: str) -> str:
    with pytest.raises(RecipeError) as caught:
        read_recipe(text(**changes))
    return str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("seed", "3", "seed is no key of a recipe. Did you mean 'seeds'"),
        ("name", "a b", "name must be letters"),
        ("name", "3", "name must be text, and 3 was given"),
        ("name", "../up", "name must be letters"),
        ("data", "{set: digit}", "data.set must be one of 'digits', 'mnist', 'fashion-mnist', "),
        ("data", "{sett: digits}", "data.sett is no key of a recipe. Did you mean 'set'?"),
        ("data", "digits", "data must be a section with keys of its own, and 'digits' was given"),
        ("data", "{file: a.txt}", "data.file must be a .csv or .npz file"),
        ("data", "{set: digits, file: a.csv}", "and both were given"),
        ("data", "{}", "and neither was given"),
        ("data", "{set: digits, test: 0.3}", "data.test is for your own file"),
        ("data", "{set: digits, target: y}", "data.target is for a file of your own"),
        ("data", "{set: digits, standardise: false}", "data.standardise is for a file"),
        ("data", "{file: a.npz, ignore: [id]}", "data.ignore names columns of a .csv"),
        ("data", "{set: digits, validation: 1}", "data.validation must be a share between 0 and 1, and 1.0 was given"),
        ("data", "{file: a.csv, test: 0}", "data.test must be a share between 0 and 1"),
        ("data", "{set: digits, split_seed: -1}", "data.split_seed must be a whole number in [0, 2**63)"),
        ("model", "{build: mpl}", "Did you mean 'mlp'?"),
        ("model", "{build: 'a b:c'}", "model.build must be"),
        ("model", "{arguments: {hiden: [3]}}", "Did you mean 'hidden'? It takes hidden, widths"),
        ("model", "{arguments: {hidden: [3], widths: [1, 2]}}", "not both"),
        ("model", "{arguments: {seed: 3}}", "model.arguments.seed is set by the study"),
        ("model", "{build: cnn, replacing: relu}", "model.replacing is for surgery"),
        ("training", "{learning_rate: -1}", "training.learning_rate must be a number above 0, and -1.0 was given"),
        ("training", "{learning_rate: fast}", "training.learning_rate must be a number, and 'fast' was given"),
        ("training", "{learning_rate: 1e999}", "training.learning_rate must be a number, and inf was given"),
        ("training", "{weight_decay: -0.1}", "training.weight_decay must be a number of at least 0"),
        ("training", "{epochs: 0}", "training.epochs must be a whole number of at least 1"),
        ("training", "{epochs: 1.5}", "training.epochs must be a whole number, and 1.5 was given"),
        ("training", "{epochs: true}", "training.epochs must be a whole number, and true was given"),
        ("training", "{batch: [1]}", "training.batch must be a whole number, and [1] was given"),
        ("training", "{optimizer: adamm}", "Did you mean 'adam' or 'adamw'?"),
        (
            "training",
            "{activation_optimizer: adamm, activation_learning_rate: 1e-3}",
            "training.activation_optimizer must be one of 'sgd', 'adagrad', 'adam', 'adamw', 'rmsprop', and 'adamm' "
            "was given. Did you mean 'adam' or 'adamw'?",
        ),
        (
            "training",
            "{activation_optimizer: adam}",
            "training.activation_optimizer needs training.activation_learning_rate: an optimiser, and the rate",
        ),
        (
            "training",
            "{activation_learning_rate: 1e-3}",
            "training.activation_learning_rate needs training.activation_optimizer: an optimiser, and the rate",
        ),
        (
            "training",
            "{activation_optimizer: adam, activation_learning_rate: 0}",
            "training.activation_learning_rate must be a number above 0, and 0.0 was given",
        ),
        (
            "training",
            "{activation_optimizer: adam, activation_learning_rate: 1e-3, activation_rate: 0.02}",
            "training.activation_rate must be left out beside training.activation_learning_rate, which is no multiple "
            "of the weights', and 0.02 was given",
        ),
        ("training", "{schedule: step}", "needs training.milestones"),
        ("training", "{milestones: [3]}", "are for the schedule 'step', and it is 'constant'"),
        ("training", "{factor: 0.5}", "are for the schedule 'step'"),
        ("training", "{schedule: step, milestones: [3, 3]}", "training.milestones names 3 twice"),
        (
            "training",
            "{schedule: step, milestones: [0]}",
            "milestones[0] must be a whole number of at least 1",
        ),
        ("training", "{schedule: step, milestones: [3], factor: 0}", "training.factor must be a number above 0"),
        ("training", "{schedule: cosine, floor: 1}", "training.floor must be a share of the rate in [0, 1)"),
        ("training", "{floor: 0.1}", "training.floor is what the schedules 'linear' and 'cosine' fall to, and it is"),
        ("training", "{warmup_start: 0.1}", "training.warmup_start is where warm-up begins, and training.warmup is 0"),
        ("training", "{every: 0}", "training.every must be a whole number of at least 1"),
        ("training", "{schedule: cosin}", "training.schedule must be 'constant', 'linear', 'cosine' or 'step'"),
        ("training", "{loss: ce}", "training.loss must be"),
        ("training", "{warmup: 1}", "training.warmup must be a share of the training in [0, 1)"),
        ("training", "{clip: 0}", "training.clip must be a number above 0"),
        ("training", "{optimizer: sgd, momentum: 1}", "training.momentum must be a number in [0, 1)"),
        ("training", "{optimizer: adam, momentum: 0.9}", "The optimiser 'adam' has no option 'momentum'"),
        ("training", "{options: {betas: [0.9, 2]}}", "betas must be two numbers in [0, 1)"),
        (
            "training",
            "{options: {betas: 3}}",
            "training.options.betas must be two numbers, such as [0.9, 0.999]",
        ),
        ("training", "{options: {beta: [0.9, 0.9]}}", "Did you mean 'betas'?"),
        (
            "training",
            "{options: {weight_decay: 1}}",
            "training.options.weight_decay must be written as training.weight_d",
        ),
        ("training", "{strategy: ddp}", "it needs training.engine 'loop'"),
        ("seeds", "0", "seeds.count must be a whole number of at least 1, and 0 was given"),
        ("seeds", "1000000000000000000000000", "seeds.count must be a whole number of at most 100,000"),
        ("seeds", "{first: 10000000000000000000000}", "seeds.first must be a whole number of at least 0 and below 2**"),
        ("training", "{batch: 99999999999999999999}", "training.batch must be a whole number below 2**31"),
        ("seeds", "true", "seeds must be a section"),
        ("seeds", "{cout: 3}", "Did you mean 'count'?"),
        ("seeds", "{first: -1}", "seeds.first must be a whole number of at least 0"),
        ("hardening", "{start: 1.0}", "hardening.start must be a share of the epochs in [0, 1), and 1.0 was given"),
        ("hardening", "{tolerance: 0}", "hardening.tolerance must be a number above 0"),
        ("tuning", "{}", "tuning has nothing to choose from"),
        ("tuning", "{learning_rate: 1e-3}", "tuning.learning_rate must be a list in which each is a number"),
        ("tuning", "{learning_rate: [1e-3, 0]}", "tuning.learning_rate must be a list of numbers above 0"),
        ("tuning", "{learning_rate: [1e-3, 0.001]}", "tuning.learning_rate names 0.001 twice"),
        ("measures", "[gradient]", "measures[0] must be one of 'prediction_difference'"),
        ("measures", "[cost, cost]", "measures names 'cost' twice"),
        ("keep", "[all]", "keep[0] must be one of 'predictions', 'models'"),
        ("init", "match", "Did you mean 'matched'?"),
        ("select", "best", "select must be 'last' or 'best_val'"),
        ("device", "gpu", "device must be 'cpu', 'mps', 'cuda' or one GPU"),
        ("baseline", "gelu", "baseline must be one of the activations (relu, smelu beta=0.5, smelu beta=1)"),
        ("baseline", "smelu", "is 2 trials; name one: 'smelu beta=0.5', 'smelu beta=1'"),
        ("cost_baseline", "gellu", "Did you mean 'gelu'"),
        ("activations", "[]", "activations must name at least one function"),
        ("activations", "relu", "activations must be a list"),
        ("activations", "[3]", "activations[0] must be a section"),
        ("activations", "[{beta: 1}]", "activations[0] lacks the key 'name'"),
        (
            "activations",
            "[relu, rleu]",
            "activations[1].name: There is no activation named 'rleu'. Did you mean 'relu'",
        ),
        ("activations", "[{name: smelu, bta: 1}]", "activations[0]: smelu has no parameter 'bta'"),
        ("activations", "[{name: smelu, beta: -1}]", "smelu: beta must be a finite number above 0, and -1.0 was given"),
        ("activations", "[{name: smelu, beta: [1, -2]}]", "beta must be a finite number above 0, and -2.0 was given"),
        ("activations", "[{name: smelu, beta: wide}]", "activations[0]: smelu: beta must be a number"),
        ("activations", "[{name: smelu, beta: []}]", "beta must be a number, or several in a list"),
        ("activations", "[{name: smelu, beta: {a: 1}}]", "activations[0].values.beta must be"),
        ("activations", "[{name: smelu, lern: beta}]", "activations[0].lern is no key of an activation"),
        ("activations", "[{name: smelu, learn: bta}]", "smelu has no parameter 'bta' to learn"),
        ("activations", "[{name: lambda_gelu, lam: 1, learn: lam}]", "to be learned, lam must be"),
        ("activations", "[{name: swish, per: chanel}]", "per must be 'layer', 'channel' or 'neuron'"),
        ("activations", "[{name: relu, label: ''}]", "label must be a text that is not empty"),
        ("activations", "[{name: relu, label: /home/mine}]", "activations[0].label is '/home/mine', and records"),
        (
            "model",
            "{build: 'mine:make', arguments: {files: [a.pt, /home/b.pt]}}",
            "model.arguments.files[1] is '/home/b.pt', and records, which are read elsewhere too, name no place on a "
            "disk. Give a path seen from the folder that softknee is started in, such as 'b.pt'",
        ),
        ("activations", "[relu, relu]", "Two of the activations are called 'relu'"),
        ("activations", "[gelu, {name: relu, label: gelu}]", "Two of the activations are called 'gelu'"),
        ("activations", "[{name: smelu, beta: [1, 1.0]}]", "Two of the activations are called 'smelu beta=1'"),
        ("activations", "[{name: smelu, harden: true}]", "the recipe has no section 'hardening'"),
        ("activations", "[{name: relu, harden: true}]", "relu is hard already"),
        ("activations", "[{name: softsign, harden: true}]", "softsign cannot be replaced"),
        ("activations", "[{name: smooth_relu, harden: true}]", "activations[0].harden"),
        ("activations", "[{name: own.json}]", "register yours with sk.register"),
    ],
)
def test_the_place_and_the_cure(key: str, value: str, said: str) -> None:
    assert said in refused(**{key: value})


def test_a_rate_beside_an_optimiser_of_their_own() -> None:
    own = "{activation_optimizer: adam, activation_learning_rate: 1e-3}"
    said = refused(training=own, activations="[relu, {name: smelu, learn: true, rate: 3}]")
    assert "activations[1].rate is a multiple of the weights' rate, and with training.activation_optimizer" in said
    assert "is training.activation_learning_rate; leave one of them out" in said


def test_tuning_has_seeds_of_its_own() -> None:
    said = refused(seeds="{count: 5, first: 999998}", tuning="{learning_rate: [1e-3]}")
    assert "tuning takes those from 1,000,000 on" in said
    read_recipe(text(seeds="{count: 2, first: 999998}", tuning="{learning_rate: [1e-3]}"))


# -- YAML that is none, or more than it seems ---------------------------------------------------------------

BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", "The key 'a' stands at lines 1 and 3"),
        ("training: {epochs: 1, epochs: 2}\n", "The key 'epochs' stands at lines 1 and 1"),
        (BOMB, "Line 2 has an alias"),
        ("base: &b {x: 1}\ntraining:\n  <<: *b\n", "Line 3 has an alias"),
        ("[" * 5000 + "\n", "nested more than 20 levels deep"),
        ("a: b: c\n", "no YAML at line 1, column 5"),
        ("a: [1\nb: 2\n", "no YAML at line 2"),
        ("a: !!python/object/apply:os.getcwd []\n", "could not determine a constructor"),
        ("a: " + "1" * 5000 + "\n", "no YAML"),
        ("\x00\n", "no YAML"),
        ("? [a]\n: 1\n", "Line 1 has a list or a section as a key"),
        ("- 1\n- 2\n", "A recipe is a list of keys and values"),
        ("just words\n", "not 'just words'"),
        ("", "not nothing"),
        ("3: 4\n", "is no key of a recipe"),
        ("a: 1\n---\nb: 2\n", "no YAML"),
        ("#" * 70_000 + "\n", "larger than 65,536 bytes"),
    ],
    ids=range(17),
)
def test_texts_that_are_no_recipe(given: str, said: str) -> None:
    with pytest.raises(RecipeError) as caught:
        read_recipe(given)
    assert said in str(caught.value)


def test_files_that_are_no_recipe(tmp_path: Path) -> None:
    (tmp_path / "large.yaml").write_bytes(b"#" * 70_000)
    (tmp_path / "latin.yaml").write_bytes(b"name: \xff\n")
    (tmp_path / "folder.yaml").mkdir()
    for name, said in (("large", "larger than"), ("latin", "UTF-8"), ("folder", "not a file|folder"), ("none", "read")):
        with pytest.raises(ReadError, match=said):
            read_recipe(tmp_path / f"{name}.yaml")


def test_a_word_means_what_it_says() -> None:
    recipe = read_recipe(text(title="on", training="{learning_rate: 1e-3, epochs: 010}".replace("010", "10")))
    assert recipe.title == "on"
    assert recipe.training.learning_rate == 1e-3
    assert "training.epochs must be a whole number, and '010' was given" in refused(training="{epochs: 010}")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Training(epochs=0), "training.epochs"),
        (lambda: Seeds(count=-1), "seeds.count"),
        (lambda: Data(validation=2), "data.validation"),
        (lambda: Recipe(name="no name"), "name must be"),
        (lambda: Choice(name="smelu", per="all"), "activation.per must be"),
    ],
    ids=["training", "seeds", "data", "recipe", "choice"],
)
def test_parts_made_in_python_are_checked_too(make: Any, said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        make()


def test_parts_made_in_python_are_settled() -> None:
    assert isinstance(Training(learning_rate=1).learning_rate, float)
    assert Choice(name="smelu", learn=["beta"]).learn == ("beta",)  # type: ignore[arg-type]
    assert Training(options={"betas": [0.9, 0.99]}).options == {"betas": (0.9, 0.99)}
