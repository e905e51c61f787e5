"""Shared by the scripts that measure a network for each seed.

A row of measures is added to <name>.jsonl, and <name>.md made of all rows.
"""

import argparse
import dataclasses
import json
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cli import Parser, run_command, start_quietly
from markdown_table import narrow, write_tables

Row = dict[str, Any]
PAGES = tomllib.loads(Path(__file__).with_name("pages.toml").read_text("utf-8"))
FOLDER = Path("results") / "named_parts"
TREE_MEASURES = (
    *("answer_changes", "necessity", "necessity_active"),
    *("necessity_random", "sufficiency", "sufficiency_longest"),
)
_DRAWN = 10  # images whose trees are drawn


def write_page(path: Path, name: str, rows: Sequence[Row]) -> None:
    """Writes the table of a page of `pages.toml`, whose words stay."""
    page = PAGES[name]
    lines = [line for row in rows for line in _lines(row, page.get("lines"))]
    lines.sort(key=lambda line: [line[key] for key in page["order"]])
    cells = [[_cell(form, x) for _, form in page["columns"]] for x in lines]
    heads = [head for head, _ in page["columns"]]
    write_tables(path, narrow([heads, *cells]))


def _lines(row: Row, names: Sequence[str] | None) -> Iterator[Row]:
    if names is None:
        yield row
    for name in names or ():
        of_name = row.get(name, [])
        if isinstance(of_name, dict):
            of_name = [{"layer": name, **of_name}]
        yield from ({**row, **line} for line in of_name)


def _cell(form: str, line: Row) -> str:
    try:
        return form.format_map(line)
    except KeyError:
        return "–"


def main(
    name: str, parser: Parser, measure: Callable[[argparse.Namespace, int], Row]
) -> int:
    """Runs a script, and returns its exit status.

    Args:
        name: The page of `pages.toml`.
        parser: Parser of its flags, of `make_parser`.
        measure: Trains, and returns the row of a seed.
    """

    def run(options: argparse.Namespace) -> None:
        start_quietly()
        from training.folder import environment

        path = options.to / f"{name}.jsonl"
        options.to.mkdir(parents=True, exist_ok=True)
        for seed in options.seeds:
            row = {"seed": seed, **measure(options, seed)}
            row["commit"] = environment()["commit"]
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)
            lines = path.read_text("utf-8").splitlines()
            rows = [json.loads(line) for line in lines]
            write_page(path.with_suffix(".md"), name, rows)

    return run_command(parser, run)


def make_parser(
    name: str, about: str | None, samples: int, epochs: int, tested: int
) -> Parser:
    """Returns the parser of a script, with its defaults."""
    parser = Parser(prog=f"examples.{name}", description=about)
    add = parser.add_argument
    add("--seeds", type=int, nargs="+", required=True)
    add("--samples", type=int, default=samples, help="training images")
    add("--epochs", type=int, default=epochs)
    add("--tested", type=int, default=tested, help="images to measure on")
    add("--to", type=Path, default=FOLDER, metavar="FOLDER")
    add("--draw", type=Path, metavar="FILE", help="draw some trees")
    return parser


def falling_rate(start: float, epochs: int, images: int, batch: int) -> Any:
    """Returns a learning rate that falls to 0 as a cosine."""
    import keras

    steps = max(epochs * (images // batch), 1)
    return keras.optimizers.schedules.CosineDecay(start, steps)


def fit_known(
    network: Any,
    images: Any,
    labels: Any,
    cells: Any,
    rate: float,
    batch: int,
    epochs: int,
) -> None:
    """Trains a `constellation_capsnet` of which it is known what is where.

    `cells` have the type at each place, see `tfcaps.parts.CellLoss`.
    """
    import keras

    import tfcaps

    network.compile(
        keras.optimizers.Adam(falling_rate(rate, epochs, len(labels), batch)),
        {
            "evidence": tfcaps.parts.EvidenceLoss(generative=0.0),
            "presence": tfcaps.parts.CellLoss(),
        },
        loss_weights={"evidence": 0.3, "presence": 1.0},
    )
    targets = {"evidence": labels, "presence": cells}
    harden = tfcaps.callbacks.HardenParts(0.35)
    network.fit(images, targets, batch, epochs, verbose=2, callbacks=[harden])


def percent_right(lengths: Any, labels: Any) -> float:
    """Returns how many classes are right, in percent."""
    return 100 * float(np.mean(np.argmax(lengths, axis=1) == labels))


def named_parts(
    trees: Any, masks: Any, type_kinds: Any = None, by_chance: bool = False
) -> Any:
    """Returns how trees name the parts of the first images.

    `type_kinds` are the kinds by which types are called, see `rem.named_parts`.
    By chance the kinds of all parts are shuffled.
    """
    from tfcaps import rem

    masks = masks[: len(trees)]
    if by_chance:
        kinds, there = masks.kinds.copy(), masks.kinds >= 0
        kinds[there] = np.random.default_rng(0).permutation(kinds[there])
        masks = dataclasses.replace(masks, kinds=kinds)
    return rem.named_parts(trees, masks, type_kinds=type_kinds)


def kinds_of_types(named: Any) -> Any:
    """Returns the kind on which most leaves of each type lie, -1 for none."""
    counts = np.array(named.table)
    return np.where(counts.any(axis=1), counts.argmax(axis=1), -1)


def type_measures(named: Any, chance: Any) -> Row:
    """Returns how well types tell the kinds of parts, also by chance."""
    return {
        "types": named.types,
        "information": named.information,
        "information_chance": chance.information,
        "purity": named.purity,
        "found_once": 100 * named.found_once,
        "leaves": named.leaves,
    }


def tree_measures(used: Any) -> Row:
    """Returns what is shown of `rem.faithfulness`, children silenced at 0."""
    return {k: round(getattr(used, k)["zero"], 4) for k in TREE_MEASURES}


def draw_trees(
    path: Path,
    network: Any,
    images: Any,
    trees: Any,
    labels: Any,
    classes: Sequence[str],
    types: Sequence[str] | None = None,
) -> None:
    """Draws the trees of the first images, with names of classes and types."""
    from tfcaps import rem, viz

    few = slice(_DRAWN)
    explained = rem.explain(
        network,
        images[few],
        trees=trees[few],
        class_names=classes,
        type_names=types,
    )
    pairs = zip(trees.predicted[few], labels[few], strict=True)
    titles = [
        f"{classes[j]} ({'right' if j == k else f'WRONG: {classes[k]}'})"
        for j, k in pairs
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    viz.tree_fields(explained, titles).save(path)
