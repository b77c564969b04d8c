"""Quantised Hugging Face directories end to end: GPTQ in activation order and MXFP4 experts, against plain values."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.native.in_memory import chunk, native, run
from tests.weights.hf_directory import Tensor, bf16, write_directory
from tests.weights.quantized_directory import GPTQ, Linear, gptq

from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.models.load import dequantized, load_model
from twostroke.native.executor import available_isas
from twostroke.native.footprint import footprint
from twostroke.program.ops import Reorder
from twostroke.program.passes import fuse
from twostroke.program.reference import ReferenceExecutor
from twostroke.weights.dequantize import dequantize
from twostroke.weights.tensor_types import TensorType

IDS = np.random.default_rng(4).integers(0, 96, 21)
DIM, FFN, LAYERS = 64, 128, 2
LLAMA = {
    "model_type": "llama",
    "hidden_size": DIM,
    "intermediate_size": FFN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 96,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
}
GPT_OSS = Path(__file__).parents[1] / "golden" / "families" / "gpt-oss"
Logits = npt.NDArray[np.floating]


def logits_of(path: Path) -> Logits:
    """Of every row, by the reference executor in float64 from the program as it runs."""
    model = load_model(path)
    executor = ReferenceExecutor(fuse(model.program), dequantized(model.source), np.float64)
    logits = executor.forward(executor.new_state(), IDS)["logits"]
    model.source.close()
    return logits


def native_logits_of(path: Path, isa: str) -> Logits:
    model = load_model(path)
    executor = native(model.program, model.source, isa, kv_type="f32", max_context=64)
    logits = np.concatenate([run(executor, chunk(IDS[:9]))[1], run(executor, chunk(IDS[9:], start=9))[1]])
    model.source.close()
    return logits


def write_llama(path: Path, *, activation_order: bool) -> tuple[Path, Path]:
    """A llama of GPTQ linears, and the same with their plain values; q, k and v share an order, as their inputs do."""
    rng = np.random.default_rng(8)
    plain: dict[str, Tensor] = {
        "model.embed_tokens.weight": rng.normal(size=(96, DIM)).astype(np.float32),
        "lm_head.weight": rng.normal(size=(96, DIM)).astype(np.float32),
        "model.norm.weight": np.ones(DIM, np.float32),
    }
    packed = dict(plain)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        for name in ("input_layernorm", "post_attention_layernorm"):
            plain[f"{prefix}.{name}.weight"] = packed[f"{prefix}.{name}.weight"] = np.ones(DIM, np.float32)
        sizes = {"q": (DIM, DIM), "k": (DIM // 2, DIM), "v": (DIM // 2, DIM), "o": (DIM, DIM)}
        sizes |= {"gate": (FFN, DIM), "up": (FFN, DIM), "down": (DIM, FFN)}
        shared = rng.permutation(np.arange(DIM) // 32)
        for seed, (name, (rows, cols)) in enumerate(sizes.items()):
            linear = Linear(cols, 32, seed=10 * layer + seed, rows=rows)
            linear.scales = (linear.scales * 0.02).astype(np.float16)
            if activation_order:
                linear.group_of = shared if name in "qkv" else rng.permutation(linear.group_of)
            module = f"{prefix}.{'self_attn' if name in 'qkvo' else 'mlp'}.{name}_proj"
            packed |= {f"{module}.{part}": tensor for part, tensor in gptq(linear).items()}
            plain[f"{module}.weight"] = linear.values().astype(np.float32)
    config = {**GPTQ, "group_size": 32, "desc_act": activation_order}
    return (
        write_directory(path / "gptq", {"model.safetensors": packed}, {**LLAMA, "quantization_config": config}),
        write_directory(path / "plain", {"model.safetensors": plain}, LLAMA),
    )


@pytest.mark.parametrize("activation_order", [False, True])
def test_gptq_gives_what_its_values_give(tmp_path: Path, activation_order: bool) -> None:
    quantized, plain = write_llama(tmp_path, activation_order=activation_order)
    expected = logits_of(plain)
    assert expected.std() > 0.1
    np.testing.assert_allclose(logits_of(quantized), expected, rtol=0, atol=1e-9)
    first = native_logits_of(quantized, available_isas()[-1])
    np.testing.assert_allclose(first, expected, rtol=0, atol=1e-3 * expected.std())
    for isa in available_isas():
        np.testing.assert_array_equal(native_logits_of(quantized, isa), first)


def test_inputs_are_put_in_order_once_for_q_k_and_v(tmp_path: Path) -> None:
    model = load_model(write_llama(tmp_path, activation_order=True)[0])
    orders = [op.order.name for op in fuse(model.program).ops if isinstance(op, Reorder)]
    assert len(orders) == len(set(orders)) == 5 * LAYERS  # q k v, output, gate, up, down
    executor = native(model.program, model.source, kv_type="f32", max_context=64, max_step_tokens=32)
    settings: dict[str, Any] = {"num_threads": 1, "max_context": 64, "max_step_tokens": 32, "kv_bits": 32}
    expected = footprint(fuse(model.program), model.source, **settings)
    assert executor.weight_bytes == expected.weight_bytes
    assert executor.scratch_bytes == expected.scratch_bytes
    model.source.close()


def test_stacked_experts_with_orders_of_their_own_are_refused(tmp_path: Path) -> None:
    from twostroke.weights.checkpoint import Checkpoint
    from twostroke.weights.checkpoint_weights import CheckpointWeights

    tensors: dict[str, Tensor] = {}
    for expert in range(2):
        linear = Linear(64, 32, seed=expert)
        linear.group_of = np.random.default_rng(expert).permutation(linear.group_of)
        tensors |= {f"e.{expert}.{name}": tensor for name, tensor in gptq(linear).items()}
    config = {"quantization_config": {**GPTQ, "group_size": 32, "desc_act": True}}
    write_directory(tmp_path, {"model.safetensors": tensors}, config)
    with (
        Checkpoint.open(tmp_path) as checkpoint,
        pytest.raises(UnsupportedModelError, match="stacks matrices whose inputs are in orders of their own"),
    ):
        CheckpointWeights(checkpoint, {"ffn.weight": ("e.0.weight", "e.1.weight")})


FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def mxfp4(blocks: npt.NDArray[np.uint8], scales: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """(..., rows, groups, 16) of pairs, the first value low, to (..., rows, cols): the definition, pair by pair."""
    values = np.empty((*blocks.shape[:-1], 32))
    for pair in range(16):
        values[..., 2 * pair] = FP4[blocks[..., pair] & 15]
        values[..., 2 * pair + 1] = FP4[blocks[..., pair] >> 4]
    values *= 2.0 ** (scales[..., None].astype(np.float64) - 127)
    return values.reshape(*blocks.shape[:-2], -1)


def write_gpt_oss(path: Path, spoil: Callable[[dict[str, Tensor]], object] = len) -> tuple[Path, Path]:
    """The golden model with random MXFP4 experts as OpenAI publishes it, and in 16 bits as `transformers` saves it.

    `spoil` changes the tensors of the first.
    """
    from safetensors.numpy import load_file

    rng = np.random.default_rng(2)
    plain: dict[str, Tensor] = dict(load_file(GPT_OSS / "model.safetensors"))
    for name in [name for name in plain if name.endswith("bias")]:
        plain[name] = bf16(np.asarray(plain[name]))
    packed = dict(plain)
    for name in [name for name in plain if name.endswith((".gate_up_proj", ".down_proj"))]:
        count, cols, rows = np.asarray(plain[name]).shape
        blocks = rng.integers(0, 256, (count, rows, cols // 32, 16)).astype(np.uint8)
        scales = rng.integers(120, 124, (count, rows, cols // 32)).astype(np.uint8)
        packed |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        del packed[name]
        plain[name] = bf16(np.swapaxes(mxfp4(blocks, scales), 1, 2))
    spoil(packed)
    config = json.loads((GPT_OSS / "config.json").read_text())
    quantization = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
    return (
        write_directory(path / "mxfp4", {"model.safetensors": packed}, {**config, "quantization_config": quantization}),
        write_directory(path / "bf16", {"model.safetensors": plain}, config),
    )


def test_mxfp4_experts_give_what_their_values_give(tmp_path: Path) -> None:
    packed, plain = write_gpt_oss(tmp_path)
    expected = logits_of(plain)
    np.testing.assert_allclose(logits_of(packed), expected, rtol=0, atol=1e-9)
    model = load_model(packed)
    info = model.source.info("blk.1.ffn_up_exps.weight")
    assert (info.type, info.shape) == (TensorType.MXFP4, (3, 64, 32))
    values = dequantize(model.source.data(info.name), info.type, info.shape)
    other = load_model(plain)
    np.testing.assert_array_equal(values, dequantized(other.source)(info.name))
    for source in (model.source, other.source):
        source.close()
    np.testing.assert_allclose(native_logits_of(packed, available_isas()[-1]), expected, rtol=0, atol=1e-3)


NAME = "model.layers.0.mlp.experts.down_proj"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda t: t.update({f"{NAME}_blocks": t[f"{NAME}_blocks"][..., :8]}), "not blocks of 16 bytes"),
        (lambda t: t.pop(f"{NAME}_scales"), "down_proj_scales' is missing"),
        (lambda t: t.update({f"{NAME}_scales": t[f"{NAME}_scales"][:, :4]}), "down_proj_scales' has shape"),
        (lambda t: t.pop(f"{NAME}_blocks"), "down_proj' is missing"),
    ],
)
def test_damaged_mxfp4_is_named(tmp_path: Path, spoil: Callable[[dict[str, Tensor]], object], message: str) -> None:
    packed, _ = write_gpt_oss(tmp_path, spoil)
    with pytest.raises(ModelFileError, match=message):
        load_model(packed)
