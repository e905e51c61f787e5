"""The settings of a run: default, meaning, limits and flag of each, once."""

import argparse
import dataclasses
import functools
import tomllib
import types
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import cli
from training import models

# The main job trains on it unless another is named.
DEFAULT_DATASET = "figures"
# Names of pruning as in `tfcaps.rem`, which takes long to load.
STRATEGIES = "polynomial one_shot structured snip iterative none".split()
# A training image is zoomed by so much at most.
_SMALLEST, _LARGEST = 0.1, 10.0
# In place of numbers of levels: the lowest at which the accuracy holds.
LOWEST = "lowest"
# What is measured before they are known, as in training curves.
_FIRST_LEVELS = 11
_METAVARS = {int: "N", float: "NUMBER", str: "NAME"}


class Limits(NamedTuple):
    """The least and the greatest value of a setting, if there is one."""

    low: float
    high: float | None


Natural = Annotated[int, Limits(0, None)]
Count = Annotated[int, Limits(1, None)]
Share = Annotated[float, Limits(0.0, 1.0)]
Weight = Annotated[float, Limits(0.0, 1e6)]

# Groups of flags with their help, what stands for some values, and more.
FLAGS = tomllib.loads(Path(__file__).with_name("flags.toml").read_text("utf-8"))


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
    """Everything needed to repeat a run; `config.json` holds it.

    What settings mean that have a flag, `--help` says.
    """

    # -------------------------- which images, and how they change at random
    dataset: str = "digits"
    data_dir: str | None = None
    data_seed: Natural = 0
    samples: Count | None = None
    validation: Annotated[float, Limits(0.0, 0.5)] = 0.1
    resize: Annotated[int, Limits(1, 8192)] | None = None
    balanced: bool = False
    flip: bool = False
    skip_broken: bool = False
    mean: tuple[float, ...] = ()  # of each channel; the network subtracts it
    std: tuple[float, ...] = ()  # deviation, by which it divides
    measured: bool = False  # take both from the training images instead
    shift: Natural = 2
    crop: int | None = None  # side of a random part; the middle is tested
    rotation: Annotated[float, Limits(0.0, 180.0)] = 0.0
    zoom: tuple[float, ...] = ()
    fill: str = "black"  # what is outside; or "edge", the nearest pixel
    brightness: tuple[float, ...] = ()  # lowest and highest factor of an image
    brightness_delta: float = 0.0  # most that is added or subtracted
    contrast: tuple[float, ...] = ()  # factors of the distance from the mean

    # ---------------------------- which network, and what stands beside it
    model: str = "dr_capsnet_small"
    backbone: str | None = None
    routing: str | None = None
    part_types: Count | None = None
    decoder: Annotated[str, ("none", "joint", "frozen")] = "none"

    # ------------------------------------ how long, how fast and on what
    epochs: Count = 8
    batch_size: Count = 128
    learning_rate: Annotated[float, Limits(0.0, 1e3)] = 2e-3
    learning_rate_decay: float | None = None  # by epoch, or a cosine to 0
    # Epochs without a lower validation loss that end a training; the baseline
    # is then that of the lowest, REM that of the last, as in the paper.
    patience: int | None = None
    # Sharpness of the routing in the first epoch, from which it grows to that
    # of the network, if it is scheduled, at 60 % of the training.
    sharpness_start: float | None = None
    seed: Annotated[int, Limits(0, 2**32 - 1)] = 0
    strategy: Annotated[str, ("none", "mirrored", "data-parallel")] = "none"
    # Not float16: its gradients would have to be scaled.
    dtype_policy: Annotated[str, ("float32", "mixed_bfloat16")] = "float32"
    deterministic: bool = False

    # ------------------------ pruning, coupling losses and quantisation
    rem: bool = False
    baseline: bool = True
    levels: int | tuple[int, ...] | str = 11
    mode: str = "midtread"  # or "midrise", see `tfcaps.rem.quantize`
    rem_epochs: Count | None = None
    warm_start: bool = False
    start_from: str | None = None
    pruning: Annotated[str, STRATEGIES] = "polynomial"
    final_sparsity: Annotated[float, Limits(0.0, 0.999)] = 0.8
    pruning_begin: float = 0.0  # share of the training
    pruning_end: float = 0.6  # the same; one_shot is half way between
    # Of iterative: passes over the validation images an epoch, and their
    # accuracy below which it prunes nothing.
    max_searches: int = 12
    min_accuracy: float = 0.0
    decay: Share = 0.0
    decay_power: float = 2.0  # of its polynomial to 0; 0 keeps the rate
    decay_factor: float | None = None  # from epoch to epoch instead
    decay_targets: tuple[str, ...] = ("transformations",)  # groups of weights
    coupling_spread: Weight = 1.0
    coupling_polarization: Weight = 0.6
    coupling_crowding: Weight = 2.0
    coupling_share: Share = 0.5
    coupling_types: bool = False
    counterfactual_necessity: Weight = 0.0
    counterfactual_sufficiency: Weight = 0.0
    coupling_ramp: Share = 1.0

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


class Setting(NamedTuple):
    """What `Config` declares of a setting."""

    kinds: tuple[type, ...]  # classes of its values
    limits: Limits | None = None
    choices: Sequence[str] = ()  # the values it may have; none for any


def _declared(hint: Any) -> Setting:
    """Returns what a type says, such as `Count | None`."""
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    options = typing.get_args(hint) if is_union else (hint,)
    known: Any = ()
    for option in options:
        known = getattr(option, "__metadata__", (known,))[0]
    plain = (getattr(option, "__origin__", option) for option in options)
    if isinstance(known, Limits):
        return Setting((*plain,), known)
    return Setting((*plain,), choices=known)


SETTINGS = {
    name: _declared(hint)
    for name, hint in typing.get_type_hints(Config, include_extras=True).items()
}
_OF_REM = [*SETTINGS][[*SETTINGS].index("rem") :]
_ALSO_WITHOUT_REM = ("rem", "levels", "mode")
_UNSCHEDULED = ("none", "snip", "iterative")
# Settings of version 0.3 that are gone, and what they are in runs that are as
# they would be without.
_GONE: dict[str, Any] = {"shared_parts": False, "width_start": 6.0}
# From a flag's text to its value, where that is not as its type says.
_READ = {"zoom": _factors, "levels": _levels}


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
    kinds, limits, choices = SETTINGS[name]
    if isinstance(value, list):
        value = tuple(value)
    if type(value) is int and float in kinds:
        value = float(value)
    if type(value) not in kinds:
        raise ValueError(f"{name} is {value!r}, of another type")
    if choices and value not in choices:
        raise ValueError(
            f"{name} is {value!r}; it must be one of {', '.join(choices)}"
        )
    if limits is not None and value is not None:
        try:
            cli.number(str(value), float, *limits)
        except argparse.ArgumentTypeError as error:
            raise ValueError(f"{name}: {error}") from error
    return value


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds all flags, in groups; one that is not given is `None`."""
    for title, flags in FLAGS["groups"].items():
        add = parser.add_argument_group(title).add_argument
        for name, about in flags.items():
            about = " ".join(about.split())
            add(f"--{name.replace('_', '-')}", help=about, **_parsing(name))


def _parsing(name: str) -> dict[str, Any]:
    """Returns how argparse reads a flag."""
    kinds, limits, choices = SETTINGS[name]
    if bool in kinds:
        return {"action": argparse.BooleanOptionalAction}
    if choices:
        return {"choices": choices}
    kind = next((k for k in kinds if k in _METAVARS), str)
    read: Callable[[str], Any] = _READ.get(name, str)
    if limits is not None:
        read = functools.partial(cli.number, kind=kind, **limits._asdict())
    metavar = FLAGS["metavars"].get(name, _METAVARS[kind])
    return {"type": read, "metavar": metavar}
