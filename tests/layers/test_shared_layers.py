"""Networks that call a routed layer more than once."""

import keras
import numpy as np
import pytest

from tfcaps import rem
from tfcaps.layers import ClassCaps, FcCaps, Length


def called_twice(which):
    """Returns a network with a layer that routes twice, its votes long."""
    children = keras.Input((5, 4), name="images")
    shared = FcCaps(5, 4, name="shared")
    capsules = shared(shared(children))
    if which == "hidden":
        capsules = ClassCaps(5, 4, name="class_caps")(capsules)
    model = keras.Model(children, Length(name="lengths")(capsules))
    shared.transformation.assign(10.0 * shared.transformation)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("which", ["hidden", "last"])
def test_every_call_rounds_with_the_weights_of_the_layer(which, rng):
    model = called_twice(which)
    images = rng.normal(size=(40, 5, 4)).astype("float32")
    rounded = rem.quantize_couplings(model, 101)
    lengths = rounded.predict(images, verbose=0)
    report = rem.evaluate(model, (images, lengths.argmax(-1)), levels=101)
    assert report.accuracy_quantized == 1.0
    found = rem.trees(model, images, 101)
    trees = rem.CouplingDictionary(5)
    trees.update(found.codes, found.predicted)
    np.testing.assert_allclose(
        report.dictionary.entropy_bits, trees.entropy_bits
    )


def test_trees_begin_before_the_first_call(rng):
    model = called_twice("last")
    images = rng.normal(size=(3, 5, 4)).astype("float32")
    tree = rem.trees(model, images).parse_tree()
    assert len(tree.activations) == 3
