"""Settings for scikit-learn's digits, the default of the main job.

python training/run.py --rem

Chosen among about 65 settings on another split of the same images: sparsity 0.9
with a decay of 0.02 lowers the entropy further and costs half a point of
accuracy; sparsity 0.95 with 0.03 destroys the network.
"""

from training.configs import Config


def get_config() -> Config:
    """Returns the settings for digits."""
    return Config(
        epochs=80,
        batch_size=32,
        learning_rate=5e-3,
        shift=1,
    )
