"""Table 5: DR-CapsNet, γ-CapsNet and DeepCaps on smallNORB.

python experiments/run.py table_5 --data-dir FOLDER_WITH_SMALLNORB
python experiments/run.py table_5 --recipe paper --data-dir ...

Expected time, all rows and five seeds: on two CPU cores about 60 days, which is
an estimate from the step times in results/networks.md, and many times that with
`--recipe paper`. GPU: unmeasured.
Expected result: the published column.
"""

from experiments import paper
from experiments.experiment import Experiment
from experiments.published import TABLE_5
from experiments.rows import small_norb


def get_experiment(recipe: str = "short") -> Experiment:
    """Returns the experiment of table 5."""
    networks = ["DR-CapsNet", "γ-CapsNet", "DeepCaps"]
    rows = small_norb.quantized_rows(recipe, TABLE_5, networks)
    return Experiment(
        "Table 5: new viewpoints, other networks",
        small_norb.LABELS,
        small_norb.QUANTIZED,
        tuple(rows),
        paper.SEEDS,
        (
            paper.RECIPE_NOTES[recipe],
            *small_norb.NOTES,
            "γ-CapsNet+REM, azimuth: the printed deviation 0.025 is doubtful.",
            paper.DEEPCAPS,
        ),
    )
