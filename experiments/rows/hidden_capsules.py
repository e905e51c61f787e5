"""Networks with capsules between the primary and the class capsules, on MNIST.

python experiments/run.py hidden_capsules --data-dir ~/tensorflow_datasets

Trees are those of the class layer: its children are hidden capsules, which see
the whole image in multilayer CapsNet and γ-CapsNet, and parts of it in the
others. Whether a network uses such trees is what the rows tell.

Expected time on one of two CPU cores, baseline and REM, in hours: multilayer
CapsNet under one, the others some three or four each. GPU: unmeasured.
"""

import dataclasses
from typing import Any

from experiments import paper
from experiments.experiment import Experiment, Row, fields_of
from training import configs

LABELS = ("network", "images", "epochs", "model")
COLUMNS = (
    paper.ACCURACY,
    paper.ENTROPY,
    *paper.FAITHFULNESS,
    paper.T_SCORE,
    paper.IN_TREE,
    paper.WHOLE,
    paper.SPARSITY,
    paper.PARAMETERS,
    paper.MULTIPLY_ADDS,
)
# Training images, all 54,000 without a number, and epochs of each model.
_BUDGETS: dict[str, tuple[int | None, int]] = {
    "multilayer_capsnet": (None, 4),
    "gamma_capsnet": (20_000, 4),
    "em_capsnet": (10_000, 6),
    "deepcaps": (10_000, 8),
}
# The lighter ones of `efficient_capsnet`.
_SETTINGS: dict[str, Any] = {
    "rem": True,
    "warm_start": True,
    "final_sparsity": 0.73,
    "learning_rate": 1e-3,
    "dtype_policy": "mixed_bfloat16",
    "coupling_spread": 0.4,
    "coupling_polarization": 0.2,
}


def get_experiment() -> Experiment:
    """Returns the experiment."""
    rows = []
    for model, (samples, epochs) in _BUDGETS.items():
        config = dataclasses.replace(
            configs.load("mnist"),
            model=model,
            samples=samples,
            epochs=epochs,
            **_SETTINGS,
        )
        images = "all" if samples is None else f"{samples:,}"
        for shown in ("+Q", "+REM"):
            labels = (model, images, str(epochs), shown)
            rows.append(Row(labels, model, config, fields_of(shown, COLUMNS)))
    return Experiment(
        "Networks with hidden capsules on MNIST",
        LABELS,
        COLUMNS,
        tuple(rows),
        (42,),
        (
            "Adam 0.001 with a cosine to 0, batches of 128, in mixed bfloat16, "
            "measured in float32. REM begins with the baseline's weights and "
            "is trained for as many epochs, pruned to 73 % at 60 % of them, "
            "with lighter losses of couplings than the main job's.",
        ),
    )
