"""Training steps of a language model; on a GPU recorded once as a CUDA graph, which spares the host every kernel call.

A small GPT-2 waits for the host longer than for the GPU. What a step reads and changes lies in tensors whose place
stays the same (weights, state of the optimiser, rates, the batch), so that a replay is the next step.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..errors import ParameterError
from ..surgery import param_groups
from ..train.capture import recording_stream

_WARM_UP = 3  # steps before a recording, in which kernels are compiled and libraries take their work space
_BETAS = (0.9, 0.99)
_CLIP = 1.0


class Source(Protocol):
    """Where batches come from."""

    text: Tensor

    def draw(self) -> Tensor: ...


class Steps:
    """AdamW steps of one model, with clipped gradients.

    Args:
        loss_of: a function of model and batch.
        recorded: as a CUDA graph; on a CPU it has no meaning.
        groups: what `param_groups` takes beside the model: lr, weight_decay, lr_scale.
    """

    def __init__(
        self,
        model: nn.Module,
        batches: Source,
        loss_of: Callable[[nn.Module, Tensor], Tensor],
        *,
        recorded: bool = True,
        **groups: Any,
    ) -> None:
        self.model, self.batches, self.loss_of = model, batches, loss_of
        self.device = batches.text.device
        cuda = self.device.type == "cuda"
        self.recorded = recorded and cuda
        self.optimizer = torch.optim.AdamW(
            param_groups(model, **groups), betas=_BETAS, fused=cuda, capturable=self.recorded
        )
        self.rates: list[float] = [group["lr"] for group in self.optimizer.param_groups]
        if self.recorded:
            for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
                group["lr"] = torch.tensor(rate, device=self.device)  # a number would be part of the recording
        self.pieces: Tensor | None = None
        self.graph: torch.cuda.CUDAGraph | None = None
        self.trained = -1
        self.before_recording = _WARM_UP

    def step(self, share: float = 1.0) -> None:
        """One step, at this share of the learning rates."""
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            if self.recorded:
                group["lr"].fill_(rate * share)
            else:
                group["lr"] = rate * share
        drawn = self.batches.draw()
        if not self.recorded:
            self._one(drawn)
            return
        self.pieces = drawn if self.pieces is None else self.pieces.copy_(drawn)
        trained = sum(one.requires_grad for one in self.model.parameters())
        if trained != self.trained:  # at the start, and where hardening freezes parameters: it is another step then
            self.trained, self.graph, self.before_recording = trained, None, _WARM_UP
        if self.graph is not None:
            self.graph.replay()
        elif self.before_recording:
            self.before_recording -= 1
            self._aside(self.pieces)
        else:
            self.graph = self._record(self.pieces)
            self.graph.replay()

    def finish(self) -> None:
        """Wait for the last step, and let go of the gradients, which lie in the recording's memory."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.model.zero_grad(set_to_none=True)
        self.graph = None

    def _one(self, pieces: Tensor) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.loss_of(self.model, pieces).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), _CLIP)
        self.optimizer.step()

    def _aside(self, pieces: Tensor) -> None:
        """A step on a stream of its own, as what is to be recorded must have run before."""
        side = torch.cuda.Stream(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side), warnings.catch_warnings():
            # torch's own remark that an optimiser which can be recorded is not being recorded yet.
            warnings.filterwarnings("ignore", message="This instance was constructed with capturable")
            self._one(pieces)
        torch.cuda.current_stream(self.device).wait_stream(side)

    def _record(self, pieces: Tensor) -> torch.cuda.CUDAGraph:
        self.optimizer.zero_grad(set_to_none=True)  # the gradients' places are to be the recording's own
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.device(self.device), torch.cuda.graph(graph, stream=recording_stream(self.device)):
                self._one(pieces)
        except RuntimeError as error:
            line = (str(error).strip().splitlines() or ["no message"])[0]
            raise ParameterError(
                f"The training step could not be recorded as a CUDA graph ({line}). Run it step by step: --eager."
            ) from error
        return graph
