"""The networks that `--model` names, from `models.toml`.

This file loads nothing, so that a command can say at once what there is.
"""

import dataclasses
import functools
import importlib
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cli import UserError

_SHARPNESS = 60.0


@dataclasses.dataclass(frozen=True)
class Network:
    """A network of the command line; `models.toml` says what each means."""

    about: str
    function: str
    arguments: Mapping[str, Any]
    loss: str = "margin"
    decoder: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    backbone_function: str | None = None


def _network(name: str, entry: dict[str, Any]) -> Network:
    """Returns what an entry of the file describes."""
    arguments = {
        key: tuple(v) if isinstance(v, list) else None if v == "none" else v
        for key, v in entry.pop("arguments", {}).items()
    }
    if (routing := entry.pop("sharp_routing", None)) is not None:
        arguments["routing"] = {
            "module": "tfcaps.routing",
            "class_name": routing,
            "config": {"sharpness": _SHARPNESS},
            "registered_name": f"tfcaps>{routing}",
        }
    return Network(**{"function": name, "arguments": arguments, **entry})


_FILE = Path(__file__).with_suffix(".toml").read_text("utf-8")
MODELS = {name: _network(name, e) for name, e in tomllib.loads(_FILE).items()}


def network(name: str) -> Network:
    """Returns the network called `name`."""
    if name not in MODELS:
        raise UserError(
            f"unknown model {name!r}; the models are {', '.join(MODELS)}."
        )
    return MODELS[name]


def builder(name: str, *, on_backbone: bool = False) -> Callable[..., Any]:
    """Returns the function that builds the network called `name`.

    It takes image shape and classes, or a backbone and classes.
    """
    known = network(name)
    if not on_backbone:
        build = _imported(known.function)
        return functools.partial(build, name=name, **known.arguments)
    if known.backbone_function is None:
        able = [key for key in MODELS if MODELS[key].backbone_function]
        raise UserError(
            f"{name} does not stand on a backbone; {', '.join(able)} do."
        )
    build = _imported(known.backbone_function)
    if known.backbone_function != known.function:
        return build
    return lambda backbone, classes, input_shape, **more: build(
        input_shape, classes, backbone=backbone, **more
    )


def _imported(function: str) -> Callable[..., Any]:
    """Returns a function of `tfcaps.models`, or of `training/networks.py`."""
    of_training = function == "dr_capsnet_small"
    module = "training.networks" if of_training else "tfcaps.models"
    build: Callable[..., Any] = getattr(
        importlib.import_module(module), function
    )
    return build
