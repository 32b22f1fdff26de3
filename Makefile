# Every target does its own set-up; nothing but Python 3.11 (or newer), make and a C compiler is assumed.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install

# What is installed has the versions and the hashes of constraints/. The two packages themselves come from here, without
# looking for anything else: what builds them is among what was installed.
PINNED := $(PIP) --require-hashes --no-deps --requirement constraints
OURS := $(PIP) --no-deps --no-build-isolation --editable . --editable studies

.PHONY: constraints licences release try-release demo reproduction test test-types test-long test-browser test-cluster lint format \
  bench docs clean

.venv/base: pyproject.toml studies/pyproject.toml constraints/base.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PINNED)/base.txt
	$(OURS)
	@touch $@

.venv/dev .venv/bench .venv/cluster .venv/release: .venv/%: .venv/base constraints/%.txt
	$(PINNED)/$*.txt
	@touch $@

.venv/bench .venv/cluster: .venv/dev

demo: .venv/base  ## solve the frozen lake from five observations; under a minute
	$(BIN)/prudent demo --out demo

# Most of the time of the tests is compilation; these take two thirds off it. `test-long` compiles as users do.
test test-browser: export XLA_FLAGS = --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false \
  --xla_cpu_parallel_codegen_split_count=1
test test-browser: export JAX_COMPILATION_CACHE_DIR = $(CURDIR)/.venv/compiled
test test-browser: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS = 0.05
# Where bytecode is not kept, every process that the tests begin would compile our modules again, a second each.
test test-browser: export PYTHONDONTWRITEBYTECODE =
# One call for the tests, the examples of the docstrings and the pages in the browser: each more would import everything
# again, and end with one of the two processes idle. Where no Chromium can be had, the other tests still count.
test: .venv/dev  ## all tests but the long ones
	@$(GET_BROWSER)
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder \
	  -m "not long$$($(HAS_BROWSER) || echo ' and not browser')" tests studies/tests src studies/src
	@$(HAS_BROWSER) || $(NO_BROWSER)

test-types: .venv/dev  ## the examples of the docstrings, with every array's axes checked against its annotation
	$(BIN)/python -m pytest -n 2 --jaxtyping-packages=prudent,prudent_studies,beartype.beartype -m "not long" src studies/src

test-long: .venv/dev  ## checks that take minutes
	$(BIN)/python -m pytest -m long

test-cluster: .venv/cluster  ## the dask and ray backends, each on two local workers
	RAY_worker_niceness=0 $(BIN)/python -m pytest -m long -k "cluster or backends" studies/tests/test_reproduction.py tests/test_workers.py

reproduction: .venv/dev  ## every table and figure of the paper, and the page that shows them
	$(BIN)/prudent reproduce all --out reproduction
	$(BIN)/python docs/write_reproduction.py reproduction

HAS_BROWSER = test -x /usr/bin/chromium && test -x /usr/bin/chromedriver
GET_BROWSER = { $(HAS_BROWSER); } || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
  && echo "installing Chromium and its driver" && apt-get update -qq \
  && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver >/dev/null; } \
  || echo "Chromium could not be installed; as root: apt-get install chromium chromium-driver"
NO_BROWSER = echo "**** THE BROWSER TESTS DID NOT RUN: there is no /usr/bin/chromium with /usr/bin/chromedriver ****"

test-browser: .venv/dev  ## the report in headless Chromium; installs Debian's, which takes root
	@$(GET_BROWSER)
	@if $(HAS_BROWSER); then $(BIN)/python -m pytest -n 2 -m browser tests/browser; else $(NO_BROWSER); false; fi

lint: .venv/dev  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/bench  ## speed and memory, as ratios measured side by side
	$(BIN)/python -m benchmarks

docs: .venv/dev  ## HTML in docs/_build/html; warnings are errors
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

constraints: .venv/release  ## pin what the targets install again, with hashes; UPGRADE=--upgrade for newer versions
	$(BIN)/python tools/lock.py $(UPGRADE)

licences: .venv/dev .venv/bench .venv/cluster .venv/release  ## of everything that any extra installs
	@$(BIN)/python tools/licences.py

release: .venv/release  ## wheels, source archives and a bill of materials (CycloneDX) in dist
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist
	cd studies && ../$(BIN)/python -m hatchling build -d ../dist
	$(BIN)/python -m cyclonedx_py requirements constraints/base.txt --pyproject pyproject.toml --output-reproducible \
	  --output-file dist/prudent.cdx.json
	@ls dist

PYTHONS ?= python3.11 python3.12 python3.13
try-release:  ## what `make release` made, installed by each of PYTHONS into an environment of its own, and run there
	$(PYTHON) tools/try_release.py dist $(PYTHONS)

clean:
	rm -rf .venv demo reproduction docs/_build dist
