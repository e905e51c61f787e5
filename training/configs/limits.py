"""Limits of each setting, for flags and for configs that were edited."""

from collections.abc import Mapping
from typing import Any

from tfcaps.rem.targets import check_targets

# Lowest and highest value; `None` is no limit.
RANGES: dict[str, tuple[float, float | None]] = {
    "batch_size": (1, None),
    "brightness": (0.0, None),
    "brightness_delta": (0.0, None),
    "contrast": (0.0, None),
    "counterfactual_necessity": (0.0, 1e6),
    "counterfactual_sufficiency": (0.0, 1e6),
    "coupling_crowding": (0.0, 1e6),
    "coupling_polarization": (0.0, 1e6),
    "coupling_ramp": (0.0, 1.0),
    "coupling_share": (0.0, 1.0),
    "coupling_spread": (0.0, 1e6),
    "crop": (1, None),
    "decay": (0.0, 1.0),
    "decay_factor": (0.0, 1.0),
    "decay_power": (0.0, None),
    "epochs": (1, None),
    "final_sparsity": (0.0, 0.999),
    "fine_tune_epochs": (0, None),
    "hard_margin_from": (0, None),
    "learning_rate": (0.0, 1e3),
    "learning_rate_decay": (0.0, 1.0),
    "levels": (2, 256),
    "max_searches": (1, None),
    "min_accuracy": (0.0, 1.0),
    "patience": (1, None),
    "pruning_begin": (0.0, 1.0),
    "pruning_end": (0.0, 1.0),
    "recolour": (0.0, 1.0),
    "reconstruction_weight": (0.0, None),
    "resize": (1, 8192),
    "rotation": (0.0, 180.0),
    "rounds": (1, 100),
    "samples": (1, None),
    "search_samples": (1, None),
    "seed": (0, 2**32 - 1),
    "sharpness_start": (1e-3, 1e6),
    "shift": (0, None),
    "std": (1e-12, None),
    "stop_accuracy": (0.0, 1.0),
    "tolerance": (0.0, None),
    "validation": (0.0, 0.5),
    "zoom": (0.1, 10.0),
}
CHOICES = {
    "decoder": ("none", "joint", "frozen"),
    # Not float16: its gradients would have to be scaled.
    "dtype_policy": ("float32", "mixed_bfloat16"),
    "fill": ("black", "edge"),
    "mode": ("midtread", "midrise"),
    "pruning": ("polynomial", "one_shot", "snip", "iterative", "none"),
    "scope": ("global", "tensor"),
    "strategy": ("none", "mirrored", "data-parallel"),
}


def check(settings: Mapping[str, Any]) -> None:
    """Raises `ValueError` unless all settings, by name, are within limits."""
    for name, (low, high) in RANGES.items():
        values = settings[name]
        for value in values if isinstance(values, tuple) else (values,):
            # Written so that NaN is outside.
            if value is not None and not (
                low <= value and (high is None or value <= high)
            ):
                limits = f"at least {low}"
                if high is not None:
                    limits = f"from {low} to {high}"
                raise ValueError(f"{name} is {value!r}; it must be {limits}")
    for name, choices in CHOICES.items():
        if settings[name] not in choices:
            raise ValueError(
                f"{name} is {settings[name]!r}; it must be one of "
                f"{', '.join(choices)}"
            )
    if settings["pruning_begin"] > settings["pruning_end"]:
        raise ValueError("pruning_begin is after pruning_end")
    check_targets(settings["decay_targets"])
