# Everything needs `make venv` only, which the other targets call by themselves.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
VLLM := build/vllm

.PHONY: help venv train test test-slow test-harness setup-vllm test-vllm test-foreign test-typescript lint protos clean

help:  ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-10s %s\n", $$1, $$2}'

venv: $(STAMP)  ## .venv with everything in it, versions pinned by constraints.txt

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[trainer,postgres,export,tensorboard,examples,dev]'
	touch $(STAMP)

train: venv  ## train the example agent through all five services
	$(BIN)/gyre train examples/repair/train.toml

test: venv  ## all tests but the slow ones
	$(BIN)/python -m pytest -m 'not slow'

test-slow: venv  ## real runs of many minutes
	$(BIN)/python -m pytest -m slow --timeout 1800

test-harness: venv  ## real harnesses through the gateway (node 20 or later; installs them into build/harnesses)
	found=$$($(BIN)/python tools/install_harnesses.py build/harnesses) && \
	GYRE_HARNESSES=$$found $(BIN)/python -m pytest tests/harness --timeout 600

$(VLLM)/.installed: tools/setup_vllm.sh
	PYTHON=$(PYTHON) sh tools/setup_vllm.sh $(VLLM)

setup-vllm: $(VLLM)/.installed  ## vLLM for CPUs, pinned, in an environment of its own (3.4 GB)

test-vllm: venv setup-vllm  ## vLLM cells: exactness, updates in flight, repairs, deaths, a training run
	GYRE_VLLM=$(VLLM)/bin/python $(BIN)/python -m pytest tests/vllm --timeout 1800

test-typescript: venv  ## the TypeScript environment client at the real rollout service (Node 20 or later; npm install)
	npm install --prefix examples/typescript --no-audit --no-fund --loglevel=error
	npm run --prefix examples/typescript build
	GYRE_TYPESCRIPT=examples/typescript $(BIN)/python -m pytest tests/adapters/test_typescript.py

FOREIGN := build/foreign

$(FOREIGN)/.installed: tests/foreign/requirements.txt
	test -x $(FOREIGN)/bin/python || $(PYTHON) -m venv $(FOREIGN)
	$(FOREIGN)/bin/python -m pip install --quiet --disable-pip-version-check -r tests/foreign/requirements.txt
	touch $@

test-foreign: venv $(FOREIGN)/.installed  ## with phoenix, W&B and MLflow, in an environment of their own
	GYRE_FOREIGN=$(FOREIGN) $(BIN)/python -m pytest tests/foreign

lint: venv  ## style of code and contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	cd proto && ../$(BIN)/buf lint

protos: venv  ## generate gyre/api from proto/
	$(BIN)/python tools/gen_protos.py

clean:  ## remove what the targets made; runs/ stays
	rm -rf $(VENV) .pytest_cache .hypothesis .ruff_cache *.egg-info
