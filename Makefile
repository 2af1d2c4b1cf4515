# Two commands do everything on a fresh machine:
#   make golden   run the main job on this host: lock, build, canary, check
#   make test     run all tests, on a real container engine where one can be had
# Both make what they need (virtual environment, and as root on Debian or Ubuntu an engine).
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PY := .venv/bin/python
PYTEST_ARGS ?=
PYTHON ?= python3

.PHONY: help golden gpu-check test lint reformat bench docs docs-check clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r name text; do printf '  make %-12s %s\n' "$$name" "$$text"; done

golden:  ## run the main job on this host: lock, build, canary, check
	@scripts/venv.sh run
	@engine="$$(scripts/engine.sh)" && eval "$$engine" && $(PY) scripts/golden.py

gpu-check:  ## try a machine with a real NVIDIA GPU; needs only Python with torch (PYTHON=, OUT=)
	@$(PYTHON) scripts/gpu_check.py

test:  ## run all tests; each skip is printed with its reason
	@scripts/venv.sh test
	@engine="$$(scripts/engine.sh --registry)" || { [ -z "$${ENVLOCK_REQUIRE_ENGINE:-}" ] && engine= && echo 'engine: none, so the tests that need one are skipped, each saying so' >&2; }; eval "$$engine"; $(PY) -m pytest $(PYTEST_ARGS)

lint:  ## format check, ruff, mypy strict
	@scripts/venv.sh test
	@$(PY) -m ruff format --check . && $(PY) -m ruff check . && $(PY) -m mypy

reformat:  ## format the code
	@scripts/venv.sh test
	@$(PY) -m ruff format . && $(PY) -m ruff check --fix .

bench:  ## print the table of ratios (see docs/benchmarks.md)
	@scripts/venv.sh test
	@engine="$$(scripts/engine.sh)" || engine=; eval "$$engine"; $(PY) -m bench

docs:  ## write the generated parts of the documentation anew
	@scripts/venv.sh test
	@$(PY) scripts/docs.py --write

docs-check:  ## check that the documentation says what the program says
	@scripts/venv.sh test
	@$(PY) scripts/docs.py --check

clean:  ## remove what the targets made here (never the store, never an engine's images)
	@rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .golden lockfiles/local *.egg-info
