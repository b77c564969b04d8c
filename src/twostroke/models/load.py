"""A model opened and understood: config, program, weights. Owns the way there from a GGUF file, and which way is taken.

Only headers are read; a tensor's bytes are read when they are used.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from twostroke.errors import TwostrokeError, UnsupportedModelError
from twostroke.models.config import ModelConfig
from twostroke.models.fused import parts_of
from twostroke.models.gguf_config import architecture, config_from_gguf
from twostroke.models.model import MATRIX_TYPES, Model, check_weights
from twostroke.models.parts import PartSource
from twostroke.models.registry import build_program, family_of
from twostroke.weights.gguf import GGUFFile
from twostroke.weights.source import WeightSource

__all__ = ["MATRIX_TYPES", "Model", "dequantized", "load_model", "with_parts"]


def load_model(path: str | Path, outputs: Collection[str] | None = None, *, context: int | None = None) -> Model:
    """Open a GGUF file or a Hugging Face directory; the caller closes `source`.

    `outputs` are those of `build_program`; `context` is the number of tokens that RoPE scaling is fixed for, None for
    the model's own. Raises ModelNotFoundError, ModelFileError for a damaged file or a tensor that is missing or of
    another shape, UnsupportedModelError for an architecture, tensor type or tensor that has no place in the program.
    """
    try:
        if Path(path).is_dir():
            from twostroke.models.load_directory import load_directory  # much that a GGUF file does without

            return load_directory(Path(path), outputs, context)
        return _load_gguf(Path(path), outputs, context)
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
    from twostroke.weights.dequantize import dequantize  # every packing, in NumPy: no run needs one

    def weights(name: str) -> npt.NDArray[np.float32]:
        info = source.info(name)
        return dequantize(source.data(name), info.type, info.shape)

    return weights


def _load_gguf(path: Path, outputs: Collection[str] | None, context: int | None) -> Model:
    file = GGUFFile.open(path)
    try:
        family_of(architecture(file.metadata))  # first, so that an unknown one is named rather than its keys
        config = config_from_gguf(file.metadata, {name: info.shape for name, info in file.tensors.items()})
        program = build_program(replace(config, rope_context=context), outputs)
        source, parts = with_parts(file, config), parts_of(config, file.tensors)
        check_weights(program, config, source)
        used = {parts[name].tensor if name in parts else name for name in program.weights}
        unused = tuple(name for name in file.names if name not in used)
        for name in unused:
            if _in_a_layer(name, config.num_layers):
                raise UnsupportedModelError(f"tensor {name!r} has no place in a {config.architecture} model")
        return Model(config, program, source, unused, file.metadata)
    except BaseException:
        file.close()
        raise


def _in_a_layer(name: str, num_layers: int) -> bool:
    """Whether the name is of a layer that the program runs, which would compute something else without the tensor."""
    parts = name.split(".")
    return parts[0] == "blk" and len(parts) > 2 and parts[1].isdecimal() and int(parts[1]) < num_layers
