"""A network of parts that all classes share, each seen in its window alone."""

import keras

from tfcaps.models.windows import windows_of
from tfcaps.ops import check_that
from tfcaps.parts.body_plan import UNITS
from tfcaps.parts.body_plan_caps import BodyPlanCaps, WindowParts
from tfcaps.parts.body_plan_model import BodyPlanModel


def body_plan_capsnet(
    input_shape: tuple[int, int, int],
    num_classes: int,
    backbone: keras.Model,
    num_types: int = 8,
    *,
    window: float = 0.3,
    plans: int = 3,
    name: str = "body_plan_capsnet",
) -> keras.Model:
    """Builds a network of shared parts in a body plan, for photos.

    A frozen backbone sees windows of the image one by one, so that a part knows
    what its window shows and nothing else. `WindowParts` tell types of parts
    that all classes share, such as a head, and what each says for each class;
    `BodyPlanCaps` add that up, and find the object's frame: place, size and
    mirror.

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
        num_types: Int. Types of parts. Defaults to `8`.
        window: Float. Side of a window as a share of an image's side, rounded
            to whole steps of the backbone's map. Defaults to `0.3`.
        plans: Int. Most body plans there may be, of which `fit` chooses as many
            as held-out images want. Defaults to `3`.
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
    check_that(0 < window < 1, "be in (0, 1)", window=window)
    images = keras.Input(input_shape, name="images")
    layer = windows_of(backbone, window, input_shape)
    features = layer(images)
    steps = {
        side / (count * layer.ratio)
        for side, count in zip(input_shape, layer.grid, strict=False)
    }
    stride = steps.pop()
    if steps:
        raise ValueError(
            "Images must have the shape of the backbone's, or a multiple. "
            f"Received: images of {input_shape} and windows at {layer.grid}."
        )
    poses, active = WindowParts(
        num_types,
        num_classes,
        layer.fine,
        layer.ratio,
        layer.margin,
        UNITS,
        stride,
        name="part_caps",
    )(features)
    _, lengths = BodyPlanCaps(num_classes, plans=plans, name="class_caps")(
        poses, active, return_activations=True
    )
    lengths = keras.layers.Identity(dtype="float32", name="lengths")(lengths)
    return BodyPlanModel(images, lengths, name=name)
