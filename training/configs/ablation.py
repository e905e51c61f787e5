"""What lowers the entropy: schedule x decay x annealing x sparsity.

python training/experiments.py ablation --only 'digits-*'
python training/experiments.py ablation --data-dir ~/tensorflow_datasets

Expected time on two CPU cores: digits about 30 s a run, 65 min in all; MNIST
unmeasured. GPU: unmeasured.
Expected result: sparsity alone hardly lowers the entropy, the decay does, and
too strong a decay makes couplings uniform.
"""

import dataclasses
import itertools

from training.configs import Config, paper
from training.configs.experiment import Experiment, Row, fields_of
from training.configs.strategies import (
    baseline_row,
    digits,
    part_of_mnist,
)
from training.tables import Column

COLUMNS = (
    paper.ACCURACY,
    paper.ENTROPY,
    Column("entropy / ceiling", "normalized_entropy", 3),
    Column("keys", "median_keys", 0, 1, "median"),
    paper.OFF_UNIFORM,
    paper.T_SCORE,
    paper.SPARSITY,
)
LABELS = ("data set", "schedule", "sparsity", "decay", "annealing", "model")
# Of the decay's rate: `(1 - share of training) ** power`.
_ANNEALING = {"to 0": 2.0, "constant": 0.0}
# Schedules x sparsities x decays x annealings.
_GRIDS = {
    "digits": (
        *itertools.product(
            ("polynomial",),
            (0.0, 0.8, 0.9),
            (0.003, 0.01, 0.03),
            _ANNEALING,
        ),
        *itertools.product(("polynomial",), (0.8, 0.9), (0.0,), ("to 0",)),
        *itertools.product(("one_shot",), (0.8,), (0.0, 0.01), ("to 0",)),
    ),
    "mnist": (
        *itertools.product(
            ("polynomial",), (0.0, 0.8), (0.003, 0.01), _ANNEALING
        ),
        *itertools.product(("polynomial",), (0.8,), (0.0,), ("to 0",)),
    ),
}


def get_experiment() -> Experiment:
    """Returns the ablation."""
    rows = []
    for dataset, base in (("digits", digits()), ("mnist", part_of_mnist())):
        rows.append(baseline_row(dataset, base, LABELS, COLUMNS))
        rows += [_row(dataset, base, *point) for point in _GRIDS[dataset]]
    return Experiment(
        "What lowers the entropy: schedule, sparsity, decay, annealing",
        LABELS,
        COLUMNS,
        tuple(rows),
        (0, 1, 2),
        (
            "Annealing `to 0` is quadratic over the training. A sparsity of 0 "
            "is decay without pruning.",
            "mnist is 10,000 images for 10 epochs.",
        ),
    )


def _row(
    dataset: str,
    base: Config,
    schedule: str,
    sparsity: float,
    decay: float,
    annealing: str,
) -> Row:
    if not sparsity:
        schedule = "none"
    words = [dataset, schedule, f"{100 * sparsity:g}", f"decay{decay:g}"]
    words += ["annealed"] if annealing == "to 0" else ["constant"]
    return Row(
        (
            dataset,
            schedule,
            f"{100 * sparsity:g} %",
            f"{decay:g}",
            annealing if decay else "–",
            "+REM",
        ),
        "-".join(words),
        dataclasses.replace(
            base,
            pruning=schedule,
            final_sparsity=sparsity,
            decay=decay,
            decay_power=_ANNEALING[annealing],
        ),
        fields_of("+REM", COLUMNS),
    )
