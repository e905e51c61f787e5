"""An experiment: the runs of a table, and its columns, read from a file.

`experiments/rows/table_9.toml` is table 9 of the paper. Its `rows` have a line
for each row of the table: labels, the `run` that it shows, the `settings` of
that run, and the published numbers under the names of columns. A line without a
run shows that of the line above. Settings are `name=value`, or the name of
several that the file or `shared.toml` has under `[settings]`; those of `all`
are every run's. Two are not settings of a run: `defaults`, the data set (and
the network) whose settings are the start, if that is not the run's own, and
`target`, the published sparsity in %, which a recipe of the paper trains to.
"""

import dataclasses
import functools
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cli import UserError
from training import presets
from training.configs import Config
from training.tables import Column

_ROWS = Path(__file__).parent / "rows"
NAMES = tuple(sorted({p.stem for p in _ROWS.glob("*.toml")} - {"shared"}))
TABLES_OF_THE_PAPER = tuple(n for n in NAMES if n.startswith("table_"))
# How the runs of a table of the paper are trained; the first unless another is
# asked for. The released settings have no target for the sparsity.
RECIPES: dict[str, dict[str, Any]] = {
    "short": {"epochs": 30, "learning_rate": 1e-3, "pruning": "polynomial"},
    "paper": presets.SETTINGS,
}

# How tables call what is measured of a run -> model, accuracy.
_SHOWN = {
    "baseline": ("baseline", "accuracy_quantized"),
    "vanilla": ("baseline", "accuracy"),
    "+Q": ("baseline", "accuracy_quantized"),
    "+REM": ("rem", "accuracy_quantized"),
    "pruned": ("rem", "accuracy"),
}
_WITHOUT_TREES = (
    "accuracy",
    "sparsity_paper",
    "nonzero_parameters",
    "multiply_adds",
)


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
    published: tuple[str | None, ...]


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
    """

    title: str
    labels: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    seeds: tuple[int, ...]
    notes: tuple[str, ...] = ()

    @property
    def configs(self) -> dict[str, Config]:
        """The settings of each run, but for the seed."""
        return {row.run: row.config for row in self.rows}

    @property
    def has_published(self) -> tuple[bool, ...]:
        """Whether the paper has values for a column."""
        cells = zip(*(row.published for row in self.rows), strict=True)
        return tuple(any(cell is not None for cell in some) for some in cells)


def load(name: str, recipe: str | None = None) -> Experiment:
    """Returns the experiment called `name`.

    Args:
        name: One of `NAMES`.
        recipe: One of `RECIPES` for the runs of a table of the paper, or `None`
            for the first.

    Raises:
        UserError: If a name is unknown.
    """
    if name not in NAMES:
        raise UserError(
            f"unknown experiment {name!r}; there are {', '.join(NAMES)}."
        )
    if recipe is not None and name not in TABLES_OF_THE_PAPER:
        raise UserError(f"{name} has settings of its own and no recipe.")
    recipe = recipe or next(iter(RECIPES))
    about, shared = _read(name), _read("shared")
    known = {**shared["settings"], **about.get("settings", {})}
    notes = {**shared["notes"], "recipe": shared["recipes"][recipe]}
    text = "\n" + about["notes"].format_map(notes)
    columns = {key: Column(*shared["columns"][key]) for key in about["columns"]}
    return Experiment(
        title=about["title"],
        labels=tuple(about["labels"]),
        columns=tuple(columns.values()),
        rows=_rows(about, columns, known, recipe),
        seeds=tuple(about["seeds"]),
        notes=tuple(" ".join(note.split()) for note in text.split("\n- ")[1:]),
    )


@functools.cache
def _read(name: str) -> dict[str, Any]:
    """Returns a file of `experiments/rows/`."""
    return tomllib.loads((_ROWS / f"{name}.toml").read_text("utf-8"))


def _rows(
    about: Mapping[str, Any],
    columns: Mapping[str, Column],
    known: Mapping[str, str],
    recipe: str,
) -> tuple[Row, ...]:
    head, *lines = [
        [cell.strip() for cell in line.split("|")]
        for line in about["rows"].strip().splitlines()
    ]
    published = columns.keys() & {*head} - {*about["labels"]}
    rows = []
    run = {"run": "", "settings": ""}
    for line in lines:
        cells = dict(zip(head, line, strict=True))
        run = {key: cells[key] for key in run} if cells["run"] else run
        cells |= run
        words = f"all {cells['settings']}".split()
        row = Row(
            tuple(cells[label] for label in about["labels"]),
            cells["run"],
            _config(_settings(words, {"all": "", **known}), recipe),
            _fields(cells, columns),
            tuple(
                cells[k] or None if k in published else None for k in columns
            ),
        )
        rows.append(row)
    return tuple(rows)


def _settings(words: list[str], known: Mapping[str, str]) -> dict[str, Any]:
    """Returns settings by name, the later ones in place of those before."""
    settings: dict[str, Any] = {}
    for word in words:
        name, is_setting, text = word.partition("=")
        if is_setting:
            settings[name] = _value(text)
        else:
            settings |= _settings(known[name].split(), known)
    return settings


def _value(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return tuple(value) if isinstance(value, list) else value


def _config(settings: dict[str, Any], recipe: str) -> Config:
    """Returns the settings of a run, on top of those of its data set."""
    from training import presets  # it loads NumPy

    target = settings.pop("target", None)
    like = settings.pop("defaults", settings["dataset"])
    dataset, _, model = like.partition("/")
    config = presets.load(
        dataset, model or settings.get("model"), settings.get("backbone")
    )
    if target is not None:
        sparsity = target / 100
        settings = _of_recipe(recipe, settings["model"], sparsity) | settings
    return dataclasses.replace(config, **settings)


def _of_recipe(recipe: str, model: str, sparsity: float) -> dict[str, Any]:
    """Returns the settings of a run of the paper, baseline and REM."""
    target = {} if recipe == "paper" else {"final_sparsity": sparsity}
    return {
        "rem": True,
        "levels": presets.LEVELS.get(model, 11),
        "batch_size": presets.BATCH_SIZE,
        **target,
        **RECIPES[recipe],
    }


def _fields(
    cells: Mapping[str, str], columns: Mapping[str, Column]
) -> tuple[str | None, ...]:
    """Returns where a row finds what the columns ask for.

    Fields of columns lead downwards from the row's model, those of a table
    without models from all of them. Without quantisation there are no trees.
    """
    if "model" not in cells:
        return tuple(c.field.format_map(cells) for c in columns.values())
    model, accuracy = _SHOWN[cells["model"]]
    fields: list[str | None] = []
    for column in columns.values():
        *owners, name = column.field.split(".")
        if accuracy == "accuracy" and name not in _WITHOUT_TREES:
            fields.append(None)
            continue
        name = accuracy if name == "accuracy" else name
        fields.append(".".join([model, *owners, name]))
    return tuple(fields)
