# Short names for what is done often. Every target sets up what it needs.

PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
PYTEST_ARGS ?=
DEMO_ARGS ?=

.PHONY: setup check format test bench demo scenario clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "kvroute needs Python 3.11 or newer, found: $$($(PYTHON) --version 2>&1)"; exit 1; }
	@echo "installing into $(VENV), about half a minute"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[test,bench,fast,otel]'
	@touch $(STAMP)

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: setup
	$(BIN)/pytest $(PYTEST_ARGS)

bench: setup
	$(BIN)/python -m benchmarks

demo: setup
	$(BIN)/kvroute demo $(DEMO_ARGS)

scenario: setup
	$(BIN)/kvroute scenario refill

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
