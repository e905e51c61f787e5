"""Structured pruning of DR-CapsNet on MNIST, without and with REM.

python experiments/run.py structured --data-dir ~/tensorflow_datasets

Expected time: an epoch of the dense network is about ten minutes on a CPU core
that computes in bfloat16. The others begin with the trained dense network, and
took 45 minutes each at 98 % when runs still rebuilt it while it became smaller.
Masked to the end an epoch takes as long as the dense one's. GPU: unmeasured.
Expected result: a thirty-third of the parameters and a sixtieth of the
multiply-adds are as right as the dense network, if the small one is trained on;
and units that were drawn at random are as good as those of large weights. With
sharp routing and REM 99.4 % at 1.2 bits, and every image needs its tree.
"""

import dataclasses
from typing import Any

from experiments import paper
from experiments.experiment import Experiment, Row, fields_of
from training import configs
from training.configs import Config

_DENSE = "mnist-dense"
_EPOCHS = 6
_EPOCHS_PRUNED = 10
_EPOCHS_EARLY = 30
LABELS = ("data set", "network", "removed", "criterion", "model")
COLUMNS = (
    paper.ACCURACY,
    paper.ENTROPY,
    *paper.FAITHFULNESS,
    paper.T_SCORE,
    paper.T_SCORE_LEFT,
    paper.PARAMETERS,
    paper.MULTIPLY_ADDS,
)
# Nearly all of the multiply-adds are gone after an eighth of the training.
_EARLY: dict[str, Any] = {
    "start_from": None,
    "warm_start": False,
    "baseline": False,
    "epochs": _EPOCHS_EARLY,
    "pruning_end": 0.125,
}
# Those of digits.
_LOSSES: dict[str, Any] = {
    "coupling_spread": 0.5,
    "coupling_polarization": 0.8,
    "coupling_crowding": 8.0,
    "coupling_share": 0.385,
    "counterfactual_necessity": 1.0,
    "counterfactual_sufficiency": 1.0,
}
# The same for the few children that are left early, a tenth: the others count
# in means over all children and are never coupled more with one class.
_LOSSES_EARLY: dict[str, Any] = {
    **_LOSSES,
    "coupling_spread": 4.0,
    "coupling_polarization": 2.0,
    "coupling_crowding": 200.0,
    "coupling_share": 0.127,
}


def get_experiment() -> Experiment:
    """Returns the experiment."""
    rows = [
        Row(
            ("MNIST", "DR-CapsNet", "–", "–", "+Q"),
            _DENSE,
            _config(epochs=_EPOCHS),
            fields_of("+Q", COLUMNS),
        ),
        # Zeros alone save nothing in a runtime: see benchmarks/runtimes.py.
        _row(
            "DR-CapsNet, single weights, 1 epoch",
            "mnist-0.85-weights",
            0.85,
            "magnitude",
            pruning="polynomial",
            epochs=1,
        ),
        _row("DR-CapsNet", "mnist-0.98-magnitude", 0.98, "magnitude"),
        _row(
            "DR-CapsNet, sharp",
            "mnist-0.98-sharp",
            0.98,
            "magnitude",
            model="dr_capsnet_sharp",
            **_LOSSES,
        ),
        *(
            _row(
                f"DR-CapsNet, {_EPOCHS_EARLY} epochs, pruned early",
                f"mnist-{share:g}-{criterion}-early",
                share,
                criterion,
                **_EARLY,
            )
            for share, criterion in (
                (0.98, "magnitude"),
                (0.98, "random"),
                (0.9, "magnitude"),
                (0.99, "magnitude"),
            )
        ),
        _row(
            f"DR-CapsNet, sharp, {_EPOCHS_EARLY} epochs, pruned early",
            "mnist-0.98-sharp-early",
            0.98,
            "magnitude",
            model="dr_capsnet_sharp",
            **{**_EARLY, **_LOSSES_EARLY},
        ),
    ]
    longer: dict[str, dict[str, Any]] = {
        "mnist-0.98-magnitude": {"epochs": 16},
        "mnist-0.98-sharp": {"epochs": 12},
        "mnist-0.98-sharp-early": {
            "epochs": 16,
            "baseline": True,
            "warm_start": True,
            "coupling_spread": 1.5,
            "coupling_polarization": 4.0,
        },
        "mnist-0.98-sharp-early-longer": {
            "epochs": 20,
            "coupling_spread": 1.0,
            "coupling_polarization": 8.0,
            "coupling_crowding": 50.0,
            "coupling_share": 0.15,
        },
    }
    for name, changes in longer.items():
        rows.append(_longer(next(r for r in rows if r.run == name), **changes))
    return Experiment(
        "Structured pruning of DR-CapsNet on MNIST",
        LABELS,
        COLUMNS,
        tuple(rows),
        (0,),
        (
            f"{_EPOCHS} epochs for the dense network, from which the others "
            f"begin, and {_EPOCHS_PRUNED} for these; Adam 0.001 with a cosine "
            "to 0, batches of 128, in mixed bfloat16, measured in float32. "
            "Filters and types of capsules leave until a share of the "
            "multiply-adds is gone at 60 % of the training; every layer loses "
            "the same share of its units, so that `random` has the same sizes. "
            "The network is compacted. Rows with epochs more begin with the "
            "small network, in float32.",
            "Small networks saw the images up to five times as often as the "
            "dense one, which longer training would improve as well.",
            "`sharp` is the network with couplings that are far from equal "
            "(a sharpness of 60), trained with the coupling loss and the "
            "counterfactual loss; the others have neither.",
        ),
    )


def _longer(row: Row, **changes: Any) -> Row:
    """Trains the network of a row on, as it is."""
    dataset, network, *more = row.labels
    config = dataclasses.replace(
        row.config, start_from=row.run, pruning="none", **changes
    )
    labels = (dataset, f"{network}, {config.epochs} epochs more", *more)
    return Row(labels, f"{row.run}-longer", config, row.fields)


def _row(
    network: str, name: str, share: float, criterion: str, **changes: Any
) -> Row:
    settings: dict[str, Any] = {
        "rem": True,
        "start_from": _DENSE,
        "warm_start": True,
        "epochs": _EPOCHS_PRUNED,
        "pruning": "structured",
        "pruning_criterion": criterion,
        "final_sparsity": share,
        **paper.NO_COUPLING_LOSS,
        **changes,
    }
    return Row(
        ("MNIST", network, f"{100 * share:g} %", criterion, "+REM"),
        name,
        _config(**settings),
        fields_of("+REM", COLUMNS),
    )


def _config(**changes: Any) -> Config:
    settings = {
        "model": "dr_capsnet",
        "dtype_policy": "mixed_bfloat16",
        "learning_rate": 1e-3,
        **changes,
    }
    defaults = configs.load("mnist", settings["model"])
    return dataclasses.replace(defaults, **settings)
