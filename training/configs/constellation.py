"""Settings for trees that name their parts, the default of the main job.

python training/run.py --rem
python training/run.py --rem --dataset figures_of_four
python training/run.py --rem --dataset pictures/ --model constellation_capsnet

The number of kinds of parts is given (`--part-types`), no kind and no place of
any part. The settings were chosen on figures of the data seeds 0 and 777.
"""

import dataclasses

from training.configs import Config

MODEL = "constellation_capsnet"
# Kinds of parts in the data set.
PART_TYPES = {"figures": 5, "figures_of_four": 6}


def with_recipe(config: Config) -> Config:
    """Returns the settings of a data set for this network.

    REM prunes the trained network: what a type stands for is found once.
    """
    return dataclasses.replace(
        config,
        model=MODEL,
        part_types=PART_TYPES.get(config.dataset),
        epochs=4,
        trials=5,
        trial_epochs=2,
        rem_epochs=3,
        warm_start=True,
        batch_size=64,
        learning_rate=3e-3,
        shift=0,
        final_sparsity=0.7,
        pruning_begin=0.0,
        pruning_end=0.5,
    )
