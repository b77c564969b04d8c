"""The tensor types: ids, names, block shapes. Owns no arithmetic on blocks (see `dequantize`).

Every type the GGUF format defines is listed, so that a file with one this engine cannot compute with still opens, can
be inspected, and is refused by its name. Source of these ids and sizes: the GGML type enumeration. The grouped types
are this engine's own, for what quantised Hugging Face checkpoints hold; no file has them (see `grouped_blocks`).
"""

from enum import IntEnum

_FIRST_OWN_ID = 1000


class TensorType(IntEnum):
    """How a tensor's values are stored. The value is the GGML id written in the file; from 1000, this engine's own."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q8_1 = 9
    Q2_K = 10
    Q3_K = 11
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    Q8_K = 15
    IQ2_XXS = 16
    IQ2_XS = 17
    IQ3_XXS = 18
    IQ1_S = 19
    IQ4_NL = 20
    IQ3_S = 21
    IQ2_S = 22
    IQ4_XS = 23
    I8 = 24
    I16 = 25
    I32 = 26
    I64 = 27
    F64 = 28
    IQ1_M = 29
    BF16 = 30
    TQ1_0 = 34
    TQ2_0 = 35
    MXFP4 = 39
    NVFP4 = 40
    Q1_0 = 41
    G4_32_F16 = 1000
    G4_64_F16 = 1001
    G4_128_F16 = 1002
    G4_32_BF16 = 1003
    G4_64_BF16 = 1004
    G4_128_BF16 = 1005
    G8_32_F16 = 1006
    G8_64_F16 = 1007
    G8_128_F16 = 1008
    G8_32_BF16 = 1009
    G8_64_BF16 = 1010
    G8_128_BF16 = 1011
    F8_32_BF16 = 1012
    F8_64_BF16 = 1013
    F8_128_BF16 = 1014
    F8_32_F32 = 1015
    F8_64_F32 = 1016
    F8_128_F32 = 1017

    @property
    def is_in_gguf(self) -> bool:
        """Whether a GGUF file may have it."""
        return self < _FIRST_OWN_ID

    @property
    def block_size(self) -> int:
        """Values in one block; a row's length is a multiple of it."""
        return _BLOCKS[self][0]

    @property
    def block_bytes(self) -> int:
        """Bytes of one block in the file."""
        return _BLOCKS[self][1]

    @property
    def bits_per_weight(self) -> float:
        """Bits of the file per value, scales included."""
        return 8 * self.block_bytes / self.block_size

    def row_bytes(self, num_values: int) -> int:
        """Bytes of a row of `num_values` values, which must be a multiple of `block_size`."""
        return num_values // self.block_size * self.block_bytes


# type -> (values in a block, bytes of a block)
_BLOCKS: dict[TensorType, tuple[int, int]] = {
    TensorType.F32: (1, 4),
    TensorType.F16: (1, 2),
    TensorType.Q4_0: (32, 18),
    TensorType.Q4_1: (32, 20),
    TensorType.Q5_0: (32, 22),
    TensorType.Q5_1: (32, 24),
    TensorType.Q8_0: (32, 34),
    TensorType.Q8_1: (32, 40),
    TensorType.Q2_K: (256, 84),
    TensorType.Q3_K: (256, 110),
    TensorType.Q4_K: (256, 144),
    TensorType.Q5_K: (256, 176),
    TensorType.Q6_K: (256, 210),
    TensorType.Q8_K: (256, 292),
    TensorType.IQ2_XXS: (256, 66),
    TensorType.IQ2_XS: (256, 74),
    TensorType.IQ3_XXS: (256, 98),
    TensorType.IQ1_S: (256, 50),
    TensorType.IQ4_NL: (32, 18),
    TensorType.IQ3_S: (256, 110),
    TensorType.IQ2_S: (256, 82),
    TensorType.IQ4_XS: (256, 136),
    TensorType.I8: (1, 1),
    TensorType.I16: (1, 2),
    TensorType.I32: (1, 4),
    TensorType.I64: (1, 8),
    TensorType.F64: (1, 8),
    TensorType.IQ1_M: (256, 56),
    TensorType.BF16: (1, 2),
    TensorType.TQ1_0: (256, 54),
    TensorType.TQ2_0: (256, 66),
    TensorType.MXFP4: (32, 17),
    TensorType.NVFP4: (64, 36),
    TensorType.Q1_0: (128, 18),
    TensorType.G4_32_F16: (64, 37),
    TensorType.G4_64_F16: (64, 35),
    TensorType.G4_128_F16: (128, 67),
    TensorType.G4_32_BF16: (64, 37),
    TensorType.G4_64_BF16: (64, 35),
    TensorType.G4_128_BF16: (128, 67),
    TensorType.G8_32_F16: (32, 34),
    TensorType.G8_64_F16: (64, 66),
    TensorType.G8_128_F16: (128, 130),
    TensorType.G8_32_BF16: (32, 34),
    TensorType.G8_64_BF16: (64, 66),
    TensorType.G8_128_BF16: (128, 130),
    TensorType.F8_32_BF16: (32, 34),
    TensorType.F8_64_BF16: (64, 66),
    TensorType.F8_128_BF16: (128, 130),
    TensorType.F8_32_F32: (32, 36),
    TensorType.F8_64_F32: (64, 68),
    TensorType.F8_128_F32: (128, 132),
}
