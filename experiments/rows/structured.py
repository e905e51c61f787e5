"""Structured pruning of DR-CapsNet on MNIST, at four sizes, and at random.

python experiments/run.py structured --data-dir ~/tensorflow_datasets

Expected time: an epoch of the dense network is about 400 s on one CPU core, in
bfloat16, so the dense run takes 2.2 hours. The others rebuild the network while
it becomes smaller; by the steps of a shorter run, estimated, that is 1.7 hours
with half of it gone, 45 minutes at 97 %. With `--samples 4000 --epochs 4` it is
minutes. GPU: unmeasured. Expected result: not run in full yet. Of a quarter of
this network, trained on 4,000 images, docs/guides/speed.md has numbers.
"""

from typing import Any

from experiments import paper
from experiments.experiment import Experiment, Row, fields_of
from training.configs import Config
from training.tables import Column

_EPOCHS = 20
_SHARES = (0.5, 0.75, 0.9, 0.97)
_CRITERIA = ("lakp", "taylor", "magnitude", "random")
LABELS = ("data set", "removed", "criterion", "model")
COLUMNS = (
    paper.ACCURACY,
    paper.ENTROPY,
    Column("necessity, %", "necessity.zero", 1, 100),
    Column("random, %", "necessity_random.zero", 1, 100),
    paper.T_SCORE,
    paper.PARAMETERS,
    Column("multiply-adds, millions", "multiply_adds", 2, 1e-6),
)


def get_experiment() -> Experiment:
    """Returns the experiment."""
    rows = [
        Row(
            ("MNIST", "–", "–", "+Q"),
            "mnist-baseline",
            _config(rem=False),
            fields_of("+Q", COLUMNS),
        )
    ]
    for share in _SHARES:
        for criterion in _CRITERIA:
            rows.append(
                Row(
                    ("MNIST", f"{100 * share:g} %", criterion, "+REM"),
                    f"mnist-{share:g}-{criterion}",
                    _config(
                        baseline=False,
                        pruning="structured",
                        pruning_criterion=criterion,
                        final_sparsity=share,
                    ),
                    fields_of("+REM", COLUMNS),
                )
            )
    return Experiment(
        "Structured pruning of DR-CapsNet on MNIST",
        LABELS,
        COLUMNS,
        tuple(rows),
        (42, 43, 44),
        (
            f"{_EPOCHS} epochs; Adam 0.001 with a cosine to 0, batches of 128, "
            "in mixed bfloat16, measured in float32. Filters and types of "
            "capsules leave until a share of the multiply-adds is gone at 60 % "
            "of the training; every layer loses the same share of its units, "
            "so that `random` has the same sizes. The network is compacted.",
        ),
    )


def _config(**changes: Any) -> Config:
    settings = {"dtype_policy": "mixed_bfloat16", "epochs": _EPOCHS, **changes}
    return paper.config("short", "MNIST", "DR-CapsNet", 0.0, **settings)
