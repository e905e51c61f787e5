"""Table 6: the runs of tables 3 and 5 without quantisation.

python experiments/run.py table_6 --data-dir FOLDER_WITH_SMALLNORB
python experiments/run.py table_6 --recipe paper --data-dir ...

Expected time, all rows and five seeds: none after tables 3 and 5 (--take-from);
else on two CPU cores about 65 days, which is an estimate from the step times in
results/networks.md, and many times that with `--recipe paper`. GPU: unmeasured.
Expected result: the published column.
"""

from experiments import paper
from experiments.experiment import Experiment
from experiments.published import TABLE_6
from experiments.rows import small_norb


def get_experiment(recipe: str = "short") -> Experiment:
    """Returns the experiment of table 6."""
    rows = []
    for (viewpoint, name), cells in TABLE_6.items():
        network, _, pruned = name.partition(" ")
        rows += small_norb.rows(
            recipe,
            viewpoint,
            network,
            small_norb.AS_THEY_ARE,
            {pruned or "vanilla": cells},
        )
    return Experiment(
        "Table 6: new viewpoints without quantisation",
        small_norb.LABELS,
        small_norb.AS_THEY_ARE,
        tuple(rows),
        paper.SEEDS,
        (
            paper.RECIPE_NOTES[recipe],
            "Its runs are those of tables 3 and 5; `--take-from` takes them "
            "from there.",
            *small_norb.NOTES,
            paper.DEEPCAPS,
        ),
    )
