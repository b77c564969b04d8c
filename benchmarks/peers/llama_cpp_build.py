"""llama.cpp, fetched and built. Owns which version, from where, and with which flags.

The source is the one inside the `llama-cpp-python` package of the Python package index; its Python wrapper is not used,
being several times slower than llama.cpp itself on a small model.
"""

import os
import shutil
import sys
import tarfile
from pathlib import Path

import click

from .command import output_of, run_logged

PACKAGE = "llama-cpp-python==0.3.36"
TOOLS = ("llama-bench", "llama-batched-bench", "llama-server", "llama-cli", "llama-completion")
# Flags of each level beyond SSE, and the CPU flag in /proc/cpuinfo without which it is left out.
_AVX2 = {"SSE42": "sse4_2", "AVX": "avx", "AVX2": "avx2", "FMA": "fma", "F16C": "f16c", "BMI2": "bmi2"}
_AVX512 = {
    "AVX512": "avx512f",
    "AVX512_VBMI": "avx512_vbmi",
    "AVX512_VNNI": "avx512_vnni",
    "AVX512_BF16": "avx512_bf16",
}
LEVELS = {"avx2": _AVX2, "avx512": _AVX2 | _AVX512}


def llama_cpp_binaries(folder: Path, isa: str | None) -> Path:
    """The folder of TOOLS for this level (None: all that this machine has), fetched and built below `folder` where they
    are not there yet. Raises ClickException where that fails."""
    name = PACKAGE.replace("==", "-")
    build = folder / name / f"build-{isa or 'native'}"
    if not all((build / "bin" / tool).exists() for tool in TOOLS):
        source = _fetch(folder / name) / "vendor" / "llama.cpp"
        click.echo(f"llama.cpp: building in {build}; takes some minutes once", err=True)
        log, jobs = folder / name / f"build-{isa or 'native'}.log", str(len(os.sched_getaffinity(0)))
        run_logged(["cmake", "-S", source, "-B", build, *flags(isa, _cpu_flags())], log)
        run_logged(["cmake", "--build", build, "-j", jobs, "--target", *TOOLS], log)
    return build / "bin"


def _fetch(folder: Path) -> Path:
    """The unpacked source package. It has its place only once it is whole."""
    source = folder / "source"
    if not source.is_dir():
        click.echo(f"llama.cpp: fetching the source of {PACKAGE} into {folder}", err=True)
        shutil.rmtree(unfinished := folder / "unfinished", ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", "--dest", unfinished]
        run_logged([*pip, PACKAGE], folder / "fetch.log")
        (archive,) = unfinished.glob("*.tar.gz")
        with tarfile.open(archive) as file:
            file.extractall(unfinished, filter="data")
        (unpacked,) = (path for path in unfinished.iterdir() if path.is_dir())
        unpacked.rename(source)
        shutil.rmtree(unfinished)
    return source


def flags(isa: str | None, cpu_flags: set[str]) -> list[str]:
    """CMake's. A lower level leaves out what this machine has above it, and what it lacks of it."""
    found = ["-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=OFF", "-DLLAMA_CURL=OFF", "-DLLAMA_OPENSSL=OFF"]
    found += ["-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_UI=OFF", "-DLLAMA_BUILD_MTMD=OFF"]
    found += _compiler_flags()
    if isa is None:
        return [*found, "-DGGML_NATIVE=ON"]
    level = [f"-DGGML_{name}=ON" for name, needed in LEVELS[isa].items() if needed in cpu_flags]
    return [*found, "-DGGML_NATIVE=OFF", *level]


def _compiler_flags() -> list[str]:
    """GCC where there is one: Clang 14 makes it four times slower. GCC 12 drops stores that its AMX code needs."""
    if os.environ.get("CXX") or not shutil.which("g++"):
        return []
    found = ["-DCMAKE_C_COMPILER=gcc", "-DCMAKE_CXX_COMPILER=g++"]
    if output_of(["g++", "-dumpversion"]).strip().split(".")[0] == "12":
        found.append("-DCMAKE_CXX_FLAGS=-fno-tree-dse -fno-dse")
    return found


def _cpu_flags() -> set[str]:
    """Of the first processor, as Linux names them."""
    for line in Path("/proc/cpuinfo").read_text("ascii", "replace").splitlines():
        if line.startswith("flags"):
            return set(line.partition(":")[2].split())
    return set()
