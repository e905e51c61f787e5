"""Shared by the scripts that measure a network for each seed.

A row of measures is added to <name>.jsonl, and <name>.md made of all rows.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cli import Parser, run_command, start_quietly
from markdown_table import table, write_tables

Row = dict[str, Any]
FOLDER = Path("results") / "named_parts"


class Page(NamedTuple):
    """What a script measures, and how it is shown.

    Attributes:
        name: Of its files. Words about the table stand in <name>.md itself.
        columns: For each column its head, and the format of its cells.
        order: Names of the values by which lines are sorted.
        lines: Makes the lines of the table of a row.
    """

    name: str
    columns: tuple[tuple[str, str], ...]
    order: tuple[str, ...] = ("seed",)
    lines: Callable[[Row], list[Row]] = lambda row: [row]

    def write(self, folder: Path) -> None:
        """Makes the table of the rows that a folder has."""
        path = folder / f"{self.name}.jsonl"
        rows = map(json.loads, path.read_text("utf-8").splitlines())
        lines = [line for row in rows for line in self.lines(row)]
        lines.sort(key=lambda line: [line[key] for key in self.order])
        write_tables(path.with_suffix(".md"), table(lines, self.columns))

    def main(
        self,
        parser: Parser,
        measured: Callable[[argparse.Namespace, int], Row],
    ) -> int:
        """Runs a script, and returns its exit status.

        Args:
            parser: Parser of its flags, of `make_parser`.
            measured: Trains, and returns the row of a seed.
        """
        return run_command(parser, lambda flags: self._measure(flags, measured))

    def _measure(
        self, options: argparse.Namespace, measured: Callable[..., Any]
    ) -> None:
        start_quietly()
        options.to.mkdir(parents=True, exist_ok=True)
        path = options.to / f"{self.name}.jsonl"
        for seed in options.seeds:
            text = json.dumps(measured(options, seed)) + "\n"
            with path.open("a", encoding="utf-8") as file:
                file.write(text)
            print(text, end="", flush=True)
            self.write(options.to)


def make_parser(name: str, about: str | None) -> Parser:
    """Returns the parser of a script, which knows seeds and where rows go."""
    parser = Parser(prog=f"examples.{name}", description=about)
    add = parser.add_argument
    add("--seeds", type=int, nargs="+", required=True)
    add("--to", type=Path, default=FOLDER, metavar="FOLDER")
    return parser


def kept(folder: Path | None, name: str, make: Callable[[], Any]) -> Any:
    """Returns a trained network, saved in a folder by this run or a former."""
    import keras

    from tfcaps.files import save_atomically

    path = folder and folder / f"{name}.keras"
    if path and path.exists():
        return keras.models.load_model(path, compile=False)
    network = make()
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_atomically(network.save, path)
    return network


def right(lengths: Any, labels: Any) -> float:
    """Returns how many classes are right, in percent."""
    return 100 * float(np.mean(np.argmax(lengths, axis=1) == labels))


def named(
    trees: Any, masks: Any, names: Any = None, by_chance: bool = False
) -> Any:
    """Returns how trees name the parts of images, see `rem.named_parts`.

    Args:
        trees: The trees of the first images.
        masks: Masks of the images.
        names: The kind by which each type is called.
        by_chance: Bool. Shuffle the kinds of all parts.
    """
    from tfcaps import rem

    masks = masks[: len(trees.predicted)]
    kinds, there = masks.kinds.copy(), masks.kinds >= 0
    if by_chance:
        kinds[there] = np.random.default_rng(0).permutation(kinds[there])
    known = rem.PartMasks(masks.parts, kinds=kinds, reach=None)
    return rem.named_parts(trees, known, type_kinds=names)


def names_of_types(named: Any) -> Any:
    """Returns the kind on which most leaves of each type lie, -1 for none."""
    counts = np.array(named.table)
    return np.where(counts.any(axis=1), counts.argmax(axis=1), -1)


def of_types(found: Any, chance: Any) -> Row:
    """Returns how well types tell the kinds of parts, also by chance."""
    return {
        "types": found.types,
        "information": found.information,
        "information_chance": chance.information,
        "purity": found.purity,
        "found_once": 100 * found.found_once,
        "leaves": found.leaves,
    }


def draw_trees(
    path: Path,
    images: Any,
    titles: Sequence[str],
    wrong: Sequence[bool],
    leaves: Sequence[Sequence[tuple[Any, str]]],
) -> None:
    """Draws images and their leaves, each a place and what it is called.

    Wrong titles are red.
    """
    from tfcaps.viz.drawing import in_rows, picture, show

    page, panels = in_rows(len(images), 10.0, 0.0, 2.5)
    style: Any = {"color": "w", "ha": "center", "va": "center", "fontsize": 8}
    style["parse_math"] = False
    style["bbox"] = {"fc": "tab:blue", "ec": "none", "alpha": 0.7, "pad": 1}
    for panel, image, title, is_wrong, own in zip(
        panels, images, titles, wrong, leaves, strict=True
    ):
        show(panel, picture(image))
        tint = "crimson" if is_wrong else "k"
        panel.set_title(title, fontsize=9, color=tint, parse_math=False)
        for (row, column), text in own:
            panel.text(column, row, text, **style)
    page.savefig(path, dpi=80)
