"""The networks that `tfcaps.models.load_pretrained` returns.

python experiments/run.py pretrained --data-dir ~/tensorflow_datasets

Expected time on one CPU core: about five minutes for figures, a quarter of an
hour for MNIST and for Fashion-MNIST each. GPU: unmeasured.
Expected result: small trees that the networks decide by, at more than 99 % of
figures, about 99 % of MNIST and about 89 % of Fashion-MNIST.
`training/pretrained.py` packs what was trained.
"""

import dataclasses
from typing import Any

from experiments.experiment import Experiment, Row, fields_of
from experiments.rows.faithfulness import COLUMNS
from training import configs

LABELS = ("data set", "model")
# Of MNIST and Fashion-MNIST; on images in the middle, with other matrices at
# each place. Pruned so far that a file is below a megabyte.
_CENTRED: dict[str, Any] = {
    "model": "parts_capsnet_unshared",
    "epochs": 6,
    "batch_size": 128,
    "shift": 1,
    "coupling_spread": 0.05,
    "coupling_polarization": 0.1,
    "final_sparsity": 0.7,
}


def get_experiment() -> Experiment:
    """Returns the experiment."""
    figures = dataclasses.replace(
        configs.load("figures", "parts_capsnet"), rem=True, baseline=False
    )
    mnist = dataclasses.replace(figures, dataset="mnist", **_CENTRED)
    fashion = dataclasses.replace(mnist, dataset="fashion_mnist", flip=True)
    return Experiment(
        "Models to start from",
        LABELS,
        COLUMNS,
        tuple(
            Row(
                (config.dataset, "+REM"),
                config.dataset,
                config,
                fields_of("+REM", COLUMNS),
            )
            for config in (figures, mnist, fashion)
        ),
        (0,),
        (
            "MNIST and Fashion-MNIST are all 60,000 images, a tenth of them "
            "held out, for six epochs.",
        ),
    )
