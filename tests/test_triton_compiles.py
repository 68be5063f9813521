"""Triton kernels compile for a GPU, without one: the interpreter runs Python, and lets through what the
compiler refuses."""

from typing import Any

import pytest
import torch

triton = pytest.importorskip("triton", reason="Triton is not installed with this torch")

if not torch.cuda.is_available():  # with a GPU, its own tests compile them
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    import softknee as sk
    from softknee.kernels import fused, keyed_mask, packing
    from softknee.kernels.inverse import inverse_of
    from softknee.kernels.triton_source import NUMBER, Recovery
    from softknee.spec.printers import TRITON

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="the tests on the GPU compile them")

HOPPER = 90


def compiled(kernel: Any, types: str, constants: dict[str, Any]) -> Any:
    """The kernel for these types, in the order of its arguments that are not constants."""
    kinds = iter(types.split())
    signature = {name: "constexpr" if name in constants else next(kinds) for name in kernel.arg_names}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    return triton.compile(source, target=GPUTarget("cuda", HOPPER, 32))


def test_packing_and_masks() -> None:
    sizes = {"LEVELS": 33, "GROUP": 3, "SIZE": 2, "PAIR": True, "BLOCK": packing.BLOCK}
    for name, types in (("_pack", "*i32 *u8 *i32 i64 i64"), ("_unpack", "*u8 *i32 *i32 i64 i64")):
        assert compiled(getattr(packing, name), types, sizes).asm["cubin"]
    constants = {"SECOND": 7, "BLOCK": 1024}
    assert compiled(keyed_mask._keyed_mask, "*i64 *fp32 i32 i64 fp32", constants).asm["cubin"]


@pytest.mark.parametrize("name", ["srelu", "lambda_gelu", "crrelu_exact", "mollify(relu, gaussian)"])
@pytest.mark.parametrize("kind", ["lifted", "value", "number"])
def test_what_stands_for_a_parameter(name: str, kind: str) -> None:
    """A raw value with its anchor, the value, or a number; the sum of its gradient is completed in the kernel."""
    act = sk.get(name)
    (p,) = act.params
    sources = ({"lifted": p.constraint, "value": None, "number": NUMBER}[kind],)
    given = {"lifted": "*fp32 *fp32", "value": "*fp32", "number": "fp32"}[kind]
    for dtype, pointer in ((torch.float32, "*fp32"), (torch.bfloat16, "*bf16")):
        forward = fused._forward_kernel(act, sources, dtype)
        assert compiled(forward, f"{pointer} {pointer} {given} i32", {"BLOCK": 1024}).asm["cubin"]
        needed = () if kind == "number" else (p.name,)
        backward = fused._flat_backward_kernel(act, sources, needed, True, dtype)
        sums, constants = ("*fp32 *i32 *fp32 ", {"VECTOR": 8, "SUM": 256}) if needed else ("", {})
        types = f"{pointer} {pointer} {pointer} {sums}{given} i32"
        made = compiled(backward, types, {"BLOCK": 1024, "EVEN": True, **constants})
        assert ("acq_rel" in made.asm["ptx"]) == bool(needed)


@pytest.mark.parametrize("name", ["srelu", "smelu", "softplus", "lambda_gelu"])
def test_gradients_from_the_output(name: str) -> None:
    """x is recovered before the slopes; bits are packed and read again."""
    act = sk.get(name)
    (p,), inverse = act.params, inverse_of(act)
    sources, sided = (p.constraint,), inverse.place is not None
    place, bits = (inverse.place_text(TRITON), "*u8 ") if sided else ("", "")
    for dtype, pointer in ((torch.float32, "*fp32"), (torch.bfloat16, "*bf16")):
        forward = fused._forward_kernel(act, sources, dtype, place)
        assert compiled(forward, f"{pointer} {pointer} {bits}*fp32 *fp32 i32", {"BLOCK": 1024}).asm["cubin"]
        recovery = Recovery(inverse.source(TRITON, dtype), sided)
        for even in (True, False):
            backward = fused._flat_backward_kernel(act, sources, (p.name,), True, dtype, recovery)
            types = f"{pointer} {pointer} {bits}{pointer} *fp32 *i32 *fp32 *fp32 *fp32 i32"
            assert compiled(backward, types, {"BLOCK": 1024, "EVEN": even, "VECTOR": 8, "SUM": 256}).asm["cubin"]
        for shape in ("columns", "channels"):
            backward = fused._backward_kernel(act, (p.name,), True, shape, dtype, recovery)
            types = f"{pointer} {pointer} {bits}{pointer} *fp32 *fp32 i32 i64 i32 i32 i64"
            assert compiled(backward, types, {"ROWS": 1 if shape == "channels" else 16, "COLUMNS": 64}).asm["cubin"]
