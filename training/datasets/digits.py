"""The digits that are part of scikit-learn: 1,797 images of 8x8 pixels."""

import numpy as np

from cli import check_installed
from training.datasets.data import Data, checked, held_out

_TEST_SHARE = 0.5  # 90 samples a class: entropies up to 6.5 bits


def load(data_dir: str | None = None, validation: float = 0.0) -> Data:
    """Reads them; half of each class is for testing."""
    check_installed(data="sklearn")
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)[..., np.newaxis]
    labels = digits.target.astype(np.int64)
    train, test = (
        (images[rows], labels[rows]) for rows in held_out(labels, _TEST_SHARE)
    )
    data = checked("digits", train, test, [str(k) for k in range(10)])
    return data.with_validation(validation)
