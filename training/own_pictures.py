"""A user's pictures for a network: which files, their names, their pixels."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cli import UserError
from training import images as pixels
from training.image_data import Images

_MODES = {1: "L", 3: "RGB"}


@dataclasses.dataclass(frozen=True)
class Picture:
    """A file.

    Attributes:
        path: Where it is.
        name: A short name that no other has.
        truth: The class whose folder it is in, or `None` if that is not known.
    """

    path: Path
    name: str
    truth: str | None = None


def find(paths: Sequence[Path], classes: Sequence[str]) -> list[Picture]:
    """Returns the pictures in files and folders, and folders in these.

    Args:
        paths: Files and folders.
        classes: Names of the classes. A picture in a folder of such a name,
            inside one of `paths`, is known to be of this class; where the name
            has a slash, the folder's has a hyphen.

    Raises:
        UserError: If there is no such file, or a folder has no picture.
    """
    found = []
    of_folders = {name.replace("/", "-"): name for name in classes}
    for path in paths:
        if not path.is_dir():
            if not path.exists():
                raise UserError(f"there is no file {path}.")
            found.append(Picture(path, path.name))
            continue
        folders = [path, *sorted(p for p in path.rglob("*") if p.is_dir())]
        inside = [file for one in folders for file in pixels.files_in(one)]
        if not inside:
            raise UserError(f"there is no picture in the folder {path}.")
        for file in inside:
            name = file.relative_to(path).as_posix()
            inner = file.parent.name if file.parent != path else ""
            found.append(Picture(file, name, of_folders.get(inner)))
    return _told_apart(found)


def _told_apart(pictures: list[Picture]) -> list[Picture]:
    """Gives whole paths to those that share a name, numbers to equal paths."""
    names = Counter(picture.name for picture in pictures)
    paths = Counter(picture.path for picture in pictures)
    renamed = []
    for number, picture in enumerate(pictures, 1):
        shared, twice = names[picture.name] > 1, paths[picture.path] > 1
        name = picture.path.as_posix() if shared else picture.name
        name = f"{number} {name}" if twice else name
        renamed.append(dataclasses.replace(picture, name=name))
    return renamed


class Reader:
    """Reads pictures as a network takes them.

    Args:
        shape: Rows, columns and channels of an image.
        invert: Swap dark and bright.
        skip_broken: Leave out files that cannot be read.

    Attributes:
        shape: Rows, columns and channels of an image.
        resized: A sentence for each picture of another size.
        dark: The same for each that is dark on a bright ground.
        left_out: The same for each that could not be read.
    """

    def __init__(
        self, shape: tuple[int, int, int], invert: bool, skip_broken: bool
    ):
        if shape[2] not in _MODES:
            raise UserError(
                f"the network takes images of {shape[2]} channels, which no "
                "picture file has."
            )
        self.shape = shape
        self._invert = invert
        self._skip_broken = skip_broken
        self.resized: list[str] = []
        self.dark: list[str] = []
        self.left_out: list[str] = []

    def read(self, pictures: Sequence[Picture]) -> tuple[list[Picture], Images]:
        """Returns the pictures that can be read, and their images."""
        readable: list[Picture] = []
        images = np.empty((len(pictures), *self.shape), np.uint8)
        for picture in pictures:
            try:
                images[len(readable)] = self._read(picture.path)
                readable.append(picture)
            except UserError as error:
                if not self._skip_broken:
                    raise UserError(
                        f"{error} To leave such files out, add --skip-broken."
                    ) from error
                self.left_out.append(str(error))
        return readable, Images(images[: len(readable)])

    def _read(self, path: Path) -> NDArray[np.uint8]:
        rows, columns, channels = self.shape
        image = pixels.read(path, _MODES[channels])
        height, width = image.shape[:2]
        if (height, width) != (rows, columns):
            self.resized.append(
                f"{path} is resized from {width}x{height} to {columns}x{rows} "
                "pixels, width by height"
            )
        image = image.reshape(1, height, width, channels)
        image = pixels.resize(image, (rows, columns))[0]
        image = 255 - image if self._invert else image
        border = np.ones(image.shape, bool)
        border[1:-1, 1:-1] = False
        if channels == 1 and image[border].mean() > max(127, image.mean()):
            flag = "without --invert" if self._invert else "--invert"
            self.dark.append(
                f"{path} is dark on a bright ground now; if the network was "
                f"trained on bright on dark, try {flag}"
            )
        return image
