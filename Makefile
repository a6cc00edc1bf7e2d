# Every target sets up what it needs in .venv, and is quick the second time.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
export PATH := $(abspath $(BIN)):$(PATH)

EXTENSION := setup.py $(wildcard src/wheelsched/*.pyx src/wheelsched/*.pxd)

.DEFAULT_GOAL := help
.PHONY: help setup test test-long lint types check dist clean

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

test: setup ## the tests
	$(PYTEST) -m "not long"

test-long: setup ## the tests with a hundred times the cases: an hour or two
	HYPOTHESIS_PROFILE=long $(PYTEST)

lint: setup ## ruff, cython-lint and the import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/cython-lint src
	$(BIN)/lint-imports --no-logo

types: setup ## mypy, and the stubs of the extension against the extension
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest wheelsched._wheel

dist: setup ## build the sdist and the wheel
	rm -rf dist
	$(BIN)/python -m build --outdir dist

check: lint types dist test ## what CI runs

clean: ## remove everything that was built
	rm -rf $(VENV) build dist src/*.egg-info src/wheelsched/*.so src/wheelsched/_wheel.c
