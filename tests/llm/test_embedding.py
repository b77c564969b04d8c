"""Embeddings: against the reference executor's hidden rows, and the same whatever runs beside them."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tests.tiny import write_tiny_gguf
from tests.tiny_directory import write_tiny_directory

from twostroke import LLM
from twostroke.engine.request import GenerationParams, Request
from twostroke.errors import ContextLengthError, InvalidRequestError, ModelFileError, UnsupportedModelError
from twostroke.models.load import dequantized, load_model
from twostroke.program.reference import ReferenceExecutor

TEXTS = ["tea", "a nice cup of tea in the rain, or two", "stone " * 40, "10 20 30"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "m.gguf", "qwen2", seed=5, tied=False)


@pytest.fixture(scope="module")
def llm(path: Path) -> Any:
    with LLM(path, threads=1) as llm:
        yield llm


def reference(path: Path, ids: list[int]) -> np.ndarray:
    model = load_model(path, ("hidden",))
    executor = ReferenceExecutor(model.program, dequantized(model.source), np.float64)
    rows = executor.forward(executor.new_state(), ids)["hidden"]
    model.source.close()
    return rows


@pytest.mark.parametrize("pooling", ["last", "mean"])
@pytest.mark.parametrize("normalize", [True, False])
def test_vectors_are_pooled_hidden_rows(llm: LLM, path: Path, pooling: str, normalize: bool) -> None:
    found = llm.embed(TEXTS, pooling=pooling, normalize=normalize)
    assert found.dtype == np.float32 and found.shape == (len(TEXTS), 64)
    for text, vector in zip(TEXTS, found, strict=True):
        rows = reference(path, llm.tokenizer.encode(text))
        expected = rows[-1] if pooling == "last" else rows.mean(axis=0)
        if normalize:
            assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)
            expected = expected / np.linalg.norm(expected)
        assert np.abs(vector - expected).max() < 2e-3 * np.abs(expected).max()


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_batch_and_chunks_change_no_bit(llm: LLM, path: Path, pooling: str) -> None:
    alone = np.concatenate([llm.embed(text, pooling=pooling) for text in TEXTS])
    assert np.array_equal(llm.embed(TEXTS, pooling=pooling), alone)
    with LLM(path, threads=2, max_step_tokens=7, max_batch=3) as small:
        with small.generate("a tea", temperature=0, ignore_eos=True, max_tokens=60, stream=True) as beside:
            assert next(iter(beside)) is not None
            assert np.array_equal(small.embed([*TEXTS, *TEXTS], pooling=pooling), np.concatenate([alone, alone]))
        assert small.totals("prefill").tokens > 2 * 40  # type: ignore[arg-type]


def test_answers_are_the_same_beside_embeddings(path: Path) -> None:
    with LLM(path, threads=1) as llm:
        alone = llm.generate("a tea", temperature=0, ignore_eos=True, max_tokens=30).token_ids
        stream = llm.generate("a tea", temperature=0, ignore_eos=True, max_tokens=30, stream=True)
        llm.embed(TEXTS, pooling="mean")
        for _ in stream:
            pass
        assert stream.completion.token_ids == alone


def test_without_the_output_matrix_vectors_are_the_same(llm: LLM, path: Path) -> None:
    with LLM(path, threads=1, embed_only=True) as small:
        for pooling in ("last", "mean"):
            assert np.array_equal(small.embed(TEXTS, pooling=pooling), llm.embed(TEXTS, pooling=pooling))
        assert small.weight_bytes == llm.weight_bytes - 320 * 64 * 4
        with pytest.raises(InvalidRequestError, match="loaded for embeddings only"):
            small.generate("tea")
        with pytest.raises(InvalidRequestError, match="loaded for embeddings only"):
            small.score("tea and more")


def test_in_a_context_just_long_enough(path: Path, llm: LLM) -> None:
    longest = max(len(llm.tokenizer.encode(text)) for text in TEXTS)
    with LLM(path, threads=1, context=longest, max_batch=1, max_step_tokens=16) as small:
        assert np.array_equal(small.embed(TEXTS * 3, pooling="mean"), llm.embed(TEXTS * 3, pooling="mean"))
        with pytest.raises(ContextLengthError, match=f"{longest + 1} tokens exceeds the context of {longest}"):
            small.embed([[5] * (longest + 1)])


def test_ids_and_nothing(llm: LLM) -> None:
    ids = llm.tokenizer.encode("tea")
    assert np.array_equal(llm.embed([ids]), llm.embed("tea"))
    assert llm.embed([]).shape == (0, 64)
    with pytest.raises(InvalidRequestError, match="text 1 to embed has no tokens"):
        llm.embed(["tea", ""])
    with pytest.raises(InvalidRequestError, match="pooling must be one of last and mean, not 'cls'"):
        llm.embed("tea", pooling="cls")
    with pytest.raises(ContextLengthError, match="2048"):
        llm.embed([[5] * 2049])


@pytest.mark.parametrize(
    ("params", "forced"),
    [
        ({"num_hidden": 4, "max_tokens": 0}, ()),
        ({"num_hidden": -1, "max_tokens": 0}, ()),
        ({"num_hidden": 1}, ()),
        ({"num_hidden": 1, "max_tokens": 0, "prompt_logprobs": True}, ()),
        ({"num_hidden": 1, "max_tokens": 0}, (5,)),
    ],
)
def test_hidden_rows_are_a_requests_only_wish(llm: LLM, params: dict[str, Any], forced: tuple[int, ...]) -> None:
    request = Request("x", [5, 6, 7], GenerationParams(**params), forced)
    with pytest.raises(InvalidRequestError, match="num_hidden must be"):
        llm.running.loop.submit(request)


@pytest.mark.parametrize(("number", "kind"), [(0, "last"), (1, "mean"), (3, "last")])
def test_pooling_is_what_a_file_says(tmp_path: Path, number: int, kind: str) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", "qwen2", metadata={"qwen2.pooling_type": number})
    with LLM(path, threads=1, embed_only=True) as llm:
        assert np.array_equal(llm.embed(TEXTS), llm.embed(TEXTS, pooling=kind))
        other = {"last": "mean", "mean": "last"}[kind]
        assert not np.allclose(llm.embed(TEXTS[1]), llm.embed(TEXTS[1], pooling=other))


def test_another_pooling_is_refused_by_name(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", "qwen2", metadata={"qwen2.pooling_type": 2})
    with LLM(path, threads=1) as llm:
        with pytest.raises(UnsupportedModelError, match="pooling 'cls' is not supported; last and mean are"):
            llm.embed("tea")
        assert llm.embed("tea", pooling="last").shape == (1, 64)


def test_the_end_that_a_file_asks_for_follows_each_text(tmp_path: Path) -> None:
    plain = write_tiny_gguf(tmp_path / "plain.gguf", "qwen2")
    reader = gguf.GGUFReader(plain)
    eos = int(reader.fields["tokenizer.ggml.eos_token_id"].contents())
    from twostroke.weights.gguf import GGUFFile
    from twostroke.weights.gguf_writer import write_gguf

    with GGUFFile.open(plain) as file:
        tensors = {name: (info.type, info.shape) for name, info in file.tensors.items()}
        metadata = {**file.metadata, "tokenizer.ggml.add_eos_token": True}
        write_gguf(tmp_path / "m.gguf", metadata, tensors, file.data)
    with LLM(plain, threads=1) as llm:
        ids = llm.tokenizer.encode("tea")
        expected = llm.embed([[*ids, eos]])
    with LLM(tmp_path / "m.gguf", threads=1) as llm:
        assert np.array_equal(llm.embed("tea"), expected)
        assert not np.array_equal(llm.embed([ids]), expected)  # ids are taken as they are


def test_a_directory_without_its_output_matrix(path: Path, tmp_path: Path, llm: LLM) -> None:
    with LLM(write_tiny_directory(tmp_path / "model", path), threads=1, embed_only=True) as small:
        assert np.array_equal(small.embed(TEXTS), llm.embed(TEXTS))


def test_a_directory_says_it_in_its_own_files(path: Path, tmp_path: Path, llm: LLM) -> None:
    template = {
        "type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|im_end|>": {"id": "<|im_end|>", "ids": [319], "tokens": ["<|im_end|>"]}},
    }
    modes = {"pooling_mode_mean_tokens": True, "pooling_mode_lasttoken": False}
    files = {"1_Pooling/config.json": modes, "tokenizer.json": {"post_processor": template}}
    with LLM(write_tiny_directory(tmp_path / "model", path, files=files), threads=1) as found:
        ids = [*found.tokenizer.encode("a tea"), 319]
        assert np.array_equal(found.embed("a tea"), llm.embed([ids], pooling="mean"))
    files["1_Pooling/config.json"] = {"pooling_mode_cls_token": True, "pooling_mode_lasttoken": False}
    with (
        LLM(write_tiny_directory(tmp_path / "cls", path, files=files), threads=1) as found,
        pytest.raises(UnsupportedModelError, match="'cls_token' is not supported"),
    ):
        found.embed("tea")


@pytest.mark.parametrize(
    "processor",
    [
        {"type": "TemplateProcessing"},
        {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}], "special_tokens": {}},
        {"type": "Sequence", "processors": [5]},
    ],
)
def test_a_malformed_post_processor_is_named(path: Path, tmp_path: Path, processor: dict[str, Any]) -> None:
    modes = {"pooling_mode_lasttoken": True}
    files = {"1_Pooling/config.json": modes, "tokenizer.json": {"post_processor": processor}}
    with pytest.raises(ModelFileError, match=r"tokenizer\.json"):
        LLM(write_tiny_directory(tmp_path / "model", path, files=files), threads=1)


def test_length_is_what_a_directory_says(path: Path, tmp_path: Path, llm: LLM) -> None:
    folder = write_tiny_directory(
        tmp_path / "model", path, files={"1_Pooling/config.json": {"pooling_mode_lasttoken": True}}
    )
    for modules, unit in (("[]", False), ('[{"type": "sentence_transformers.models.Normalize"}]', True)):
        (folder / "modules.json").write_text(modules)
        with LLM(folder, threads=1) as found:
            assert np.array_equal(found.embed(TEXTS), llm.embed(TEXTS, normalize=unit))


def test_a_pooling_that_is_no_number_is_refused(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", "qwen2", metadata={"qwen2.pooling_type": "mean"})
    with pytest.raises(ModelFileError, match=r"'qwen2\.pooling_type' is not an integer"):
        LLM(path, threads=1)
