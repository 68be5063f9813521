r"""`Boundary`: a cut through a model between two processes, which sends symbols forward and gradients back.

    one process        x -> layer -> a -> head -> loss
    rank 0             x -> layer.with_symbols -> symbols s_i  --- coded --->  rank 1:  a = z[s] -> head -> loss
                       d loss/d (x, z, q, alpha)  <-- SQUAF's backward --  d loss/d a  <--- float32 or bf16 ---

The values z of the symbols are trained at rank 0, so they are sent along whenever they changed: 132 bytes for 33
points, counted as `tables`. Rank 1 needs no layer. The sampling of SQUAF-P happens at rank 0 with one number from
torch's generator for each call, as in one process.

Reference: Soft quantization activation functions, section 3.3 (SQUAF-P's activations as symbols) and equation 10.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..errors import InputError, ParameterError, WireError, did_you_mean, require_count
from . import packed
from .channel import CHECK_BYTES, DEPTH, HEADER_BYTES, Channel, Frame, body_of, broadcasts, bytes_of, open_body
from .coding import MOST_SYMBOLS, counts_of, decode, encode, entropy_of
from .message import read_message

if TYPE_CHECKING:
    from ..nn.squaf import Chosen

CODERS = ("auto", "rans", "huffman", "packed", None)
_MOST_PENDING = 2**16  # gradients; older ones belong to steps whose backward pass was left out long ago
_NO_GRAD = (
    "If it received them under torch.no_grad() or never called backward, there is no gradient to send: put both ends "
    "under torch.no_grad(), or neither."
)


@dataclass(frozen=True)
class Traffic:
    """Bytes sent and received since the boundary was made (or since `reset`), and their size without coding.

    messages:    number of messages with activations; `activations`, the number of activations in them.
    payload:     bytes of the coded symbols and of their frequencies.
    tables:      bytes of the values z of the symbols, which are sent when they changed.
    headers:     bytes of headers and checksums.
    gradients:   bytes of the gradients in `gradient_messages` messages, with `gradient_headers` bytes of headers.
    entropy:     entropy in bits per activation, the lower bound of a coder of single symbols (None: not measured).
    """

    messages: int = 0
    activations: int = 0
    payload: int = 0
    tables: int = 0
    headers: int = 0
    gradient_messages: int = 0
    gradients: int = 0
    gradient_headers: int = 0
    entropy: float | None = None

    @property
    def forward(self) -> int:
        """All bytes of the activations."""
        return self.payload + self.tables + self.headers

    @property
    def backward(self) -> int:
        """All bytes of the gradients."""
        return self.gradients + self.gradient_headers

    @property
    def bits(self) -> float:
        """Bits per activation, with tables and headers."""
        return 8 * self.forward / self.activations if self.activations else 0.0

    @property
    def float32(self) -> int:
        """Bytes of the same activations as float32."""
        return 4 * self.activations

    @property
    def bfloat16(self) -> int:
        """The bytes that the same activations take as bfloat16."""
        return 2 * self.activations

    @property
    def reduction(self) -> float:
        """How many times smaller than float32; half of it against bfloat16."""
        return self.float32 / self.forward if self.forward else 1.0

    def __str__(self) -> str:
        """
        >>> print(Traffic(messages=2, activations=1000, payload=600, tables=132, headers=208, entropy=4.5))
        2 messages of 1,000 activations in all: 940 bytes (600 symbols, 132 tables, 208 headers), 7.52 bits each
        (entropy 4.50); 4.3 times less than float32 (4,000), 2.1 than bfloat16 (2,000); gradients: 0 bytes in 0 messages
        """
        bound = "" if self.entropy is None else f" (entropy {self.entropy:.2f})"
        return (
            f"{self.messages:,} messages of {self.activations:,} activations in all: {self.forward:,} bytes "
            f"({self.payload:,} symbols, {self.tables:,} tables, {self.headers:,} headers), {self.bits:.2f} bits each"
            f"{bound}; {self.reduction:.1f} times less than float32 ({self.float32:,}), {self.reduction / 2:.1f} than "
            f"bfloat16 ({self.bfloat16:,}); gradients: {self.backward:,} bytes in {self.gradient_messages:,} messages"
        )


class Boundary(nn.Module):
    r"""One end of a cut between two processes of torch.distributed.

    Where the model begins (the sending end), in place of its SQUAF-P or SQUAF-S layer:

        boundary = sk.wire.Boundary(layer, to=1)
        loss = boundary(body(images))          # sends symbols; a number to differentiate, whose value is 0
        (loss + penalty()).backward()          # waits for the gradient, and goes on through layer and body

    Where it goes on (the receiving end):

        boundary = sk.wire.Boundary(frm=0)
        activations = boundary.receive()       # as the layer would have given them
        task_loss(head(activations), labels).backward()    # sends their gradient back by itself

    Args of the sending end:
        layer: `sk.nn.SQUAFP` or `sk.nn.SQUAFS`, which becomes a submodule.
        to: the rank of the other end.
        coder: "auto", "rans" or "huffman" (on the host, the fewest bits), "packed" (fixed length, on the device of
            the input), or None: the activations as they are, to compare with.
        gradients: the type in which gradients are sent back, float32 or bfloat16.
        entropy: whether the entropy of the symbols is measured for `report`, one more pass over them.
    Args of the receiving end:
        frm: the rank of the other end.
        device: where activations are wanted; left out, the current GPU with NCCL, else the CPU.
        most: the most activations that a message may have, and the most numbers in the table that comes with it. What
            announces more is refused before memory is taken for it.
    Both:
        timeout: seconds that an end waits for the other before it raises `PeerError`, which names the rank.
        group: the process group that ranks are counted in. The two ends make a connection of their own, in the same
            order if there are several boundaries between them.

    As modules both ends fit into `torch.distributed.pipelining` (see docs/wire.md): the sending end gives the schedule
    one number to carry, and the receiving end, called with it, waits for the activations that belong to it.

    A gradient is what the receiving end sent, as it is: a factor on the number that the sending end gives is ignored
    (a loss scale, for one, belongs into the loss at the receiving end alone).
    """

    def __init__(
        self,
        layer: Chosen | None = None,
        *,
        to: int | None = None,
        frm: int | None = None,
        coder: str | None = "auto",
        gradients: torch.dtype = torch.float32,
        entropy: bool = True,
        device: torch.device | str | None = None,
        most: int = MOST_SYMBOLS,
        timeout: float = 60.0,
        group: Any = None,
    ) -> None:
        super().__init__()
        if (to is None) == (frm is None) or (layer is None) == (frm is None):
            raise ParameterError(
                "Boundary: the sending end is Boundary(layer, to=rank), the receiving end is Boundary(frm=rank)."
            )
        if layer is not None and not _has_symbols(layer):
            raise ParameterError(
                f"Boundary: only SQUAFP and SQUAFS have symbols to send, and {type(layer).__name__} was given. "
                "layer.as_sampled() makes a SQUAFP of a SQUAF."
            )
        if coder not in CODERS:
            named = [name for name in CODERS if name]
            raise ParameterError(
                f"There is no coder {coder!r}.{did_you_mean(coder, named)} There are {', '.join(named)} and None."
            )
        if gradients not in (torch.float32, torch.bfloat16):
            raise ParameterError(f"Boundary: gradients are sent as float32 or bfloat16, and {gradients} was given.")
        require_count("Boundary", "most", most, least=0)
        self.layer, self.coder, self.gradients, self.entropy = layer, coder, gradients, entropy
        peer: Any = frm if to is None else to
        self._channel = Channel(peer, sends=to is not None, group=group, timeout=timeout, most=most)
        self.device = torch.device(device) if device is not None else self._channel.device
        self._table: Tensor | None = None  # the last one that was sent, or received
        # Communication is not part of a compiled graph, which breaks here. Not at the top of the file, because it
        # imports the compiler, which coding symbols does not need.
        self._uncompiled: Any = torch.compiler.disable(_run)
        self._next_number = 0
        self._gradient_buffer: dict[int, Tensor] = {}
        self._pending: dict[int, tuple[int, ...]] = {}  # shapes of the activations whose gradient has not come
        self.reset()

    # -- both ends --------------------------------------------------------------------------------------

    def forward(self, input: Tensor) -> Tensor:
        """The sending end: send what the layer makes of this input. The receiving end: `receive`."""
        return self.receive(input) if self.layer is None else self._uncompiled(self._send, self.layer, input)

    def report(self) -> Traffic:
        """Bytes so far, against float32 and bfloat16."""
        measured = self._entropy_bits is not None and self._totals["activations"]
        return Traffic(**self._totals, entropy=self._entropy_bits / self._totals["activations"] if measured else None)  # pyright: ignore

    def reset(self) -> None:
        """Count from here on."""
        self._totals = {field.name: 0 for field in fields(Traffic) if field.name != "entropy"}
        self._entropy_bits: float | None = 0.0 if self.layer is not None and self.entropy and self.coder else None

    @staticmethod
    def ticket() -> Tensor:
        """What a stage that ends in a boundary gives to the next, for the example shapes of a pipeline's stages."""
        return torch.zeros(1, requires_grad=True)

    def close(self) -> None:
        """Wait until the other end has taken everything, and give back what the boundary held."""
        self._channel.close()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise ParameterError(
            "A Boundary is one end of a connection, which can be neither copied nor stored. Copy or store the modules "
            "before it, or its state_dict()."
        )

    def extra_repr(self) -> str:
        way = "frm" if self.layer is None else "to"
        return f"{way}={self._channel.peer}" + ("" if self.layer is None else f", coder={self.coder!r}")

    # -- the sending end --------------------------------------------------------------------------------

    def _send(self, layer: Chosen, x: Tensor) -> Tensor:
        kind, new_table = "plain", None
        if self.coder is None:
            values = layer(x)
            payload = bytes_of(values)
        else:
            values, symbols = _call_layer(layer, x)
            kind = "packed" if self.coder == "packed" else "coded"
            payload = self._payload(symbols, layer.points)
            z = layer.granularity.shaped(layer.z, x, layer.title, tail=1).detach()
            if self._table is None or self._table.shape != z.shape or not torch.equal(self._table, z):
                new_table = self._table = z.clone()
            if self._entropy_bits is not None:
                self._entropy_bits += entropy_of(counts_of(symbols, layer.points)) * x.numel()
        body = body_of(*([] if new_table is None else [bytes_of(new_table)]), payload, device=self._channel.device)
        gradient = self.gradients if values.requires_grad else None
        frame = Frame(kind, self._next_number, values.dtype, tuple(values.shape), len(body), gradient)
        if new_table is not None:
            frame = replace(frame, table_dtype=new_table.dtype, table_shape=tuple(new_table.shape))
        self._next_number += 1
        self._channel.send(frame, body)
        self._count(frame)
        if gradient is None:
            return torch.zeros(1, device=x.device)
        self._channel.most = max(self._channel.most, frame.count)  # as many may come back
        self._pending[frame.number] = frame.shape
        while len(self._pending) > _MOST_PENDING:
            self._pending.pop(next(iter(self._pending)))
        return _Sent.apply(values, self, frame.number)  # pyright: ignore

    def _payload(self, symbols: Tensor, levels: int) -> Tensor:
        try:
            if self.coder == "packed":
                return packed.pack_checked(symbols, levels)
            # One byte for each on the way to the host; -1, for NaN, becomes 255, which is then no symbol either.
            small = symbols.to(torch.uint8) if levels < 256 else symbols
            return packed.from_bytes(encode(small, levels=levels, coder=self.coder or "auto"), "cpu")
        except ParameterError:
            if not bool((symbols < 0).any()):
                raise
        raise InputError(
            f"Boundary: {int((symbols < 0).sum()):,} of {symbols.numel():,} pre-activations are NaN, which has no "
            "symbol. Training has diverged before the cut: look at the loss, and at the learning rate."
        )

    def _wait_for_gradient(self, number: int) -> Tensor:
        """The gradient of message `number`; those of others that come before it are kept for their own time."""
        while number not in self._gradient_buffer:
            what = "the gradient of the activations"
            frame, body = self._channel.receive(what, require=self._check_gradient_frame, hint=_NO_GRAD)
            del self._pending[frame.number]
            self._gradient_buffer[frame.number] = open_body(frame, body)[1].view(frame.dtype).reshape(frame.shape)
            self._count(frame)
            while len(self._gradient_buffer) > DEPTH:  # of messages whose backward nobody runs here
                self._gradient_buffer.pop(next(iter(self._gradient_buffer)))
        return self._gradient_buffer.pop(number)

    def _check_gradient_frame(self, frame: Frame) -> None:
        peer, shape = self._channel.peer, self._pending.get(frame.number)
        if frame.kind != "gradient":
            raise WireError(f"Rank {peer} sent {frame.kind} activations in place of a gradient.")
        if shape is None:
            raise WireError(f"Rank {peer} sent a gradient of message {frame.number}, of which none is awaited.")
        if frame.shape != shape or frame.dtype != self.gradients:
            raise WireError(
                f"Rank {peer} announces a gradient of {frame.dtype} and shape {frame.shape} for activations of shape "
                f"{shape}, whose gradient is awaited as {self.gradients}."
            )

    # -- the receiving end ------------------------------------------------------------------------------

    def receive(self, ticket: Tensor | None = None) -> Tensor:
        """The next activations; in their backward pass the gradient is sent to where they came from.

        `ticket` is the number that the sending end gave to a pipeline's schedule, which brought it here; else leave it
        out.
        """
        if self.layer is not None:
            raise ParameterError("Boundary: this is the sending end; call it with the pre-activations.")
        return self._uncompiled(self._receive_activations, ticket)

    def _receive_activations(self, ticket: Tensor | None) -> Tensor:
        frame, body = self._channel.receive("activations", require=self._check_activation_frame)
        table, payload = open_body(frame, body)
        self._count(frame)
        if frame.kind == "plain":
            activations = payload.view(frame.dtype).reshape(frame.shape).to(self.device)
        else:
            if frame.table_shape:
                self._table = table.view(frame.table_dtype).reshape(frame.table_shape).to(self.device)
            assert self._table is not None  # its header would have been refused
            activations = _look_up(self._table, self._symbols(frame, payload), frame.dtype)
        if frame.gradient is None or not torch.is_grad_enabled():
            return activations
        if ticket is None or not ticket.requires_grad:
            ticket = torch.zeros(1, device=self.device, requires_grad=True)
        return _Received.apply(ticket, [activations], self, frame)  # pyright: ignore

    def _check_activation_frame(self, frame: Frame) -> None:
        peer = self._channel.peer
        if frame.kind == "gradient":
            raise WireError(f"Rank {peer} sent a gradient in place of activations.")
        if frame.kind != "plain" and not frame.table_shape and self._table is None:
            raise WireError(f"Rank {peer} sent symbols, and never the table of their values.")

    def _symbols(self, frame: Frame, payload: Tensor) -> Tensor:
        assert self._table is not None
        levels = self._table.shape[-1]
        if frame.kind == "packed":
            if 8 * len(payload) != packed.bits_of(frame.count, levels):
                raise WireError(f"The message is damaged: it does not hold {frame.count:,} symbols of {levels} levels.")
            return packed.unpack(payload.to(self.device), frame.count, levels, torch.int32).reshape(frame.shape)
        data = packed.to_bytes(payload)
        message = read_message(data, most=frame.count)
        if message.shape != frame.shape or message.levels != levels:
            raise WireError("The message is damaged: its header and its symbols tell of different tensors.")
        return decode(data, device=self.device, most=frame.count)

    def _send_gradient(self, frame: Frame, gradient: Tensor) -> None:
        assert frame.gradient is not None
        body = body_of(bytes_of(gradient.to(frame.gradient)), device=self._channel.device)
        answer = Frame("gradient", frame.number, frame.gradient, frame.shape, len(body))
        self._channel.send(answer, body)
        self._count(answer)

    def _count(self, frame: Frame) -> None:
        totals, header = self._totals, HEADER_BYTES + CHECK_BYTES
        if frame.kind == "gradient":
            totals["gradient_messages"] += 1
            totals["gradients"] += frame.body - CHECK_BYTES
            totals["gradient_headers"] += header
        else:
            totals["messages"] += 1
            totals["activations"] += frame.count
            totals["tables"] += frame.table_bytes
            totals["payload"] += frame.body - frame.table_bytes - CHECK_BYTES
            totals["headers"] += header


def _run(method: Any, *args: Any) -> Tensor:
    return method(*args)


def _has_symbols(layer: object) -> bool:
    # Not at the top: the receiving end has no layer, and coding symbols needs no modules.
    from ..nn.squaf import Chosen

    return isinstance(layer, Chosen)


def _call_layer(layer: Chosen, x: Tensor) -> tuple[Tensor, Tensor]:
    """Values and symbols of one call of the layer as a module, so that its hooks (a RatePenalty's, say) see it."""
    captured: list[Tensor] = []

    def forward(input: Tensor) -> Tensor:
        values, symbols = layer.with_symbols(input)
        captured.append(symbols)
        return values

    vars(layer)["forward"] = forward
    try:
        values = layer(x)
        return values, captured[0]
    finally:
        del vars(layer)["forward"]


def _look_up(table: Tensor, symbols: Tensor, dtype: torch.dtype) -> Tensor:
    """z at the symbols; z has the shape of the layer's parameters, which broadcasts against them, and (points,)."""
    points, batch_shape = table.shape[-1], table.shape[:-1]
    index = symbols.to(torch.int64)
    if batch_shape.numel() > 1:
        if not broadcasts(batch_shape, symbols.shape):
            raise WireError(f"The message is damaged: a table of shape {tuple(table.shape)} is none of its symbols.")
        index = index + points * torch.arange(batch_shape.numel(), device=symbols.device).reshape(batch_shape)
    return table.reshape(-1).index_select(0, index.reshape(-1)).reshape(symbols.shape).to(dtype)


class _Sent(torch.autograd.Function):
    """The number at the sending end: 0 forward, and backward the gradient that the other end sends."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, boundary: Boundary, number: int) -> Tensor:
        ctx.boundary, ctx.number, ctx.like = boundary, number, (values.dtype, values.device)
        return values.new_zeros(1)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        if ctx.number is None:
            raise ParameterError(
                "Boundary: the gradient of these activations was asked for a second time, and the other end sends it "
                "once."
            )
        (dtype, device), number, ctx.number = ctx.like, ctx.number, None
        return ctx.boundary._wait_for_gradient(number).to(device=device, dtype=dtype), None, None


class _Received(torch.autograd.Function):
    """The activations at the receiving end; backward their gradient is sent, and the ticket gets 0."""

    @staticmethod
    def forward(ctx: Any, ticket: Tensor, activations: list[Tensor], boundary: Boundary, frame: Frame) -> Tensor:
        ctx.boundary, ctx.frame, ctx.ticket = boundary, frame, (ticket.shape, ticket.dtype, ticket.device)
        return activations[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        ctx.boundary._send_gradient(ctx.frame, gradients[0])
        shape, dtype, device = ctx.ticket
        return torch.zeros(shape, dtype=dtype, device=device), None, None, None
