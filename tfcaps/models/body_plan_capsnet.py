"""A network of parts that all classes share, each seen in its window alone."""

from typing import Any

import keras

from tfcaps.layers import PartCaps
from tfcaps.models.building_blocks import capsule_network
from tfcaps.models.windows import windows_of
from tfcaps.parts.body_plan import UNITS
from tfcaps.parts.body_plan_caps import (
    BodyPlanCaps,
    PartVotes,
    PlaceFeatures,
)
from tfcaps.parts.body_plan_model import BodyPlanModel

# Within so many places on each side there is one part of a type.
_NEAR = 2


def body_plan_capsnet(
    input_shape: tuple[int, int, int],
    num_classes: int,
    backbone: keras.Model,
    part_types: int = 8,
    *,
    window: float = 0.3,
    plans: int = 3,
    routing: Any = None,
    name: str = "body_plan_capsnet",
) -> keras.Model:
    """Builds a network of shared parts in a body plan, for photos.

    A frozen backbone sees windows of the image one by one, so that a part knows
    what its window shows and nothing else. `PartCaps` tell types of parts that
    all classes share, such as a head; `BodyPlanCaps` add up what each part says
    for each class, and find the object's frame: place, size and mirror.

    `model.fit(images, labels)` estimates all of it with class labels alone, see
    `tfcaps.parts.BodyPlanModel`, in the time of about ten passes of the
    backbone. An untrained network tells nothing.

    Args:
        input_shape: Rows, columns and channels of an image.
        num_classes: Int. Number of classes.
        backbone: Trained model from images `[b, h, w, c]` to a feature map, any
            of `keras.applications` with `include_top=False`, which keeps
            places. Images of another size than its own are resized. It is
            frozen, and copied for windows.
        part_types: Int. Types of parts. Defaults to `8`.
        window: Float. Side of a window as a share of an image's side, rounded
            to whole steps of the backbone's map. Defaults to `0.3`.
        plans: Int. Most body plans there may be, of which `fit` chooses as many
            as held-out images want. Defaults to `3`.
        routing: A `MeanShiftRouting`, or `None`, see `BodyPlanCaps`. Defaults
            to `None`.
        name: String. Name of the model. Defaults to `"body_plan_capsnet"`.

    Returns:
        A `tfcaps.parts.BodyPlanModel` from images (input `images`), in the
        backbone's scale, to float32 class lengths `[b, num_classes]` (output
        `lengths`), which are probabilities.

    Raises:
        ValueError: If an argument is out of range, or the backbone's map has no
            whole steps.

    Example:

    >>> conv = keras.layers.Conv2D(32, 8, 8)  # stands for a trained model
    >>> backbone = keras.Sequential([keras.Input((80, 80, 3)), conv])
    >>> model = body_plan_capsnet((80, 80, 3), 10, backbone)
    >>> model.get_layer("part_caps").output[1].shape
    (None, 10, 10, 8)
    """
    if not 0 < window < 1:
        raise ValueError(
            f"`window` must be in (0, 1). Received: window={window}."
        )
    images = keras.Input(input_shape, name="images")
    layer = windows_of(backbone, window, input_shape)
    features = layer(images)
    seen = PlaceFeatures(UNITS, layer.fine, layer.ratio, name="place_features")
    hidden = seen(features)
    steps = {
        side / count
        for side, count in zip(input_shape, hidden.shape[1:3], strict=False)
    }
    stride = steps.pop()
    if steps:
        raise ValueError(
            "Images must have the shape of the backbone's, or a multiple. "
            f"Received: images of {input_shape} and places of "
            f"{tuple(hidden.shape[1:3])}."
        )
    places, active, presence = PartCaps(
        part_types,
        2 * _NEAR + 1,
        stride=stride,
        offset=(stride / 2 - 0.5,) * 2,
        per_type=True,
        data_format="channels_last",
        name="part_caps",
    )(hidden, return_presence=True)
    votes = PartVotes(num_classes, name="part_votes")
    poses = votes(places, presence, features)
    classes = BodyPlanCaps(num_classes, routing, plans, name="class_caps")(
        poses, active, return_activations=True
    )
    model = capsule_network(images, classes, [], name, False)
    return BodyPlanModel(model.input, model.output, name=name)
