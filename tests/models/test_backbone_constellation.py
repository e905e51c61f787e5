"""Named parts on a frozen backbone."""

import keras
import numpy as np
import pytest
from keras import ops

import tfcaps
from tfcaps import models, rem


def network(**settings):
    """Returns one on a backbone that passes on images of four places."""
    features = keras.layers.AveragePooling2D(4, data_format="channels_last")
    images = keras.Input((32, 32, 3))
    backbone = keras.Model(images, features(images))
    return models.backbone_constellation_capsnet(backbone, 2, **settings)


def test_types_are_of_one_class_each():
    slots = network(part_types=5).get_layer("class_caps").slots
    np.testing.assert_array_equal(
        ops.convert_to_numpy(slots), [[1, 0], [0, 1], [1, 0], [0, 1], [1, 0]]
    )
    with pytest.raises(ValueError, match="at least as many as the classes, 2"):
        network(part_types=1)


@pytest.mark.slow
def test_its_trees_show_what_tells_the_classes(rng):
    keras.utils.set_random_seed(0)
    labels = np.arange(64) % 2
    images = 0.1 * rng.random((64, 32, 32, 3), dtype=np.float32)
    places = 4 * rng.integers(1, 7, (64, 2))
    for image, label, (y, x) in zip(images, labels, places, strict=True):
        image[y : y + 4, x : x + 4, label] = 1.0  # a red or a green square
    model = network(part_types=2)
    training = models.with_templates(model, template_size=None)
    assert set(training.output) == {"evidence", "presence"}
    losses = tfcaps.losses.constellation_losses()
    training.compile(
        keras.optimizers.Adam(0.1),
        {name: losses[name] for name in training.output},
        jit_compile=False,
    )
    schedule = tfcaps.callbacks.BlueprintEstimation(
        images, labels, 20, widths=None
    )
    targets = dict.fromkeys(training.output, labels)
    training.fit(images, targets, epochs=20, verbose=0, callbacks=[schedule])
    trees = rem.trees(model, images)
    np.testing.assert_array_equal(trees.predicted, labels)
    for k, (y, x) in enumerate(places):
        leaves = trees.places[k][trees.in_tree[k]]
        assert len(leaves)
        np.testing.assert_allclose(leaves - (y + 1.5, x + 1.5), 0, atol=2)
