"""The settings of a run where flags say nothing else."""

import dataclasses

from training import pictures, presets
from training.configs import Config


def load(
    dataset: str, model: str | None = None, backbone: str | None = None
) -> Config:
    """Returns the settings of a data set: its own, or the defaults.

    Preparation and augmentation are those of the data set's protocol.
    """
    if backbone is not None and model in (None, presets.CONSTELLATION):
        return presets.on_backbone(load(dataset))
    if dataset in presets.PARTS:
        config = dataclasses.replace(presets.figures(), dataset=dataset)
        is_default = model in (None, presets.CONSTELLATION)
        return (
            presets.constellation(Config(dataset=dataset))
            if is_default
            else config
        )
    if dataset == "kanji" and model in (None, presets.CONSTELLATION):
        return presets.shared_parts(Config(dataset=dataset))
    if model == presets.CONSTELLATION:
        found = pictures.get_config(dataset, model)
        return presets.constellation(found or Config(dataset=dataset))
    if dataset == "digits":
        return presets.digits()
    if dataset in presets.PHOTO_EPOCHS and model in (None, presets.PHOTOS):
        return presets.photos(dataset)
    if dataset and (found := pictures.get_config(dataset, model)):
        return found
    config = Config(dataset=dataset, **presets.protocol(dataset))
    return presets.with_losses(config, model)
