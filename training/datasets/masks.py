"""Masks of test images: the pixels of objects and their parts."""

import dataclasses

import numpy as np

from training.image_data import Array, Rows


@dataclasses.dataclass(frozen=True)
class Masks:
    """The pixels of the parts of objects, and of what belongs to nothing.

    All masks are bool, and True where the thing is. A mask of a part that an
    image does not have is False everywhere.

    Attributes:
        parts: The parts that the object is made of, `[n, parts, h, w]`.
        loose: Parts or pieces that belong to no object, `[n, pieces, h, w]`;
            `pieces` may be 0.
        kinds: The kind of each of `parts`, `[n, parts]`, ints that index
            `kind_names`, -1 for a part that is not there; `None` if parts are
            of no kind.
        loose_kinds: Those of `loose`, `[n, pieces]`, or `None`.
        centres: Row and column of the centre of each of `parts` in pixels, the
            first of which is at 0, `[n, parts, 2]`, NaN for one that is not
            there; `None` if only the masks tell.
        loose_centres: Those of `loose`, `[n, pieces, 2]`, or `None`.
        kind_names: What the kinds are called.
    """

    parts: Array
    loose: Array
    kinds: Array | None = None
    loose_kinds: Array | None = None
    centres: Array | None = None
    loose_centres: Array | None = None
    kind_names: tuple[str, ...] = ()

    @classmethod
    def of_parts(
        cls,
        parts: Array,
        kinds: Array,
        kind_names: tuple[str, ...],
        centres: Array | None = None,
    ) -> "Masks":
        """Returns the masks of objects beside which nothing is loose."""
        nothing = np.zeros((len(parts), 0, *parts.shape[2:]), bool)
        return cls(
            parts=parts,
            loose=nothing,
            kinds=kinds,
            loose_kinds=np.zeros((len(parts), 0), kinds.dtype),
            centres=centres,
            loose_centres=centres if centres is None else centres[:, :0],
            kind_names=kind_names,
        )

    @property
    def object(self) -> Array:
        """What the label names, `[n, h, w]`."""
        return np.any(self.parts, axis=1)

    def __getitem__(self, rows: Rows) -> "Masks":
        """Returns the masks of some images."""
        known = {
            name: values[rows]
            for name, values in vars(self).items()
            if name != "kind_names" and values is not None
        }
        return dataclasses.replace(self, **known)
