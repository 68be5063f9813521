"""torch.export and ONNX: an exported model computes what the module computes."""

import pytest
import torch
from torch import Tensor, nn

import softknee as sk
from helpers import SUBJECTS, ordinary_values

X = torch.linspace(-4.0, 4.0, 60).reshape(3, 4, 5)


# More than half of all operations: 48 Newton steps, and a table. They are exported alone, and not through ONNX.
LONG = ("crrelu_exact", "relu_bump")


class Everything(nn.Module):
    """Every activation on one input, with learned parameters: one export instead of sixty."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleDict(
            {n: sk.nn.make(act, learn=True, **ordinary_values(act)) for n, act in SUBJECTS.items() if n not in LONG}
        )

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(part(x) for part in self.parts.values())


def close(found: Tensor, expected: Tensor, name: str) -> None:
    torch.testing.assert_close(
        found, expected, rtol=1e-6, atol=1e-6, msg=lambda text: f"{name} changed in the export: {text}"
    )


# With fixed parameters one of each kind; every activation is exported below with learned ones, all in one.
@pytest.mark.slow
@pytest.mark.parametrize("name", ["relu", "gelu", "generalized_smelu", *LONG])
def test_an_exported_program_equals_eager(name: str):
    act = SUBJECTS[name]
    module = sk.nn.make(act, **ordinary_values(act))
    program = torch.export.export(module, (X,))
    close(program.module()(X), module(X), act.name)


@pytest.fixture(scope="module")
def exported() -> tuple[nn.Module, torch.export.ExportedProgram]:
    """The whole zoo with a free batch size."""
    whole = Everything()
    batch = torch.export.Dim("batch", min=1, max=64)
    return whole, torch.export.export(whole, (X,), dynamic_shapes={"x": {0: batch}})


@pytest.mark.slow
def test_an_export_with_a_free_batch_size(exported):
    whole, program = exported
    wide = torch.randn(7, 4, 5, generator=torch.Generator().manual_seed(0))
    for name, actual, expected in zip(whole.parts, program.module()(wide), whole(wide), strict=True):
        close(actual, expected, name)


def operations(program: torch.export.ExportedProgram) -> set[str]:
    return {str(node.target) for node in program.graph.nodes if node.op == "call_function"}


@pytest.mark.slow
def test_an_exported_program_holds_plain_operations_only(exported):
    """Nothing of ours is needed to run it elsewhere."""
    _, program = exported
    targets = operations(program)
    assert len(targets) > 10
    assert not [target for target in targets if "softknee" in target]


@pytest.mark.slow
def test_a_strict_export_keeps_the_gradient():
    """Of the input and of a learned parameter; torch makes of an autograd Function a part that has none."""
    module = sk.nn.make("srelu", learn=True, delta=0.7)
    program = torch.export.export(module, (X,), dynamic_shapes=({0: torch.export.Dim("batch", max=64)},), strict=True)
    assert not [target for target in operations(program) if "grad" in target or "softknee" in target]
    exported = program.module()
    actual, expected = ([X.clone().requires_grad_(), *value.parameters()] for value in (exported, module))
    for item, inputs in ((exported, actual), (module, expected)):
        item(inputs[0]).square().sum().backward()
    for name, ours, theirs in zip(("x", "delta"), actual, expected, strict=True):
        close(ours.grad, theirs.grad, f"the gradient by {name}")


def test_a_per_channel_module_is_exported_with_its_parameters():
    module = sk.nn.make("smelu", learn=True, per="channel", size=4)
    program = torch.export.export(module, (X,))
    assert "raw_beta" in program.state_dict
    close(program.module()(X), module(X), "smelu per channel")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_onnx_runs_the_whole_zoo(exported):
    """The exporters warn about their own parts; the numbers are what is tested here."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed.")
    pytest.importorskip("onnxscript", reason="onnxscript, which torch's exporter needs, is not installed.")
    whole, plain = exported
    # As it is translated: that an optimised one computes the same is asked of fewer functions (test_subjects.py).
    program = torch.onnx.export(plain, (X,), dynamo=True, verbose=False, optimize=False)
    assert program is not None
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])
    results = session.run(None, {session.get_inputs()[0].name: X.numpy()})
    for name, actual, expected in zip(whole.parts, results, whole(X), strict=True):
        close(torch.from_numpy(actual), expected, name)


# TorchScript is still asked for, here and there. Its tracer warns of every check of a shape.
@pytest.mark.filterwarnings(
    "ignore:`torch.jit:DeprecationWarning", "ignore:`torch.jit:FutureWarning", "ignore::torch.jit.TracerWarning"
)
def test_scripting_is_refused_with_the_two_ways_that_work():
    net = nn.Sequential(nn.Linear(5, 5), sk.nn.SQUAF(k=4, learn=True), sk.nn.SReLU())
    ways = r"torch\.export\.export\(model, \(x,\)\), or torch\.jit\.trace\(model, x\)"
    for module, name in ((net, "SQUAF"), (net[2], "SReLU"), (sk.nn.SQUAFS(k=4), "SQUAFS")):
        with pytest.raises(sk.InputError, match=rf"{name} cannot be scripted.*{ways}"):
            torch.jit.script(module)
    traced = torch.jit.trace(net, X, check_trace=False)
    close(traced(X[:1] * 0.5), net(X[:1] * 0.5), "a trace")
    torch.jit.script(traced)  # is TorchScript already
