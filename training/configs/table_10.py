"""Table 10: Tiny ImageNet, DR-CapsNet on a frozen ResNet-18.

python training/experiments.py table_10

Expected time: nothing is run, see the table.
Expected result: the published column.
"""

from training.configs import paper
from training.configs.experiment import Experiment, Row
from training.published import TABLE_10

COLUMNS = (paper.ACCURACY, paper.ENTROPY, paper.SPARSITY)
NO_BACKBONE = (
    "its capsules stand on a ResNet-18 trained on ImageNet, which is not part "
    "of this package"
)


def get_experiment(recipe: str = "short") -> Experiment:
    """Returns the experiment of table 10."""
    rows = tuple(
        Row(
            (network, model),
            "tiny_imagenet-dr_capsnet",
            None,
            (None,) * len(COLUMNS),
            cells,
            missing=NO_BACKBONE,
        )
        for (network, model), cells in TABLE_10.items()
    )
    return Experiment(
        "Table 10: Tiny ImageNet",
        ("network", "model"),
        COLUMNS,
        rows,
        paper.SEEDS,
        (
            paper.RECIPE_NOTES[recipe],
            "The paper's K=129 are 129 edges, that is 128 levels "
            '(`mode="midrise"`), fine enough for couplings of 1/200.',
        ),
    )
