"""The settings of a run, and which file holds those of a data set."""

import dataclasses
from collections.abc import Mapping
from types import NoneType
from typing import Any

from training.configs import limits
from training.datasets.protocols import protocol

# What the main job trains on unless it is told otherwise.
DEFAULT_DATASET = "figures"

# Settings that may be `None`.
_KINDS: dict[str, Any] = {
    "backbone": (str, NoneType),
    "crop": (int, NoneType),
    "data_dir": (str, NoneType),
    "decay_factor": (float, NoneType),
    "hard_margin_from": (int, NoneType),
    "learning_rate_decay": (float, NoneType),
    "levels": (int, tuple),
    "patience": (int, NoneType),
    "resize": (int, NoneType),
    "routing": (str, NoneType),
    "samples": (int, NoneType),
    "search_samples": (int, NoneType),
    "sharpness_start": (float, NoneType),
    "stop_accuracy": (float, NoneType),
}

# What it was like before there were these settings.
_BEFORE = {
    "coupling_spread": 0.0,
    "coupling_polarization": 0.0,
    "coupling_crowding": 0.0,
    "coupling_ramp": 0.0,
    "counterfactual_necessity": 0.0,
    "counterfactual_sufficiency": 0.0,
}

# What the names of REM's own settings begin with.
_OF_REM = (
    "counterfactual_",
    "coupling_",
    "decay",
    "final_sparsity",
    "max_searches",
    "min_accuracy",
    "pruning",
    "scope",
    "search_samples",
    "tolerance",
    "warm_start",
)


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything needed to repeat a run; `config.json` holds it.

    Attributes:
        dataset: Name or path, see `training/datasets/`.
        data_dir: Folder of prepared TensorFlow Datasets, or `None`.
        rem: Train the REM model.
        baseline: Train the same network without REM beside it.
        model: Name in `training/models.py`.
        routing: Name of a routing, or a number of iterations, or `None` for the
            network's own.
        backbone: A trained network whose feature map takes the place of the
            first convolutions: a name of `keras.applications`, which then
            scales the images, or a `.keras` file, in the folder of `data_dir`
            unless it is a path; or `None`.
        dense_head: Train the network with a dense layer in the place of its
            capsules too, to compare with.
        fine_tune_epochs: Further passes over the training images after
            `epochs`, in which the backbone is trained too, at a tenth of the
            learning rate; 0 for none.
        decoder: `"none"`, `"joint"` (trained with the capsules) or `"frozen"`
            (trained afterwards, on capsules that no longer change).
        reconstruction_weight: Weight of the squared error of one pixel.
        warm_start: Begin REM with the weights of the trained baseline, instead
            of those the baseline began with.
        samples: Most training images and most test images, or `None`.
        validation: Share of the training images that is only for choosing:
            for `iterative` pruning, `patience`, `stop_accuracy`, and the number
            of levels.
        epochs: Passes over the training images.
        rounds: Most rounds of `epochs` that the baseline is trained for, each
            with the learning rate from the start, see `training/rounds.py`.
        batch_size: Images in a step, over all replicas.
        patience: Epochs without a lower validation loss after which a training
            ends, or `None` to train for all `epochs`. The baseline is then that
            of the lowest validation loss, REM that of the last epoch, as in the
            paper.
        stop_accuracy: Validation accuracy at which a training ends, though not
            before its schedule of pruning, or `None`.
        learning_rate: Of Adam at the start.
        learning_rate_decay: Its factor from epoch to epoch, or `None` if it is
            to fall to 0 as a cosine.
        sharpness_start: Sharpness of the routing in the first epoch, from which
            it grows by the same factor each epoch to that of the network, at
            60 % of the training; of networks whose sharpness is scheduled. Or
            `None` for the network's from the start.
        hard_margin_from: First epoch, counted from 0, with the harder margins
            of `tfcaps.losses.HardenMargin`, or `None`.
        resize: Rows and columns to which images are resized, or `None`.
        skip_broken: Leave out files of a folder that cannot be read.
        mean: Mean of each channel for standardisation inside the network, or
            nothing for none.
        std: Standard deviation of each channel.
        measured: Take both from the training images instead.
        shift: Largest random shift of a training image, in pixels.
        crop: Rows and columns of a random part that is trained on (the middle
            is tested), or `None`.
        flip: Mirror half of the training images.
        rotation: Largest rotation of a training image, in degrees.
        zoom: Lowest and highest factor of a training image's size, or nothing.
        fill: What comes in at the edges of a training image: `"black"`, or
            `"edge"`, its nearest pixels.
        brightness: Lowest and highest factor of a training image, or nothing.
        brightness_delta: Most that is added to it or subtracted.
        contrast: As `brightness`, for the distance from its mean.
        recolour: Share of the training images whose channels are exchanged;
            half as many become negatives.
        balanced: Repeat training images of rare classes, so that all classes
            are equally frequent.
        pairs: Merge each training image with one of another class.
        seed: Seed of weights, order and augmentation.
        pruning: A strategy of `training/pruning.py`.
        final_sparsity: Share of weights pruned in the end; `iterative` prunes
            no more, but may prune less.
        pruning_begin: Share of training at which pruning begins.
        pruning_end: Share of training at which the final sparsity is reached;
            `one_shot` prunes half way between the two.
        tolerance: Share by which the validation loss may grow in `iterative`.
        max_searches: Passes over the validation images after an epoch in
            `iterative`.
        search_samples: Most validation images in such a pass, or `None`.
        min_accuracy: Validation accuracy up to which `iterative` prunes
            nothing.
        scope: `"tensor"` or `"global"`, see `prune_low_magnitude`.
        decay: Rate of the sensitivity-gated decay at the start; 0 for none.
        decay_power: How the rate falls to 0 at the end: as `(1 - share of
            training) ** decay_power`; 0 keeps it.
        decay_factor: Its factor from epoch to epoch instead, or `None`.
        decay_targets: Groups of weights that decay.
        coupling_spread: Weight of how far couplings differ between images of
            one class, see `tfcaps.losses.CouplingLoss`.
        coupling_polarization: Weight of how far couplings are from 0 and 1.
        coupling_crowding: Weight of how far more than `coupling_share` of the
            children are coupled with the class.
        coupling_share: Share of the children that a class may have for nothing.
        coupling_types: Compare types of capsules between images, wherever they
            are, and not children at fixed places.
        counterfactual_necessity: Weight of how long a class stays without its
            tree, see `tfcaps.losses.CounterfactualLoss`.
        counterfactual_sufficiency: Weight of how well the tree alone tells it.
        coupling_ramp: Share of the training over which all of these grow from
            0.
        levels: Levels of the quantised couplings, for all routed layers or for
            each of them.
        mode: `"midtread"` or `"midrise"`, see `tfcaps.rem.quantize`.
        strategy: One of those in `training/devices.py`.
        dtype_policy: Keras' name of what a training computes in. Weights are
            float32 in any case, and so is the network that is left after it.
        deterministic: The same numbers bit for bit, see
            `training/devices.py`.
    """

    dataset: str = "digits"
    data_dir: str | None = None
    rem: bool = False
    baseline: bool = True
    model: str = "dr_capsnet_small"
    routing: str | None = None
    backbone: str | None = None
    dense_head: bool = False
    fine_tune_epochs: int = 0
    decoder: str = "none"
    reconstruction_weight: float = 5e-4
    warm_start: bool = False
    samples: int | None = None
    validation: float = 0.1
    epochs: int = 8
    rounds: int = 1
    patience: int | None = None
    stop_accuracy: float | None = None
    batch_size: int = 128
    learning_rate: float = 2e-3
    learning_rate_decay: float | None = None
    sharpness_start: float | None = None
    hard_margin_from: int | None = None
    resize: int | None = None
    skip_broken: bool = False
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    measured: bool = False
    shift: int = 2
    crop: int | None = None
    flip: bool = False
    rotation: float = 0.0
    zoom: tuple[float, ...] = ()
    fill: str = "black"
    brightness: tuple[float, ...] = ()
    brightness_delta: float = 0.0
    contrast: tuple[float, ...] = ()
    recolour: float = 0.0
    balanced: bool = False
    pairs: bool = False
    seed: int = 0
    pruning: str = "polynomial"
    final_sparsity: float = 0.8
    pruning_begin: float = 0.0
    pruning_end: float = 0.6
    tolerance: float = 0.0
    max_searches: int = 12
    search_samples: int | None = None
    min_accuracy: float = 0.0
    scope: str = "global"
    decay: float = 0.0
    decay_power: float = 2.0
    decay_factor: float | None = None
    decay_targets: tuple[str, ...] = ("transformations",)
    coupling_spread: float = 1.0
    coupling_polarization: float = 0.6
    coupling_crowding: float = 2.0
    coupling_share: float = 0.5
    coupling_types: bool = False
    counterfactual_necessity: float = 0.0
    counterfactual_sufficiency: float = 0.0
    coupling_ramp: float = 1.0
    levels: int | tuple[int, ...] = 11
    mode: str = "midtread"
    strategy: str = "none"
    dtype_policy: str = "float32"
    deterministic: bool = False

    @property
    def class_levels(self) -> int:
        """The levels of the last routed layer, whose couplings make trees."""
        return self.levels if isinstance(self.levels, int) else self.levels[-1]

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

    def uses(self, setting: str) -> bool:
        """Returns whether a setting makes a difference to this run."""
        return self.rem or not setting.startswith(_OF_REM)

    @property
    def model_names(self) -> tuple[str, ...]:
        """The models that the run trains; the last one is what it is for."""
        if not self.rem:
            return ("baseline",)
        return ("baseline", "rem") if self.baseline else ("rem",)


def load(dataset: str, model: str | None = None) -> Config:
    """Returns the settings of a data set: its own file's, or the defaults.

    Preparation and augmentation are those of the data set's protocol.

    Args:
        dataset: What `--dataset` names.
        model: What `--model` names, or `None`.
    """
    # They import `Config`.
    from training.configs import digits, figures, photos, pictures

    if dataset in (own := {"digits": digits, "figures": figures}):
        return own[dataset].get_config()
    if dataset in photos.DATASETS and model in (None, photos.MODEL):
        return photos.get_config(dataset)
    if dataset and (found := pictures.get_config(dataset, model)):
        return found
    settings = dataclasses.asdict(protocol(dataset))
    return Config(
        dataset=dataset,
        **{
            name: value for name, value in settings.items() if value is not None
        },
    )


def config_from(settings: Any) -> Config:
    """Returns the config that `dataclasses.asdict` and JSON made `settings` of.

    Raises:
        ValueError: If a setting is unknown, of another type or out of range, or
            `dataset` is missing.
    """
    if not isinstance(settings, dict) or "dataset" not in settings:
        raise ValueError("it must be a dict of settings, `dataset` among them")
    default = dataclasses.asdict(Config())
    if unknown := settings.keys() - default.keys():
        raise ValueError(
            f"it has the settings {', '.join(sorted(unknown))}, which this "
            "version does not know; it may be of a newer one"
        )
    settings = completed(settings)
    for name, value in settings.items():
        kinds = _KINDS.get(name, type(default[name]))
        if isinstance(value, list):  # JSON has no tuples
            settings[name] = value = tuple(value)
        if type(value) is int and kinds in (float, (float, NoneType)):
            settings[name] = value = float(value)
        if not isinstance(value, kinds):
            raise ValueError(f"{name} is {value!r}, of another type")
    limits.check(settings)
    return Config(**settings)


def completed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Fills in the settings that a saved file predates.

    These have what left everything as it was, which by rule is their default,
    or stands in `_BEFORE`.
    """
    return {**dataclasses.asdict(Config()), **_BEFORE, **settings}
