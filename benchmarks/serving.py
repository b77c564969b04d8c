"""How does `twostroke serve` do beside llama-server, with many clients at once?

    python benchmarks/serving.py --peer llama.cpp [--model smollm2] [--clients 16] [--llama-cpp DIR]

Both servers run with as many slots as there are clients and are loaded in turn by `bench --url`, which shares the
machine with them. Prompts are all different. The last line is JSON, in seconds.
"""

import json
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import click
from peers.llama_cpp import LlamaCpp
from peers.llama_cpp_build import llama_cpp_binaries
from peers.own import COMMAND
from peers.served import Load, Served, compared, fields, free_port, running, serve_in_turn

from twostroke.native.threads import choose_threads
from twostroke.roofline.machine import cpu_model
from twostroke.weights.fetch import ensure

FOLDER = Path.home() / ".cache" / "twostroke-peers"


@click.command()
@click.option("--peer", type=click.Choice(["llama.cpp"]), default="llama.cpp", show_default=True)
@click.option("--model", default="smollm2", show_default=True, help="Alias or GGUF file.")
@click.option("--clients", default=16, show_default=True, help="Requests at a time, and slots of each server.")
@click.option("--requests", default=64, show_default=True, help="Requests a round.")
@click.option("--prompt-tokens", default=120, show_default=True)
@click.option("--output-tokens", default=64, show_default=True)
@click.option("--rounds", default=5, show_default=True, help="Times that each server has its turn.")
@click.option("--threads", type=int, help="Default: what Twostroke chooses.")
@click.option("--folder", type=click.Path(path_type=Path), default=FOLDER, help="Where llama.cpp is set up.")
@click.option("--llama-cpp", type=click.Path(path_type=Path), help="Folder of llama.cpp's binaries, already built.")
def main(**options: Any) -> None:
    """Load `twostroke serve` and llama-server in turn with the same closed loop of clients."""
    threads = choose_threads(options["threads"]).num_threads
    model = ensure(options["model"], progress=lambda *_: None)
    clients, context = options["clients"], options["prompt_tokens"] + options["output_tokens"] + 64
    load = Load(clients, options["requests"], options["prompt_tokens"], options["output_tokens"])
    peer = LlamaCpp(options["llama_cpp"] or llama_cpp_binaries(options["folder"], None), threads)
    ports = {"twostroke": free_port(), peer.name: free_port()}
    urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    own = [*COMMAND, "serve", str(model), "--port", str(ports["twostroke"]), "--threads", str(threads), "--no-probe"]
    own += ["--max-batch", str(clients), "--context", str(context)]
    click.echo(f"{model.name}, {clients} clients, {threads} threads of {cpu_model()}; {options['rounds']} rounds")
    with ExitStack() as stack:
        stack.enter_context(running(own, urls["twostroke"]))
        stack.enter_context(running(peer.server(model, ports[peer.name], clients, context), urls[peer.name]))
        found = serve_in_turn(urls, model, load, options["rounds"], tell)
    show(found)
    click.echo(json.dumps(fields(found)))


def tell(name: str, one: Served) -> None:
    click.echo(f"  {name:12}{one.output_tok_s:8.0f} tok/s   TTFT p50 {1e3 * one.ttft_p50_s:6.0f} ms", err=True)


def show(found: dict[str, list[Served]]) -> None:
    """Medians of each server, then ratios with the least and the most of a round."""
    for name, rounds in found.items():
        speed, ttft = median(one.output_tok_s for one in rounds), median(one.ttft_p50_s for one in rounds)
        tpot = median(one.tpot_p50_s for one in rounds)
        click.echo(f"{name:12}{speed:8.0f} tok/s   TTFT p50 {1e3 * ttft:6.0f} ms   TPOT p50 {1e3 * tpot:6.1f} ms")
    for name, ratios in compared(found).items():
        words = {what: f"{r.median:.2f}x ({r.least:.2f}-{r.most:.2f})" for what, r in ratios.items()}
        click.echo(f"twostroke to {name}: output {words['output_tok_s']}, TTFT p50 {words['ttft_p50']}")


if __name__ == "__main__":
    main()
