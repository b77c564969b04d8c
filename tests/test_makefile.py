"""The Makefile's one clear line where a prerequisite is missing, on machines faked by PATH. Builds nothing."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAKE = shutil.which("make")

pytestmark = pytest.mark.skipif(MAKE is None, reason="make is not installed")


class Machine:
    """A folder that is the whole PATH: what make and its shell need, and the programs that a test adds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("find", "getconf", "echo"):
            self.add(name, f'exec {shutil.which(name)} "$@"')

    def add(self, name: str, script: str) -> None:
        program = self.folder / name
        program.write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
        program.chmod(0o755)

    def add_python(self, name: str = "python3", *, refuses: str = "") -> None:
        """A Python that can do everything but run code that mentions `refuses`."""
        self.add(name, f'case "$2" in *"{refuses or "nothing"}"*) exit 1;; esac')

    def make(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": str(self.folder), "HOME": str(self.folder), "LC_ALL": "C", **variables}
        command = [str(MAKE), "-C", str(ROOT), "prerequisites", f"VENV={self.folder / 'venv'}", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def complaint(self, *arguments: str, **variables: str) -> str:
        """The one line that make stops with."""
        done = self.make(*arguments, **variables)
        (line,) = done.stderr.splitlines()
        assert done.returncode == 2
        assert not (self.folder / "venv").exists()
        return line


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_machine_that_has_everything(machine: Machine) -> None:
    machine.add_python()
    machine.add("c++", "exit 0")
    done = machine.make()
    assert (done.returncode, done.stderr) == (0, "")


def test_no_python(machine: Machine) -> None:
    machine.add("c++", "exit 0")
    assert "no Python 3.11 or newer found; name one with PYTHON=" in machine.complaint()


def test_only_an_old_python(machine: Machine) -> None:
    machine.add_python(refuses="version_info")
    machine.add("c++", "exit 0")
    assert "no Python 3.11 or newer found" in machine.complaint()
    assert "python3 is not Python 3.11 or newer" in machine.complaint("PYTHON=python3")


def test_a_newer_python_is_found_beside_an_old_one(machine: Machine) -> None:
    machine.add_python("python3", refuses="version_info")
    machine.add_python("python3.12")
    machine.add("c++", "exit 0")
    assert machine.make().returncode == 0


def test_python_without_venv(machine: Machine) -> None:
    machine.add_python(refuses="ensurepip")
    machine.add("c++", "exit 0")
    assert "python3 lacks venv or pip (Debian, Ubuntu: apt install python3-venv)" in machine.complaint()


def test_python_without_headers(machine: Machine) -> None:
    machine.add_python(refuses="Python.h")
    machine.add("c++", "exit 0")
    assert "python3 lacks its C headers (Debian, Ubuntu: apt install python3-dev)" in machine.complaint()


def test_no_compiler(machine: Machine) -> None:
    machine.add_python()
    assert "no C++ compiler found (Debian, Ubuntu: apt install g++)" in machine.complaint()


def test_an_old_compiler(machine: Machine) -> None:
    machine.add_python()
    machine.add("g++", "exit 1")
    assert "g++ does not compile C++20; GCC 12 or Clang 15 is needed" in machine.complaint()


def test_a_compiler_named_by_the_user_is_the_one_checked(machine: Machine) -> None:
    machine.add_python()
    machine.add("c++", "exit 0")
    assert "nosuch does not compile C++20" in machine.complaint(CXX="nosuch")
    assert machine.make(CXX=f"{machine.folder / 'c++'}").returncode == 0
