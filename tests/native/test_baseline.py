"""The core starts on any CPU of its platform: what needs more than the baseline is in kernels, which are chosen."""

import platform
import re
import shutil
import subprocess

import pytest

from twostroke.native import _core

# AVX and what came after it, by the prefix of its mnemonics; and BMI.
BMI = "andn|bextr|bls[a-z]+|bzhi|mulx|pdep|pext|rorx|s[ah][lr]x"
BEYOND = re.compile(rf" *[0-9a-f]+:\t(?:v(?!err|erw|mcall)|(?:{BMI})\b)")
KERNELS = re.compile(r"\b(?:avx2|avx512|avx512_bf16|amx)(?:::|_kernels\b)")


@pytest.mark.skipif(
    shutil.which("objdump") is None or platform.machine() != "x86_64", reason="disassembles x86-64 code with objdump"
)
def test_only_kernels_have_instructions_beyond_the_baseline() -> None:
    """A template of the standard library that one of their files compiled, too, would end an older CPU's process."""
    command = ["objdump", "--disassemble", "--demangle", "--no-show-raw-insn", str(_core.__file__)]
    function, functions, beyond = "", set(), set()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.endswith(">:\n"):
                function = line[line.index("<") + 1 : -3]
                functions.add(function)
            elif BEYOND.match(line):
                beyond.add(function)
    assert process.returncode == 0
    if not any(KERNELS.search(name) for name in functions):
        pytest.skip("the core is stripped: what is not exported has no name")
    assert not [name for name in beyond if not KERNELS.search(name)]
    assert len(beyond) > 50  # the kernels themselves were found
