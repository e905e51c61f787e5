"""Shared by the paper's tables: recipes, networks and columns.

Preprocessing and augmentation are those of a data set's own settings. What the
released code does otherwise stands in the notes of the tables.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from experiments.experiment import Row, fields_of
from training import configs
from training.configs import Config
from training.configs import recipe as recipes
from training.tables import Column

SEEDS = (42, 43, 44, 45, 46)

DATASETS = {
    "MNIST": "mnist",
    "F-MNIST": "fashion_mnist",
    "SVHN": "svhn_cropped",
    "CIFAR-10": "cifar10",
    "Dogs vs. Cats": "cats_vs_dogs",
    "Imagenette": "imagenette",
    "affNIST": "affnist",
    "elevation": "smallnorb-elevation",
    "azimuth": "smallnorb-azimuth",
    "Tiny ImageNet": "tiny_imagenet",
}
NETWORKS = {
    "DR-CapsNet": "dr_capsnet",
    "γ-CapsNet": "gamma_capsnet",
    "DeepCaps": "deepcaps_rem",
    "Eff-CapsNet": "efficient_capsnet",
    "Eff-ConvCapsNet": "efficient_conv_capsnet",
}
NO_COUPLING_LOSS: dict[str, Any] = dict.fromkeys(
    ("coupling_spread", "coupling_polarization", "coupling_crowding"), 0.0
)
NO_COUNTERFACTUAL_LOSS: dict[str, Any] = dict.fromkeys(
    ("counterfactual_necessity", "counterfactual_sufficiency"), 0.0
)
# What differs from the data set's own settings, which are DR-CapsNet's.
_VARIANTS: dict[tuple[str, str], dict[str, Any]] = {
    ("CIFAR-10", "DR-CapsNet"): {"model": "dr_capsnet_64"},
    ("CIFAR-10", "γ-CapsNet"): {"resize": 32},
    ("CIFAR-10", "DeepCaps"): {"resize": 64},
    ("CIFAR-10", "Eff-CapsNet"): {"resize": 32},
    ("SVHN", "DeepCaps"): {"resize": 64},
    ("elevation", "Eff-CapsNet"): {"model": "efficient_capsnet_smallnorb"},
    ("azimuth", "Eff-CapsNet"): {"model": "efficient_capsnet_smallnorb"},
    ("Tiny ImageNet", "DR-CapsNet"): {
        "backbone": "resnet18.keras",
        "resize": None,  # by the network, from 64x64
        "levels": 128,
        "mode": "midrise",
    },
}


def _short(sparsity: float) -> dict[str, Any]:
    """Reaches the published sparsity in few epochs, by a schedule."""
    return {
        "epochs": 30,
        "learning_rate": 1e-3,
        "pruning": "polynomial",
        "final_sparsity": sparsity,
    }


def _paper(sparsity: float) -> dict[str, Any]:
    """The released settings, which have no target for the sparsity."""
    del sparsity
    return dict(recipes.SETTINGS)


# The first is the one that is taken unless another is asked for.
RECIPES: dict[str, Callable[[float], dict[str, Any]]] = {
    "short": _short,
    "paper": _paper,
}
RECIPE_NOTES = {
    "short": "Short recipe: 30 epochs, Adam 1e-3 with a cosine to 0, pruning "
    "of transformations and kernels by a common threshold to the published "
    "sparsity at 60 % of them, coupling loss as in `training/run.py --rem`. "
    "The published sparsity counts biases, as the column here does; they are "
    "not pruned, so that it ends up to 0.3 points lower.",
    "paper": "The paper's recipe: Adam 1e-3 x 0.99 per epoch, batches of 128, "
    "sensitivity-gated decay 1e-4 x 0.99 per epoch of transformations and "
    "kernels, after each epoch the largest threshold that does not raise the "
    "validation loss, until that has not fallen for 200 epochs. The baseline "
    "is that of the lowest validation loss, REM that of the last epoch. The "
    "released code also decays biases.",
}

LOSSY_CIFAR = (
    "CIFAR-10 may have been read from JPEG copies, as prepared for this "
    "project; accuracies then are not those of the original images."
)
DEEPCAPS = (
    "DeepCaps is the variant of the REM paper's code, on CIFAR-10 and SVHN "
    "always at 64x64; the code has 32x32 without pruning on CIFAR-10. The "
    "harder margins from epoch 100 on are in the recipe `paper` alone. Only "
    "couplings of the class layer are quantised, as in the code: those of the "
    "convolutional layer compete over all positions, so that nearly all are "
    "below half a level and would become 0. The text of the paper has both."
)
BEST_AGAINST_LAST = (
    "The paper takes +Q from the epoch of the lowest validation loss and +REM "
    "from the last one, so that the two are not chosen alike. Here that is so "
    "with the recipe `paper`; otherwise both are those of the last epoch."
)

ACCURACY = Column("accuracy, %", "accuracy", 2, 100)
ENTROPY = Column("entropy, bits", "entropy_bits", 2)
# Over the paper's scope: weights and biases of the layers that are pruned.
SPARSITY = Column("sparsity, %", "sparsity_paper", 2, 100, "median")
PARAMETERS = Column("parameters", "nonzero_parameters", 0, 1, "median")
OFF_UNIFORM = Column("off uniform, %", "nonuniform_share", 1, 100)
WHOLE = Column("whole trees, %", "whole_share", 1, 100)
IN_TREE = Column("children in a tree, %", "strong_share", 1, 100)
T_SCORE = Column("T-score", "t_score", 3)
# Where whole children are gone; runs of before do not say.
T_SCORE_LEFT = Column(
    "T-score of children left", "t_score_voting", 3, optional=True
)
# Whether a network uses its trees; runs of before do not say.
FAITHFULNESS = tuple(
    Column(title, field, digits, factor, optional=True)
    for title, field, digits, factor in (
        ("necessity, %", "necessity.zero", 1, 100),
        ("random, %", "necessity_random.zero", 1, 100),
        ("mean, %", "necessity.mean", 1, 100),
        ("sufficiency, %", "sufficiency.zero", 1, 100),
        ("tree size, %", "size", 1, 100),
        ("class share", "class_share", 2, 1),
    )
)
MULTIPLY_ADDS = Column(
    "multiply-adds, millions", "multiply_adds", 2, 1e-6, optional=True
)
# On smallNORB and affNIST the test images are the new ones.
FAMILIAR_ACCURACY = Column("familiar, %", "tests.familiar.accuracy", 2, 100)
FAMILIAR_ENTROPY = Column("familiar, bits", "tests.familiar.entropy_bits", 2)


def config(
    recipe: str,
    dataset: str,
    network: str,
    sparsity: str | float,
    /,
    **changes: Any,
) -> Config:
    """Returns the settings of a run of the paper, baseline and REM.

    Args:
        recipe: A key of `RECIPES`.
        dataset: A key of `DATASETS`.
        network: A key of `NETWORKS`.
        sparsity: The published one in %, for recipes with a target.
        **changes: Other settings.
    """
    settings: dict[str, Any] = {
        "rem": True,
        "model": NETWORKS[network],
        "levels": recipes.LEVELS.get(NETWORKS[network], 11),
        "batch_size": recipes.BATCH_SIZE,
        **RECIPES[recipe](float(sparsity) / 100),
        **_VARIANTS.get((dataset, network), {}),
        **(
            recipes.LONG.get(NETWORKS[network], {}) if recipe == "paper" else {}
        ),
        **changes,
    }
    defaults = configs.load(DATASETS[dataset], settings["model"])
    return dataclasses.replace(defaults, **settings)


def run_name(dataset: str, network: str) -> str:
    """Returns the name of a run, the same in every table that shows it."""
    return f"{DATASETS[dataset]}-{NETWORKS[network]}"


def rows(
    labels: tuple[str, ...],
    run: str,
    settings: Config,
    columns: tuple[Column, ...],
    published: Mapping[str, tuple[str | None, ...]],
) -> list[Row]:
    """Returns the rows of a run, one for each of its models that is shown.

    Args:
        labels: The first labels; the last one is the model's.
        run: Name of the run.
        settings: Its settings.
        columns: Those of the table.
        published: For each model that is shown, a key of `SHOWN`, what the
            paper has in the first columns.
    """
    return [
        Row(
            (*labels, shown),
            run,
            settings,
            fields_of(shown, columns),
            cells + (None,) * (len(columns) - len(cells)),
        )
        for shown, cells in published.items()
    ]
