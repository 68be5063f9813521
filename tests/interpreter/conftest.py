"""Triton's interpreter, without what it does again at every call."""

import os
from types import SimpleNamespace
from typing import Any

import pytest


@pytest.fixture(autouse=True, scope="session")
def the_language_is_replaced_once() -> None:
    """The interpreter puts its functions into `triton.language` at every launch and at every call within a kernel.

    It searches the whole language for them each time, which takes a third of the time of these tests; and it makes the
    table of NumPy's types at every operation. In this process nothing is compiled, so that both may stay.
    """
    if os.environ.get("TRITON_INTERPRET") != "1":
        return
    import triton.language as tl
    from triton.runtime import interpreter

    if not hasattr(interpreter, "_LangPatchScope"):  # another version of Triton: the tests take longer
        return
    interpreter._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    interpreter._patch_lang = lambda fn: interpreter._LangPatchScope()
    types: dict[str, Any] = {}
    numpy_type = interpreter._get_np_dtype

    def known(dtype: Any) -> Any:
        name = dtype.scalar.name
        if name not in types:
            types[name] = numpy_type(dtype.scalar)
        return types[name]

    interpreter._get_np_dtype = known
