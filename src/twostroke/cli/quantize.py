"""`twostroke quantize`: a model written as GGUF in another tensor type. Owns the command and its report.

Which tensor gets which type is `weights.quantized_source`'s rule.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from twostroke.cli.fetch_progress import fetch_progress
from twostroke.cli.figures import bytes_text, printable, shortened
from twostroke.cli.stored_model import StoredTensor
from twostroke.cli.tensor_report import TypeShare, mix_text, type_shares
from twostroke.errors import InvalidRequestError
from twostroke.llm.config import FILE_TYPES
from twostroke.models.load import load_model
from twostroke.native.quantize import quantize_natively
from twostroke.native.threads import choose_threads
from twostroke.weights.fetch import ensure
from twostroke.weights.gguf import GGUFFile, MetadataValue
from twostroke.weights.quantized_source import Fallback, QuantizedSource, write_quantized
from twostroke.weights.source import WeightSource
from twostroke.weights.tensor_types import TensorType

_NAMED = 3  # tensors of a kind of fallback that are named; --json has all


@dataclass(frozen=True, slots=True)
class QuantizeReport:
    """What was written: sizes in bytes, types by bytes, and matrices that could not have the type."""

    kind: TensorType
    source_bytes: int
    num_bytes: int
    shares: list[TypeShare]
    fallbacks: list[Fallback]

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "type": self.kind.name,
            "source_bytes": self.source_bytes,
            "bytes": self.num_bytes,
            "tensor_types": {share.type: share.count for share in self.shares},
            "fallbacks": [{"tensor": f.name, "row": f.row, "type": f.type.name} for f in self.fallbacks],
        }

    def lines(self) -> Iterator[str]:
        """For a reader: fallbacks of the same kind in a line."""
        yield f"{bytes_text(self.source_bytes)} to {bytes_text(self.num_bytes)}: {mix_text(self.shares)}"
        kinds: dict[tuple[int, TensorType], list[str]] = {}
        for fallback in self.fallbacks:
            kinds.setdefault((fallback.row, fallback.type), []).append(fallback.name)
        for (row, kind), names in kinds.items():
            some = ", ".join(map(printable, names[:_NAMED])) + (", …" if len(names) > _NAMED else "")
            matrices = "matrix" if len(names) == 1 else "matrices"
            yield (
                f"fallback: {kind.name} for {len(names):,} {matrices} whose rows of {row:,} values"
                f" are no whole blocks of {TensorType.Q4_K.block_size}: {shortened(some, 200)}"
            )


@click.command("quantize")
@click.argument("model", metavar="IN")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--type", "kind", type=click.Choice(FILE_TYPES), required=True, help="The matrices' type.")
@click.option("--force", is_flag=True, help="Replace OUT where it exists.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(model: str, out: Path, kind: str, force: bool, as_json: bool) -> None:
    """Write the model IN to the GGUF file OUT with its matrices in another type.

    IN is a GGUF model, or a Hugging Face directory, whose tokenizer and chat template go into OUT too. The matrix that
    makes the logits (the output, or the embedding where it serves as that) gets at least Q6_K. Vectors and the routers
    of experts stay as they are. A matrix whose rows are not whole blocks of the type gets one with smaller blocks: Q4_K
    becomes Q5_0, Q5_K Q5_1, Q6_K Q8_0, any of them F16; each is named. OUT gets its name once it is complete.
    """
    if out.exists() and not force:
        raise InvalidRequestError(f"{out} exists; --force replaces it")
    with fetch_progress() as progress:
        path = ensure(model, progress=progress)
    write = _write_directory if path.is_dir() else _write_file
    report = write(path, out, TensorType[kind.upper()])
    if report.num_bytes > report.source_bytes:
        grown = f"{out} is larger than {model}: a wider type does not bring back what a narrower one lost"
        click.echo(f"warning: {grown}", err=True)
    if as_json:
        click.echo(json.dumps({"model": model, "path": str(out), **report.fields()}))
    else:
        for line in report.lines():
            click.echo(line)


def _write_file(path: Path, out: Path, kind: TensorType) -> QuantizeReport:
    with GGUFFile.open(path) as file:
        return _write(file, file.metadata, out, kind, file.num_bytes)


def _write_directory(path: Path, out: Path, kind: TensorType) -> QuantizeReport:
    from twostroke.models.gguf_form import GGUFForm, gguf_keys
    from twostroke.text.gguf_form import gguf_tokenizer

    model = load_model(path)
    with closing(model.source):
        config = replace(model.config, name=path.resolve().name)
        tokenizer, warnings = gguf_tokenizer(path, config.architecture, config.vocab_size)
        for warning in (*model.warnings, *warnings):
            click.echo(f"warning: {warning}", err=True)
        keys = {**gguf_keys(config), **tokenizer}
        return _write(GGUFForm(model), keys, out, kind, model.source.num_bytes)


def _write(
    source: WeightSource, metadata: Mapping[str, MetadataValue], out: Path, kind: TensorType, source_bytes: int
) -> QuantizeReport:
    threads = choose_threads(None).num_threads
    quantized = QuantizedSource(source, kind, pack=quantize_natively, num_threads=threads)
    total = sum(info.num_values for info in quantized.tensors.values())
    with click.progressbar(length=total, label=f"quantising to {kind.name}", file=sys.stderr) as bar:
        write_quantized(quantized, metadata, out, kind, lambda info: bar.update(info.num_values))
    shares = type_shares(map(StoredTensor.of, quantized.tensors.values()))
    return QuantizeReport(kind, source_bytes, out.stat().st_size, shares, quantized.fallbacks)
