import keras
import pytest

from tests.networks import draw_weights, sharpened, tiny_capsnet


@pytest.fixture(scope="module")
def capsnet():
    """A network whose couplings differ, and so move its lengths."""
    return draw_weights(tiny_capsnet(primary_types=3), 0, class_caps=0.7)


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    return sharpened(tiny_capsnet(primary_types=3))
