"""Networks with capsules between the primary and the class capsules, on MNIST.

python experiments/run.py hidden_capsules --data-dir ~/tensorflow_datasets

Trees are those of the class layer: its children are hidden capsules, which see
the whole image in multilayer CapsNet and γ-CapsNet, and parts of it in the
others. Whether a network uses such trees is what the rows tell.

Expected time on one of two CPU cores: about an hour for each network. Whole,
the large ones would take a day: γ-CapsNet and DeepCaps become small in the
first epochs, by structured pruning, and are rebuilt; EM-CapsNet begins small,
as it learns slowly, and what is pruned before it has learnt is not the right
part: 10 % of its multiply-adds and 7,294 parameters got 96.9 % right. GPU:
unmeasured.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from experiments import paper
from experiments.experiment import Experiment, Row, fields_of
from training import configs
from training.configs import Config


class _Budget(NamedTuple):
    """How a network is trained."""

    samples: int | None
    epochs: int
    # Share of its multiply-adds that structured pruning removes at once.
    removed: float = 0.0
    learning_rate: float = 1e-3
    # Share of its weights that REM prunes, in the run of its baseline.
    pruned: float = 0.0
    # What is set otherwise in all its trainings, and on its trees.
    settings: Mapping[str, Any] = {}
    on_trees: Mapping[str, Any] = {}
    # The same of trainings that go on without them, one after another.
    longer: tuple[Mapping[str, Any], ...] = ()
    # The same on the trees of the last of these.
    longer_on_trees: Mapping[str, Any] = {}


LABELS = ("network", "removed", "images", "epochs", "trained on trees")
COLUMNS = (
    paper.ACCURACY,
    paper.ENTROPY,
    *paper.FAITHFULNESS,
    paper.T_SCORE,
    paper.T_SCORE_LEFT,
    paper.IN_TREE,
    paper.WHOLE,
    paper.SPARSITY,
    paper.PARAMETERS,
    paper.MULTIPLY_ADDS,
)
_BUDGETS = {
    "multilayer_capsnet": _Budget(None, 12, 0.0, 2e-3, pruned=0.5),
    "gamma_capsnet": _Budget(20_000, 20, 0.97),
    "em_capsnet_small": _Budget(
        None,
        3,
        0.0,
        3e-3,
        settings={"batch_size": 32, "dtype_policy": "float32"},
        # A hidden capsule has up to 72 parents: 11 levels lose most shares.
        on_trees={
            "epochs": 2,
            "levels": (101, 101, 11),
            **paper.NO_COUNTERFACTUAL_LOSS,
        },
        longer=tuple(
            {
                "baseline": True,
                "epochs": 2,
                "levels": (101, 101, 11),
                "learning_rate": rate,
            }
            for rate in (2e-3, 1.5e-3)
        ),
        longer_on_trees={
            "epochs": 2,
            "levels": (101, 101, 11),
            "learning_rate": 1.5e-3,
            "coupling_crowding": 0.0,
        },
    ),
    "deepcaps": _Budget(20_000, 20, 0.97),
    "deepcaps_sharp": _Budget(20_000, 20, 0.97),
}
# Nearly all of what leaves has left after the first two epochs of twenty.
_SMALLER: dict[str, Any] = {"pruning": "structured", "pruning_end": 0.1}
_NO_LOSSES: dict[str, Any] = {"baseline": False, **paper.NO_COUPLING_LOSS}
# The lighter losses of `efficient_capsnet`, and the wish to use the trees.
_ON_TREES: dict[str, Any] = {
    "warm_start": True,
    "coupling_spread": 0.4,
    "coupling_polarization": 0.2,
    "counterfactual_necessity": 1.0,
    "counterfactual_sufficiency": 1.0,
}


def get_experiment() -> Experiment:
    """Returns the experiment."""
    return Experiment(
        "Networks with hidden capsules on MNIST",
        LABELS,
        COLUMNS,
        tuple(
            row
            for model, budget in _BUDGETS.items()
            for row in _rows(model, budget)
        ),
        (42,),
        (
            "Adam with a cosine to 0, from 0.002 for multilayer CapsNet, 0.003 "
            "for EM-CapsNet and 0.001 for the others, batches of 128, in mixed "
            "bfloat16 (EM-CapsNet: batches of 32, float32), measured in "
            "float32 with quantised couplings. What is trained on its trees "
            "begins with the weights of the row above, with lighter losses of "
            "couplings than the main job's, and the counterfactual loss.",
            "Of multilayer CapsNet half of the weights are pruned with that. "
            "Of γ-CapsNet and DeepCaps structured pruning removes filters and "
            "types of capsules, a share of the multiply-adds, in a tenth of "
            "the first training, which makes that affordable. EM-CapsNet is "
            "small from the start; its second and third row go on from the "
            "one above, the fourth from the first, without the counterfactual "
            "loss, and the last from the third, with it, by differences of "
            "activations, which are a half without votes. All but the first "
            "have 101 levels in the hidden layers, where a child has up to 72 "
            "parents.",
        ),
    )


def _rows(model: str, budget: _Budget) -> tuple[Row, ...]:
    """Returns a network without and with training on its trees."""
    if budget.pruned:
        both = _config(model, budget, final_sparsity=budget.pruned, **_ON_TREES)
        return (
            _row(model, budget, model, both, "no", "+Q"),
            _row(model, budget, model, both, "yes", "+REM"),
        )
    name = f"{model}-before"
    smaller: dict[str, Any] = {"pruning": "none"}
    if budget.removed:
        name = f"{model}-smaller"
        smaller = {**_SMALLER, "final_sparsity": budget.removed}
    first = _config(model, budget, **_NO_LOSSES, **smaller)
    on_trees = {**_ON_TREES, **budget.on_trees}
    second = _config(model, budget, start_from=name, pruning="none", **on_trees)
    before = [_row(model, budget, name, first, "no", "+REM")]
    epochs = str(first.epochs)
    for number, changes in enumerate(budget.longer, start=1):
        goes_on = {"start_from": before[-1].run, "warm_start": True}
        config = _config(
            model,
            budget,
            **{**_NO_LOSSES, **goes_on, "pruning": "none", **changes},
        )
        run = f"{model}-longer" + (f"-{number}" if number > 1 else "")
        epochs += f" + {config.epochs}"
        row = _row(model, budget, run, config, "no", "+REM", epochs)
        before.append(row)
    on_trees_rows = [_row(model, budget, model, second, "yes", "+REM")]
    if budget.longer_on_trees:
        config = _config(
            model,
            budget,
            start_from=before[-1].run,
            pruning="none",
            **{**_ON_TREES, **budget.longer_on_trees},
        )
        epochs += f" + {config.epochs}"
        run = f"{model}-used"
        row = _row(model, budget, run, config, "yes", "+REM", epochs)
        on_trees_rows.append(row)
    return (*before, *on_trees_rows)


def _row(
    model: str,
    budget: _Budget,
    run: str,
    config: Config,
    on_trees: str,
    shown: str,
    epochs: str | None = None,
) -> Row:
    labels = (
        model,
        f"{100 * budget.removed:g} %" if budget.removed else "–",
        "all" if config.samples is None else f"{config.samples:,}",
        epochs or str(config.epochs),
        on_trees,
    )
    return Row(labels, run, config, fields_of(shown, COLUMNS))


def _config(model: str, budget: _Budget, **changes: Any) -> Config:
    return dataclasses.replace(
        configs.load("mnist", model),
        model=model,
        rem=True,
        **{
            "samples": budget.samples,
            "epochs": budget.epochs,
            "learning_rate": budget.learning_rate,
            "dtype_policy": "mixed_bfloat16",
            **budget.settings,
            **changes,
        },
    )
