"""The settings of a run, and which file holds those of a data set."""

import dataclasses
from types import NoneType
from typing import Any

# Settings that may be `None`.
_KINDS: dict[str, Any] = {
    "data_dir": (str, NoneType),
    "routing": (str, NoneType),
    "samples": (int, NoneType),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything needed to repeat a run; `config.json` holds it.

    Attributes:
        dataset: Name or path, see `training/datasets.py`.
        data_dir: Folder of prepared TensorFlow Datasets, or `None`.
        rem: Train the REM model beside the baseline.
        model: Name in `training/models.py`.
        routing: Name of a routing, or a number of iterations, or `None` for the
            network's own.
        decoder: `"none"`, `"joint"` (trained with the capsules) or `"frozen"`
            (trained afterwards, on capsules that no longer change).
        reconstruction_weight: Weight of the squared error of one pixel.
        samples: Most training images and most test images, or `None`.
        epochs: Passes over the training images.
        batch_size: Images in a step, over all replicas.
        learning_rate: Of Adam at the start; it falls to 0 as a cosine.
        shift: Largest random shift of a training image, in pixels.
        seed: Seed of weights, order and shifts.
        final_sparsity: Share of weights pruned at the end of the schedule.
        pruning_begin: Share of training at which pruning begins.
        pruning_end: Share of training at which the final sparsity is reached.
        scope: `"tensor"` or `"global"`, see `prune_low_magnitude`.
        decay: Rate of the sensitivity-gated decay at the start; 0 for none.
        decay_power: How the rate falls to 0 at the end: as `(1 - share of
            training) ** decay_power`; 0 keeps it.
        decay_targets: Groups of weights that decay.
        levels: Levels of the quantised couplings.
        strategy: One of those in `training/devices.py`.
    """

    dataset: str = "digits"
    data_dir: str | None = None
    rem: bool = False
    model: str = "dr_capsnet_small"
    routing: str | None = None
    decoder: str = "none"
    reconstruction_weight: float = 5e-4
    samples: int | None = None
    epochs: int = 8
    batch_size: int = 128
    learning_rate: float = 2e-3
    shift: int = 2
    seed: int = 0
    final_sparsity: float = 0.8
    pruning_begin: float = 0.0
    pruning_end: float = 0.6
    scope: str = "global"
    decay: float = 1e-2
    decay_power: float = 2.0
    decay_targets: tuple[str, ...] = ("transformations",)
    levels: int = 11
    strategy: str = "none"

    @property
    def model_names(self) -> tuple[str, ...]:
        """The models that the run trains; the last one is what it is for."""
        return ("baseline", "rem") if self.rem else ("baseline",)


def load(dataset: str) -> Config:
    """Returns the settings of a data set: its own file's, or the defaults."""
    from training.configs import digits  # it imports `Config` from here

    config = digits.get_config() if dataset == "digits" else Config()
    return dataclasses.replace(config, dataset=dataset)


def config_from(settings: Any) -> Config:
    """Returns the config that `dataclasses.asdict` and JSON made `settings` of.

    Raises:
        ValueError: If a setting is missing, unknown or of another type.
    """
    default = dataclasses.asdict(Config())
    if not isinstance(settings, dict) or settings.keys() != default.keys():
        raise ValueError(f"it must have the settings {', '.join(default)}")
    for name, value in settings.items():
        kinds = _KINDS.get(name, type(default[name]))
        if kinds is tuple:
            settings[name] = value = tuple(value)
        if kinds is float and type(value) is int:
            value = float(value)
        if not isinstance(value, kinds):
            raise ValueError(f"{name} is {value!r}")
    return Config(**settings)
