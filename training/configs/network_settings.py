"""Settings of a run: its network."""

import argparse
import dataclasses
import re
from pathlib import Path

from training.configs.setting import setting

NETWORK = "network"

# A routing called `name` is the class in `tfcaps/routing/name.py`.
_ROUTINGS = Path(__file__).parents[2] / "tfcaps" / "routing"
_ROUTING = re.compile(r"^class \w+Routing\(", re.MULTILINE)


def names_of_routings() -> list[str]:
    """Returns the names that `tfcaps.routing.get` takes, without loading it."""
    return sorted(
        path.stem
        for path in _ROUTINGS.glob("*.py")
        if _ROUTING.search(path.read_text("utf-8"))
    )


def _routing(text: str) -> str:
    """Reads the name of a routing, or a number of iterations."""
    known = names_of_routings()
    if text in known or (text.isdigit() and int(text) > 0):
        return text
    raise argparse.ArgumentTypeError(
        f"{text!r} is neither a number of iterations nor one of "
        f"{', '.join(known)}"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """Which network is trained, and what stands beside it."""

    model: str = setting(
        "dr_capsnet_small",
        "one of --list-models",
        group=NETWORK,
        metavar="NAME",
    )
    backbone: str | None = setting(
        None,
        "a network of keras.applications, such as MobileNetV3Small, or a "
        ".keras file without its top (in --data-dir or a path), on whose "
        "feature map --model parts_capsnet, one of its kind, or dr_capsnet "
        "then stands",
        group=NETWORK,
        metavar="NAME",
    )
    fine_tune_epochs: int = setting(
        0,
        "further epochs in which the backbone is trained too, at a tenth of "
        "the learning rate",
        low=0,
        group=NETWORK,
        flag="fine-tune",
        metavar="EPOCHS",
    )
    routing: str | None = setting(
        None,
        "a routing such as dynamic or em, or a number of iterations of "
        "dynamic routing (default: the model's own)",
        group=NETWORK,
        read=_routing,
        metavar="NAME",
    )
    part_types: int | None = setting(
        None,
        "most types of parts that constellation_capsnet looks for (default: "
        "the model's own)",
        low=1,
        group=NETWORK,
        metavar="N",
    )
    width_start: float | None = setting(
        6.0,
        "pixels by which votes of a constellation_capsnet may differ in the "
        "first epoch; null for as many as in the last one",
        low=0.1,
    )
    dense_head: bool = setting(
        False,
        "train the network with a dense layer in the place of its capsules "
        "too, to compare with (default: for folders of pictures)",
        group=NETWORK,
        both_ways=True,
    )
    dense_head_on: str = setting(
        "features",
        "what stands below the dense layer: the features below the primary "
        "capsules, or the convolution of these too",
        choices=("features", "primary"),
        group=NETWORK,
    )
    decoder: str = setting(
        "none",
        "reconstruct images too: trained with the capsules, or afterwards",
        choices=("none", "joint", "frozen"),
        group=NETWORK,
    )
    reconstruction_weight: float = setting(
        5e-4, "weight of the squared error of one pixel", low=0.0
    )
