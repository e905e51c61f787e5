"""A user's own images: an `.npz` file, a folder of class folders, or a CSV.

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
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from cli import UserError
from training import images as pixels
from training.datasets.data import Data, checked, held_out
from training.datasets.prepared import TEST_SHARE
from training.image_data import Array, Images, Split
from training.progress import progress

PARTS = ("train", "validation", "test")
_ARRAYS = ("x_train", "y_train", "x_test", "y_test")
_FEWEST_SHOWN = 1000  # pictures whose reading has a progress bar
_SEPARATORS = ";|"  # between several labels of a picture
_ONE_CLASS = "picture has one class; several labels for one are not supported."

# ---------------------------------------------------------------------- arrays


def npz(path: Path) -> Data:
    """Loads arrays of a file."""
    try:
        # Opened here, because numpy leaves a broken file open.
        with open(path, "rb") as file:
            arrays = np.load(file, allow_pickle=False)
            names = getattr(arrays, "files", [])
            if not set(_ARRAYS) <= set(names):
                raise UserError(
                    f"{path} must have the arrays {', '.join(_ARRAYS)}; "
                    f"it has {', '.join(names) or 'none'}."
                )
            parts = [arrays[name] for name in _ARRAYS]
    except FileNotFoundError as error:
        raise UserError(f"there is no file {path}.") from error
    except MemoryError as error:
        raise UserError(
            f"{path} says that its arrays need more memory than there is: "
            f"{error}."
        ) from error
    except (OSError, ValueError, EOFError, BadZipFile, zlib.error) as error:
        raise UserError(f"{path} is not a readable .npz file: {error}.") from (
            error
        )
    if not all(isinstance(part, np.ndarray) for part in parts):
        raise UserError(f"{path} has members that are no arrays.")
    x_train, y_train, x_test, y_test = parts
    return checked(path.stem, (x_train, y_train), (x_test, y_test), None)


# ----------------------------------------------------- which pictures there are


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

    def split(self, validation: float) -> list[Array]:
        """Returns which are for training, validation and testing.

        What the list does not say is drawn, of each class the same share.
        """
        labels = self.labels()
        given = np.array([picture.part for picture in self.pictures])
        rows = {part: np.flatnonzero(given == part) for part in PARTS}
        for part, share in (("test", TEST_SHARE), ("validation", validation)):
            if not len(rows[part]) and share:
                train = rows["train"]
                left, held = held_out(labels[train], share)
                rows["train"], rows[part] = train[left], train[held]
        return [rows[part] for part in PARTS]


def is_listed(path: Path) -> bool:
    """Tells whether a path is a folder or a CSV file of pictures."""
    return path.is_dir() or path.suffix.lower() == ".csv"


def list_pictures(path: Path) -> Listing:
    """Lists the pictures of a folder or a CSV file.

    Raises:
        UserError: If a CSV file is not usable; the sentence names the line. Of
            a folder nothing is refused here.
    """
    if not path.is_dir():
        return _of_csv(path)
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


def _check(found: Listing) -> None:
    """Raises `UserError` if there are too few classes or pictures."""
    source, is_folder = found.source, found.source.is_dir()
    if len(found.class_names) < 2:
        what = (
            "folders, one of images for each class" if is_folder else "labels"
        )
        raise UserError(
            f"{source} must have at least two {what}; it has "
            f"{len(found.class_names)}."
        )
    counts = collections.Counter(p.label for p in found.pictures)
    training = {p.label for p in found.pictures if p.part == "train"}
    for name in found.class_names:
        place = f"{source}: the class {name!r}"
        if counts[name] < 2:
            folder = source / name
            why = f" ({', '.join(pixels.SUFFIXES)})."
            if folder.is_dir() and (deeper := next(_deeper(folder), None)):
                why = (
                    ". There are some in folders inside it, such as "
                    f"{deeper}, which are not looked at: put them into "
                    f"{folder}, or list them in a CSV file."
                )
            elif found.left_out:
                why = f" besides those left out: {found.left_out[-1]}"
            raise UserError(
                f"{folder if is_folder else place} must have at least two "
                f"images; it has {counts[name]}{why}"
            )
        if name not in training:
            raise UserError(
                f"{place} must have images whose split is train; it has none."
            )


def _unique(found: Listing, *, skip_broken: bool) -> Listing:
    """Returns the listing with each picture once.

    The second of a class would stand in training and test images.

    Raises:
        UserError: If the same picture is of several classes, unless such
            pictures are to be left out.
    """
    sentences = {}
    for first, *copies in _alike(found.pictures):
        strangers = [p for p in copies if p.label != first.label]
        if not strangers:
            for copy in copies:
                sentences[copy] = f"{copy} is the same picture as {first}."
            continue
        text = (
            f"{first} and {strangers[0]} are the same picture in two classes, "
            f"{first.label!r} and {strangers[0].label!r}. A {_ONE_CLASS}"
        )
        if not skip_broken:
            raise UserError(f"{text} Leave one out, or both by --skip-broken.")
        sentences.update(dict.fromkeys((first, *copies), text))
    return found.without(sentences)


def _alike(pictures: Iterable[Picture]) -> Iterator[list[Picture]]:
    """Yields pictures whose files have the same bytes, where some have."""
    by_bytes = collections.defaultdict(list)
    for picture in pictures:
        with contextlib.suppress(OSError):
            digest = hashlib.blake2b(picture.file.read_bytes()).digest()
            by_bytes[digest].append(picture)
    for same in by_bytes.values():
        if len(same) > 1 and pixels.header(same[0].file) is not None:
            yield same


# -------------------------------------------------------------- what they show


@dataclasses.dataclass(frozen=True)
class Survey:
    """What the headers of pictures tell.

    Attributes:
        sizes: Width and height of each picture that has a header.
        pictures: These pictures.
        training: Those for training and validation, unless the same picture
            comes several times.
    """

    sizes: tuple[tuple[int, int], ...]
    pictures: tuple[Picture, ...]
    training: tuple[Picture, ...]

    @property
    def shorter_side(self) -> int:
        """The median over images of the shorter side, in pixels."""
        return int(np.median([min(size) for size in self.sizes]))

    @property
    def is_square(self) -> bool:
        """Whether all images have one size, as many rows as columns."""
        return len(set(self.sizes)) == len(set(self.sizes[0])) == 1


def survey(path: Path) -> Survey | None:
    """Reads the headers of pictures, or returns `None` without any.

    Of a folder nothing is refused here; `pictures` does that.
    """
    if not is_listed(path):
        return None
    found = list_pictures(path)
    headers = {p: pixels.header(p.file) for p in found.pictures}
    sizes = {p: h.size for p, h in headers.items() if h is not None}
    if not sizes:
        return None
    test = {found.pictures[k] for k in found.split(validation=0.0)[-1]}
    training = tuple(p for p in sizes if p not in test)
    return Survey(tuple(sizes.values()), tuple(sizes), training)


def pictures(
    path: Path,
    size: int | None,
    validation: float,
    *,
    skip_broken: bool = False,
) -> Data:
    """Loads the pictures of a folder of class folders, or of a CSV file.

    Args:
        path: The folder or file.
        size: Rows and columns that the images get, or `None` where they have
            one size.
        validation: Share of the training images that is held out.
        skip_broken: Leave out files that cannot be read, see `Data.left_out`.
            Defaults to `False`, which refuses them.
    """
    found = list_pictures(path)
    _check(found)
    found = _unique(found, skip_broken=skip_broken)
    name = path.name if path.is_dir() else path.stem
    return read(found, name, size, validation, skip_broken=skip_broken)


def read(
    found: Listing,
    name: str,
    size: int | None,
    validation: float,
    *,
    skip_broken: bool = False,
) -> Data:
    """Reads the pictures of a listing, see `pictures`.

    They lie in a temporary file, and not in memory.
    """
    lost = True
    while lost:
        _check(found)
        rows = found.split(validation)
        order = [found.pictures[k] for k in np.concatenate(rows)]
        images, broken = _decode(order, size, skip=skip_broken)
        labels = found.labels()
        good = np.array([p not in broken for p in found.pictures])
        left = [part[good[part]] for part in rows]
        found = found.without(broken)
        # A class may have lost all its pictures of a part: split without those.
        lost = any(
            set(labels[part]) != set(labels[whole])
            for part, whole in zip(left, rows, strict=True)
        )
    ends = np.cumsum([len(part) for part in left])[:-1]
    train, held, test = np.split(images, ends)
    known, validated, tested = (labels[part] for part in left)
    names = list(found.class_names)
    return dataclasses.replace(
        checked(name, (train, known), (test, tested), names),
        validation=Split(Images(held), validated),
        left_out=found.left_out,
    )


def _decode(
    order: Sequence[Picture], size: int | None, *, skip: bool
) -> tuple[Array, dict[Picture, str]]:
    """Decodes pictures one after another, into a temporary file.

    Args:
        order: The pictures.
        size: Rows and columns that they get, or `None` where they have one
            size.
        skip: Leave out files that cannot be read, instead of an error.

    Returns:
        Images `[n, h, w, c]`, with one channel if all are grey; and a sentence
        for each picture that is not among them.
    """
    import keras

    shown = progress() if len(order) >= _FEWEST_SHOWN else 0
    bar = keras.utils.Progbar(len(order), verbose=shown, unit_name="picture")
    headers = [pixels.header(picture.file) for picture in order]
    grey = all(header.is_grey for header in headers if header is not None)
    broken: dict[Picture, str] = {}
    first, size_text, shape, count = None, "", (1, 1, 1), 0
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(tempfile.TemporaryFile())
            for picture in order:
                bar.add(1)
                image = _read(picture, "L" if grey else "RGB", size, broken)
                if picture in broken and not skip:
                    raise UserError(
                        f"{broken[picture]} To leave such files out, add "
                        "--skip-broken."
                    )
                if image is None:
                    continue
                if first is None:
                    first, size_text = picture, pixels.size(image)
                    shape = image.reshape(*image.shape[:2], -1).shape
                elif pixels.size(image) != size_text:
                    raise UserError(
                        f"all images must have one size: {picture} is "
                        f"{pixels.size(image)}, {first} is {size_text}. Choose "
                        "a size by --resize."
                    )
                file.write(image.tobytes())
                count += 1
            file.flush()
            if not count:
                return np.empty((0, *shape), np.uint8), broken
            array = np.memmap(file, np.uint8, "r", shape=(count, *shape))
        except OSError as error:
            whole = len(order) * int(np.prod(shape)) / 2**30
            raise UserError(
                f"decoded pictures need {whole:.1f} GiB in "
                f"{tempfile.gettempdir()}: {error}. Name another folder by the "
                "environment variable TMPDIR."
            ) from error
    return array, broken


def _read(
    picture: Picture, mode: str, size: int | None, broken: dict[Picture, str]
) -> Array | None:
    """Returns an image, or notes that it cannot be read."""
    try:
        return pixels.read(picture.file, mode, size)
    except UserError as error:
        where = f"{picture.where}: " if picture.where else ""
        broken[picture] = f"{where}{error}"
        return None
