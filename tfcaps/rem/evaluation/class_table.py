"""The rows of a report about classes, of which there may be a thousand."""

import numpy as np

from tfcaps.rem.parse.dictionary import CouplingDictionary

# Up to so many classes have a row each; of more, so many at either end.
_MOST = 30
_AT_EITHER_END = 5


def class_table(trees: CouplingDictionary) -> list[str]:
    """Returns lines about the trees of each class.

    Of more than 30 classes these are the five of the lowest and the five of the
    highest entropy, among those that have a sample.
    """
    samples, entropy = trees.num_samples, trees.entropy_bits
    columns = (samples, trees.num_keys, entropy, trees.ceiling_bits)
    rows = [
        f"{j:>5}  {n:>7}  {keys:>4}  {bits:>7.2f}  {top:>7.2f}"
        for j, (n, keys, bits, top) in enumerate(zip(*columns, strict=True))
    ]
    title = "class  samples  keys  entropy  ceiling (bits)"
    if len(rows) <= _MOST:
        return [title, *rows]
    order = np.argsort(entropy, kind="stable")
    order = order[samples[order] > 0]
    left_out = len(order) - 2 * _AT_EITHER_END
    if left_out <= 0:
        return [title, *(rows[j] for j in order)]
    return [
        title,
        *(rows[j] for j in order[:_AT_EITHER_END]),
        f"  ...  {left_out:,} classes of an entropy in between",
        *(rows[j] for j in order[-_AT_EITHER_END:]),
    ]
