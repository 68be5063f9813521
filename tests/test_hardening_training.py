"""Hardener in training: knobs frozen for every optimiser, copies that follow, accumulated, wrapped, compiled."""

import copy
import time

import pytest
import torch

import softknee as sk
from hardening_models import F32, Net, adam, data, srelu_net, train
from softknee.errors import ParameterError

# -- freezing ---------------------------------------------------------------------------------------------

OPTIMISERS = {
    "sgd": lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "adam": lambda groups: torch.optim.Adam(groups, lr=0.1, weight_decay=0.1),
    "adamw foreach": lambda groups: torch.optim.AdamW(groups, lr=0.1, weight_decay=0.1, foreach=True),
    "adamw fused": lambda groups: torch.optim.AdamW(groups, lr=0.1, weight_decay=0.1, fused=True),
    "rmsprop": lambda groups: torch.optim.RMSprop(groups, lr=0.1, momentum=0.9, weight_decay=0.1),
}


@pytest.mark.parametrize("optimiser", OPTIMISERS.values(), ids=OPTIMISERS)
@pytest.mark.parametrize("keep_zeros", [False, True], ids=["none", "zeros"])
def test_no_optimiser_moves_a_frozen_knob(optimiser, keep_zeros: bool):
    """Momentum and decay act on a gradient of zeros too; plain parameters() has decay on the knob."""
    net = srelu_net()
    groups = [{"params": [*net.parameters()]}]
    optimizer = optimiser(groups)
    x, y = data()

    def closure() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=not keep_zeros)
        loss = (net(x) - y).square().mean()
        loss.backward()
        return loss

    hardener = sk.Hardener(net, total=4, start=0.5)
    for e in range(1, 3):
        hardener.step(e)
        raw = net.acts[0].raw_delta.detach().clone()
        optimizer.step(closure)
        assert not torch.equal(net.acts[0].raw_delta, raw)
    for e in range(3, 5):
        hardener.step(e)
        weight = net.layers[0].weight.detach().clone()
        before = [act.delta.clone() for act in net.acts]
        for _ in range(3):
            optimizer.step(closure)
        assert all(torch.equal(act.delta, item) for act, item in zip(net.acts, before, strict=True))
        assert not torch.equal(net.layers[0].weight, weight)
    assert net.acts[0].delta.item() == pytest.approx(16 * 5e-3 / 3, rel=4 * F32)


def test_a_method_with_a_memory_is_made_anew_for_the_frozen_knobs():
    """L-BFGS mixes all directions it remembers; one that never saw a knob move does not move it."""
    net = srelu_net()
    hardener = sk.Hardener(net, total=2, start=1)
    hardener.step(1), hardener.step(2)
    before = net.acts[0].delta.clone()
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=5)
    x, y = data()

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        return loss

    first, last = [optimizer.step(closure).item() for _ in range(4)][::3]
    assert last < first
    assert torch.equal(net.acts[0].delta, before)


def test_groups_and_paired_optimisers_go_on():
    net = srelu_net()
    optimizer = sk.optimizers(
        net,
        weights=lambda groups: torch.optim.SGD(groups, lr=0.01, momentum=0.9),
        activations=lambda groups: torch.optim.Adam(groups, lr=0.01),
    )
    hardener = sk.Hardener(net, total=4)
    for e in range(1, 5):
        hardener.step(e)
        train(net, optimizer)
    assert net.acts[0].delta.item() == pytest.approx(16 * 5e-3 / 3, rel=4 * F32)
    assert [group["name"] for group in sk.param_groups(net, lr=0.1)] == ["weights", "no_decay"]
    restored = sk.optimizers(
        srelu_net(),
        weights=lambda groups: torch.optim.SGD(groups, lr=0.01, momentum=0.9),
        activations=lambda groups: torch.optim.Adam(groups, lr=0.01),
    )
    restored.load_state_dict(optimizer.state_dict())


def test_other_parameters_go_on_being_learned():
    net = Net(lambda i: sk.nn.make("leaky_smelu", beta=1.0, learn=True))
    optimizer = adam(net)
    hardener = sk.Hardener(net, total=2, start=1)
    hardener.step(1), hardener.step(2)
    leak = net.acts[0].g_minus.detach().clone()
    train(net, optimizer)
    assert not torch.equal(net.acts[0].g_minus, leak)
    assert not net.acts[0].raw_beta.requires_grad


# -- copies, accumulation, wrappers -----------------------------------------------------------------------


@pytest.mark.parametrize("use_buffers", [False, True])
def test_an_averaged_copy_follows(use_buffers: bool):
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    net = srelu_net()
    average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=use_buffers)
    forgotten = copy.deepcopy(average)
    optimizer = adam(net)
    hardener = sk.Hardener(net, total=6, start=0.5, copies=[average])
    for e in range(1, 7):
        hardener.step(e)
        for _ in range(3):
            train(net, optimizer)
            average.update_parameters(net)
            forgotten.update_parameters(net)
        if e == 3:
            learned = [act.delta.item() for act in average.module.acts]
        if e > 3:  # also after the updates that follow the step
            for act, item in zip(net.acts, average.module.acts, strict=True):
                assert torch.equal(act.delta, item.delta)
    assert learned != [act.delta.item() for act in net.acts]
    assert abs(forgotten.module.acts[0].delta.item() / net.acts[0].delta.item() - 1) > 0.05
    hardener.sync_(forgotten)
    assert torch.equal(forgotten.module.acts[0].delta, net.acts[0].delta)


def test_a_copy_of_something_else_is_refused():
    hardener = sk.Hardener(Net(), total=4)
    with pytest.raises(ParameterError, match=r"has nothing where the model has LambdaGELU, at 'acts.1'"):
        hardener.sync_(Net(depth=1))
    with pytest.raises(ParameterError, match="has SReLU"):
        sk.Hardener(Net(), total=4, copies=[srelu_net()])
    with pytest.raises(ParameterError, match=r"other knobs than the model at 'acts.0'"):
        hardener.sync_(Net(lambda i: sk.nn.LambdaGELU(lam=1.5)))


@pytest.mark.filterwarnings("ignore:Hardener. 1 of 2 activations:UserWarning")  # the first is hard already
def test_a_copy_of_a_knob_that_stays_is_not_left_behind():
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    net = Net(lambda i: sk.nn.SReLU(delta=(0.02, 1.0)[i], learn=True))
    average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    optimizer = adam(net)
    hardener = sk.Hardener(net, total=4, start=0.5, copies=[average])
    for e in range(1, 5):
        hardener.step(e)
        train(net, optimizer)
        average.update_parameters(net)
    assert hardener.stays == ("acts.0",)
    assert net.acts[0].raw_delta.item() != 0
    assert torch.equal(average.module.acts[0].delta, net.acts[0].delta)


def test_attached_it_counts_steps_of_the_optimiser_and_not_batches():
    net = srelu_net()
    optimizer = adam(net)
    hardener = sk.Hardener(net, total=8, start=0.25)
    handle = hardener.attach(optimizer)
    positions = []
    for batch in range(24):  # three are accumulated into one step
        x, y = data(batch)
        ((net(x) - y).square().mean() / 3).backward()
        positions.append(hardener.position)
        if batch % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()
    assert positions == [n for n in range(1, 9) for _ in range(3)]
    assert hardener.position == 8
    assert hardener.progress == 1
    handle.remove()
    assert net.acts[0].delta.item() == pytest.approx(16 * 5e-3 / 3, rel=4 * F32)


def prepared():
    """An Accelerator of two batches to a step, what it made of a model and its optimiser, and a Hardener of that."""
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(True)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    net = srelu_net()
    wrapped, optimizer = accelerator.prepare(net, adam(net))
    return accelerator, wrapped, optimizer, sk.Hardener(wrapped, total=6, start=0.5)


@pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning")  # there is no accelerator to pin memory for
def test_accelerate(tmp_path):
    def parts():
        result = prepared()
        result[0].register_for_checkpointing(result[3])
        return result

    def train_batches(parts, batches) -> None:
        accelerator, net, optimizer, hardener = parts
        for batch in batches:
            with accelerator.accumulate(net):
                x, y = data(batch)
                accelerator.backward((net(x) - y).square().mean())
                optimizer.step()
                optimizer.zero_grad()
                if accelerator.sync_gradients:
                    hardener.step()

    whole = parts()
    train_batches(whole, range(12))
    assert whole[3].position == 6
    assert whole[1].acts[0].delta.item() == pytest.approx(16 * 5e-3 / 3, rel=4 * F32)

    first = parts()
    train_batches(first, range(8))
    first[0].save_state(str(tmp_path))
    second = parts()
    second[0].load_state(str(tmp_path))
    assert second[3].position == 4
    train_batches(second, range(8, 12))
    states = (item[1].state_dict().values() for item in (whole, second))
    assert all(torch.equal(a, b) for a, b in zip(*states, strict=True))


def test_attached_to_an_optimiser_that_accelerate_has_prepared():
    accelerator, wrapped, optimizer, hardener = prepared()
    hardener.attach(optimizer)
    positions = []
    for batch in range(8):
        with accelerator.accumulate(wrapped):
            x, y = data(batch)
            accelerator.backward((wrapped(x) - y).square().mean())
            positions.append(hardener.position)
            optimizer.step()
            optimizer.zero_grad()
    assert positions == [1, 1, 2, 2, 3, 3, 4, 4]
    with pytest.raises(ParameterError, match="takes a torch optimiser, and int was given"):
        sk.Hardener(srelu_net(), total=6).attach(3)


@pytest.mark.slow
def test_names_do_not_depend_on_the_wrapper():
    from torch.nn.parallel import DataParallel

    net = Net()
    for wrapped in (torch.compile(net, backend="eager"), DataParallel(net), DataParallel(torch.compile(Net()))):
        hardener = sk.Hardener(wrapped, total=8)
        assert [site.path for site in hardener.sites] == ["acts.0", "acts.1"]
        plain = sk.Hardener(Net(), total=8)
        plain.load_state_dict(hardener.state_dict())
    inside = Net()
    inside.acts[0] = torch.compile(inside.acts[0], backend="eager")
    assert [site.path for site in sk.Hardener(inside, total=8).sites] == ["acts.0", "acts.1"]


@pytest.mark.slow
def test_a_compiled_model_sees_every_step_and_compiles_once_for_the_freeze():
    from torch._dynamo.testing import CompileCounter

    net = srelu_net()
    counter = CompileCounter()
    fast = torch.compile(net, backend=counter, fullgraph=True)
    hardener = sk.Hardener(fast, total=12, start=2)
    x, _ = data()
    counts = []
    for e in range(1, 13):
        hardener.step(e)
        assert torch.allclose(fast(x), net(x), atol=1e-6)
        counts.append(counter.frame_count)
    # Once at first, and once more because the knobs need no gradient any longer.
    # 2.11's compiler does not look at requires_grad again.
    again = 2 if torch.__version__ >= (2, 12) else 1
    assert counts == [1, 1, *[again] * 10]


def test_data_parallel_processes_that_wait_for_every_gradient_are_refused(tmp_path):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        harden_in_parallel()
        # torch may never end where its own thread still holds the last tensor that was sent as the group goes.
        dist.barrier()
        time.sleep(0.2)
    finally:
        dist.destroy_process_group()


def harden_in_parallel() -> None:
    """What is wrapped goes before the process group does."""
    from torch.nn.parallel import DistributedDataParallel

    net = srelu_net()
    with pytest.raises(ParameterError, match=r"'acts.0'.*find_unused_parameters=True"):
        sk.Hardener(DistributedDataParallel(net), total=4)
    fixed = Net(lambda i: sk.nn.SReLU(delta=1.0))
    sk.Hardener(DistributedDataParallel(fixed), total=4)  # nothing of it is trained
    wrapped = DistributedDataParallel(net, find_unused_parameters=True)
    hardener = sk.Hardener(wrapped, total=4)
    optimizer = adam(wrapped)
    for e in range(1, 5):
        hardener.step(e)
        train(wrapped, optimizer)
        train(wrapped, optimizer)
    assert net.acts[0].delta.item() == pytest.approx(16 * 5e-3 / 3, rel=4 * F32)
    assert list(hardener.state_dict()["sites"]) == ["acts.0", "acts.1"]


# Two processes that harden together: test_surgery_distributed.py, beside the others that need two.
