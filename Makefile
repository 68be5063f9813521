# These do everything on a machine that has Python 3.11 or later and make:
#
#   make study       set up, then run the main job: train the quickstart and write its report to studies/quickstart
#   make workbench   set up, then open the page on which functions are bent in the browser; Ctrl-C ends it
#   make test        set up, then run every check and every test
#   make test-core   the library alone, from its wheel, where there is torch and nothing else; in three minutes
#   make claims      check the mathematical claims of the five papers (papers/)
#   make docs        set up, then build the documentation: build/docs/html/index.html
#   make test-versions   run the core tests from the wheel on the oldest and the newest torch (or TORCH="2.8.0 2.10.0")
#
# They create .venv and install the pinned versions of requirements/ with plain pip. A stamp file per
# requirements file records what is installed, so that a second run goes straight to work.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

# The first Python of this list that runs and is new enough makes the environment; `make PYTHON=...` overrides.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$python; break; }; \
	done)

.PHONY: help study workbench test test-core test-versions docs docs-status lint types unit claims interpreter format clean distclean
help:
	@sed -n 's/^#   make/  make/p' Makefile

# Threads that wait for one another sleep instead of spinning: a little slower on an idle machine, much faster on a busy one.
study: $(VENV)/.study
	OMP_WAIT_POLICY=PASSIVE $(BIN)/softknee study quickstart --resume

workbench: $(VENV)/.web
	$(BIN)/softknee workbench

# The types keep one of two cores busy for a minute, and are checked beside the suite that needs the least of them; the
# next one does not wait for them.
test: lint
	trap 'kill $${types-} 2>/dev/null || :' EXIT; $(MAKE) types & types=$$!; $(MAKE) interpreter unit; wait $$types

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/pyright --warnings src papers

# Workers with one thread each: with two threads each they take twice the processor time, most of it waiting for one
# another. Three for two processors: now and then one waits, for a cluster, a browser or a process that it has started.
# The tests of a file stay with one worker (loadfile), which builds what they share once; so do all files that ask
# something of every function (conftest.py). Tests that did not run are listed with their reason (-ra): without
# a GPU those marked `gpu`, without Chromium (Debian's package `chromium`) those that look at a page in a browser.
# Compiled files of Python are written, also where the environment says not to: hundreds of processes import them.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/pytest -n 3 --dist loadfile -ra

unit: $(VENV)/.test
	$(PYTEST) --ignore=tests/interpreter tests papers/tests

# The mathematical claims of the papers, by computation; code 1 if a verdict is not the one on record.
claims: $(VENV)/.test
	$(BIN)/python -m papers

# The GPU kernels on a CPU. Triton reads the variable when it is imported, hence a process of its own.
interpreter: $(VENV)/.test
	TRITON_INTERPRET=1 $(PYTEST) tests/interpreter tests/test_prepared_calls.py tests/test_squaf_kernels.py

# The library alone, from its wheel, with the pinned torch and nothing else: a few functions stand for the zoo.
test-core: $(VENV)/.test
	$(BIN)/python tools/versions/version_runs.py --quick

# The core suite from the wheel, where there is torch and little else. An environment for each pair of Python and torch is
# kept in .venv-versions; what came of it is in build/versions. PYTHONS="python3.12 python3.13" takes other interpreters.
test-versions: $(VENV)/.test
	$(BIN)/python tools/versions/version_runs.py $(if $(TORCH),--torch $(TORCH)) $(if $(PYTHONS),--python $(PYTHONS)) \
		$(if $(ONLY),--only $(ONLY)) $(RECORD)

# The site: every block of every page is run, every link followed; it needs no network to build or to read.
DOCS := PYTHONPATH=.:src:tests:tests/helpers:tools/docs OMP_NUM_THREADS=1 $(BIN)/python -m

docs: $(VENV)/.test
	$(DOCS) docsite.build

# The matrix of docs/status.md, by trying every function in every dtype, on every path and through every export.
docs-status: $(VENV)/.test
	$(DOCS) docsite.status

format: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or later was found: install one, or name it with make PYTHON=/path/to/python." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The package itself is installed in place and without dependencies: the pinned files have brought them already.
$(VENV)/.study: requirements/study.txt requirements/constraints.txt pyproject.toml | $(VENV)/bin/python
	$(PIP) install -r requirements/study.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	touch $@

$(VENV)/.web: requirements/web.txt requirements/study.txt requirements/constraints.txt pyproject.toml | $(VENV)/bin/python
	$(PIP) install -r requirements/web.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	touch $@

$(VENV)/.test: requirements/test.txt requirements/docs.txt requirements/constraints.txt pyproject.toml | $(VENV)/bin/python
	$(PIP) install -r requirements/test.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	touch $@

clean:
	rm -rf build dist src/*.egg-info .pytest_cache .ruff_cache .hypothesis studies
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Also removes the environment; the next `make` installs it again.
distclean: clean
	rm -rf $(VENV) .venv-versions
