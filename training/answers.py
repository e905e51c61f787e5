"""Answers of a run's network to pictures, and who shares their trees."""

import dataclasses

import keras
import numpy as np

from tfcaps import rem
from tfcaps.graphs import last_routed_layer
from tfcaps.rem.parse.in_tree import codes_in_tree
from training.folder import RunFolder
from training.image_data import Array, Floats
from training.own_pictures import Picture


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a picture is taken for.

    Attributes:
        picture: The picture.
        named: The name of the longest class.
        length: Its length.
        runner_up: The name of the second longest class.
        runner_up_length: Its length.
        same: How many test images share its tree, in words.
    """

    picture: Picture
    named: str
    length: float
    runner_up: str
    runner_up_length: float
    same: str

    @property
    def is_wrong(self) -> bool:
        """Whether it is known to be of another class."""
        return self.picture.truth not in (None, self.named)


class Answerer:
    """Asks the network of a run, whose couplings are rounded.

    Args:
        folder: The run.
        model: Its network.
    """

    def __init__(self, folder: RunFolder, model: keras.Model):
        config = folder.config
        self._config = config
        self._names = folder.class_names()
        self._trees = folder.dictionary()
        self._types = folder.type_dictionary()
        self._network = model
        routing = last_routed_layer(model).routing
        self._threshold = routing.tree_threshold(len(self._names))

    def ask(self, pictures: list[Picture], images: Floats) -> list[Answer]:
        """Returns an answer for each of some images."""
        config = self._config
        trees = rem.trees(
            self._network,
            images,
            config.levels,
            mode=config.mode,
            couplings=False,
        )
        order = np.argsort(-trees.lengths, axis=-1, kind="stable")
        sentences = self._same_trees(trees)
        return [
            Answer(
                picture,
                self._names[best],
                float(lengths[best]),
                self._names[second],
                float(lengths[second]),
                same,
            )
            for picture, lengths, (best, second), same in zip(
                pictures, trees.lengths, order[:, :2], sentences, strict=True
            )
        ]

    def _same_trees(self, trees: rem.Trees) -> list[str]:
        """Tells how many test images have the lines, and the tree, of each."""
        named = trees.predicted
        of_places = [
            f"of {samples:,} test images of this class {lines:,} have lines to "
            f"the same children, {same:,} the very same tree"
            for samples, lines, same in self._counts(
                trees.codes, named, self._trees
            )
        ]
        if self._types is None:
            return of_places
        of_types = self._counts(trees.type_codes, named, self._types)
        return [
            f"{sentence}; wherever they are, {lines:,} have lines to the same "
            f"types of children, {same:,} the very same tree of types"
            for sentence, (_, lines, same) in zip(
                of_places, of_types, strict=True
            )
        ]

    def _counts(
        self, codes: Array, named: Array, known: rem.CouplingDictionary
    ) -> list[tuple[int, int, int]]:
        """Counts for each image the samples of its class in a dictionary.

        Returns all of them, those with the same lines, and those with the same
        key.
        """
        found = []
        for key, j in zip(codes, named.tolist(), strict=True):
            keys = known.keys(j)
            counts = np.asarray(known.counts(j), int)
            same = np.all(keys == key, axis=-1)
            # What a line of the drawings means.
            alike = np.all(self._inside(keys) == self._inside(key), axis=-1)
            samples = int(known.num_samples[j])
            found.append(
                (samples, int(counts[alike].sum()), int(counts[same].sum()))
            )
        return found

    def _inside(self, codes: Array) -> Array:
        """Tells which children are in the trees of keys."""
        inside: Array = keras.ops.convert_to_numpy(
            codes_in_tree(
                codes,
                self._threshold,
                self._config.class_levels,
                mode=self._config.mode,
            )
        )
        return inside
