# Every target does its own set-up; nothing but Python 3.11 (or newer), make and a C compiler is assumed.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt

.PHONY: demo reproduction test test-long test-browser test-cluster lint format bench docs clean

.venv/base: pyproject.toml studies/pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --editable ".[report]" --editable studies
	@touch $@

.venv/dev: .venv/base
	$(PIP) --editable ".[dev]"
	@touch $@

demo: .venv/base  ## solve the frozen lake from five observations; under a minute
	$(BIN)/prudent demo --out demo

# Most of the time of the tests is compilation; these take two thirds off it. `test-long` compiles as users do.
test test-browser: export XLA_FLAGS = --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false
test test-browser: export JAX_COMPILATION_CACHE_DIR = $(CURDIR)/.venv/compiled
test test-browser: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS = 0.3
test: .venv/dev  ## all tests but the long ones
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not long and not browser" tests studies/tests
	# The examples of the docstrings, with every array's axes checked against its annotation.
	$(BIN)/python -m pytest -n 2 --jaxtyping-packages=prudent,prudent_studies,beartype.beartype -m "not long" src studies/src
	# Where there is no Chromium and none can be installed, the tests above still count.
	$(MAKE) --no-print-directory test-browser BROWSER=optional

test-long: .venv/dev  ## checks that take minutes
	$(BIN)/python -m pytest -m long

.venv/cluster: .venv/dev
	$(PIP) --editable . --editable "studies[dask,ray]"
	@touch $@

test-cluster: .venv/cluster  ## the dask and ray backends, each on two local workers
	$(BIN)/python -m pytest -m long -k cluster studies/tests/test_reproduction.py

reproduction: .venv/base  ## every table and figure of the paper, and the page that shows them
	$(BIN)/prudent reproduce all --out reproduction
	$(BIN)/python docs/write_reproduction.py reproduction

HAS_BROWSER = test -x /usr/bin/chromium && test -x /usr/bin/chromedriver
BROWSER ?= required

test-browser: .venv/dev  ## the report in headless Chromium; installs Debian's, which takes root
	@$(HAS_BROWSER) || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
	  && echo "installing Chromium and its driver" && apt-get update -qq \
	  && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver >/dev/null; } \
	  || echo "Chromium could not be installed; as root: apt-get install chromium chromium-driver"
	@if $(HAS_BROWSER); then $(BIN)/python -m pytest -n 2 -m browser tests/browser; \
	else echo "**** THE BROWSER TESTS DID NOT RUN: there is no /usr/bin/chromium with /usr/bin/chromedriver ****"; \
	  test "$(BROWSER)" = optional; fi

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
