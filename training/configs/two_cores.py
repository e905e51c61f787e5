"""Efficient-CapsNet on MNIST and Fashion-MNIST, as far as two CPU cores go.

python training/experiments.py two_cores --data-dir ~/tensorflow_datasets

Expected time, one run on one of two CPU cores that computes in bfloat16, beside
other work: MNIST about 15 min, Fashion-MNIST about an hour. GPU: unmeasured.
Expected result: the accuracy of the baseline is 99.56 % and 92.7 %. REM on
MNIST costs 0.2 points and leaves 1.5 bits of 9.9, at a T-score of 0.73; 60 % of
the children are coupled with the predicted class instead of 84 %, and no tree
has every child. On Fashion-MNIST it is unmeasured.
"""

from training.configs import paper
from training.configs.experiment import Experiment, Row
from training.published import TABLE_1, TABLE_9

_NETWORK = "Eff-CapsNet"
_EPOCHS = {"MNIST": 6, "F-MNIST": 20}
_LEARNING_RATE = 3e-3
COLUMNS = (
    paper.ACCURACY,
    paper.ENTROPY,
    paper.SPARSITY,
    paper.PARAMETERS,
    paper.OFF_UNIFORM,
    paper.IN_TREE,
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
        target = float(cells["+REM"][2] or 0)
        unpruned = {m: cells[m] for m in ("vanilla", "+Q")}
        rows += _rows(dataset, "–", 0.0, unpruned, name="-baseline", rem=False)
        rows += _rows(
            dataset,
            f"{target} %",
            target,
            {"+REM": cells["+REM"]},
        )
        rows += _rows(dataset, "90 %", 90.0, {"+REM": ()}, name="-90")
    return Experiment(
        "Efficient-CapsNet on two CPU cores",
        ("data set", "target sparsity", "model"),
        COLUMNS,
        tuple(rows),
        (42, 43, 44),
        (
            f"{_EPOCHS['MNIST']} epochs, of F-MNIST {_EPOCHS['F-MNIST']}; Adam "
            f"{_LEARNING_RATE:g} with a cosine to 0, batches of 128, in mixed "
            "bfloat16, measured in float32; pruning to the target at 60 % of "
            "the training, and the coupling loss of `training/run.py --rem`.",
            "The published column is that of 1,000 epochs at most; 90 % has "
            "none.",
            paper.BEST_AGAINST_LAST,
        ),
    )


def _rows(dataset, label, sparsity, published, name="", **changes) -> list[Row]:
    settings = {
        "epochs": _EPOCHS[dataset],
        "learning_rate": _LEARNING_RATE,
        "dtype_policy": "mixed_bfloat16",
        "baseline": "rem" in changes,
        **changes,
    }
    return paper.rows(
        (dataset, label),
        paper.run_name(dataset, _NETWORK) + name,
        paper.config("short", dataset, _NETWORK, sparsity, **settings),
        COLUMNS,
        published,
    )
