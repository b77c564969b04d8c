"""Each tile instruction, as compiled from its intrinsic, against the Intel SDM's pseudocode written in NumPy."""

import ctypes

import numpy as np
import numpy.typing as npt
import pytest
from tests.native.amx.tile_unit import HAS_TILES, EmulationError, TileError, TileUnit, compiled

F32 = npt.NDArray[np.float32]
SMALLEST = np.float32(2.0**-126)  # normal
SHAPES = ((16, 16, 16), (1, 1, 1), (5, 16, 3), (16, 7, 16), (9, 3, 13))  # rows, pairs or quads, columns

emulated = pytest.mark.skipif(HAS_TILES, reason="this machine's own tiles raise signals instead")


@pytest.fixture(scope="module")
def functions() -> ctypes.CDLL:
    try:
        return compiled("instructions.cpp", "-std=c++20", "-mamx-tile", "-mamx-bf16", "-mamx-int8")
    except EmulationError as why:
        pytest.skip(str(why))


def config(*shapes: tuple[int, int]) -> npt.NDArray[np.uint8]:
    """64 bytes that configure tiles of so many rows and bytes a row."""
    made = np.zeros(64, np.uint8)
    made[0] = 1
    for tile, (rows, row_bytes) in enumerate(shapes):
        made[16 + 2 * tile] = row_bytes
        made[48 + tile] = rows
    return made


def flushed(x: F32) -> F32:
    return np.where(np.abs(x) < SMALLEST, np.copysign(np.float32(0), x), x)


def rounded_once(sum_: npt.NDArray[np.float64], error: npt.NDArray[np.float64]) -> F32:
    """float32 of sum_ + error, which float64 cannot hold: rounded to odd there, to nearest here."""
    even = (sum_.view(np.int64) & 1) == 0
    odd = np.where(even & (error != 0), np.nextafter(sum_, np.where(error > 0, np.inf, -np.inf)), sum_)
    return odd.astype(np.float32)


def fused(a: F32, b: F32, c: F32) -> F32:
    """a * b + c rounded once, denormals zero before and after. The product of two bfloat16 is exact in float64."""
    product, addend = flushed(a).astype(np.float64) * flushed(b), flushed(c).astype(np.float64)
    total = product + addend
    other = total - product
    return flushed(rounded_once(total, (product - (total - other)) + (addend - other)))


def widened(x: npt.NDArray[np.uint16]) -> F32:
    return (x.astype(np.uint32) << 16).view(np.float32)


def tdpbf16ps(a: npt.NDArray[np.uint16], b: npt.NDArray[np.uint16], sums: F32) -> F32:
    """SDM, TDPBF16PS: a (m, 2k), b (k, 2n), sums (m, n). Even and odd places are summed apart, then together."""
    x, y = widened(a), widened(b)
    parts = np.zeros((2, *sums.shape), np.float32)
    for k in range(len(b)):
        for place in range(2):
            left, right = np.broadcast_arrays(x[:, 2 * k + place, None], y[k, place::2])
            parts[place] = fused(left, right, parts[place])
    return flushed(flushed(sums) + flushed(parts[0] + parts[1]))


def in_memory(x: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """The rows 64 bytes apart, with bytes beyond them that no tile may take."""
    held = np.full((16, 64), 0xA5, np.uint8)
    held[: len(x), : x.shape[1] * x.itemsize] = np.ascontiguousarray(x).view(np.uint8)
    return held


def product(
    unit: TileUnit, functions: ctypes.CDLL, name: str, *operands: npt.NDArray[np.generic]
) -> npt.NDArray[np.generic]:
    """sums + a * b by an instruction; what is beyond the sums must stay as it was."""
    a, b, sums = operands
    shapes = config(*((len(x), x.shape[1] * x.itemsize) for x in (sums, a, b)))
    out = in_memory(sums)
    before = out.copy()
    unit.call(functions[name], shapes, in_memory(a), in_memory(b), out)
    rows, row_bytes = len(sums), sums.shape[1] * sums.itemsize
    before[:rows, :row_bytes] = out[:rows, :row_bytes]
    np.testing.assert_array_equal(out, before)
    return np.ascontiguousarray(out[:rows, :row_bytes]).view(sums.dtype)


def brain(rng: np.random.Generator, *shape: int) -> npt.NDArray[np.uint16]:
    """bfloat16 of sizes 2^-20 to 2^20."""
    values = rng.standard_normal(shape) * 2.0 ** rng.integers(-20, 20, shape)
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_tdpbf16ps(tile_unit: TileUnit, functions: ctypes.CDLL, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    rng = np.random.default_rng(k)
    for _ in range(20):
        a, b = brain(rng, m, 2 * k), brain(rng, k, 2 * n)
        sums = (rng.standard_normal((m, n)) * 2.0 ** rng.integers(-20, 20, (m, n))).astype(np.float32)
        got = product(tile_unit, functions, "tdpbf16ps", a, b, sums)
        np.testing.assert_array_equal(got, tdpbf16ps(a, b, sums))


def test_tdpbf16ps_sums_even_and_odd_places_apart(tile_unit: TileUnit, functions: ctypes.CDLL) -> None:
    """1 + 2^-24 - 1 in the order of places would be 0; apart, it is 2^-24."""
    a = np.array([[0x3F80, 0x3F80, 0xBF80, 0x0000]], np.uint16)  # 1, 1, -1, 0
    b = np.array([[0x3F80, 0x3380], [0x3F80, 0x0000]], np.uint16)  # places 0 and 2: 1; place 1: 2^-24
    sums = np.zeros((1, 1), np.float32)
    assert product(tile_unit, functions, "tdpbf16ps", a, b, sums)[0, 0] == 2.0**-24


@pytest.mark.parametrize(
    ("a", "b", "sum_", "expected"),
    [
        (0x0040, 0x4000, 0.0, 0.0),  # a denormal input is zero
        (0x0080, 0x3F00, 0.0, 0.0),  # 2^-126 / 2: a denormal product is zero
        (0x0000, 0x0000, 2.0**-127, 0.0),  # a denormal sum is zero
        (0x7F80, 0x3F80, 1.0, np.inf),
        (0x7F80, 0x0000, 1.0, np.nan),  # infinity * 0
        (0x7F00, 0x7F00, 1.0, np.inf),  # 2^127 squared
        (0x3F80, 0xFF80, np.inf, np.nan),
    ],
)  # fmt: skip
def test_tdpbf16ps_at_its_limits(
    tile_unit: TileUnit, functions: ctypes.CDLL, a: int, b: int, sum_: float, expected: float
) -> None:
    operands = np.array([[a, 0]], np.uint16), np.array([[b, 0]], np.uint16), np.array([[sum_]], np.float32)
    np.testing.assert_array_equal(product(tile_unit, functions, "tdpbf16ps", *operands), np.float32(expected))


@pytest.mark.parametrize("name", ["tdpbssd", "tdpbsud", "tdpbusd", "tdpbuud"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products_of_bytes(tile_unit: TileUnit, functions: ctypes.CDLL, name: str, shape: tuple[int, int, int]) -> None:
    """SDM, TDPBSSD and others: a (m, 4k) and b (k, 4n) with signs or without, sums (m, n) modulo 2^32."""
    m, k, n = shape
    rng = np.random.default_rng(k)
    kinds = {"s": np.int8, "u": np.uint8}
    a = rng.integers(0, 256, (m, 4 * k), np.uint8).view(kinds[name[4]])
    b = rng.integers(0, 256, (k, 4 * n), np.uint8).view(kinds[name[5]])
    sums = rng.integers(-(2**31), 2**31, (m, n)).astype(np.int32)
    columns = b.reshape(k, n, 4).transpose(0, 2, 1).reshape(4 * k, n)
    expected = (sums + a.astype(np.int64) @ columns.astype(np.int64)).astype(np.int32)
    np.testing.assert_array_equal(product(tile_unit, functions, name, a, b, sums), expected)


def test_moves(tile_unit: TileUnit, functions: ctypes.CDLL) -> None:
    """Strides, a displacement, high registers, zeroing, and the configuration that was given."""
    shapes = config(*[(0, 0)] * 7, (6, 28))
    source = np.arange(2000, dtype=np.uint8)
    moved, zeros, stored = np.full((16, 200), 7, np.uint8), np.full((16, 64), 7, np.uint8), np.full(64, 7, np.uint8)
    assert tile_unit.call(functions.move, shapes, source, 100, moved, zeros, stored) == 100
    expected = np.full((16, 200), 7, np.uint8)
    for row in range(6):
        expected[row, :28] = source[64 + 100 * row :][:28]
    np.testing.assert_array_equal(moved, expected)
    expected = np.full((16, 64), 7, np.uint8)
    expected[:6, :28] = 0
    np.testing.assert_array_equal(zeros, expected)
    np.testing.assert_array_equal(stored, shapes)


def test_a_load_without_a_stride(tile_unit: TileUnit, functions: ctypes.CDLL) -> None:
    source, loaded = np.arange(64, dtype=np.uint8), np.zeros((16, 64), np.uint8)
    tile_unit.call(functions.load_repeated, config((16, 64)), source, loaded)
    np.testing.assert_array_equal(loaded, np.tile(source, (16, 1)))


@emulated
def test_instructions_are_counted(tile_unit: TileUnit, functions: ctypes.CDLL) -> None:
    before = tile_unit.counts
    ones = np.ones((2, 2), np.uint16), np.ones((1, 4), np.uint16), np.ones((2, 2), np.float32)
    product(tile_unit, functions, "tdpbf16ps", *ones)
    expected = {"ldtilecfg": 1, "tileloadd": 2, "tileloaddt1": 1, "tdpbf16ps": 1, "tilestored": 1, "tilerelease": 1}
    assert tile_unit.counts - before == expected


def refused(changes: dict[int, int]) -> npt.NDArray[np.uint8]:
    made = config((16, 64), (16, 64))
    for place, value in changes.items():
        made[place] = value
    return made


@emulated
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({0: 2}, "the palette is neither 0 nor 1"),
        ({1: 1}, "a start row other than 0 is not emulated"),
        ({2: 1}, "a reserved byte is not 0"),
        ({63: 1}, "a reserved byte is not 0"),
        ({16: 68}, "a tile of more than 16 rows or 64 bytes a row"),
        ({48: 17}, "a tile of more than 16 rows or 64 bytes a row"),
        ({48: 0}, "a tile with rows or columns only"),
    ],
)
def test_configurations_refused(
    tile_unit: TileUnit, functions: ctypes.CDLL, changes: dict[int, int], error: str
) -> None:
    with pytest.raises(TileError, match=rf"^LDTILECFG: {error} at rip 0x[0-9a-f]+: configure\+0x?\w* in instructions"):
        tile_unit.call(functions.configure, refused(changes))


@emulated
def test_shapes_that_do_not_fit(tile_unit: TileUnit, functions: ctypes.CDLL) -> None:
    data = np.zeros((16, 64), np.uint8)
    for shapes in (((4, 8), (4, 8), (1, 8)), ((4, 8), (5, 4), (1, 8)), ((4, 8), (4, 4), (1, 12))):
        with pytest.raises(TileError, match=r"^a tile product of shapes that do not fit at .* tdpbf16ps\+"):
            tile_unit.call(functions.tdpbf16ps, config(*shapes), data, data, data)
    with pytest.raises(TileError, match="a tile whose rows are no multiple of 4 bytes"):
        tile_unit.call(functions.tdpbf16ps, config((4, 6), (4, 4), (1, 6)), data, data, data)
    with pytest.raises(TileError, match="a tile product needs three different tiles"):
        tile_unit.call(functions.product_of_one_tile, config((16, 64), (16, 64)))
    with pytest.raises(TileError, match="a tile load without an SIB byte"):
        tile_unit.call(functions.load_without_sib, config((16, 64)))
    with pytest.raises(TileError, match="no tiles are configured"):
        tile_unit.call(functions.use_unconfigured)


@emulated
def test_a_call_that_fails_is_left_with_its_place(tile_unit: TileUnit, functions: ctypes.CDLL) -> None:
    with pytest.raises(TileError, match=r"^a fault at address 0x8 at rip 0x[0-9a-f]+: configure\+0 in instructions"):
        tile_unit.call(functions.configure, 8)
    with pytest.raises(TileError, match=r"^an instruction this machine lacks at rip .*: undefined\+"):
        tile_unit.call(functions.undefined)
    with pytest.raises(TileError, match=r"^still running after its time at rip .*: run_on\+"):
        tile_unit.call(functions.run_on, 1, seconds=0.05)
    assert tile_unit.call(functions.twelfth, *range(12)) == 11
