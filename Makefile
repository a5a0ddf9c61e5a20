# Every target makes its own environment; a fresh clone needs Python 3.11+, make and a C compiler.

PYTHON ?= python3
VENV   ?= .venv
EXTRAS ?= all
BIN    := $(VENV)/bin
TORCH  := $(shell grep '^torch==' constraints.txt)
COMMA  := ,
WANTS_TORCH := $(filter nn gp all,$(subst $(COMMA), ,$(EXTRAS)))

# one thread per test worker, so that two workers do not fight for two cores
SINGLE := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 NUMBA_NUM_THREADS=1

.DEFAULT_GOAL := help
.PHONY: help same-python setup demo readme test slow portable data reproduce lint format bench guard docs pages clean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# an environment keeps the Python that made it: another one on the command line is refused, not ignored
WHICH := import sys; print(sys.version.split()[0], "of", sys.base_prefix)
same-python:
ifeq ($(origin PYTHON),command line)
	@[ ! -x $(BIN)/python ] || [ "$$($(PYTHON) -c '$(WHICH)')" = "$$($(BIN)/python -c '$(WHICH)')" ] || { \
	  echo "error: $(VENV) was made with Python $$($(BIN)/python -c '$(WHICH)'), not with '$(PYTHON)'; remove it with" \
	    "make clean, or keep both: make VENV=.venv-other PYTHON=$(PYTHON)" >&2; exit 1; }
endif

setup: $(VENV)/.installed  ## Create .venv and install everything

$(VENV)/.created: | same-python
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "error: '$(PYTHON)' is not Python 3.11 or newer; point to one with: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@touch $@

# asked for first and by its exact version: a plain `torch` would bring gigabytes of CUDA packages
$(VENV)/.torch: constraints.txt $(VENV)/.created
ifneq ($(WANTS_TORCH),)
	@$(BIN)/python -m pip install --quiet -c constraints.txt "$(TORCH)" || { \
	  echo "error: $(TORCH) cannot be installed for $$($(BIN)/python --version); without PyTorch, and with the tests that" \
	    "need it skipped: make EXTRAS=scale,report,data" >&2; exit 1; }
endif
	@touch $@

$(VENV)/.installed: pyproject.toml constraints.txt $(VENV)/.torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[$(EXTRAS),test,lint,docs]"
	@touch $@

demo: setup  ## Turn a DEQ into two layers, and into one, on the digits data, with tables and pictures
	$(BIN)/notsodeep match --activation relu --recurrent 0.2 --input 0.8 --data digits --report out/demo

readme: demo  ## Run the demo and write its table and picture into the README
	$(BIN)/python scripts/readme.py out/demo

test: setup  ## Run the tests
	$(SINGLE) $(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

slow: setup  ## Run the tests left out of `make test`
	$(SINGLE) $(BIN)/python -m pytest -n 2 -m slow $(ARGS)

portable: setup  ## Run the tests as other processors round them: every environment this machine can imitate
	$(BIN)/python scripts/portable.py $(ARGS)

data: setup  ## Fetch MNIST, Fashion-MNIST and CIFAR-10 and run the tests that need them
	@$(BIN)/notsodeep data fetch all || echo "WARNING: no source could be reached; tests that need these sets are skipped"
	$(SINGLE) $(BIN)/python -m pytest tests -m "data and not slow" -rs $(ARGS)

reproduce: setup  ## Redo every figure and table of the papers, with small sizes, and check the verdicts
	$(SINGLE) $(BIN)/python -m pytest -n 2 -m reproduce $(ARGS)

lint: setup  ## Check format, style, types and the direction of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONPATH=src $(BIN)/lint-imports

format: setup  ## Rewrite the sources in the house style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup  ## Run every benchmark again, and write BENCHMARKS.md and the table of the README
	$(BIN)/notsodeep bench
	$(BIN)/python scripts/readme.py

guard: setup  ## Check that a few ratios of times are within loose limits
	$(BIN)/python benchmarks/guard.py

# not --quiet, which hides the warnings from --strict
docs: setup  ## Build the documentation site into site/, warnings being errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "read it with: $(BIN)/python -m http.server --directory site"

pages: docs  ## Build the documentation, open every page in a browser, and execute the notebooks
	$(SINGLE) $(BIN)/python -m pytest -n 2 -m docs tests $(ARGS)

clean:  ## Remove the environment, caches and outputs
	rm -rf $(VENV) out site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
