"""Table 2: trained on expanded MNIST, tested on affNIST.

python experiments/run.py table_2 --data-dir FOLDER_WITH_AFFNIST
python experiments/run.py table_2 --recipe paper --data-dir ...

Expected time, all rows and five seeds: on two CPU cores about 20 days, which is
an estimate from the step times in results/networks.md, and many times that with
`--recipe paper`. GPU: unmeasured.
Expected result: the published column.
"""

from experiments import paper
from experiments.experiment import Experiment
from experiments.published import TABLE_2
from training.tables import Column

COLUMNS = (
    Column("expanded MNIST, %", "tests.expanded.accuracy", 2, 100),
    paper.ACCURACY,
    paper.ENTROPY,
    paper.SPARSITY,
    paper.OFF_UNIFORM,
    paper.T_SCORE,
)
# On expanded MNIST, whose test set is the validation set here.
_UNDER_TRAINED = 0.9922


def get_experiment(recipe: str = "short") -> Experiment:
    """Returns the experiment of table 2."""
    sparsity = TABLE_2["well trained", "+REM"][3]
    trained = {m: TABLE_2["well trained", m] for m in ("+Q", "+REM")}
    ours = paper.config(
        recipe, "affNIST", "DR-CapsNet", sparsity or 0, dataset="affine_mnist"
    )
    under = {m: TABLE_2["under-trained", m] for m in ("+Q", "+REM")}
    rows = paper.rows(
        ("affNIST", "under-trained"),
        paper.run_name("affNIST", "DR-CapsNet") + "-under-trained",
        paper.config(
            recipe,
            "affNIST",
            "DR-CapsNet",
            under["+REM"][3] or 0,
            stop_accuracy=_UNDER_TRAINED,
        ),
        COLUMNS,
        under,
    )
    rows += paper.rows(
        ("affNIST", "well trained"),
        paper.run_name("affNIST", "DR-CapsNet"),
        paper.config(recipe, "affNIST", "DR-CapsNet", sparsity or 0),
        COLUMNS,
        trained,
    )
    rows += paper.rows(
        ("affine MNIST, generated", "well trained"),
        "affine_mnist-dr_capsnet",
        ours,
        COLUMNS,
        {model: () for model in trained},
    )
    return Experiment(
        "Table 2: robustness to affine transformations, DR-CapsNet",
        ("test set", "training", "model"),
        COLUMNS,
        tuple(rows),
        paper.SEEDS,
        (
            paper.RECIPE_NOTES[recipe],
            "Expanded MNIST: digits on 40x40 pixels. As in the released code, "
            "its test set is MNIST's, which also is the validation set: the "
            "column is what was selected by, not a test.",
            "Under-trained is a network whose training ends after the epoch "
            "that reaches 99.22 % on expanded MNIST; with a schedule of "
            "pruning, not before its end.",
            "Generated affine MNIST is made here of MNIST's test digits, in "
            "the manner of affNIST; it is another set and has no published "
            "numbers.",
            "8.64 ± 1.15 bits of the under-trained +Q stand in table 1 again, "
            "for F-MNIST; one is likely to be a slip.",
            paper.BEST_AGAINST_LAST,
        ),
    )
