"""`twostroke list`: what is in the cache, and what has a name and could be. Owns the command."""

import json
from collections.abc import Iterator
from pathlib import Path

import click

from twostroke.cli.figures import bytes_text, printable, table
from twostroke.cli.stored_model import StoredModel
from twostroke.cli.tensor_report import TypeShare, mix_text, type_shares
from twostroke.errors import TwostrokeError
from twostroke.weights.aliases import Alias, load_aliases
from twostroke.weights.cache import CachedModel, cache_dir, list_cached


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(as_json: bool) -> None:
    """List the models in the cache, and the aliases that `twostroke pull` would fetch."""
    cached = [(model, _shares(model.path)) for model in list_cached()]
    here = {model.model for model, _ in cached}
    others = [alias for name, alias in sorted(load_aliases().items()) if name not in here]
    if as_json:
        click.echo(json.dumps(_report(cached, others)))
    else:
        for line in _lines(cached, others):
            click.echo(line)


def _shares(path: Path) -> list[TypeShare] | None:
    """The model's tensor types; None where it can no longer be read."""
    try:
        return type_shares(StoredModel.read(path).tensors)
    except TwostrokeError:
        return None


def _report(cached: list[tuple[CachedModel, list[TypeShare] | None]], others: list[Alias]) -> dict[str, object]:
    models = [
        {
            "model": model.model,
            "path": str(model.path),
            "bytes": model.num_bytes,
            "sha256": model.sha256,
            "license": model.license,
            "tensor_bytes": None if shares is None else {share.type: share.bytes for share in shares},
        }
        for model, shares in cached
    ]
    available = [{"model": alias.name, "bytes": alias.num_bytes, "license": alias.license} for alias in others]
    return {"cache": str(cache_dir()), "models": models, "available": available}


def _lines(cached: list[tuple[CachedModel, list[TypeShare] | None]], others: list[Alias]) -> Iterator[str]:
    if cached:
        rows = [["model", "size", "licence", "tensors by bytes", "file"]]
        for model, shares in cached:
            mix = "the file cannot be read" if shares is None else mix_text(shares)
            row = [model.model, bytes_text(model.num_bytes), model.license or "not stated", mix, str(model.path)]
            rows.append([printable(cell) for cell in row])
        yield from table(rows, left=5)
    else:
        yield f"nothing is in the cache, {cache_dir()}"
    if others:
        yield ""
        yield "not fetched yet (twostroke pull NAME):"
        yield from table([["  " + alias.name, bytes_text(alias.num_bytes), alias.license] for alias in others], left=3)
