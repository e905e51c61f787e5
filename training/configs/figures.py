"""Settings for figures made of parts, of a network whose trees are maps.

python training/run.py --rem --dataset figures --model parts_capsnet

The network that is the default on figures is in `constellation.py`.
"""

from training.configs import Config


def get_config() -> Config:
    """Returns the settings for figures, and for other networks."""
    return Config(
        dataset="figures",
        model="parts_capsnet",
        epochs=20,
        batch_size=64,
        learning_rate=3e-3,
        shift=0,
        sharpness_start=15.0,
        final_sparsity=0.6,
        pruning_begin=0.2,
        pruning_end=0.8,
        coupling_spread=0.7,
        coupling_polarization=0.3,
        coupling_crowding=4.0,
        coupling_share=0.25,
        coupling_types=True,
        counterfactual_necessity=1.0,
        counterfactual_sufficiency=1.0,
    )
