"""`twostroke rm`: a model out of the cache. Owns the command."""

import json

import click

from twostroke.cli.figures import bytes_text
from twostroke.errors import ModelNotFoundError
from twostroke.weights.cache import find_cached, list_cached, remove


@click.command("rm")
@click.argument("model")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(model: str, as_json: bool) -> None:
    """Delete MODEL from the cache, also one fetched in part. Files outside the cache are never touched."""
    cached = find_cached(model)
    name = model if cached is None else cached.model
    try:
        freed = remove(model)
    except ModelNotFoundError as error:
        raise _with_near_names(model, error) from None
    if as_json:
        click.echo(json.dumps({"model": name, "bytes_freed": freed}))
    else:
        click.echo(f"{name}: removed, {bytes_text(freed)} freed")


def _with_near_names(model: str, error: ModelNotFoundError) -> ModelNotFoundError:
    import difflib

    near = difflib.get_close_matches(model, [cached.model for cached in list_cached()], n=3, cutoff=0.5)
    return ModelNotFoundError(f"{model} is not in the cache; did you mean {' or '.join(near)}?") if near else error
