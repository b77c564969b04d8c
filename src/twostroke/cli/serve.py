"""`twostroke serve`: the HTTP server. Owns the command, and what is said before the first request."""

from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from twostroke.cli.figures import bytes_text
from twostroke.cli.options import options_of
from twostroke.llm.config import LLMConfig
from twostroke.server.config import ServerConfig
from twostroke.weights.aliases import DEFAULT_MODEL

if TYPE_CHECKING:
    from twostroke.llm.llm import LLM
    from twostroke.roofline.hardware import HardwareSpec
    from twostroke.server.service import Service

LOADING = (
    *("context", "threads", "kv", "weights", "mlock", "isa", "max_step_tokens", "speculation"),
    *("tpot_target", "reuse_generated", "kv_disk", "kv_disk_size"),
)
_MAX_BATCH = 32


@click.command("serve")
@click.argument("model", default=DEFAULT_MODEL)
@options_of(ServerConfig, [field.name for field in fields(ServerConfig)])
@click.option(
    "--max-batch",
    default=_MAX_BATCH,
    show_default=True,
    help="Requests that run together; more wait. Sizes the KV pool.",
)
@options_of(LLMConfig, LOADING)
@click.option("--probe/--no-probe", default=True, help="Measure this machine's roofs before serving, for /metrics.")
def command(model: str, max_batch: int, probe: bool, **flags: Any) -> None:
    """Serve MODEL over HTTP in the form of the OpenAI API.

    The first SIGTERM or Ctrl-C drains: new requests are refused, running ones finish. The second ends at once.
    docs/api.md has the endpoints and their fields.
    """
    import asyncio

    from twostroke.cli.loading import load, served_name
    from twostroke.server.auth import Keys
    from twostroke.server.logs import set_up_logs
    from twostroke.server.run import address_of, bind, make_service, serve

    loading = {name: flags.pop(name) for name in LOADING}
    config = ServerConfig(**flags)
    keys = Keys.from_file(config.api_key_file) if config.api_key_file else Keys()
    set_up_logs(config.log_format)
    with bind(config) as bound, load(model, max_batch=max_batch, **loading) as llm:
        names = config.served_model_name or (served_name(model),)

        def make() -> "Service":
            return make_service(llm, config, names, partial(_roofs, llm) if probe else None)

        def started() -> None:
            for line in _about(llm, names, address_of(bound)):
                click.echo(line, err=True)

        asyncio.run(serve(make, keys, config, bound, started))


def _roofs(llm: "LLM") -> "HardwareSpec":
    from twostroke.roofline.probe import roofs_of_model

    return roofs_of_model(llm.probe_weights, llm.weight_bytes, llm.threads.num_threads, llm.isa, budget_s=0.5)


def _about(llm: "LLM", names: tuple[str, ...], address: str) -> list[str]:
    memory = llm.memory
    return [
        f"model      {', '.join(names)}: {llm.model_config.architecture}, {llm.context:,} tokens a request",
        f"memory     weights {bytes_text(llm.weight_bytes)}, KV pool {bytes_text(memory.kv_pool_bytes)}:"
        f" {memory.pool_tokens:,} tokens for all requests, {llm.config.max_batch} at a time",
        f"serving    {address}/v1   ({llm.threads.num_threads} threads, {llm.isa})",
    ]
