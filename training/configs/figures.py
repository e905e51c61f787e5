"""Settings for figures made of parts, the default of the main job.

python training/run.py --rem
"""

from training.configs import Config


def get_config() -> Config:
    """Returns the settings for figures."""
    return Config(
        dataset="figures",
        model="constellation_capsnet",
        part_types=5,
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
        coupling_spread=0.7,
        coupling_polarization=0.3,
        coupling_crowding=4.0,
        coupling_share=0.25,
        coupling_types=True,
        counterfactual_necessity=1.0,
        counterfactual_sufficiency=1.0,
    )
