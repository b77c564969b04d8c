"""How fast is Twostroke beside other engines, here? Each is run in turn at its best setting; see `--help`."""

import json
from pathlib import Path
from typing import Any

import click

from twostroke.native.executor import pick_isa
from twostroke.native.threads import choose_threads
from twostroke.roofline.machine import cpu_model
from twostroke.weights.fetch import ensure

from .llama_cpp import LlamaCpp
from .llama_cpp_build import LEVELS, PACKAGE, llama_cpp_binaries
from .openvino import OpenVINO
from .own import Twostroke
from .question import questions
from .table import lines
from .turns import Engine, ask

FOLDER = Path.home() / ".cache" / "twostroke-peers"
PEERS = ("llama.cpp", "openvino")


@click.command()
@click.argument("models", nargs=-1)
@click.option("--peer", "peers", multiple=True, type=click.Choice(PEERS), help="Only this one; may be given again.")
@click.option("--isa", type=click.Choice(list(LEVELS)), help="Compare this lower instruction set, on both sides.")
@click.option("--rounds", default=5, show_default=True, help="Times that every engine has its turn.")
@click.option("--prefill", default=512, show_default=True, help="Tokens of the timed prompt; 0: none.")
@click.option("--decode", default=128, show_default=True, help="Tokens of the timed answer; 0: none.")
@click.option("--batch", default=16, show_default=True, help="Answers together, 64 tokens after 64; 0: none.")
@click.option("--pause", default=0.0, help="Seconds between turns, for whoever shares this machine.")
@click.option("--threads", type=int, help="Default: what Twostroke chooses.")
@click.option("--folder", type=click.Path(path_type=Path), default=FOLDER, help="Where peers are set up.")
@click.option("--llama-cpp", type=click.Path(path_type=Path), help="Folder of llama.cpp's binaries, already built.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(models: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Run Twostroke and its peers in turn, A B C A B C, on the same MODELS, prompts and threads.

    MODELS are aliases or GGUF files; by default smollm2 and qwen2.5-coder-1.5b. A ratio is of two rates in the same
    round; its median over the rounds is shown with the least and the most. On a machine that others use, `chrt -f 5`
    before the command keeps them off; two such runs at once stop each other.
    """
    threads = choose_threads(options["threads"]).num_threads
    asked = questions(options["prefill"], options["decode"], options["batch"])
    report: dict[str, Any] = {"machine": cpu_model(), "threads": threads, "isa": pick_isa(options["isa"])}
    report["models"] = {}
    for name in models or ("smollm2", "qwen2.5-coder-1.5b"):
        path = ensure(name, progress=lambda *_: None)
        engines = _engines(path, threads, options)
        report["llama_cpp"] = str(options["llama_cpp"] or PACKAGE)
        if not as_json:
            click.echo(
                f"\n{path.name}, {threads} threads of {cpu_model()}, {report['isa']}; {options['rounds']} rounds"
            )
        answers = [ask(engines, path, one, options["rounds"], _tell, options["pause"]) for one in asked]
        report["models"][path.name] = [answer.fields() for answer in answers]
        if not as_json:
            click.echo("\n".join(lines(answers, engines[0].name)))
    if as_json:
        click.echo(json.dumps(report))


def _engines(model: Path, threads: int, options: dict[str, Any]) -> list[Engine]:
    """Twostroke first, then the peers asked for, set up."""
    isa, folder = options["isa"], options["folder"]
    peers = options["peers"] or (PEERS if isa is None else ("llama.cpp",))
    if isa is not None and "openvino" in peers:
        raise click.UsageError("--isa is for llama.cpp alone: OpenVINO is compared at the best this machine has")
    engines: list[Engine] = [Twostroke(threads, isa)]
    if "llama.cpp" in peers:
        engines.append(LlamaCpp(options["llama_cpp"] or llama_cpp_binaries(folder, isa), threads))
    if "openvino" in peers:
        openvino = OpenVINO(folder / "openvino", threads)
        openvino.prepare(model)
        engines.append(openvino)
    return engines


def _tell(name: str, rate: float) -> None:
    click.echo(f"  {name} {rate:,.1f} tok/s", err=True)


if __name__ == "__main__":
    main()
