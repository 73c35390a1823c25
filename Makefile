# Every command makes or refreshes .venv by itself; `make help` lists them.
#   PYTHON=python3.12   another interpreter for .venv
#   ARGS="--epochs 5"   arguments for examples/digits.py or pytest

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
XLA_VENV ?= .venv-xla
BIN := $(VENV)/bin
# what has commands of its own, for it needs another machine or another torch
ELSEWHERE := --ignore=tests/gpu --ignore=tests/xla
SETUP := PYTHON="$(PYTHON)" VENV="$(VENV)" scripts/setup.sh

.DEFAULT_GOAL := help
.PHONY: help demo test lint unit test-long test-gpu test-xla bench clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

demo: ## train on handwritten digits with two processes; results in runs/digits
	@$(SETUP) examples
	@$(BIN)/python examples/digits.py $(ARGS)

test: lint unit ## check the code, then run the tests; those with many processes are in test-long

lint: ## ruff and mypy
	@$(SETUP) dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy --strict core builtin_plugins

# the tests share two cores, one thread each; those that start processes of their own come last, a file at a time to
# each worker, and get a second try: a machine that is busy elsewhere can keep a process from starting in time
unit: export OMP_NUM_THREADS ?= 1
unit: ## the tests alone
	@$(SETUP) dev
	@$(BIN)/pytest -n 2 -q -m "not processes" $(ELSEWHERE) $(ARGS)
	@$(BIN)/pytest -n 2 --dist loadfile --reruns 1 -q -m "processes and not long" $(ELSEWHERE) $(ARGS)

test-long: export OMP_NUM_THREADS ?= 1
test-long: ## the tests of clusters, the kit, strangers' packages and further strategies, which start many processes
	@$(SETUP) dev
	@$(BIN)/pytest -n 2 --dist loadfile --reruns 1 -q -m long $(ELSEWHERE) $(ARGS)

test-gpu: ## the tests that need one CUDA GPU, and the benchmark of a step on it; at most five minutes
	@$(SETUP) dev
	@$(BIN)/pytest -q tests/gpu $(ARGS)

test-xla: ## the tests on XLA devices, in an environment of their own of 7 GB (XLA_VENV)
	@PYTHON="$(PYTHON)" scripts/xla_env.sh "$(XLA_VENV)"
	@PJRT_DEVICE=CPU $(XLA_VENV)/bin/python -m pytest -q tests/xla $(ARGS)

bench: ## time a training step against a hand-written loop, and against other libraries
	@$(SETUP) bench
	@$(BIN)/python benchmarks/step_overhead.py
	@$(BIN)/python benchmarks/ddp.py
	@$(BIN)/python benchmarks/strategies.py

clean: ## remove .venv, .venv-xla, caches and runs
	rm -rf .venv .venv-xla build runs *.egg-info .pytest_cache .mypy_cache .ruff_cache
