# Bare `make` lists the targets; each sets up what it needs first.
#   make test ARGS="tests/test_urls.py -x"     make demo ARGS="--hosts 50 --pages 500"     make PYTHON=python3.13 test

PYTHON ?= python3
ARGS   ?=
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
KINDS  := local,bindfs,sshfs,gluster,moosefs,nfs4,nfs3

.DEFAULT_GOAL := help
.PHONY: help venv demo test fleet mounts bench check clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-6s  %s\n", $$1, $$2 }' Makefile

venv: $(READY) ## set up .venv: the package, editable, and what its tests need (again only when pyproject.toml changes)
	@echo "ready: . $(BIN)/activate"

demo: $(READY) ## crawl an embedded web with four workers into demo/store, and prove that every page is there
	@$(BIN)/crawler demo demo/store --workers 4 $(ARGS)
	@echo
	@$(BIN)/crawler status demo/store

test: $(READY) ## run the tests; ARGS="tests/test_urls.py -x" goes to pytest
	@$(BIN)/python -m pytest -n 6 --dist worksteal $(ARGS)

fleet: $(READY) ## several machines on real mounts, with trouble; ARGS="--mounts sshfs -k faults" goes to pytest
	@$(BIN)/python -m pytest -n 3 --dist worksteal -rs -m "fleet and not alone" $(ARGS)
	@$(BIN)/python -m pytest -rs -m "fleet and alone" $(ARGS) || [ $$? -eq 5 ]

mounts: $(READY) ## the fleet tests on every kind of mount, one at a time, then a table of what each gives (over an hour)
	@$(BIN)/python -m pytest -rs -m fleet --mounts $(KINDS) $(ARGS)
	@$(BIN)/python tests/measure_mounts.py

bench: $(READY) ## count what a crawl asks of its mount: operations per page
	@$(BIN)/python -m pytest -rs -m bench $(ARGS)

check: $(READY) ## style, types and the order of imports: ruff, mypy --strict, tests/test_imports.py
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/python -m pytest tests/test_imports.py

clean: ## remove all that these targets made: .venv, demo/, caches, builds
	@rm -rf $(VENV) demo build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find crawler tests -name __pycache__ -prune -exec rm -rf {} +

# pip is brought up to date first: before 25.1 it does not know --group, and Python 3.11 comes with 23.2.
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed; try: make PYTHON=python3.13" if sys.version_info < (3, 11) else 0)'
	@echo "setting up $(VENV) (once, about a minute)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install -qq --editable . --group dev
	@touch $@
