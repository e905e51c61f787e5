"""The settings of a run: default, meaning, limits and flag of each, once."""

import argparse
import dataclasses
import functools
import types
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

import cli
from training import models

# The main job trains on it unless another is named.
DEFAULT_DATASET = "figures"
# Names of pruning, and groups of weights, as in `tfcaps.rem`, which takes long
# to load.
STRATEGIES = {
    "polynomial": "the smallest magnitudes, more and more of them (tfmot)",
    "one_shot": "the same all at once, in the middle of the training",
    "structured": "whole filters and types of capsules, more and more of them",
    "snip": "the least salient weights, before the training",
    "iterative": "after each epoch what the validation loss does not need",
    "none": "nothing",
}
# A training image is zoomed by so much at most.
_SMALLEST, _LARGEST = 0.1, 10.0
_SHARE = (0.0, 1.0)
# In place of numbers of levels: the lowest at which the accuracy holds.
LOWEST = "lowest"
# What is measured before they are known, as in training curves.
_FIRST_LEVELS = 11
_FROM_0, _FROM_1 = (0, None), (1, None)
_METAVARS = {int: "N", float: "NUMBER", str: "NAME"}


class Setting(NamedTuple):
    """All that is known of a setting besides its name, type and default."""

    about: str = ""  # the help of its flag; without there is none
    limits: tuple[float, float | None] | None = None  # least and greatest
    choices: tuple[str, ...] = ()  # the values it may have; none for any
    metavar: str | None = None  # stands for the value in `--help`
    # From the flag's text to the value, where that is not as its type says.
    read: Callable[[str], Any] | None = None


def setting(default: Any, about: str, *limits: Any, **more: Any) -> Any:
    """Returns the dataclass field of a setting that has a flag, see `Setting`.

    Others are set by `training/recipes.toml` alone, and are plain fields.
    """
    known = Setting(about, *limits, **more)
    return dataclasses.field(default=default, metadata={"setting": known})


def _weight(default: float, of: str) -> Any:
    """Returns the field of a loss's weight."""
    about = f"weight of the loss for {of}; 0 for none"
    return setting(default, about, (0.0, 1e6))


def _factors(text: str) -> tuple[float, ...]:
    """Reads `0.8,1.25`."""
    numbers = tuple(
        cli.number(part, float, _SMALLEST, _LARGEST) for part in text.split(",")
    )
    if len(numbers) != 2 or numbers[0] > numbers[1]:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not two factors, the lower one first, such as "
            "0.8,1.25"
        )
    return numbers


def _levels(text: str) -> int | tuple[int, ...] | str:
    """Reads `11`, `11,6` for a network of two routed layers, or `lowest`."""
    if text == LOWEST:
        return text
    try:
        parts = tuple(cli.number(p, int, 2, 256) for p in text.split(","))
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, or {LOWEST}") from error
    return parts if parts[1:] else parts[0]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Everything needed to repeat a run; `config.json` holds it."""

    # -------------------------- which images, and how they change at random
    dataset: str = setting(
        "digits",
        "one of --list-datasets (default: figures), any name of TensorFlow "
        "Datasets, an .npz file, a folder of class folders, or a .csv file "
        "with the columns file and label",
    )
    data_dir: str | None = setting(
        None, "prepared TensorFlow Datasets", metavar="FOLDER"
    )
    data_seed: int = setting(
        0, "draw other images of the same figures", _FROM_0
    )
    samples: int | None = setting(
        None, "use only so many training and test images", _FROM_1
    )
    validation: float = setting(
        0.1,
        "share of the training images that is only for choosing, 0 to 0.5",
        (0.0, 0.5),
    )
    resize: int | None = setting(
        None, "rows and columns to which images are resized", (1, 8192)
    )
    balanced: bool = setting(
        False,
        "repeat training images of rare classes, until all are as frequent",
    )
    flip: bool = setting(
        False,
        "mirror half of the training images; not where sides tell classes",
    )
    skip_broken: bool = setting(
        False,
        "leave out and list pictures that cannot be read or have two classes",
    )
    mean: tuple[float, ...] = ()  # of each channel; the network subtracts it
    std: tuple[float, ...] = ()  # deviation, by which it divides
    measured: bool = False  # take both from the training images instead
    shift: int = setting(
        2, "largest random shift of a training image, in pixels", _FROM_0
    )
    crop: int | None = None  # side of a random part; the middle is tested
    rotation: float = setting(
        0.0,
        "largest random rotation of a training image, in degrees",
        (0.0, 180.0),
    )
    zoom: tuple[float, ...] = setting(
        (),
        "least and largest factor of a training image's size, as 0.8,1.25",
        read=_factors,
        metavar="LOW,HIGH",
    )
    fill: str = "black"  # what is outside; or "edge", the nearest pixel
    brightness: tuple[float, ...] = ()  # lowest and highest factor of an image
    brightness_delta: float = 0.0  # most that is added or subtracted
    contrast: tuple[float, ...] = ()  # factors of the distance from the mean

    # ---------------------------- which network, and what stands beside it
    model: str = setting("dr_capsnet_small", "one of --list-models")
    backbone: str | None = setting(
        None,
        "efficientnet_lite0, a network of keras.applications, such as "
        "MobileNetV3Small, or a .keras file without its top (in --data-dir or "
        "a path), on whose feature map --model constellation_capsnet, "
        "parts_capsnet or dr_capsnet then stands",
    )
    routing: str | None = setting(
        None,
        "a routing such as dynamic or em, or a number of iterations of "
        "dynamic routing (default: the model's own)",
    )
    part_types: int | None = setting(
        None,
        "most types of parts of constellation_capsnet (default: its own)",
        _FROM_1,
    )
    decoder: str = setting(
        "none",
        "reconstruct images too: trained with the capsules, or afterwards",
        choices=("none", "joint", "frozen"),
    )

    # ------------------------------------ how long, how fast and on what
    epochs: int = setting(8, "passes over the images", _FROM_1)
    batch_size: int = setting(
        128, "images in a step, over all replicas", _FROM_1
    )
    learning_rate: float = setting(2e-3, "of Adam at first", (0.0, 1e3))
    learning_rate_decay: float | None = None  # by epoch, or a cosine to 0
    # Epochs without a lower validation loss that end a training; the baseline
    # is then that of the lowest, REM that of the last, as in the paper.
    patience: int | None = None
    # Sharpness of the routing in the first epoch, from which it grows to that
    # of the network, if it is scheduled, at 60 % of the training.
    sharpness_start: float | None = None
    seed: int = setting(
        0, "seed of weights, order and augmentation", (0, 2**32 - 1)
    )
    strategy: str = setting(
        "none",
        "mirrored trains on all GPUs of this machine; data-parallel on all "
        "devices of several, on JAX, see training/devices.py",
        choices=("none", "mirrored", "data-parallel"),
    )
    dtype_policy: str = setting(
        "float32",
        "mixed_bfloat16 trains faster on GPUs and some CPUs; the trained model "
        "is float32 in any case",
        # Not float16: its gradients would have to be scaled.
        choices=("float32", "mixed_bfloat16"),
    )
    deterministic: bool = setting(
        False,
        "the same numbers bit for bit in every run, also in a resumed one; may "
        "be slower",
    )

    # ------------------------ pruning, coupling losses and quantisation
    rem: bool = setting(False, "train a REM model beside the baseline")
    baseline: bool = setting(True, "train the baseline too, or REM alone")
    levels: int | tuple[int, ...] | str = setting(
        11,
        "levels of the couplings, 2 to 256; or several with commas, one for "
        "each routed layer; or lowest, at which no model loses more than one "
        "in a thousand right answers on the validation images",
        read=_levels,
        metavar="N",
    )
    mode: str = "midtread"  # or "midrise", see `tfcaps.rem.quantize`
    rem_epochs: int | None = setting(
        None,
        "passes of REM over the images (default: that of the recipe, 3 on "
        "figures and with a backbone; otherwise as --epochs)",
        _FROM_1,
    )
    warm_start: bool = setting(
        False,
        "begin REM with the weights of the trained baseline, or as it began",
    )
    start_from: str | None = setting(
        None,
        "take the network of another run as the baseline that REM begins with; "
        "settings that are not given are those of that run",
        metavar="RUN",
    )
    pruning: str = setting(
        "polynomial",
        "what is pruned when. "
        + "; ".join(f"{name}: {about}" for name, about in STRATEGIES.items()),
        choices=tuple(STRATEGIES),
    )
    final_sparsity: float = setting(
        0.8,
        "share of weights pruned in the end, 0 to 0.999; iterative prunes no "
        "more, but may prune less; structured removes it of the multiply-adds",
        (0.0, 0.999),
    )
    pruning_begin: float = 0.0  # share of the training
    pruning_end: float = 0.6  # the same; one_shot is half way between
    # Of iterative: passes over the validation images an epoch, and their
    # accuracy below which it prunes nothing.
    max_searches: int = 12
    min_accuracy: float = 0.0
    decay: float = setting(
        0.0, "rate of the paper's sensitivity-gated decay; 0 for none", _SHARE
    )
    decay_power: float = 2.0  # of its polynomial to 0; 0 keeps the rate
    decay_factor: float | None = None  # from epoch to epoch instead
    decay_targets: tuple[str, ...] = ("transformations",)  # groups of weights
    coupling_spread: float = _weight(
        1.0,
        "different couplings in images of one class, see "
        "`tfcaps.losses.CouplingLoss`",
    )
    coupling_polarization: float = _weight(0.6, "couplings of neither 0 nor 1")
    coupling_crowding: float = _weight(
        2.0, "more than --coupling-share of the children in a class's tree"
    )
    coupling_share: float = setting(
        0.5, "share of the children that a class may have, 0 to 1", _SHARE
    )
    coupling_types: bool = setting(
        False, "compare the types of capsules in a tree, wherever they are"
    )
    counterfactual_necessity: float = _weight(
        0.0,
        "a class that stays without its tree, see "
        "`tfcaps.losses.CounterfactualLoss`",
    )
    counterfactual_sufficiency: float = _weight(
        0.0, "a class that its tree alone does not tell"
    )
    coupling_ramp: float = setting(
        1.0,
        "share of the training over which these weights grow from 0",
        _SHARE,
    )

    @property
    def coupling_weights(self) -> tuple[float, float, float]:
        """The weights of `tfcaps.losses.CouplingLoss`, in its order."""
        return (
            self.coupling_spread,
            self.coupling_polarization,
            self.coupling_crowding,
        )

    @property
    def counterfactual_weights(self) -> tuple[float, float]:
        """The weights of `tfcaps.losses.CounterfactualLoss`, in its order."""
        return (self.counterfactual_necessity, self.counterfactual_sufficiency)

    @property
    def fixed_levels(self) -> int | tuple[int, ...]:
        """The levels, or those that serve until the lowest are known."""
        return _FIRST_LEVELS if isinstance(self.levels, str) else self.levels

    def of(self, name: str) -> "Config":
        """Returns the settings of the training of one model, by its name."""
        if name != "rem" or self.rem_epochs is None:
            return self
        return dataclasses.replace(self, epochs=self.rem_epochs)

    def uses(self, name: str) -> bool:
        """Tells whether a setting makes a difference to this run."""
        if name not in _OF_REM or name in _ALSO_WITHOUT_REM:
            return True
        has_losses = models.network(self.model).loss not in ("evidence", "plan")
        has_couplings = has_losses and any(self.coupling_weights)
        in_use = {
            "final_sparsity": self.pruning != "none",
            "pruning_begin": self.pruning not in _UNSCHEDULED,
            "pruning_end": self.pruning not in _UNSCHEDULED,
            "max_searches": self.pruning == "iterative",
            "min_accuracy": self.pruning == "iterative",
            "decay_power": self.decay and self.decay_factor is None,
            "decay_factor": self.decay,
            "decay_targets": self.decay,
            "coupling_share": has_couplings and self.coupling_crowding,
            "coupling_types": has_couplings,
            "coupling_ramp": has_losses
            and any(self.coupling_weights + self.counterfactual_weights),
        }
        of_a_loss = name.startswith(("coupling_", "counterfactual_"))
        return self.rem and bool(in_use.get(name, has_losses or not of_a_loss))

    @property
    def model_names(self) -> tuple[str, ...]:
        """The models that the run trains; the last one is what it is for."""
        if not self.rem:
            return ("baseline",)
        return ("baseline", "rem") if self.baseline else ("rem",)

    @property
    def trained_names(self) -> tuple[str, ...]:
        """The models that are trained here, and not by another run."""
        return self.model_names[self.start_from is not None :]


SETTINGS: dict[str, Setting] = {
    field.name: field.metadata.get("setting", Setting())
    for field in dataclasses.fields(Config)
}
_OF_REM = [*SETTINGS][[*SETTINGS].index("rem") :]
_ALSO_WITHOUT_REM = ("rem", "levels", "mode")
_UNSCHEDULED = ("none", "snip", "iterative")
# Settings of version 0.3 that are gone, and what they are in runs that are as
# they would be without.
_GONE: dict[str, Any] = {"shared_parts": False, "width_start": 6.0}
# Titles in `--help`, by the first setting below each.
_TITLES = {
    "dataset": "data",
    "model": "network",
    "epochs": "training",
    "rem": "routing entropy minimisation",
}


def config_from(settings: Any) -> Config:
    """Returns the config that `dataclasses.asdict` and JSON made `settings` of.

    Settings that the file does not have are the defaults.

    Raises:
        ValueError: If a setting is unknown, of another type or out of range, or
            `dataset` is missing.
    """
    if not isinstance(settings, dict) or "dataset" not in settings:
        raise ValueError("it must be a dict of settings, `dataset` among them")
    settings = {
        name: value
        for name, value in settings.items()
        if name not in _GONE or value != _GONE[name]
    }
    if unknown := settings.keys() - SETTINGS.keys():
        raise ValueError(
            f"it has the settings {', '.join(sorted(unknown))}, which this "
            "version does not know; use the one that made it"
        )
    return Config(**{name: _checked(name, settings[name]) for name in settings})


def _checked(name: str, value: Any) -> Any:
    """Returns a value from JSON in its declared type, and within its limits.

    JSON has no tuples, and writes some floats as whole numbers.
    """
    known, kinds = SETTINGS[name], _kinds(name)
    if isinstance(value, list):
        value = tuple(value)
    if type(value) is int and float in kinds:
        value = float(value)
    if type(value) not in kinds:
        raise ValueError(f"{name} is {value!r}, of another type")
    if known.choices and value not in known.choices:
        raise ValueError(
            f"{name} is {value!r}; it must be one of {', '.join(known.choices)}"
        )
    if known.limits is not None and value is not None:
        try:
            cli.number(str(value), float, *known.limits)
        except argparse.ArgumentTypeError as error:
            raise ValueError(f"{name}: {error}") from error
    return value


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds all flags, in groups; one that is not given is `None`."""
    for name, known in SETTINGS.items():
        if title := _TITLES.get(name):
            group = parser.add_argument_group(title)
        if known.about:
            flag = f"--{name.replace('_', '-')}"
            group.add_argument(flag, help=known.about, **_parsing(name, known))


def _parsing(name: str, known: Setting) -> dict[str, Any]:
    """Returns how argparse reads a flag."""
    kinds = _kinds(name)
    if bool in kinds:
        return {"action": argparse.BooleanOptionalAction}
    if known.choices:
        return {"choices": known.choices}
    kind = next((k for k in kinds if k in _METAVARS), str)
    read = known.read or str
    if known.limits is not None:
        low, high = known.limits
        read = functools.partial(cli.number, kind=kind, low=low, high=high)
    return {"type": read, "metavar": known.metavar or _METAVARS[kind]}


@functools.cache
def _kinds(name: str) -> tuple[type, ...]:
    """Returns the classes of the values that a setting may have."""
    declared = typing.get_type_hints(Config)[name]
    options = (
        typing.get_args(declared)
        if isinstance(declared, types.UnionType)
        else (declared,)
    )
    return tuple(typing.get_origin(option) or option for option in options)
