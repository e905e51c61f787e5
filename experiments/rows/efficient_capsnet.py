"""Efficient-CapsNet on MNIST and Fashion-MNIST, as far as two CPU cores go.

python experiments/run.py efficient_capsnet --data-dir ~/tensorflow_datasets

Expected time, one run on one of two CPU cores that computes in bfloat16: MNIST
half an hour, its baseline 13 min, Fashion-MNIST about an hour, and with sharp
routing half an hour. GPU: unmeasured.
Expected result: the accuracy of the baseline is 99.56 % and 92.75 %; random
children are worth as much to it as its trees. REM on MNIST costs 0.06 points
and leaves 1.6 bits of 9.9, and images need their trees; lighter and heavier
losses cost 0.0 to 0.2 points and leave 2.1 to 1.1 bits; sharp routing costs
0.02 points and leaves 0.6 bits. On Fashion-MNIST REM costs 2.0 points and
leaves 5.2 bits, most of them in four classes that are taken for each other;
with sharp routing 0.2 to 0.5 points, and 3.1 to 2.5 bits. Pruned to 90 % it is
2.8 bits with 99.2 % and 5.8 bits with 90.0 %. Without three quarters of its
multiply-adds 99.5 % are right.
"""

from collections.abc import Mapping
from typing import Any

from experiments import paper
from experiments.experiment import Experiment, Row
from experiments.published import TABLE_1, TABLE_9

_NETWORK = "Eff-CapsNet"
_EPOCHS = {"MNIST": 6, "F-MNIST": 20}
_LEARNING_RATE = 3e-3
# REM of MNIST begins with the trained baseline, and goes on for longer.
_LONGER: dict[str, Any] = {
    "epochs": 12,
    "start_from": "mnist-efficient_capsnet-baseline",
    "warm_start": True,
    "baseline": True,
}
# Weights of the terms for equal and for clear couplings -> end of the run's
# name. The more of them, the fewer trees and the more mistakes.
_WEIGHTS = {(0.4, 0.2): "-light", (0.6, 0.3): "-medium", (0.7, 0.5): ""}
# Data set -> end of the run's name -> weights of the losses of sharp networks.
_LIGHT: dict[str, Any] = {"coupling_spread": 0.6, "coupling_polarization": 0.3}
_MEDIUM: dict[str, Any] = {
    "coupling_spread": 0.8,
    "coupling_polarization": 0.3,
    "epochs": 20,
}
_HEAVY: dict[str, Any] = {
    "coupling_spread": 1.0,
    "coupling_polarization": 0.3,
    "counterfactual_necessity": 0.5,
}
_SHARP = {
    "MNIST": {"-sharp-light": _LIGHT},
    "F-MNIST": {
        "-sharp-light": _LIGHT,
        "-sharp-medium": _MEDIUM,
        "-sharp": _HEAVY,
    },
}
# Percent of the multiply-adds that structured pruning removes -> end of the
# run's name.
_STRUCTURED = {75: "-structured-75", 85: "-structured"}
# Label, sparsity in %, published cells, end of the run's name, settings.
_Variant = tuple[
    str, float, Mapping[str, tuple[str | None, ...]], str, dict[str, Any]
]
LABELS = ("data set", "target sparsity", "model")
COLUMNS = (
    paper.ACCURACY,
    paper.ENTROPY,
    paper.SPARSITY,
    paper.PARAMETERS,
    paper.OFF_UNIFORM,
    paper.IN_TREE,
    paper.WHOLE,
    paper.T_SCORE,
    *paper.FAITHFULNESS,
    paper.MULTIPLY_ADDS,
)


def get_experiment() -> Experiment:
    """Returns the experiment."""
    vanilla, q, q_bits, rem, rem_bits, sparsity = TABLE_1["F-MNIST", _NETWORK]
    published = {
        "MNIST": {m: TABLE_9[_NETWORK, m] for m in ("vanilla", "+Q", "+REM")},
        "F-MNIST": {
            "vanilla": (vanilla, None),
            "+Q": (q, q_bits),
            "+REM": (rem, rem_bits, sparsity),
        },
    }
    rows: list[Row] = []
    for dataset, cells in published.items():
        target = float(cells["+REM"][2] or 0)
        unpruned = {m: cells[m] for m in ("vanilla", "+Q")}
        pruned = {"+REM": cells["+REM"]}
        budget: dict[str, Any] = {
            "epochs": _EPOCHS[dataset],
            "learning_rate": _LEARNING_RATE,
        }
        longer = dataset == "MNIST"
        variants: list[_Variant] = [
            ("–", 0.0, unpruned, "-baseline", {"rem": False}),
        ]
        if longer:
            variants += [_weighted(each, target, pruned) for each in _WEIGHTS]
        else:
            variants.append((f"{target} %", target, pruned, "", {}))
        variants += _sharp(dataset, target, pruned)
        variants.append(("90 %", 90.0, {"+REM": ()}, "-90", {}))
        if longer:
            variants += map(_structured, _STRUCTURED)
        for label, percent, shown, suffix, changes in variants:
            rows += part(
                dataset,
                _NETWORK,
                label,
                percent,
                shown,
                suffix,
                **{**budget, **changes},
            )
    return Experiment(
        "Efficient-CapsNet on two CPU cores",
        LABELS,
        COLUMNS,
        tuple(rows),
        (42, 43, 44),
        (
            f"{_EPOCHS['MNIST']} epochs, of F-MNIST {_EPOCHS['F-MNIST']}; Adam "
            f"{_LEARNING_RATE:g} with a cosine to 0, batches of 128, in mixed "
            "bfloat16, measured in float32; pruning to the target at 60 % of "
            "the training, and the coupling loss of `training/run.py --rem`.",
            "The published column is that of 1,000 epochs at most; 90 % has "
            "none. Published sparsities count biases, as the column does; they "
            "are not pruned, so that it ends up to 0.3 points lower.",
            paper.BEST_AGAINST_LAST,
        ),
    )


def _weighted(
    weights: tuple[float, float],
    target: float,
    published: Mapping[str, tuple[str | None, ...]],
) -> _Variant:
    """Returns what makes a row of REM, by weights of its losses."""
    spread, polarization = weights
    changes = {
        **_LONGER,
        "coupling_spread": spread,
        "coupling_polarization": polarization,
    }
    label = f"{target} %, losses {spread}, {polarization}"
    return label, target, published, _WEIGHTS[weights], changes


def _sharp(
    dataset: str,
    target: float,
    published: Mapping[str, tuple[str | None, ...]],
) -> list[_Variant]:
    """Returns what makes the rows of REM with sharp routing."""
    start = paper.run_name(dataset, _NETWORK) + "-baseline"
    changes = {
        **_LONGER,
        "model": "efficient_capsnet_sharp",
        "start_from": start,
    }
    return [
        (
            f"{target} %, sharp, losses {weights['coupling_spread']}, "
            f"{weights['coupling_polarization']}",
            target,
            published,
            end,
            {**changes, **weights},
        )
        for end, weights in _SHARP[dataset].items()
    ]


def _structured(removed: int) -> _Variant:
    """Returns what makes the row of a smaller and faster network.

    Args:
        removed: Percent of the multiply-adds.
    """
    changes = {
        **_LONGER,
        "pruning": "structured",
        **paper.NO_COUPLING_LOSS,
    }
    label = f"{removed} % of the multiply-adds"
    return label, removed, {"+REM": ()}, _STRUCTURED[removed], changes


def part(
    dataset: str,
    network: str,
    label: str,
    sparsity: float,
    published: Mapping[str, tuple[str | None, ...]],
    suffix: str = "",
    **changes: Any,
) -> list[Row]:
    """Returns the rows of one run, the baseline or REM alone, in bfloat16.

    Args:
        dataset: A key of `paper.DATASETS`.
        network: A key of `paper.NETWORKS`.
        label: What the table calls the target sparsity.
        sparsity: The target in %.
        published: What the paper has of each model that is shown.
        suffix: End of the run's name.
        **changes: Other settings; `rem=False` is the baseline.
    """
    settings = {
        "dtype_policy": "mixed_bfloat16",
        "baseline": "rem" in changes,
        **changes,
    }
    return paper.rows(
        (dataset, label),
        paper.run_name(dataset, network) + suffix,
        paper.config("short", dataset, network, sparsity, **settings),
        COLUMNS,
        published,
    )
