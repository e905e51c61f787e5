# `make rem` and `make test` install what they need into .venv and do their job:
# `make rem` what the main job needs, the others all that the tests need.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
# On a machine with an NVIDIA GPU, TensorFlow with CUDA; else `make rem` takes the
# smaller one. The two have the same files: one leaves before the other comes.
comma := ,
GPU := $(if $(shell command -v nvidia-smi 2>/dev/null),gpu)

# What depends on the backend. JAX compiles every operation of every shape, so
# NIGHTLY=1 has the rest. Training on JAX is in tests/training/test_devices.py.
ON_JAX := tests/routing tests/layers/test_contract_layers.py tests/test_ops.py \
	tests/losses/test_losses.py tests/rem/pruning/test_sensitivity.py
ifdef NIGHTLY
ON_JAX += tests/losses tests/viz/test_viz.py \
	$(addprefix tests/layers/test_,$(addsuffix .py, \
	class_caps conv_caps decoder)) \
	$(addprefix tests/rem/,$(addsuffix .py, \
	evaluation/test_evaluate parse/test_type_keys pruning/test_single_shot))
endif

.PHONY: rem test test-all test-jax test-as-users test-other-cpu lint docs clean

rem: $(if $(wildcard $(VENV)/installed-dev),$(VENV)/installed-dev,$(VENV)/installed)
	$(RUN) training/run.py --rem

test: $(VENV)/installed-dev
	$(RUN) -m pytest --numprocesses 2 --dist worksteal -m "not slow"

test-all: $(VENV)/installed-dev
	$(RUN) -m pytest --numprocesses 2 --dist worksteal

test-jax: $(VENV)/installed-dev
	KERAS_BACKEND=jax $(RUN) -m pytest --numprocesses 2 --dist worksteal $(ON_JAX)

# Compiled with all passes of XLA, which tests/conftest.py leaves out elsewhere.
test-as-users: $(VENV)/installed-dev
	AS_USERS=1 $(RUN) -m pytest --numprocesses 2 --dist worksteal \
	tests/training/test_run.py tests/models/test_learning.py tests/routing \
	tests/rem/evaluation/test_evaluate.py tests/export/test_save.py

# On any processor what TensorFlow does on one without AVX-512, and on others.
test-other-cpu: $(VENV)/installed-dev
	TF_ENABLE_ONEDNN_OPTS=0 ONEDNN_MAX_CPU_ISA=AVX2 XLA_FLAGS=--xla_cpu_max_isa=AVX2 \
	$(RUN) -m pytest --numprocesses 2 --dist worksteal -m "not slow"
	TF_ENABLE_ONEDNN_OPTS=1 \
	$(RUN) -m pytest --numprocesses 2 --dist worksteal -m "not slow"

lint: $(VENV)/installed-dev
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy tfcaps training export examples benchmarks cli.py \
	    markdown_table.py

docs: $(VENV)/installed-docs
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict

clean:
	rm -rf $(VENV) build dist site *.egg-info

# Extras of setup.cfg, and the TensorFlow that they do not have.
define install
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --upgrade pip
	$(RUN) -m pip uninstall -qq --yes $(2)
	$(RUN) -m pip install --editable ".[$(1)]"
endef

$(VENV)/installed: setup.cfg pyproject.toml
	$(call install,$(or $(GPU),cpu)$(comma)data$(comma)viz,$(if $(GPU),tensorflow-cpu,tensorflow))
# C++ headers for new operations: 270 MB that nobody here reads.
	rm -rf $(VENV)/lib/python3*/site-packages/tensorflow/include
	touch $@

$(VENV)/installed-dev: setup.cfg pyproject.toml
	$(call install,dev$(addprefix $(comma),$(GPU)),tensorflow-cpu)
	touch $@

$(VENV)/installed-docs: $(VENV)/installed-dev
	$(RUN) -m pip install --quiet --editable ".[docs]"
	touch $@
