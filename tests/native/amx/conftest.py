"""The tile unit of this process, and amx as one of its instruction sets."""

import pytest
from tests.native.amx.tile_unit import EmulationError, TileUnit, isas_with_amx, load_tile_unit

from twostroke.native import _core


@pytest.fixture(scope="session")
def tile_unit() -> TileUnit:
    try:
        return load_tile_unit()
    except EmulationError as why:
        pytest.skip(str(why))


@pytest.fixture
def amx(tile_unit: TileUnit, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an instruction set that executors take while the test runs."""
    isas = isas_with_amx()
    monkeypatch.setattr(_core, "available_isas", lambda: list(isas))
    return "amx"
