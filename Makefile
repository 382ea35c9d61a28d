# Bare `make` lists the targets; each sets up what it needs first.
#   make test ARGS="tests/unit/web/test_urls.py -x"     make demo ARGS="--hosts 50 --pages 500"     make PYTHON=python3.13 test

PYTHON ?= python3
ARGS   ?=
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PYTEST := $(BIN)/python -m pytest
KINDS  := local,bindfs,sshfs,gluster,moosefs,nfs4,nfs3

# Tests start thousands of processes; each would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv demo test pythons fleet mounts bench fuzz simulate mutants model soak check manual lock dist zipapp clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s  %s\n", $$1, $$2 }' Makefile

venv: $(READY) ## set up .venv: the package, editable, and what its tests need (again only when pyproject.toml changes)
	@echo "ready: . $(BIN)/activate"

demo: $(READY) ## two machines crawl an embedded web into demo/store, one is killed, and every page is proved to be there
	@$(BIN)/crawler demo demo/store $(ARGS)
	@echo
	@$(BIN)/crawler status demo/store

# A test that fails beside others may only have met a busy machine, so it has one more chance, alone. Its name stays in
# the output, and the last line says who needed it; a second failure is a failure. Exit code 1 is "some tests failed":
# anything else is no matter of luck.
# $(call tests,HOW MANY AT ONCE,WHICH)
AGAIN = $(PYTEST) $(2) $(ARGS) --last-failed --last-failed-no-failures=none -n 0
tests = code=0; chance='not needed'; \
	$(PYTEST) -n $(1) --dist worksteal $(2) $(ARGS) || { code=$$?; chance="not given, as pytest ended with $$code"; }; \
	if [ $$code = 1 ] && failed=$$($(AGAIN) --collect-only --verbosity=-1 | grep ::); then \
		count=$$(printf '%s\n' "$$failed" | wc -l); \
		printf '\n%d tests failed beside others; they run again alone:\n%s\n' "$$count" "$$failed"; \
		code=0; $(AGAIN) --exitfirst || code=$$?; \
		chance="needed by $$count tests: $$(printf '%s\n' "$$failed" | paste -sd ' ')"; \
	fi; \
	printf '\nsecond chance: %s\n' "$$chance"; exit $$code

test: $(READY) ## run the tests; ARGS="tests/unit/web/test_urls.py -x" goes to pytest
	@$(call tests,6,)

# pyenv shows one of its Pythons at a time; with their own folders in front all of them are seen.
PYTHONS ?= 3.11 3.12 3.13 3.14
UNIT    := tests/shape/test_imports.py tests/unit tests/simulation/test_determinism.py
pythons: $(READY) ## the import and unit tests on each of PYTHONS (3.11 to 3.14, unless you name some) that is here
	@export PATH="$$(printf %s: "$$HOME"/.pyenv/versions/*/bin)$$PATH" UV_PYTHON_DOWNLOADS=never; for python in $(PYTHONS); do \
		found=$$($(BIN)/uv python find --system $$python 2>/dev/null) || { echo "Python $$python is not here"; continue; }; \
		echo "Python $$python: $$found" && \
		$(BIN)/uv venv -q --clear --python "$$found" .pythons/$$python && \
		$(BIN)/uv pip install -q --python .pythons/$$python --editable . --group unit --group simulation && \
		.pythons/$$python/bin/python -m pytest -n 2 $(UNIT) $(ARGS) || exit; done

fleet: $(READY) ## several machines on real mounts, with trouble; ARGS="--mounts sshfs -k faults" goes to pytest
	@$(call tests,4,-rs -m "fleet and not alone")
	@$(PYTEST) -rs -m "fleet and alone" $(ARGS) || [ $$? -eq 5 ]

mounts: $(READY) ## the fleet tests on every kind of mount, one at a time, then a table of what each gives (over an hour)
	@$(PYTEST) -rs -m fleet --mounts $(KINDS) $(ARGS)
	@PYTHONPATH=tests $(BIN)/python tests/bench/measure_mounts.py

bench: $(READY) ## beside other crawlers on the same pages (as root; ARGS="--quick --cases ac"), and operations per page
	@$(BIN)/python -m pip install -qq --group bench
	@$(BIN)/python tests/bench/run.py $(ARGS)
	@$(PYTEST) -rs -m bench

SECONDS ?= 120
fuzz: $(READY) ## feed what reads strangers' bytes with bytes; SECONDS=300 for longer; finds and corpus are in .fuzz/
	@$(BIN)/python -m pip install -qq --group fuzz
	@mkdir -p .fuzz/corpus
	@$(BIN)/python tests/fuzz/fuzz.py -max_total_time=$(SECONDS) -timeout=30 -rss_limit_mb=2048 -max_len=70000 \
		-artifact_prefix=.fuzz/ -print_final_stats=1 .fuzz/corpus

SEEDS ?= 200
FROM  ?= 0
SEED  ?=
simulate: $(READY) ## a simulated fleet with trouble, from numbers: SEEDS=1000 FROM=5000; one again: SEED=17 ARGS="--verbose"
	@PYTHONPATH=tests $(BIN)/python -m simulation.run $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) --from $(FROM) --jobs 0) $(ARGS)

mutants: $(READY) ## break each invariant on purpose, and print how many seeds of the simulation it takes to notice
	@PYTHONPATH=tests $(BIN)/python -m simulation.mutants --jobs 0 $(ARGS)

model: $(READY) ## every order of steps of two workers, and each broken variant of the protocol is caught (spin; some minutes)
	@$(PYTEST) -n 2 -rs -m fleet tests/model -k "not larger" $(ARGS)

HOURS ?= 1
soak: $(READY) ## two machines on an endless web for HOURS=1, with faults; memory, descriptors and files are plotted in .soak/
	@$(BIN)/python -m pip install -qq --group bench
	@PYTHONPATH=tests $(BIN)/python tests/bench/soak.py --hours $(HOURS) $(ARGS)

check: $(READY) ## style, types and the order of imports: ruff, mypy --strict, tests/shape/test_imports.py
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(PYTEST) tests/shape/test_imports.py

manual: $(READY) ## write the pages of crawler/manual that are made from the code: settings, commands, exit codes, reasons
	@$(BIN)/python tests/shape/reference.py

# Versions and hashes for every platform and for Python 3.11 and later; no hosts of package indexes.
LOCK = $(BIN)/uv pip compile -q pyproject.toml --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--annotation-style line --custom-compile-command 'make lock' $(ARGS)
lock: $(READY) ## bring the lock files in line with pyproject.toml; ARGS=--upgrade takes the newest versions
	@$(LOCK) -o requirements.lock
	@$(LOCK) --all-extras --constraint requirements.lock -o deploy/zipapp/extras.lock \
		$$(sed -n 's/^\([a-z0-9-]*\)==.*/--no-emit-package=\1/p' requirements.lock | uniq)
	@ls requirements.lock deploy/zipapp/extras.lock

dist: $(READY) ## build a wheel and an sdist into dist/
	@rm -f dist/*.whl dist/*.tar.gz
	@$(BIN)/uv build -q --no-create-gitignore && ls dist/*.whl dist/*.tar.gz

EXTRAS  ?= zst,warc
MACHINE ?= $(shell uname -m)
zipapp: dist ## build dist/crawler.pyz, one file that runs without an installation; PYTHONS="3.12" EXTRAS=sql MACHINE=aarch64
	@$(BIN)/python deploy/zipapp/build.py dist/*.whl dist/crawler.pyz \
		--pythons $(PYTHONS) --extras "$(EXTRAS)" --machine $(MACHINE)

clean: ## remove all that these targets made: .venv, demo/, .bench/, .soak/, caches, builds
	@rm -rf $(VENV) .pythons demo build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .fuzz .bench .soak .pywb
	@find crawler tests -name __pycache__ -prune -exec rm -rf {} +

# pip is brought up to date first: before 25.1 it does not know --group, and Python 3.11 comes with 23.2.
$(READY): pyproject.toml
	@"$(PYTHON)" -c 'import sys; sys.exit("Python 3.11 or newer is needed; try: make PYTHON=python3.13" if sys.version_info < (3, 11) else 0)'
	@echo "setting up $(VENV) (once, about a minute)"
	@"$(PYTHON)" -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install -qq --editable '.[zst,parquet,warc,sql]' --group dev
	@touch $@
