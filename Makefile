# Every command makes or refreshes .venv by itself; `make help` lists them.
#   PYTHON=python3.12   another interpreter for .venv
#   ARGS="--epochs 5"   arguments for examples/digits.py or pytest

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
BIN := $(VENV)/bin
SETUP := PYTHON="$(PYTHON)" VENV="$(VENV)" scripts/setup.sh

.DEFAULT_GOAL := help
.PHONY: help demo test lint unit bench clean

help: ## list the commands
	@grep -hE '^[a-z]+:.*## ' Makefile | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 14

demo: ## train on handwritten digits with two processes; results in runs/digits
	@$(SETUP) examples
	@$(BIN)/python examples/digits.py $(ARGS)

test: lint unit ## check the code, then run every test

lint: ## ruff and mypy
	@$(SETUP) dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy --strict core builtin_plugins

# tests that start processes of their own have the two cores to themselves; the others share them, one thread each
unit: export OMP_NUM_THREADS ?= 1
unit: ## the tests alone
	@$(SETUP) dev
	@$(BIN)/pytest -n 2 -q -m "not processes" $(ARGS)
	@$(BIN)/pytest -q -m processes $(ARGS)

bench: ## time a training step against a hand-written loop, and against other libraries
	@$(SETUP) bench
	@$(BIN)/python benchmarks/step_overhead.py
	@$(BIN)/python benchmarks/ddp.py

clean: ## remove .venv, caches and runs
	rm -rf .venv build runs *.egg-info .pytest_cache .mypy_cache .ruff_cache
