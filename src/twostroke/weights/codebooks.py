"""The codebooks of the IQ1, IQ2 and IQ3 types, from `codebooks.toml`. Owns their unpacking, not their use."""

from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt


@cache
def codebook(name: str) -> npt.NDArray[np.float32]:
    """The entries of a codebook by its name in `codebooks.toml`: (num_entries, 4 or 8) float32, read-only."""
    import tomllib  # only needed for a model with such a type

    table = tomllib.loads(Path(__file__).with_name("codebooks.toml").read_text("utf-8"))[name]
    steps = np.array(table["steps"], np.float32)
    packed = np.frombuffer(bytes.fromhex(table["entries"]), np.uint8)
    bits = 2 if len(steps) <= 4 else 4
    indices = packed[:, None] >> np.arange(0, 8, bits, dtype=np.uint8) & np.uint8((1 << bits) - 1)
    entries: npt.NDArray[np.float32] = steps[indices].reshape(-1, table["width"])
    entries.flags.writeable = False
    return entries
