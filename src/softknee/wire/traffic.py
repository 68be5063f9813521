"""How many bytes went over a boundary, and what the same activations would have taken without coding."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Traffic:
    """Bytes since the boundary was made (or since `reset`), counted where they are given to torch.distributed.

    messages:    how many times activations were sent; `activations`, how many numbers they were.
    payload:     the coded symbols, with the frequencies that their coder sends along.
    tables:      values z of the symbols, sent when they changed.
    headers:     what says how to read them, and checksums.
    gradients:   the other way, with `gradient_headers`; `gradient_messages`, how many.
    entropy:     bits per activation that no coder of single symbols can go below (None: not measured).
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
