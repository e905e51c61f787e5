"""Every kind of image file: what becomes of it, or the sentence it gets."""

import warnings

import numpy as np
import pytest
from PIL import Image

from cli import UserError
from tests import bad_files
from tests.refusals import assert_user_error
from training import pictures
from training.images import resize

RED, CLEAR = (200, 40, 40, 255), (200, 40, 40, 0)
TURNED = Image.Exif()
TURNED[0x0112] = 6  # the camera's right side was up


def saved(path, image, **options):
    image.save(path, **options)
    return path


def test_grey_pictures_have_no_channels(tmp_path):
    pixels = np.array([[0, 90, 255]], np.uint8)
    for suffix in ("png", "bmp", "tif", "TIFF"):
        path = saved(tmp_path / f"grey.{suffix}", Image.fromarray(pixels))
        assert pictures.read(path).tolist() == pixels.tolist()
        assert pictures.header(path) == pictures.Header((3, 1), True)
    assert pictures.read(path, "RGB").shape == (1, 3, 3)
    one_bit = Image.fromarray(np.array([[True, False]]))
    for suffix in ("png", "tif"):
        path = saved(tmp_path / f"fax.{suffix}", one_bit)
        assert pictures.read(path).tolist() == [[255, 0]]


@pytest.mark.parametrize("mode", ["RGBA", "P", "LA", "L"])
def test_what_is_transparent_becomes_white(tmp_path, mode):
    clear = Image.new("RGBA", (2, 1), RED)
    clear.putpixel((1, 0), CLEAR)
    options = {}
    if mode in ("P", "L"):  # one of the values stands for nothing
        clear = Image.fromarray(np.array([[7, 9]], np.uint8))
        options["transparency"] = 9
        if mode == "P":
            clear.putpalette([200, 40, 40] * 256)
    path = saved(tmp_path / "clear.png", clear.convert(mode), **options)
    seen = pictures.read(path)
    assert seen.shape == ((1, 2) if mode in ("LA", "L") else (1, 2, 3))
    assert (seen[0, 1] == 255).all() and (seen[0, 0] != 255).all()
    assert pictures.read(path, "RGB").shape == (1, 2, 3)


@pytest.mark.parametrize("suffix", ["png", "jpg", "webp", "tif"])
def test_pictures_stand_upright(tmp_path, suffix):
    pixels = np.zeros((16, 24), np.uint8)
    pixels[:8] = 250  # the upper half is bright
    path = saved(tmp_path / f"a.{suffix}", Image.fromarray(pixels), exif=TURNED)
    upright = pictures.read(path, "L").astype(int)
    assert np.abs(upright - np.rot90(pixels, -1)).max() < 12
    small = pictures.read(path, "L", 4).astype(int)
    assert small.shape == (4, 4) and (small[:, 3] > 200).all()


def test_of_an_animation_the_first_image_counts(tmp_path):
    frames = [Image.new("L", (3, 2), value) for value in (40, 200)]
    for suffix in ("gif", "webp", "tif"):
        path = saved(
            tmp_path / f"moving.{suffix}",
            frames[0],
            save_all=True,
            append_images=frames[1:],
        )
        assert np.abs(pictures.read(path, "L").astype(int) - 40).max() < 3


@pytest.mark.parametrize("suffix", ["jpg", "tif"])
def test_inks_become_colours(tmp_path, suffix):
    inks = Image.new("CMYK", (3, 2), (0, 255, 255, 0))
    red = pictures.read(saved(tmp_path / f"print.{suffix}", inks))
    assert red.shape == (2, 3, 3)
    assert red[..., 0].min() > 230 and red[..., 1:].max() < 25


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_16_bits_of_grey_become_8(tmp_path, suffix):
    deep = np.array([[0, 128, 129, 257 * 7 + 128, 257 * 7 + 129, 65535]])
    expected = [[0, 0, 1, 7, 8, 255]]
    picture = Image.fromarray(deep.astype(np.uint16))
    path = saved(tmp_path / f"deep.{suffix}", picture)
    assert pictures.read(path).tolist() == expected
    assert pictures.header(path).is_grey
    assert pictures.read(path, "RGB")[..., 1].tolist() == expected
    turned = saved(tmp_path / f"turned.{suffix}", picture, exif=TURNED)
    assert pictures.read(turned).tolist() == np.transpose(expected).tolist()


def test_32_bits_that_use_16_become_8_and_others_are_refused(tmp_path):
    values = np.array([[0, 65535]], np.int32)
    path = saved(tmp_path / "deep.tif", Image.fromarray(values))
    assert pictures.read(path).tolist() == [[0, 255]]
    for wrong in (values + 1, values - 1, values.astype(np.float32)):
        saved(path, Image.fromarray(wrong))
        assert_user_error("deep.tif has more than 16 bits", pictures.read, path)


@pytest.mark.parametrize("limit", [20, 40])
def test_pictures_with_too_many_pixels_are_refused(
    tmp_path, monkeypatch, limit
):
    path = saved(tmp_path / "huge.png", Image.new("L", (9, 5)))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    assert_user_error("huge.png has too many pixels", pictures.read, path)
    assert pictures.header(path) is None
    monkeypatch.undo()
    bad_files.png_bomb(path)
    assert_user_error("huge.png has too many pixels", pictures.read, path)


@pytest.mark.parametrize("suffix", ["png", "jpg", "gif", "bmp", "webp", "tif"])
@pytest.mark.parametrize(
    "spoil",
    [bad_files.missing, bad_files.empty, bad_files.truncated,
     bad_files.another_kind, bad_files.a_folder],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_broken_files_get_a_sentence(tmp_path, suffix, spoil):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)
    path = saved(tmp_path / f"a.{suffix}", Image.fromarray(pixels))
    spoil(path)
    with pytest.raises(UserError) as refused:
        pictures.read(path)
    assert str(path) in str(refused.value)


def test_broken_notes_beside_the_pixels_do_no_harm(tmp_path):
    path = tmp_path / "a.jpg"
    saved(
        path, Image.new("L", (8, 8), 90), exif=b"Exif\0\0MM\0*\0\0\0\x08\0\x05"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.abs(pictures.read(path).astype(int) - 90).max() < 3


@pytest.mark.parametrize("size", [32, 100, 300])
def test_large_jpegs_are_resized_as_others(tmp_path, size):
    waves = np.sin(np.arange(1200) * size / 600)
    pixels = (127 + 100 * np.outer(waves[:900], waves)).astype(np.uint8)
    path = saved(tmp_path / "a.jpg", Image.fromarray(pixels), quality=95)
    small = pictures.read(path, size=size).astype(int)
    expected = resize(pixels[None, ..., None], size)[0, ..., 0]
    assert np.abs(small - expected).max() <= 4
