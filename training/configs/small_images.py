"""Settings for small images of one thing each, and for data of unknown kind.

python training/run.py --rem --dataset mnist

Losses and pruning are those that were chosen on digits. Without the
counterfactual loss the trees of such a network are few and clear, and it does
not use them.
"""

import dataclasses

from training.configs import Config

MODEL = "dr_capsnet_small"


def with_losses(config: Config, model: str | None = None) -> Config:
    """Returns settings with the losses by which `MODEL` uses its trees.

    Args:
        config: The settings of a data set.
        model: What `--model` names, or `None`. Those of other networks are
            returned as they are.
    """
    if model not in (None, MODEL):
        return config
    return dataclasses.replace(
        config,
        # Pruned while the couplings are learnt, not before.
        pruning_begin=0.2,
        pruning_end=0.8,
        coupling_spread=0.5,
        coupling_polarization=0.8,
        coupling_crowding=8.0,
        coupling_share=0.385,
        counterfactual_necessity=1.0,
        counterfactual_sufficiency=1.0,
    )
