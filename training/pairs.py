"""Two digits in one image: how they are merged, and how many were found."""

import numpy as np
from keras import ops

from cli import UserError
from tfcaps.ops import Tensor
from training.augmentation import shifted
from training.image_data import Array, Images, Pixels


class Partners:
    """Merges digits with others of another class.

    Args:
        images: Digits.
        labels: Class indices `[n]`, of two classes at least.
        num_classes: Length of the two-hot labels.

    Raises:
        UserError: If there is one class alone.
    """

    def __init__(self, images: Images, labels: Array, num_classes: int):
        self.pixels = images.pixels
        self.labels = labels
        self.num_classes = num_classes
        self._by_class = np.argsort(labels, kind="stable")
        self._sizes = np.bincount(labels, minlength=num_classes)
        if len(labels) and np.count_nonzero(self._sizes) < 2:
            raise UserError(
                "images of two digits need digits of two classes at least; "
                "take more --samples."
            )
        self._starts = np.cumsum(self._sizes) - self._sizes

    def choose(
        self, rows: Array, shift: int, draw: np.random.Generator
    ) -> tuple[Pixels, Array]:
        """Shifts digits, and draws for each another one, shifted as well.

        Args:
            rows: Which digits, `[b]`.
            shift: Largest shift in pixels, to each side.
            draw: Where shifts and partners come from.

        Returns:
            The pixels `[2, b, h, w, c]` of the digits, and their classes
            `[2, b]`.
        """
        own = self.labels[rows]
        size, start = self._sizes[own], self._starts[own]
        # A place in the images by class, the own class left out.
        place = draw.integers(0, len(self.labels) - size)
        others = self._by_class[np.where(place < start, place, place + size)]
        both = np.stack([rows, others])
        digits = [shifted(self.pixels[each], shift, draw) for each in both]
        return np.stack(digits), self.labels[both]

    def merged(self, digits: Pixels, classes: Array) -> tuple[Pixels, Array]:
        """Adds the digits that `choose` returned.

        Returns:
            Pixels `[b, h, w, c]`, at most as bright as one can be, and two-hot
            labels `[b, num_classes]`, float32.
        """
        first, second = digits
        brightest = first.dtype.type(255 if first.dtype == np.uint8 else 1)
        one_hot = np.eye(self.num_classes, dtype=np.float32)
        merged = first + np.minimum(second, brightest - first)
        return merged, one_hot[classes].sum(axis=0)


def both_found(labels: Tensor, lengths: Tensor) -> Tensor:
    """Tells whether the two longest capsules are the two digits.

    This and `share_found` are also metrics for `model.compile`, which shows
    their means.

    Args:
        labels: Two-hot `[n, classes]`.
        lengths: Lengths of the class capsules `[n, classes]`.

    Returns:
        1.0 or 0.0 for each image, `[n]`; the mean is the accuracy of Sabour et
        al.
    """
    return ops.cast(share_found(labels, lengths) == 1.0, "float32")


def share_found(labels: Tensor, lengths: Tensor) -> Tensor:
    """Returns the share of the two digits among the two longest capsules.

    Its mean is the accuracy of Efficient-CapsNet's code. See `both_found`.
    """
    longest = ops.top_k(lengths, 2, sorted=False)[1]
    found = ops.take_along_axis(ops.cast(labels, "float32"), longest, axis=-1)
    return ops.mean(found, axis=-1)
