"""The settings of a run, and which file holds those of a data set."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from training.configs.data_settings import DataSettings
from training.configs.network_settings import NetworkSettings
from training.configs.rem_settings import TARGETS, RemSettings
from training.configs.setting import (
    before,
    check_limits,
    of_right_types,
    settings_of,
)
from training.configs.training_settings import TrainingSettings

# The main job trains on it unless another is named.
DEFAULT_DATASET = "figures"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(RemSettings, TrainingSettings, NetworkSettings, DataSettings):
    """Everything needed to repeat a run; `config.json` holds it.

    Each setting is declared in one place, with its type, default, meaning,
    limits and flag, see `training/configs/setting.py`.
    """

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

    def of(self, name: str) -> "Config":
        """Returns the settings of the training of one model, by its name."""
        if name != "rem" or self.rem_epochs is None:
            return self
        return dataclasses.replace(self, epochs=self.rem_epochs)

    def uses(self, setting: str) -> bool:
        """Returns whether a setting makes a difference to this run."""
        return self.rem or not settings_of(Config)[setting].rem

    @property
    def model_names(self) -> tuple[str, ...]:
        """The models that the run trains; the last one is what it is for."""
        if not self.rem:
            return ("baseline",)
        return ("baseline", "rem") if self.baseline else ("rem",)

    @property
    def trained_names(self) -> tuple[str, ...]:
        """The models that are trained here, and not by another run."""
        first = 0 if self.start_from is None else 1
        return self.model_names[first:]


def load(dataset: str, model: str | None = None) -> Config:
    """Returns the settings of a data set: its own file's, or the defaults.

    Preparation and augmentation are those of the data set's protocol.

    Args:
        dataset: What `--dataset` names.
        model: What `--model` names, or `None`.
    """
    # They import `Config`.
    from training.configs import (
        constellation,
        digits,
        figures,
        photos,
        pictures,
        small_images,
    )
    from training.datasets.protocols import protocol

    if model == constellation.MODEL:
        if found := pictures.get_config(dataset, model):
            return constellation.with_recipe(found)
        return constellation.with_recipe(Config(dataset=dataset))
    if model is None and dataset in constellation.PART_TYPES:
        return constellation.with_recipe(Config(dataset=dataset))
    if dataset in constellation.PART_TYPES:
        return dataclasses.replace(figures.get_config(), dataset=dataset)
    if dataset == "digits":
        return digits.get_config()
    if dataset in photos.DATASETS and model in (None, photos.MODEL):
        return photos.get_config(dataset)
    if dataset and (found := pictures.get_config(dataset, model)):
        return found
    settings = dataclasses.asdict(protocol(dataset))
    config = Config(
        dataset=dataset,
        **{
            name: value for name, value in settings.items() if value is not None
        },
    )
    return small_images.with_losses(config, model)


def config_from(settings: Any) -> Config:
    """Returns the config that `dataclasses.asdict` and JSON made `settings` of.

    Settings that the file predates are what they were before there were any.

    Raises:
        ValueError: If a setting is unknown, of another type or out of range, or
            `dataset` is missing.
    """
    if not isinstance(settings, dict) or "dataset" not in settings:
        raise ValueError("it must be a dict of settings, `dataset` among them")
    if unknown := settings.keys() - settings_of(Config).keys():
        raise ValueError(
            f"it has the settings {', '.join(sorted(unknown))}, which this "
            "version does not know; it may be of a newer one"
        )
    settings = of_right_types(Config, {**before(Config), **settings})
    check_limits(Config, settings)
    if settings["pruning_begin"] > settings["pruning_end"]:
        raise ValueError("pruning_begin is after pruning_end")
    targets = settings["decay_targets"]
    if not targets or not set(targets) <= set(TARGETS):
        raise ValueError(
            f"decay_targets is {targets!r}; `targets` must name groups out of "
            f"{', '.join(TARGETS)}"
        )
    return Config(**settings)


def filled_in(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Fills in the settings that a saved file predates."""
    return {**before(Config), **settings}
