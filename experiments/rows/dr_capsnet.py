"""DR-CapsNet on MNIST, as many epochs as two CPU cores do in about an hour.

python experiments/run.py dr_capsnet --data-dir ~/tensorflow_datasets

Expected time: an epoch is about 13 min on one of two CPU cores, in bfloat16, so
the baseline and REM are about an hour when each has a core for itself. GPU:
unmeasured. Expected result: 99.3 % right, with REM 98.6 %; nearly all
couplings of its 1,152 children stay uniform, so that its entropies of 7.7 and
7.6 bits say little.
"""

import functools

from experiments import paper
from experiments.experiment import Experiment
from experiments.published import TABLE_9
from experiments.rows.efficient_capsnet import COLUMNS, LABELS, part

_NETWORK = "DR-CapsNet"
_EPOCHS = 4


def get_experiment() -> Experiment:
    """Returns the experiment."""
    published = {
        model: TABLE_9[_NETWORK, model] for model in ("vanilla", "+Q", "+REM")
    }
    unpruned = {model: published[model] for model in ("vanilla", "+Q")}
    target = float(published["+REM"][2] or 0)
    run = functools.partial(part, "MNIST", _NETWORK, epochs=_EPOCHS)
    return Experiment(
        "DR-CapsNet on MNIST in an hour",
        LABELS,
        COLUMNS,
        (
            *run("–", 0.0, unpruned, "-baseline", rem=False),
            *run(f"{target} %", target, {"+REM": published["+REM"]}),
        ),
        (42,),
        (
            f"{_EPOCHS} epochs; Adam 0.001 with a cosine to 0, batches of 128, "
            "in mixed bfloat16, measured in float32; pruning to the target at "
            "60 % of the training, and the coupling loss of "
            "`training/run.py --rem`. Without the decoder.",
            "The published column is that of 1,000 epochs at most.",
            paper.BEST_AGAINST_LAST,
        ),
    )
