"""The settings of data sets, networks and the paper, from `recipes.toml`."""

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

from training.configs import Config


def _settings(recipes: dict[str, Any], name: str) -> dict[str, Any]:
    """Returns the settings of a recipe, on top of those that it is like."""
    recipe = dict(recipes[name])
    like = recipe.pop("like", None)
    settings = {} if like is None else _settings(recipes, like)
    for key, value in recipe.items():
        settings[key] = tuple(value) if isinstance(value, list) else value
    return settings


_FILE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
# Preparation and augmentation by data set, and what networks are trained by.
IMAGES, TRAINING = (
    {name: _settings(_FILE[part], name) for name in _FILE[part]}
    for part in ("images", "training")
)
PHOTO_EPOCHS: dict[str, int] = _FILE["photo_epochs"]


def applied(name: str, config: Config) -> Config:
    """Returns settings with those of a recipe of training."""
    return dataclasses.replace(config, **TRAINING[name])


def prepared(config: Config) -> Config:
    """Returns settings with the preparation and augmentation of the data set.

    A version or a variant of TensorFlow Datasets after `:` or `/` in the name
    does not matter.
    """
    name = config.dataset.split(":")[0].split("/")[0]
    return dataclasses.replace(config, **IMAGES.get(name, {}))
