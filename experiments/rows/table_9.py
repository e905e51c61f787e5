"""Table 9: four networks on MNIST, with their parameters.

python experiments/run.py table_9 --data-dir ~/tensorflow_datasets
python experiments/run.py table_9 --only mnist-efficient_capsnet ...

Expected time, all rows and five seeds: on two CPU cores about 20 days, which is
an estimate from the step times in results/networks.md, and many times that with
`--recipe paper`. GPU: unmeasured.
Expected result: the published column.
"""

from experiments import paper
from experiments.experiment import Experiment
from experiments.published import TABLE_9

COLUMNS = (
    paper.ACCURACY,
    paper.ENTROPY,
    paper.SPARSITY,
    paper.PARAMETERS,
    paper.OFF_UNIFORM,
    paper.T_SCORE,
)


def get_experiment(recipe: str = "short") -> Experiment:
    """Returns the experiment of table 9."""
    rows = []
    for network in dict.fromkeys(network for network, _ in TABLE_9):
        rows += paper.rows(
            (network,),
            paper.run_name("MNIST", network),
            paper.config(
                recipe, "MNIST", network, TABLE_9[network, "+REM"][2] or 0
            ),
            COLUMNS,
            {m: TABLE_9[network, m] for m in ("vanilla", "+Q", "+REM")},
        )
    return Experiment(
        "Table 9: MNIST",
        ("network", "model"),
        COLUMNS,
        tuple(rows),
        paper.SEEDS,
        (
            paper.RECIPE_NOTES[recipe],
            "Parameters are those that are not zero.",
            "The ablation of the paper's text has 99.47 % and 9.32 bits for "
            "one DR-CapsNet+Q, 99.57 % and 4.40 bits for one +REM; its figure "
            "8 ends at 99.60 % and 4.31 bits.",
            paper.BEST_AGAINST_LAST,
            paper.DEEPCAPS,
        ),
    )
