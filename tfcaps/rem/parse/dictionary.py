"""The dictionary of parse trees: which keys a class uses, and how often."""

import os
import zlib
from collections import Counter
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfcaps.files import write_atomically
from tfcaps.ops import check_positive

_MAX_CODE = 255
_PER_CLASS = (
    *("num_samples", "num_keys", "entropy_bits", "ceiling_bits"),
    "normalized_entropy",
)
# What numpy raises for files that are no `.npz`, cut short or damaged.
_UNREADABLE = (
    *(BadZipFile, EOFError, KeyError, OSError, TypeError, ValueError),
    zlib.error,
)


class CouplingDictionary:
    """Counts the parse trees of each class.

    A sample's key is the row of codes of all its children towards its class,
    in REM the one that it is predicted to be, right or wrong. With `p` the
    share of a class's samples that have a key, the class's entropy is

        H_j = -sum_keys p log2 p    (bits, at most log2 of the samples)

    Keys are compared code by code, as bytes: no separator, no float, no hash
    that could collide.

    Args:
        num_classes: Int, at least 1.

    Attributes:
        key_length: Codes in a key, one for each child; 0 before the first.

    Example:

    >>> trees = CouplingDictionary(num_classes=2)
    >>> trees.update([[1, 0, 3], [1, 0, 3], [2, 2, 2]], predicted=[0, 0, 0])
    >>> trees.num_keys.tolist(), trees.counts(0)
    ([2, 0], [2, 1])

    References:
        - "Capsule Networks Do Not Need to Model Everything" (REM), eq. 13, 14
    """

    def __init__(self, num_classes: int):
        check_positive(num_classes=num_classes)
        self.num_classes = num_classes
        self.key_length = 0
        self._counters: list[Counter[bytes]] = [
            Counter() for _ in range(num_classes)
        ]

    def update(self, codes: ArrayLike, predicted: ArrayLike) -> None:
        """Adds a batch of samples.

        Args:
            codes: Integers in [0, 255]: the keys, `[b, i]`.
            predicted: Class indices `[b]`, the predicted ones or others.

        Raises:
            ValueError: If shapes, codes or classes do not fit. The dictionary
                is then unchanged.
        """
        keys, classes = self._checked(codes, predicted)
        self.key_length = keys.shape[1]
        for key, j in zip(keys, classes.tolist(), strict=True):
            self._counters[j][key.tobytes()] += 1

    @property
    def num_samples(self) -> NDArray[np.int64]:
        """Samples predicted as each class, `[j]`."""
        return np.array([c.total() for c in self._counters], np.int64)

    @property
    def num_keys(self) -> NDArray[np.int64]:
        """Distinct keys of each class, `[j]`."""
        return np.array([len(c) for c in self._counters], np.int64)

    @property
    def entropy_bits(self) -> NDArray[np.float64]:
        """Entropy of each class's keys in bits, `[j]`; 0 for no samples."""
        return np.array([entropy([*c.values()]) for c in self._counters])

    @property
    def ceiling_bits(self) -> NDArray[np.float64]:
        """The entropy if every sample had a key of its own, `[j]`."""
        return np.log2(np.maximum(self.num_samples, 1))

    @property
    def normalized_entropy(self) -> NDArray[np.float64]:
        """Entropy of each class over its ceiling, `[j]`, in [0, 1].

        It can be compared across data sets of different sizes.
        """
        ceiling = self.ceiling_bits
        return self.entropy_bits / np.where(ceiling > 0, ceiling, 1.0)

    def summary(self) -> dict[str, Any]:
        """Returns the measures of all classes together, ready for JSON.

        Means and the median are over classes, `empty_classes` is how many of
        them have no sample, which count with an entropy of 0, and `per_class`
        has a list for each measure.
        """
        per_class = {name: getattr(self, name) for name in _PER_CLASS}
        return {
            "num_samples": int(np.sum(self.num_samples)),
            "empty_classes": int(np.sum(self.num_samples == 0)),
            **{n: float(np.mean(per_class[n])) for n in _PER_CLASS[2:]},
            "mean_keys": float(np.mean(self.num_keys)),
            "median_keys": float(np.median(self.num_keys)),
            "per_class": {k: v.tolist() for k, v in per_class.items()},
        }

    def counts(self, class_index: int) -> list[int]:
        """Returns the counts of the keys of a class, descending."""
        return [count for _, count in self._ranked(class_index)]

    def keys(self, class_index: int) -> NDArray[np.uint8]:
        """Returns a class's keys `[n, i]`, most frequent first."""
        rows = [key for key, _ in self._ranked(class_index)]
        flat = np.frombuffer(b"".join(rows), np.uint8)
        return flat.reshape(len(rows), self.key_length)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes an `.npz` file, which appears complete.

        It has `num_classes`, and for each class and key a row in `classes`,
        `counts` and `keys` `[n, i]`.
        """
        every = range(self.num_classes)
        counts = [n for j in every for n in self.counts(j)]
        with write_atomically(Path(path)) as file:
            np.savez_compressed(
                file,
                num_classes=np.int64(self.num_classes),
                classes=np.repeat(every, self.num_keys),
                counts=np.array(counts, np.int64),
                keys=np.concatenate([self.keys(j) for j in every]),
            )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "CouplingDictionary":
        """Reads a dictionary written by `save`.

        Raises:
            ValueError: If the file is not such a dictionary.
        """
        try:
            # Opened here, because numpy leaves a broken file open.
            with (
                open(path, "rb") as file,
                np.load(file, allow_pickle=False) as arrays,
            ):
                num_classes = int(arrays["num_classes"])
                classes = arrays["classes"]
                counts = arrays["counts"]
                keys = arrays["keys"]
            loaded = cls(num_classes)
            keys, classes = loaded._checked(keys, classes)
            if counts.shape != classes.shape or np.any(counts < 1):
                raise ValueError("counts do not fit the keys")
        except FileNotFoundError:
            raise
        except _UNREADABLE as error:
            raise ValueError(
                f"{os.fspath(path)!r} is not a coupling dictionary written by "
                f"`CouplingDictionary.save`: {error}"
            ) from error
        if len(keys):
            loaded.key_length = keys.shape[1]
        for key, j, count in zip(
            keys, classes.tolist(), counts.tolist(), strict=True
        ):
            loaded._counters[j][key.tobytes()] += count
        return loaded

    def _ranked(self, class_index: int) -> list[tuple[bytes, int]]:
        """Returns (key, count), most frequent first, ties by key."""
        counter = self._counters[class_index]
        return sorted(counter.items(), key=lambda item: (-item[1], item[0]))

    def _checked(
        self, codes: ArrayLike, predicted: ArrayLike
    ) -> tuple[NDArray[np.uint8], NDArray[Any]]:
        keys, classes = np.asarray(codes), np.asarray(predicted)
        if classes.ndim != 1 or classes.size and classes.dtype.kind not in "iu":
            raise ValueError(
                "`predicted` must be a vector of class indices. Received: "
                f"shape={classes.shape}, dtype={classes.dtype}."
            )
        if (
            keys.ndim != 2
            or len(keys) != len(classes)
            or keys.dtype.kind not in "iu"
        ):
            raise ValueError(
                "`codes` must be integers [samples, children], one row for "
                f"each of the {len(classes)} predictions. Received: "
                f"shape={keys.shape}, dtype={keys.dtype}."
            )
        for name, values, most in (
            ("predicted", classes, self.num_classes - 1),
            ("codes", keys, _MAX_CODE),
        ):
            if values.size and not 0 <= values.min() <= values.max() <= most:
                raise ValueError(
                    f"`{name}` must be in [0, {most}]. Received: "
                    f"{values.min()} to {values.max()}."
                )
        if self.key_length not in (0, keys.shape[1]):
            raise ValueError(
                f"Keys in this dictionary have {self.key_length} codes. "
                f"Received: {keys.shape[1]} codes."
            )
        return np.ascontiguousarray(keys, np.uint8), classes


def entropy(counts: ArrayLike) -> float:
    """Returns the entropy of counts in bits, 0 of none."""
    counts = np.asarray(counts, np.float64).ravel()
    shares = counts[counts > 0] / max(counts.sum(), 1.0)
    return float(abs(np.sum(shares * np.log2(shares))))
