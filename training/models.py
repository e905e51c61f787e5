"""The networks that `--model` names, and how each is trained."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import keras
import numpy as np

import tfcaps
from tfcaps import graphs
from tfcaps.cli import UserError

Shape = tuple[int, int, int]

# Above it, a window of the whole map has too many weights.
_LARGEST = 40


@dataclasses.dataclass(frozen=True)
class Network:
    """A network of the command line.

    Attributes:
        build: Function from image shape and classes to the model; takes
            `routing`.
        about: A line about it.
        loss: `"margin"` or `"spread"`.
        decoder: Arguments of `tfcaps.models.with_decoder`.
        on_backbone: Function from a backbone and classes to the model; takes
            `input_shape` and `routing`. `None` where there is none.
    """

    build: Callable[..., keras.Model]
    about: str = ""
    loss: str = "margin"
    decoder: dict[str, Any] = dataclasses.field(default_factory=dict)
    on_backbone: Callable[..., keras.Model] | None = None


def _dr_capsnet_small(
    shape: Shape, classes: int, routing: Any = None
) -> keras.Model:
    """DR-CapsNet for two cores, with few children and long votes.

    Votes must be long to disagree: logits are votes times poses, which are
    shorter than 1. The more children share the work of making a class capsule
    long, the shorter their votes, and the nearer all couplings to uniform. So
    the window of PrimaryCaps is the whole map, which leaves one position with
    eight capsules, and routing takes more iterations.
    """
    rows, columns, _ = shape
    kernel_size = 3 if min(rows, columns) < 16 else 9
    if not kernel_size <= min(rows, columns) <= max(rows, columns) <= _LARGEST:
        raise ValueError(
            f"sides must be from 3 to {_LARGEST} pixels. Received: {rows} rows "
            f"and {columns} columns. Resize the images."
        )
    if routing is None:
        routing = tfcaps.routing.DynamicRouting(iterations=12)
    return tfcaps.models.dr_capsnet(
        shape,
        classes,
        filters=64,
        kernel_size=kernel_size,
        primary_types=8,
        primary_kernel_size=(rows - kernel_size + 1, columns - kernel_size + 1),
        primary_strides=1,
        class_dim=8,
        routing=routing,
        use_bias=False,
        name="dr_capsnet_small",
    )


def _variant(build: Callable[..., keras.Model], variant: str) -> Any:
    """Returns the builder of a variant, which names its model after it."""
    name = f"{build.__name__}_{variant}"
    return partial(build, variant=variant, name=name)


_parts_of_photos = partial(
    tfcaps.models.parts_capsnet,
    filters=(32, 64, 128),
    strides=(2, 2, 2),
    kernel_size=3,
)
_INDEPENDENT = {"network": "deconvolution", "class_independent": True}

MODELS: dict[str, Network] = {
    "dr_capsnet_small": Network(
        _dr_capsnet_small,
        "dynamic routing, eight children; for two CPU cores, up to 40x40",
    ),
    "parts_capsnet": Network(
        tfcaps.models.parts_capsnet,
        "dynamic routing of parts of the image; small, trees can be seen",
        on_backbone=tfcaps.models.backbone_parts_capsnet,
    ),
    "parts_capsnet_unshared": Network(
        partial(
            tfcaps.models.parts_capsnet,
            share=None,
            name="parts_capsnet_unshared",
        ),
        "the same with other matrices at each place, for centred images",
        on_backbone=partial(
            tfcaps.models.backbone_parts_capsnet,
            share=None,
            name="backbone_parts_capsnet_unshared",
        ),
    ),
    "parts_capsnet_pictures": Network(
        partial(
            tfcaps.models.parts_capsnet,
            filters=(16, 32, 64),
            kernel_size=3,
            share=None,
            name="parts_capsnet_pictures",
        ),
        "the same as that, deeper, for small pictures",
        on_backbone=partial(
            tfcaps.models.backbone_parts_capsnet,
            share=None,
            name="backbone_parts_capsnet_pictures",
        ),
    ),
    "parts_capsnet_photos": Network(
        partial(_parts_of_photos, name="parts_capsnet_photos"),
        "the same as parts_capsnet, deeper, for photos from 64x64",
        on_backbone=partial(
            tfcaps.models.backbone_parts_capsnet,
            name="backbone_parts_capsnet_photos",
        ),
    ),
    "parts_capsnet_photos_unshared": Network(
        partial(
            _parts_of_photos,
            share=None,
            name="parts_capsnet_photos_unshared",
        ),
        "the same with other matrices at each place",
        on_backbone=partial(
            tfcaps.models.backbone_parts_capsnet,
            share=None,
            name="backbone_parts_capsnet_photos_unshared",
        ),
    ),
    "dr_capsnet": Network(
        tfcaps.models.dr_capsnet,
        "dynamic routing (Sabour et al., 2017)",
        on_backbone=tfcaps.models.backbone_capsnet,
    ),
    "dr_capsnet_64": Network(
        partial(
            tfcaps.models.dr_capsnet, primary_types=64, name="dr_capsnet_64"
        ),
        "the same with 64 types of primary capsules, as for CIFAR-10",
    ),
    "affine_capsnet": Network(
        tfcaps.models.affine_capsnet,
        "no routing, one transformation per class (Gu, Tresp, 2020)",
    ),
    "multilayer_capsnet": Network(
        tfcaps.models.multilayer_capsnet,
        "several layers of fully connected capsules",
    ),
    "gamma_capsnet": Network(
        tfcaps.models.gamma_capsnet,
        "scaled-distance routing in two layers (Peer et al., 2018)",
    ),
    "efficient_capsnet": Network(
        tfcaps.models.efficient_capsnet,
        "self-attention routing, 161,824 parameters (Mazzia et al., 2021)",
    ),
    "efficient_capsnet_smallnorb": Network(
        _variant(tfcaps.models.efficient_capsnet, "smallnorb"),
        "its variant for smallNORB, from 19x19",
        decoder={"network": "upsampling"},
    ),
    "efficient_capsnet_multimnist": Network(
        _variant(tfcaps.models.efficient_capsnet, "multimnist"),
        "its variant for MultiMNIST, from 29x29",
    ),
    "efficient_conv_capsnet": Network(
        tfcaps.models.efficient_conv_capsnet,
        "dynamic routing of convolutional capsules, for photos",
        decoder=_INDEPENDENT,
    ),
    "deepcaps": Network(
        tfcaps.models.deepcaps,
        "deep, with routing by 3-D convolution (Rajasegaran et al., 2019)",
        decoder=_INDEPENDENT,
    ),
    "deepcaps_rem": Network(
        _variant(tfcaps.models.deepcaps, "rem"),
        "its variant of the REM paper's code",
        decoder=_INDEPENDENT,
    ),
    "em_capsnet": Network(
        tfcaps.models.em_capsnet,
        "matrix capsules with EM routing (Hinton et al., 2018)",
        loss="spread",
    ),
}


def network(name: str) -> Network:
    """Returns the network called `name`.

    Raises:
        UserError: If there is none.
    """
    if name not in MODELS:
        raise UserError(
            f"unknown model {name!r}; the models are {', '.join(MODELS)}."
        )
    return MODELS[name]


def build(
    name: str,
    shape: Shape,
    classes: int,
    *,
    routing: str | None = None,
    backbone: keras.Model | None = None,
    decoder: bool = False,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
) -> keras.Model:
    """Builds the network called `name`.

    Args:
        name: A name in `MODELS`.
        shape: Rows, columns and channels of an image.
        classes: Int. Number of classes.
        routing: Name of a routing, or a number of iterations of dynamic
            routing. Defaults to the network's own.
        backbone: Trained network whose feature map takes the place of the first
            convolution, frozen. Defaults to none.
        decoder: Bool. Add the network's decoder. Defaults to `False`.
        mean: Mean of each channel, or of all; with it the network standardises
            its images, so that whoever asks it sends raw ones. Defaults to no
            standardisation.
        std: Standard deviation of each channel, or of all.

    Raises:
        UserError: If a name is unknown or the images do not fit.
    """
    chosen = network(name)
    settings: dict[str, Any] = {}
    if routing is not None:
        settings["routing"] = int(routing) if routing.isdigit() else routing
    try:
        if backbone is None:
            model = chosen.build(shape, classes, **settings)
        elif chosen.on_backbone is None:
            able = [key for key, known in MODELS.items() if known.on_backbone]
            raise UserError(
                f"{name} does not stand on a backbone; {', '.join(able)} do."
            )
        else:
            model = chosen.on_backbone(
                backbone, classes, input_shape=shape, **settings
            )
        if mean:
            model = _standardizing(model, mean, std)
        return with_decoder(name, model) if decoder else model
    except ValueError as error:
        raise UserError(f"{name} does not fit: {error}") from error


def _standardizing(
    model: keras.Model, mean: Sequence[float], std: Sequence[float]
) -> keras.Model:
    """Returns the model with a layer that standardises the images first."""
    images = next(t for t in model.inputs if t.name == "images")
    channels = images.shape[-1]
    if len({len(mean), len(std)} - {1, channels}) or min(std) <= 0:
        raise ValueError(
            f"standardisation needs a mean and a positive deviation for each "
            f"of {channels} channels, or one for all. Received: mean={mean}, "
            f"std={std}."
        )
    scale = np.broadcast_to(1.0 / np.asarray(std), channels)
    offset = -np.broadcast_to(mean, channels) * scale
    standardized = keras.layers.Rescaling(
        scale.tolist(), offset.tolist(), name="standardize"
    )(images)

    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        args = keras.tree.map_structure(
            lambda tensor: standardized if tensor is images else tensor, args
        )
        return layer(*args, **kwargs)

    return graphs.same_layers(model, call)


def with_decoder(
    name: str, model: keras.Model, *, frozen: bool = False
) -> keras.Model:
    """Adds the decoder of the network called `name` to a model of it.

    Raises:
        ValueError: If the decoder does not fit the images.
    """
    arguments = network(name).decoder
    return tfcaps.models.with_decoder(model, frozen=frozen, **arguments)
