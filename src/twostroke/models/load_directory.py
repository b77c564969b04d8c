"""A Hugging Face directory opened and understood. Apart from `load`, which runs of GGUF files need alone."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np

from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.models.config import ModelConfig
from twostroke.models.fused import parts_of
from twostroke.models.hf_config import config_from_hf, model_type
from twostroke.models.hf_families import own_parts
from twostroke.models.hf_names import CheckpointNames, fused_names, has_separate_experts
from twostroke.models.hf_text import passed_over
from twostroke.models.model import Model, check_weights
from twostroke.models.parts import PartSource
from twostroke.models.registry import build_program
from twostroke.program.input_order import reorder_inputs
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.checkpoint_weights import CheckpointWeights

_PACKED_EXPERTS = ".gate_up_proj_blocks"  # of gpt-oss in MXFP4


def load_directory(path: Path, outputs: Collection[str] | None, context: int | None) -> Model:
    """As `load.load_model`, of a directory."""
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
        check_weights(program, config, source)
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
