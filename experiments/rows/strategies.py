"""Pruning strategies at equal sparsity, on digits and on a part of MNIST.

python experiments/run.py strategies --only 'digits-*'
python experiments/run.py strategies --data-dir ~/tensorflow_datasets

Expected time on two CPU cores: 1 to 4 min a run on one of them, beside other
work. GPU: unmeasured.
Expected result: the decay lowers the entropy, whatever prunes: on MNIST from 8
bits to 5, but by trees of every child. Without it the iterative pruning stops
at 63 % there.
"""

import dataclasses

from experiments import paper
from experiments.experiment import Experiment, Row, fields_of
from training import configs
from training.configs import Config
from training.tables import Column

_SPARSITY = 0.8
_STRATEGIES = ("none", "one_shot", "polynomial", "snip", "iterative")
COLUMNS = (
    paper.ACCURACY,
    paper.ENTROPY,
    Column("entropy / ceiling", "normalized_entropy", 3),
    Column("keys", "median_keys", 0, 1, "median"),
    paper.OFF_UNIFORM,
    paper.WHOLE,
    paper.T_SCORE,
    paper.SPARSITY,
)
LABELS = ("data set", "strategy", "decay", "model")


def get_experiment() -> Experiment:
    """Returns the comparison of pruning strategies."""
    rows = []
    for dataset, base in (("digits", digits()), ("mnist", part_of_mnist())):
        rows.append(baseline_row(dataset, base, LABELS, COLUMNS))
        for decay in (0.0, base.decay):
            rows += [
                _row(dataset, base, pruning, decay)
                for pruning in _STRATEGIES
                # Without decay or pruning it is the baseline.
                if (pruning, decay) != ("none", 0.0)
            ]
    return Experiment(
        "Pruning strategies at equal sparsity",
        LABELS,
        COLUMNS,
        tuple(rows),
        (0, 1, 2, 3, 4),
        (
            f"All but `none` prune {100 * _SPARSITY:g} % of the weights; "
            "`iterative` prunes no more than that, and less where the "
            "validation loss would grow.",
            "mnist is 10,000 images for 10 epochs.",
            "Whole trees of runs that are older than this measure were counted "
            "afterwards, in the dictionaries that the runs left.",
        ),
        figures=("comparison",),
    )


def digits() -> Config:
    """The main job's settings for digits, the REM model alone."""
    return _alone(before_faithfulness(configs.load("digits")))


def before_faithfulness(config: Config) -> Config:
    """The settings that were the default until trees were tested for use."""
    return dataclasses.replace(
        config,
        epochs=80,
        rotation=0.0,
        pruning_begin=0.0,
        pruning_end=0.6,
        coupling_spread=1.0,
        coupling_polarization=0.6,
        coupling_crowding=2.0,
        coupling_share=0.5,
        **paper.NO_COUNTERFACTUAL_LOSS,
    )


def part_of_mnist() -> Config:
    """A part of MNIST that two CPU cores can do several times."""
    return dataclasses.replace(
        _alone(before_faithfulness(configs.load("mnist"))),
        samples=10_000,
        epochs=10,
    )


def _alone(config: Config) -> Config:
    """The REM model alone, by pruning and decay, as in the paper."""
    return dataclasses.replace(
        config,
        rem=True,
        baseline=False,
        decay=0.01,
        coupling_ramp=0.0,
        **paper.NO_COUPLING_LOSS,
    )


def baseline_row(
    dataset: str,
    base: Config,
    labels: tuple[str, ...],
    columns: tuple[Column, ...],
) -> Row:
    """Returns the row of the network that is neither pruned nor decayed."""
    empty = ("–",) * (len(labels) - 2)
    return Row(
        (dataset, *empty, "+Q"),
        f"{dataset}-baseline",
        dataclasses.replace(base, rem=False, baseline=True),
        fields_of("+Q", columns),
    )


def _row(dataset: str, base: Config, pruning: str, decay: float) -> Row:
    return Row(
        (dataset, pruning, f"{decay:g}", "+REM"),
        f"{dataset}-{pruning}-decay{decay:g}",
        dataclasses.replace(
            base,
            pruning=pruning,
            decay=decay,
            final_sparsity=_SPARSITY,
        ),
        fields_of("+REM", COLUMNS),
    )
