"""What a run measures of its models."""

import dataclasses

import keras
import numpy as np

from tests.networks import outputs_of, sharpened, tiny_capsnet
from tests.small_data import noise
from tfcaps import rem
from training import results
from training.configs import Config


def test_models_get_the_same_lowest_levels():
    keras.utils.set_random_seed(0)
    models = {"baseline": tiny_capsnet(), "rem": tiny_capsnet()}
    sharpened(models["rem"])
    data = noise()
    images = data.test.images[:]
    labels = outputs_of(models["rem"], images).argmax(axis=-1)
    data = dataclasses.replace(
        data, validation=data.test._replace(labels=labels.astype(np.int32))
    )
    each = [rem.lowest_levels(m, (images, labels)) for m in models.values()]
    chosen = results.lowest_levels(Config(levels="lowest"), data, models)
    assert each[0] != each[1] and chosen == max(each)
