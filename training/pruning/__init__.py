"""The pruning strategies of the command line: `--pruning NAME`.

Each is a module of its name, whose `begin(model, config, data, batches)` begins
the strategy on a compiled model; `rem.UpdatePruningStep` drives it and
`rem.strip_pruning` ends it. To add one, add its module and its line here.
"""

import importlib
from typing import Any

# Name -> what is pruned when.
STRATEGIES = {
    "polynomial": "the smallest magnitudes, more and more of them (tfmot)",
    "one_shot": "the same all at once, in the middle of the training",
    "structured": "whole filters and types of capsules, more and more of them",
    "snip": "the least salient weights, before the training",
    "iterative": "after each epoch what the validation loss does not need",
    "none": "nothing",
}

# Those whose pruning is over at a share of the training, `pruning_end`.
SCHEDULED = ("polynomial", "one_shot", "structured")


def begin(model: Any, config: Any, data: Any, batches: Any) -> None:
    """Begins the strategy of the settings.

    Args:
        model: A compiled `keras.Model` that has not been trained.
        config: `Config`, the settings of the run.
        data: `Data`, images and labels; the validation images guard
            `iterative`.
        batches: `Batches`, those of the training.

    Raises:
        UserError: If the strategy needs validation images and there are none.
    """
    strategy = importlib.import_module(f"training.pruning.{config.pruning}")
    strategy.begin(model, config, data, batches)
