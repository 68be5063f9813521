"""What differs between the versions of torch that softknee supports, 2.6 and later, in one place."""

from __future__ import annotations

import sys

import torch

VERSION = tuple(int(part) for part in str(torch.__version__).split("+")[0].split(".")[:2])

# To split a graph into forward and backward, the compiler looks for the first operation that it cannot fuse. Before
# 2.7 it goes there along every path and not to every operation: about 2^n steps for n operations that use the last two.
FOLLOWS_EVERY_PATH = VERSION < (2, 7)

# torch.func.vmap makes a gather of an index_select, and in 2.6 gather takes places as int64 only; 2.8 takes int32 too.
GATHERS_INT32 = VERSION >= (2, 8)


def is_exporting() -> bool:
    """`torch.compiler.is_exporting()`, which torch has from 2.7 on.

    Call it beside a trace of the compiler, not in it: 2.6 asks the trace that is running, and 2.11 takes the call
    inside a trace for True without an export.
    """
    if hasattr(torch.compiler, "is_exporting"):
        return torch.compiler.is_exporting()
    # torch.export with strict=True traces with the compiler, which knows that it exports. With strict=False it sets the
    # flag of `is_compiling`, which nothing else sets: inside its own traces the compiler replaces that function.
    compiler = sys.modules.get("torch._dynamo.symbolic_convert")
    trace = getattr(compiler.tls, "current_tx", None) if compiler else None
    return bool(trace.export) if trace else torch.compiler.is_compiling()
