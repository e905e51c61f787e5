"""Why a network gives its answers: numbers, and pictures of them."""

import dataclasses
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from numpy.typing import ArrayLike

from tfcaps.graphs import classifier, last_routed_layer
from tfcaps.labels import check_one_each
from tfcaps.ops import Array
from tfcaps.rem.evaluation.faithfulness import tree_lengths
from tfcaps.rem.maps import blueprints, part_pictures
from tfcaps.rem.parse.receptive_fields import ReceptiveFields, receptive_fields
from tfcaps.rem.parse.records import tree_records
from tfcaps.rem.parse.trees import Trees
from tfcaps.rem.parse.trees import trees as trees_of


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """Why `n` images are named as they are; printed, a paragraph for each.

    Attributes:
        images: The images, `[n, h, w, c]`.
        trees: Their trees.
        lengths: Lengths of the classes, `[n, 3, j]`: as they are, without the
            tree, and with the tree alone.
        records: Class, margin, leaves with places and boxes, and blueprint of
            each image as plain data, see `tree_records`.
        fields, blueprints, parts: What `receptive_fields`, `blueprints` and
            `part_pictures` return; the last two may be `None`.
        class_names, type_names, labels: What `explain` was given.
    """

    images: Array
    trees: Trees
    lengths: Array
    records: list[dict[str, Any]]
    fields: ReceptiveFields
    blueprints: Array | None = None
    parts: Array | None = None
    class_names: Sequence[str] | None = None
    type_names: Sequence[str] | None = None
    labels: Sequence[int | None] | None = None

    @property
    def aspects(self) -> list[float]:
        """Height of the pixels of each image by their width, in its file."""
        rows, columns = self.images.shape[1:3]
        return [
            record["height"] / rows * columns / record["width"]
            for record in self.records
        ]

    def draw(self, names: Sequence[str] | None = None) -> list[Any]:
        """Returns a `tfcaps.viz.Drawing` of each image, see `viz.named_tree`.

        Raises:
            ImportError: Without matplotlib.
            ValueError: If it is not known where the children are.
        """
        # `viz` draws what `rem` measures, and is loaded where it is wanted.
        viz: Any = importlib.import_module("tfcaps.viz")
        every = names or ["this image"] * len(self.trees)
        return [viz.named_tree(self, k, name) for k, name in enumerate(every)]

    def show(self) -> None:
        """Shows the drawings: in a notebook, or else in windows."""
        for drawing in self.draw():
            drawing.show()

    def save(self, path: str | Path) -> list[Path]:
        """Writes the drawings, several as `name-1.png`, and so on."""
        stem = Path(path).with_name(Path(path).name.removesuffix(".png"))
        drawings = self.draw()
        several = len(drawings) > 1
        return [
            drawing.save(stem.with_name(f"{stem.name}{f'-{k}' * several}"))
            for k, drawing in enumerate(drawings, start=1)
        ]

    def __repr__(self) -> str:
        return "\n".join(
            self._paragraph(k, record) for k, record in enumerate(self.records)
        )

    def _paragraph(self, k: int, record: dict[str, Any]) -> str:
        told = f"image {k}: class {record['class']}"
        told += f", length {record['length']:.2f}"
        if self.labels is not None and self.labels[k] is not None:
            is_right = self.labels[k] == self.trees.predicted[k]
            told += " (right)" if is_right else " (WRONG)"
        leaves = []
        for leaf in record["leaves"]:
            text = leaf["name"]
            if leaf["place"]:
                text += " at x {:.1f}, y {:.1f}".format(*leaf["place"])
            if "evidence" in leaf:
                text += f" says {record['class']} by {leaf['evidence']:.1f}"
            leaves.append(text)
        if leaves:
            told += f"; {len(leaves)} in its tree: {', '.join(leaves)}"
        predicted = self.trees.predicted[k]
        without, alone = self.lengths[k, 1:, predicted]
        return (
            f"{told}. Without its tree the length is {without:.2f}, with the "
            f"tree alone {alone:.2f}."
        )


def explain(
    model: keras.Model,
    images: ArrayLike,
    *,
    trees: Trees | None = None,
    parts: ArrayLike | None = None,
    labels: Sequence[int | None] | None = None,
    class_names: Sequence[str] | None = None,
    type_names: Sequence[str] | None = None,
    sizes: ArrayLike | None = None,
) -> Explanation:
    """Explains why a network gives its answers.

        explained = tfcaps.rem.explain(model, images[:2])
        print(explained)  # classes, named parts and places
        explained.show()

    Args:
        model: As in `tfcaps.rem.trees`, from images `[n, h, w, c]`.
        images: Some images, `[n, h, w, c]`.
        trees: What `tfcaps.rem.trees` returns for them, if that is known.
            Defaults to `None`.
        parts: What the types lie on, see `part_pictures`. Defaults to `None`:
            in these images.
        labels: The class of each image, or `None` where it is unknown. Defaults
            to `None`, all unknown.
        class_names: Names of the classes. Defaults to their numbers.
        type_names: Names of the types. Defaults to "type 3".
        sizes: Rows and columns of the file of each image, `[n, 2]`, as in
            `tree_records`. Defaults to those of the images.

    Raises:
        ValueError: If there is not one tree or label for each image, or as in
            `trees`.

    Example:

    >>> import numpy as np
    >>> from tfcaps.models import constellation_capsnet
    >>> model = constellation_capsnet((20, 20, 1), 10, num_types=5)
    >>> explain(model, np.zeros((2, 20, 20, 1), "float32")).lengths.shape
    (2, 3, 10)
    """
    images = np.asarray(images)
    model = classifier(model)
    if trees is None:
        trees = trees_of(model, images, couplings=False)
    images = trees.match(images)
    if labels is not None:
        check_one_each(len(images), len(labels))
    shifts, fields = blueprints(model), receptive_fields(model)
    names: Any = {"class_names": class_names, "type_names": type_names}
    records = tree_records(
        trees, fields, blueprints=shifts, sizes=sizes, **names
    )
    layer = last_routed_layer(model)
    if hasattr(layer, "stated"):  # the evidence of a sum over leaves
        says = layer.stated(trees.towards)
        for k, record in enumerate(records):
            for leaf in record["leaves"]:
                leaf["evidence"] = round(float(says[k, leaf["child"]]), 2)
    if parts is None and trees.has_places and trees.in_tree.any():
        parts = part_pictures(images, trees)
    return Explanation(
        images,
        trees,
        tree_lengths(model, images, trees),
        records,
        fields,
        shifts,
        None if parts is None else np.asarray(parts),
        labels=None if labels is None else [*labels],
        **names,
    )
