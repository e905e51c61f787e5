"""Measures whether a network uses its parse trees."""

from typing import Any

import keras
import numpy as np

from tfcaps.rem.evaluation import faithfulness_measures as measures
from tfcaps.rem.evaluation.faithfulness_report import Faithfulness
from tfcaps.rem.evaluation.faithfulness_study import Study, effect_rows
from tfcaps.rem.evaluation.silencing import Silencer

# Capsules below this length for every image are silent.
_SILENT = 0.01

# Single effects and orders are measured on so many images that the routed
# layers see about so many rows, which grow with the children.
_EFFECT_ROWS = 4000
_EFFECT_SAMPLES = (8, 64)


def faithfulness(
    model: keras.Model,
    dataset: Any,
    *,
    layer: str | None = None,
    samples: int = 2000,
    draws: int = 5,
    random_samples: int = 400,
    effect_samples: int | None = None,
    stability_samples: int = 256,
    seed: int = 0,
    batch_size: int = 256,
    verbose: int = 0,
) -> Faithfulness:
    """Measures whether a network uses its parse trees.

    The tree of an image has the children whose coupling with the predicted
    class exceeds the uniform one, 1/J, or its rounded value if the model's
    routing has levels. Couplings are those of the model as it is. With `layer`,
    the tree continues downwards: a child belongs to it if its coupling with
    some capsule of the tree exceeds that value.

    Silenced children get pose and activation 0 (`"zero"`), or their means over
    the images (`"mean"`), and the routed layers above run again. Deletion,
    insertion and single effects are those of `"zero"`. In an image whose tree
    is empty there is nothing to silence: its class is not lost.

    The network below the children runs once for each image, and once for each
    of the four shifts of the `stability_samples`. The routed layers above run

        1 + 4 + [6 draws + 3] random_samples / n
          + [i + 6 (steps - 1) + 1] effect_samples / n
          + 4 stability_samples / n

    times for each of n images: 13.7 times for 2,000 images and 8 children, 16.6
    times for 1,024 children.
    Silencing all children in an order takes `i` steps, or 16 if there are more
    children. The images stay in memory, and so do the inputs of the routed
    layers, `4 * i * k` bytes for each image.

    Args:
        model: A functional or sequential model with a routed layer, from images
            to class lengths or poses. Decoders and inputs `labels` do not
            matter.
        dataset: As in `evaluate`; labels are not looked at.
        layer: Name of the `ClassCaps` whose children are silenced, if not the
            last one. Its capsules must be the children of the next `ClassCaps`,
            and so on up to the last routed layer. Defaults to `None`, the last
            routed layer.
        samples: Int. Measure at most this many images, the first ones, so
            shuffle data that are sorted by class. Defaults to `2000`.
        draws: Int. How many sets of random children, and of active ones, are
            drawn for each image. Defaults to `5`.
        random_samples: Int. Random and active children are silenced, and
            weights drawn anew, for at most this many images, evenly spaced.
            Defaults to `400`.
        effect_samples: Int. The same for single effects and orders of children.
            Defaults to 64, or to fewer, at least 8, where there are many
            children.
        stability_samples: Int. The same for shifted images, whose border pixels
            are repeated. Defaults to `256`.
        seed: Int. Seed of all that is random. Defaults to `0`.
        batch_size: Int. Size of the batches cut from arrays. Defaults to `256`.
        verbose: 0 or 1. Show progress bars. Defaults to `0`.

    Returns:
        A `Faithfulness`, which prints as a table and saves as JSON.

    Raises:
        ValueError: If the model has no routed layer or makes no class capsules,
            `layer` is none of its layers, the data set is empty, or a number is
            below 1.

    References:
        - DeYoung et al., 2020, https://arxiv.org/abs/1911.03429 (sufficiency,
          and necessity as comprehensiveness)
        - Petsiuk, Das, Saenko, 2018, https://arxiv.org/abs/1806.07421
          (deletion, insertion)
        - Adebayo et al., 2018, https://arxiv.org/abs/1810.03292
          (randomisation)
        - Mitterreiter, Koch, Giesen, Laue, 2023,
          https://arxiv.org/abs/2301.01583 (silent capsules)
    """
    numbers = {
        "samples": samples,
        "draws": draws,
        "random_samples": random_samples,
        "stability_samples": stability_samples,
    }
    if effect_samples is not None:
        numbers["effect_samples"] = effect_samples
    for name, number in numbers.items():
        if number < 1:
            raise ValueError(
                f"`{name}` must be at least 1. Received: {name}={number}."
            )
    silencer = Silencer(model, layer, batch_size=batch_size)
    study = Study(silencer, dataset, samples, batch_size, seed, verbose)
    some = measures.evenly(study.count, random_samples)
    if effect_samples is None:
        effect_samples = _effect_samples(silencer.num_children)
    few = measures.evenly(study.count, effect_samples)
    shifted = measures.evenly(study.count, stability_samples)
    study.plan(draws, len(some), len(few), len(shifted))
    found = {
        **study.whole_trees(),
        **study.random_children(some, draws),
        **study.active_children(some, draws),
        **study.orders(few),
        "stability": study.stability(shifted),
        "randomisation": study.randomisation(some, draws),
    }
    return Faithfulness(
        **found,
        size=float(np.mean(study.trees)),
        empty_trees=float(np.mean(~np.any(study.trees, axis=-1))),
        class_share=measures.class_share(study.towards, study.classes),
        silent_capsules={
            layer.name: float(np.mean(study.active[layer.name] < _SILENT))
            for layer in silencer.model.layers
            if layer.name in study.active
        },
        samples=study.count,
        layer=silencer.layer.name,
        cost=silencer.votes / study.count,
    )


def _effect_samples(children: int) -> int:
    """Returns how many images have about `_EFFECT_ROWS` rows."""
    least, most = _EFFECT_SAMPLES
    return max(least, min(most, _EFFECT_ROWS // effect_rows(children)))
