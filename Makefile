.DEFAULT_GOAL := help
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
RUNS := $(VENV)/.runs
SERVES := $(VENV)/.serves

.PHONY: help setup demo serve test lint format bench faults soak clean

help: ## show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

$(READY): pyproject.toml scripts/setup
	@VENV="$(VENV)" sh scripts/setup

$(SERVES): pyproject.toml scripts/setup
	@VENV="$(VENV)" sh scripts/setup serve

$(RUNS): pyproject.toml scripts/setup
	@VENV="$(VENV)" sh scripts/setup run

setup: $(READY) ## make the virtual environment with everything the tests need

demo: $(RUNS) ## a team at work in half a minute: tasks, a kill, memory, a correction, an erased customer
	@$(BIN)/commonplace demo

serve: $(SERVES) ## serve a book to clients on this host, over HTTP and MCP, until Ctrl-C
	@$(BIN)/commonplace init --quiet
	@$(BIN)/commonplace serve $(ARGS)

lint: $(READY) ## linter, formatter and strict type checker
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## rewrite the code in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: lint ## lint, then every test, in parallel and in random order
	$(BIN)/python -m pytest -n auto $(ARGS)

bench: $(READY) ## figures beside the raw engines and peers, as a table and as JSON
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,bench]'
	$(BIN)/python -m benchmarks $(ARGS)

faults: $(READY) ## the long fault runs: kills, power cuts, bit flips, races (about half an hour)
	$(BIN)/python -m faults $(ARGS)

soak: $(READY) ## one hour of load; memory and descriptors must not grow
	$(BIN)/python -m faults soak $(ARGS)

clean: ## remove the virtual environment and every cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
