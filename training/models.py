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
    """A network of the command line.

    Attributes:
        builder: `"module:function"` that builds it from image shape and
            classes, and takes `routing`.
        about: A line about it.
        arguments: Other arguments of the function.
        loss: `"margin"`, `"spread"` or `"evidence"`.
        decoder: Arguments of `tfcaps.models.with_decoder`.
        backbone_builder: `"module:function"` that builds it from a backbone and
            classes, and takes `input_shape` and `routing`; `None` where there
            is none.
        backbone_arguments: Other arguments of that one.
    """

    builder: str
    about: str = ""
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    loss: str = "margin"
    decoder: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    backbone_builder: str | None = None
    backbone_arguments: Mapping[str, Any] = dataclasses.field(
        default_factory=dict
    )

    @property
    def build(self) -> Callable[..., Any]:
        """The function from image shape and classes to the `keras.Model`."""
        return functools.partial(_imported(self.builder), **self.arguments)

    @property
    def on_backbone(self) -> Callable[..., Any] | None:
        """The function from a backbone and classes to the `keras.Model`."""
        if self.backbone_builder is None:
            return None
        build = _imported(self.backbone_builder)
        return functools.partial(build, **self.backbone_arguments)


def _imported(path: str) -> Callable[..., Any]:
    module, _, function = path.partition(":")
    imported: Callable[..., Any] = getattr(
        importlib.import_module(module), function
    )
    return imported


def _parts(name: str, about: str, **arguments: Any) -> Network:
    """Returns a variant of the network of parts, also on a backbone."""
    of_backbone = {"name": f"backbone_{name}"}
    if "share" in arguments:
        of_backbone["share"] = arguments["share"]
    return Network(
        "tfcaps.models:parts_capsnet",
        about,
        {"name": name, **arguments},
        backbone_builder="tfcaps.models:backbone_parts_capsnet",
        backbone_arguments=of_backbone,
    )


MODELS: dict[str, Network] = {
    "dr_capsnet_small": Network(
        "training.networks:dr_capsnet_small",
        "dynamic routing, eight children; for two CPU cores, up to 40x40",
    ),
    "constellation_capsnet": Network(
        "tfcaps.models:constellation_capsnet",
        "parts with names and places; trees can be read, see --part-types",
        loss="evidence",
        backbone_builder="tfcaps.models:backbone_constellation_capsnet",
    ),
    "parts_capsnet": Network(
        "tfcaps.models:parts_capsnet",
        "dynamic routing of parts of the image; small, trees can be seen",
        backbone_builder="tfcaps.models:backbone_parts_capsnet",
    ),
    "parts_capsnet_unshared": _parts(
        "parts_capsnet_unshared",
        "the same with other matrices at each place, for centred images",
        share=None,
    ),
    "parts_capsnet_pictures": _parts(
        "parts_capsnet_pictures",
        "the same as that, deeper, for small pictures",
        filters=(16, 32, 64),
        kernel_size=3,
        share=None,
    ),
    "parts_capsnet_photos": _parts(
        "parts_capsnet_photos",
        "the same as parts_capsnet, deeper, for photos from 64x64",
        **_DEEPER,
    ),
    "parts_capsnet_photos_unshared": _parts(
        "parts_capsnet_photos_unshared",
        "the same with other matrices at each place",
        share=None,
        **_DEEPER,
    ),
    "dr_capsnet": Network(
        "tfcaps.models:dr_capsnet",
        "dynamic routing (Sabour et al., 2017)",
        backbone_builder="tfcaps.models:backbone_capsnet",
    ),
    "dr_capsnet_64": Network(
        "tfcaps.models:dr_capsnet",
        "the same with 64 types of primary capsules, as for CIFAR-10",
        {"primary_types": 64, "name": "dr_capsnet_64"},
    ),
    "dr_capsnet_sharp": Network(
        "tfcaps.models:dr_capsnet",
        "the same as dr_capsnet with couplings that are far from equal",
        {"routing": _sharp("DynamicRouting"), "name": "dr_capsnet_sharp"},
    ),
    "affine_capsnet": Network(
        "tfcaps.models:affine_capsnet",
        "no routing, one transformation per class (Gu, Tresp, 2020)",
    ),
    "multilayer_capsnet": Network(
        "tfcaps.models:multilayer_capsnet",
        "several layers of fully connected capsules",
    ),
    "gamma_capsnet": Network(
        "tfcaps.models:gamma_capsnet",
        "scaled-distance routing in two layers (Peer et al., 2018)",
    ),
    "efficient_capsnet": Network(
        "tfcaps.models:efficient_capsnet",
        "self-attention routing, 161,824 parameters (Mazzia et al., 2021)",
    ),
    "efficient_capsnet_sharp": Network(
        "tfcaps.models:efficient_capsnet",
        "the same with couplings that are far from equal",
        {
            "routing": _sharp("SelfAttentionRouting"),
            "name": "efficient_capsnet_sharp",
        },
    ),
    "efficient_capsnet_smallnorb": Network(
        "tfcaps.models:efficient_capsnet",
        "its variant for smallNORB, from 19x19",
        {"variant": "smallnorb", "name": "efficient_capsnet_smallnorb"},
        decoder={"network": "upsampling"},
    ),
    "efficient_conv_capsnet": Network(
        "tfcaps.models:efficient_conv_capsnet",
        "dynamic routing of convolutional capsules, for photos",
        decoder=_INDEPENDENT,
    ),
    "deepcaps": Network(
        "tfcaps.models:deepcaps",
        "deep, with routing by 3-D convolution (Rajasegaran et al., 2019)",
        decoder=_INDEPENDENT,
    ),
    "deepcaps_rem": Network(
        "tfcaps.models:deepcaps",
        "its variant of the REM paper's code",
        {"variant": "rem", "name": "deepcaps_rem"},
        decoder=_INDEPENDENT,
    ),
    "deepcaps_sharp": Network(
        "tfcaps.models:deepcaps",
        "the same as deepcaps with couplings that are far from equal",
        {"routing": _sharp("DynamicRouting"), "name": "deepcaps_sharp"},
        decoder=_INDEPENDENT,
    ),
    "em_capsnet": Network(
        "tfcaps.models:em_capsnet",
        "matrix capsules with EM routing (Hinton et al., 2018)",
        loss="spread",
    ),
    "em_capsnet_small": Network(
        "tfcaps.models:em_capsnet",
        "the same with fewer types of capsules, for two CPU cores",
        {
            "filters": 32,
            "primary_types": 4,
            "conv_types": (8, 8),
            "name": "em_capsnet_small",
        },
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
