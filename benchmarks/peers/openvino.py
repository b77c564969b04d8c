"""OpenVINO GenAI as it is compared. Owns its environment, the export of a model, and how it is asked.

It does not run these GGUF files at their own types: the file's weights, dequantised to float32, are exported with 4-bit
weights in groups of 64, its own best. So its model is not the same to the bit, and its accuracy is not compared.
"""

import json
import shutil
import venv
from dataclasses import dataclass
from pathlib import Path

import click

from .command import output_of, run_logged
from .question import Question

# Versions that work together.
PACKAGES = ("torch==2.13.0", "optimum-intel==2.2.0", "openvino-genai==2026.4.1.0", "gguf==0.19.0", "accelerate==1.15.0")
_HERE = Path(__file__).parent
RUN, DEQUANTIZE = _HERE / "openvino_run.py", _HERE / "openvino_dequantize.py"


@dataclass(frozen=True, slots=True)
class OpenVINO:
    """`folder` has the environment and the exported models."""

    folder: Path
    threads: int
    name: str = "openvino"

    def rate(self, model: Path, question: Question) -> float:
        exported = self.folder / model.stem
        lengths = [question.prompt_tokens, question.gen_tokens, question.batch, self.threads]
        said = output_of([self.folder / "venv/bin/python", "-P", RUN, exported, *map(str, lengths)])
        return float(json.loads(said.splitlines()[-1])["tok_s"])

    def prepare(self, model: Path) -> None:
        """Makes the environment and exports the model, where they are not there yet. Raises ClickException."""
        python, log = self.folder / "venv/bin/python", self.folder / "setup.log"
        done = self.folder / "venv/.installed"
        if not done.exists():
            click.echo(f"openvino: making its environment in {self.folder}; takes some minutes once", err=True)
            venv.create(self.folder / "venv", with_pip=True)
            run_logged([python, "-m", "pip", "install", *PACKAGES], log)
            # Only images need torchvision; where its build is not for torch's, nothing can be imported beside it.
            run_logged([python, "-m", "pip", "uninstall", "--yes", "torchvision"], log)
            done.touch()
        exported = self.folder / model.stem
        if not (exported / "openvino_model.xml").exists():
            click.echo(f"openvino: exporting {model.name} with 4-bit weights; takes some minutes once", err=True)
            plain = self.folder / f"{model.stem}-f32"
            run_logged([python, "-P", DEQUANTIZE, model, plain], log)
            export = ["export", "openvino", "--model", plain, "--task", "text-generation-with-past"]
            export += ["--weight-format", "int4", "--group-size", "64", exported]
            run_logged([self.folder / "venv/bin/optimum-cli", *export], log)
            shutil.rmtree(plain)
