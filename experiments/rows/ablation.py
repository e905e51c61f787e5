"""What lowers the entropy: schedule, sparsity, decay, annealing, coupling loss.

python experiments/run.py ablation --only 'digits-*'
python experiments/run.py ablation --data-dir ~/tensorflow_datasets

Expected time on two CPU cores: see results/ablation; GPU: unmeasured.
Expected result: sparsity alone hardly lowers the entropy, the decay does, but
makes couplings uniform; the coupling loss lowers it further with couplings that
are clearer than without, and is better without the decay.
"""

import dataclasses
import itertools

from experiments.experiment import Experiment, Row, fields_of
from experiments.rows.strategies import (
    COLUMNS,
    baseline_row,
    digits,
    part_of_mnist,
)
from training.configs import Config

# Of spread, polarization and crowding, and the share of the training that they
# grow over.
Weights = tuple[float, float, float, float]

LABELS = (
    "data set",
    "schedule",
    "sparsity",
    "decay",
    "annealing",
    "coupling loss",
    "model",
)
# Of the decay's rate: `(1 - share of training) ** power`.
_ANNEALING = {"to 0": 2.0, "constant": 0.0}
_NO_LOSS = (0.0, 0.0, 0.0, 0.0)
_LOSS = (1.0, 0.6, 2.0, 1.0)
_HEAVY = (1.5, 1.0, 3.0, 1.0)
# The loss without one of its parts.
_PARTS = (
    (0.0, 0.6, 2.0, 1.0),
    (1.0, 0.0, 2.0, 1.0),
    (1.0, 0.6, 0.0, 1.0),
    (1.0, 0.6, 2.0, 0.0),
)
# Schedule, sparsity, decay, annealing, weights of the coupling loss.
_GRIDS: dict[str, tuple[tuple[str, float, float, str, Weights], ...]] = {
    "digits": (
        ("polynomial", 0.8, 0.0, "to 0", _NO_LOSS),
        ("polynomial", 0.9, 0.0, "to 0", _NO_LOSS),
        *itertools.product(
            ("none", "polynomial"),
            (0.8,),
            (0.003, 0.01, 0.03),
            ("to 0",),
            (_NO_LOSS,),
        ),
        ("polynomial", 0.9, 0.01, "to 0", _NO_LOSS),
        ("polynomial", 0.8, 0.003, "constant", _NO_LOSS),
        ("polynomial", 0.8, 0.01, "constant", _NO_LOSS),
        ("one_shot", 0.8, 0.01, "to 0", _NO_LOSS),
        ("polynomial", 0.8, 0.003, "to 0", _LOSS),
        *itertools.product(
            ("polynomial",),
            (0.8,),
            (0.0,),
            ("to 0",),
            (_LOSS, *_PARTS, (0.5, 0.3, 1.0, 1.0), _HEAVY),
        ),
        ("polynomial", 0.9, 0.0, "to 0", _LOSS),
        ("none", 0.0, 0.0, "to 0", _LOSS),
    ),
    "mnist": (
        ("polynomial", 0.8, 0.0, "to 0", _NO_LOSS),
        ("polynomial", 0.8, 0.01, "to 0", _NO_LOSS),
        ("polynomial", 0.8, 0.01, "constant", _NO_LOSS),
        ("polynomial", 0.8, 0.003, "to 0", _LOSS),
        *itertools.product(
            ("polynomial",),
            (0.8,),
            (0.0,),
            ("to 0",),
            (_LOSS, *_PARTS, _HEAVY),
        ),
    ),
}


def get_experiment() -> Experiment:
    """Returns the ablation."""
    rows = []
    for dataset, base in (("digits", digits()), ("mnist", part_of_mnist())):
        rows.append(baseline_row(dataset, base, LABELS, COLUMNS))
        rows += [_row(dataset, base, *point) for point in _GRIDS[dataset]]
    return Experiment(
        "What lowers the entropy",
        LABELS,
        COLUMNS,
        tuple(rows),
        (0, 1, 2),
        (
            "Annealing `to 0` is quadratic over the training. Schedule `none` "
            "is decay or coupling loss without pruning.",
            "The coupling loss has the weights of spread, polarization and "
            "crowding, see `tfcaps.losses.CouplingLoss`; with a ramp they grow "
            "from 0 over the whole training. Without decay, pruned to 80 %, "
            "it is the default, of which each part is left out in turn.",
            "mnist is 10,000 images for 10 epochs.",
            "Whole trees of runs that are older than this measure were counted "
            "afterwards, in the dictionaries that the runs left.",
        ),
        figures=("frontier",),
        group="coupling loss",
    )


def _row(
    dataset: str,
    base: Config,
    schedule: str,
    sparsity: float,
    decay: float,
    annealing: str,
    weights: Weights,
) -> Row:
    if schedule == "none":
        sparsity = 0.0
    spread, polarization, crowding, ramp = weights
    loss = ", ".join(f"{w:g}" for w in weights[:3]) if any(weights) else "–"
    loss += ", ramp" if ramp else ""
    labels = (
        dataset,
        schedule,
        f"{100 * sparsity:g} %",
        f"{decay:g}",
        annealing if decay else "–",
        loss,
        "+REM",
    )
    words = [word for word in labels[:-1] if word != "–"]
    return Row(
        labels,
        "-".join(words).replace(" %", "").replace(", ", "+").replace(" ", "-"),
        dataclasses.replace(
            base,
            pruning=schedule,
            final_sparsity=sparsity,
            decay=decay,
            decay_power=_ANNEALING[annealing],
            coupling_spread=spread,
            coupling_polarization=polarization,
            coupling_crowding=crowding,
            coupling_ramp=ramp,
        ),
        fields_of("+REM", COLUMNS),
    )
