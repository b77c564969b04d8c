"""Makes sentencepiece.json: tiny SentencePiece models as the keys a GGUF file would have, and the ids `sentencepiece`
itself gives for the odd strings. Owns which models.

    python make_sentencepiece_goldens.py

Leaves the table of replacements where it is run. Needs sentencepiece; the tests need only the JSON.
"""

import base64
import io
import json
from pathlib import Path
from typing import Any

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as protocol
from tokenizer_samples import ODD_STRINGS, PAGE

PLAIN = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
# A few character replacements of our own, compiled by SentencePiece: widths, ligatures, composition, odd spaces.
REPLACEMENTS = {
    "\u00a0": " ", "\u2003": " ", "\u3000": " ", "\t": " ", "\n": " ", "\u200b": "", "\ufeff": "",
    "\ufb01": "fi", "\u2460": "1", "\u00bd": "1\u20442", "\u212b": "\u00c5", "\uff21": "A", "\uff22": "B",
    "e\u0301": "\u00e9", "o\u0308": "\u00f6", "U\u0308": "\u00dc", "A\u030a": "\u00c5",
}  # fmt: skip
TABLE = {"normalization_rule_tsv": "replacements.tsv"}
RUNS = ["\t" * n for n in range(2, 7)] + ["\n" * n for n in range(2, 4)] + ["\u2581" * n for n in range(2, 6)]
MODELS: dict[str, dict[str, Any]] = {
    # As Llama and Mistral: a space before the text, bytes for what has no piece.
    "bpe": {"model_type": "bpe", "vocab_size": 700, "byte_fallback": True, **PLAIN},
    # As Gemma: no space before the text, runs of white space and tags that are user-defined.
    "bpe-runs": {
        "model_type": "bpe",
        "vocab_size": 700,
        "byte_fallback": True,
        "add_dummy_prefix": False,
        "split_by_whitespace": False,
        "user_defined_symbols": [*RUNS, "<table>", "<tr>"],
        **PLAIN,
    },
    "bpe-unknown": {"model_type": "bpe", "vocab_size": 400, "character_coverage": 0.98, **TABLE},
    "unigram": {"model_type": "unigram", "vocab_size": 420, "character_coverage": 0.98, **TABLE},
    "unigram-bytes": {"model_type": "unigram", "vocab_size": 560, "byte_fallback": True, **PLAIN},
}
# TokenType of the GGUF format by SentencePiece's.
TYPES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6}


def train(options: dict[str, Any]) -> bytes:
    """The serialised model."""
    model = io.BytesIO()
    lines = [line for line in PAGE.split("\n") if line]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 2), model_writer=model, hard_vocab_limit=False, minloglevel=2, **options
    )
    return model.getvalue()


def unused_pieces(serialised: bytes) -> bytes:
    """The model with some pieces that others are made of called unused: they are taken apart again."""
    model = protocol.ModelProto.FromString(serialised)
    for index, piece in enumerate(model.pieces):
        if piece.type == 1 and len(piece.piece) > 1 and index % 3 == 0:
            piece.type = 5
    return model.SerializeToString()


def equal_scores(serialised: bytes) -> bytes:
    """The model with scores in steps, so that many pieces are equally good."""
    model = protocol.ModelProto.FromString(serialised)
    for piece in model.pieces:
        if piece.type == 1:
            piece.score = float(round(piece.score / 40))
    return model.SerializeToString()


def golden(serialised: bytes) -> dict[str, Any]:
    """The GGUF keys, and ids and text for each odd string."""
    model = protocol.ModelProto.FromString(serialised)
    processor = sentencepiece.SentencePieceProcessor(model_proto=serialised)
    rules = model.normalizer_spec
    keys: dict[str, Any] = {
        "model": "llama" if model.trainer_spec.model_type == 2 else "t5",
        "tokens": [piece.piece for piece in model.pieces],
        "scores": [piece.score for piece in model.pieces],
        "token_type": [TYPES[piece.type] for piece in model.pieces],
        "bos_token_id": processor.bos_id(),
        "eos_token_id": processor.eos_id(),
        "unknown_token_id": processor.unk_id(),
        "add_bos_token": False,
        "add_space_prefix": rules.add_dummy_prefix,
        "remove_extra_whitespaces": rules.remove_extra_whitespaces,
    }
    charsmap = base64.b64encode(rules.precompiled_charsmap).decode()
    ids = {text: processor.encode(text) for text in ODD_STRINGS}
    decoded = {text: processor.decode(ids[text]) for text in ODD_STRINGS}
    return {"keys": keys, "charsmap": charsmap, "ids": ids, "decoded": decoded}


def main() -> None:
    """Writes sentencepiece.json beside this file."""
    rows = ["\t".join(" ".join(f"{ord(char):X}" for char in side) for side in row) for row in REPLACEMENTS.items()]
    Path("replacements.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    trained = {name: train(options) for name, options in MODELS.items()}
    trained["bpe-unused"] = unused_pieces(trained["bpe"])
    trained["bpe-equal"] = equal_scores(trained["bpe"])
    found = {name: golden(serialised) for name, serialised in trained.items()}
    # One table of character replacements for all: it is most of a small model's bytes.
    tables = {model["charsmap"] for model in found.values()} - {""}
    for model in found.values():
        model["charsmap"] = bool(model["charsmap"])
    assert len(tables) == 1
    golden_file = {"made_with": f"sentencepiece {sentencepiece.__version__}", "charsmap": tables.pop(), "models": found}
    text = json.dumps(golden_file, ensure_ascii=True, separators=(",", ":"))
    Path(__file__).with_name("sentencepiece.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
