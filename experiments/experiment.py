"""An experiment: the runs of a table, and the columns of the table."""

import dataclasses
import importlib
from collections.abc import Callable

from cli import UserError
from training.configs import Config
from training.tables import Column

TABLES_OF_THE_PAPER = tuple(
    f"table_{number}" for number in (1, 2, 3, 5, 6, 7, 9, 10, 11, 12)
)
NAMES = (
    *TABLES_OF_THE_PAPER,
    "efficient_capsnet",
    "dr_capsnet",
    "strategies",
    "ablation",
    "faithfulness",
    "photos",
    "pretrained",
    "structured",
    "hidden_capsules",
)

# How the paper calls what is measured of a run -> model, accuracy.
SHOWN = {
    "vanilla": ("baseline", "accuracy"),
    "+Q": ("baseline", "accuracy_quantized"),
    "+REM": ("rem", "accuracy_quantized"),
    "pruned": ("rem", "accuracy"),
}
_OF_TREES = {
    "class_share",
    "entropy_bits",
    "median_keys",
    "necessity",
    "necessity_random",
    "nonuniform_share",
    "normalized_entropy",
    "size",
    "strong_share",
    "sufficiency",
    "t_score",
    "t_score_voting",
    "whole_share",
}


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        labels: Cells of its first columns, under the experiment's labels.
        run: Name of the run that it shows; rows may share one.
        config: Settings of that run, but for the seed.
        fields: For each column where its value stands under the `models` of
            `rem.json`, or `None`.
        published: For each column the paper's cell, as printed, or `None`.
    """

    labels: tuple[str, ...]
    run: str
    config: Config
    fields: tuple[str | None, ...]
    published: tuple[str | None, ...] = ()


@dataclasses.dataclass(frozen=True)
class Experiment:
    """The runs of a table, each with several seeds, and the table.

    Attributes:
        title: Headline of the table.
        labels: Heads of the first columns.
        columns: The measures.
        rows: The rows, in order.
        seeds: Seeds of each run.
        notes: Sentences under the table.
        figures: Functions of `tfcaps.viz` that show it, see
            `experiments/figures.py`. The first label is the data set.
        group: Label that colours and marks stand for.
    """

    title: str
    labels: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    seeds: tuple[int, ...]
    notes: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    group: str = "model"

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.labels) != len(self.labels):
                raise ValueError(f"{row.labels} must be {self.labels}.")
            if len(row.fields) != len(self.columns):
                raise ValueError(f"{row.labels} must have a field per column.")
            if len(row.published) not in (0, len(self.columns)):
                raise ValueError(f"{row.labels} must have a cell per column.")
            if self.configs.get(row.run) not in (None, row.config):
                raise ValueError(f"two rows call different runs {row.run}.")

    @property
    def configs(self) -> dict[str, Config]:
        """The settings of each run, but for the seed."""
        configs: dict[str, Config] = {}
        for row in self.rows:
            configs.setdefault(row.run, row.config)
        return configs

    @property
    def has_published(self) -> tuple[bool, ...]:
        """Whether the paper has values for a column."""
        cells = [row.published for row in self.rows if row.published]
        return tuple(
            any(row[k] is not None for row in cells)
            for k in range(len(self.columns))
        )

    def reduced(self, samples: int, epochs: int) -> "Experiment":
        """Returns the same with little data, few epochs and one seed."""
        fewer = self._with(
            lambda config: dataclasses.replace(
                config,
                samples=min(samples, config.samples or samples),
                epochs=min(epochs, config.epochs),
            )
        )
        return dataclasses.replace(fewer, seeds=self.seeds[:1])

    def repeatable(self) -> "Experiment":
        """Returns the same with runs whose numbers are the same bit for bit."""
        return self._with(
            lambda config: dataclasses.replace(config, deterministic=True)
        )

    def _with(self, change: Callable[[Config], Config]) -> "Experiment":
        rows = tuple(
            dataclasses.replace(row, config=change(row.config))
            for row in self.rows
        )
        return dataclasses.replace(self, rows=rows)


def fields_of(
    shown: str, columns: tuple[Column, ...]
) -> tuple[str | None, ...]:
    """Returns where a row finds what the columns ask for.

    Args:
        shown: A key of `SHOWN`. Without quantisation there are no trees.
        columns: Those of the table. Their fields lead downwards from a model.
    """
    model, accuracy = SHOWN[shown]
    fields: list[str | None] = []
    for column in columns:
        *owners, name = column.field.split(".")
        if name == "accuracy":
            name = accuracy
        elif accuracy == "accuracy" and _OF_TREES & {*owners, name}:
            fields.append(None)
            continue
        fields.append(".".join([model, *owners, name]))
    return tuple(fields)


def load(name: str, recipe: str | None = None) -> Experiment:
    """Returns the experiment called `name`.

    Args:
        name: One of `NAMES`.
        recipe: How the runs of a table of the paper are trained, see
            `experiments/paper.py`, or `None` for its first recipe.

    Raises:
        UserError: If a name is unknown.
    """
    if name not in NAMES:
        raise UserError(
            f"unknown experiment {name!r}; there are {', '.join(NAMES)}."
        )
    module = importlib.import_module(f"experiments.rows.{name}")
    if recipe is None:
        return module.get_experiment()
    if name not in TABLES_OF_THE_PAPER:
        raise UserError(f"{name} has settings of its own and no recipe.")
    return module.get_experiment(recipe)
