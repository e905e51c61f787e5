"""Shared by tables 3, 5 and 6: smallNORB and new viewpoints."""

from experiments import paper
from experiments.experiment import Row
from experiments.published import TABLE_3, TABLE_5, Table
from training.tables import Column

LABELS = ("viewpoint", "network", "model")
NOTES = (
    "Novel are viewpoints that were not trained on, familiar those that were; "
    "both are of toys that were not trained on.",
    "The paper's preprocessing is not released: here that of Efficient-CapsNet "
    "(64x64, a part of 48x48, both cameras), for all networks.",
    "Models are not compared at a matched familiar accuracy, as by Hinton et "
    "al., 2018.",
    paper.BEST_AGAINST_LAST,
)
# Familiar and novel accuracy and entropy stand side by side in the paper.
QUANTIZED = (
    paper.FAMILIAR_ACCURACY,
    paper.FAMILIAR_ENTROPY,
    Column("novel, %", "accuracy", 2, 100),
    Column("novel, bits", "entropy_bits", 2),
    paper.SPARSITY,
    paper.OFF_UNIFORM,
    paper.T_SCORE,
)
AS_THEY_ARE = (
    paper.FAMILIAR_ACCURACY,
    Column("novel, %", "accuracy", 2, 100),
    paper.SPARSITY,
)


def rows(
    recipe: str,
    viewpoint: str,
    network: str,
    columns: tuple[Column, ...],
    published: dict[str, tuple[str | None, ...]],
) -> list[Row]:
    """Returns the rows of a run; tables 3 and 5 share theirs with table 6.

    Args:
        recipe: A key of `paper.RECIPES`.
        viewpoint: `"elevation"` or `"azimuth"`.
        network: A key of `paper.NETWORKS`.
        columns: `QUANTIZED` or `AS_THEY_ARE`.
        published: For each model that is shown what the paper has.
    """
    table = TABLE_3 if network == "Eff-CapsNet" else TABLE_5
    sparsity = table[viewpoint, f"{network}+REM"][-1]
    return paper.rows(
        (viewpoint, network),
        paper.run_name(viewpoint, network),
        paper.config(recipe, viewpoint, network, sparsity or 0),
        columns,
        published,
    )


def quantized_rows(recipe: str, table: Table, networks: list[str]) -> list[Row]:
    """Returns the rows of table 3 or 5."""
    return [
        row
        for viewpoint in ("elevation", "azimuth")
        for network in networks
        for row in rows(
            recipe,
            viewpoint,
            network,
            QUANTIZED,
            {m: table[viewpoint, network + m] for m in ("+Q", "+REM")},
        )
    ]
