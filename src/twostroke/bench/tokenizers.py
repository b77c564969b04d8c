"""A tokenizer of one's own to count prompts with. Owns where it is read from; reads no weights."""

import os
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

from twostroke.errors import TwostrokeError
from twostroke.text.tokenizer import Tokenizer
from twostroke.weights.fetch import resolve
from twostroke.weights.gguf import GGUFFile


def open_counter(name: str) -> Callable[[str], Awaitable[int]]:
    """Counts a text's tokens, without BOS, with the tokenizer of an alias, a GGUF file, or a directory that has a
    tokenizer.json. Raises ModelNotFoundError, ModelFileError and UnsupportedModelError."""
    tokenizer = _open(name)

    async def count(text: str) -> int:
        return len(tokenizer.encode(text, add_special=False))

    return count


def _open(name: str) -> Tokenizer:
    folder = Path(os.path.expanduser(name))
    path = folder if (folder / "tokenizer.json").is_file() else resolve(name)
    try:
        if path.is_dir():
            return Tokenizer.from_hf(path)
        with closing(GGUFFile.open(path)) as file:
            return Tokenizer.from_gguf(file.metadata)
    except TwostrokeError as error:
        raise type(error)(f"{path}: {error}") from None
