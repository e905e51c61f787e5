"""TemplateDecoder: pictures of types, where they were found."""

import numpy as np
import pytest

from tests.tolerance import assert_close
from tfcaps.layers import TemplateDecoder


@pytest.mark.parametrize("offset", [(0, 0), (1, 0)])
def test_a_template_is_drawn_around_its_place(offset):
    decoder = TemplateDecoder((8, 7, 1), 3, offset)
    found = np.zeros((1, 4, 4, 2), "float32")
    decoder.build(found.shape)
    template = np.zeros((3, 3, 1, 2), "float32")
    template[1, 1, 0, 1] = 1.0
    template[0, 1, 0, 1] = 0.5
    decoder.templates.assign(template / np.maximum(fading(decoder), 1e-6))
    decoder.ground.assign([0.25])
    found[0, 2, 1, 1] = 1.0
    image = np.asarray(decoder(found))[0, ..., 0] - 0.25
    row, column = 4 + offset[0], 2 + offset[1]
    assert image.shape == (8, 7)
    assert_close(image[row, column], 1.0, atol=1e-5)
    assert_close(image[row - 1, column], 0.5, atol=1e-5)
    assert_close(np.abs(image).sum(), 1.5, atol=1e-5)


def fading(decoder):
    plain = np.asarray(decoder.templates)
    return np.asarray(decoder.pictures) / np.where(plain == 0, 1, plain)


def test_templates_become_what_is_seen_where_a_type_was_found(rng):
    decoder = TemplateDecoder((8, 8, 1), 3)
    decoder.build((None, 4, 4, 2))
    before = np.array(decoder.templates)
    images = np.zeros((5, 8, 8, 1), "float32")
    images[:, 4, 2] = 1.0
    images[:, 4, 3] = 0.5
    found = np.zeros((5, 4, 4, 2), "float32")
    found[:, 2, 1, 0] = 0.9
    decoder.adapt(images, found)
    pictures = np.asarray(decoder.pictures)[:, :, 0, 0]
    assert pictures.argmax() == 4 and pictures[1, 2] > pictures[1, 0] == 0.0
    np.testing.assert_allclose(decoder.templates[..., 1], before[..., 1])
    with pytest.raises(ValueError, match="`found` must have activations above"):
        decoder.adapt(images, 0.1 * found)
