"""`twostroke quantize` and `--weights`: the file and the model in memory are the same; what is refused."""

import json
from pathlib import Path

import gguf
import pytest
from tests.cli.command_line import invoke, json_of, output_of
from tests.tiny import write_tiny_gguf
from tests.tiny_directory import write_tiny_directory

from twostroke import LLM
from twostroke.errors import ConfigError, InvalidRequestError, ModelFileError
from twostroke.llm.config import FILE_TYPES
from twostroke.weights.fetch import resolve

GOLDEN = Path(__file__).parents[1] / "golden/smollm2-135m-instruct-q4_1.json"
IDS = list(range(20, 60))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "m.gguf"
    return write_tiny_gguf(path, "qwen2", dim=256, ffn_dim=320, num_layers=1, types={"default": "F16", "attn_v": "F32"})


@pytest.mark.parametrize("kind", FILE_TYPES)
def test_the_file_is_the_model_that_is_quantised_at_load(model: Path, tmp_path: Path, kind: str) -> None:
    out = tmp_path / "out.gguf"
    fields = json_of("quantize", str(model), str(out), "--type", kind)
    types = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(out).tensors}
    assert fields["tensor_types"] == {name: list(types.values()).count(name) for name in set(types.values())}
    assert (fields["path"], fields["bytes"]) == (str(out), out.stat().st_size)
    assert types["blk.0.attn_q.weight"] == types["blk.0.attn_v.weight"] == kind.upper()
    assert types["blk.0.attn_norm.weight"] == types["blk.0.attn_q.bias"] == "F32"
    down = {"q4_k": "Q5_0", "q5_k": "Q5_1", "q6_k": "Q8_0"}.get(kind)  # rows of 320 are no blocks of 256
    named = [{"tensor": "blk.0.ffn_down.weight", "row": 320, "type": down}] if down else []
    assert fields["fallbacks"] == named
    assert not list(tmp_path.glob("*.part"))
    with LLM(out, threads=1) as file, LLM(model, threads=1, weights=kind) as loaded, LLM(model, threads=1) as plain:
        assert file.weight_bytes == loaded.weight_bytes
        assert file.score(IDS).logprobs == loaded.score(IDS).logprobs
        assert file.tokenizer.encode("tea, 12") == plain.tokenizer.encode("tea, 12")
        assert file.score(IDS).mean_nll == pytest.approx(plain.score(IDS).mean_nll, rel=0.08)
        if kind not in ("f16", "bf16"):
            assert file.weight_bytes < plain.weight_bytes


def test_the_report_names_rule_and_fallback(model: Path, tmp_path: Path) -> None:
    text = output_of("quantize", str(model), str(tmp_path / "out.gguf"), "--type", "q4_k")
    assert "Q4_K" in text and "Q6_K" in text  # the tied embedding makes the logits
    assert "fallback: Q5_0 for 1 matrix whose rows of 320 values are no whole blocks of 256: blk.0.ffn_down" in text
    assert "at least Q6_K" in output_of("quantize", "--help")


def test_a_file_that_exists_is_kept(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    out.write_bytes(b"mine")
    with pytest.raises(InvalidRequestError, match="exists; --force replaces it"):
        output_of("quantize", str(model), str(out), "--type", "q8_0")
    assert out.read_bytes() == b"mine"
    output_of("quantize", str(model), str(out), "--type", "q8_0", "--force")
    output_of("quantize", str(out), str(out), "--type", "q4_0", "--force")  # onto itself
    assert {tensor.tensor_type.name for tensor in gguf.GGUFReader(out).tensors} == {"F32", "Q4_0", "Q6_K"}


def test_nothing_is_left_of_what_fails(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="No such file or directory"):
        output_of("quantize", str(model), str(tmp_path / "absent" / "out.gguf"), "--type", "q8_0")
    wide = write_tiny_gguf(tmp_path / "wide.gguf", "qwen2")
    with wide.open("r+b") as file:
        reader = gguf.GGUFReader(wide)
        tensor = next(tensor for tensor in reader.tensors if tensor.name == "blk.1.ffn_down.weight")
        file.seek(int(tensor.data_offset))
        file.write(b"\x00\x00\x80\x7f")  # infinity
    with pytest.raises(ModelFileError, match=r"blk\.1\.ffn_down\.weight.*not finite"):
        output_of("quantize", str(wide), str(tmp_path / "out.gguf"), "--type", "q8_0")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["wide.gguf"]


def test_what_cannot_be_quantised_is_refused_by_name(model: Path, tmp_path: Path) -> None:
    assert invoke("quantize", str(model), str(tmp_path / "out.gguf"), "--type", "q3_x").exit_code == 2
    with pytest.raises(ConfigError, match=r"weights must be one of q4_0, .*, not 'q3_x'"):
        LLM(model, weights="q3_x")


def test_a_directory_is_written_with_its_tokenizer_and_template(tmp_path: Path) -> None:
    """In its own type the file is the same model: same ids, same prompt, same tokens."""
    folder = write_tiny_directory(
        tmp_path / "folder",
        write_tiny_gguf(tmp_path / "t.gguf", "qwen2"),
        in_bf16=True,
        files={"tokenizer.json": {"normalizer": {"type": "NFC"}}, "tokenizer_config.json": {}},
    )
    out = tmp_path / "out.gguf"
    output_of("quantize", str(folder), str(out), "--type", "bf16")
    reader = gguf.GGUFReader(out)
    assert reader.fields["general.name"].contents() == "folder"
    assert reader.fields["tokenizer.ggml.pre"].contents() == "qwen2"
    with LLM(folder, threads=1) as source, LLM(out, threads=1) as written:
        prompt = source.render([{"role": "user", "content": "tea & 12 cups"}])
        assert written.render([{"role": "user", "content": "tea & 12 cups"}]) == prompt
        assert written.tokenizer.eos_ids == source.tokenizer.eos_ids
        assert written.score(IDS).logprobs == source.score(IDS).logprobs
        answers = [llm.generate(prompt.ids, temperature=0, max_tokens=12).token_ids for llm in (source, written)]
        assert answers[0] == answers[1]


def test_a_file_that_grows_is_warned_of(model: Path, tmp_path: Path) -> None:
    small = tmp_path / "small.gguf"
    assert "warning" not in invoke("quantize", str(model), str(small), "--type", "q4_0").stderr
    result = invoke("quantize", str(small), str(tmp_path / "big.gguf"), "--type", "q8_0")
    assert "warning: " in result.stderr and "does not bring back what a narrower one lost" in result.stderr


def test_weights_of_a_directory(tmp_path: Path) -> None:
    tiny = write_tiny_gguf(tmp_path / "tiny.gguf", "qwen2")
    folder = write_tiny_directory(tmp_path / "folder", tiny)
    with LLM(folder, threads=1, weights="q8_0") as found, LLM(tiny, threads=1, weights="q8_0") as expected:
        assert found.weight_bytes == expected.weight_bytes < 0.3 * tiny.stat().st_size
        assert found.score(IDS).logprobs == expected.score(IDS).logprobs


def test_fallbacks_at_load_are_told(model: Path) -> None:
    result = invoke("eval", str(model), "--text", "a cup of tea", "--weights", "q4_k")
    first, second = result.stderr.splitlines()
    assert first == "quantising matrices to q4_k as they load"
    assert second == "warning: weights q4_k: 1 as Q5_0 instead, as the rows of these matrices are no whole blocks"
    assert invoke("eval", str(model), "--text", "a cup of tea", "--weights", "q8_0").stderr.count("\n") == 1


def test_run_and_eval_take_it(model: Path) -> None:
    run = json_of("run", str(model), "tea", "--weights", "q4_0", "--no-probe", "--max-tokens", "2", text="")
    evaluated = json_of("eval", str(model), "--text", "a cup of tea", "--weights", "q4_0")
    with LLM(model, weights="q4_0") as llm:
        assert run["memory"]["weight_bytes"] == llm.weight_bytes
        assert evaluated["mean_nll"] == pytest.approx(llm.score("a cup of tea").mean_nll)


def test_a_real_model_stays_close(smollm2_path: Path, tmp_path: Path) -> None:
    """SmolLM2 to Q8_0: its perplexity moves by less than 0.2 percent, as generated rows, whose inputs have 16 bits."""
    assert resolve("smollm2") == smollm2_path
    text = json.loads(GOLDEN.read_text("utf-8"))["passage"]["text"]
    plain = json_of("eval", "smollm2", "--text", text, "--phase", "decode")
    found = json_of("eval", "smollm2", "--text", text, "--phase", "decode", "--weights", "q8_0")
    assert found["perplexity"] == pytest.approx(plain["perplexity"], rel=2e-3)
