"""Networks of parts that know an object at any angle and size."""

import keras
import numpy as np
import pytest

from examples import viewpoints
from tfcaps.parts import ConstellationCaps, ConstellationModel, PartCaps

# Rows and columns of a red, a green and a blue dot. Turned half round the two
# classes have dots at the same places, of other colours.
BLUEPRINT = np.array(
    [[[-6, -3], [-6, 3]], [[-6, 3], [-6, -3]], [[5, 0], [5, 0]]], "float32"
)


def of_dots():
    """Returns a network of coloured dots, whose weights are set by hand."""
    images = keras.Input((32, 32, 3))
    parts = PartCaps(3, 3)
    classes = ConstellationCaps(2)
    lengths = classes(*parts(images), return_activations=True)[1]
    model = ConstellationModel(images, lengths)
    kernel, bias = 20.0 * np.eye(3)[None, None], np.full(3, -10.0)
    parts.conv.set_weights([kernel, bias])
    parts.nothing_conv.set_weights([np.zeros((1, 1, 3, 1)), np.zeros(1)])
    classes.blueprint.assign(BLUEPRINT / classes.side)
    return model


def drawn(label, angle, size, place=(17.0, 15.0)):
    """Returns an image of dots, turned by `angle` degrees."""
    turn = np.deg2rad(angle)
    matrix = size * np.array(
        [[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]
    )
    blueprint = BLUEPRINT[:, label] - BLUEPRINT[:, label].mean(axis=0)
    pixels = np.moveaxis(np.indices((32, 32)), 0, -1)
    image = np.zeros((32, 32, 3), "float32")
    for channel, offset in enumerate(blueprint @ matrix.T + place):
        apart = np.square(pixels - offset).sum(axis=-1)
        image[..., channel] = np.exp(-apart / (2 * 1.2**2))
    return image


@pytest.mark.slow
def test_objects_are_known_at_any_angle_and_size():
    # Between the views: 15 degrees apart, 0.75, 1 and 1.33 times as large.
    poses = [(0, 1.0), (82, 1.0), (130, 1.15), (173, 0.87), (-157, 1.0)]
    images = np.stack(
        [drawn(label, *pose) for pose in poses for label in (0, 1)]
    )
    labels = np.tile([0, 1], len(poses))
    model = of_dots()
    upright = np.argmax(model.predict(images, verbose=0), axis=-1)
    assert np.mean(upright == labels) < 0.9
    lengths, angle, size = viewpoints.any_view(model, images)
    assert np.all(np.argmax(lengths, axis=-1) == labels)
    angles, sizes = np.repeat(poses, 2, axis=0).T
    assert np.all(np.abs((angle - angles + 180) % 360 - 180) < 10)
    assert np.all(np.abs(np.log(size / sizes)) < 0.25)
    # The picture of a pose is what is drawn at it, about the middle.
    at = (15.5, 15.5)
    turned = viewpoints.posed(drawn(1, 0, 1.0, at)[None], 40, 1.2)[0]
    far = drawn(1, 40, 1.2, at)
    assert np.linalg.norm(turned - far) < 0.35 * np.linalg.norm(far)
