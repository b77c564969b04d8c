"""`twostroke inspect`: what is in a model's files, what it costs, and whether it runs here. Owns the command.

Reads headers and packs no weights. A model that cannot run is shown as far as it can be read, and why not.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import click
import numpy as np

from twostroke.cli.figures import bytes_text, count_text, printable, shortened, table
from twostroke.cli.inspection import Inspection
from twostroke.cli.program_report import ProgramReport
from twostroke.cli.prompt_report import PromptReport, report_prompt
from twostroke.cli.tensor_report import tensor_fields, tensor_lines, type_lines, type_shares
from twostroke.cli.texts import as_text
from twostroke.weights.fetch import resolve

_VALUE_WIDTH = 90
_LONG_ARRAY = 16  # items; a longer array is cut to the first few
_FIRST_ITEMS = 4


@dataclass(frozen=True, slots=True)
class InspectOptions:
    """What to show beside the overview."""

    tensors: bool
    prompt: str | None
    system: str | None
    raw: bool
    program: bool
    tokens: int
    fused: bool


@click.command("inspect")
@click.argument("model")
@click.option("--tensors", is_flag=True, help="Every tensor: type, shape, bytes.")
@click.option(
    "--prompt",
    metavar="TEXT",
    callback=as_text,
    help="What TEXT becomes as a user's message: rendered text and token ids.",
)
@click.option("--system", metavar="TEXT", callback=as_text, help="A system message before the prompt.")
@click.option("--raw", is_flag=True, help="The prompt as it is, without the chat template.")
@click.option("--program", is_flag=True, help="Every op: shapes, FLOPs and bytes of a decode step and of a prefill.")
@click.option(
    "--tokens",
    type=click.IntRange(min=1),
    default=512,
    show_default=True,
    help="Tokens of the prefill; the decode step comes after them.",
)
@click.option("--fused/--unfused", default=True, show_default=True, help="The program as it runs, or as it is written.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(model: str, as_json: bool, **flags: Any) -> None:
    """Show what is in MODEL: metadata, tensors by type, KV cache, prompt and program. MODEL must be on this machine."""
    options = InspectOptions(**flags)
    if options.prompt is None and (options.system is not None or options.raw):
        raise click.UsageError("--system and --raw are for --prompt")
    found = Inspection.of(resolve(model))
    prompt = None
    if options.prompt is not None:
        prompt = report_prompt(found.stored, options.prompt, options.system, options.raw)
    program = found.report_program(options.tokens, options.fused) if options.program else None
    if as_json:
        click.echo(json.dumps(_fields(model, found, options, prompt, program)))
    else:
        for line in _lines(model, found, options, prompt, program):
            click.echo(line)


def _fields(
    model: str, found: Inspection, options: InspectOptions, prompt: PromptReport | None, program: ProgramReport | None
) -> dict[str, object]:
    stored = found.stored
    fields: dict[str, object] = {
        "model": model,
        "path": str(stored.path),
        "bytes": stored.num_bytes,
        "architecture": stored.architecture,
        "parameters": found.parameters,
        "context_length": stored.context_length,
        "kv_bytes_per_token": found.kv_bytes_per_token,
        "state_bytes": found.state_bytes,
        "runs": not found.reasons,
        "reasons": list(found.reasons),
        "warnings": list(found.warnings),
        "metadata": {key: _plain(value) for key, value in stored.metadata.items()},
        "tensor_types": [asdict(share) for share in type_shares(stored.tensors)],
    }
    if options.tensors:
        fields["tensors"] = [tensor_fields(info) for info in stored.tensors]
    if prompt is not None:
        fields["prompt"] = prompt.fields()
    if program is not None:
        fields["program"] = {"fused": options.fused, **program.fields()}
    return fields


def _lines(
    model: str, found: Inspection, options: InspectOptions, prompt: PromptReport | None, program: ProgramReport | None
) -> Iterator[str]:
    yield from table(_overview(model, found), left=2)
    yield from ("", "metadata")
    rows = [[f"  {printable(key)}", _value_text(value)] for key, value in found.stored.metadata.items()]
    yield from table(rows or [["  none"]], left=2)
    yield ""
    yield from type_lines(type_shares(found.stored.tensors))
    if options.tensors:
        yield ""
        yield from tensor_lines(found.stored.tensors)
    if prompt is not None:
        yield from ("", f"prompt, {len(prompt.tokens)} tokens")
        yield from prompt.lines()
    if program is not None:
        form = "fused" if options.fused else "unfused"
        yield from ("", f"program, {form}: prefill of {options.tokens} tokens, then a decode step")
        yield from program.lines()


def _overview(model: str, found: Inspection) -> list[list[str]]:
    kv, context = found.kv_bytes_per_token, found.stored.context_length
    return [
        ["model", printable(model)],
        ["file", f"{printable(str(found.stored.path))}, {bytes_text(found.stored.num_bytes)}"],
        ["architecture", printable(found.stored.architecture or "not stated")],
        ["parameters", count_text(found.parameters)],
        ["context", "not stated" if context is None else f"{context:,} tokens"],
        ["KV cache", "not known" if kv is None else f"{bytes_text(kv)} a token in 16 bits"],
        *([["state", f"{bytes_text(found.state_bytes)} a request in 32 bits"]] if found.state_bytes else []),
        *(["cannot run", printable(reason)] for reason in found.reasons),
        *(["note", printable(warning)] for warning in found.warnings),
    ]


def _plain(value: Any) -> object:
    """A metadata value for JSON: an array longer than 16 items as its length and the first 4."""
    if not isinstance(value, list | np.ndarray):
        return _finite(value)
    head = value[:_LONG_ARRAY]
    items = [_finite(item) for item in (head.tolist() if isinstance(head, np.ndarray) else head)]
    return items if len(value) <= _LONG_ARRAY else {"length": len(value), "first": items[:_FIRST_ITEMS]}


def _finite(value: object) -> object:
    """JSON has no number for infinity and NaN; they become their names."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _value_text(value: Any) -> str:
    plain = _plain(value)
    if isinstance(plain, dict) and not isinstance(value, dict):
        return shortened(f"{plain['length']:,} items: {printable(str(plain['first'])[1:-1])}, …", _VALUE_WIDTH)
    return shortened(printable(str(plain)), _VALUE_WIDTH)
