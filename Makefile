# `make rem` and `make test` install what they need into .venv and do their job.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
# On a machine with an NVIDIA GPU, TensorFlow with CUDA.
comma := ,
EXTRAS := dev$(if $(shell command -v nvidia-smi 2>/dev/null),$(comma)gpu)

# What depends on the backend. JAX compiles every operation of every shape, so
# NIGHTLY=1 has the rest. Training on JAX is in tests/training/test_devices.py.
ON_JAX := tests/routing tests/layers/test_contract_layers.py tests/test_ops.py \
	tests/losses/test_margin.py tests/rem/pruning/test_sensitivity.py
ifdef NIGHTLY
ON_JAX += tests/losses tests/viz/test_viz.py \
	$(addprefix tests/layers/test_,$(addsuffix .py, \
	class_caps conv_caps decoder initializers shared_layers)) \
	$(addprefix tests/rem/,$(addsuffix .py, \
	evaluation/test_evaluate parse/test_type_keys pruning/test_single_shot))
endif

.PHONY: rem test test-all test-jax lint docs clean

rem: $(VENV)/installed
	$(RUN) training/run.py --rem

test: $(VENV)/installed
	$(RUN) -m pytest --numprocesses 2 --dist worksteal -m "not slow"

test-all: $(VENV)/installed
	$(RUN) -m pytest --numprocesses 2 --dist worksteal

test-jax: $(VENV)/installed
	KERAS_BACKEND=jax $(RUN) -m pytest --numprocesses 2 --dist worksteal $(ON_JAX)

lint: $(VENV)/installed
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy tfcaps training export experiments benchmarks cli.py

docs: $(VENV)/installed-docs
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict

clean:
	rm -rf $(VENV) build dist site *.egg-info

$(VENV)/installed: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --upgrade pip
	$(RUN) -m pip install --editable ".[$(EXTRAS)]"
	touch $@

$(VENV)/installed-docs: $(VENV)/installed
	$(RUN) -m pip install --quiet --editable ".[docs]"
	touch $@
