"""smallNORB: toys seen by two cameras, and its splits by viewpoint.

The two views are the two channels of an image of 96x96 pixels. Trained on some
viewpoints, a network is tested on the others (`test`) and on the same ones
(`others["familiar"]`), both of toys that it has never seen.

Source: LeCun, Huang and Bottou, 2004. The splits: Hinton, Sabour and Frosst,
Matrix capsules with EM routing, 2018, section 5.1.
"""

import numpy as np

from training.datasets import prepared
from training.datasets.data import Data, checked

_CLASS_NAMES = ["animal", "human", "airplane", "truck", "car"]
# What TensorFlow Datasets have for the degrees that are trained on, a third of
# the images: 300, 320, 340, 0, 20, 40 in steps of 20; 30, 35, 40 from 30 on.
_TRAINED = {"azimuth": (15, 16, 17, 0, 1, 2), "elevation": (0, 1, 2)}


def load(
    data_dir: str | None,
    validation: float = 0.0,
    *,
    viewpoint: str | None = None,
) -> Data:
    """Loads smallNORB, split by `"azimuth"`, by `"elevation"` or not."""
    builder = prepared.builder_of("smallnorb", data_dir)
    names = ("image", "image2", "label_category", f"label_{viewpoint}")
    parts, trained = [], []
    for split in ("train", "test"):
        left, right, labels, *degrees = prepared.read(
            builder, split, names if viewpoint else names[:3]
        )
        parts.append((np.concatenate([left, right], axis=-1), labels))
        trained += [np.isin(d, _TRAINED[viewpoint or ""]) for d in degrees]
    train, test = parts
    if not trained:
        data = checked("smallnorb", train, test, _CLASS_NAMES)
        return data.with_validation(validation)
    seen, familiar = trained
    data = checked(
        f"smallnorb-{viewpoint}",
        (train[0][seen], train[1][seen]),
        (test[0][~familiar], test[1][~familiar]),
        _CLASS_NAMES,
        {"familiar": (test[0][familiar], test[1][familiar])},
    )
    return data.with_validation(validation)
