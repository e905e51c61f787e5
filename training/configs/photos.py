"""Settings for photos: large, in colours, their objects anywhere.

python training/run.py --rem --dataset cats_vs_dogs_128px_subset
python experiments/run.py photos --data-dir ~/tensorflow_datasets

Expected time on two CPU cores: 20 to 25 minutes a run. GPU: unmeasured.
Expected result: 75 to 80 %, baseline and REM; the trees are small, and used.
"""

import dataclasses

from training.configs import Config, figures

MODEL = "parts_capsnet_photos"
# Rows and columns, twice the windows of the network.
SIDE = 64

# Passes over the training images: some 360,000 images seen.
_EPOCHS = {
    "cats_vs_dogs": 17,
    "cats_vs_dogs_128px_subset": 200,
    "imagenette": 42,
    "imagenette_128px": 42,
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
        shift=6,
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
