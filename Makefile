# Every target sets up what it needs in .venv; python3 (3.10 or newer), a C compiler and make are enough to begin.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Two processes share the tests; `make test WORKERS=0` runs them in one, in order.
WORKERS ?= 2
TESTS ?= tests
SECONDS ?= 3600

KERNELS := $(shell find src/mqstore/kernels ! -name built_from.pxi '(' -name '*.pyx' -o -name '*.pxi' -o -name '*.h' ')')
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input

.DEFAULT_GOAL := help
.PHONY: help demo test lint bench bench-latency bench-curves bench-pieces bench-layouts bench-spark bench-spark-in-memory bench-spark-memory crash backlog fuzz docs clean lock

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-19s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.installed ## The tour: a broker's store, real flights in, Spark, answers, a picture (about 2 minutes, after set-up)
	@$(BIN)/mqstore demo --output demo-out

test: $(VENV)/.installed ## Run all tests; TESTS=tests/layout runs some
	@$(BIN)/python -m pytest -n $(WORKERS) --durations 10 $(TESTS)

lint: $(VENV)/.installed ## Style, formatting, types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { $(BIN)/ruff format --check .; echo "run: $(BIN)/ruff format"; exit 1; }
	@$(BIN)/mypy

bench: $(VENV)/.installed ## Measure beside the real store
	@$(BIN)/python bench/run.py

bench-latency: $(VENV)/.installed ## Measure single puts beside the real store (about 5 minutes)
	@$(BIN)/python bench/latency.py

bench-curves: $(VENV)/.installed ## Measure how costs grow beside the real store (about an hour)
	@$(BIN)/python bench/curves.py

bench-pieces: $(VENV)/.installed ## Measure the pieces of single calls (about a minute)
	@$(BIN)/python bench/pieces.py

bench-spark: $(VENV)/.installed ## Measure the Spark pipeline beside Parquet and one process (about 10 minutes)
	@$(BIN)/python bench/spark.py

bench-spark-in-memory: $(VENV)/.installed ## Measure the Spark jobs where no disk holds them up (14 GiB of /dev/shm, about 10 minutes)
	@$(BIN)/python bench/spark.py --directory /dev/shm --only "export|rebuild|audit" --results spark-in-memory

bench-spark-memory: $(VENV)/.installed ## Measure the memory of the Spark jobs, 10 GiB too (25 GB of disk, about 10 minutes)
	@$(BIN)/python bench/spark_memory.py

bench-layouts: $(VENV)/.installed ## Measure both layouts as topics grow (about 15 minutes)
	@$(BIN)/mqstore bench layouts --output bench/results

crash: $(VENV)/.installed ## The long durability run: 10,000 power failures and 2,000 kills (about an hour)
	@MQSTORE_CRASH_STATES=10000 MQSTORE_CRASH_KILLS=2000 MQSTORE_MODEL_EXAMPLES=1000 $(BIN)/python -m pytest \
	    -n $(WORKERS) --durations 10 --timeout 7200 tests/crash tests/store/test_model.py

fuzz: $(VENV)/.installed ## Bytes that nobody wrote for every decoder, for SECONDS (an hour)
	@$(PIP) install --quiet atheris || echo "atheris is not to be had here: inputs are made by chance"
	@$(BIN)/python scripts/fuzz.py --seconds $(SECONDS)

backlog: $(VENV)/.installed ## A Spark stream takes 1,000,000 messages in 100 capped batches (some minutes)
	@MQSTORE_BACKLOG=1000000 $(BIN)/python -m pytest -q -s --timeout 3600 tests/spark/test_stream_promises.py -k backlog

docs: $(VENV)/.installed ## Run every example in README.md and docs/
	@$(BIN)/python -m pytest -q tests/project/test_docs_examples.py

clean: ## Remove everything that can be made again
	rm -rf $(VENV) build dist demo-out bench/data .pytest_cache .mypy_cache .ruff_cache .hypothesis src/mqstore.egg-info
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
	find src -name '_native*.so' -delete -o -name '_native*.c' -delete -o -name built_from.pxi -delete

lock: $(VENV)/.installed ## Choose the newest versions again and write requirements.lock
	@$(PIP) install --quiet uv
	@$(BIN)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.10 --upgrade --quiet \
	    --generate-hashes --no-emit-index-url --no-emit-find-links --no-header -o requirements.lock

$(VENV)/.requirements: requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	    { echo "mqstore needs Python 3.10 or newer; name one with: make PYTHON=python3.12" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || \
	    { echo "$(PYTHON) cannot make virtual environments: install its venv module" \
	           "(Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 1; }
	@echo "installing what mqstore and its tests need into $(VENV) (the first time this takes some minutes)"
	@$(PIP) install --quiet --require-hashes -r requirements.lock
	@touch $@

$(VENV)/.installed: $(VENV)/.requirements pyproject.toml setup.py $(KERNELS)
	@echo "building mqstore"
	@$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@touch $@
