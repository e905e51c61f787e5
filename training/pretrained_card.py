"""Cards of the networks that come with the package, as Markdown."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from cli import UserError
from markdown_table import markdown


@dataclasses.dataclass(frozen=True)
class About:
    """What a card says of a network besides its numbers.

    Attributes:
        title: Headline.
        data: Where the images come from, and what is on them.
        licence: Licence of the data.
        classes: How to read the names of the classes, or nothing.
        limits: What the network cannot do, one sentence or more each.
    """

    title: str
    data: str
    licence: str
    classes: str
    limits: tuple[str, ...]


_OTHER_THINGS = (
    "It names one of its ten classes whatever it is shown, also an image of "
    "something else. It was not tested for that. It is an example to start "
    "from, not for decisions about people or goods."
)
_CENTRED = (
    "It has other matrices at each place, so it knows things in the middle of "
    "the image, with their usual size, and was trained on shifts of one pixel "
    "only."
)

# Mutual information from which on types name parts.
_NAMED = 0.8

ABOUT = {
    "figures": About(
        "Figures made of parts",
        "10,000 images that `training/datasets/figures.py` draws: figures of "
        "five parts anywhere on the image, with one to three loose parts. "
        "Nothing is downloaded.",
        "drawn by this repository, Apache 2.0 as the code.",
        "The parts are those of the upper row, then of the lower one.",
        (
            "It was trained on nothing but these drawings and knows no photos.",
            "Figures have one size, stand upright and are brighter than the "
            "ground, with all five parts. Others were not tried.",
        ),
    ),
    "mnist": About(
        "Handwritten digits (MNIST)",
        "MNIST (LeCun, Cortes, Burges), read by TensorFlow Datasets "
        "(`mnist` 3.0.1): 60,000 digits for training, 10,000 for testing.",
        "MNIST's authors name none; CC BY-SA 3.0 is often given. No image is "
        "in the file.",
        "",
        (
            _CENTRED,
            "Digits of another pen, scan or country, and such that are not "
            "centred as MNIST's are, were not tried; expect fewer right.",
        ),
    ),
    "fashion_mnist": About(
        "Clothes (Fashion-MNIST)",
        "Fashion-MNIST (Xiao, Rasul, Vollgraf, 2017), read by TensorFlow "
        "Datasets (`fashion_mnist` 3.0.1): 60,000 photos of a shop for "
        "training, 10,000 for testing. Half of the training images were "
        "mirrored.",
        "MIT, Zalando SE 2017. No image is in the file.",
        "",
        (
            _CENTRED,
            "It is small, pruned, and was trained for six epochs; the baseline "
            "of `experiments/rows/` (efficient_capsnet) reaches 92.75 %.",
            "Photos of people in clothes, or on another ground than black, "
            "were not tried.",
        ),
    ),
}


def check_known(dataset: str) -> None:
    """Raises `UserError` if there is nothing to say of a data set's network."""
    if dataset not in ABOUT:
        raise UserError(
            f"there is no card for {dataset}; write one in `ABOUT` of "
            "training/pretrained_card.py."
        )


def card(facts: Mapping[str, Any]) -> str:
    """Returns the card of a network.

    Args:
        facts: What `training/pretrained.py` writes as JSON.
    """
    about = ABOUT[facts["dataset"]]
    parts = [
        f"# {about.title}",
        f'`tfcaps.models.load_pretrained("{facts["dataset"]}")`, '
        f"{facts['bytes'] / 1000:,.0f} kB, written by "
        "`training/pretrained.py`.",
        _network(facts, about),
        "## Data and training",
        _training(facts, about),
        "## Numbers",
        _numbers(facts),
        f"{facts['verdict']}",
        "## Limits",
        "\n".join(f"- {text}" for text in _limits(facts, about)),
        "## Licence",
        f"Network: Apache 2.0. Data: {about.licence}",
    ]
    return "\n\n".join(parts) + "\n"


def _network(facts: Mapping[str, Any], about: About) -> str:
    rows, columns, channels = facts["image"]
    classes = ", ".join(
        name if name == str(j) else f"{j} {name}"
        for j, name in enumerate(facts["classes"])
    )
    return "\n".join(
        (
            f"- **Network**: `{facts['network']}`, "
            f"{facts['parameters']:,} parameters, "
            f"{_percent(facts['measured']['sparsity'])} of its kernels and "
            "transformations 0, float32.",
            f"- **Takes** images `[b, {rows}, {columns}, {channels}]` in "
            "[0, 1], bright on a dark ground; divide bytes by 255, and do "
            "nothing else.",
            "- **Returns** lengths `[b, 10]` in [0, 1); the longest is the "
            "class.",
            f"- **Classes**: {classes}. {about.classes}".rstrip(),
        )
    )


def _training(facts: Mapping[str, Any], about: About) -> str:
    if facts.get("warm_start"):
        return _pruned_later(facts, about)
    name = facts["dataset"]
    return (
        f"{about.data}\n\n"
        f"REM without a baseline, on {facts['trained_on']:,} images, with "
        f"{facts['held_out']:,} held out, for {facts['epochs']} epochs, seed "
        f"{facts['seed']}; {round(facts['seconds'] / 60)} minutes on one CPU "
        "core. One seed, and the last epoch. The weights of the losses were "
        "chosen in earlier experiments, partly on test images.\n\n"
        "```\n"
        f"python experiments/run.py pretrained --only {name} "
        "--data-dir ~/tensorflow_datasets\n"
        f"python training/pretrained.py runs/pretrained/{name}/seed-0 "
        "--data-dir ~/tensorflow_datasets\n"
        "```\n\n"
        f"Code: commit {facts['commit'][:7]} and the settings in "
        "`experiments/rows/` (pretrained). "
        f"Keras {facts['keras']}, TensorFlow {facts['tensorflow']}."
    )


def _pruned_later(facts: Mapping[str, Any], about: About) -> str:
    """Returns how a network was trained whose REM began with the baseline."""
    seeds = f"--seed {facts['seed']} --data-seed {facts['data_seed']}"
    return (
        f"{about.data}\n\n"
        f"A baseline on {facts['trained_on']:,} images, with "
        f"{facts['held_out']:,} held out, for {facts['epochs']} epochs, the "
        f"best of {facts['trials']} starts by its training loss; then REM for "
        f"{facts['rem_epochs']} epochs; seed {facts['seed']}, "
        f"{round(facts['seconds'] / 60)} minutes in all beside other work on "
        "two CPU cores. The number of kinds of parts was given.\n\n"
        "```\n"
        f"python training/run.py --rem {seeds}\n"
        f"python training/pretrained.py runs/{facts['dataset']}-rem\n"
        "```\n\n"
        f"Code: commit {facts['commit'][:7]}. Keras {facts['keras']}, "
        f"TensorFlow {facts['tensorflow']}."
    )


def _numbers(facts: Mapping[str, Any]) -> str:
    measured, packed = facts["measured"], facts["packed"]
    bits, ceiling = measured["type_entropy_bits"], measured["type_ceiling_bits"]
    rows = [
        (f"right, of {facts['tested_on']:,} test images", measured["accuracy"]),
        ("right with quantised couplings", measured["accuracy_quantized"]),
        ("entropy of trees of types", f"{bits:.2f} of {ceiling:.2f} bits"),
        (
            "trees of types a class, median",
            f"{measured['type_median_keys']:.0f}",
        ),
        (
            "entropy of trees of places",
            f"{measured['entropy_bits']:.2f} of "
            f"{measured['ceiling_bits']:.2f} bits",
        ),
        ("T-score", f"{measured['t_score']:.3f}"),
        ("lose their class without their tree", measured["necessity"]["zero"]),
        ("without random children", measured["necessity_random"]["zero"]),
        ("keep it with the tree alone", measured["sufficiency"]["zero"]),
        ("with random children", measured["sufficiency_random"]["zero"]),
        ("children in a tree", measured["size"]),
    ]
    if parts := measured["parts"]:
        rows.append(("weight of a tree on own parts", parts["own"]))
        rows.append(("on loose parts", parts["loose"]))
    if (active := measured.get("necessity_active")) is not None:
        rows.insert(7, ("without as many other active ones", active["zero"]))
    named = measured.get("named_parts") or {}
    if named.get("information") is not None:
        rows += [
            ("parts with exactly one leaf", named["found_once"]),
            ("trees with one leaf on each part", named["perfect"]),
            ("NMI of types and kinds of parts", f"{named['information']:.3f}"),
            ("entropy of slots", f"{named['slot_bits']:.2f} bits"),
        ]
    rows.append(("right, inverted", packed["inverted"]))
    for pixels, found in packed["shifted"].items():
        rows.append((f"right, shifted by {pixels} pixels", found["accuracy"]))
        rows.append(("the same tree of types then", found["same_types"]))
    return markdown(
        [("measured", ""), *((text, _percent(value)) for text, value in rows)]
    )


def _limits(facts: Mapping[str, Any], about: About) -> list[str]:
    packed = facts["packed"]
    moved = "; ".join(
        f"by {pixels} pixels, {_percent(found['accuracy'])} are right"
        for pixels, found in packed["shifted"].items()
    )
    own = facts["measured"]["entropy_bits"]
    ceiling = facts["measured"]["ceiling_bits"]
    each = (
        ["Every test image has a tree of places of its own."]
        if ceiling - own < 0.01
        else []
    )
    return [
        *about.limits,
        "It does not know dark things on a bright ground: of inverted images "
        f"{_percent(packed['inverted'])} are right, and 10 % by chance.",
        f"Moved in one of four directions {moved} (2,000 test images; the "
        "edge is repeated, and what leaves the image is cut off).",
        *each,
        *([] if _names_parts(facts) else [_of_types(packed)]),
        _OTHER_THINGS,
    ]


def _names_parts(facts: Mapping[str, Any]) -> bool:
    named = facts["measured"].get("named_parts") or {}
    return (named.get("information") or 0.0) >= _NAMED


def _of_types(packed: Mapping[str, Any]) -> str:
    return (
        f"Of its {packed['types']} types of capsules {packed['types_used']} "
        "are in any tree, and in the tree of one image "
        f"{packed['types_in_tree']:.1f} on average (2,000 test images). So "
        "which types a tree has says little about the class: their places, "
        "poses and strengths do. That is one reason why trees of types are few."
    )


def _percent(value: float | str) -> str:
    return value if isinstance(value, str) else f"{100 * value:.2f} %"
