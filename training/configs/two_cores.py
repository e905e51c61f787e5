"""Efficient-CapsNet on MNIST and Fashion-MNIST, as far as two CPU cores go.

python training/experiments.py two_cores --data-dir ~/tensorflow_datasets

Expected time, one run on one of two CPU cores: about 80 min for the baseline
with REM, half of it for REM alone. GPU: unmeasured.
Expected result, MNIST: 99.6 %, with REM 99.5 % and clear couplings; at 90 %
99.42 %, or with a spread of 10 2.6 bits, near uniform couplings and 99.34 %.
Fashion-MNIST: 91.6 %, with REM 89.6 %.
"""

from training.configs import paper
from training.configs.experiment import Experiment, Row
from training.published import TABLE_1, TABLE_9

_NETWORK = "Eff-CapsNet"
_EPOCHS = 10
# Self-attention between 16 capsules varies more than dynamic routing.
_SPREAD = 10.0
COLUMNS = (
    paper.ACCURACY,
    paper.ENTROPY,
    paper.SPARSITY,
    paper.PARAMETERS,
    paper.OFF_UNIFORM,
    paper.WHOLE,
    paper.T_SCORE,
)


def get_experiment() -> Experiment:
    """Returns the experiment."""
    vanilla, q, q_bits, rem, rem_bits, sparsity = TABLE_1["F-MNIST", _NETWORK]
    published = {
        "MNIST": {m: TABLE_9[_NETWORK, m] for m in ("vanilla", "+Q", "+REM")},
        "F-MNIST": {
            "vanilla": (vanilla, None),
            "+Q": (q, q_bits),
            "+REM": (rem, rem_bits, sparsity),
        },
    }
    rows: list[Row] = []
    for dataset, cells in published.items():
        target = cells["+REM"][2] or 0
        rows += _rows(dataset, f"{target} %", float(target), cells)
        alone = {"published": {"+REM": ()}, "baseline": False}
        rows += _rows(dataset, "90 %", 90.0, name="-90", **alone)
        rows += _rows(
            dataset,
            f"90 %, spread {_SPREAD:g}",
            90.0,
            name=f"-90-spread-{_SPREAD:g}",
            coupling_spread=_SPREAD,
            **alone,
        )
    return Experiment(
        "Efficient-CapsNet on two CPU cores",
        ("data set", "target sparsity", "model"),
        COLUMNS,
        tuple(rows),
        (42, 43, 44),
        (
            f"{_EPOCHS} epochs, otherwise the short recipe: Adam 1e-3 with a "
            "cosine to 0, batches of 128, pruning to the target at 60 % of the "
            "training, decay and coupling loss as in `training/run.py --rem`; "
            f"in the rows so named, the weight of its spread is {_SPREAD:g} "
            "instead of 1.",
            "The published column is that of 1,000 epochs at most; 90 % has "
            "none.",
            paper.BEST_AGAINST_LAST,
        ),
    )


def _rows(dataset, label, sparsity, published, name="", **changes) -> list[Row]:
    return paper.rows(
        (dataset, label),
        paper.run_name(dataset, _NETWORK) + name,
        paper.config(
            "short", dataset, _NETWORK, sparsity, epochs=_EPOCHS, **changes
        ),
        COLUMNS,
        published,
    )
