# Every target sets up what it needs in .venv, and is quick the second time.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
export PATH := $(abspath $(BIN)):$(PATH)

EXTENSION := setup.py $(wildcard src/wheelsched/*.pyx src/wheelsched/aio/*.pyx src/wheelsched/_engine/* src/wheelsched/_classes/*)

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types check dist clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sort | sed -E 's/:[^#]*## /\t/' | expand -t 14

setup: $(VENV)/.built ## create .venv and build the extension

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --group build
	$(BIN)/python -m pip install --quiet --no-build-isolation --group dev --editable .
	@touch $@

$(VENV)/.built: $(VENV)/.installed $(EXTENSION)
	$(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

demo: setup ## half a million timers in one second, and how late they were
	$(BIN)/python examples/half_a_million.py

test: setup ## the tests
	$(PYTEST)

lint: setup ## ruff, cython-lint and the import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/cython-lint src
	$(BIN)/lint-imports --no-logo

types: setup ## mypy, and the stubs of the extensions against the extensions
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest wheelsched._wheel wheelsched.aio._callbacks

dist: setup ## build the sdist and the wheel
	rm -rf dist
	$(BIN)/python -m build --outdir dist

check: lint types dist test ## what CI runs

clean: ## remove everything that was built
	rm -rf $(VENV) build dist src/*.egg-info $(wildcard src/wheelsched/*.so src/wheelsched/*/*.so src/wheelsched/*.c src/wheelsched/*/*.c)
