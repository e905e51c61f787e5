# `make rem` and `make test` install what they need into .venv and do their job.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
# On a machine with an NVIDIA GPU, TensorFlow with CUDA.
comma := ,
EXTRAS := dev$(if $(shell command -v nvidia-smi 2>/dev/null),$(comma)gpu)

# What depends on the backend and does not take long on JAX, which compiles
# every operation of every shape. Training on JAX is in tests/test_devices.py.
ON_JAX := $(addprefix tests/test_,$(addsuffix .py, \
	conv_caps contract_routings counterfactual_loss coupling_loss decoder \
	evaluate factored_votes \
	initializers layers losses ops reconstruction_loss routing routing_em \
	routing_leaky routing_regularized routing_scaled_distance \
	routing_self_attention routing_settings routing_sharpness routing_uniform \
	sensitivity type_keys \
	shared_layers single_shot spread_loss viz))

.PHONY: rem test test-jax lint docs clean

rem: $(VENV)/installed
	$(RUN) training/run.py --rem

test: $(VENV)/installed
	$(RUN) -m pytest --numprocesses 2

test-jax: $(VENV)/installed
	KERAS_BACKEND=jax $(RUN) -m pytest --numprocesses 2 $(ON_JAX)

lint: $(VENV)/installed
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy tfcaps

docs: $(VENV)/installed
	$(RUN) -m pip install --quiet --editable ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict

clean:
	rm -rf $(VENV) build dist site *.egg-info

$(VENV)/installed: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --upgrade pip
	$(RUN) -m pip install --editable ".[$(EXTRAS)]"
	touch $@
