"""What the functions that train a model hand on."""

from typing import NamedTuple

import keras

from training.batches import Batches
from training.configs import Config
from training.datasets import Data


class Ready(NamedTuple):
    """A model that is ready to be trained.

    Attributes:
        model: The network.
        trained: The same, or a model of its layers with further outputs. On a
            frozen backbone whose features are kept, it begins behind that.
        batches: The training batches.
        network: What of the network is trained, from what `data` has to
            lengths.
        data: Images and labels, or features and labels.
        config: Settings of this training.
    """

    model: keras.Model
    trained: keras.Model
    batches: Batches
    network: keras.Model
    data: Data
    config: Config
