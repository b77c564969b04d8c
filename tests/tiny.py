"""Tiny random models as real GGUF files, tokenizer and chat template included. Owns test data only.

Everything follows from the fields of `TinyModel`, the seed among them; nothing is read or fetched. Values are scaled
so that logits spread over a few units and greedy tokens do not settle on one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
PRE_TOKENIZERS = {"llama": "smollm", "qwen2": "qwen2"}
_LETTERS = "etaoinshrdlcumwfgypbvkjxqz"


@dataclass(frozen=True)
class TinyModel:
    """Sizes and storage of a random model.

    `types` is one tensor type for all matrices, or a mapping from a tensor's last name ("token_embd", "attn_v",
    "ffn_down", "output") to its type, with "default" for the rest. K-quants need dim and ffn_dim to be multiples of
    256. Vectors (norms, biases, RoPE factors) are always F32.
    """

    arch: str = "llama"
    types: str | Mapping[str, str] = "F32"
    seed: int = 0
    dim: int = 64
    num_layers: int = 2
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int | None = None
    ffn_dim: int | None = None
    vocab: int = 320
    tied: bool = True
    context: int = 2048
    qkv_bias: bool | None = None
    rope_base: float = 10000.0
    rope_factors: bool = False
    metadata: Mapping[str, float | str] = field(default_factory=dict)
    template: str = CHAT_TEMPLATE

    @property
    def size_of_head(self) -> int:
        return self.dim // self.num_heads if self.head_dim is None else self.head_dim

    @property
    def size_of_ffn(self) -> int:
        return 2 * self.dim if self.ffn_dim is None else self.ffn_dim

    @property
    def has_qkv_bias(self) -> bool:
        return self.arch == "qwen2" if self.qkv_bias is None else self.qkv_bias

    def type_of(self, name: str) -> gguf.GGMLQuantizationType:
        if isinstance(self.types, str):
            return gguf.GGMLQuantizationType[self.types]
        last = name.removesuffix(".weight").rpartition(".")[2]
        return gguf.GGMLQuantizationType[self.types.get(last, self.types.get("default", "F32"))]


def write_tiny_gguf(path: str | Path, arch: str = "llama", **fields: object) -> Path:
    """Write a `TinyModel(arch, **fields)` to `path` and return the path."""
    model = TinyModel(arch=arch, **fields)  # type: ignore[arg-type]
    writer = gguf.GGUFWriter(str(path), arch)
    write_sizes(writer, model)
    write_tokenizer(writer, model)
    rng = np.random.default_rng(model.seed)
    for name, shape, scale in _tensors(model):
        if len(shape) == 1:
            writer.add_tensor(name, _vector(name, shape[0], scale, rng))
        else:
            kind = model.type_of(name)
            writer.add_tensor(name, packed_matrix(kind, shape, scale, rng), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return Path(path)


def tiny_vocabulary(size: int) -> tuple[list[str], list[str]]:
    """A byte-level BPE of `size` tokens, control tokens last, and its merges in order of priority."""
    alphabet = _byte_alphabet()
    num_merges = size - len(alphabet) - len(CONTROL_TOKENS)
    pairs = list(islice(_merge_pairs(), max(0, num_merges)))
    if len(pairs) != num_merges:
        raise ValueError(f"a tiny vocabulary has 259 to 1637 tokens, not {size}")
    return [*alphabet, *(a + b for a, b in pairs), *CONTROL_TOKENS], [f"{a} {b}" for a, b in pairs]


def _byte_alphabet() -> list[str]:
    """The printable stand-in of each byte, as GPT-2 defined it: printable Latin-1 as itself, others from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def _merge_pairs() -> Iterator[tuple[str, str]]:
    space = "\u0120"
    yield from ((space, letter) for letter in _LETTERS)
    yield from ((first, second) for first in _LETTERS for second in _LETTERS)
    yield from ((space + first, second) for first in _LETTERS for second in _LETTERS)


def write_sizes(writer: gguf.GGUFWriter, model: TinyModel) -> None:
    writer.add_name(f"Tiny {model.arch}")
    writer.add_block_count(model.num_layers)
    writer.add_context_length(model.context)
    writer.add_embedding_length(model.dim)
    writer.add_feed_forward_length(model.size_of_ffn)
    writer.add_head_count(model.num_heads)
    writer.add_head_count_kv(model.num_kv_heads)
    if model.head_dim is not None:
        writer.add_key_length(model.head_dim)
        writer.add_value_length(model.head_dim)
    writer.add_rope_freq_base(model.rope_base)
    writer.add_layer_norm_rms_eps(1e-5)
    for key, value in model.metadata.items():
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        else:
            writer.add_float32(key, value)


def write_tokenizer(writer: gguf.GGUFWriter, model: TinyModel) -> None:
    tokens, merges = tiny_vocabulary(model.vocab)
    kinds = [gguf.TokenType.NORMAL] * (len(tokens) - len(CONTROL_TOKENS))
    kinds += [gguf.TokenType.CONTROL] * len(CONTROL_TOKENS)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(PRE_TOKENIZERS.get(model.arch, "smollm"))
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(tokens.index("<|endoftext|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(model.template)


def _tensors(model: TinyModel) -> Iterator[tuple[str, tuple[int, ...], float]]:
    """Name, shape and standard deviation of every tensor."""
    dim, head, ffn = model.dim, model.size_of_head, model.size_of_ffn
    q_dim, kv_dim = model.num_heads * head, model.num_kv_heads * head
    table = (model.vocab, dim)
    yield "token_embd.weight", table, 3 * dim**-0.5
    for layer in range(model.num_layers):
        prefix = f"blk.{layer}."
        yield f"{prefix}attn_norm.weight", (dim,), 0.1
        for name, rows in (("attn_q", q_dim), ("attn_k", kv_dim), ("attn_v", kv_dim)):
            yield f"{prefix}{name}.weight", (rows, dim), 1.5 * dim**-0.5
            if model.has_qkv_bias:
                yield f"{prefix}{name}.bias", (rows,), 0.5
        yield f"{prefix}attn_output.weight", (dim, q_dim), 2 * q_dim**-0.5
        yield f"{prefix}ffn_norm.weight", (dim,), 0.1
        yield f"{prefix}ffn_gate.weight", (ffn, dim), 1.5 * dim**-0.5
        yield f"{prefix}ffn_up.weight", (ffn, dim), 1.5 * dim**-0.5
        yield f"{prefix}ffn_down.weight", (dim, ffn), 2 * ffn**-0.5
    yield "output_norm.weight", (dim,), 0.1
    if not model.tied:
        yield "output.weight", table, 3 * dim**-0.5
    if model.rope_factors:
        yield "rope_freqs.weight", (head // 2,), 1.0


def _vector(name: str, size: int, scale: float, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    if name == "rope_freqs.weight":
        return np.linspace(1, 8, size, dtype=np.float32)
    centre = 1.0 if name.endswith("norm.weight") else 0.0
    return (centre + scale * rng.standard_normal(size)).astype(np.float32)


def packed_matrix(
    kind: gguf.GGMLQuantizationType, shape: tuple[int, ...], scale: float, rng: np.random.Generator
) -> npt.NDArray[np.generic]:
    """A random matrix of standard deviation `scale`: quantised, or for K-quants random blocks (rows, row_bytes)."""
    if kind in (gguf.GGMLQuantizationType.Q4_K, gguf.GGMLQuantizationType.Q6_K):
        rows, columns = shape
        if columns % 256:
            raise ValueError(f"{kind.name} needs rows of a multiple of 256 values, not {columns}")
        blocks = _q4_k if kind is gguf.GGMLQuantizationType.Q4_K else _q6_k
        return blocks(rows * columns // 256, scale, rng).reshape(rows, -1)
    values = (scale * rng.standard_normal(shape)).astype(np.float32)
    return gguf.quants.quantize(values, kind)


def _halves(values: npt.NDArray[np.float64]) -> npt.NDArray[np.uint8]:
    return values.astype(np.float16)[:, None].view(np.uint8)


def _q4_k(count: int, scale: float, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    # Scales and minimums of 6 bits and quants of 4 are uniform: d * s * q - 7.5 * d * m has mean 0 and deviation 258 d.
    d = scale / 258 * rng.uniform(0.8, 1.2, count)
    rest = rng.integers(0, 256, (count, 140), np.uint8)
    return np.concatenate((_halves(d), _halves(7.5 * d), rest), axis=1)


def _q6_k(count: int, scale: float, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    # d * s * (q - 32) with s uniform in -64 .. 63 and q of 6 bits has deviation 683 d.
    d = scale / 683 * rng.uniform(0.8, 1.2, count)
    quants = rng.integers(0, 256, (count, 192), np.uint8)
    scales = rng.integers(-64, 64, (count, 16), np.int8).view(np.uint8)
    return np.concatenate((quants, scales, _halves(d)), axis=1)
