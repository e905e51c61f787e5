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
from tests.tolerance import SUMS, assert_all_close

# A user's program: it knows the file and the import, and no custom_objects.
FRESH_PROCESS = """
import pathlib, sys
import keras, numpy as np
import tfcaps
for path in pathlib.Path(sys.argv[1]).glob("*.keras"):
    model = keras.saving.load_model(path)
    with np.load(path.with_suffix(".npz")) as file:
        inputs = [file[name] for name in sorted(file) if name != "targets"]
        outputs = keras.tree.flatten(model(inputs if inputs[1:] else inputs[0]))
        if "targets" in file:
            outputs.append(model.loss(file["targets"], outputs[0]))
    np.savez(path.with_suffix(".loaded.npz"), *outputs)
"""


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
    assert public_classes(module, base) == {case.public_class for case in cases}


@parametrize([*LAYERS, *ROUTINGS, *LOSSES])
def test_class_is_registered_under_the_package_name(case):
    name = keras.saving.get_registered_name(case.public_class)
    assert name == f"tfcaps>{case.public_class.__name__}"


@parametrize([*LAYERS, *ROUTINGS, *LOSSES])
def test_config_makes_an_equal_object(case):
    config = case.make().get_config()
    revived = case.public_class.from_config(json.loads(json.dumps(config)))
    assert json.dumps(revived.get_config()) == json.dumps(config)


@parametrize([*LAYERS, *ROUTINGS, *LOSSES])
def test_config_names_every_constructor_argument(case):
    parameters = inspect.signature(case.public_class).parameters.values()
    named = {
        p.name
        for p in parameters
        if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    }
    assert named <= set(case.make().get_config())


@parametrize([*ROUTINGS, *LOSSES])
def test_config_has_the_arguments(case):
    signature = inspect.signature(case.public_class)
    given = signature.bind(*case.make.args, **case.make.keywords).arguments
    config = case.make().get_config()
    for name, value in {**given, **given.pop("kwargs", {})}.items():
        assert config[name] == value, name


def saved_rows(rng):
    """Yields a name, a model, its inputs and its targets, for each row."""
    for case in LAYERS:
        yield case.name, case.model(), case.random_inputs(rng, 2), None
    for case in ROUTINGS:
        layer = tfcaps.layers.ClassCaps(3, 4, routing=case.make())
        model = keras.Sequential([keras.Input((6, 4)), layer])
        # Not their start, which a new model has without being restored.
        model.set_weights([rng.normal(size=w.shape) for w in model.weights])
        poses = rng.normal(size=(2, 6, 4)).astype("float32")
        yield case.name, model, poses, None
    for case in OF_VECTORS:
        model = keras.Sequential([keras.Input((3, 4)), tfcaps.layers.Length()])
        model.compile(loss=case.make())
        poses = rng.normal(size=(2, 3, 4)).astype("float32")
        yield case.name, model, poses, np.eye(3, dtype="float32")[:2]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """Saves a model per row, loads all in another process, returns outputs."""
    folder = tmp_path_factory.mktemp("saved")
    expected = {}
    for name, model, inputs, targets in saved_rows(np.random.default_rng(0)):
        outputs = keras.tree.flatten(model(inputs))
        arrays = {"targets": targets} if targets is not None else {}
        if targets is not None:
            outputs.append(model.loss(targets, outputs[0]))
        for index, array in enumerate(keras.tree.flatten(inputs)):
            arrays[f"input_{index}"] = array
        np.savez(folder / f"{name}.npz", **arrays)
        model.save(folder / f"{name}.keras")
        expected[name] = [np.asarray(output) for output in outputs]
    subprocess.run(
        [sys.executable, "-c", FRESH_PROCESS, str(folder)],
        cwd=Path(tfcaps.__file__).parents[1],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        check=True,
    )
    return folder, expected


@pytest.mark.slow
@parametrize([*LAYERS, *ROUTINGS, *OF_VECTORS])
def test_model_loads_in_a_fresh_process_with_equal_outputs(case, loaded):
    folder, expected = loaded
    with np.load(folder / f"{case.name}.loaded.npz") as file:
        outputs = [file[f"arr_{index}"] for index in range(len(file.files))]
    assert len(outputs) == len(expected[case.name])
    assert_all_close(outputs, expected[case.name])


@parametrize([case for case in LOSSES if case.of == "classes"])
def test_indices_and_one_hot_targets_give_the_same_loss(case, rng):
    lengths = rng.uniform(size=(4, 3)).astype("float32")
    labels = np.array([0, 2, 1, 2])
    expected = case.make()(np.eye(3)[labels], lengths)
    for targets in (labels, labels[:, None], labels.astype("float32")):
        np.testing.assert_allclose(
            case.make()(targets, lengths), expected, atol=SUMS
        )


# The likelihood of evidence has no bound.
@parametrize([c for c in OF_VECTORS if not c.name.startswith("evidence")])
def test_perfect_predictions_cost_nothing(case):
    perfect = np.eye(3, dtype="float32")
    assert float(case.make()(perfect, perfect)) == 0.0
    assert float(case.make()(perfect, perfect[[1, 2, 0]])) > 0.0
