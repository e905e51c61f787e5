"""Settings for photos: large, in colours, their objects anywhere.

python training/run.py --rem --dataset cats_vs_dogs_128px_subset
"""

import dataclasses

from training.configs import Config, figures

MODEL = "parts_capsnet_photos"
# Rows and columns: the network's windows of 31 pixels are a third of it.
SIDE = 96
STEPS = 4000

# Passes over the training images: some 4,000 steps.
_EPOCHS = {
    "cats_vs_dogs": 12,
    "cats_vs_dogs_128px_subset": 70,
    "imagenette": 30,
    "imagenette_128px": 30,
}
DATASETS = tuple(_EPOCHS)


def get_config(dataset: str) -> Config:
    """Returns the settings for one of `DATASETS`."""
    return dataclasses.replace(
        rem_settings(figures.get_config()),
        dataset=dataset,
        model=MODEL,
        epochs=_EPOCHS[dataset],
        batch_size=32,
        learning_rate=1e-3,
        resize=SIDE,
        measured=True,
        shift=9,
        flip=True,
        rotation=10.0,
        zoom=(0.8, 1.25),
        fill="edge",
        brightness=(0.7, 1.3),
        contrast=(0.7, 1.3),
    )


def rem_settings(config: Config) -> Config:
    """Returns settings with milder losses of REM, from the baseline's weights.

    Few pictures of a class say little of what they have in common, and sharp
    routing from the start lets no gradient through for long.
    """
    return dataclasses.replace(
        config,
        sharpness_start=1.0,
        coupling_spread=0.05,
        coupling_polarization=0.1,
        coupling_crowding=1.0,
        counterfactual_necessity=0.25,
        counterfactual_sufficiency=0.25,
        final_sparsity=0.5,
        warm_start=True,
    )
