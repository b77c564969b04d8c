"""Machines with less than all: CPUs taken away (CPU-01), instruction sets missing (CPU-03), BF16 without its own
instructions (CPU-05)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.command_line import invoke
from tests.tiny import write_tiny_gguf
from tests.tiny_directory import write_tiny_directory

from twostroke import LLM
from twostroke.errors import ConfigError
from twostroke.llm.config import ISA_NAMES
from twostroke.native.executor import available_isas
from twostroke.native.threads import choose_threads

MESSAGE = "a nice tea, 12 of them"


def test_threads_are_those_that_affinity_leaves(tiny_path: Path) -> None:
    """Bound to one CPU, one thread computes, and the report says why."""
    cpu = min(os.sched_getaffinity(0))
    code = (
        f"import os, sys; os.sched_setaffinity(0, [{cpu}]); from twostroke import LLM\n"
        "llm = LLM(sys.argv[1]); print(llm.threads.num_threads, llm.threads.reason)"
    )
    command = [sys.executable, "-c", code, str(tiny_path)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown.startswith("1 1 thread") and "1 CPU allowed" in shown


def test_threads_are_within_a_containers_quota(tmp_path: Path) -> None:
    """Four CPUs' time of an eight-CPU host is four threads, however many CPUs are to be seen."""
    for cpu in range(8):
        topology = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        (topology / "core_id").write_text(f"{cpu}\n")
        (topology / "physical_package_id").write_text("0\n")
        (topology / "thread_siblings_list").write_text(f"{cpu}\n")
        (topology / "core_cpus_list").write_text(f"{cpu}\n")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    quota = tmp_path / "sys/fs/cgroup/cpu.max"
    quota.write_text("400000 100000\n")
    assert choose_threads(affinity=range(8), root=tmp_path).num_threads == 4
    quota.write_text("max 100000\n")
    assert choose_threads(affinity=range(8), root=tmp_path).num_threads == 8


def test_the_same_answer_on_every_instruction_set_that_is_here(tiny_path: Path) -> None:
    scores = []
    for isa in available_isas():
        with LLM(tiny_path, threads=1, isa=isa) as llm:
            assert llm.isa == isa
            scores.append(llm.score(MESSAGE, phase="decode").logprobs)
            assert llm.generate("the rain", temperature=0, max_tokens=5, ignore_eos=True).completion_tokens == 5
    assert available_isas()[0] == "scalar"  # runs anywhere
    for other in scores[1:]:
        assert other == pytest.approx(scores[0], abs=0.01)


def test_an_instruction_set_that_is_not_here_is_refused_by_name(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = [name for name in ISA_NAMES if name not in available_isas()]
    if not missing:
        monkeypatch.setattr("twostroke.native._core.available_isas", lambda: ["scalar"])
        missing = ["avx2"]
    with pytest.raises(ConfigError, match=f"instruction set '{missing[0]}' is not among this machine's: scalar"):
        LLM(tiny_path, isa=missing[0])
    result = invoke("run", str(tiny_path), "tea", "--isa", missing[0], text="")
    assert isinstance(result.exception, ConfigError)


@pytest.mark.parametrize("isa", [name for name in available_isas() if name in ("scalar", "avx2")])
def test_bf16_weights_stay_bf16_where_there_are_no_instructions_for_them(tmp_path: Path, isa: str) -> None:
    """Read as they are by a kernel of our own: half the bytes of F32, and the values' own answer."""
    gguf = write_tiny_gguf(tmp_path / "m.gguf", "qwen2", seed=5)
    cut = write_tiny_directory(tmp_path / "bf16", gguf, in_bf16=True)
    with LLM(cut, threads=1, isa=isa) as llm, LLM(gguf, threads=1, isa=isa) as plain:
        vectors = plain.weight_bytes - 2 * (plain.weight_bytes - llm.weight_bytes)
        assert 0 < vectors < 0.05 * plain.weight_bytes  # matrices have half the bytes, vectors the same
        found = llm.generate(MESSAGE, temperature=0, max_tokens=12, ignore_eos=True).token_ids
        scores = llm.score(MESSAGE, phase="decode").logprobs
    with LLM(cut, threads=1) as best:  # whatever is the fastest here
        assert best.generate(MESSAGE, temperature=0, max_tokens=12, ignore_eos=True).token_ids == found
        found_scores = best.score(MESSAGE, phase="decode").logprobs  # but for the first row, which is a prompt
        assert found_scores == pytest.approx(scores, abs=0.1)
