"""Settings for data sets that have no file of their own.

python training/run.py --rem --dataset mnist --data-dir FOLDER
"""

from training.configs import Config


def get_config() -> Config:
    """Returns the defaults."""
    return Config()
