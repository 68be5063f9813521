"""`encode` and `decode`: a tensor of symbols as bytes, and back; `entropy` and `sizes`: how many bits that takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ..errors import (
    InputError,
    MissingToolError,
    ParameterError,
    WireError,
    require_choice,
    require_count,
)
from . import packed
from .message import (
    CODERS,
    MOST_DIMENSIONS,
    MOST_LEVELS,
    TYPES,
    Message,
    Reader,
    read_message,
    write_varints,
)
from .packed import wide

MOST_SYMBOLS = 2**26  # what `decode` accepts unless told otherwise: 64 MiB of uint8
_ONE_SYMBOL = 0  # the form of a model that says: all symbols are this one
_WEIGHT_BITS = 32  # known probabilities become whole numbers of this many bits: the same on every machine


def _table_coders() -> dict[str, ModuleType]:
    """The coders with a table, the shorter first; imported here, because "packed" does not need NumPy."""
    try:
        from . import huffman, rans
    except ImportError as error:
        raise MissingToolError(
            "Entropy coding needs NumPy, which is not installed. Install it with: pip install 'softknee[lab]' (or use "
            "coder='packed', which needs torch alone)."
        ) from error
    return {"rans": rans, "huffman": huffman}


def encode(
    symbols: Tensor,
    *,
    levels: int | None = None,
    coder: str = "auto",
    probabilities: Tensor | Sequence[float] | None = None,
) -> bytes:
    r"""A tensor of whole numbers in [0, levels), of any shape and integer type, as few bytes.

    Without `levels` they end at the largest symbol that occurs (or with the probabilities). Give the number of points,
    2k+1, where messages should be alike from call to call: the packed form is as long as its levels ask.

    With H = -sum_s p_s log2 p_s the entropy of the symbols that occur, in bits per symbol:

        "rans"      range coding: H + 1 % and the header; needs NumPy
        "huffman"   H + min(1, p_max + 0.086) and the header; needs NumPy
        "packed"    a fixed length near log2(levels), 5.33 for 33 levels, whatever the symbols are; torch alone,
                    and it runs on the device of the symbols
        "auto"      the one of these that is shortest by the counts of the symbols (without NumPy: "packed")

    The table of frequencies is part of the message, unless `probabilities` (one per level) are given: then
    `decode` must be given the same ones, and the length is the cross-entropy -sum_s p_s log2 probabilities_s. They
    must be the same floats on both sides: send them once, do not calculate them on each side.

    Equal symbols give equal bytes. The form of a message is described in `softknee/wire/message.py`.

    >>> import torch
    >>> symbols = torch.tensor([[16, 16, 17], [16, 15, 32]], dtype=torch.uint8)
    >>> data = encode(symbols, levels=33)
    >>> len(data), torch.equal(decode(data), symbols)
    (25, True)

    References: Huffman 1952; Duda 2013 (arXiv:1311.2540); Giesen 2014 (arXiv:1402.3392).
    """
    if levels is None and probabilities is not None:
        levels = count_of(probabilities)
    level_count = require_symbols(symbols, levels)
    require_choice("encode", "coder", coder, (*CODERS, "auto"))
    weights = None if probabilities is None else weights_of(probabilities, level_count)

    def message(name: str, model: bytes, payload: bytes, *, shared: bool = False) -> bytes:
        return Message(name, level_count, tuple(symbols.shape), symbols.dtype, shared, model, payload).to_bytes()

    coders = {}
    if coder != "packed":
        with suppress(MissingToolError) if coder == "auto" else nullcontext():
            coders = _table_coders()
    if not coders:
        return message("packed", *packed.encode(symbols, level_count))
    counts = counts_of(symbols, level_count)
    if weights is not None:
        require_weights(counts, weights)
    occurring = counts.nonzero().flatten().tolist()
    if len(occurring) < 2:
        return message("rans" if coder == "auto" else coder, write_varints(_ONE_SYMBOL, *(occurring or [0])), b"")
    count_list: list[int] = counts.tolist()
    if coder == "auto":
        bits = {name: module.estimate(count_list, weights) for name, module in coders.items()}
        bits["packed"] = packed.bits_of(symbols.numel(), level_count)
        coder = min(bits, key=bits.__getitem__)
    if coder == "packed":
        return message("packed", *packed.encode(symbols, level_count))
    row = wide(symbols.detach()).reshape(-1).cpu().numpy()
    return message(coder, *coders[coder].encode(row, count_list, weights), shared=weights is not None)


def decode(
    data: bytes | bytearray | memoryview,
    *,
    device: torch.device | str = "cpu",
    most: int = MOST_SYMBOLS,
    probabilities: Tensor | Sequence[float] | None = None,
) -> Tensor:
    """The tensor that `encode` was given: the same shape, type and values, on `device`.

    Raises WireError, and nothing else, for bytes that are not a whole message: cut off, altered, of another
    kind or version, or with more than `most` symbols. (Without NumPy, "huffman" and "rans" raise MissingToolError.)
    A few bytes can stand for very many equal symbols, so give the number that is expected as `most` where the sender
    is not trusted. `probabilities` are those that the message was coded with; a message with its own table, or
    none, does not need them.

    >>> import torch
    >>> data = encode(torch.arange(33), levels=33, coder="packed")
    >>> decode(data).sum()
    tensor(528)
    >>> decode(data[:-1])
    Traceback (most recent call last):
    softknee.errors.WireError: The message is cut off or was altered: its checksum is wrong. Ask for it again.
    """
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise InputError(f"A message is bytes, and this is a {type(data).__name__}.")
    require_count("decode", "most", most, least=0)
    message = read_message(bytes(data), most=most)
    levels, count = message.levels, message.count
    dtype = message.dtype if levels - 1 <= torch.iinfo(message.dtype).max else torch.int64
    if message.coder == "packed" and not message.shared:
        row = packed.decode(message.model, message.payload, count, levels, dtype=dtype, device=device)
    elif message.model[:1] == bytes([_ONE_SYMBOL]):
        row = torch.full((count,), _only_symbol(message), dtype=torch.int64, device=device)
    else:
        row = torch.from_numpy(_from_tables(message, probabilities)).to(device)
    if dtype != message.dtype and count and int(row.to(torch.int64).max()) > torch.iinfo(message.dtype).max:
        raise WireError(f"The message is damaged: it has symbols that do not fit into {message.dtype}.")
    return row.to(message.dtype).reshape(message.shape)


def _only_symbol(message: Message) -> int:
    reader = Reader(message.model[1:])
    symbol = reader.number("the only symbol", most=message.levels - 1)
    reader.end("the model")
    if message.payload or message.shared or (symbol and not message.count):
        raise WireError("The message is damaged: equal symbols need no more than their model.")
    return symbol


def _from_tables(message: Message, probabilities: Tensor | Sequence[float] | None) -> Any:
    weights = None
    if message.shared:
        if probabilities is None:
            raise WireError(
                "The message was coded with probabilities that both sides know. Give the sender's to "
                "decode(..., probabilities=...)."
            )
        count = count_of(probabilities)
        if count != message.levels:
            raise WireError(
                f"The message has {message.levels} levels, and {count} probabilities are given. Give the sender's."
            )
        weights = weights_of(probabilities, message.levels)
    if message.count < 2 or message.coder == "packed":
        raise WireError("The message is damaged: it has a table where none is needed.")
    coder = _table_coders()[message.coder]
    return coder.decode(message.model, message.payload, message.count, message.levels, weights)


def require_symbols(symbols: Tensor, levels: int | None) -> int:
    """Raise unless this is a tensor of whole numbers in [0, levels). Give the levels: as many as occur if left out."""
    if levels is not None:
        require_count("", "levels", levels, most=MOST_LEVELS)
    if not isinstance(symbols, Tensor) or symbols.dtype not in TYPES:
        what = f"a tensor of {symbols.dtype}" if isinstance(symbols, Tensor) else f"a {type(symbols).__name__}"
        raise InputError(
            f"Symbols are a tensor of whole numbers, and this is {what}. Convert it, e.g. x.to(torch.uint8)."
        )
    if symbols.layout != torch.strided or symbols.is_quantized or symbols.device.type == "meta":
        raise InputError(
            f"Symbols are a dense tensor with values, and this one is not ({symbols.layout}, {symbols.device})."
        )
    if symbols.dim() > MOST_DIMENSIONS:
        raise InputError(f"Symbols have at most {MOST_DIMENSIONS} dimensions, and these {symbols.dim()}.")
    least, most = (int(bound) for bound in torch.aminmax(wide(symbols))) if symbols.numel() else (0, 0)
    largest = (MOST_LEVELS if levels is None else levels) - 1
    if least < 0 or most > largest:
        among = "S" if levels is None else f"With levels={levels} s"
        cure = "." if levels is None else ", or give the right number of levels."
        raise ParameterError(
            f"{among}ymbols are 0 to {largest:,}, and these go from {least} to {most}. Shift them to start at 0{cure} "
            "(A -1 of symbols() stands for NaN.)"
        )
    return most + 1 if levels is None else levels


def counts_of(symbols: Tensor, levels: int) -> Tensor:
    """How often each level occurs."""
    return torch.bincount(wide(symbols.detach()).reshape(-1), minlength=levels).cpu()


def entropy_of(counts: Tensor) -> float:
    """Bits per symbol, of counts."""
    total = int(counts.sum())
    present = counts[counts > 0].double()
    return math.log2(total) - float((present * present.log2()).sum()) / total if len(present) > 1 else 0.0


def count_of(probabilities: Tensor | Sequence[float]) -> int:
    """How many probabilities these are."""
    try:
        return len(probabilities)
    except TypeError:
        raise ParameterError("Probabilities are a list of numbers or a tensor with one dimension.") from None


def weights_of(probabilities: Tensor | Sequence[float], levels: int) -> list[int]:
    """Probabilities known to both sides as whole numbers, by arithmetic that is the same on every machine.

        w_s = max(1, round(2^32 p_s / sum p)),  and 0 where p_s = 0

    The sum is rounded once (`math.fsum`), so its order does not matter.
    """
    numbers = probabilities.detach().double().cpu() if isinstance(probabilities, Tensor) else probabilities
    try:
        values = [float(value) for value in (numbers.tolist() if isinstance(numbers, Tensor) else numbers)]
    except (TypeError, ValueError):
        raise ParameterError("Probabilities are a list of numbers or a tensor with one dimension.") from None
    if len(values) != levels:
        raise ParameterError(f"There are {levels} levels and {len(values)} probabilities; give one for each level.")
    if not all(math.isfinite(value) and value >= 0 for value in values) or not 0 < math.fsum(values) < math.inf:
        raise ParameterError("Probabilities are finite, not negative, and not all zero; these are not.")
    total = math.fsum(values)
    return [max(1, round(value / total * 2**_WEIGHT_BITS)) if value else 0 for value in values]


def require_weights(counts: Tensor, weights: Sequence[int]) -> None:
    """Raise if a symbol occurs that the given probabilities call impossible."""
    impossible = [level for level in counts.nonzero().flatten().tolist() if not weights[level]]
    if impossible:
        raise ParameterError(
            f"Symbol {impossible[0]} occurs, and its probability is given as 0, so it has no code. "
            "Give every symbol that may occur a probability above 0."
        )


@dataclass(frozen=True)
class Sizes:
    """Bits per symbol of one tensor: whole messages with header, table and checksum, as they go onto the wire.

    count:    how many symbols there are; where there are none, none has bits, and entropy and coders are 0.
    entropy:  the bound for any code that treats symbols alike and one by one.
    float32, bfloat16: what the same number of activations takes without coding.
    """

    count: int
    entropy: float
    huffman: float
    rans: float
    packed: float
    float32: float = 32.0
    bfloat16: float = 16.0

    @property
    def smallest(self) -> str:
        """The coder with the fewest bits."""
        return min(("rans", "huffman", "packed"), key=lambda name: getattr(self, name))

    def __str__(self) -> str:
        if not self.count:
            return "no symbols, and so no bits per symbol"
        names = ("entropy", "rans", "huffman", "packed", "bfloat16", "float32")
        return f"bits per symbol of {self.count:,}: " + ", ".join(f"{name} {getattr(self, name):.4g}" for name in names)


def entropy(symbols: Tensor, *, levels: int | None = None) -> float:
    """H = -sum_s p_s log2 p_s in bits per symbol, p_s the share of level s; 0 of an empty tensor.

    Levels that do not occur change nothing; given, they say which symbols are refused.

    >>> import torch
    >>> entropy(torch.tensor([0, 0, 1, 2]), levels=33)
    1.5
    """
    levels = require_symbols(symbols, levels)
    return entropy_of(counts_of(symbols, levels))


def sizes(symbols: Tensor, levels: int | None = None) -> Sizes:
    """Encode the symbols with every coder and say how many bits each needs per symbol.

    Without `levels` they end at the largest symbol that occurs, as for `encode`.

    A message without symbols still has a header; its bytes are `len(encode(...))`.

    >>> import torch
    >>> print(sizes(torch.arange(8000) % 8, levels=33))
    bits per symbol of 8,000: entropy 3, rans 3.062, huffman 3.036, packed 5.357, bfloat16 16, float32 32
    """
    bound = entropy(symbols, levels=levels)
    count, coders = symbols.numel(), ("huffman", "rans", "packed")
    if not count:
        return Sizes(0, bound, **dict.fromkeys(coders, 0.0))
    bits = {name: 8 * len(encode(symbols, levels=levels, coder=name)) / count for name in coders}
    return Sizes(count, bound, **bits)
