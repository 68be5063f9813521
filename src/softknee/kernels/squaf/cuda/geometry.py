"""What the CUDA kernels have in common: which tensors they take, and how many blocks, threads and bytes they need."""

from functools import cache

import torch
from torch import Tensor

from ..layout import Layout
from ..wanted import BY_ALPHA, BY_Q, BY_Z

VECTOR = 8  # elements per thread and step; as in the source
SHARED_BYTES = 48 * 1024 - 1  # what a block may have without asking the driver
KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


def fits(x: Tensor, *, points: int, layout: Layout) -> bool:
    """Whether x lies in memory as the source reads it, and the grid has a size that it was written for."""
    if x.device.type != "cuda" or x.dtype not in KINDS or x.data_ptr() % 16:
        return False
    whole_vectors = layout.groups == 1 or layout.shape[4] % VECTOR == 0
    small_enough = layout.groups <= 65535 and layout.per_group // VECTOR < 2**31 - 2**22
    return points >= 5 and backward_threads(points) > 0 and whole_vectors and small_enough


def summed(partial: Tensor, n: int, wanted: int) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of q, alpha and z from the sums of the blocks (groups, blocks, bins), in a fixed order."""
    sums = partial.sum(1)
    first = n if wanted & BY_Z else 0
    return (
        sums[:, first] if wanted & BY_Q else None,
        sums[:, first + 1] if wanted & BY_ALPHA else None,
        sums[:, :n] if first else None,
    )


def bins_of(n: int, wanted: int) -> int:
    """What a block of the backward kernel adds up: z at each point, then q and alpha, as far as they are wanted."""
    return (n if wanted & BY_Z else 0) + (2 if wanted & (BY_Q | BY_ALPHA) else 0)


def forward_bytes(n: int) -> int:
    """Shared memory of a forward block: its table of values."""
    return n * 256


def backward_bytes(n: int, threads: int, *, bins: int) -> int:
    """Shared memory of a backward block: the table of differences, and every thread's private bins."""
    return n * 128 + bins * threads * 4


def backward_threads(n: int) -> int:
    """Threads of a backward block: as many as have room for their private bins; 0 where too few have."""
    for threads in (256, 128, 64):
        if max(forward_bytes(n), backward_bytes(n, threads, bins=n + 2)) <= SHARED_BYTES:
            return threads
    return 0


def blocks(layout: Layout, *, threads: int, steps: int, most: int) -> int:
    """Blocks for one group, from its own elements alone: replicas then sum as they would on their own."""
    vectors = layout.per_group // VECTOR
    return max(1, min(most, -(-vectors // (threads * steps))))


def shape(layout: Layout) -> list[int]:
    """vectors and tail of one group, then the shape, as the kernels take them."""
    _, g1, middle, g2, inner = layout.shape
    if layout.groups == 1:
        return [layout.per_group // VECTOR, layout.per_group % VECTOR, 1, 1, 1, 1]
    return [layout.per_group // VECTOR, 0, g1, middle, g2, inner // VECTOR]


@cache
def processors(device: int) -> int:
    """How many multiprocessors the GPU has."""
    return torch.cuda.get_device_properties(device).multi_processor_count
