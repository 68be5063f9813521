"""The rate-accuracy curve of SQUAF-P: bits that are really coded, a price that lowers them, a record and a figure."""

import copy
import json
from dataclasses import replace

import pytest
import torch
from softknee.lab.image_training import Entry, Plan, build, draw_shapes, squaf

import softknee as sk
from data_files import publish_cifar, write_binary
from small_images import PLACES, tiny_vggs, two_halves
from softknee.errors import InputError, ParameterError
from softknee.lab import rates
from softknee.lab.rates import code, measure, watched
from softknee.measure.record import Record
from softknee.wire import decode, encode

SAMPLED = squaf("SQUAF-P", q=0.125, mode="sampled")
SMALL = rates.Settings(
    network="vgg8",
    weights=(0.0, 2.0),
    seeds=(0, 1),
    baselines=(Entry(title="ReLU", name="relu"),),
    coded_images=4,
    plan=Plan(epochs=8, batch=8, learning_rate=0.02, crop=0),
    device="cpu",
)


@pytest.fixture(scope="module", autouse=True)
def _tiny():
    with tiny_vggs():
        yield


@pytest.fixture(scope="module")
def record(_tiny):
    return rates.run(SMALL, command="softknee study rate", data=two_halves())


@pytest.mark.parametrize("weights", ["gaussian", "laplacian"])
def test_the_quick_rate_is_the_penalty_and_so_are_its_gradients(weights):
    torch.manual_seed(0)
    layers = [sk.nn.SQUAF(k=4, q=0.4, alpha=5.0, weights=weights, window=window, learn=True) for window in (5, None)]
    net = torch.nn.Sequential(torch.nn.Linear(3, 6), layers[0], torch.nn.Linear(6, 5), layers[1]).double()
    quick, penalty = rates.QuickRate(net), sk.nn.RatePenalty(net, weight=1.0)
    net(torch.randn(7, 3, dtype=torch.float64))
    found, wanted = quick(), penalty()
    parameters = [one for name, one in net.named_parameters() if name not in ("1.z", "3.z")]
    torch.testing.assert_close(found, wanted)
    each = [torch.autograd.grad(one, parameters, retain_graph=True, allow_unused=True) for one in (found, wanted)]
    for mine, theirs in zip(*each, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)
    with pytest.raises(InputError, match="since the last call"):
        quick()
    copy.deepcopy(net)  # a watched network can be copied
    quick.close()
    net(torch.randn(2, 3, dtype=torch.float64))
    with pytest.raises(InputError, match="since the last call"):
        quick()


def test_the_quick_rate_is_for_one_table_a_layer():
    with pytest.raises(InputError, match="no SQUAF layer"):
        rates.QuickRate(torch.nn.ReLU())
    with pytest.raises(InputError, match=r"sk\.nn\.RatePenalty for others"):
        rates.QuickRate(sk.nn.SQUAF(k=2, per="channel", size=3))


def test_what_is_coded_are_the_symbols_of_what_the_network_did():
    data = two_halves(6)
    model = build("vgg8", SAMPLED, classes=2, seed=0).eval()
    images = data.ready(data.test_images)
    with torch.no_grad(), watched(model) as symbols:
        model(images)
    assert [levels for _, levels in symbols.values()] == [33] * 3
    for one, levels in symbols.values():
        small = one.to(torch.uint8)
        assert torch.equal(decode(encode(small, levels=levels, coder="huffman")), small)
    sk.squaf_mode_(model, "step")
    found = code(model, images)
    with torch.no_grad(), watched(model) as symbols:
        assert torch.equal(model(images), model(images))
    shares = [torch.bincount(one.flatten().long(), minlength=33) / one.numel() for one, _ in symbols.values()]
    counts = torch.tensor([float(one.numel()) for one, _ in symbols.values()])
    each = torch.stack([-torch.special.xlogy(p, p).sum() / torch.log(torch.tensor(2.0)) for p in shares])
    wanted = float((each * counts).sum() / counts.sum())
    assert found.symbols == int(counts.sum()) == 6 * PLACES
    assert found.bits["entropy"] == pytest.approx(wanted, rel=1e-5)
    assert wanted <= found.bits["huffman"] < wanted + 1
    assert wanted <= found.bits["rans"] < wanted * 1.2 + 0.1  # headers count in so little
    assert found.bits["packed"] > 5


def test_measuring_leaves_mode_and_generator_alone():
    data = two_halves(4)
    model = build("vgg8", SAMPLED, classes=2, seed=0).eval()
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    found = measure(model, data, coded_images=2, draws=3, seed=0)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert {type(one).__name__ for one in model.modules() if isinstance(one, sk.nn.SQUAF)} == {"SQUAFP"}
    assert found == measure(model, data, coded_images=2, draws=3, seed=0)
    assert set(found.accuracy) == {"soft", "sampled", "step"}
    assert found.rate == pytest.approx(sk.measure.rate(model, [data.ready(data.test_images)]).bits, abs=0.02)
    assert len(found.layers) == 3


def test_the_accuracy_of_a_network_that_draws_is_the_mean_over_its_draws():
    data, model = two_halves(64), build("vgg8", SAMPLED, classes=2, seed=1).eval()
    *_, head = (one for one in model.modules() if isinstance(one, torch.nn.Linear))
    with torch.no_grad():  # at the border of the two classes, where a draw decides
        head.bias -= model(data.ready(data.test_images)).mean(0)
    found = measure(model, data, coded_images=1, draws=16, seed=0)
    assert len(found.draws) == 16
    assert len(set(found.draws)) > 1
    assert found.accuracy["sampled"] == pytest.approx(sum(found.draws) / 16)
    once = measure(model, data, coded_images=1, draws=1, seed=0)
    assert once.draws == found.draws[:1]
    assert (once.accuracy["soft"], once.accuracy["step"]) == (found.accuracy["soft"], found.accuracy["step"])


def test_a_price_on_bits_lowers_them(record):
    free, priced = (row for row in record.rows if row["weight"] is not None)
    for name in ("rate", "huffman", "rans", "step_huffman"):
        assert max(priced["bits_by_seed"][name]) < min(free["bits_by_seed"][name]) - 0.2, name
    assert priced["bits"]["rate"].value < priced["bits"]["huffman"].value + 0.5
    assert free["accuracy"]["soft"].value > 80


def test_the_record_holds_every_seed_and_can_be_read(record):
    assert Record.from_json(record.to_json()) == record
    relu, free, _ = record.rows
    assert (relu["activation"], relu["weight"], relu["trained"]) == ("ReLU", None, 2_522)
    assert "bits" not in relu
    assert set(relu["accuracy"]) == {"soft"}
    assert free["trained"] == relu["trained"] + 35
    assert free["symbols"] == 4 * PLACES
    assert free["curve"]["epochs"] == (5, 8)
    assert len(free["accuracy_by_seed"]["step"]) == len(free["bits_by_seed"]["rans"]) == 2
    assert list(free["start"]) == list(free["learned"][0]) == ["2"]  # the first SQUAF alone is trained
    assert free["start"]["2"]["q"] == (0.125,)
    first = free["learned"][0]["2"]
    assert len(first["z"]) == 33
    assert first["q"][0] != pytest.approx(0.125, abs=1e-6)  # it was trained
    assert record.settings["bfloat16"] is False
    assert record.settings["data"] == "halves"


def test_table_and_figure(record, tmp_path):
    with pytest.raises(ParameterError, match="'softknee study rate', and this one is of 'bench'"):
        rates.rate_markdown(replace(record, kind="bench"))
    table = rates.rate_markdown(record).splitlines()
    assert len(table) == 2 + 3
    assert table[2].startswith("| ReLU |")
    assert table[2].endswith("| 32 | 32 | 32 | 32 |")
    assert all(line.count("|") == table[0].count("|") for line in table)
    assert rates.draw_rate(record, tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert "bits per activation" in rates.draw_rate(record, tmp_path / "curve.svg").read_text()
    assert draw_shapes(record, tmp_path / "shapes.png").stat().st_size > 1000
    with pytest.raises(ParameterError, match="no shape to draw"):
        draw_shapes(replace(record, rows=record.rows[:1]), tmp_path / "none.png")
    with pytest.raises(ParameterError, match=r"written as \.png or \.svg"):
        rates.draw_rate(record, tmp_path / "curve.jpg")
    with pytest.raises(ParameterError, match="softknee study rate"):
        rates.rate_figure(replace(record, kind="study language"))


def test_a_training_that_diverges_is_said():
    wild = replace(SMALL, weights=(0.0,), seeds=(0,), baselines=(), plan=Plan(epochs=2, batch=8, learning_rate=1e30))
    (row,) = rates.run(wild, command="softknee study rate", data=two_halves()).rows
    assert row["not_run"] == "every seed diverged"
    assert row["diverged"] == (0,)


def test_settings_that_cannot_be():
    assert rates.Settings().weights == tuple(one / 1000 for one in range(7))  # as the paper: 0, 0.001 ... 0.006
    for wrong, said in (
        ({"weights": (-1.0,)}, "at least 0"),
        ({"weights": (1.0, 1.0)}, "all different"),
        ({"network": "vgg1"}, "no network 'vgg1'"),
        ({"coded_images": 0}, "one image"),
        ({"draws": 0}, "one draw"),
    ):
        with pytest.raises(ParameterError, match=said):
            rates.Settings(**wrong)
    with pytest.raises(ParameterError, match="Did you mean 'gelu'"):
        rates.choose_baselines(["gel"])


def test_the_command_from_the_files_to_the_table(softknee, tmp_path, monkeypatch):
    publish_cifar(monkeypatch, "cifar-10", write_binary(tmp_path / "data", "cifar-10"))
    monkeypatch.setenv("SOFTKNEE_DATA", str(tmp_path / "data"))
    kept, drawn = str(tmp_path / "rate.json"), str(tmp_path / "rate.png")
    code, out, err = softknee("study", "rate", "--smoke", "--weights", "0.006", "--json", kept)
    assert code == 0, err
    found = json.loads((tmp_path / "rate.json").read_text())
    assert [row["weight"] for row in found["rows"]] == [None, 0.0, 0.006]
    assert found["settings"]["training_images"] == 4
    assert found["settings"]["smoke"] is True  # so that nothing is judged by it
    assert "its numbers mean nothing" in err
    code, again, err = softknee("study", "rate", "--from", kept, "--figure", drawn)
    assert (code, again) == (0, out), err
    assert (tmp_path / "rate.png").stat().st_size > 1000
    assert softknee("study", "rate", "--smoke", "--weights", "much")[0] != 0
