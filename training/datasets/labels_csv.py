"""A CSV file of pictures and their labels.

The first line has the names of the columns: `file`, from the folder of the CSV
file, and `label`. A column `split`, if there is one, says `train`, `validation`
or `test`. Others are not looked at.
"""

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path

from cli import UserError
from training.datasets.listing import PARTS, Listing, Picture

_SEPARATORS = ";|"  # between several labels of a picture


def is_csv(path: Path) -> bool:
    return path.suffix.lower() == ".csv"


def read(path: Path) -> Listing:
    """Lists the pictures of a CSV file.

    Raises:
        UserError: If it is not usable; the sentence names the line.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            pictures = tuple(_pictures(path, file))
    except FileNotFoundError as error:
        raise UserError(f"there is no file {path}.") from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8; save it as CSV in UTF-8: {error}."
        ) from error
    except csv.Error as error:
        raise UserError(f"{path} is not a readable CSV file: {error}.") from (
            error
        )
    names = sorted({picture.label for picture in pictures})
    return Listing(path, pictures, tuple(names))


def _pictures(path: Path, lines: Iterable[str]) -> Iterator[Picture]:
    rows = csv.DictReader(lines, strict=True)
    columns = [name.strip() for name in rows.fieldnames or ()]
    if not {"file", "label"} <= set(columns):
        raise UserError(
            f"{path} must have the columns file and label, named in its first "
            f"line and separated by commas; it has {', '.join(columns)}."
        )
    rows.fieldnames = columns
    for row in rows:
        where = f"{path}, line {rows.line_num}"
        # Too many cells are under `None`, those that are missing are `None`.
        if None in row or None in row.values():
            raise UserError(
                f"{where} must have {len(columns)} cells, as the first line "
                "has; put a name with a comma into quotes."
            )
        cells = {name: cell.strip() for name, cell in row.items()}
        for name in {"file", "label", "split"} & set(columns):
            if not cells[name]:
                raise UserError(f"{where} has no {name}.")
        label, part = cells["label"], cells.get("split", "train")
        if any(separator in label for separator in _SEPARATORS):
            raise UserError(
                f"{where} has the labels {label!r}; a picture has one class, "
                "and several labels for one are not supported."
            )
        if part not in PARTS:
            raise UserError(
                f"{where} has the split {part!r}; it must be one of "
                f"{', '.join(PARTS)}."
            )
        file = path.parent / cells["file"]
        yield Picture(file, label, part, where)
