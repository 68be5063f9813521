"""What a measurement ran on and with: the hardware and the versions of the software.

Nothing here identifies a person or a place: no host name, no user name, no path.
"""

import functools
import importlib.metadata
import os
import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from ..version import VERSION

# Worth knowing beside torch when they are installed, because a result can depend on them.
_COMPANIONS = (
    "numpy",
    "scikit-learn",
    "sympy",
    "timm",
    "torchvision",
    "transformers",
    "onnx",
    "onnxruntime",
    "torch-pruning",
    "maraboupy",
)


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """The machine. `gpu` is None where no GPU was visible; `gpu_memory` is in GiB, for one GPU."""

    cpu: str
    cores: int
    gpu: str | None = None
    gpu_count: int = 0
    gpu_memory: float | None = None
    cuda: str | None = None
    driver: str | None = None

    @classmethod
    def here(cls) -> "Hardware":
        """The hardware of the machine that this runs on."""
        cpu, cores = _cpu_name(), _usable_cores()
        if not torch.cuda.is_available():
            return cls(cpu=cpu, cores=cores)
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        return cls(
            cpu=cpu,
            cores=cores,
            gpu=properties.name,
            gpu_count=torch.cuda.device_count(),
            gpu_memory=round(properties.total_memory / 2**30, 1),
            cuda=torch.version.cuda or torch.version.hip,
            driver=_nvidia_driver(),
        )

    def sentence(self) -> str:
        """One line for a table's caption."""
        parts = [f"{self.cpu} ({self.cores} cores)"]
        if self.gpu is not None:
            parts.append(f"{self.gpu_count} x {self.gpu} ({self.gpu_memory} GiB)")
        if self.cuda is not None:
            parts.append(f"CUDA {self.cuda}")
        if self.driver is not None:
            parts.append(f"driver {self.driver}")
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True)
class Versions:
    """The software. `triton` is None where it is not installed; `others` holds what else was there."""

    python: str
    torch: str
    softknee: str
    triton: str | None
    others: Mapping[str, str]

    @classmethod
    def here(cls) -> "Versions":
        """The versions of what is installed here."""
        companions = {name: _version(name) for name in _COMPANIONS}
        return cls(
            python=platform.python_version(),
            torch=torch.__version__,
            softknee=VERSION,
            triton=_version("triton"),
            others={name: version for name, version in companions.items() if version is not None},
        )

    def sentence(self) -> str:
        """One line for a table's caption."""
        named = {"Python": self.python, "torch": self.torch, "triton": self.triton, "softknee": self.softknee}
        return ", ".join(f"{name} {version}" for name, version in (named | dict(self.others)).items() if version)


@functools.cache
def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_name() -> str:
    """The processor's marketing name where the system tells it, else its architecture."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    named = re.search(r"^model name\s*:\s*(.+)$", text, flags=re.MULTILINE)
    return named.group(1).strip() if named else platform.processor() or platform.machine() or sys.platform


def _usable_cores() -> int:
    """The cores this process may run on, which a container often limits below what the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _nvidia_driver() -> str | None:
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    version = re.search(r"\b\d{3}\.\d+(?:\.\d+)?\b", text)
    return version.group(0) if version else None
