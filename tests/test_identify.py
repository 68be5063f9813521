"""What a module computes is found out by computing it: classes of torch, timm, transformers and users, without harm."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import softknee as sk


def identity(module: nn.Module) -> str | None:
    """What `sites` says of a module that stands between two linear layers."""
    sites = sk.sites(nn.Sequential(nn.Linear(6, 6), module, nn.Linear(6, 6)))
    assert len(sites) <= 1
    return sites[0].function if sites else None


# -- modules of the libraries, by what they compute --------------------------------------------------------------------

TORCH: dict[str, tuple[nn.Module, str | None]] = {
    "CELU": (nn.CELU(2.0), "celu(beta=2)"),
    "ELU": (nn.ELU(), "elu"),
    "ELU 0.5": (nn.ELU(0.5), "elu(beta=0.5)"),
    "GELU": (nn.GELU(), "gelu"),
    "GELU tanh": (nn.GELU("tanh"), "gelu_tanh"),
    "GLU": (nn.GLU(), "GLU"),
    "Hardshrink": (nn.Hardshrink(), "hardshrink"),
    "Hardsigmoid": (nn.Hardsigmoid(), "hardsigmoid"),
    "Hardswish": (nn.Hardswish(), "hardswish"),
    "Hardtanh": (nn.Hardtanh(), "hardtanh"),
    "Hardtanh -2 3": (nn.Hardtanh(-2.0, 3.0), "clamp(low=-2, high=3)"),
    "Hardshrink 0.2": (nn.Hardshrink(0.2), "hardshrink(lam=0.2)"),
    "Softshrink 0.2": (nn.Softshrink(0.2), "softshrink(lam=0.2)"),
    "Hardtanh 0 6": (nn.Hardtanh(0.0, 6.0), "relu6"),
    "LeakyReLU": (nn.LeakyReLU(), "leaky_relu"),
    "LeakyReLU 0.2": (nn.LeakyReLU(0.2), "leaky_relu(slope=0.2)"),
    "LogSigmoid": (nn.LogSigmoid(), "logsigmoid"),
    "Mish": (nn.Mish(), "mish"),
    "PReLU": (nn.PReLU(), "prelu"),
    "PReLU 0.1": (nn.PReLU(init=0.1), "prelu(slope=0.1)"),
    "PReLU 6": (nn.PReLU(6, init=0.1), "prelu"),
    "RReLU": (nn.RReLU(), "rrelu"),
    "RReLU eval": (nn.RReLU(0.1, 0.3).eval(), "rrelu(lower=0.1, upper=0.3)"),
    "ReLU": (nn.ReLU(), "relu"),
    "ReLU in place": (nn.ReLU(inplace=True), "relu"),
    "ReLU6": (nn.ReLU6(), "relu6"),
    "SELU": (nn.SELU(), "selu"),
    "SiLU": (nn.SiLU(), "silu"),
    "Sigmoid": (nn.Sigmoid(), "sigmoid"),
    "Softplus": (nn.Softplus(), "softplus"),
    "Softplus 3": (nn.Softplus(beta=3.0), "softplus(beta=3)"),
    "Softshrink": (nn.Softshrink(), "softshrink"),
    "Softsign": (nn.Softsign(), "softsign"),
    "Tanh": (nn.Tanh(), "tanh"),
    "Tanhshrink": (nn.Tanhshrink(), "tanhshrink"),
    "Threshold": (nn.Threshold(0.1, 20.0), "threshold(theta=0.1, value=20)"),
    "Threshold 0": (nn.Threshold(0.0, 0.0), "relu"),
    "Softmax": (nn.Softmax(-1), None),
    "Softmax2d": (nn.Softmax2d(), None),
    "Softmin": (nn.Softmin(-1), None),
    "LogSoftmax": (nn.LogSoftmax(-1), None),
    "Dropout": (nn.Dropout(0.5), None),
    "AlphaDropout": (nn.AlphaDropout(0.5), None),
    "Identity": (nn.Identity(), None),
    "LayerNorm": (nn.LayerNorm(6), None),
    "Flatten": (nn.Flatten(), None),
}
TIMM = {
    "GELU": "gelu",
    "GELUTanh": "gelu_tanh",
    "HardMish": "hard_mish",
    "HardSigmoid": "hardsigmoid",
    "HardSwish": "hardswish",
    "Mish": "mish",
    "PReLU": "prelu",
    "QuickGELU": "swish(beta=1.702)",
    "Sigmoid": "sigmoid",
    "Swish": "silu",
    "Tanh": "tanh",
    "HardMishMe": "hard_mish",
    "HardSigmoidMe": "hardsigmoid",
    "HardSwishMe": "hardswish",
    "MishMe": "mish",
    "SwishMe": "silu",
}
TRANSFORMERS = {
    "gelu": "gelu",
    "gelu_10": "gelu_10",
    "gelu_fast": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "hardswish": "hardswish",
    "laplace": "laplace",
    "leaky_relu": "leaky_relu",
    "linear": None,
    "mish": "mish",
    "quick_gelu": "swish(beta=1.702)",
    "relu": "relu",
    "relu2": "relu2",
    "relu6": "relu6",
    "sigmoid": "sigmoid",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
    "prelu": "prelu",
    "xielu": "xielu(alpha_p=0.800396, alpha_n=0.800869)",  # its numbers are held in bfloat16
}


@pytest.mark.parametrize(("module", "wanted"), TORCH.values(), ids=TORCH)
def test_modules_of_torch(module: nn.Module, wanted: str | None) -> None:
    assert identity(module) == wanted


def test_no_activation_of_torch_is_missing_above() -> None:
    listed = {type(module).__name__ for module, _ in TORCH.values()} | {"MultiheadAttention"}
    assert set(torch.nn.modules.activation.__all__) <= listed


def test_modules_of_timm() -> None:
    homes = [
        pytest.importorskip(f"timm.layers.{name}", reason="timm is not installed; the extra 'vision' brings it")
        for name in ("activations", "activations_me")
    ]
    classes = {
        name: cls
        for home in homes
        for name, cls in vars(home).items()
        if isinstance(cls, type) and issubclass(cls, nn.Module) and cls.__module__ == home.__name__
    }
    assert {name: identity(cls()) for name, cls in classes.items()} == TIMM


def test_modules_of_transformers() -> None:
    result = pytest.importorskip("transformers", reason="transformers is not installed; the extra 'text' brings it")
    there = {name: identity(result.activations.ACT2FN[name]) for name in TRANSFORMERS}
    assert there == TRANSFORMERS


def test_own_modules_show_their_numbers() -> None:
    assert identity(sk.nn.SReLU()) == "srelu"
    assert identity(sk.nn.SReLU(delta=0.25, learn=True)) == "srelu(delta=0.25)"
    assert identity(sk.nn.SiLU()) == "silu"
    assert identity(sk.nn.Swish(beta=2.0)) == "swish(beta=2)"
    assert identity(sk.nn.SmeLU(beta=0.5, per="channel", size=6, dim=-1, learn=True)) == "smelu"
    assert identity(sk.nn.GELU(approximate="tanh")) == "gelu_tanh"
    assert identity(sk.nn.EntropicSpline("softplus")) == "entropic_spline"


# -- users' own classes ------------------------------------------------------------------------------------------------


class Quick(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


class Buffered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a_half", torch.tensor(0.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.a_half * x * (1 + torch.erf(x / math.sqrt(2.0)))


class Trained(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.beta = nn.Parameter(torch.tensor([0.5]))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.beta * x)


class Single(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.mish(x.float())


class Bent(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x) + 2 * x


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(3.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.gain * x + 1


class Noise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x) + torch.randn_like(x)


class Cumulative(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x).cumsum(-1)


class Renamed(nn.SiLU):
    pass


class StarReLU(nn.Module):
    """With numbers of its own and a part, as timm's MetaFormer has it."""

    def __init__(self) -> None:
        super().__init__()
        self.relu = nn.ReLU(inplace=True)
        self.scale, self.bias = nn.Parameter(torch.ones(1) * 2.0), nn.Parameter(torch.zeros(1) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * self.relu(x) ** 2 + self.bias


USERS = [
    (StarReLU(), "star_relu(scale=2, bias=0.5)"),
    (Quick(), "swish(beta=1.702)"),
    (Buffered(), "gelu"),
    (Trained(), "swish(beta=0.5)"),
    (Single(), "mish"),
    (Bent(), "Bent"),
    (Renamed(), "silu"),
    (Scale(), None),
    (Noise(), None),
    (Cumulative(), None),
]


@pytest.mark.parametrize(("module", "wanted"), USERS, ids=[type(item).__name__ for item, _ in USERS])
def test_classes_of_users(module: nn.Module, wanted: str | None) -> None:
    assert identity(module) == wanted


class Busy(nn.Module):
    """Counts, remembers, prints, draws random numbers, writes a file, and is an activation beside."""

    def __init__(self, path: Path | None = None) -> None:
        super().__init__()
        self.calls, self.log, self.path = 0, [], path
        self.register_buffer("steps", torch.zeros(1))
        self.kept = torch.zeros(1)
        self.first = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.log.append(x)
        self.steps += 1
        self.kept.add_(1)
        self.first.data.copy_(x.max())
        print("called", torch.rand(1))  # noqa: T201
        return F.relu(x)


class Writes(nn.Module):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def forward(self, x: Tensor) -> Tensor:
        torch.save(x, self.path)
        return F.relu(x)


def test_a_look_does_no_harm(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    busy, path = Busy(), tmp_path / "dump.pt"
    model = nn.Sequential(nn.Linear(6, 6), busy, Writes(path))
    busy.train()
    torch.manual_seed(1)
    sk.sites(model)
    after = torch.rand(3)
    torch.manual_seed(1)
    assert torch.equal(after, torch.rand(3))
    assert (busy.calls, busy.log, busy.steps.item(), busy.kept.item(), busy.first.item()) == (0, [], 0, 0, 0)
    assert capsys.readouterr().out == ""
    assert not path.exists()
    assert [site.path for site in sk.sites(model)] == ["1"]


def test_a_look_sends_no_message(tmp_path: Path) -> None:
    class Talks(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            sent.append(1)
            torch.distributed.all_reduce(x)
            arrived.append(1)
            return F.relu(x)

    sent: list[int] = []
    arrived: list[int] = []
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        assert identity(Talks()) is None
        assert sent
        assert not arrived
    finally:
        torch.distributed.destroy_process_group()


def test_a_warning_of_a_module_is_neither_shown_nor_in_the_way() -> None:
    class Warns(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            import warnings

            warnings.warn("old", DeprecationWarning, stacklevel=2)
            return F.relu(x)

    assert identity(Warns()) == "relu"
