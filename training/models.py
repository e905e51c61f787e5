"""Lists the networks that `--model` names; to add one, add its line here.

This file loads nothing, so that a command can say at once what there is. The
networks are those of `tfcaps.models`, some with other arguments.
"""

import dataclasses
import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from cli import UserError
from training.presets import CONSTELLATION, SMALL

_INDEPENDENT = {"network": "deconvolution", "class_independent": True}
_DEEPER = {"filters": (32, 64, 128), "strides": (2, 2, 2), "kernel_size": 3}
_SHARPNESS = 60.0


def _sharp(routing: str) -> dict[str, Any]:
    """Returns a class of `tfcaps.routing` that routes sharply, for `get`.

    Votes are too short for couplings that are far from equal without it.
    """
    return {
        "module": "tfcaps.routing",
        "class_name": routing,
        "config": {"sharpness": _SHARPNESS},
        "registered_name": f"tfcaps>{routing}",
    }


@dataclasses.dataclass(frozen=True)
class Network:
    """A network of the command line, and the line about it.

    Its functions are those of `tfcaps.models`. One builds it from image shape
    and classes, and takes `routing` and `name`; it is called like the network
    unless said. The other, if any, builds it from a backbone and classes, and
    takes `input_shape` and `routing`.
    """

    name: str
    about: str
    function: str | None = None
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    loss: str = "margin"  # or "spread" or "evidence"
    # Arguments of `tfcaps.models.with_decoder`.
    decoder: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    backbone_function: str | None = None

    @property
    def build(self) -> Callable[..., Any]:
        """The function from image shape and classes to the `keras.Model`."""
        build = _imported(self.function or self.name)
        return functools.partial(build, name=self.name, **self.arguments)

    @property
    def on_backbone(self) -> Callable[..., Any] | None:
        """The function from a backbone and classes to the `keras.Model`."""
        function = self.backbone_function
        if function != CONSTELLATION:
            return None if function is None else _imported(function)
        return lambda backbone, classes, input_shape, **more: self.build(
            input_shape, classes, backbone=backbone, **more
        )


def _imported(function: str) -> Callable[..., Any]:
    """Returns a function of `tfcaps.models`, or of `training.networks`."""
    module = "training.networks" if function == SMALL else "tfcaps.models"
    found: Callable[..., Any] = getattr(
        importlib.import_module(module), function
    )
    return found


_NETWORKS = (
    Network(
        SMALL, "dynamic routing, eight children; for two CPU cores, up to 40x40"
    ),
    Network(
        CONSTELLATION,
        "parts with names and places; trees can be read, see --part-types",
        loss="evidence",
        backbone_function=CONSTELLATION,
    ),
    Network(
        "parts_capsnet",
        "dynamic routing of parts of the image; small, trees can be seen",
        backbone_function="backbone_parts_capsnet",
    ),
    Network(
        "parts_capsnet_unshared",
        "the same with other matrices at each place, for centred images",
        "parts_capsnet",
        {"share": None},
    ),
    Network(
        "parts_capsnet_pictures",
        "the same as that, deeper, for small pictures",
        "parts_capsnet",
        {"filters": (16, 32, 64), "kernel_size": 3, "share": None},
    ),
    Network(
        "parts_capsnet_photos",
        "the same as parts_capsnet, deeper, for photos from 64x64",
        "parts_capsnet",
        _DEEPER,
    ),
    Network(
        "parts_capsnet_photos_unshared",
        "the same with other matrices at each place",
        "parts_capsnet",
        {"share": None, **_DEEPER},
    ),
    Network(
        "dr_capsnet",
        "dynamic routing (Sabour et al., 2017)",
        backbone_function="backbone_capsnet",
    ),
    Network(
        "dr_capsnet_64",
        "the same with 64 types of primary capsules, as for CIFAR-10",
        "dr_capsnet",
        {"primary_types": 64},
    ),
    Network(
        "dr_capsnet_sharp",
        "the same as dr_capsnet with couplings that are far from equal",
        "dr_capsnet",
        {"routing": _sharp("DynamicRouting")},
    ),
    Network(
        "affine_capsnet",
        "no routing, one transformation per class (Gu, Tresp, 2020)",
    ),
    Network("multilayer_capsnet", "several layers of fully connected capsules"),
    Network(
        "gamma_capsnet",
        "scaled-distance routing in two layers (Peer et al., 2018)",
    ),
    Network(
        "efficient_capsnet",
        "self-attention routing, 161,824 parameters (Mazzia et al., 2021)",
    ),
    Network(
        "efficient_capsnet_sharp",
        "the same with couplings that are far from equal",
        "efficient_capsnet",
        {"routing": _sharp("SelfAttentionRouting")},
    ),
    Network(
        "efficient_capsnet_smallnorb",
        "its variant for smallNORB, from 19x19",
        "efficient_capsnet",
        {"variant": "smallnorb"},
        decoder={"network": "upsampling"},
    ),
    Network(
        "efficient_conv_capsnet",
        "dynamic routing of convolutional capsules, for photos",
        decoder=_INDEPENDENT,
    ),
    Network(
        "deepcaps",
        "deep, with routing by 3-D convolution (Rajasegaran et al., 2019)",
        decoder=_INDEPENDENT,
    ),
    Network(
        "deepcaps_rem",
        "its variant of the REM paper's code",
        "deepcaps",
        {"variant": "rem"},
        decoder=_INDEPENDENT,
    ),
    Network(
        "deepcaps_sharp",
        "the same as deepcaps with couplings that are far from equal",
        "deepcaps",
        {"routing": _sharp("DynamicRouting")},
        decoder=_INDEPENDENT,
    ),
    Network(
        "em_capsnet",
        "matrix capsules with EM routing (Hinton et al., 2018)",
        loss="spread",
    ),
    Network(
        "em_capsnet_small",
        "the same with fewer types of capsules, for two CPU cores",
        "em_capsnet",
        {"filters": 32, "primary_types": 4, "conv_types": (8, 8)},
        loss="spread",
    ),
)
MODELS = {known.name: known for known in _NETWORKS}


def network(name: str) -> Network:
    """Returns the network called `name`."""
    if name not in MODELS:
        raise UserError(
            f"unknown model {name!r}; the models are {', '.join(MODELS)}."
        )
    return MODELS[name]
