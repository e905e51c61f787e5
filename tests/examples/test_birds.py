"""Body plans of drawn animals whose parts are known, measured by the script."""

import io
import json

import keras
import numpy as np
import pytest
from PIL import Image

from examples import birds, photo_page
from tests.commands import told_by
from tests.nightly import nightly
from tests.parts.test_body_plan import SIDE, animals, backbone
from training import run


def write(path):
    """Writes animals as photos with parts, every third to measure on."""
    images, labels, places, _ = animals(120, 0)
    coded = []
    for image in images:
        file = io.BytesIO()
        pixels = (255 * image).astype(np.uint8)
        Image.fromarray(pixels).save(file, "JPEG", quality=95)
        coded.append(file.getvalue())
    seen = np.ones((*places.shape[:2], 1))
    seen[:20, 2] = 0
    seen[0] = 0  # a photo without a visible part
    low, high = places.min(axis=1) - 6, places.max(axis=1) + 6
    np.savez(
        path,
        jpeg=np.frombuffer(b"".join(coded), np.uint8),
        offsets=np.cumsum([0, *map(len, coded)]),
        labels=labels,
        is_train=np.arange(len(labels)) % 3 > 0,
        size=np.full((len(labels), 2), SIDE),
        class_names=["dull", "capped"],
        part_names=["crown", "body", "tail", "foot"],
        keypoints=np.concatenate([places[..., ::-1] + 0.5, seen], axis=-1),
        boxes=np.concatenate([low[:, ::-1], (high - low)[:, ::-1]], axis=-1),
    )


@nightly
@pytest.mark.slow
def test_birds_are_measured_over_seeds_and_go_on_from_the_cache(tmp_path):
    write(tmp_path / "animals.npz")
    backbone(320, 32).save(tmp_path / "colours.keras")
    flags = f"{tmp_path}/animals.npz --cache {tmp_path}/cache --to {tmp_path}"
    flags += f" --backbone {tmp_path}/colours.keras --types 4 --noisy 8"
    for more in ("--pixels 0 --seeds 0 1", "--pixels 3 --seeds 0"):
        keras.utils.clear_session()
        parser = birds.make_parser()
        birds.run(parser.parse_args(f"{flags} {more}".split()))
        assert (
            tmp_path / "cache" / "colours-0.3" / "test" / "images"
        ).read_text() == "40"
    rows = (tmp_path / "seeds.jsonl").read_text("utf-8").splitlines()
    first, second = map(json.loads, rows)
    assert "pixels" in first and "pixels" not in second
    for row in (first, second):
        assert row["right"] > 0.8 and row["information"] > 0.5
        assert row["information_elsewhere"] < 0.5 * row["information"]
        assert row["in_box"] > row["in_box_random"]
        assert row["facing"] > 0.8 and row["plans"] > 0
    table = (tmp_path / "table.md").read_text("utf-8")
    assert "stability" in table and "nan" not in table


@nightly
@pytest.mark.slow
def test_photos_of_a_run_are_drawn(tmp_path):
    images, labels, *_ = animals(80, 0)
    data, network = tmp_path / "animals.npz", tmp_path / "colours.keras"
    arrays = {"x_train": images[:50], "y_train": labels[:50]}
    np.savez(data, **arrays, x_test=images[50:], y_test=labels[50:])
    backbone().save(network)
    flags = f"--model body_plan_capsnet --backbone {network} --dataset {data}"
    flags += f" --rem --bare --out {tmp_path}/run"
    told_by(run.main, *flags.split())
    flags = f"{tmp_path}/run --cache {tmp_path}/cache --to {tmp_path}"
    photo_page.run(photo_page.make_parser().parse_args(flags.split()))
    names = {path.stem: path.stat().st_size for path in tmp_path.glob("*.jpg")}
    assert {*names} == {"photos_trees", "photos_types", "photos_field"}
    assert max(names.values()) < 300_000
