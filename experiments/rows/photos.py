"""Photos: cats and dogs, baseline and REM.

python experiments/run.py photos --data-dir ~/tensorflow_datasets

Expected time on two CPU cores: 20 to 25 minutes a run. GPU: unmeasured.
Expected result: 75 to 80 %, baseline and REM; the trees are small, and used.
"""

import dataclasses

from experiments import paper
from experiments.experiment import Experiment, Row, fields_of
from experiments.rows import faithfulness
from training.configs import photos


def get_experiment() -> Experiment:
    """Returns the experiment on cats and dogs."""
    dataset = "cats_vs_dogs_128px_subset"
    config = dataclasses.replace(photos.get_config(dataset), rem=True)
    of_masks = ("parts.", "tests.")
    columns = tuple(
        column
        for column in faithfulness.COLUMNS
        if not column.field.startswith(of_masks)
    )
    return Experiment(
        "Photos: cats and dogs",
        ("data set", "model"),
        columns,
        tuple(
            Row((dataset, label), dataset, config, fields_of(shown, columns))
            for label, shown in (("baseline", "+Q"), ("+REM", "+REM"))
        ),
        paper.SEEDS,
        (
            "2,000 photos to train on, a tenth of them for validation, and "
            "2,000 to test on, at 64x64 pixels; nothing was trained before.",
            "REM begins with the weights of the baseline. Its higher accuracy "
            "is that of a training twice as long.",
        ),
    )
