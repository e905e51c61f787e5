"""Lists a user's pictures and their classes, from a folder or a CSV file.

In a folder stands one folder of pictures for each class. The first line of a
CSV file has the names of the columns: `file`, from the folder of the CSV file,
and `label`. A column `split`, if there is one, says `train`, `validation` or
`test`. Others are not looked at.
"""

import collections
import contextlib
import csv
import dataclasses
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from cli import UserError
from training import images as pixels
from training.image_data import Array

PARTS = ("train", "validation", "test")
_SEPARATORS = ";|"  # between several labels of a picture
_ONE_CLASS = "picture has one class; several labels for one are not supported."


@dataclasses.dataclass(frozen=True)
class Picture:
    """A file and its class.

    Attributes:
        file: The file.
        label: The name of its class.
        part: One of `PARTS`.
        where: The line of a CSV file that lists it, or nothing.
    """

    file: Path
    label: str
    part: str = "train"
    where: str = ""

    def __str__(self) -> str:
        return f"{self.file} ({self.where})" if self.where else str(self.file)


@dataclasses.dataclass(frozen=True)
class Listing:
    """Pictures, and what was left out.

    Attributes:
        source: The folder or file that lists them.
        pictures: The pictures.
        class_names: The classes, also those without pictures.
        left_out: A sentence for each file that does not count.
    """

    source: Path
    pictures: tuple[Picture, ...]
    class_names: tuple[str, ...]
    left_out: tuple[str, ...] = ()

    def labels(self) -> Array:
        """Returns the class index of each picture."""
        numbers = {name: k for k, name in enumerate(self.class_names)}
        return np.array([numbers[p.label] for p in self.pictures], np.int64)

    def without(self, sentences: Mapping[Picture, str]) -> "Listing":
        """Returns the listing without some pictures, and why."""
        reasons = [sentences[p] for p in self.pictures if p in sentences]
        return dataclasses.replace(
            self,
            pictures=tuple(p for p in self.pictures if p not in sentences),
            left_out=(*self.left_out, *dict.fromkeys(reasons)),
        )

    def check(self) -> None:
        """Raises `UserError` if there are too few classes or pictures."""
        is_folder = self.source.is_dir()
        if len(self.class_names) < 2:
            what = "labels"
            if is_folder:
                what = "folders, one of images for each class"
            raise UserError(
                f"{self.source} must have at least two {what}; it has "
                f"{len(self.class_names)}."
            )
        counts = collections.Counter(p.label for p in self.pictures)
        training = {p.label for p in self.pictures if p.part == "train"}
        for name in self.class_names:
            place = f"{self.source}: the class {name!r}"
            if counts[name] < 2:
                if is_folder:
                    place = str(self.source / name)
                raise UserError(
                    f"{place} must have at least two images; it has "
                    f"{counts[name]}{self._reason(name)}"
                )
            if name not in training:
                raise UserError(
                    f"{place} must have images whose split is train; it has "
                    "none."
                )

    def _reason(self, name: str) -> str:
        """Returns why a class may have too few pictures."""
        folder = self.source / name
        if folder.is_dir() and (deeper := next(_deeper(folder), None)):
            return (
                ". There are some in folders inside it, such as "
                f"{deeper}, which are not looked at: put them into {folder}, "
                "or list them in a CSV file."
            )
        if self.left_out:
            return f" besides those left out: {self.left_out[-1]}"
        return f" ({', '.join(pixels.SUFFIXES)})."

    def unique(self, *, skip_broken: bool) -> "Listing":
        """Returns the listing with each picture once.

        The second of a class would stand in training and test images.

        Args:
            skip_broken: Leave out those of several classes.

        Raises:
            UserError: If the same picture is of several classes.
        """
        sentences = {}
        for first, *copies in _alike(self.pictures):
            strangers = [p for p in copies if p.label != first.label]
            if not strangers:
                for copy in copies:
                    text = f"{copy} is the same picture as {first}."
                    sentences[copy] = text
                continue
            text = (
                f"{first} and {strangers[0]} are the same picture in two "
                f"classes, {first.label!r} and {strangers[0].label!r}. A "
                f"{_ONE_CLASS}"
            )
            if not skip_broken:
                raise UserError(
                    f"{text} Leave one out, or both by --skip-broken."
                )
            sentences.update(dict.fromkeys((first, *copies), text))
        return self.without(sentences)


def is_listed(path: Path) -> bool:
    """Tells whether a path is what `of` lists."""
    return path.is_dir() or path.suffix.lower() == ".csv"


def of(path: Path) -> Listing:
    """Lists the pictures of a folder or a CSV file.

    Raises:
        UserError: If a CSV file is not usable; the sentence names the line. Of
            a folder nothing is refused here.
    """
    return _of_folder(path) if path.is_dir() else _of_csv(path)


def _of_folder(path: Path) -> Listing:
    folders = sorted(
        p for p in path.iterdir() if p.is_dir() and not _is_hidden(p.name)
    )
    pictures, left_out = [], []
    for folder in folders:
        files = pixels.files_in(folder)
        pictures += [Picture(file, folder.name) for file in files]
        left_out += [
            f"{deeper} and what else is in {deeper.parent}: pictures must "
            f"stand in {folder} itself."
            for deeper in (_deeper(folder) if files else ())
        ]
    names = tuple(p.name for p in folders)
    return Listing(path, tuple(pictures), names, tuple(left_out))


def _is_hidden(name: str) -> bool:
    # The second is what macOS puts into archives, shadows of pictures.
    return name[0] == "." or name == "__MACOSX"


def _deeper(folder: Path) -> Iterator[Path]:
    """Yields the first picture of each folder inside a class folder."""
    for path, folders, _ in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _is_hidden(name))
        if Path(path) != folder:
            yield from pixels.files_in(Path(path))[:1]


def _of_csv(path: Path) -> Listing:
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            pictures = tuple(_rows(path, file))
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


def _rows(path: Path, lines: Iterable[str]) -> Iterator[Picture]:
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
            raise UserError(f"{where} has the labels {label!r}; a {_ONE_CLASS}")
        if part not in PARTS:
            raise UserError(
                f"{where} has the split {part!r}; it must be one of "
                f"{', '.join(PARTS)}."
            )
        yield Picture(path.parent / cells["file"], label, part, where)


def _alike(pictures: Iterable[Picture]) -> Iterator[list[Picture]]:
    """Yields pictures whose files have the same bytes, where some have."""
    by_size, by_bytes = (collections.defaultdict(list) for _ in range(2))
    for picture in pictures:
        with contextlib.suppress(OSError):
            by_size[picture.file.stat().st_size].append(picture)
    by_size.pop(0, None)  # an empty file is no picture
    for same_size in by_size.values():
        for picture in same_size if len(same_size) > 1 else ():
            with contextlib.suppress(OSError):
                digest = hashlib.blake2b(picture.file.read_bytes()).digest()
                by_bytes[digest].append(picture)
    for same in by_bytes.values():
        if len(same) > 1 and pixels.header(same[0].file) is not None:
            yield same
