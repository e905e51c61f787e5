"""Every network learns what is easy, with the routing that it has by default.

Formulas can be right and a network useless. Of these bars γ-CapsNet with
constant couplings gets 59 and 39 % right (two seeds), EM-CapsNet with three
iterations 63 and 57 %, with a least variance of 1e-9 64 and 56 %, by its
default twice 99 %.
"""

import keras
import numpy as np
import pytest

from tests.nightly import nightly
from tfcaps import losses, models

_STEM = {
    **{"filters": 16, "kernel_size": 5, "primary_kernel_size": 5},
    **{"primary_types": 4, "primary_dim": 8},
}
# Settings that make a network small; efficient_conv_capsnet needs 36 pixels.
_NETWORKS = {
    "affine_capsnet": _STEM,
    "deepcaps": {},
    "dr_capsnet": _STEM,
    "efficient_capsnet": {},
    "efficient_conv_capsnet": {},
    "em_capsnet": {"filters": 16, "primary_types": 4, "conv_types": (4, 4)},
    "gamma_capsnet": {**_STEM, "hidden_capsules": 8},
    "multilayer_capsnet": {"capsules": (8, 8), "kernel_size": 5},
    "parts_capsnet": {"filters": (8, 16), "primary_types": 4},
}
_IN_CI = ("gamma_capsnet",)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in _IN_CI else [nightly])
        for name in _NETWORKS
    ],
)
def test_a_network_tells_bars_of_four_angles_apart(name):
    side = 36 if name == "efficient_conv_capsnet" else 16
    images, labels = _bars(1024, side, seed=0)
    keras.utils.set_random_seed(0)
    model = getattr(models, name)((side, side, 1), 4, **_NETWORKS[name])
    is_em = name == "em_capsnet"
    model.compile(
        keras.optimizers.Adam(3e-3),
        losses.SpreadLoss(0.2) if is_em else losses.MarginLoss(),
        metrics=["accuracy"],
    )

    model.fit(images, labels, batch_size=32, epochs=3, verbose=0)

    unseen = _bars(512, side, seed=1)
    result = model.evaluate(*unseen, verbose=0, return_dict=True)
    assert result["accuracy"] > 0.8


def _bars(count, side, seed):
    """Returns images of a bar each at 0, 45, 90 or 135 degrees, and labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, count)
    angles = (np.pi / 4 * labels)[:, None, None]
    x, y = np.arange(side)[None] - rng.uniform(
        side / 4, side * 3 / 4, (2, count, 1, 1)
    )
    y = y.swapaxes(1, 2)
    across = abs(x * np.sin(angles) - y * np.cos(angles))
    along = abs(x * np.cos(angles) + y * np.sin(angles))
    bars = (across < 1) & (along < 5)
    images = bars + rng.normal(0, 0.1, bars.shape)
    return images[..., None].astype("float32"), labels
