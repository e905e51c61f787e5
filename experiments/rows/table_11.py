"""Table 11: how many keys each class has, DR-CapsNet.

python experiments/run.py table_11 --data-dir ~/tensorflow_datasets \\
    --take-from runs/table_1-short runs/table_2-short runs/table_10-short

Its runs are those of tables 1, 2 and 10; what is finished there is not
repeated.

Expected time, all rows and five seeds: on two CPU cores about 23 days without
Tiny ImageNet, which is an estimate from the step times in results/networks.md,
and many times that with `--recipe paper`. GPU: unmeasured.
Expected result: the published column.
"""

from experiments import paper
from experiments.experiment import Experiment, Row
from experiments.published import TABLE_1, TABLE_2, TABLE_10, TABLE_11
from training.tables import Column

_NETWORK = "DR-CapsNet"
_CLASSES = 10
COLUMNS = (
    Column("keys, +Q", "baseline.per_class.num_keys", 0, 1, "median"),
    Column("keys, +REM", "rem.per_class.num_keys", 0, 1, "median"),
)


def get_experiment(recipe: str = "short") -> Experiment:
    """Returns the experiment of table 11."""
    return Experiment(
        "Table 11: keys per class, DR-CapsNet",
        ("data set", "class"),
        COLUMNS,
        tuple(
            _row(recipe, dataset, j)
            for dataset in dict.fromkeys(dataset for dataset, _ in TABLE_11)
            for j in range(_CLASSES)
        ),
        paper.SEEDS,
        (
            paper.RECIPE_NOTES[recipe],
            "A class cannot have more keys than images: about 1,000 on "
            "F-MNIST and CIFAR-10, 32,000 on affNIST, 50 on Tiny ImageNet.",
            "Tiny ImageNet: the first ten of 200 classes. Some published "
            "numbers exceed 50 because keys are counted by predicted class.",
            paper.LOSSY_CIFAR,
            paper.BEST_AGAINST_LAST,
        ),
    )


def _row(recipe: str, dataset: str, j: int) -> Row:
    published = tuple(TABLE_11[dataset, model][j] for model in ("+Q", "+REM"))
    return Row(
        (dataset, str(j)),
        paper.run_name(dataset, _NETWORK),
        paper.config(recipe, dataset, _NETWORK, _sparsity(dataset)),
        tuple(f"{column.field}.{j}" for column in COLUMNS),
        published,
    )


def _sparsity(dataset: str) -> str | float:
    """The sparsity of the table that the run belongs to."""
    if dataset == "affNIST":
        return TABLE_2["well trained", "+REM"][-1] or 0
    if dataset == "Tiny ImageNet":
        return TABLE_10[_NETWORK, "+REM"][-1] or 0
    return TABLE_1[dataset, _NETWORK][-1] or 0
