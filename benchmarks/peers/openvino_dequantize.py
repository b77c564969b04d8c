"""Writes a GGUF file's model in float32 as a Hugging Face directory. Runs in OpenVINO's environment.

python openvino_dequantize.py MODEL.gguf FOLDER
"""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main() -> None:
    model, folder = Path(sys.argv[1]), Path(sys.argv[2])
    source = {"pretrained_model_name_or_path": str(model.parent), "gguf_file": model.name}
    AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32).save_pretrained(folder)
    AutoTokenizer.from_pretrained(**source).save_pretrained(folder)


if __name__ == "__main__":
    main()
