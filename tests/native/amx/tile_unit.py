"""Runs amx kernels on x86-64 Linux without tiles, by the tile unit in tile_unit.c. Owns its building and loading.

Where a machine has tiles, they execute the same tests, and nothing is counted.
"""

import ctypes
import platform
import shutil
import subprocess
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from twostroke.native import _core

FOLDER = Path(__file__).parent
INSTRUCTIONS = (
    "ldtilecfg", "sttilecfg", "tileloadd", "tileloaddt1", "tilestored", "tilezero", "tilerelease",
    "tdpbf16ps", "tdpbssd", "tdpbsud", "tdpbusd", "tdpbuud",
)  # fmt: skip
MOST_ARGUMENTS = 12
HAS_TILES = "amx" in _core.available_isas()  # then this machine's own are tested


class TileError(Exception):
    """A call that had to be left: one line that says why, at which address, and in which function."""


class EmulationError(Exception):
    """Why this machine cannot run amx kernels: it is not x86-64 Linux, or lacks AVX-512 or a compiler."""


class TileUnit:
    """Calls functions and counts tile instructions. There is one in a process: `load_tile_unit`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._library.tile_unit_call.restype = ctypes.c_char_p

    @property
    def counts(self) -> Counter[str]:
        """Tile instructions emulated so far, on all threads."""
        counts = (ctypes.c_long * len(INSTRUCTIONS))()
        self._library.tile_unit_counts(counts)
        return Counter(dict(zip(INSTRUCTIONS, counts, strict=True)))

    def call(self, function: Any, *arguments: int | npt.NDArray[np.generic], seconds: float = 5.0) -> int:
        """What a ctypes function of up to 12 integers and pointers returns. Raises TileError."""
        values = [a if isinstance(a, int) else a.ctypes.data for a in arguments]
        passed = (ctypes.c_long * MOST_ARGUMENTS)(*values)
        result = ctypes.c_long()
        error = self._library.tile_unit_call(function, passed, ctypes.c_double(seconds), ctypes.byref(result))
        if error:
            raise TileError(error.decode())
        return result.value


def isas_with_amx() -> list[str]:
    """What `_core.available_isas` gives where the tile unit is loaded. Raises EmulationError."""
    load_tile_unit()
    isas = _core.available_isas()
    return isas if "amx" in isas else [*isas, "amx"]


def compiled(source: str, *flags: str) -> ctypes.CDLL:
    """One file beside this one as a library, compiled anew. Raises EmulationError where that is not possible."""
    compiler = shutil.which("g++" if source.endswith(".cpp") else "gcc")
    if compiler is None:
        raise EmulationError("gcc and g++ are not installed")
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/{source.partition('.')[0]}.so"
        command = [compiler, "-O2", "-shared", "-fPIC", *flags, "-o", library, str(FOLDER / source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise EmulationError(f"{source} does not compile here: {done.stderr.splitlines()[0]}")
        return ctypes.CDLL(library)


@cache
def load_tile_unit() -> TileUnit:
    """The unit, loaded for the rest of the process. Raises EmulationError."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise EmulationError("tiles are emulated on x86-64 Linux")
    try:
        _core.emulate_amx()
    except ValueError as error:
        raise EmulationError(str(error)) from None
    return TileUnit(compiled("tile_unit.c"))
