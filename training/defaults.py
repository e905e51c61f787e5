"""The settings of a run where flags say nothing else."""

import dataclasses

from training import pictures, presets
from training.configs import Config


def load(
    dataset: str, model: str | None = None, backbone: str | None = None
) -> Config:
    """Returns the settings of a run where flags say nothing else.

    Preparation and augmentation are those of the data set's protocol, or follow
    from the pictures of a folder.
    """
    names_parts = model in (None, presets.CONSTELLATION)
    if backbone is not None and names_parts:
        return presets.on_backbone(load(dataset))
    if dataset in presets.PARTS and not names_parts:
        return dataclasses.replace(presets.figures(), dataset=dataset)
    if dataset in presets.PARTS or (dataset == "kanji" and names_parts):
        return presets.constellation(Config(dataset=dataset))
    if dataset == "digits" and model != presets.CONSTELLATION:
        return presets.digits()
    if dataset in presets.PHOTO_EPOCHS and model in (None, presets.PHOTOS):
        return presets.photos(dataset)
    found = pictures.get_config(dataset, model) if dataset else None
    if model == presets.CONSTELLATION:
        return presets.constellation(found or Config(dataset=dataset))
    config = Config(dataset=dataset, **presets.protocol(dataset))
    return found or presets.with_losses(config, model)
