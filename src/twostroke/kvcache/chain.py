"""BlockChain: the names of a request's full blocks, made of everything their keys and values depend on."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class BlockKey:
    """A full block and all before it. `digest` is the SHA-256 of the chain so far; `content` its last link.

    The content is the block's token ids (int32, little-endian) and how many of them, the first, are prompt rows: rows
    that were generated have other numerics, and so other bits.
    """

    digest: bytes
    content: bytes


class BlockChain:
    """Keys of blocks 0, 1, ... of one request. Those of prompts that begin alike begin alike.

    scope        what else the bits depend on, or must not be shared across: the model, an adapter, a tenant's salt
    all_prompt   name generated rows as if they were the prompt's, so that a later prompt may reuse them
    """

    __slots__ = ("_all_prompt", "_block_tokens", "_digest", "keys")

    def __init__(self, block_tokens: int, scope: Sequence[str], *, all_prompt: bool = False) -> None:
        parts = [part.encode() for part in scope]
        self._digest = sha256(b"".join(len(part).to_bytes(8, "little") + part for part in parts)).digest()
        self._block_tokens = block_tokens
        self._all_prompt = all_prompt
        self.keys: list[BlockKey] = []

    def extend(self, tokens: npt.NDArray[np.int32], num_prompt: int) -> None:
        """Adds the keys of the full blocks of `tokens`, (num_tokens,), that have none yet."""
        size = self._block_tokens
        for begin in range(len(self.keys) * size, len(tokens) - size + 1, size):
            prompt_rows = size if self._all_prompt else max(0, min(size, num_prompt - begin))
            content = tokens[begin : begin + size].astype("<i4").tobytes() + prompt_rows.to_bytes(4, "little")
            self._digest = sha256(self._digest + content).digest()
            self.keys.append(BlockKey(self._digest, content))
