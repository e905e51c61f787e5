"""Networks on distorted test images, and the page that shows them."""

import json

import numpy as np
import pytest

from benchmarks.measure import main
from experiments import distortions
from tests.commands import status_of
from tests.networks import tiny_capsnet
from training import dense_head
from training.augmentation import warped
from training.datasets.affnist import random_map


def command(*arguments):
    flags = list(map(str, arguments))
    parser = distortions.make_parser()
    return main(parser, distortions.run, distortions.check, flags)


@pytest.fixture
def dot():
    """One bright pixel, right of and above the middle of 21x21."""
    image = np.zeros((1, 21, 21, 1), np.uint8)
    image[0, 7, 14] = 255
    return image


def moved(image, kind, strength):
    """Returns where the dot is from the middle, in rows and columns."""
    draw = np.random.default_rng(0)
    maps, offsets = distortions._places(kind, strength, 1, draw)
    new = warped(image, maps, offsets)[0, ..., 0].astype(float)
    places = np.indices(new.shape) - 10
    return (places * new).sum(axis=(1, 2)) / new.sum()


def test_a_dot_moves_as_far_as_a_distortion_says(dot):
    place = moved(dot, "shift", 3.0)
    assert np.linalg.norm(place - [-3, 4]) == pytest.approx(3.0, abs=0.05)
    place = moved(dot, "rotation", 30.0)
    assert np.linalg.norm(place) == pytest.approx(5.0, abs=0.1)
    cosine = np.dot(place, [-3, 4]) / 25
    assert np.rad2deg(np.arccos(cosine)) == pytest.approx(30.0, abs=2.0)
    # A size is that of the new image.
    assert moved(dot, "size", 2.0) == pytest.approx([-6, 8], abs=0.3)
    forward = random_map(np.random.default_rng(0))
    place = moved(dot, "affine", 1.0)
    assert place == pytest.approx(forward @ [-3, 4], abs=0.3)


def test_distorted_images_are_the_same_at_every_call(rng):
    pixels = rng.integers(0, 256, (3, 12, 12, 1), dtype=np.uint8)
    first, again = ([*distortions._sets(pixels)] for _ in range(2))
    assert [key for key, _ in first] == [key for key, _ in again]
    for (key, one), (_, other) in zip(first, again, strict=True):
        assert np.array_equal(one, other)
        assert np.array_equal(one, pixels) == (key == "none")


@pytest.fixture
def tiny(tmp_path, rng):
    np.savez(
        tmp_path / "tiny.npz",
        x_train=rng.random((9, 8, 8), dtype="float32"),
        y_train=np.arange(9) % 3,
        x_test=rng.random((6, 8, 8), dtype="float32"),
        y_test=np.arange(6) % 3,
    )
    network = tiny_capsnet()
    network.save(tmp_path / "capsules.keras")
    dense_head.build(network).save(tmp_path / "plain.keras")
    return tmp_path


@pytest.mark.slow
def test_files_of_one_name_are_seeds_of_it(tiny, capsys):
    files = [f"capsules={tiny}/capsules.keras"] * 2
    files.append(f"plain={tiny}/plain.keras")
    flags = ("--dataset", tiny / "tiny.npz", "--to", tiny / "out/distortions")
    assert command(*files, *flags) == 0
    result = json.loads((tiny / "out/distortions.json").read_text())
    capsules, plain = (result["networks"][n] for n in ("capsules", "plain"))
    assert (capsules["seeds"], plain["seeds"]) == (2, 1)
    for rights in capsules["accuracy"].values():
        assert len(rights) == 2 and rights[0] == rights[1]
    page = (tiny / "out/distortions.md").read_text()
    assert page in capsys.readouterr().out
    assert "| rotation, 30 degrees" in page and "± 0.00" in page
    assert (tiny / "out/distortions.png").stat().st_size > 5000


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("capsules=nowhere.keras",), "no file nowhere.keras"),
        (("capsules",), "is not NAME=FILE.keras"),
    ],
)
def test_wrong_arguments_get_one_sentence(arguments, says, capsys):
    assert status_of(lambda given: command(*given), *arguments) == 2
    assert says in capsys.readouterr().err


def test_a_network_for_other_images_is_refused(tiny, capsys):
    data = np.load(tiny / "tiny.npz")
    wide = {k: np.pad(v, [(0, 0), (0, 0), (0, 1)]) if v.ndim > 2 else v
            for k, v in data.items()}  # fmt: skip
    np.savez(tiny / "wide.npz", **wide)
    flags = ("--dataset", tiny / "wide.npz", "--to", tiny / "d")
    assert command(f"capsules={tiny}/capsules.keras", *flags) == 2
    error = capsys.readouterr().err
    assert "classes [8, 8, 1, 3]; " in error and "[8, 9, 1, 3]" in error
    assert not list(tiny.glob("d.*"))
