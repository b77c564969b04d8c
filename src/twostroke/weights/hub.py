"""Where a file of the Hugging Face hub lies: `hf:owner/name[/file]` to a URL, size and sum. Owns no bytes."""

import re
from dataclasses import dataclass

from twostroke.errors import FetchError, ModelNotFoundError


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file on the hub. `model` is its full name, file included; size and SHA-256 are None where the hub says none."""

    model: str
    url: str
    num_bytes: int | None
    sha256: str | None


def locate(model: str) -> HubFile:
    """Find the file that `hf:owner/name` or `hf:owner/name/file.gguf` means, with the user's own hub settings.

    Raises ModelNotFoundError when there is no such repository or file, or when it has several GGUF files and none is
    named; FetchError when the hub cannot be asked.
    """
    found = re.fullmatch(r"hf:([\w.-]+/[\w.-]+)(?:/(.+\.gguf))?", model)
    if found is None:
        raise ModelNotFoundError(f"{model}: expected hf:owner/name or hf:owner/name/file.gguf")
    from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError

    repository, file = found.groups()
    try:
        return _file(repository, file or _only_file(repository))
    except (ModelNotFoundError, FetchError):
        raise
    except RepositoryNotFoundError:
        raise ModelNotFoundError(f"{model}: the hub has no repository {repository}, or it is not public") from None
    except EntryNotFoundError:
        raise ModelNotFoundError(f"{model}: {repository} has no file {file}") from None
    except Exception as error:  # the client's own errors, whose classes depend on its version
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise FetchError(f"{model}: the hub cannot be asked: {reason}") from None


def _only_file(repository: str) -> str:
    from huggingface_hub import HfApi

    files = [name for name in HfApi().list_repo_files(repository) if name.endswith(".gguf")]
    if len(files) != 1:
        names = ", ".join(files) or "none"
        raise ModelNotFoundError(f"hf:{repository}: name one of its GGUF files, hf:{repository}/FILE; it has {names}")
    return files[0]


def _file(repository: str, file: str) -> HubFile:
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    url = hf_hub_url(repository, file)
    about = get_hf_file_metadata(url)
    # The address may be on another host, and is signed where the file is not public; it needs no token.
    sha256 = about.etag if about.etag and re.fullmatch("[0-9a-f]{64}", about.etag) else None
    return HubFile(f"hf:{repository}/{file}", about.location, about.size, sha256)
