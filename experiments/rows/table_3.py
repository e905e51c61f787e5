"""Table 3: Eff-CapsNet on smallNORB, familiar and novel viewpoints.

python experiments/run.py table_3 --data-dir FOLDER_WITH_SMALLNORB
python experiments/run.py table_3 --recipe paper --data-dir ...

Expected time, all rows and five seeds: on two CPU cores 2 to 3 days, which is
an estimate from the step times in results/networks.md, and many times that with
`--recipe paper`. GPU: unmeasured.
Expected result: the published column.
"""

from experiments import paper
from experiments.experiment import Experiment
from experiments.published import TABLE_3
from experiments.rows import small_norb


def get_experiment(recipe: str = "short") -> Experiment:
    """Returns the experiment of table 3."""
    rows = small_norb.quantized_rows(recipe, TABLE_3, ["Eff-CapsNet"])
    return Experiment(
        "Table 3: new viewpoints, Eff-CapsNet",
        small_norb.LABELS,
        small_norb.QUANTIZED,
        tuple(rows),
        paper.SEEDS,
        (
            paper.RECIPE_NOTES[recipe],
            *small_norb.NOTES,
            "The 27k and 37k parameters of the paper's text are those of the "
            "best single seeds; at the median sparsities of the table "
            "151,664 parameters leave 37.8k and 47.2k.",
        ),
    )
