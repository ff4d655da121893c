# Needs Python 3.11 or later, make and a package index; all else is set up in .venv.
#
#   make run     solve the built-in example        make test    run the tests, all of them
#   make test-fast   the quick ones                make test-optimized   some, compiled as users do
#   make lint    ruff, mypy, order of imports      make bench   measure the speed
#   make docs    the pages, in docs/build/html     make examples   run the examples
#   make attack  hostile problems, files and arguments, kills: half an hour; ATTACK=0.1 a tenth
#   make compare   ours and other packages, each in an environment of its own: an hour; SUITE=a one suite
#   make package  wheel and sdist, checked and tried in a clean environment
#   make matrix  the quick tests on every Python that is here, or on PYTHONS="python3.13 ..."
#   make clean   remove .venv, caches and reports

PYTHON ?= python3
PYTEST_ARGS ?= -n 2 -q --dist worksteal
RUN_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable

DOCS_ARGS ?=
SUITE ?=
PYTHONS ?=
WITHOUT_OPTIMIZED ?=
COMPARE_ARGS ?=

# Steps, whole solves, certificates and estimators, compiled with every optimisation.
OPTIMIZED := $(addprefix tests/,methods/test_mossp.py solving/test_solve.py \
  certificates/test_certificate.py test_estimators.py)

.PHONY: run test test-fast test-optimized lint bench compare docs examples attack package matrix clean

run: $(VENV)/.installed-cli
	@$(BIN)/mossp solve $(RUN_ARGS)

# WITHOUT_OPTIMIZED=1 leaves out what make test-optimized runs.
test: $(VENV)/.installed-dev
	@$(BIN)/python -m pytest $(PYTEST_ARGS) $(if $(WITHOUT_OPTIMIZED),$(addprefix --ignore=,$(OPTIMIZED)))

# What is marked slow, and the examples in docstrings, are left to make test.
test-fast: $(VENV)/.installed-dev
	@$(BIN)/python -m pytest $(PYTEST_ARGS) -m "not slow" tests

test-optimized: $(VENV)/.installed-dev
	@MOSSP_TEST_OPTIMIZED=1 $(BIN)/python -m pytest $(PYTEST_ARGS) $(OPTIMIZED)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.installed-bench
	@$(BIN)/python benchmarks/speed.py

# results.csv and figures in benchmarks/peers, tables in docs/compared.md. MOSSP_DATA is a folder with a9a,
# phishing and australian; PEERS_PYTHON an interpreter that has all peers, if there is one.
compare: $(VENV)/.installed-cli
	@$(BIN)/python -m benchmarks.peers $(SUITE) $(COMPARE_ARGS)

# Warnings are errors. DOCS_ARGS="-D plot_gallery=0" leaves the examples out.
docs: $(VENV)/.installed-docs
	@$(BIN)/python -m sphinx -W --keep-going -q -b html $(DOCS_ARGS) docs docs/build/html
	@echo "Pages: docs/build/html/index.html"

examples: $(VENV)/.installed-cli $(VENV)/.installed-torch
	@for script in examples/*.py; do echo $$script; MPLBACKEND=agg $(BIN)/python $$script || exit 1; done

# The table of docs/reliability.md, printed and in mossp-attack/; it fails if a failure is unexplained.
attack: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.adversarial

# Built from a clean copy of what git has, checked, installed elsewhere and used once.
package: $(BIN)/python
	@rm -rf dist && $(BIN)/python -m pip install --quiet --disable-pip-version-check build twine
	@$(BIN)/python -m build --outdir dist . && $(BIN)/python -m twine check --strict dist/*
	@rm -rf build/tried && $(PYTHON) -m venv build/tried
	@build/tried/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	@cd build && tried/bin/python -c "import mossp, numpy; print('mossp', mossp.__version__, 'installed; a solve:', \
	  mossp.solve(mossp.Problem(lambda x: (x - 3.0) @ (x - 3.0)), numpy.zeros(2)).status.name)"

matrix:
	@PYTHONS="$(PYTHONS)" bash .ci/matrix

clean:
	rm -rf $(VENV) build dist mossp-report mossp-attack docs/build docs/api docs/gallery
	rm -rf .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# A failed venv is removed, or the next run would take its remains for a whole one.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else \
	  "mossp needs Python 3.11 or later, but $(PYTHON) is " + sys.version.split()[0] + \
	  ": try make PYTHON=python3.11")'
	@echo "Creating $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# One stamp for each set of extras, renewed when pyproject.toml is newer.
$(VENV)/.installed-%: pyproject.toml | $(BIN)/python
	@echo "Installing mossp[$*] into $(VENV); the first time takes a minute or two"
	@$(INSTALL) '.[$*]'
	@touch $@
