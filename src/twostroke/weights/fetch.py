"""From a MODEL argument to a file on this machine: `resolve` what is here, `pull` what is not.

Owns what a name means. A fetch itself is in `transfer`, which is imported only when there is something to fetch.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from twostroke.errors import ModelFileError, ModelNotFoundError
from twostroke.weights.aliases import load_aliases
from twostroke.weights.cache import find_cached, list_cached

if TYPE_CHECKING:
    from twostroke.weights.progress import PullProgress

ProgressCallback = Callable[["PullProgress"], None]


def is_remote(model: str) -> bool:
    """Whether `pull` knows how to fetch this name: an alias, `hf:...`, or an http(s) URL."""
    return model.startswith(("hf:", "http://", "https://")) or model in load_aliases()


def resolve(model: str) -> Path:
    """Where a model is on this machine: its GGUF file (of shards the first, or the one named) or its directory.

    `model` is an alias or remote name in the cache, or a path to a GGUF file or to a Hugging Face directory. Raises
    ModelNotFoundError when it is not here (and says how to get it, or near names), ModelFileError for a directory
    without `config.json`.
    """
    if is_remote(model):
        cached = find_cached(model)
        if cached is None:
            raise ModelNotFoundError(f"{model} is not fetched yet: `twostroke pull {model}`")
        return cached.path
    path = Path(os.path.expanduser(model))
    if not model.strip():
        raise ModelNotFoundError(_not_found(repr(model)))
    try:
        if path.is_dir() and not (path / "config.json").is_file():
            raise ModelFileError(f"{model}: a directory without config.json, so not a model's")
        if path.exists():
            return path
    except OSError as error:  # no path at all, being too long, or one that may not be looked at
        raise ModelNotFoundError(f"{model[:80]}{'...' * (len(model) > 80)}: {error.strerror}") from None
    raise ModelNotFoundError(_not_found(model))


def ensure(model: str, *, progress: ProgressCallback) -> Path:
    """`resolve`, after fetching the model if it has a remote name and is not in the cache."""
    return pull(model, progress=progress) if is_remote(model) else resolve(model)


def pull(model: str, *, progress: ProgressCallback) -> Path:
    """Fetch a model into the cache, resuming what an earlier attempt left; returns what `resolve` gives for it.

    Nothing is fetched when it is there. A file gets its name only after its size and sum are verified (against the
    published ones where there are) and its header is sound; an interruption leaves a part, for resuming.
    Raises ModelNotFoundError, FetchError (network, disk), ChecksumError (the part is deleted).
    """
    if not is_remote(model):
        raise ModelNotFoundError(_not_found(model))
    cached = find_cached(model)
    if cached is not None:
        return cached.path
    from twostroke.weights.transfer import transfer

    return transfer(model, progress)


def _not_found(model: str) -> str:
    import difflib

    names = sorted({*load_aliases(), *(cached.model for cached in list_cached())})
    near = difflib.get_close_matches(model, names, n=3, cutoff=0.5)
    known = f"did you mean {' or '.join(near)}?" if near else f"known names are {', '.join(names)}"
    return f"{model}: no such model or file; {known}"
