"""What holds for every row of the registry: names, configs, files, losses."""

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

import tfcaps
from tests.registry import LAYERS, LOSSES, ROUTINGS, parametrize
from tests.tolerance import assert_close

# A user's program: it knows the file and the import, and no custom_objects.
FRESH_PROCESS = """
import sys
import keras, numpy as np
import tfcaps
model = keras.saving.load_model("model.keras")
with np.load("inputs.npz") as file:
    outputs = model([file[f"arr_{k}"] for k in range(len(file.files))])
judged = [(loss, x) for loss, x in zip(model.loss, outputs) if loss]
losses = [loss(np.eye(3)[:2], x) for loss, x in judged]
np.savez("outputs.npz", *outputs, *losses)
"""


ROOT = Path(tfcaps.__file__).parents[1]
# Couplings have another shape: these are in tests/losses/test_coupling.py.
OF_VECTORS = [case for case in LOSSES if case.of != "routing"]


def public_classes(module, base):
    return {
        member
        for _, member in inspect.getmembers(module, inspect.isclass)
        if issubclass(member, base)
        and member is not base
        and member.__module__.startswith("tfcaps.")
    }


@pytest.mark.parametrize(
    ("module", "base", "cases"),
    [
        (tfcaps.layers, keras.layers.Layer, LAYERS),
        (tfcaps.routing, tfcaps.routing.Routing, ROUTINGS),
        (tfcaps.losses, keras.losses.Loss, LOSSES),
    ],
    ids=["layers", "routings", "losses"],
)
def test_registry_holds_every_public_class(module, base, cases):
    public = public_classes(module, base) | public_classes(tfcaps.parts, base)
    public -= public_classes(tfcaps.parts, keras.Model)
    assert public == {case.public_class for case in cases}


@parametrize([*LAYERS, *ROUTINGS, *LOSSES])
def test_config_names_every_argument_and_makes_an_equal_object(case):
    kind = case.public_class
    name = keras.saving.get_registered_name(kind)
    assert name == f"tfcaps>{kind.__name__}"
    config = case.make().get_config()
    revived = kind.from_config(json.loads(json.dumps(config)))
    assert json.dumps(revived.get_config()) == json.dumps(config)
    signature = inspect.signature(kind)
    named = {
        p.name
        for p in signature.parameters.values()
        if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    }
    assert named <= set(config)
    given = signature.bind(*case.make.args, **case.make.keywords).arguments
    more = given.pop("kwargs", {})
    for name, value in {**given, **more}.items():
        if case not in LAYERS:  # which hold what they make of them
            assert config[name] == value, name


@pytest.mark.slow
def test_a_model_of_all_loads_in_a_fresh_process(tmp_path, rng):
    names, inputs, arrays, outputs = [], [], [], []

    def add(name, symbolic, given, result):
        inputs.extend(keras.tree.flatten(symbolic))
        arrays.extend(keras.tree.flatten(given))
        outputs.extend(keras.tree.flatten(result))
        names.extend([name] * (len(outputs) - len(names)))

    for case in LAYERS:
        symbolic = case.symbolic_inputs()
        result = case.apply(case.make(), symbolic)
        add(case.name, symbolic, case.random_inputs(rng, 2), result)
    for case in ROUTINGS:
        poses = keras.Input((6, 4))
        layer = tfcaps.layers.ClassCaps(3, 4, routing=case.make())
        add(case.name, poses, rng.normal(size=(2, 6, 4)), layer(poses))
        # Not their start, which a new model has without being restored.
        layer.set_weights([rng.normal(size=w.shape) for w in layer.weights])
    losses = [None] * len(outputs) + [case.make() for case in OF_VECTORS]
    for case in OF_VECTORS:
        poses = keras.Input((3, 4))
        lengths = tfcaps.layers.Length()(poses)
        add(case.name, poses, rng.normal(size=(2, 3, 4)), lengths)
    model = keras.Model(inputs, outputs)
    model.compile(loss=losses)
    model.save(tmp_path / "model.keras")
    np.savez(tmp_path / "inputs.npz", *arrays)
    subprocess.run(
        [sys.executable, "-c", FRESH_PROCESS],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    expected = model(arrays)
    for loss, output in zip(losses, [*expected], strict=True):
        if loss is not None:
            expected.append(loss(np.eye(3)[:2], output))
    names += [case.name for case in OF_VECTORS]
    with np.load(tmp_path / "outputs.npz") as file:
        found = [file[f"arr_{index}"] for index in range(len(file.files))]
    for name, output, wanted in zip(names, found, expected, strict=True):
        assert_close(output, wanted, err_msg=name)


# The likelihood of evidence has no bound.
@parametrize([c for c in OF_VECTORS if not c.name.startswith("evidence")])
def test_perfect_predictions_cost_nothing(case):
    perfect = np.eye(3, dtype="float32")
    assert float(case.make()(perfect, perfect)) == 0.0
    assert float(case.make()(perfect, perfect[[1, 2, 0]])) > 0.0


@pytest.mark.parametrize(
    ("made", "unused"),
    [
        (tfcaps.layers.ClassCaps(3, 4), {"share_types": False}),
        (tfcaps.layers.PrimaryMatrixCaps(2), {"strides": 1}),
        (tfcaps.losses.CounterfactualLoss(), {"m_plus": 0.9}),
        (tfcaps.layers.PrimaryCaps(2, 4, 3), {"kernel_initializer": "zeros"}),
    ],
)
def test_arguments_of_version_0_3_are_read_if_they_had_no_effect(made, unused):
    config = made.get_config()
    assert type(made).from_config({**config, **unused}).get_config() == config
    if "zeros" not in unused.values():
        with pytest.raises(TypeError, match="argument"):
            type(made).from_config({**config, **dict.fromkeys(unused, 7)})
