# Every target does its own set-up; nothing but Python 3.11 (or newer), make and a C compiler is assumed.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt

.PHONY: demo reproduction test-cluster test test-long lint format bench docs clean

.venv/base: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --editable ".[report]"
	@touch $@

.venv/dev: .venv/base
	$(PIP) --editable ".[dev]"
	@touch $@

demo: .venv/base  ## solve the frozen lake from five observations; under a minute
	$(BIN)/prudent demo --out demo

# Most of the time of the tests is compilation; these take a third off it. `test-long` compiles as users do.
test: export XLA_FLAGS = --xla_backend_optimization_level=0
test: export JAX_COMPILATION_CACHE_DIR = $(CURDIR)/.venv/compiled
test: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS = 0.3
test: .venv/dev  ## all tests but the long ones
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not long" tests
	# The examples of the docstrings, with every array's axes checked against its annotation.
	$(BIN)/python -m pytest -n 2 --jaxtyping-packages=prudent,beartype.beartype -m "not long" src

test-long: .venv/dev  ## checks that take minutes
	$(BIN)/python -m pytest -m long

.venv/cluster: .venv/dev
	$(PIP) --editable ".[dask,ray]"
	@touch $@

test-cluster: .venv/cluster  ## the dask and ray backends, each on two local workers
	$(BIN)/python -m pytest -m long -k cluster tests/test_reproduction.py

reproduction: .venv/base  ## every table and figure of the paper, and the page that shows them
	$(BIN)/prudent reproduce all --out reproduction
	$(BIN)/python docs/write_reproduction.py reproduction

lint: .venv/dev  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.venv/bench: .venv/dev
	$(PIP) --editable ".[bench]"
	@touch $@

bench: .venv/bench  ## speed and memory, as ratios measured side by side
	$(BIN)/python -m benchmarks

docs: .venv/dev  ## HTML in docs/_build/html; warnings are errors
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

clean:
	rm -rf .venv demo reproduction docs/_build
