"""A small byte-level BPE vocabulary as GGUF metadata. Owns test data only."""

from collections.abc import Mapping

PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
OTHERS = [byte for byte in range(256) if byte not in PRINTABLE]
# Token id b is the byte b, spelled as GPT-2 spells it.
BYTE_TOKENS = [chr(byte) if byte in PRINTABLE else chr(256 + OTHERS.index(byte)) for byte in range(256)]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ hello", "1 2", "Ã ©"]
MERGED = {merge.replace(" ", ""): 256 + index for index, merge in enumerate(MERGES)}
CONTROL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|im_end|>>"]
USER_DEFINED = ["<tool>", "  \n"]
UNUSED = ["[PAD0]"]
TOKENS = [*BYTE_TOKENS, *MERGED, *CONTROL, *USER_DEFINED, *UNUSED]
TYPES = [1] * (256 + len(MERGED)) + [3] * len(CONTROL) + [4] * len(USER_DEFINED) + [5] * len(UNUSED)
IDS = {token: token_id for token_id, token in enumerate(TOKENS)}


def metadata(**changes: object) -> Mapping[str, object]:
    """The `tokenizer.ggml.*` keys, with some changed, or left out when None."""
    keys: dict[str, object] = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": TOKENS,
        "token_type": TYPES,
        "merges": MERGES,
        "bos_token_id": IDS["<s>"],
        "eos_token_id": IDS["</s>"],
        "add_bos_token": False,
        **changes,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in keys.items() if value is not None}
