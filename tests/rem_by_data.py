"""The page of what `--rem` does by data set, made from the settings."""

import dataclasses
import tempfile
from pathlib import Path

from markdown_table import markdown
from tests.pictures import KINDS, write_shapes
from training import defaults, models, recipes

# Of each row: what it is for, recipe, data set, network, backbone.
ROWS = """
figures | constellation | figures
figures, another `--model` | parts | figures | parts_capsnet
digits | digits | digits
MNIST, `.npz` files, all others | trees | mnist
the same, another `--model` | | mnist | deepcaps
`cats_vs_dogs` | photos | cats_vs_dogs
its `128px_subset` | photos | cats_vs_dogs_128px_subset
`imagenette` | photos | imagenette
own pictures, sides of 16 to 127 | pictures | small
own pictures, larger | pictures | large
`--backbone`, sides to 127 | backbone | small | | MobileNetV3Small
`--backbone`, larger | plan | large | | MobileNetV3Small
`--model constellation_capsnet` | constellation | mnist | constellation_capsnet
`--model body_plan_capsnet` | plan | small | body_plan_capsnet
`--recipe paper` | paper | mnist | efficient_capsnet
"""
INTRODUCTION = """# What `--rem` does, by data set

Made from the settings by `python -m tests.test_docs`. The recipe is that of
`training/recipes.toml`; a flag changes what it names. A baseline is trained
beside REM, with the same settings but without the losses and the pruning below.
A network of parts has losses of its own (evidence, presence, reconstruction),
and so has its baseline: there REM prunes, and does nothing else. REM's other
losses are those of couplings (weights of spread, polarization and crowding) and
counterfactual ones (of necessity and sufficiency), which grow from 0.
"""


def page():
    """Returns the page: losses, pruning, schedule and recipe of each data."""
    head = ["data", "network", "losses that REM adds", "pruning", "training"]
    lines = [[*head, "levels", "recipe"]]
    with tempfile.TemporaryDirectory() as folder:
        for name, sides in (("small", (40, 41)), ("large", (160, 161))):
            counts = dict.fromkeys(KINDS, 10)
            write_shapes(Path(folder) / name, counts, sides=sides)
        lines += [_line(row, folder) for row in ROWS.strip().splitlines()]
    return f"{INTRODUCTION}\n{markdown(lines, left=len(lines[0]))}\n"


def _line(row, folder):
    cells = [cell.strip() or None for cell in row.split("|")]
    data, recipe, dataset, model, backbone = (*cells, None, None)[:5]
    if dataset in ("small", "large"):
        dataset = f"{folder}/{dataset}"
    config = defaults.load(dataset, model, backbone)
    changed = {} if model is None else {"model": model}
    if backbone is not None:
        changed["backbone"] = backbone
    config = dataclasses.replace(config, rem=True, **changed)
    if recipe == "paper":
        config = recipes.applied("paper", config)
    for name, value in recipes.TRAINING.get(recipe, {}).items():
        # Those of pictures follow from them, as their number and size say.
        if name not in ("model", "epochs", "batch_size", "shift"):
            assert getattr(config, name) == value, (data, recipe, name)
    # Of pictures both follow from their number.
    steps = defaults.STEPS if recipe == "pictures" else None
    return [
        *(data, f"`{config.model}`", _losses(config), _pruning(config)),
        _training(config, steps),
        str(config.levels),
        f"`{recipe}`" if recipe else "the defaults",
    ]


def _losses(config):
    def weights(values):
        return ", ".join(f"{value:g}" for value in values)

    words = []
    if config.uses("coupling_share"):
        of = "types" if config.coupling_types else "children"
        share = f"at most {100 * config.coupling_share:g} % of the {of}"
        words.append(f"couplings {weights(config.coupling_weights)}, {share}")
    counterfactual = config.counterfactual_weights
    if config.uses("counterfactual_necessity") and any(counterfactual):
        words.append(f"counterfactual {weights(counterfactual)}")
    if config.decay:
        words.append(f"none, but a decay of {config.decay:g}")
    return "; ".join(words) or "none"


def _pruning(config):
    name = config.pruning
    if config.uses("pruning_begin"):
        begin, end = 100 * config.pruning_begin, 100 * config.pruning_end
        return (
            f"{name}, {100 * config.final_sparsity:g} % of the weights, "
            f"from {begin:g} to {end:g} % of REM's training"
        )
    if config.pruning == "iterative":
        return f"{name}, what the validation loss does not need, every epoch"
    return name


def _training(config, steps):
    if models.network(config.model).loss == "plan":
        return "one pass"
    epochs, patience = f"{config.epochs:,} epochs", config.patience
    if patience is not None:
        epochs = f"at most {epochs}, {patience} without a lower loss"
    words = [f"{epochs}, batches of {config.batch_size}"]
    if steps is not None:
        words = [f"about {steps:,} steps, batches as there are pictures"]
    decay = config.learning_rate_decay
    fall = "falling to 0" if decay is None else f"times {decay:g} an epoch"
    words.append(f"rate {config.learning_rate:g} {fall}")
    if config.warm_start:
        more = config.rem_epochs or "as many"
        words.append(f"REM {more} more from the baseline's weights")
    return ", ".join(words)
