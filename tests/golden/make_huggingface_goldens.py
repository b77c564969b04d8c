"""Makes huggingface.json: tiny `tokenizer.json` files of the shapes that model families use, and the ids the
`tokenizers` library itself gives for the odd strings, as `transformers` calls it. Owns which shapes.

    python make_huggingface_goldens.py

Needs tokenizers, and sentencepiece.json made before; the tests need only the JSON.
"""

import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizer_samples import ODD_STRINGS, PAGE
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

HERE = Path(__file__).parent
SENTENCEPIECE = json.loads((HERE / "sentencepiece.json").read_text("utf-8"))["models"]
SPACE = "\u2581"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TO_SPACE = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
FROM_SPACE = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
SPACED_DECODER = {"type": "Sequence", "decoders": [TO_SPACE, {"type": "ByteFallback"}, {"type": "Fuse"}]}
STRIPPING_DECODER = {"type": "Sequence", "decoders": [*SPACED_DECODER["decoders"], STRIP]}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}


def added(token_id: int, content: str, **flags: bool) -> dict[str, Any]:
    """An added token as `tokenizer.json` writes it."""
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    return {"id": token_id, "content": content, **plain, **flags}


def bos_before(token: str, token_id: int) -> dict[str, Any]:
    """The post-processor that puts a token before a text."""
    first, text = {"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    named = {token: {"id": token, "ids": [token_id], "tokens": [token]}}
    pair = [first, text, {"Sequence": {"id": "B", "type_id": 1}}]
    return {"type": "TemplateProcessing", "single": [first, text], "pair": pair, "special_tokens": named}


def pieces(name: str) -> tuple[list[str], list[float], list[int]]:
    """A SentencePiece model's tokens, scores and types."""
    keys = SENTENCEPIECE[name]["keys"]
    return keys["tokens"], keys["scores"], keys["token_type"]


def merges_of(vocab: dict[str, int], scores: dict[str, float]) -> list[tuple[str, str]]:
    """Every way to make each piece of two others, the best-scored pieces first: what merging by rank needs."""
    found = [
        (-score, vocab[piece[:cut]], vocab[piece[cut:]], piece[:cut], piece[cut:])
        for piece, score in scores.items()
        for cut in range(1, len(piece))
        if piece[:cut] in vocab and piece[cut:] in vocab
    ]
    return [(left, right) for *_, left, right in sorted(found)]


def scored_model(name: str) -> dict[str, Any]:
    """A SentencePiece BPE model as the library's."""
    tokens, scores, types = pieces(name)
    vocab = {token: index for index, token in enumerate(tokens)}
    plain = {token: score for token, score, kind in zip(tokens, scores, types, strict=True) if kind in (1, 4)}
    merges = merges_of(vocab, plain)
    return {
        "type": "BPE",
        "unk_token": "<unk>",
        "fuse_unk": True,
        "byte_fallback": True,
        "vocab": vocab,
        "merges": merges,
    }


def byte_level_model(pattern: str, **options: bool) -> dict[str, Any]:
    """A byte-level BPE model trained on the page."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([PAGE], trainer)
    return {**json.loads(tokenizer.to_str())["model"], **options}


def split_bytes(pattern: str) -> dict[str, Any]:
    """The pre-tokenizer of byte-level families."""
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, BYTE_LEVEL]}


def sentencepiece_files() -> dict[str, dict[str, Any]]:
    """Shapes with spaces as U+2581."""
    special = [added(index, token, special=True) for index, token in enumerate(("<unk>", "<s>", "</s>"))]
    model, runs = scored_model("bpe"), scored_model("bpe-runs")
    size = len(model["vocab"])
    metaspace = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "first", "split": False}
    prepend = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": SPACE}, FROM_SPACE]}
    turns = [added(size, "<|im_start|>", special=True, rstrip=True), added(size + 1, "<|im_end|>", special=True)]
    think = [
        added(size + 2, "<think>"),
        added(size + 3, "</think>", lstrip=True),
        added(size + 4, "ferry", single_word=True),
    ]
    kinds = SENTENCEPIECE["bpe-runs"]["keys"]["token_type"]
    visible = [added(index, token) for token, index in runs["vocab"].items() if kinds[index] == 4]
    start = bos_before("<s>", 1)
    return {
        "prefix on every part": {
            "added_tokens": special,
            "normalizer": prepend,
            "post_processor": start,
            "decoder": STRIPPING_DECODER,
            "model": model,
        },
        "prefix on the first part": {
            "added_tokens": [*special, *turns, *think],
            "pre_tokenizer": metaspace,
            "post_processor": start,
            "decoder": STRIPPING_DECODER,
            "model": model,
        },
        "no prefix, visible runs": {
            "added_tokens": [*special, *visible],
            "normalizer": FROM_SPACE,
            "post_processor": start,
            "decoder": SPACED_DECODER,
            "model": runs,
        },
        "unigram": unigram_file(),
    }


def unigram_file() -> dict[str, Any]:
    """A Unigram model, a prefix on every part."""
    tokens, scores, types = pieces("unigram-bytes")
    vocab = list(zip(tokens, scores, strict=True))
    always = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True}
    return {
        "added_tokens": [added(i, token, special=True) for i, token in enumerate(tokens) if types[i] in (2, 3)],
        "pre_tokenizer": always,
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, always]},
        "model": {"type": "Unigram", "unk_id": types.index(2), "byte_fallback": True, "vocab": vocab},
    }


def byte_level_files() -> dict[str, dict[str, Any]]:
    """Shapes with bytes as printable characters."""
    whole = byte_level_model(LLAMA3, ignore_merges=True)
    digits = byte_level_model(LLAMA3.replace("{1,3}", ""))
    size = len(whole["vocab"])
    names = ("<|im_start|>", "<|im_end|>", "<s>", "</s>")
    special = [added(size + index, token, special=True) for index, token in enumerate(names)]
    visible = [added(size + 4, "<think>"), added(size + 5, "</think>")]
    steps = {"type": "Sequence", "processors": [BYTE_LEVEL, bos_before("<s>", size + 2)]}
    return {
        "whole words": {
            "added_tokens": special,
            "pre_tokenizer": split_bytes(LLAMA3),
            "post_processor": steps,
            "decoder": BYTE_LEVEL,
            "model": whole,
        },
        "composed": {
            "added_tokens": [*special, *visible],
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": split_bytes(LLAMA3.replace("{1,3}", "")),
            "post_processor": BYTE_LEVEL,
            "decoder": BYTE_LEVEL,
            "model": digits,
        },
    }


def golden(parts: dict[str, Any]) -> dict[str, Any]:
    """The file, and ids and texts for each odd string."""
    empty = ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")
    file = {"version": "1.0", **dict.fromkeys(empty), **parts}
    tokenizer = Tokenizer.from_str(json.dumps(file))
    special = {token["id"] for token in parts["added_tokens"] if token["special"]}
    parsed = {text: tokenizer.encode(text).ids for text in ODD_STRINGS}
    tokenizer.encode_special_tokens = True
    plain = {text: tokenizer.encode(text, add_special_tokens=False).ids for text in ODD_STRINGS}
    return {
        "file": file,
        "parsed": parsed,
        # Where the library lets plain text merge into a control token, it is no truth.
        "plain": {text: ids for text, ids in plain.items() if special.isdisjoint(ids)},
        "decoded": {text: tokenizer.decode(ids, skip_special_tokens=False) for text, ids in parsed.items()},
        "visible": {text: tokenizer.decode(ids) for text, ids in parsed.items()},
    }


def main() -> None:
    """Writes huggingface.json beside this file."""
    files = {**sentencepiece_files(), **byte_level_files()}
    found = {"made_with": f"tokenizers {tokenizers.__version__}", "files": {k: golden(v) for k, v in files.items()}}
    text = json.dumps(found, ensure_ascii=True, separators=(",", ":"))
    (HERE / "huggingface.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
