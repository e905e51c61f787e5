"""Builds the network of a run, with its standardisation and decoder."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

import tfcaps
from cli import UserError
from tfcaps import graphs
from training import backbone as backbones
from training.configs import Config
from training.datasets import Data, channel_statistics
from training.models import MODELS, builder, network

Shape = tuple[int, int, int]

# Above it, a window of the whole map has too many weights.
_LARGEST = 40


def build_for(
    data: Data, config: Config, *, decoder: bool | None = None
) -> keras.Model:
    """Returns the network of the settings, not compiled.

    It has a decoder if one is trained with the capsules, or as `decoder` tells.
    """
    mean, std = config.mean, config.std
    if backbones.is_application(config.backbone):
        mean, std = (), ()  # it scales images as it has learnt to
    elif config.measured:
        mean, std = channel_statistics(data.train.images.pixels)
    backbone = None
    if config.backbone is not None:
        backbone = backbones.load(
            config.backbone, config.data_dir, data.image_shape
        )
    return build(
        config.model,
        data.image_shape,
        data.num_classes,
        backbone=backbone,
        decoder=config.decoder == "joint" if decoder is None else decoder,
        mean=mean,
        std=std,
        routing=config.routing,
        part_types=config.part_types,
    )


def build(
    name: str,
    shape: Shape,
    classes: int,
    *,
    backbone: keras.Model | None = None,
    decoder: bool = False,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    routing: str | None = None,
    part_types: int | None = None,
) -> keras.Model:
    """Builds the network called `name`.

    The feature map of a trained `backbone`, which stays as it is, replaces the
    first convolution. With mean and deviation of each channel, or of all, the
    network standardises its images, so that whoever asks it sends raw ones.
    Routing and types of parts are those of the network unless given.
    """
    known = network(name)
    if decoder and known.loss == "plan":
        raise UserError(
            f"{name} is estimated, with no steps of training, and takes no "
            "--decoder."
        )
    given: dict[str, Any] = {}
    if part_types is not None:
        able = [k for k in MODELS if MODELS[k].loss in ("evidence", "plan")]
        if name not in able:
            raise UserError(
                f"--part-types is for {', '.join(able)}; {name} has none."
            )
        given["num_types"] = part_types
    if routing is not None:
        if known.loss in ("evidence", "plan"):
            raise UserError(
                f"{name} routes by the places of parts and takes no --routing."
            )
        given["routing"] = int(routing) if routing.isdigit() else routing
    make = builder(name, on_backbone=backbone is not None)
    try:
        if backbone is not None:
            model = make(backbone, classes, input_shape=shape, **given)
        else:
            model = make(shape, classes, **given)
        if mean:
            model = _standardizing(model, mean, std)
        if decoder:
            model = tfcaps.models.with_decoder(model, **known.decoder)
        return model
    except ValueError as error:
        raise UserError(f"{name} does not fit: {error}") from error


def _standardizing(
    model: keras.Model, mean: Sequence[float], std: Sequence[float]
) -> keras.Model:
    """Returns the model with a layer that standardises the images first."""
    images = next(t for t in model.inputs if t.name == "images")
    channels = images.shape[-1]
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

    return graphs.clone_with_call(model, call)


def dr_capsnet_small(
    shape: Shape,
    classes: int,
    routing: Any = None,
    name: str = "dr_capsnet_small",
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
        name=name,
    )
