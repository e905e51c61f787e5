"""Lists a user's pictures and their classes."""

import collections
import dataclasses
import hashlib
import itertools
import os
from collections.abc import Callable, Hashable, Iterable, Iterator
from pathlib import Path

import numpy as np

from cli import UserError
from training import images as pixels

PARTS = ("train", "validation", "test")
_ONE_CLASS = (
    "A picture has one class; several labels for one are not supported."
)


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

    def labels(self) -> np.ndarray:
        """Returns the class index of each picture."""
        numbers = {name: k for k, name in enumerate(self.class_names)}
        return np.array([numbers[p.label] for p in self.pictures], np.int64)

    def without(self, sentences: dict[Picture, str]) -> "Listing":
        """Returns the listing without some pictures, and why."""
        reasons = [sentences[p] for p in self.pictures if p in sentences]
        return dataclasses.replace(
            self,
            pictures=tuple(p for p in self.pictures if p not in sentences),
            left_out=(*self.left_out, *dict.fromkeys(reasons)),
        )

    def check(self) -> None:
        """Raises `UserError` if there are too few classes or pictures."""
        if len(self.class_names) < 2:
            what = "folders, one of images for each class"
            if not self.source.is_dir():
                what = "labels"
            raise UserError(
                f"{self.source} must have at least two {what}; it has "
                f"{len(self.class_names)}."
            )
        counts = collections.Counter(p.label for p in self.pictures)
        training = {p.label for p in self.pictures if p.part == "train"}
        for name in self.class_names:
            if counts[name] < 2:
                raise UserError(self._too_few(name, counts[name]))
            if name not in training:
                raise UserError(
                    f"{self.source}: the class {name!r} must have images whose "
                    "split is train; it has none."
                )

    def _too_few(self, name: str, count: int) -> str:
        folder = self.source / name
        in_folder = self.source.is_dir()
        what = folder if in_folder else f"{self.source}: the class {name!r}"
        text = f"{what} must have at least two images; it has {count}"
        if in_folder and (deeper := next(_deeper(folder), None)):
            return (
                f"{text}. There are some in folders inside it, such as "
                f"{deeper}, which are not looked at: put them into {folder}, "
                "or list them in a CSV file."
            )
        if self.left_out:
            return f"{text} besides those left out: {self.left_out[-1]}"
        return f"{text} ({', '.join(pixels.SUFFIXES)})."

    def unique(self, *, skip_broken: bool) -> "Listing":
        """Returns the listing with each picture once.

        The second of a class would stand in training and test images.

        Args:
            skip_broken: Leave out those of several classes.

        Raises:
            UserError: If the same picture is of several classes.
        """
        sentences = {}
        for first, *copies in self._alike():
            strangers = [p for p in copies if p.label != first.label]
            if not strangers:
                for copy in copies:
                    text = f"{copy} is the same picture as {first}."
                    sentences[copy] = text
                continue
            text = (
                f"{first} and {strangers[0]} are the same picture in two "
                f"classes, {first.label!r} and {strangers[0].label!r}. "
                f"{_ONE_CLASS}"
            )
            if not skip_broken:
                raise UserError(
                    f"{text} Leave one out, or both by --skip-broken."
                )
            sentences.update(dict.fromkeys((first, *copies), text))
        return self.without(sentences)

    def _alike(self) -> Iterator[list[Picture]]:
        """Yields pictures whose files have the same bytes."""
        for same_size in _groups(self.pictures, _size):
            for same in _groups(same_size, _digest):
                if pixels.header(same[0].file) is not None:
                    yield same


def of(path: Path) -> Listing:
    """Lists a folder of class folders. Nothing is refused here."""
    folders = sorted(p for p in path.iterdir() if _is_class(p))
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


def _is_class(path: Path) -> bool:
    return path.is_dir() and not _is_hidden(path.name)


def _is_hidden(name: str) -> bool:
    # The second is what macOS puts into archives, shadows of pictures.
    return name[0] == "." or name == "__MACOSX"


def _deeper(folder: Path) -> Iterator[Path]:
    """Yields the first picture of each folder inside a class folder."""
    for path, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _is_hidden(name))
        found = filter(pixels.is_image, map(Path(path).joinpath, sorted(files)))
        if Path(path) != folder:
            yield from itertools.islice(found, 1)


def _groups(
    pictures: Iterable[Picture], key: Callable[[Path], Hashable]
) -> Iterator[list[Picture]]:
    """Yields pictures of one key, where they are several."""
    groups = collections.defaultdict(list)
    for picture in pictures:
        groups[key(picture.file)].append(picture)
    groups.pop(None, None)
    yield from (group for group in groups.values() if len(group) > 1)


def _size(file: Path) -> int | None:
    # An empty file is no picture, nor is one that is not there.
    try:
        return file.stat().st_size or None
    except OSError:
        return None


def _digest(file: Path) -> bytes | None:
    try:
        with open(file, "rb") as content:
            return hashlib.file_digest(content, "blake2b").digest()
    except OSError:
        return None
