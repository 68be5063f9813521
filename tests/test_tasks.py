"""Tasks of a recipe: students that learn from a teacher, and activations whose bits have a price."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import softknee as sk
from softknee.errors import InputError, RecipeError
from softknee.lab.rates import BitPrice, code, measure_coding, watched
from softknee.lab.report import summarise
from softknee.lab.report.summary import origin_of
from softknee.lab.report.tables import markdown
from softknee.lab.studies.building import model_maker
from softknee.lab.studies.engine import StudyStopped
from softknee.lab.studies.examples import load_examples
from softknee.lab.studies.reading import read_recipe, to_yaml
from softknee.lab.studies.recipe import Data
from softknee.lab.studies.runner import run_study, smoke
from softknee.lab.studies.running import run_trial
from softknee.lab.studies.running.tasks import objective
from softknee.lab.studies.running.training import read_tensors
from softknee.lab.studies.store import RunStore
from softknee.lab.studies.trials import teacher_trial, train_trials
from softknee.wire import decode, encode

DISTIL = """
name: taught
data: {set: digits, limit: 256}
model: {arguments: {hidden: [16]}}
activations: [relu, {name: squaf, k: 4, q: 1.0, learn: true, fitted: relu, trained: first}]
training: {epochs: 2, batch: 64, learning_rate: 0.01}
task: {kind: distil, teacher: mlp, arguments: {hidden: [64]}, temperature: 3}
seeds: 2
measures: [prediction_difference]
"""
CODE = """
name: coded
data: {set: digits, limit: 512}
model: {arguments: {hidden: [24, 16]}}
activations:
  - relu
  - {name: squaf, label: SQUAF-P, k: 8, q: 0.25, learn: true, fitted: relu, trained: all, mode: sampled,
     price: [0, 0.5]}
training: {epochs: 6, batch: 64, learning_rate: 0.01, engine: compiled}
task: {kind: code, examples: 8, draws: 2}
seeds: 2
measures: [prediction_difference]
"""


def sampled(seed=0):
    """A network of three layers that draw, for inputs of six numbers and four classes."""
    torch.manual_seed(seed)
    layers = []
    for _ in range(3):
        layers += [nn.Linear(6, 6), sk.nn.SQUAFP(k=16, q=0.125)]
    return nn.Sequential(*layers, nn.Linear(6, 4)).eval()


# -- bits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", ["gaussian", "laplacian"])
def test_the_rate_is_that_of_the_penalty_and_so_are_its_gradients(weights):
    torch.manual_seed(0)
    layers = [sk.nn.SQUAF(k=4, q=0.4, alpha=5.0, weights=weights, window=window, learn=True) for window in (5, None)]
    price = BitPrice()
    net = price.watch(nn.Sequential(nn.Linear(3, 6), layers[0], nn.Linear(6, 5), layers[1]).double())
    penalty = sk.nn.RatePenalty(net, weight=1.0)
    net(torch.randn(7, 3, dtype=torch.float64))
    rates = price.rate(), penalty()
    parameters = [parameter for name, parameter in net.named_parameters() if name not in ("1.z", "3.z")]
    torch.testing.assert_close(*rates)
    each = [torch.autograd.grad(rate, parameters, retain_graph=True, allow_unused=True) for rate in rates]
    for ours, theirs in zip(*each, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    with pytest.raises(InputError, match="since the last call"):
        price.rate()
    net.eval()(torch.randn(2, 3, dtype=torch.float64))  # is not trained on
    with pytest.raises(InputError, match="since the last call"):
        price.rate()


def test_a_price_is_for_squaf_layers_of_every_granularity():
    with pytest.raises(InputError, match="no SQUAF layer"):
        BitPrice().watch(nn.ReLU())
    price = BitPrice()
    net = price.watch(sk.nn.SQUAF(k=2, per="channel", size=3))
    penalty = sk.nn.RatePenalty(net, weight=1.0)
    net(torch.randn(7, 3))
    torch.testing.assert_close(price.rate(), penalty())


def test_the_compiler_takes_loss_and_price_in_one_graph():
    price = BitPrice()
    net = price.watch(nn.Sequential(nn.Linear(2, 8), sk.nn.SQUAFP(k=4, q=0.5, learn=True), nn.Linear(8, 3)))

    def loss(x, y):
        return F.cross_entropy(net(x), y) + 0.5 * price.rate()

    seen = torch._dynamo.explain(loss)(torch.randn(16, 2), torch.randint(3, (16,)))
    assert (seen.graph_count, seen.break_reasons) == (1, [])


def test_what_is_coded_are_the_symbols_of_what_the_network_did():
    model, x = sampled(), torch.randn(200, 6)
    with torch.no_grad(), watched(model) as symbols:
        model(x)
    assert [levels for _, levels in symbols.values()] == [33] * 3
    for sent, levels in symbols.values():
        small = sent.to(torch.uint8)
        assert torch.equal(decode(encode(small, levels=levels, coder="huffman")), small)
    sk.squaf_mode_(model, "step")
    bits = code(model, x)
    with torch.no_grad(), watched(model) as symbols:
        assert torch.equal(model(x), model(x))
    shares = [torch.bincount(sent.flatten().long(), minlength=33) / sent.numel() for sent, _ in symbols.values()]
    entropy = sum(-torch.special.xlogy(p, p).sum().item() for p in shares) / 3 / math.log(2)
    assert bits["entropy"] == pytest.approx(entropy, rel=1e-5)
    assert entropy <= bits["huffman"] < entropy + 1
    assert entropy <= bits["rans"] < entropy * 1.2 + 0.1  # headers count in so little
    assert bits["packed"] > 5


def test_measuring_leaves_mode_and_generator_alone_and_averages_over_draws():
    model, x = sampled(), torch.randn(64, 6)
    with torch.no_grad():  # where a draw decides
        model[-1].bias -= model(x).mean(0)
        y = model(x).argmax(1)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    scores = measure_coding(model, x, y, coded=2, draws=3, seed=0)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert {type(module).__name__ for module in model.modules() if isinstance(module, sk.nn.SQUAF)} == {"SQUAFP"}
    assert scores == measure_coding(model, x, y, coded=2, draws=3, seed=0)
    assert scores["bits"] == pytest.approx(sk.measure.rate(model, [x]).bits, abs=0.02)
    each = [measure_coding(model, x, y, coded=1, draws=draws, seed=0)["accuracy_sampled"] for draws in (1, 16)]
    assert each[0] != each[1]
    assert round(64 * each[0]) == 64 * each[0]
    assert round(64 * 16 * each[1]) == pytest.approx(64 * 16 * each[1])


@pytest.fixture(scope="module")
def coded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("coded") / "study"
    return read_recipe(CODE), run_study(read_recipe(CODE), out=folder)


def test_a_price_lowers_bits(coded):
    recipe, (relu, free, priced) = coded
    assert [outcome.trial.activation.price for outcome in (relu, free, priced)] == [None, 0.0, 0.5]
    assert "bits" not in relu.test
    assert max(priced.test["bits"]) < min(free.test["bits"])
    assert max(priced.test["bits_huffman"]) < min(free.test["bits_huffman"])
    assert min(free.test["accuracy"]) > 0.6
    page = markdown(summarise(recipe, [relu, free, priced]), origin_of(recipe, command=""))
    assert "bits per activation (rate), bits" in page
    assert "SQUAF-P price=0.5" in page
    summary = summarise(recipe, [relu, free, priced])
    assert (summary.metric.name, summary.spread.name) == ("accuracy", "bits")
    assert [knob.parameter for knob in summary.knobs] == ["price"]


# -- a teacher ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    folder = tmp_path_factory.mktemp("taught") / "study"
    return folder, run_study(read_recipe(DISTIL), out=folder)


def test_the_loss_is_the_formula(taught):
    folder, (teacher, student, _) = taught
    trial, examples = student.trial, load_examples(Data(set="digits", limit=256), flat=True)
    weights = RunStore(folder).file(teacher.trial.key, "models.safetensors")
    make = model_maker(trial.model, trial.activation, examples)
    logits = {name: stacked[0] for name, stacked in read_tensors(weights).items()}
    x, y = examples.train_x[:5], examples.train_y[:5]
    hidden = F.relu(F.linear(x, logits["0.weight"], logits["0.bias"]))
    taught_by = F.linear(hidden, logits["2.weight"], logits["2.bias"]).double()
    output = torch.randn(5, 10, dtype=torch.float64, requires_grad=True)
    for share in (0.0, 0.9, 1.0):
        asked = replace(trial, task=replace(trial.task, share=share))
        _, goal = objective(asked, make, examples, teacher=weights)
        loss = goal["loss"](output, goal["targets"](x[None], y[None])[0].double())
        wanted, own = (F.softmax(each / 3, dim=1) for each in (taught_by, output))
        divergence = (wanted * (wanted / own).log()).sum(1).mean()
        plain = F.cross_entropy(output, y)
        assert loss.item() == pytest.approx(((1 - share) * plain + share * 9 * divergence).item(), rel=1e-4)
    (slope,) = torch.autograd.grad(loss, output)  # of share 1: T (q - p) / n
    torch.testing.assert_close(slope, 3 * (own - wanted).detach() / 5, rtol=1e-3, atol=1e-5)


def test_students_learn_from_one_teacher_whose_record_is_kept(taught):
    folder, (teacher, relu, squaf) = taught
    assert [outcome.trial.kind for outcome in (teacher, relu, squaf)] == ["teacher", "train", "train"]
    assert teacher.trial.seeds.numbers == (0,)
    assert relu.trial.teacher == squaf.trial.teacher == teacher.trial.key
    assert teacher.test["accuracy"][0] > 0.5
    summary = summarise(read_recipe(DISTIL), [teacher, relu, squaf])
    assert [row.label for row in summary.rows] == ["relu", "squaf"]
    assert f"The teacher, mlp, has a test accuracy of {100 * teacher.test['accuracy'][0]:.2f} %." in summary.notes
    again = run_study(read_recipe(DISTIL), out=folder)  # nothing is trained again
    assert again == [teacher, relu, squaf]


def test_a_student_that_does_not_listen_is_trained_as_without_a_teacher(tmp_path):
    settings = ["activations=[relu]", "seeds=1"]
    alone = DISTIL.replace("task: {kind: distil, teacher: mlp, arguments: {hidden: [64]}, temperature: 3}\n", "")
    (plain,) = run_study(read_recipe(alone, settings=settings), out=tmp_path / "alone")
    deaf = read_recipe(DISTIL, settings=[*settings, "task.share=0"])
    _, student = run_study(deaf, out=tmp_path / "deaf")
    assert student.curves["train_loss"] == tuple(pytest.approx(row, rel=1e-5) for row in plain.curves["train_loss"])
    assert student.test["accuracy"] == plain.test["accuracy"]


def test_a_stopped_study_goes_on_with_the_teacher_that_is_there(taught, tmp_path):
    trained = []

    def stopping(trial, **given):
        if trial.activation.name == "squaf":
            raise StudyStopped("stopped here", 2)
        trained.append(trial.kind)
        return run_trial(trial, **given)

    with pytest.raises(StudyStopped):
        run_study(read_recipe(DISTIL), out=tmp_path / "study", run_trial=stopping)
    outcomes = run_study(read_recipe(DISTIL), out=tmp_path / "study", resume=True)
    assert trained == ["teacher", "train"]
    whole = taught[1]
    assert [outcome.test for outcome in outcomes] == [outcome.test for outcome in whole]
    other = read_recipe(DISTIL, settings=["task.arguments.hidden=[32]"])
    examples = load_examples(other.data, flat=True)
    assert teacher_trial(other, examples).key != whole[0].trial.key
    assert train_trials(other, examples)[0].key != whole[1].trial.key


def test_a_study_of_one_activation_trains_the_teacher_too(tmp_path):
    outcomes = run_study(read_recipe(DISTIL, settings=["training.epochs=1"]), out=tmp_path / "study", only=["squaf"])
    assert [outcome.trial.kind for outcome in outcomes] == ["teacher", "train"]


def test_a_teacher_that_diverges_is_said(tmp_path):
    wild = read_recipe(DISTIL, settings=["training.learning_rate=1e30", "training.optimizer=sgd"])
    with pytest.raises(RecipeError, match=r"teacher diverged in epoch 1.*smaller training\.learning_rate"):
        run_study(wild, out=tmp_path / "study")


# -- recipes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [DISTIL, CODE], ids=["distil", "code"])
def test_a_recipe_with_a_task_is_written_and_read_and_made_small(text):
    recipe = read_recipe(text)
    assert read_recipe(to_yaml(recipe)) == recipe
    few = smoke(recipe)
    assert few.task.kind == recipe.task.kind
    assert len(few.activations) == 2
    if few.task.kind == "code":
        assert (few.task.examples, few.task.draws) == (1, 2)
        assert few.activations[1].price == 0.5  # the largest price: what does most


@pytest.mark.parametrize(
    ("text", "setting", "sentence"),
    [
        (DISTIL, "task.kind=distill", r"task\.kind must be 'distil'.*Did you mean 'distil'"),
        (DISTIL, "task.share=1.5", r"task\.share must be a number in \[0, 1\]"),
        (DISTIL, "task.temperature=0", r"task\.temperature must be a number above 0"),
        (DISTIL, "task.teacher=vgg9", r"task\.teacher must be .*'vgg9' was given.*Did you mean 'vgg8'"),
        (DISTIL, "task.activation=gelo", r"task\.activation: .*'gelo'.*Did you mean 'gelu'"),
        (DISTIL, "task.techer=mlp", r"task\.techer is no key.*Did you mean 'teacher'"),
        (DISTIL, "training.engine=loop", r"needs training\.engine 'replicas' or 'compiled'"),
        (DISTIL, "training.loss=bce_with_logits", r"its own loss: leave training\.loss"),
        (DISTIL, "activations=[{name: squaf, k: 4, mode: sampled, price: 1}]", "add 'task: {kind: code}'"),
        (DISTIL, "activations=[{name: relu, mode: sampled}]", "mode must be for squaf alone"),
        (CODE, "activations=[{name: squaf, k: 4, price: 1}]", "price must be beside mode: sampled"),
        (CODE, "activations.1.price=-1", "price must be at least 0"),
        (CODE, "training.engine=replicas", r"needs training\.engine 'compiled'"),
        (CODE, "task.draws=0", r"task\.draws must be a whole number of at least 1"),
    ],
)
def test_what_does_not_fit_is_refused(text, setting, sentence):
    with pytest.raises(RecipeError, match=sentence):
        read_recipe(text, settings=[setting])


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")
@pytest.mark.parametrize("text", [DISTIL, CODE], ids=["distil", "code"])
def test_on_a_gpu_the_compiled_engine_trains_the_same(text, tmp_path):
    settings = ["training.engine=compiled", "training.epochs=3"]
    by_device = {}
    for device in ("cpu", "cuda"):
        recipe = read_recipe(text, settings=[*settings, f"device={device}"])
        by_device[device] = run_study(recipe, out=tmp_path / device)
    for here, there in zip(by_device["cpu"], by_device["cuda"], strict=True):
        torch.testing.assert_close(
            torch.tensor(here.curves["train_loss"]), torch.tensor(there.curves["train_loss"]), rtol=0.15, atol=0.1
        )
        assert min(there.test["accuracy"]) > min(here.test["accuracy"]) - 0.15
