"""The text files of a Hugging Face directory, bounded before they are parsed. Owns the bounds and their messages; what
the files mean is `huggingface.py`'s and `chat.py`'s.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twostroke.errors import ModelFileError

_MAX_BYTES = {"tokenizer.json": 256 << 20}
_MAX_OTHER_BYTES = 16 << 20


class ModelFiles:
    """Files by name: of a directory, or given as texts. Raises ModelFileError, naming the file, for one that is over
    its bound, not UTF-8 or cannot be read; a missing one is None."""

    def __init__(self, source: str | Path | Mapping[str, str]) -> None:
        self._texts = source if isinstance(source, Mapping) else None
        self._directory = Path() if isinstance(source, Mapping) else Path(source)

    def text(self, name: str) -> str | None:
        """A file's text."""
        limit = _MAX_BYTES.get(name, _MAX_OTHER_BYTES)
        data = self._bytes(name, limit)
        if data is None:
            return None
        if len(data) > limit:
            raise ModelFileError(f"{name}: over {limit:,} bytes")
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ModelFileError(f"{name}: not UTF-8 at byte {error.start}") from None

    def json(self, name: str) -> dict[str, Any] | None:
        """The object in a JSON file."""
        text = self.text(name)
        if text is None:
            return None
        try:
            value = json.loads(text)
        except RecursionError:
            raise ModelFileError(f"{name}: nested too deeply") from None
        except ValueError as error:  # not JSON, or a number of thousands of digits
            raise ModelFileError(f"{name}: not sound JSON: {str(error).splitlines()[0]}") from None
        if not isinstance(value, dict):
            raise ModelFileError(f"{name}: not a JSON object")
        return value

    def names(self, folder: str, ending: str) -> list[str]:
        """Names, folder included, of the files in a folder with that ending; sorted."""
        if self._texts is not None:
            return sorted(name for name in self._texts if name.startswith(f"{folder}/") and name.endswith(ending))
        return sorted(f"{folder}/{path.name}" for path in (self._directory / folder).glob(f"*{ending}"))

    def _bytes(self, name: str, limit: int) -> bytes | None:
        if self._texts is not None:
            text = self._texts.get(name)
            return None if text is None else text.encode("utf-8", errors="surrogatepass")
        try:
            with (self._directory / name).open("rb") as file:
                return file.read(limit + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ModelFileError(f"{name}: {error.strerror}") from None
