"""`twostroke inspect`: every figure against another source of it, and models that cannot run."""

import json
import math
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import pytest
from tests.cli.command_line import invoke, json_of, output_of
from tests.golden_families import FOLDER
from tests.models.test_hf_text import write_wrapped
from tests.tiny import write_tiny_gguf
from tests.tiny_directory import write_tiny_directory
from tests.tiny_families import write_tiny_family
from tests.weights.gguf_writer import sound_file

from twostroke.cli.inspection import Inspection
from twostroke.errors import (
    ChatTemplateError,
    ContextLengthError,
    ModelFileError,
    ModelNotFoundError,
    UnsupportedModelError,
)
from twostroke.models.load import load_model
from twostroke.program.cost import ChunkShape, CostModel, Storage
from twostroke.program.passes import fuse

GOLDEN = Path(__file__).parents[1] / "golden/smollm2-135m-instruct-q4_1.json"
COSTS = ("flops", "weight_bytes", "kv_bytes", "activation_bytes")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    types = {"attn_v": "Q8_0", "default": "Q4_1"}
    return str(write_tiny_gguf(path, types=types, metadata={"general.description": "red\x1b[31m\nand more"}))


def test_figures_are_those_of_the_gguf_library(tiny: str) -> None:
    shown = json_of("inspect", tiny, "--tensors")
    reader = gguf.GGUFReader(tiny)
    assert [(t["name"], t["type"], t["shape"], t["bytes"], t["offset"]) for t in shown["tensors"]] == [
        (t.name, t.tensor_type.name, t.shape.tolist()[::-1], t.n_bytes, t.data_offset) for t in reader.tensors
    ]
    assert shown["parameters"] == sum(t.n_elements for t in reader.tensors)
    assert set(shown["metadata"]) == {key for key in reader.fields if not key.startswith("GGUF.")}
    by_type = {row["type"]: row for row in shown["tensor_types"]}
    assert set(by_type) == {"F32", "Q4_1", "Q8_0"}
    for name, row in by_type.items():
        tensors = [t for t in reader.tensors if t.tensor_type.name == name]
        parameters, num_bytes = sum(t.n_elements for t in tensors), sum(t.n_bytes for t in tensors)
        assert (row["count"], row["parameters"], row["bytes"]) == (len(tensors), parameters, num_bytes)
    assert [by_type[name]["bits_per_weight"] for name in ("F32", "Q4_1", "Q8_0")] == [32, 5, 8.5]
    assert math.isclose(sum(row["share"] for row in by_type.values()), 1)


def test_overview(tiny: str) -> None:
    shown = json_of("inspect", tiny)
    assert (shown["model"], shown["path"], shown["bytes"]) == (tiny, tiny, Path(tiny).stat().st_size)
    assert (shown["architecture"], shown["context_length"]) == ("llama", 2048)
    assert (shown["runs"], shown["reasons"]) == (True, [])
    assert shown["kv_bytes_per_token"] == 2 * 2 * 2 * 16 * 2  # layers, keys and values, KV heads, head_dim, bytes
    assert shown["metadata"]["tokenizer.ggml.tokens"]["length"] == 320
    assert len(shown["metadata"]["tokenizer.ggml.tokens"]["first"]) == 4
    assert not {"tensors", "prompt", "program"} & set(shown)


def test_text_is_safe_to_print_and_says_the_same(tiny: str) -> None:
    text = output_of("inspect", tiny, "--tensors", "--prompt", "hé", "--program")
    assert "\x1b" not in text and r"red\x1b[31m\nand more" in text
    assert "tokenizer.ggml.tokens" in text and "320 items: " in text
    assert "blk.1.attn_v.weight" in text and "cannot run" not in text
    assert max(map(len, text.split("\n\n")[0].splitlines())) < 200


def test_a_prompt_as_the_model_sees_it(tiny: str) -> None:
    prompt = json_of("inspect", tiny, "--prompt", "é<|im_end|>", "--system", "Be brief.")["prompt"]
    text = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\né<|im_end|><|im_end|>\n<|im_start|>assistant\n"
    assert prompt["text"] == text
    assert [token["id"] for token in prompt["tokens"]] == prompt["ids"]
    texts = [token["text"] for token in prompt["tokens"]]
    assert texts.count("<|im_end|>") == 2  # the user's own is plain text
    assert [part for part in texts if part.startswith("\\x")] == ["\\xc3", "\\xa9"]  # one é, two tokens
    raw = json_of("inspect", tiny, "--prompt", "abc", "--raw")["prompt"]
    assert raw["text"] == "abc" == "".join(token["text"] for token in raw["tokens"])


def test_prompts_of_the_oracle(smollm2_path: Path) -> None:
    checked = 0
    for chat in json.loads(GOLDEN.read_text("utf-8"))["chats"]:
        by_role = {message["role"]: message["content"] for message in chat["messages"]}
        if len(chat["messages"]) == len(by_role) and set(by_role) <= {"system", "user"}:
            system = ["--system", by_role["system"]] if "system" in by_role else []
            prompt = json_of("inspect", str(smollm2_path), "--prompt", by_role["user"], *system)["prompt"]
            assert prompt["ids"] == chat["ids"]
            checked += 1
    assert checked >= 2


@pytest.mark.parametrize("form", ["fused", "unfused"])
def test_costs_of_ops_add_up_to_those_of_the_program(tiny: str, form: str) -> None:
    program = json_of("inspect", tiny, "--program", "--tokens", "40", f"--{form}")["program"]
    model = load_model(tiny)
    storage = Storage({name: info.type.bits_per_weight for name, info in model.source.tensors.items()})
    expected = fuse(model.program) if form == "fused" else model.program
    model.source.close()
    assert [op["op"] for op in program["ops"]] == [op.kind for op in expected.ops]
    assert (program["fused"], program["tokens"]) == (form == "fused", 40)
    cost = CostModel(expected, storage)
    for phase, chunk in (("decode", ChunkShape(40, 1, 1)), ("prefill", ChunkShape(0, 40, 1))):
        whole = cost.step([chunk])
        for name in COSTS:
            assert program[phase][name] == getattr(whole, name) > 0
            assert math.isclose(sum(op[phase][name] for op in program["ops"]), program[phase][name])


def test_shapes_of_the_program(tiny: str) -> None:
    ops = json_of("inspect", tiny, "--program", "--unfused")["program"]["ops"]
    assert ops[0]["op"] == "embed" and ops[0]["weights"] == [{"name": "token_embd.weight", "shape": [320, 64]}]
    assert ops[-1]["outputs"][0]["dim"] == 320 and ops[-1]["outputs"][0]["rows"] == "outputs"
    k = next(op for op in ops if op["weights"] and op["weights"][0]["name"] == "blk.0.attn_k.weight")
    assert k["decode"]["flops"] == 2 * 32 * 64 and k["decode"]["weight_bytes"] == 32 * 64 * 5 / 8
    assert k["prefill"]["flops"] == 512 * k["decode"]["flops"]
    lines = output_of("inspect", tiny, "--program", "--unfused").splitlines()
    shown = lines[lines.index("program, unfused: prefill of 512 tokens, then a decode step") :]
    of_second_layer = sum(op["outputs"][0]["name"].startswith("blk.1.") for op in ops)
    assert len(shown) == len(ops) - of_second_layer + 5  # two headings, the layer's and that of those alike, the total
    assert max(map(len, shown)) < 120


def test_layers_that_are_alike_are_shown_once(tmp_path: Path) -> None:
    """Windows alternate in this family; the lines add up."""
    path = write_tiny_family(tmp_path / "m.gguf", "gemma2", num_layers=6)
    text = output_of("inspect", str(path), "--program", "--tokens", "100")
    assert [line.strip() for line in text.splitlines() if line.strip().startswith("layer ")] == ["layer 0", "layer 1"]
    assert "layers 2, 4, as layer 0" in text and "layers 3, 5, as layer 1" in text


def test_an_unknown_architecture_is_shown_and_named(tmp_path: Path) -> None:
    path = str(write_tiny_gguf(tmp_path / "m.gguf", arch="mamba"))
    shown = json_of("inspect", path, "--tensors")
    assert (shown["runs"], shown["kv_bytes_per_token"], shown["context_length"]) == (False, None, 2048)
    assert len(shown["reasons"]) == 1 and "architecture 'mamba' is not supported" in shown["reasons"][0]
    assert shown["parameters"] > 0 and len(shown["tensors"]) > 10
    assert "cannot run" in output_of("inspect", path)
    error = invoke("inspect", path, "--program").exception
    assert isinstance(error, UnsupportedModelError) and "mamba" in str(error)


def test_an_unsupported_tensor_type_is_shown_and_named(tmp_path: Path) -> None:
    name, path = b"blk.0.ffn_down.weight", write_tiny_gguf(tmp_path / "m.gguf", types="F32")
    content = bytearray(path.read_bytes())
    at = content.index(name) + len(name) + 4 + 2 * 8  # past the number of dimensions and two of them
    content[at : at + 4] = struct.pack("<I", gguf.GGMLQuantizationType.I32)  # as large as F32
    path.write_bytes(content)
    shown = json_of("inspect", str(path), "--program")
    assert not shown["runs"]
    (reason,) = shown["reasons"]
    assert name.decode() in reason and "I32" in reason
    assert {row["type"]: row["count"] for row in shown["tensor_types"]}["I32"] == 1
    assert shown["program"]["decode"]["flops"] > 0  # the program needs no kernels


def test_every_reason_is_given(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(sound_file()[0])
    shown: dict[str, Any] = json_of("inspect", str(path))
    assert not shown["runs"] and len(shown["reasons"]) == 2
    assert "llama.embedding_length" in shown["reasons"][0] and "tokenizer.ggml.model" in shown["reasons"][1]
    assert shown["metadata"]["flags"] == [False, True, True] and shown["metadata"]["zeros"] == ["a\0b", "\0", "é"]


def test_errors_and_bad_usage(tiny: str, tmp_path: Path) -> None:
    assert isinstance(invoke("inspect", str(tmp_path / "none.gguf")).exception, ModelNotFoundError)
    error = invoke("inspect", tiny, "--program", "--tokens", "2048").exception
    assert isinstance(error, ContextLengthError) and str(error).count("2048") == 2
    for flags in (["--raw"], ["--system", "x"], ["--program", "--tokens", "0"]):
        assert invoke("inspect", tiny, *flags).exit_code == 2
    (tmp_path / "no_tokenizer.gguf").write_bytes(sound_file()[0])
    error = invoke("inspect", str(tmp_path / "no_tokenizer.gguf"), "--prompt", "x").exception
    assert isinstance(error, ModelFileError) and "tokenizer.ggml.model is missing" in str(error)


def test_a_model_without_a_template_needs_raw(tiny: str, tmp_path: Path) -> None:
    content = Path(tiny).read_bytes().replace(b"tokenizer.chat_template", b"tokenizer.chat_templatf")
    path = tmp_path / "base.gguf"
    path.write_bytes(content)
    assert isinstance(invoke("inspect", str(path), "--prompt", "x").exception, ChatTemplateError)
    assert json_of("inspect", str(path), "--prompt", "x", "--raw")["prompt"]["ids"]


def test_smollm2_without_the_native_core(smollm2_path: Path) -> None:
    """What makes it quick: no kernels, no packing, none of the packages that take long to import."""
    code = "import sys; from twostroke.cli.inspect import command; command.main(sys.argv[1:], standalone_mode=False)"
    heavy = "print(*[name for name in ('twostroke.native._core', 'jinja2', 'rich', 'gguf') if name in sys.modules])"
    command = [sys.executable, "-c", f"{code}\n{heavy}", str(smollm2_path), "--program", "--json"]
    first, second = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    shown = json.loads(first)
    assert second == ""
    assert (shown["parameters"], shown["kv_bytes_per_token"], shown["runs"]) == (134_515_008, 23_040, True)
    assert {row["type"]: row["count"] for row in shown["tensor_types"]} == {"Q4_1": 210, "Q8_0": 1, "F32": 61}


@pytest.mark.parametrize("family", ["phi3", "qwen3moe"])
def test_a_program_whose_tensors_are_fused_or_stacked(family: str, tmp_path: Path) -> None:
    found = Inspection.of(write_tiny_family(tmp_path / "tiny.gguf", family))
    assert found.reasons == ()
    report = found.report_program(10, fused=True)
    assert report.decode.weight_bytes > 0


def test_a_directory_is_shown_as_it_is_stored(tiny: str, tmp_path: Path) -> None:
    file = write_tiny_gguf(tmp_path / "tiny.gguf", "qwen2")
    path = write_tiny_directory(tmp_path / "model", file)
    shown = json_of("inspect", str(path), "--tensors", "--prompt", "tea", "--program")
    same = json_of("inspect", str(file), "--prompt", "tea", "--program")
    for key in ("architecture", "parameters", "context_length", "kv_bytes_per_token", "runs", "reasons", "prompt"):
        assert shown[key] == same[key], key
    assert shown["program"]["decode"] == same["program"]["decode"]
    assert shown["metadata"]["hidden_size"] == 64
    names = {tensor["name"]: tensor for tensor in shown["tensors"]}
    embedding = names["model.embed_tokens.weight"]
    assert (embedding["type"], embedding["shape"], embedding["bytes"]) == ("F32", [320, 64], 4 * 320 * 64)
    text = output_of("inspect", str(path))
    assert "qwen2" in text and "cannot run" not in text


def test_a_family_that_is_only_planned_is_shown_and_says_what_it_needs() -> None:
    path = str(FOLDER / "qwen3next")
    shown = json_of("inspect", path, "--program", "--tokens", "10")
    assert not shown["runs"]
    assert "the gated delta rule" in shown["reasons"][0]
    assert shown["kv_bytes_per_token"] == 2 * 1 * 16 * 2  # keys and values, KV heads, head_dim, bytes; of one layer
    states = 4 * 8 * 6 + 3 * (2 * 2 * 8 + 4 * 6)  # matrices of four value heads, three rows of all channels
    assert shown["state_bytes"] == 3 * states * 4
    assert shown["program"]["decode"]["kv_bytes"] == (1 + 11) * 64 + 2 * shown["state_bytes"]
    text = output_of("inspect", path)
    assert f"state         {3 * states * 4 / 1024:.2f} KiB a request" in text
    assert "'rope_type': 'default'" in text


def test_a_directory_that_cannot_run_says_why(tmp_path: Path) -> None:
    file = write_tiny_gguf(tmp_path / "tiny.gguf", "qwen2")
    changes = {"tokenizer.json": None, "config.json": {"model_type": "mamba2"}}
    shown = json_of("inspect", str(write_tiny_directory(tmp_path / "model", file, files=changes)))
    assert (shown["runs"], shown["architecture"]) == (False, "mamba2")
    first, second = shown["reasons"]
    assert "mamba2" in first and "tokenizer.json is missing" in second


def test_what_loading_would_warn_of_is_shown(tmp_path: Path) -> None:
    folder = write_wrapped(tmp_path, "gemma3", "gemma3", "language_model.model.", "lm_head", "vision_tower.a.weight")
    note = "gemma3 runs as a text model; tensors passed over: 1 of vision_tower"
    assert json_of("inspect", str(folder))["warnings"] == [note]
    assert f"note          {note}" in output_of("inspect", str(folder))
