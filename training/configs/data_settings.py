"""Settings of a run: its images, and random changes of them."""

import argparse
import dataclasses

import cli
from training.configs.setting import setting

DATA = "data"
# A training image is zoomed by so much at most.
_SMALLEST, _LARGEST = 0.1, 10.0


def _factors(text: str) -> tuple[float, ...]:
    """Reads `0.8,1.25`."""
    numbers = tuple(
        cli.number(part, float, _SMALLEST, _LARGEST) for part in text.split(",")
    )
    if len(numbers) != 2 or numbers[0] > numbers[1]:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not two factors, the lower one first, such as "
            "0.8,1.25"
        )
    return numbers


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Which images are trained on, and what happens to them."""

    dataset: str = setting(
        "digits",
        "one of --list-datasets (default: figures), any name of TensorFlow "
        "Datasets, an .npz file, a folder of class folders, or a .csv file "
        "with the columns file and label",
        group=DATA,
        metavar="NAME",
    )
    data_dir: str | None = setting(
        None, "prepared TensorFlow Datasets", group=DATA, metavar="FOLDER"
    )
    data_seed: int = setting(
        0,
        "draw other images of the same figures",
        low=0,
        group=DATA,
        metavar="SEED",
    )
    samples: int | None = setting(
        None,
        "use only so many training and test images",
        low=1,
        group=DATA,
        metavar="N",
    )
    validation: float = setting(
        0.1,
        "share of the training images that is only for choosing, 0 to 0.5: "
        "for iterative pruning, the end of a training, and the number of "
        "levels",
        low=0.0,
        high=0.5,
        group=DATA,
        metavar="SHARE",
    )
    resize: int | None = setting(
        None,
        "rows and columns to which images are resized",
        low=1,
        high=8192,
        group=DATA,
        metavar="PIXELS",
    )
    balanced: bool = setting(
        False,
        "repeat training images of rare classes, so that all are equally "
        "frequent, or not",
        group=DATA,
        both_ways=True,
    )
    flip: bool = setting(
        False,
        "mirror half of the training images, or not, as where left and right "
        "tell classes apart",
        group=DATA,
        both_ways=True,
    )
    recolour: float = setting(
        0.0,
        "exchange the channels of a share of the training images, and make "
        "half as many negatives; 0 where colours tell classes apart",
        low=0.0,
        high=1.0,
        group=DATA,
        metavar="SHARE",
    )
    skip_broken: bool = setting(
        False,
        "leave out pictures that cannot be read or have two classes, and list "
        "them",
        group=DATA,
    )
    mean: tuple[float, ...] = setting(
        (),
        "mean of each channel for standardisation inside the network; none "
        "for no standardisation",
    )
    std: tuple[float, ...] = setting(
        (), "standard deviation of each channel", low=1e-12
    )
    measured: bool = setting(
        False, "take mean and deviation from the training images instead"
    )
    shift: int = setting(
        2,
        "largest random shift of a training image, in pixels",
        low=0,
        group=DATA,
        metavar="PIXELS",
    )
    crop: int | None = setting(
        None,
        "rows and columns of a random part that is trained on; the middle is "
        "tested",
        low=1,
    )
    rotation: float = setting(
        0.0,
        "largest random rotation of a training image, in degrees",
        low=0.0,
        high=180.0,
        group=DATA,
        metavar="DEGREES",
    )
    zoom: tuple[float, ...] = setting(
        (),
        "lowest and highest factor of a training image's size, such as "
        "0.8,1.25",
        low=_SMALLEST,
        high=_LARGEST,
        group=DATA,
        read=_factors,
        metavar="LOW,HIGH",
    )
    fill: str = setting(
        "black",
        "what comes in at the edges of a training image: black, or the edge's "
        "nearest pixels",
        choices=("black", "edge"),
    )
    brightness: tuple[float, ...] = setting(
        (), "lowest and highest factor of a training image", low=0.0
    )
    brightness_delta: float = setting(
        0.0, "most that is added to an image or subtracted", low=0.0
    )
    contrast: tuple[float, ...] = setting(
        (),
        "lowest and highest factor of an image's distance from its mean",
        low=0.0,
    )
    pairs: bool = setting(
        False, "merge each training image with one of another class"
    )
