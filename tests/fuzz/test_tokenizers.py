"""`tokenizer.json` files damaged in seeded ways; what is accepted encodes and decodes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from tests.fuzz.bounds import count_accepted
from tests.fuzz.mutate import damage_json

from twostroke.text.tokenizer import Tokenizer

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parents[1] / "golden" / "huggingface.json").read_text("utf-8"))
FILES = [json.dumps(entry["file"]) for entry in GOLDEN["files"].values()]
TEXT = "A text, 123 of tokens\n\u65e5\u672c <s>"


def test_damaged_tokenizers(num_mutants: int) -> None:
    def attempt(seed: int) -> int:
        mutant = damage_json(FILES[seed % len(FILES)], np.random.default_rng(seed))
        tokenizer = Tokenizer.from_hf({"tokenizer.json": mutant.decode("utf-8", "replace")})
        ids = tokenizer.encode(TEXT)
        tokenizer.decode(ids)
        assert all(0 <= token_id < tokenizer.vocab_size for token_id in ids)
        return len(mutant)

    accepted = count_accepted(range(num_mutants), attempt)
    assert 0.03 * num_mutants < accepted < 0.9 * num_mutants
