# The two commands: `make run PROMPT="..."` answers with the default model, `make test` checks the project.
# Both start from nothing but Python 3.11, a C++ compiler and make, and are quick the second time: everything lands in
# $(VENV), whose stamp files say what is up to date. Python sources are live; a change under csrc/ rebuilds the core.

VENV   ?= .venv
MODEL  ?= smollm2
PROMPT ?= Why is the sky blue? Answer in two sentences.
RUN_ARGS ?= --max-tokens 512
PEERS_ARGS ?=
PYTEST_ARGS ?=

PY        := $(VENV)/bin/python
PIP       := $(PY) -m pip --disable-pip-version-check --quiet
INSTALLED := $(VENV)/.installed
DEV       := $(VENV)/.installed-dev
CORE      := $(VENV)/.core
CORE_SOURCES := CMakeLists.txt $(shell find csrc 2>/dev/null)

export PROMPT MODEL
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell getconf _NPROCESSORS_ONLN)

MAKEFLAGS += --no-print-directory
.DELETE_ON_ERROR:
.PHONY: help run test test-large lint format types layers docs bench-peers check-aarch64 sanitize build prerequisites
.PHONY: clean

help:
	@echo 'make run PROMPT="..."   answer with $(MODEL); the first time builds, installs and fetches the model'
	@echo '                       options in RUN_ARGS, here $(RUN_ARGS)'
	@echo 'make test               the default tests; arguments in PYTEST_ARGS'
	@echo 'make test-large         the tests that need the 1.5B model (1.1 GB, fetched once)'
	@echo 'make build              $(VENV) with the package and its compiled core'
	@echo 'make lint types layers  what CI checks before the tests; make format to rewrite'
	@echo 'make check-aarch64      cross-compile the scalar core for 64-bit Arm'
	@echo 'make sanitize           tests/fuzz and tests/native on a core built with sanitizers; SANITIZERS, SANITIZE_TESTS'
	@echo 'make bench-peers        beside llama.cpp and OpenVINO GenAI, in ~/.cache/twostroke-peers; options in PEERS_ARGS'
	@echo 'make docs               docs/cli.md and docs/api.md from the command line and the server'
	@echo 'make clean              remove $(VENV) and every build output'

run: build
	@$(VENV)/bin/twostroke run $(RUN_ARGS) -- "$$MODEL" "$$PROMPT"

test: build $(DEV)
	@$(PY) -m pytest $(PYTEST_ARGS)

test-large: build $(DEV)
	@$(PY) -m pytest -m large $(PYTEST_ARGS)

lint: $(DEV)
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .

format: $(DEV)
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .

types: build $(DEV)
	@$(VENV)/bin/mypy

layers: $(DEV)
	@PYTHONPATH=src $(VENV)/bin/lint-imports

docs: build
	@$(PY) docs/generate_cli.py docs/cli.md
	@$(PY) docs/generate_api.py docs/api.md

bench-peers: build
	@$(PY) -m benchmarks.peers $(PEERS_ARGS)

# --- build ----------------------------------------------------------------------------------------------------------

build: $(INSTALLED) $(CORE)

# The interpreter: PYTHON if given, else the first of these that is new enough.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)

# What this machine lacks, as one line; empty when nothing. (The shell sees all of it as one line.)
define FIND_MISSING
test -n "$(PYTHON)" || { echo "no Python 3.11 or newer found; name one with PYTHON=/path/to/python3"; exit; };
has() { "$(PYTHON)" -c "import os, sys, sysconfig; $$1" >/dev/null 2>&1; };
has "sys.exit(sys.version_info < (3, 11))" || { echo "$(PYTHON) is not Python 3.11 or newer"; exit; };
has "import ensurepip, venv" || { echo "$(PYTHON) lacks venv or pip (Debian, Ubuntu: apt install python3-venv)"; exit; };
has "open(sysconfig.get_path('include') + '/Python.h')" ||
	{ echo "$(PYTHON) lacks its C headers (Debian, Ubuntu: apt install python3-dev)"; exit; };
compiles() { echo "int main() {}" | "$$@" -std=c++20 -fsyntax-only -x c++ - >/dev/null 2>&1; };
for cxx in "$${CXX:-c++}" g++ clang++; do
	compiles $$cxx && exit;
	test -z "$$CXX" && ! command -v $$cxx >/dev/null 2>&1 && continue;
	echo "$$cxx does not compile C++20; GCC 12 or Clang 15 is needed"; exit;
done;
echo "no C++ compiler found (Debian, Ubuntu: apt install g++)"
endef
MISSING = $(shell $(FIND_MISSING))
stop_if = $(if $(1),$(error $(1)))

prerequisites:
	$(call stop_if,$(MISSING))
	@echo 'make: nothing is missing'

$(PY):
	$(call stop_if,$(MISSING))
	@"$(PYTHON)" -m venv $(VENV)

# The build tools, cmake and ninja only where the system's are missing or too old; then the package, its core compiled.
$(INSTALLED): pyproject.toml | $(PY)
	@echo 'make: installing the package and compiling its core; takes a few minutes once'
	@$(PIP) install 'scikit-build-core>=0.10' 'nanobind>=2.4'
	@$(PY) -c 'from scikit_build_core.build import get_requires_for_build_editable as get; print(*get({}), sep="\n")' \
		> $(VENV)/build-tools.txt
	@$(PIP) install -r $(VENV)/build-tools.txt
	@$(PIP) install --no-build-isolation -e .
	@touch $@ $(CORE)

$(CORE): $(CORE_SOURCES) | $(INSTALLED)
	@echo 'make: compiling the core'
	@$(PIP) install --no-build-isolation --no-deps -e .
	@touch $@

$(DEV): pyproject.toml | $(INSTALLED)
	@echo 'make: installing the development tools'
	@$(PIP) install --no-build-isolation -e '.[dev]'
	@touch $@ $(CORE)

# --- portability ----------------------------------------------------------------------------------------------------

AARCH64_CXX ?= aarch64-linux-gnu-g++

check-aarch64: $(INSTALLED)
	@if command -v $(AARCH64_CXX) >/dev/null 2>&1; then \
		PATH="$(abspath $(VENV))/bin:$$PATH"; \
		cmake -S . -B build/aarch64 -DTWOSTROKE_BINDINGS=OFF -DCMAKE_SYSTEM_NAME=Linux \
			-DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=$(AARCH64_CXX) >/dev/null && \
		cmake --build build/aarch64 -j $$CMAKE_BUILD_PARALLEL_LEVEL && echo 'aarch64: the scalar core compiles'; \
	else \
		echo 'check-aarch64: skipped, $(AARCH64_CXX) is not installed (Debian: g++-aarch64-linux-gnu)'; \
	fi

# --- sanitizers -----------------------------------------------------------------------------------------------------

# An environment of its own by the same rules. Python is not built with sanitizers: their runtime is loaded before it,
# and with it the C++ library whose exceptions it follows; what the interpreter never frees is no leak of ours.
SANITIZERS     ?= address,undefined
SANITIZE_TESTS ?= tests/fuzz tests/native
SANITIZED      := build/sanitized
RUNTIME        := $(if $(findstring thread,$(SANITIZERS)),libtsan.so,libasan.so)

sanitize: export SKBUILD_BUILD_DIR := $(SANITIZED)/core
sanitize: export SKBUILD_CMAKE_BUILD_TYPE := Sanitized
sanitize: export SKBUILD_CMAKE_ARGS := -DTWOSTROKE_SANITIZE=$(SANITIZERS);-DCMAKE_CXX_FLAGS_SANITIZED=-O1
sanitize: prerequisites
	@$(MAKE) VENV=$(SANITIZED)/venv build $(SANITIZED)/venv/.installed-dev
	@preload() { for name; do $${CXX:-c++} -print-file-name=$$name; done; }; \
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
		LD_PRELOAD="$$(preload $(RUNTIME) libstdc++.so)" \
		$(SANITIZED)/venv/bin/python -m pytest $(SANITIZE_TESTS) $(PYTEST_ARGS)

clean:
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
