"""A model file opened and understood: config, program, weights. Owns the check that the weights are the program's.

Only the header is read; a tensor's bytes are read when they are used.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from twostroke.errors import ModelFileError, TwostrokeError, UnsupportedModelError
from twostroke.models.config import ModelConfig, architecture, config_from_gguf
from twostroke.models.registry import build_program, family_of
from twostroke.program.program import Program
from twostroke.program.values import Weight
from twostroke.weights.dequantize import dequantize
from twostroke.weights.gguf import GGUFFile
from twostroke.weights.source import WeightSource
from twostroke.weights.tensor_types import TensorType

MATRIX_TYPES = (
    *(TensorType.F32, TensorType.F16, TensorType.BF16),
    *(TensorType.Q4_0, TensorType.Q4_1, TensorType.Q5_0, TensorType.Q5_1, TensorType.Q8_0),
    *(TensorType.Q2_K, TensorType.Q3_K, TensorType.Q4_K, TensorType.Q5_K, TensorType.Q6_K),
    *(TensorType.IQ4_NL, TensorType.IQ4_XS, TensorType.MXFP4, TensorType.TQ1_0, TensorType.TQ2_0),
    *(TensorType.IQ1_S, TensorType.IQ1_M, TensorType.IQ2_XXS, TensorType.IQ2_XS, TensorType.IQ2_S),
    *(TensorType.IQ3_XXS, TensorType.IQ3_S),
)  # those with kernels


@dataclass(frozen=True, slots=True)
class Model:
    """A model ready to be lowered, costed or run by the reference executor. `program` is not fused yet.

    `unused_tensors` are in the file but no part of the model, such as those of layers beyond its last.
    """

    config: ModelConfig
    program: Program
    source: GGUFFile
    unused_tensors: tuple[str, ...]


def load_model(path: str | Path, outputs: Collection[str] = ("logits",)) -> Model:
    """Open a GGUF model; the caller closes `source`.

    Raises ModelNotFoundError, ModelFileError for a damaged file or a tensor that is missing or of another shape,
    UnsupportedModelError for an architecture, tensor type or tensor that has no place in the program.
    """
    source = GGUFFile.open(path)
    try:
        family_of(architecture(source.metadata))  # first, so that an unknown one is named rather than its keys
        config = config_from_gguf(source.metadata, {name: info.shape for name, info in source.tensors.items()})
        program = build_program(config, outputs)
        return Model(config, program, source, _checked(program, config, source))
    except TwostrokeError as error:
        source.close()
        raise type(error)(f"{path}: {error}") from None


def dequantized(source: WeightSource) -> Callable[[str], npt.NDArray[np.float32]]:
    """Weights by name as float32 arrays, for the reference executor; each call unpacks anew."""

    def weights(name: str) -> npt.NDArray[np.float32]:
        info = source.info(name)
        return dequantize(source.data(name), info.type, info.shape)

    return weights


def _checked(program: Program, config: ModelConfig, source: GGUFFile) -> tuple[str, ...]:
    """Names of unused tensors, once every weight of the program is known to be there as the program needs it."""
    for weight in program.weights.values():
        _check(weight, config, source)
    unused = tuple(name for name in source.names if name not in program.weights)
    for name in unused:
        if _in_a_layer(name, config.num_layers):
            raise UnsupportedModelError(f"tensor {name!r} has no place in a {config.architecture} model")
    return unused


def _check(weight: Weight, config: ModelConfig, source: GGUFFile) -> None:
    info = source.tensors.get(weight.name)
    if info is None:
        raise ModelFileError(f"tensor {weight.name!r} is missing")
    if info.shape != weight.shape:
        raise ModelFileError(
            f"tensor {weight.name!r} has shape {list(info.shape)}; the {config.architecture} model of these"
            f" metadata needs {list(weight.shape)}"
        )
    supported = MATRIX_TYPES if len(weight.shape) == 2 else (TensorType.F32,)
    if info.type not in supported:
        names = ", ".join(kind.name for kind in supported)
        raise UnsupportedModelError(f"tensor {weight.name!r} has type {info.type.name}; supported here: {names}")


def _in_a_layer(name: str, num_layers: int) -> bool:
    """Whether the name is of a layer that the program runs, which would compute something else without the tensor."""
    parts = name.split(".")
    return parts[0] == "blk" and len(parts) > 2 and parts[1].isdecimal() and int(parts[1]) < num_layers
