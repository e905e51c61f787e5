"""Settings for scikit-learn's digits, the default of the main job.

python training/run.py --rem
"""

from training.configs import Config


def get_config() -> Config:
    """Returns the settings for digits."""
    return Config(
        epochs=3,
        batch_size=32,
        learning_rate=5e-3,
        shift=1,
        iterations=5,
    )
