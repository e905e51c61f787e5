"""Names of files and classes in other letters and bytes."""

import os
import unicodedata

import pytest

from tests.training.datasets.test_datasets import write_image
from tests.training.test_run import refused
from training import explain_job
from training.datasets import own
from training.names import as_text, existing

COMPOSED, DECOMPOSED = (
    unicodedata.normalize(f, "café") for f in ("NFC", "NFD")
)
FORMS = [(COMPOSED, DECOMPOSED), (DECOMPOSED, COMPOSED)]


def pictures(folder, *names):
    for name in names:
        for k in range(3):
            write_image(folder / name / f"{k}-é.png", size=(4 + k, 4))
    return folder


@pytest.mark.parametrize(("known", "new"), FORMS)
def test_letters_are_compared_and_not_their_form(known, new, tmp_path):
    names = own.list_pictures(
        pictures(tmp_path / "a", known, "tea")
    ).class_names
    assert names == (COMPOSED, "tea")
    pictures(tmp_path / "b", new, "tea")
    for classes in (names, (known, "tea")):  # of a run, and of an older one
        found, _ = explain_job.find([tmp_path / "b"], classes)
        assert [p.truth for p in found] == [classes[0]] * 3 + ["tea"] * 3
    assert existing(tmp_path / "a" / new / "0-é.png").exists()
    assert existing(tmp_path / "a" / "no" / new) == tmp_path / "a" / "no" / new


def test_both_forms_are_one_class(tmp_path):
    pictures(tmp_path, COMPOSED, DECOMPOSED, "tea")
    found = own.list_pictures(tmp_path)
    assert found.class_names == (COMPOSED, "tea")
    assert found.labels().tolist() == [0] * 6 + [1] * 3


def test_bytes_that_are_no_utf_8_are_shown_as_escapes(tmp_path):
    name = os.fsdecode(b"caf\xe9")
    pictures(tmp_path, name, "tea")
    assert own.list_pictures(tmp_path).class_names == (as_text(name), "tea")
    assert as_text(name) == r"caf\xe9"
    assert "bytes that are no UTF-8" in refused(
        "--rem", "--out", tmp_path / name
    )
