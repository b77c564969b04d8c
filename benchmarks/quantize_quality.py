"""How good are our quantised files beside llama.cpp's of the same types, by the perplexity of one passage?

    python benchmarks/quantize_quality.py MODEL.gguf --llama-quantize /path/to/llama-quantize

MODEL.gguf holds F32, F16 or BF16 weights (`twostroke quantize smollm2 smollm2.gguf --type f16` makes one). For each
type it is written by `twostroke quantize` and by llama.cpp's tool, without an importance matrix and with the type of
every tensor alike; both files are scored by this engine, as generated rows. Without --llama-quantize only ours are. The
last line is JSON.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from twostroke import LLM
from twostroke.weights.gguf import GGUFFile

TYPES = ("q4_0", "q4_k", "q5_k", "q6_k", "q8_0")
# What llama.cpp's tool calls a file of this type; with --pure every matrix has it.
THEIR_NAMES = {"q4_0": "Q4_0", "q4_k": "Q4_K_S", "q5_k": "Q5_K_S", "q6_k": "Q6_K", "q8_0": "Q8_0"}
MAIN = "from twostroke.cli.main import main; main()"
PASSAGE = Path(__file__).parents[1] / "tests" / "golden" / "smollm2-135m-instruct-q4_1.json"


def show(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def perplexity(path: Path, text: str) -> float:
    with LLM(str(path)) as llm:
        return float(2.718281828459045 ** llm.score(text, "decode").mean_nll)


def types_of(path: Path) -> dict[str, str]:
    with GGUFFile.open(path) as file:
        return {name: info.type.name for name, info in file.tensors.items()}


def write_ours(model: Path, out: Path, kind: str) -> None:
    command = [sys.executable, "-c", MAIN, "quantize", str(model), str(out), "--type", kind]
    subprocess.run(command, check=True, capture_output=True)


def write_theirs(tool: Path, model: Path, out: Path, kind: str, ours: dict[str, str]) -> None:
    """With the types that our file's embedding table and output matrix have."""
    table = ours["token_embd.weight"].lower()
    output = ours.get("output.weight", table).lower()
    options = ["--pure", "--token-embedding-type", table, "--output-tensor-type", output]
    subprocess.run([str(tool), *options, str(model), str(out), THEIR_NAMES[kind]], check=True, capture_output=True)
    other = {name: (found, ours[name]) for name, found in types_of(out).items() if found != ours[name]}
    if other:
        sys.exit(f"{kind}: tensors of other types than ours: {other}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--llama-quantize", type=Path, help="llama.cpp's tool, to compare with")
    parser.add_argument("--types", nargs="+", choices=TYPES, default=TYPES)
    options = parser.parse_args()
    text = json.loads(PASSAGE.read_text())["passage"]["text"]
    whole = perplexity(options.model, text)
    show(f"{'type':6} {'ours':>9} {'llama.cpp':>10} {'ours to theirs':>15}     not quantised: {whole:.3f}")
    rows = []
    for kind in options.types:
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs = Path(folder) / "ours.gguf", Path(folder) / "theirs.gguf"
            write_ours(options.model, ours, kind)
            row: dict[str, object] = {"type": kind, "ours": (mine := perplexity(ours, text))}
            line = f"{kind:6} {mine:9.3f}"
            if options.llama_quantize:
                write_theirs(options.llama_quantize, options.model, theirs, kind, types_of(ours))
                row |= {"llama_cpp": (other := perplexity(theirs, text)), "ratio": mine / other}
                line += f" {other:10.3f} {mine / other - 1:+15.2%}"
            show(line)
            rows.append(row)
    show(json.dumps({"model": options.model.name, "not_quantised": whole, "types": rows}))


if __name__ == "__main__":
    main()
