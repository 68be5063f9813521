"""The Triton kernel of dropout masks, run by Triton's interpreter and held to the hash in torch operations.

Run with TRITON_INTERPRET=1 in the environment: Triton reads it when it is imported.
"""

import os

import pytest
import torch

from softknee.train.random_keys import _SECOND, bits, fold, masks, seed_keys

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("Triton's interpreter is asked for with TRITON_INTERPRET=1.", allow_module_level=True)

F32, F16 = torch.float32, torch.float16
KEYS = torch.cat([fold(seed_keys([0, 5, 2**40 + 7]), 3), torch.tensor([0, 1, 2**31, 2**32 - 1])])


@pytest.mark.parametrize(
    ("length", "p", "dtype"),
    [(1, 0.5, F32), (1024, 0.1, F32), (1025, 0.999, F32), (2500, 0.3, F16), (100, 0.0, F32), (100, 1.0, F16)],
    ids=str,
)
def test_the_kernel_keeps_what_the_torch_operations_keep(length, p, dtype):
    from softknee.kernels.keyed_mask import keyed_mask

    threshold, scale = round(p * 2**32), 1 / (1 - p) if p < 1 else 0.0
    result = keyed_mask(KEYS, length, threshold=threshold, scale=scale, second=_SECOND, dtype=dtype)
    assert result.dtype == dtype
    assert torch.equal(result, masks(KEYS, length, threshold=threshold, scale=scale, dtype=dtype))
    # The kept ones are those whose bits are high enough, whichever way the mask is made.
    kept = bits(KEYS, length) >= threshold
    assert torch.equal(result != 0, kept if scale else torch.zeros_like(kept))
