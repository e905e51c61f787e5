"""Deletion and insertion of children against Xplique's numbers for pixels.

`golden/13_xplique_children.npz` holds images `[6, 4, 4, 3]`, the transformation
`[16, 4, 3, 4]` of class capsules whose children are the pixels, the lengths of
the classes, and what Xplique 2.0.2 says of that network on TensorFlow 2.21:
`Deletion` and `Insertion(model, image, one_hot, steps=16, baseline_mode=0.0)`
of each image, with its couplings with the longest class (`..._coupling`), or
its pixels' single effects (`..._effect`), as the explanation `[1, 4, 4]`.
Xplique needs `tensorflow_probability` only for a method that is not used here:
a mock stands in for it.
"""

import keras
import numpy as np
import pytest

from tests import golden
from tfcaps import rem
from tfcaps.layers import ClassCaps, Length


def test_orders_of_pixels_are_those_of_xplique():
    expected = golden.load("13_xplique_children")
    pixels = keras.Input((4, 4, 3), name="images")
    children = keras.layers.Reshape((16, 3))(pixels)
    layer = ClassCaps(4, 4)
    model = keras.Model(pixels, Length()(layer(children)))
    layer.transformation.assign(expected["transformation"])
    report = rem.faithfulness(model, (expected["images"], np.zeros(6)))
    for order in ("coupling", "effect"):
        for name, found in (
            ("deletion", report.child_deletion),
            ("insertion", report.child_insertion),
        ):
            # Ours are relative to the length with all children.
            areas = expected[f"{name}_{order}"] / expected["lengths"]
            assert found[order] == pytest.approx(np.mean(areas), abs=1e-5)
