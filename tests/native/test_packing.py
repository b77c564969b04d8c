"""What packing weighs: SmolLM2 in memory against its file, and that no page of it is held twice."""

from pathlib import Path

import numpy as np
import pytest
from tests.native.in_memory import chunk, run

from twostroke.models.load import Model, dequantized, load_model
from twostroke.native.executor import ExecutorConfig, NativeExecutor
from twostroke.program.builder import Builder


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Model:
    return load_model(smollm2_path)


def test_weights_take_the_file_s_bytes(smollm2: Model) -> None:
    executor = NativeExecutor(smollm2.program, smollm2.source, ExecutorConfig(2, (16,), 256))
    file_bytes = sum(smollm2.source.info(name).num_bytes for name in smollm2.program.weights)
    assert file_bytes <= executor.weight_bytes <= 1.02 * file_bytes


def test_rows_of_the_embedding_table_are_the_file_s(smollm2: Model) -> None:
    name, dim = "token_embd.weight", smollm2.config.dim
    b = Builder()
    b.output("logits", b.output_rows(b.embed("token_embd", smollm2.config.vocab_size, dim)))
    executor = NativeExecutor(b.build(), smollm2.source, ExecutorConfig(2, (), 4096, max_step_tokens=4096))
    ids = np.arange(0, smollm2.config.vocab_size, 13)
    _, got = run(executor, chunk(ids))
    np.testing.assert_array_equal(got, dequantized(smollm2.source)(name)[ids])
