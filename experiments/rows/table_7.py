"""Tables 7 and 8: DR-CapsNet trained jointly with its decoder.

python experiments/run.py table_7 --data-dir ~/tensorflow_datasets
python experiments/run.py table_7 --recipe paper --data-dir ...

Expected time, all rows and five seeds: on two CPU cores about 11 days, which is
an estimate from the step times in results/networks.md, and many times that with
`--recipe paper`. GPU: unmeasured.
Expected result: the published column; REM hardly lowers the entropy.
"""

from experiments import paper
from experiments.experiment import Experiment
from experiments.published import TABLES_7_AND_8

COLUMNS = (
    paper.ACCURACY,
    paper.ENTROPY,
    paper.SPARSITY,
    paper.OFF_UNIFORM,
    paper.T_SCORE,
)
_NETWORK = "DR-CapsNet"
# The paper gives none, only that fewer parameters are removed than without.
_SPARSITY = 50.0


def get_experiment(recipe: str = "short") -> Experiment:
    """Returns the experiment of tables 7 and 8."""
    rows = []
    for k, dataset in enumerate(("MNIST", "F-MNIST", "CIFAR-10")):
        rows += paper.rows(
            (dataset,),
            f"{paper.run_name(dataset, _NETWORK)}-decoder",
            paper.config(recipe, dataset, _NETWORK, _SPARSITY, decoder="joint"),
            COLUMNS,
            {
                model: (
                    TABLES_7_AND_8["accuracy", model][k],
                    TABLES_7_AND_8["entropy", model][k],
                )
                for model in ("+Q", "+REM")
            },
        )
    return Experiment(
        "Tables 7 and 8: DR-CapsNet trained jointly with its decoder",
        ("data set", "model"),
        COLUMNS,
        tuple(rows),
        paper.SEEDS,
        (
            paper.RECIPE_NOTES[recipe],
            "The paper gives no sparsity for these runs; a recipe with a "
            f"target prunes {_SPARSITY:g} %.",
            "The paper states it as a limitation that the accuracy on CIFAR-10 "
            "falls to 72 to 76 % and that REM hardly lowers the entropy.",
            paper.LOSSY_CIFAR,
            paper.BEST_AGAINST_LAST,
        ),
    )
