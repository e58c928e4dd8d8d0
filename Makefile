# Every target sets up what it needs: the virtual environment in .venv, from requirements.lock.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo test e2e soak check format generate lock bench image clean

PYTHON ?= $(firstword $(foreach p,python3 python3.14 python3.13 python3.12 python3.11,\
  $(shell command -v $(p) >/dev/null 2>&1 && $(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))))
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

help: ## what there is
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(READY) ## the virtual environment, from the locked versions

$(READY): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  { echo "$(PYTHON) lacks its venv module (on Debian and Ubuntu: apt-get install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(READY)

demo: $(READY) ## the main job, shown on an embedded control plane
	$(BIN)/serving-stack demo

test: $(READY) ## the tests but for the slow ones of e2e, with branch coverage
	$(BIN)/serving-stack local build --knative
	$(BIN)/pytest -m "not e2e" --cov --cov-report=term

e2e: $(READY) ## the slow ones: the whole of Knative Eventing, the image, faults of containers
	$(BIN)/serving-stack local build --knative
	$(BIN)/pytest -m e2e

SOAK_MINUTES ?= 15

soak: $(READY) ## random lives of a cluster, for SOAK_MINUTES (15)
	$(BIN)/serving-stack local build
	SOAK_MINUTES=$(SOAK_MINUTES) $(BIN)/pytest -s -k many_lives tests/compose/test_machine.py

check: $(READY) ## formatting, lint, types, layers, generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/serving-stack generate --check

format: $(READY) ## put the code into its one form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

generate: $(READY) ## Triggers and the tables in the README, from the declarations
	$(BIN)/serving-stack generate

lock: $(READY) ## resolve the dependencies anew
	$(BIN)/python -m pip install --quiet 'uv>=0.13,<1'
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --extra dev \
	  --upgrade pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --quiet --python-version 3.11 --python-platform linux --generate-hashes --no-header \
	  --constraints requirements.lock pyproject.toml -o requirements-runtime.lock

bench: $(READY) ## measure, and compare with the limits
	$(BIN)/serving-stack local build
	$(BIN)/python -m tests.benchmarks

IMAGE ?= modelplane-serving-stack
BASE ?= docker.io/library/python:3.11-slim
# Of the Python in BASE, and of the machine that the image is for.
IMAGE_PYTHON ?= 3.11
IMAGE_MACHINE ?= $(subst arm64,aarch64,$(shell uname -m))
CONTAINERS ?= $(notdir $(firstword $(foreach p,docker podman,$(shell command -v $(p)))))

image: $(READY) ## the container image IMAGE, on top of BASE, with docker or podman
	@test -n "$(CONTAINERS)" || { echo "docker or podman is needed" >&2; exit 1; }
	rm -rf build/wheels
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --dest build/wheels --no-deps --only-binary :all: \
	  --implementation cp --python-version $(IMAGE_PYTHON) \
	  $(foreach p,manylinux_2_28 manylinux_2_17 manylinux2014,--platform $(p)_$(IMAGE_MACHINE)) \
	  --require-hashes --requirement requirements-runtime.lock
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --wheel-dir build/wheels --no-deps --no-build-isolation .
	$(CONTAINERS) build --network none --build-arg BASE=$(BASE) --tag $(IMAGE) .

clean: ## remove what the targets made here (not the cached control plane)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage .coverage.* dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
