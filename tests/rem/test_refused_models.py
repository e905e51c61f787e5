"""Models whose trees or weights cannot be read get one sentence everywhere."""

import keras
import numpy as np
import pytest
from keras import layers

from tests.networks import tiny_capsnet
from tests.refusals import refused
from tfcaps import export, models, rem
from tfcaps.layers import ClassCaps, Length, PrimaryCaps

IMAGES = np.random.default_rng(0).random((4, 8, 8, 1), dtype=np.float32)
LABELS = np.arange(4) % 3


def two_views():
    """The two halves of an image go through the same capsules."""
    images = keras.Input((8, 8, 1), name="images")
    primary, classes = PrimaryCaps(2, 4, 3), ClassCaps(3, 4)
    halves = [primary(images[:, :4]), primary(images[:, 4:])]
    return keras.Model(images, Length()(layers.add([*map(classes, halves)])))


def more_classes():
    network = tiny_capsnet()
    return keras.Model(network.input, layers.Dense(5)(network.output))


def mixed_classes():
    network = tiny_capsnet()
    mixed = layers.Softmax()(layers.Dense(3, name="mixing")(network.output))
    return keras.Model(network.input, mixed)


def two_inputs():
    network = tiny_capsnet()
    context = keras.Input((3,), name="context")
    lengths = network.output + context
    return keras.Model({"images": network.input, "context": context}, lengths)


def quantised(mode):
    images = keras.Input((8, 8, 1), name="images")
    mixed = layers.Dense(64, name="mixed")(layers.Flatten()(images))
    capsules = PrimaryCaps(2, 4, 4)(layers.Reshape((8, 8, 1))(mixed))
    model = keras.Model(images, Length()(ClassCaps(3, 4)(capsules)))
    model.compile("adam", "mse")
    with pytest.warns(UserWarning, match="does not have a `quantize`"):
        model.quantize(mode)
    return model


DATA = (IMAGES, LABELS)
TREES = {
    "evaluate": lambda model: rem.evaluate(model, DATA),
    "trees": lambda model: rem.trees(model, IMAGES),
    "faithfulness": lambda model: rem.faithfulness(model, DATA),
    "explanation": rem.explanation,
    "capsule_outputs": rem.capsule_outputs,
}
WEIGHTS = {
    "evaluate": TREES["evaluate"],
    "sparsity": rem.sparsity,
    "multiply_adds": rem.multiply_adds,
    "compact": rem.compact,
    "prune_low_magnitude": lambda m: rem.prune_low_magnitude(m, lambda _: 0.5),
    "prune_structured": lambda m: rem.prune_structured(m, lambda _: 0.5),
    "prune_single_shot": lambda m: rem.prune_single_shot(m, [DATA], 0.5),
    "keep_zeros": rem.keep_zeros,
    "prune_iteratively": lambda m: rem.prune_iteratively(m, DATA),
}
CASES = [
    *((two_views, call, "must be called once in .* 2 calls") for call in TREES),
    *((more_classes, call, "5 outputs and 3 capsules") for call in TREES),
    *((mixed_classes, call, "'mixing' mixes from") for call in TREES),
    *((two_inputs, call, "must depend on its images alone") for call in TREES),
]


@pytest.mark.parametrize(
    ("make", "name", "message"),
    [pytest.param(*case, id=f"{case[0].__name__}-{case[1]}") for case in CASES],
)
def test_models_without_one_tree_for_an_image(make, name, message):
    with pytest.raises(ValueError, match=message):
        TREES[name](make())


def test_a_decoder_needs_images_alone():
    with pytest.raises(ValueError, match=r"inputs \['context', 'images'\]"):
        models.with_decoder(two_inputs())
    network = tiny_capsnet()
    named = keras.Model({"images": network.input}, network.output)
    assert set(models.with_decoder(named).input) == {"images", "labels"}


@pytest.mark.parametrize("mode", ["int8", "int4", "float8"])
def test_weights_in_another_form_are_refused(mode):
    model = quantised(mode)
    for name, call in WEIGHTS.items():
        with pytest.raises(ValueError, match="'mixed' as `model.quantize`"):
            pytest.fail(f"{name}: {call(model)}")
    assert len(rem.trees(model, IMAGES)) == len(IMAGES)


@pytest.mark.parametrize("name", ["evaluate", "faithfulness"])
def test_an_empty_batch_counts_for_nothing(name):
    model, empty = tiny_capsnet(), (IMAGES[:0], LABELS[:0])
    measure = getattr(rem, name)
    several = measure(model, [empty, DATA, empty])
    assert several.to_dict() == measure(model, [DATA]).to_dict()
    with pytest.raises(ValueError, match="The data set has no samples"):
        measure(model, [empty])
    with pytest.raises(ValueError, match="There must be a tree at least"):
        rem.named_parts(rem.trees(model, IMAGES)[:0])


def test_names_of_layers_are_not_given_twice():
    """Layers from a file may have the names of operations made here."""
    names = "cast max squeeze get_item saliency with_couplings take_along_axis"
    images = keras.Input((64,), name="row")
    tensor = layers.Reshape((8, 8, 1), name="reshape")(images)
    for name in (*names.split(), "length", "reshape_1", "children"):
        tensor = layers.Identity(name=name)(tensor)
    model = keras.Model(
        images, Length()(ClassCaps(3, 4)(PrimaryCaps(2, 4, 4)(tensor)))
    )
    keras.utils.clear_session()
    rem.explanation(model)
    keras.utils.clear_session()
    rem.evaluate(
        rem.compact(model), (IMAGES.reshape(4, 64), LABELS), faithfulness=True
    )
    rem.add_couplings(model, counterfactual=True)


MODEL = tiny_capsnet()
UNBUILT = keras.Sequential([ClassCaps(3, 4)])
UNROUTED = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
PAIR = keras.Model([MODEL.input, keras.Input((2,))], MODEL.output)


test_wrong_calls_are_refused = refused(
    """
rem.evaluate(MODEL, DATA, mode="middle")
rem.trees(MODEL, IMAGES, mode="middle")
rem.quantize_couplings(MODEL, 5, mode="middle")
    Received: mode='middle'
rem.evaluate(MODEL, DATA, 257)
rem.evaluate(MODEL, DATA, 1)
rem.trees(MODEL, IMAGES, 257)
rem.lowest_levels(MODEL, DATA, (2, 300))
rem.lowest_levels(MODEL, DATA, (1, 2))
    in [2, 256]
rem.lowest_levels(MODEL, DATA, ())
    must have a number of levels
rem.quantize_couplings(MODEL, 1)
rem.quantize_couplings(MODEL, True)
rem.quantize_couplings(MODEL, "11")
rem.trees(MODEL, IMAGES, 1)
    `levels` must be at least 2, and whole. Received: levels=
rem.evaluate(MODEL, [])
rem.faithfulness(MODEL, [])
rem.trees(MODEL, [])
rem.trees(MODEL, IMAGES[:0])
    data set has no samples
rem.evaluate(MODEL, (IMAGES, LABELS + 1))
    in [0, 2]
rem.faithfulness(MODEL, DATA, samples=0)
    samples=0
rem.faithfulness(MODEL, DATA, draws=0)
    draws=0
rem.faithfulness(MODEL, DATA, trees=rem.trees(MODEL, IMAGES[1:]))
    4 images and 3 trees
rem.evaluate(UNBUILT, DATA)
    must be a functional model, or
rem.evaluate(UNROUTED, DATA)
rem.faithfulness(UNROUTED, DATA)
rem.explanation(UNROUTED)
    has no routed capsule layer
rem.classifier(PAIR)
    of several inputs must be made of a
rem.add_couplings(IMAGES)
rem.add_couplings(models.dr_capsnet)
rem.evaluate(DATA, tiny_capsnet())
rem.prune_single_shot(DATA, tiny_capsnet(), 0.5)
rem.trees(IMAGES, tiny_capsnet())
export.save("served", tiny_capsnet())
    The first argument must be a Keras model; data and paths come after it.
""",
    **globals() | {"export": export},
)
