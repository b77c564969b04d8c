"""A model as it is opened: config, program, weights. Owns the record, and the check that the two fit each other."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.models.config import ModelConfig
from twostroke.models.parts import PartSource
from twostroke.program.program import Program
from twostroke.program.values import Weight
from twostroke.weights.gguf import GGUFFile, MetadataValue
from twostroke.weights.tensor_types import TensorType

if TYPE_CHECKING:
    from twostroke.weights.checkpoint_weights import CheckpointWeights

    Source = GGUFFile | CheckpointWeights | PartSource

MATRIX_TYPES = (
    *(TensorType.F32, TensorType.F16, TensorType.BF16),
    *(TensorType.Q4_0, TensorType.Q4_1, TensorType.Q5_0, TensorType.Q5_1, TensorType.Q8_0),
    *(TensorType.Q2_K, TensorType.Q3_K, TensorType.Q4_K, TensorType.Q5_K, TensorType.Q6_K),
    *(TensorType.IQ4_NL, TensorType.IQ4_XS, TensorType.MXFP4, TensorType.TQ1_0, TensorType.TQ2_0),
    *(TensorType.IQ1_S, TensorType.IQ1_M, TensorType.IQ2_XXS, TensorType.IQ2_XS, TensorType.IQ2_S),
    *(TensorType.IQ3_XXS, TensorType.IQ3_S),
    *(kind for kind in TensorType if not kind.is_in_gguf),  # the groups of quantised checkpoints
)  # those with kernels


@dataclass(frozen=True, slots=True)
class Model:
    """A model ready to be lowered, costed or run by the reference executor. `program` is not fused yet.

    `metadata` is that of a GGUF file, empty for a directory. `unused_tensors` are stored but no part of the model, such
    as those of layers beyond its last. `warnings` say what was decided where a model contradicts itself.
    """

    config: ModelConfig
    program: Program
    source: "Source"
    unused_tensors: tuple[str, ...]
    metadata: Mapping[str, MetadataValue]
    warnings: tuple[str, ...] = ()


def check_weights(program: Program, config: ModelConfig, source: "Source") -> None:
    """Raises ModelFileError for a weight that is missing or of another shape, UnsupportedModelError for its type."""
    for weight in program.weights.values():
        _check(weight, config, source)


def _check(weight: Weight, config: ModelConfig, source: "Source") -> None:
    info = source.tensors.get(weight.name)
    if info is None:
        raise ModelFileError(f"tensor {weight.name!r} is missing")
    if info.shape != weight.shape:
        raise ModelFileError(
            f"tensor {weight.name!r} has shape {list(info.shape)}; the {config.architecture} model of these"
            f" metadata needs {list(weight.shape)}"
        )
    is_matrix = len(weight.shape) > 1 and not weight.name.endswith(".bias")
    is_order = weight.name.endswith(".input_order")
    supported = MATRIX_TYPES if is_matrix else (TensorType.I32,) if is_order else (TensorType.F32,)
    if info.type not in supported:
        names = ", ".join(kind.name for kind in supported if kind.is_in_gguf)
        raise UnsupportedModelError(f"tensor {weight.name!r} has type {info.type.name}; supported here: {names}")
