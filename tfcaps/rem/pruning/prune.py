"""Pruning as one callback of `fit`."""

from typing import Any

import keras
import numpy as np

from tfcaps.ops import check_one_of, check_that
from tfcaps.rem.pruning.iterative import prune_iteratively
from tfcaps.rem.pruning.pruning import (
    UpdatePruningStep,
    prune_low_magnitude,
    strip_pruning,
)
from tfcaps.rem.pruning.single_shot import prune_single_shot
from tfcaps.rem.pruning.structured import prune_structured

_STRATEGIES = ("polynomial", "one_shot", "structured", "snip", "iterative")
# Strategies that look at images, and whether these are not trained on.
_LOOK_AT = {"snip": "training", "iterative": "validation"}
# About how often the masks of a schedule are rewritten.
_UPDATES = 100


def update_steps(begin: float, end: float, total: int) -> range:
    """Returns the steps at which masks change, of a share of a training."""
    first = round(begin * total)
    last = max(round(end * total), first + 1)
    return range(first, last + 1, max((last - first) // _UPDATES, 1))


class Prune(UpdatePruningStep):
    """Prunes a model while `fit` trains it, and strips it at the end.

        model.fit(images, labels, epochs=6, callbacks=[tfcaps.rem.Prune(0.7)])

    It begins one of the strategies of `tfcaps.rem` when training begins, drives
    it as `UpdatePruningStep` does, and calls `strip_pruning` when training
    ends. A schedule is one of the whole training: of the epochs that `fit` is
    given and of their steps, or of epochs alone where steps are not known. It
    goes on where a training is resumed, by Keras' `BackupAndRestore`, which may
    stand before or after it, or by `initial_epoch`. Callbacks that set weights
    when training ends, such as `EarlyStopping` with `restore_best_weights`,
    stand before it: what they set after it is not pruned.

    Args:
        sparsity: Float in (0, 1). The share of the weights that is pruned at
            the end; of `"structured"` that of the multiply-adds, and of
            `"iterative"` the most there may be.
        strategy: One of

            - `"polynomial"`: the smallest magnitudes of all weights, by a share
              that grows, see `prune_low_magnitude`;
            - `"one_shot"`: the same at once, half way between `begin` and
              `end`;
            - `"structured"`: whole units, see `prune_structured`; call
              `tfcaps.rem.compact` afterwards;
            - `"snip"`: before the first step, see `prune_single_shot`;
            - `"iterative"`: after each epoch what the loss does not need, see
              `prune_iteratively`.

            Defaults to `"polynomial"`.
        begin: Float. The share of the training at which a schedule begins.
            Defaults to `0.2`.
        end: Float. That at which it ends. Defaults to `0.8`.
        data: Images and labels: of `"snip"` some to train on, of `"iterative"`
            some that are not. Defaults to `None`.
        **settings: Other arguments of the strategy's function.

    Raises:
        ValueError: If an argument is out of range, or when training begins, as
            the strategy's function does.
    """

    def __init__(
        self,
        sparsity: float,
        strategy: str = "polynomial",
        *,
        begin: float = 0.2,
        end: float = 0.8,
        data: Any = None,
        **settings: Any,
    ):
        super().__init__()
        is_number = isinstance(sparsity, (float, int, np.number))
        fits = is_number and 0.0 < sparsity < 1.0
        check_that(fits, "be above 0 and less than 1", sparsity=sparsity)
        check_one_of(_STRATEGIES, strategy=strategy)
        if not 0.0 <= begin <= end <= 1.0:
            raise ValueError(
                "`begin` and `end` must be shares of the training, the first "
                f"one first. Received: begin={begin}, end={end}."
            )
        if (data is None) == (strategy in _LOOK_AT):
            raise ValueError(
                f"Strategy {strategy!r} needs {_LOOK_AT[strategy]} images and "
                "labels: give them as `data`."
                if strategy in _LOOK_AT
                else f"Strategy {strategy!r} looks at no images; leave out "
                "`data`."
            )
        # The last one is what `prune_low_magnitude` asks a schedule for.
        self.sparsity = self.final_sparsity = sparsity
        self.strategy, self.data, self.settings = strategy, data, settings
        self.begin, self.end = begin, end
        self._pruning: Any = None

    def set_model(self, model: keras.Model) -> None:
        # Before a callback loads an optimiser that had the masks.
        if model is not None and self._pruning is None:
            self._start(model)
        super().set_model(model)

    def on_train_begin(self, logs: Any = None) -> None:
        if self._pruning is None:  # of a further `fit`
            self._start(self.model)
        self._steps: range | None = None
        self._is_late = False
        super().on_train_begin(logs)

    def on_epoch_begin(self, epoch: int = -1, logs: Any = None) -> None:
        super().on_epoch_begin(epoch, logs)
        steps, unit = self.params.get("steps"), 1
        if steps is not None:
            unit = max(round(steps / self._batches_per_step), 1)
        if self._steps is None:
            # The step of the optimiser before the first one of the training.
            self._before = self._first_step - 1 - epoch * unit
            total = self.params["epochs"] * unit
            self._steps = update_steps(self.begin, self.end, total)
            if self.strategy == "one_shot":
                middle = max((self._steps[0] + self._steps[-1] + 1) // 2, 1)
                self._steps = range(middle, middle + 1)
        self._epoch = epoch + 1 if steps is None else None

    def on_train_end(self, logs: Any = None) -> None:
        strip_pruning(self.model)
        self._pruning = None

    def _start(self, model: keras.Model) -> None:
        if self.strategy == "structured":
            prune_structured(model, self, **self.settings)
        elif self.strategy == "snip":
            prune_single_shot(model, self.data, self.sparsity, **self.settings)
        elif self.strategy == "iterative":
            limit = {"max_sparsity": self.sparsity}
            prune_iteratively(model, self.data, **limit | self.settings)
        else:
            scope = {"scope": "global"}
            prune_low_magnitude(model, self, **scope | self.settings)
        self._pruning = model.pruning

    def __call__(self, step: int) -> tuple[bool, float]:
        """Returns whether to prune at a step of the optimiser, and how much.

        The callback is the schedule of its strategy.
        """
        if self._steps is None:
            return False, 0.0
        step -= self._before
        if self._epoch is not None:  # once an epoch
            step, self._epoch = self._epoch, -1
            if step < 0:
                return False, 0.0
        first, last = self._steps[0], self._steps[-1]
        # tfmot's polynomial, from a sparsity of 0.
        left = min(max((last - step) / max(last - first, 1), 0.0), 1.0)
        share = self.sparsity * (1.0 - left**3)
        # Also of a training that was resumed after its end.
        is_time = step in self._steps or (step > last and not self._is_late)
        self._is_late |= step > last
        return is_time, share
