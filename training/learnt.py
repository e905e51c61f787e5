"""Advises what to do where a network has learnt nothing."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from cli import UserError
from training.configs import Config

# Steps below which a training is likely to have been too short.
_ENOUGH_STEPS = 1500
# Share by which a loss has fallen if anything has been learnt.
_FALLEN = 0.05


def check(
    config: Config,
    num_images: int,
    rows: Sequence[Mapping[str, Any]],
    compared: float | None = None,
) -> None:
    """Ends a run whose baseline has learnt nothing, before REM is trained.

    Args:
        config: Settings of the run.
        num_images: Number of training images.
        rows: What `metrics.jsonl` has of the baseline, in order.
        compared: Accuracy with a dense head. Defaults to `None`, not known.

    Raises:
        UserError: If its last row says so.
    """
    if rows and rows[-1].get("learnt") is False:
        raise UserError(
            f"{rows[-1]['test_accuracy_quantized']:.1%} of the test images are "
            "right, and always naming the most frequent class would be right "
            f"for {rows[-1]['majority_share']:.1%}: the baseline has learnt "
            "nothing, so REM is not trained. "
            f"{advice(config, num_images, rows, compared)} To go on all the "
            "same, add --force."
        )


def advice(
    config: Config,
    num_images: int,
    rows: Sequence[Mapping[str, Any]],
    compared: float | None = None,
) -> str:
    """Returns what to try with a model that has learnt nothing, see `check`."""
    tips = []
    steps = config.epochs * math.ceil(num_images / config.batch_size)
    if steps < _ENOUGH_STEPS:
        tips.append(
            f"{steps:,} steps are few, so give --epochs more, or --batch-size "
            "less"
        )
    if len(rows) > 1 and rows[-1]["loss"] > (1 - _FALLEN) * rows[0]["loss"]:
        tips.append(
            "the loss hardly fell, so try another --learning-rate, ten times "
            "lower or three times higher"
        )
    share = rows[-1]["majority_share"] if rows else 0.0
    dense = "a dense head in the place of the capsules is right for "
    if compared is None:
        tips.append("look whether the labels can be told from the images")
    elif compared > share + (1 - share) / 3:
        tips.append(
            f"{dense}{compared:.1%}, so the labels can be told from the "
            "images, and another --model or --routing may tell them"
        )
    else:
        tips.append(
            f"{dense}{compared:.1%} too, so look whether the labels can be "
            "told from images of this size (--resize)"
        )
    return f"What to try: {'; '.join(tips)}."
