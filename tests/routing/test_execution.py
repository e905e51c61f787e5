"""XLA around routing: the same results, in Keras' steps and nowhere else."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.networks import of_capsules
from tests.registry import LAYERS, parametrize
from tests.tolerance import assert_all_close
from tfcaps.layers import ClassCaps, ConvCaps, ConvCaps3D
from tfcaps.routing import DynamicRouting, EMRouting, execution

ROUTED = [case for case in LAYERS if hasattr(case.make(), "routing")]
CHILDREN = np.zeros((2, 6, 4), "float32")
MAPS = np.zeros((2, 4, 3, 2, 4), "float32")
STRATEGY = tf.distribute.get_strategy()


@pytest.fixture
def always(monkeypatch):
    """Lets XLA compile the smallest layers too."""
    monkeypatch.setattr(execution, "MANY_VOTES", 0)


def has_xla(function, *arguments):
    """Returns True if a traced function holds one that XLA must compile."""
    traced = tf.function(function, autograph=False)
    graph = traced.get_concrete_function(*arguments).graph
    library = graph.as_graph_def().library.function
    return any(f.attr["_XlaMustCompile"].b for f in library)


def updates(case, inputs):
    """Returns predictions, and every weight after one training step."""
    keras.utils.set_random_seed(0)
    model = case.model()
    model.compile(keras.optimizers.SGD(1.0), loss="mse", jit_compile=False)
    outputs = model.predict(inputs, verbose=0)
    targets = keras.tree.map_structure(np.ones_like, outputs)
    model.train_on_batch(inputs, targets)
    return keras.tree.flatten(outputs) + model.get_weights()


# XLA takes long.
@parametrize(
    ROUTED,
    slow=("conv_caps", "class_caps-", "compact_caps-", "constellation"),
    late=(
        "conv_caps-s",
        "class_caps-couplings",
        "class_caps-share_all",
        "compact_caps-grid",
        "compact_caps-s",
    ),
)
def test_compiled_routing_gives_the_same_outputs_and_steps(
    case, rng, monkeypatch
):
    inputs = case.random_inputs(rng, 3)
    expected = updates(case, inputs)
    monkeypatch.setattr(execution, "MANY_VOTES", 0)
    assert_all_close(updates(case, inputs), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("layer", "inputs"),
    [
        (ClassCaps(3, 4), CHILDREN),
        (ClassCaps(3, 4, EMRouting(3)), CHILDREN),
        pytest.param(ConvCaps(3, 4, 2), MAPS, marks=pytest.mark.slow),
        pytest.param(ConvCaps3D(3, 4), MAPS, marks=pytest.mark.slow),
    ],
    ids=["class", "em", "conv", "conv_3d"],
)
def test_xla_is_in_steps_and_in_no_exported_signature(
    layer, inputs, always, tmp_path
):
    spec = keras.Input(inputs.shape[1:])
    model = keras.Model(spec, keras.layers.Flatten()(layer(spec)))
    assert has_xla(lambda x: STRATEGY.run(model, (x,)), inputs)
    assert not has_xla(model, inputs)
    model.predict(inputs, verbose=0)
    model.export(tmp_path / "exported", verbose=0)
    served = tf.saved_model.load(tmp_path / "exported")
    assert not has_xla(served.signatures["serving_default"], inputs)


def test_few_votes_are_not_compiled():
    small, large = ClassCaps(3, 4), ClassCaps(64, 64)
    few, many = CHILDREN, np.zeros((1, 32, 8), "float32")
    assert not has_xla(lambda x: STRATEGY.run(small, (x,)), few)
    # Gradients through a loop are TensorFlow's own.
    looped = ClassCaps(64, 64, DynamicRouting(gradient="full"))
    assert not has_xla(lambda x: STRATEGY.run(looped, (x,)), many)
    assert has_xla(lambda x: STRATEGY.run(large, (x,)), many)


@pytest.mark.slow
def test_another_batch_size_is_not_traced_again(always):
    traced = []

    class Traced(DynamicRouting):
        def route(self, *arguments, **weights):
            traced.append(self)
            return super().route(*arguments, **weights)

    model = of_capsules(ClassCaps(3, 4, Traced()), 6, 4)
    model.compile("sgd", "mse", jit_compile=False)
    images, targets = np.ones((7, 6, 4), "float32"), np.ones((7, 3), "float32")
    model.fit(images, targets, batch_size=4, verbose=0)
    model.predict(images, batch_size=4, verbose=0)
    count = len(traced)
    for batch_size in (1, 2, 3, 5):
        model.fit(images, targets, batch_size=batch_size, verbose=0)
        model.predict(images, batch_size=batch_size, verbose=0)
    assert len(traced) == count
