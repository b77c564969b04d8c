"""Where a model of the Hugging Face hub lies: `hf:owner/name[/file]` to files with URL, size and sum. Owns no bytes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from twostroke.errors import FetchError, ModelNotFoundError
from twostroke.weights.gguf_shards import shard_names

# What a model directory needs beside its weights, where the repository has it.
_DIRECTORY_FILES = (
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "modules.json",
    "1_Pooling/config.json",  # what an embedding model pools, and whether it normalises
    "config.json",  # last, so that a directory with it is whole
)
_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file on the hub. Size and sums are None where the hub says none: `sha256` is given for large files, `blob`
    (Git's SHA-1 of an object) for small ones."""

    name: str
    url: str
    num_bytes: int | None
    sha256: str | None
    blob: str | None


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model on the hub. `model` is its full name, a GGUF file's included; a directory's files are not GGUF."""

    model: str
    files: tuple[HubFile, ...]
    is_directory: bool


def locate(model: str) -> HubModel:
    """Find what `hf:owner/name` or `hf:owner/name/file.gguf` means, with the user's own hub settings.

    A repository with one GGUF model means that; one without any, but with `config.json` and safetensors, the directory
    of these. Raises ModelNotFoundError when there is no such repository or file, or when it has several GGUF models and
    none is named; FetchError when the hub cannot be asked.
    """
    found = re.fullmatch(r"hf:([\w.-]+/[\w.-]+)(?:/(.+\.gguf))?", model)
    if found is None:
        raise ModelNotFoundError(f"{model}: expected hf:owner/name or hf:owner/name/file.gguf")
    from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError

    repository, file = found.groups()
    try:
        return _gguf(repository, file) if file else _only_model(repository)
    except (ModelNotFoundError, FetchError):
        raise
    except RepositoryNotFoundError:
        raise ModelNotFoundError(f"{model}: the hub has no repository {repository}, or it is not public") from None
    except EntryNotFoundError:
        raise ModelNotFoundError(f"{model}: {repository} has no file {file}") from None
    except Exception as error:  # the client's own errors, whose classes depend on its version
        reason = re.sub(r"^\[Errno -?\d+\] ", "", (str(error).strip() or type(error).__name__).splitlines()[0])
        raise FetchError(f"{model}: the hub cannot be asked: {reason}") from None


def _only_model(repository: str) -> HubModel:
    from huggingface_hub import HfApi

    siblings = HfApi().model_info(repository).siblings or ()  # one request, so that without a network it fails at once
    names = [sibling.rfilename for sibling in siblings]
    models = [name for name in names if name.endswith(".gguf") and _first_shard(name) == name]
    if len(models) == 1:
        return _gguf(repository, models[0])
    weights = _weights(names)
    if not models and weights and "config.json" in names:
        wanted = [*weights, *(name for name in _DIRECTORY_FILES if name in names)]
        return HubModel(f"hf:{repository}", tuple(replace(_file(repository, name), name=name) for name in wanted), True)
    listed = ", ".join(models) or "none"
    raise ModelNotFoundError(
        f"hf:{repository}: name one of its GGUF files, hf:{repository}/FILE; it has {listed}"
        + ("" if models else ", and no model.safetensors with config.json")
    )


def _weights(names: Sequence[str]) -> list[str]:
    if _SINGLE in names:
        return [_SINGLE]
    shards = sorted(name for name in names if _SHARD.fullmatch(name))
    return [_INDEX, *shards] if _INDEX in names else []


def _first_shard(name: str) -> str:
    folder, slash, file = name.rpartition("/")
    return folder + slash + shard_names(file)[0]


def _gguf(repository: str, name: str) -> HubModel:
    """A GGUF file, with all its shards where it is one; the model is named by the first."""
    folder, slash, file = name.rpartition("/")
    names = [folder + slash + shard for shard in shard_names(file)]
    return HubModel(f"hf:{repository}/{names[0]}", tuple(_file(repository, name) for name in names), False)


def _file(repository: str, name: str) -> HubFile:
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    url = hf_hub_url(repository, name)
    about = get_hf_file_metadata(url)
    # The address may be on another host, and is signed where the file is not public; it needs no token.
    etag = about.etag or ""
    sha256 = etag if re.fullmatch("[0-9a-f]{64}", etag) else None
    blob = etag if re.fullmatch("[0-9a-f]{40}", etag) else None
    return HubFile(name.rpartition("/")[2], about.location, about.size, sha256, blob)
