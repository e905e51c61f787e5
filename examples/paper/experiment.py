"""An experiment: the runs of a table, and its columns, read from a file.

`examples/paper/rows/table_9.toml` is table 9 of the paper. Its `rows` have a
line for each row of the table: labels, the `run` that it shows, the `settings`
of that run, and the published numbers under the names of columns. A line
without a run shows that of the line above. Settings are `name=value`, or the
name of several that the file or `shared.toml` has under `[settings]`; those of
`all` are every run's. Three are not settings of a run: `defaults`, the data set
(and the network) whose settings are the start, if that is not the run's own;
`target`, the published sparsity in %, which a recipe of the paper trains to;
and `recipe`, if it is always the same.
"""

import contextlib
import dataclasses
import functools
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cli import UserError
from training import recipes
from training.configs import Config
from training.tables import Column

_ROWS = Path(__file__).parent / "rows"
NAMES = tuple(sorted({p.stem for p in _ROWS.glob("*.toml")} - {"shared"}))
TABLES_OF_THE_PAPER = tuple(n for n in NAMES if n.startswith("table_"))
# How the runs of a table of the paper are trained; the first unless another is
# asked for. The released settings have no target for the sparsity.
RECIPES: dict[str, dict[str, Any]] = {
    "short": {"epochs": 30, "learning_rate": 1e-3, "pruning": "polynomial"},
    "paper": recipes.TRAINING["paper"],
}
# Levels that the paper found, if other than 11; γ-CapsNet has a hidden and a
# class layer.
_LEVELS = {"gamma_capsnet": (11, 6), "efficient_conv_capsnet": 21}

# How tables call what is measured of a run -> model, accuracy.
_SHOWN = {
    "baseline": ("baseline", "accuracy_quantized"),
    "vanilla": ("baseline", "accuracy"),
    "+Q": ("baseline", "accuracy_quantized"),
    "+REM": ("rem", "accuracy_quantized"),
    "pruned": ("rem", "accuracy"),
}
_WITHOUT_TREES = (
    *("accuracy", "sparsity_paper"),
    *("nonzero_parameters", "multiply_adds"),
)


class Row(NamedTuple):
    """A row of a table."""

    labels: tuple[str, ...]  # cells of its first columns
    run: str  # name of the run that it shows; rows may share one
    config: Config  # of that run, but for the seed
    # For each column where its value stands under the `models` of `rem.json`,
    # and the paper's cell, as printed.
    fields: tuple[str | None, ...]
    published: tuple[str | None, ...]


class Experiment(NamedTuple):
    """The runs of a table, each with several seeds, and the table."""

    title: str
    labels: tuple[str, ...]  # heads of the first columns
    columns: tuple[Column, ...]  # the measures
    rows: tuple[Row, ...]
    seeds: tuple[int, ...]  # of each run
    notes: tuple[str, ...] = ()  # sentences under the table

    @property
    def runs(self) -> dict[str, Row]:
        """A row of each run, by its name."""
        return {row.run: row for row in self.rows}


def load(name: str, recipe: str | None = None) -> Experiment:
    """Returns the experiment called `name`.

    A table of the paper has runs by the first of `RECIPES`, or another one.
    """
    if name not in NAMES:
        raise UserError(
            f"unknown experiment {name!r}; there are {', '.join(NAMES)}."
        )
    if recipe is not None and name not in TABLES_OF_THE_PAPER:
        raise UserError(f"{name} has settings of its own and no recipe.")
    recipe = recipe or next(iter(RECIPES))
    about, shared = _read(name), _read("shared")
    known = {"all": "", **shared["settings"], **about.get("settings", {})}
    notes = {**shared["notes"], **shared["recipes"]}
    notes["recipe"] = notes[recipe]
    text = f"\n{about['notes'].format_map(notes)}\n{shared['how']}"
    columns = {key: Column(*shared["columns"][key]) for key in about["columns"]}
    head, *lines = [
        [cell.strip() for cell in line.split("|")]
        for line in about["rows"].strip().splitlines()
    ]
    rows: list[Row] = []
    run = words = ""
    for line in lines:
        cells = dict(zip(head, line, strict=True))
        if cells["run"]:
            run, words = cells["run"], f"all {cells['settings']}"
        settings = _settings(words.split(), known)
        fields = [_field(cells, column) for column in columns.values()]
        # A label may be called like a column.
        labels = tuple(cells.pop(label) for label in about["labels"])
        published = tuple(cells.get(key) or None for key in columns)
        config = _config(settings, recipe)
        rows.append(Row(labels, run, config, tuple(fields), published))
    return Experiment(
        title=about["title"],
        labels=tuple(about["labels"]),
        columns=tuple(columns.values()),
        rows=tuple(rows),
        seeds=tuple(about["seeds"]),
        notes=tuple(" ".join(note.split()) for note in text.split("\n- ")[1:]),
    )


@functools.cache
def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((_ROWS / f"{name}.toml").read_text("utf-8"))


def _settings(words: list[str], known: Mapping[str, str]) -> dict[str, Any]:
    """Returns settings by name, the later ones in place of those before."""
    settings: dict[str, Any] = {}
    text: Any
    for word in words:
        name, is_setting, text = word.partition("=")
        if is_setting:
            with contextlib.suppress(ValueError):  # of plain words
                text = json.loads(text)
            settings[name] = tuple(text) if isinstance(text, list) else text
        else:
            settings |= _settings(known[name].split(), known)
    return settings


def _config(settings: dict[str, Any], recipe: str) -> Config:
    """Returns the settings of a run, on top of those of its data set."""
    from training import defaults  # it loads NumPy

    target = settings.pop("target", None)
    recipe = settings.pop("recipe", recipe)
    like = settings.pop("defaults", settings["dataset"])
    dataset, _, model = like.partition("/")
    config = defaults.load(
        dataset, model or settings.get("model"), settings.get("backbone")
    )
    if target is not None:
        of_recipe = {
            "rem": True,
            "levels": _LEVELS.get(settings["model"], 11),
            "batch_size": 128,
            **RECIPES[recipe],
        }
        if recipe != "paper":
            of_recipe["final_sparsity"] = target / 100
        settings = of_recipe | settings
    return dataclasses.replace(config, **settings)


def _field(cells: Mapping[str, str], column: Column) -> str | None:
    """Returns where a row finds what a column asks for.

    Its field leads downwards from the row's model, that of a table without
    models from all of them. Without quantisation there are no trees.
    """
    if "model" not in cells:
        return column.field.format_map(cells)
    model, accuracy = _SHOWN[cells["model"]]
    *owners, name = column.field.split(".")
    if accuracy == "accuracy" and name not in _WITHOUT_TREES:
        return None
    return ".".join([model, *owners, accuracy if name == "accuracy" else name])
