# Each target sets up what it needs: a virtual environment in .venv, filled once from the lock.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: setup train test test-slow results site dist try-wheel chaos bench lock

setup: $(READY)

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is $$($(PYTHON) --version 2>&1); Python 3.11 or newer is needed (make PYTHON=python3.12 …)"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# CMBPO on the smallest task: minutes on a laptop.
train: $(READY)
	$(BIN)/cmbpo train --algo cmbpo --env-id PointCircle-v0

test: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/pytest -n auto --dist worksteal -m "not slow"

# The proofs that take over a minute each.
test-slow: $(READY)
	$(BIN)/pytest -m slow

# Tables, figures and page of the committed runs, and the tables where documents quote them.
results: $(READY)
	$(BIN)/cmbpo report results --out results
	$(BIN)/python docs/quote.py

# The documentation, which needs no network to be built or read: build/site/index.html.
site: $(READY)
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -b html -c docs . build/site
	@echo "build/site/index.html"

# What an index would get; nothing is uploaded.
dist: $(READY)
	rm -rf dist
	$(BIN)/python -m hatchling build
	@du -b dist/*

# The wheel in an empty environment, away from here, with the Python that PYTHON names.
try-wheel: $(READY)
	.ci/install $(PYTHON)

# Thousands of attempts to make it lose data, lie, execute or fall over: half an hour on two cores.
chaos: $(READY)
	$(BIN)/python -m chaos

bench: $(READY)
	$(BIN)/cmbpo bench simulator
	$(BIN)/cmbpo bench algorithms
	$(BIN)/cmbpo bench update

# Resolve every version anew (needs uv). The lock names no registry.
lock:
	uv pip compile pyproject.toml --universal --python-version 3.11 --group dev --group build \
		--generate-hashes --no-emit-index-url --no-annotate --no-header --output-file requirements.lock
