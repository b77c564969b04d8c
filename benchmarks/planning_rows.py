"""Published measurements as cases for the planner: what each row ran, what it says, and why a row is left out.

Owns the meaning of the table's columns. A row that states two speeds gives two cases. Every row that gives none has a
reason.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from planning_names import catalogue_hardware, catalogue_model

from twostroke.errors import TwostrokeError
from twostroke.roofline.device import Device
from twostroke.roofline.efficiency import WeightClass, hardware_class, weight_class
from twostroke.roofline.model_catalogue import CatalogueModel

Phase = Literal["decode", "prefill", "request"]
# Sources that are known to be wrong about what they ran, or far from what the same software does elsewhere. They are
# scored, in strata of their own, and nothing is fitted on them.
OUTLIERS: tuple[tuple[str, str], ...] = (
    (r"Argonne.*MI300X", "software of 2024 at a few percent of this device's peak"),
    (r"XiongjieDai.*(A100 SXM|L40S).*F16.*prefill", "half the speed of the same chip in the same table's other rows"),
    (r"KV=fp8.*A100|A100.*KV=fp8", "8-bit KV on a device without 8-bit floats: converted in software"),
    (r"probably partly offloaded|spills to RAM", "part of the model was in the host's memory"),
)


@dataclass(frozen=True, slots=True)
class Case:
    """One speed of one row.

    prompt   tokens of each prompt; depth: tokens cached before; gen: tokens generated; chunk: prompt rows at a time
    seconds  what it took: a decode step in the mean, a whole prefill, or a whole request of `batch`
    """

    row: int
    source: str
    engine: str
    device: Device
    bandwidth: float
    kind: str
    model: CatalogueModel
    moe: bool
    weights: WeightClass
    bits: float
    kv_bits: float
    phase: Phase
    batch: int
    prompt: int
    depth: int
    gen: int
    chunk: int | None
    seconds: float
    outlier: str

    @property
    def run(self) -> str:
        """What was run, as bands are told apart."""
        mixture, batched = "mixture " if self.moe else "", "batched " if self.batch > 1 else ""
        return f"{mixture}{batched}{self.phase}" if self.phase != "request" else f"{mixture}request"

    @property
    def group(self) -> tuple[str, str, str]:
        """What was run, by what, on what: a stratum where there are enough of the kind (see `planning_strata`)."""
        if self.outlier:
            return "known outliers", "", ""
        if self.phase == "request":
            return self.run, self.engine, ""
        engine = self.engine if self.engine in ("llama.cpp", "ollama") else "other engines"
        return self.run, engine, _GROUPS.get(self.kind, "AMD and Intel")

    @property
    def is_strict(self) -> bool:
        """Among those held to 10%: llama.cpp at batch 1 on GeForce, Apple and DGX Spark, dense models."""
        name = self.device.name
        strict = self.kind == "apple" or re.search(r"GTX|RTX (20|30|40|50)\d0|Spark|GB10", name) is not None
        plain = self.engine == "llama.cpp" and self.batch == 1 and self.phase == "decode"
        return plain and strict and not self.moe and not self.outlier


_GROUPS: Mapping[str, str] = {
    "nvidia": "NVIDIA cards",
    "nvidia-datacenter": "NVIDIA data centre",
    "apple": "Apple",
    "cpu": "CPUs",
}


def read_cases(
    path: Path, devices: Mapping[str, Device], models: Mapping[str, CatalogueModel]
) -> tuple[list[Case], dict[str, list[int]], list[tuple[Case, bool]]]:
    """Cases; line numbers of rows left out, by reason; and cases that say whether a model fitted."""
    cases: list[Case] = []
    dropped: dict[str, list[int]] = {}
    fits: list[tuple[Case, bool]] = []
    with path.open(newline="", encoding="utf-8") as file:
        for number, row in enumerate(csv.DictReader(file), start=2):
            reason = _reason(row)
            if reason is None:
                try:
                    found = list(_cases(number, row, devices, models))
                except TwostrokeError as error:
                    text = str(error).partition(";")[0]
                    reason = f"{row['model']}: {text.partition(', only')[0]}" if "model_type" in text else text
                    found = []
                if row["metric"] == "out of memory":
                    fits += [(case, False) for case in found]
                    continue
                cases += found
                fits += [(case, True) for case in found[:1] if _says_it_fits(row)]
                if not found and not reason:
                    reason = "prefill on a device whose FLOP/s are not published"
            if reason is not None:
                dropped.setdefault(reason, []).append(number)
    return cases, dropped, fits


def _says_it_fits(row: Mapping[str, str]) -> bool:
    return bool(row["decode_tok_s"]) and "XiongjieDai" in row["source"]


def _reason(row: Mapping[str, str]) -> str | None:
    """Why a row is not a case of one device that runs a whole model in the usual way."""
    hardware, note = row["hardware"], row["note"]
    if re.search(r" x\d|[Cc]luster", hardware):
        return "several devices"
    if re.search(r"\(U280|SambaNova|Horizon|NPU", hardware):
        return "a kind of device of which there is one source only"
    if "experts on CPU" in note or "GPU/CPU" in note:
        return "part of the model in another memory"
    if "S=1 pipelined" in note and not row["decode_tok_s"]:
        return "prefill token by token"
    if "Core Ultra" in hardware:
        return "device not identified"
    return None


def _cases(
    number: int, row: Mapping[str, str], devices: Mapping[str, Device], models: Mapping[str, CatalogueModel]
) -> Iterator[Case]:
    device = catalogue_hardware(row["hardware"], row["note"], devices)
    model = catalogue_model(row["model"], models)
    model.config()  # raises where no family builds it
    for phase, batch, prompt, depth, gen, chunk, seconds in _speeds(row):
        if phase != "decode" and not device.flops:
            continue  # what bounds it is not published
        on_cpu = re.search(r"device used: CPU|\bCPU\b", row["note"] + row["hardware"]) is not None
        kind = "cpu" if on_cpu else hardware_class(device.name, device.kind)
        text = " ".join((row["source"], row["hardware"], row["weights_format"], row["note"], phase))
        yield Case(
            row=number,
            source=row["source"].partition(" (")[0],
            engine=row["engine"] or ("ollama" if "ollama" in row["weights_format"] else "unnamed"),
            device=device,
            bandwidth=float(row["mem_bw_gbs"] or 0) * 1e9 or device.bandwidth,
            kind=kind,
            model=model,
            moe=row["moe"] == "yes",
            weights=_weights(row),
            bits=_bits(row),
            kv_bits=8.0 if re.search(r"KV=(fp8|int8)", row["note"]) else 16.0,
            phase=phase,
            batch=batch,
            prompt=prompt,
            depth=depth,
            gen=gen,
            chunk=chunk,
            seconds=seconds,
            outlier=next((why for pattern, why in OUTLIERS if re.search(pattern, text)), ""),
        )


Speed = tuple[Phase, int, int, int, int, int | None, float]


def _speeds(row: Mapping[str, str]) -> Iterator[Speed]:
    """(phase, batch, prompt, depth, gen, chunk, seconds) of each speed that a row states."""
    batch, prompt, gen = (int(row[name] or 0) for name in ("batch", "prompt_len", "gen_len"))
    decode, prefill = (float(row[name] or 0) for name in ("decode_tok_s", "prefill_tok_s"))
    depth = _depth(row["note"])
    if row["metric"] == "out of memory":
        yield "decode", 1, prompt, 0, gen, None, 0.0
        return
    if row["metric"]:
        yield _request(row, batch, prompt, gen, decode)
        return
    if decode:
        in_cache = depth + (prompt if _decodes_after_prompt(row) else 0)
        yield "decode", batch, 0, in_cache, gen or 128, None, batch / decode
    cached = "prefix-cached" in row["note"]
    if prefill and prompt and not cached and "S=1 pipelined" not in row["note"]:
        yield "prefill", batch, prompt, depth, 0, None, batch * prompt / prefill


def _request(row: Mapping[str, str], batch: int, prompt: int, gen: int, decode: float) -> Speed:
    """A whole request. The llama.cpp rows of the Argonne set name as batch what is the number of prompt rows at a
    time: latency falls as it grows, and at 1 every prompt token costs a decode step. They are one request each."""
    seconds = batch * gen / decode
    if row["engine"] == "llama.cpp" and "Argonne" in row["source"]:
        return "request", 1, prompt, 0, gen, batch, seconds
    return "request", batch, prompt, 0, gen, None, seconds


def _depth(note: str) -> int:
    patterns = (
        r"KV depth (\d+)",
        r"with (\d+) tokens already in KV",
        r"^(\d+) tokens already in KV",
        r"decode at (\d+) ctx",
    )
    return next((int(found[1]) for pattern in patterns if (found := re.search(pattern, note))), 0)


def _decodes_after_prompt(row: Mapping[str, str]) -> bool:
    """Whether the prompt was in the cache while the answer was generated; llama-bench's tests begin empty."""
    note = row["note"]
    return bool(re.search(r"batched-bench|e2e latency|llama-server|ms/step|short sequence|VRAM model", note))


def _weights(row: Mapping[str, str]) -> WeightClass:
    name = row["weights_format"].partition(" (")[0].partition("/")[0]
    if name == "Q4_K_M" and row["model"].startswith("gpt-oss"):
        name = "MXFP4"
    return weight_class(
        "q4_k" if "Q4 (ollama" in row["weights_format"] or "ollama default" in name else name,
        mixture=row["moe"] == "yes",
    )


def _bits(row: Mapping[str, str]) -> float:
    """Bits a weight of the whole file: as stated, else the usual figure of the format."""
    if row["bits_per_weight"]:
        return float(row["bits_per_weight"])
    usual = {"Q4_K_M": 4.89, "Q3_K_M": 3.98, "Q4_0": 4.65, "Q4_0 QAT": 4.65, "ollama default Q4": 4.89, "NVFP4": 4.5}
    return usual.get(row["weights_format"], 4.85)
