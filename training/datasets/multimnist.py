"""MultiMNIST: two digits of different classes on top of each other.

Digits of 28x28 pixels get a margin of 4, are shifted, added, and cut at the
largest brightness. Training images are made by `Batches` with `pairs`, anew in
each epoch; those for validation and test are made here, once.

Source: Sabour, Frosst and Hinton, Dynamic routing between capsules, 2017,
section 6, with shifts of up to 4 pixels. Their published command shifts by up
to 6, which cuts digits off.
"""

import dataclasses

import numpy as np

from training import images as pixels
from training.datasets.data import Data
from training.datasets.masks import Masks, inked
from training.image_data import Images, Split
from training.pairs import Partners

_SIZE = 36
_SHIFT = 4  # pixels to each side, at most
_TEST_SEED = 42
_VALIDATION_SEED = 43


def generate(mnist: Data, data_dir: str | None, validation: float) -> Data:
    """Makes MultiMNIST.

    Returns:
        Images `[n, 36, 36, 1]`. The training part has single digits and their
        labels `[n]`; the labels of the others are two-hot, `[n, 10]`, and the
        parts of their masks are the two digits, see `Masks.of_classes`.
    """
    split = mnist.with_validation(validation)
    train, held, test = (
        Split(Images(pixels.centred(images.pixels, _SIZE)), labels)
        for images, labels in (split.train, split.validation, split.test)
    )

    def paired(digits: Split, seed: int) -> tuple[Split, Masks]:
        base = np.arange(len(digits.labels))
        pairs = Partners(*digits, mnist.num_classes)
        draw = np.random.default_rng(seed)
        shown, classes = pairs.choose(base, _SHIFT, draw)
        drawn = inked(shown).swapaxes(0, 1)
        nothing = np.zeros((len(base), 0, *drawn.shape[2:]), bool)
        either = np.any(drawn, axis=1)
        masks = Masks(either, drawn, nothing, of_classes=classes.T)
        images, labels = pairs.merged(shown, classes)
        return Split(Images(images), labels), masks

    seen, _ = paired(held, _VALIDATION_SEED)
    tested, masks = paired(test, _TEST_SEED)
    return dataclasses.replace(
        split,
        name="multimnist",
        train=train,
        validation=seen,
        test=tested,
        masks=masks,
    )
