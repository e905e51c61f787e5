"""Table 1: four networks on three data sets, Eff-ConvCapsNet on photos.

python experiments/run.py table_1 --data-dir ~/tensorflow_datasets
python experiments/run.py table_1 --recipe paper --data-dir ...

Expected time, all rows and five seeds: on two CPU cores about 170 days, half of
them DeepCaps at 64x64, which is an estimate from the step times in
results/networks.md, and many times that with `--recipe paper`. GPU: unmeasured.
Expected result: the published column.
"""

from experiments import paper
from experiments.experiment import Experiment, Row
from experiments.published import TABLE_1

# Copies that are smaller than those of TensorFlow Datasets.
_PREPARED = {
    "Dogs vs. Cats": (
        "cats_vs_dogs_128px_subset",
        "Dogs vs. Cats, subset of 4,000",
    ),
    "Imagenette": ("imagenette_128px", "Imagenette, as JPEG of 128x128"),
}
COLUMNS = (
    paper.ACCURACY,
    paper.ENTROPY,
    paper.SPARSITY,
    paper.OFF_UNIFORM,
    paper.T_SCORE,
)


def get_experiment(recipe: str = "short") -> Experiment:
    """Returns the experiment of table 1."""
    rows = []
    for (dataset, network), cells in TABLE_1.items():
        vanilla, q, q_bits, rem, rem_bits, sparsity = cells
        rows += paper.rows(
            (dataset, network),
            paper.run_name(dataset, network),
            paper.config(recipe, dataset, network, sparsity or 0),
            COLUMNS,
            {
                "vanilla": (vanilla, None),
                "+Q": (q, q_bits),
                "+REM": (rem, rem_bits, sparsity),
            },
        )
        if dataset in _PREPARED:
            rows += _prepared(recipe, dataset, network, sparsity)
    return Experiment(
        "Table 1: accuracy, entropy and sparsity",
        ("data set", "network", "model"),
        COLUMNS,
        tuple(rows),
        paper.SEEDS,
        (
            paper.RECIPE_NOTES[recipe],
            paper.LOSSY_CIFAR,
            "Dogs vs. Cats: the split of the paper is not known, and the "
            "published +Q is 1.5 points better than vanilla although it is the "
            "same network with coarser couplings: one of the two is from "
            "another run or split. The subset has 2,000 images for training "
            "and is not to be compared with the whole set.",
            "F-MNIST, DeepCaps: the published +REM is 2.25 points better than "
            "vanilla at 83.29 % sparsity, which the released code cannot "
            "reach, because it never prunes the class matrices, 19.4 % of the "
            "weights. Here they are pruned.",
            "F-MNIST, DR-CapsNet: 8.64 ± 1.15 bits of +Q stand in table 2 "
            "again, for affNIST; one is likely to be a slip.",
            "γ-CapsNet and DeepCaps sometimes gain more than a deviation by "
            "pruning. " + paper.BEST_AGAINST_LAST,
            paper.DEEPCAPS,
        ),
    )


def _prepared(
    recipe: str, dataset: str, network: str, sparsity: str | None
) -> list[Row]:
    """What was prepared for this project; the paper has no numbers for it."""
    name, label = _PREPARED[dataset]
    return paper.rows(
        (label, network),
        f"{name}-{paper.NETWORKS[network]}",
        paper.config(recipe, dataset, network, sparsity or 0, dataset=name),
        COLUMNS,
        {"vanilla": (), "+Q": (), "+REM": ()},
    )
