"""The pruning strategies of the command line: `--pruning NAME`.

Each is a module of its name, whose `begin(model, config, data, batches)` begins
the strategy on a compiled model; `rem.UpdatePruningStep` drives it and
`rem.strip_pruning` ends it. To add one, add its module and its line here. Say
`SCHEDULED = True` in it if it prunes up to the setting `pruning_end`; no
training then stops before.
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
    _module(config.pruning).begin(model, config, data, batches)


def is_scheduled(name: str) -> bool:
    """Returns whether a strategy prunes up to the setting `pruning_end`."""
    return getattr(_module(name), "SCHEDULED", False)


def _module(name: str) -> Any:
    return importlib.import_module(f"training.pruning.{name}")
