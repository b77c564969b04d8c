"""A model opened and understood: config, program, weights. Owns the check that the weights are the program's.

Only headers are read; a tensor's bytes are read when they are used.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from twostroke.errors import ModelFileError, TwostrokeError, UnsupportedModelError
from twostroke.models.config import ModelConfig
from twostroke.models.fused import parts_of
from twostroke.models.gguf_config import architecture, config_from_gguf
from twostroke.models.hf_config import config_from_hf, model_type
from twostroke.models.hf_families import own_parts
from twostroke.models.hf_names import CheckpointNames, fused_names, has_separate_experts
from twostroke.models.hf_text import passed_over
from twostroke.models.parts import PartSource
from twostroke.models.registry import build_program, family_of
from twostroke.program.input_order import reorder_inputs
from twostroke.program.program import Program
from twostroke.program.values import Weight
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.checkpoint_weights import CheckpointWeights
from twostroke.weights.dequantize import dequantize
from twostroke.weights.gguf import GGUFFile, MetadataValue
from twostroke.weights.source import WeightSource
from twostroke.weights.tensor_types import TensorType

MATRIX_TYPES = (
    *(TensorType.F32, TensorType.F16, TensorType.BF16),
    *(TensorType.Q4_0, TensorType.Q4_1, TensorType.Q5_0, TensorType.Q5_1, TensorType.Q8_0),
    *(TensorType.Q2_K, TensorType.Q3_K, TensorType.Q4_K, TensorType.Q5_K, TensorType.Q6_K),
    *(TensorType.IQ4_NL, TensorType.IQ4_XS, TensorType.MXFP4, TensorType.TQ1_0, TensorType.TQ2_0),
    *(TensorType.IQ1_S, TensorType.IQ1_M, TensorType.IQ2_XXS, TensorType.IQ2_XS, TensorType.IQ2_S),
    *(TensorType.IQ3_XXS, TensorType.IQ3_S),
    *(kind for kind in TensorType if not kind.is_in_gguf),  # the groups of quantised checkpoints
)  # those with kernels

_PACKED_EXPERTS = ".gate_up_proj_blocks"  # of gpt-oss in MXFP4

Source = GGUFFile | CheckpointWeights | PartSource


@dataclass(frozen=True, slots=True)
class Model:
    """A model ready to be lowered, costed or run by the reference executor. `program` is not fused yet.

    `metadata` is that of a GGUF file, empty for a directory. `unused_tensors` are stored but no part of the model, such
    as those of layers beyond its last. `warnings` say what was decided where a model contradicts itself.
    """

    config: ModelConfig
    program: Program
    source: Source
    unused_tensors: tuple[str, ...]
    metadata: Mapping[str, MetadataValue]
    warnings: tuple[str, ...] = ()


def load_model(path: str | Path, outputs: Collection[str] = ("logits",), *, context: int | None = None) -> Model:
    """Open a GGUF file or a Hugging Face directory; the caller closes `source`.

    `context` is the number of tokens that RoPE scaling is fixed for, None for the model's own. Raises
    ModelNotFoundError, ModelFileError for a damaged file or a tensor that is missing or of another shape,
    UnsupportedModelError for an architecture, tensor type or tensor that has no place in the program.
    """
    load = _load_directory if Path(path).is_dir() else _load_gguf
    try:
        return load(Path(path), outputs, context)
    except TwostrokeError as error:
        text = str(error)
        raise type(error)(text if text.startswith(str(path)) else f"{path}: {text}") from None


def with_parts(file: GGUFFile, config: ModelConfig) -> GGUFFile | PartSource:
    """The file's tensors under the names that programs use: itself, or where it fuses some, with their parts.

    Raises ModelFileError for a fused tensor of another shape than the configuration needs.
    """
    parts = parts_of(config, file.tensors)
    return PartSource(file, parts) if parts else file


def dequantized(source: WeightSource) -> Callable[[str], npt.NDArray[np.float32]]:
    """Weights by name as float32 arrays, for the reference executor; each call unpacks anew."""

    def weights(name: str) -> npt.NDArray[np.float32]:
        info = source.info(name)
        return dequantize(source.data(name), info.type, info.shape)

    return weights


def _load_gguf(path: Path, outputs: Collection[str], context: int | None) -> Model:
    file = GGUFFile.open(path)
    try:
        family_of(architecture(file.metadata))  # first, so that an unknown one is named rather than its keys
        config = config_from_gguf(file.metadata, {name: info.shape for name, info in file.tensors.items()})
        program = build_program(replace(config, rope_context=context), outputs)
        source, parts = with_parts(file, config), parts_of(config, file.tensors)
        _check_weights(program, config, source)
        used = {parts[name].tensor if name in parts else name for name in program.weights}
        unused = tuple(name for name in file.names if name not in used)
        for name in unused:
            if _in_a_layer(name, config.num_layers):
                raise UnsupportedModelError(f"tensor {name!r} has no place in a {config.architecture} model")
        return Model(config, program, source, unused, file.metadata)
    except BaseException:
        file.close()
        raise


def _load_directory(path: Path, outputs: Collection[str], context: int | None) -> Model:
    checkpoint = Checkpoint.open(path)
    try:
        kind = model_type(checkpoint.config)
        names = CheckpointNames.of(kind, checkpoint.tensors)
        has_head, warnings = _explicit_head(checkpoint, names)
        config = config_from_hf(checkpoint.config, explicit_head=has_head)
        _check_count(config, kind, len(checkpoint.tensors))
        program = build_program(replace(config, rope_context=context), outputs)
        transposed = not any(name.endswith(_PACKED_EXPERTS) for name in checkpoint.tensors)
        fused = tuple(fused_names(kind, config))
        parts = parts_of(config, fused, by_head=kind == "gpt_neox", transposed_experts=transposed)
        parts |= own_parts(kind, config)
        stored = dict.fromkeys(parts[name].tensor if name in parts else name for name in program.weights)
        weights = CheckpointWeights(checkpoint, names.raw(config, stored))
        source = PartSource(weights, parts) if parts else weights
        program = reorder_inputs(program, source.input_orders)
        _check_weights(program, config, source)
        for name in weights.unused:
            if not names.may_be_unused(name, config.num_layers):
                raise UnsupportedModelError(f"tensor {name!r} has no place in a {kind} model")
        warnings += passed_over(checkpoint.config, weights.unused)
        return Model(config, program, source, weights.unused, {}, warnings)
    except BaseException:
        checkpoint.close()
        raise


def _explicit_head(checkpoint: Checkpoint, names: CheckpointNames) -> tuple[bool, tuple[str, ...]]:
    """Whether logits come from an output matrix of the checkpoint's own, and a warning where it had to be decided.

    Without one they come from the embedding table, whatever the configuration says. Where the configuration ties the
    two and there is an output matrix all the same, it is used if it differs from the table.
    """
    head, table = names.head, names.table
    if head not in checkpoint.tensors or table not in checkpoint.tensors:
        return head in checkpoint.tensors, ()
    if not config_from_hf(checkpoint.config).tied_head:
        return True, ()
    if np.array_equal(checkpoint.data(head), checkpoint.data(table)):
        return False, ()
    return True, (f"config.json says that {head} is {table}, but the two differ; {head} is used",)


def _check_count(config: ModelConfig, kind: str, num_tensors: int) -> None:
    """Refuse sizes that the tensors cannot bear out, before names are made up for all of them."""
    each = 3 * config.num_experts if has_separate_experts(kind) else 1
    if (config.num_layers - len(config.dense_layers)) * max(each, 1) > num_tensors:
        experts = f" of {config.num_experts:,} experts" if each > 1 else ""
        raise ModelFileError(
            f"config.json tells of {config.num_layers:,} layers{experts}, but there are {num_tensors:,} tensors"
        )


def _check_weights(program: Program, config: ModelConfig, source: Source) -> None:
    for weight in program.weights.values():
        _check(weight, config, source)


def _check(weight: Weight, config: ModelConfig, source: Source) -> None:
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


def _in_a_layer(name: str, num_layers: int) -> bool:
    """Whether the name is of a layer that the program runs, which would compute something else without the tensor."""
    parts = name.split(".")
    return parts[0] == "blk" and len(parts) > 2 and parts[1].isdecimal() and int(parts[1]) < num_layers
