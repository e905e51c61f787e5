"""The dictionary of parse trees: keys, counts, entropy, files."""

import numpy as np
import pytest

from tests.golden import load
from tfcaps.rem import CouplingDictionary, quantize

_GOLDEN = load("09_rem_dictionary")


def dictionary(codes, predicted, classes=2):
    trees = CouplingDictionary(classes)
    trees.update(codes, predicted)
    return trees


@pytest.fixture
def samples(rng):
    return rng.integers(0, 3, (200, 4)), rng.integers(0, 5, 200)


@pytest.mark.parametrize("levels", [11, 6])
@pytest.mark.parametrize("source", ["couplings", "K{}_quantized_couplings"])
def test_keys_counts_and_entropies_are_those_of_the_reference(levels, source):
    couplings = _GOLDEN[source.format(levels)]
    codes = np.asarray(quantize(couplings, levels))
    predicted = _GOLDEN["predicted_class"]
    own = codes[np.arange(len(codes)), :, predicted]
    trees = dictionary(own, predicted, couplings.shape[2])
    prefix = f"K{levels}"
    np.testing.assert_array_equal(own + 1, _GOLDEN[f"{prefix}_key_bins"])
    for j in range(couplings.shape[2]):
        counts = _GOLDEN[f"{prefix}_counts_class{j}"]
        assert trees.counts(j) == counts.tolist()
    # `raw` are those of couplings, the others those of rounded ones.
    prefix += "_raw" if source == "couplings" else ""
    np.testing.assert_array_equal(
        trees.num_keys, _GOLDEN[f"{prefix}_keys_per_class"]
    )
    summary = trees.summary()
    for ours, theirs in {
        "entropy_bits": "mean_entropy_bits_f64",
        "mean_keys": "mean_keys_f64",
        "median_keys": "median_keys_f64",
    }.items():
        expected = pytest.approx(float(_GOLDEN[f"{prefix}_{theirs}"]), abs=1e-9)
        assert summary[ours] == expected, ours
    np.testing.assert_allclose(
        trees.entropy_bits,
        _GOLDEN[f"{prefix}_entropy_bits_per_class_f64"],
        rtol=0,
        atol=1e-9,
    )


def test_summary_is_that_over_classes():
    codes = [[1], [2], [3], [4], [5], [5], [5], [6]]
    trees = dictionary(codes, [0, 0, 0, 0, 1, 1, 3, 3], 4)
    assert trees.summary() == {
        "num_samples": 8,
        "empty_classes": 1,
        "entropy_bits": 0.75,
        "ceiling_bits": 1.0,
        "normalized_entropy": 0.5,
        "mean_keys": 1.75,
        "median_keys": 1.5,
        "per_class": {
            "num_samples": [4, 2, 0, 2],
            "num_keys": [4, 1, 0, 2],
            "entropy_bits": [2.0, 0.0, 0.0, 1.0],
            "ceiling_bits": [2.0, 1.0, 0.0, 1.0],
            "normalized_entropy": [1.0, 0.0, 0.0, 1.0],
        },
    }


def test_saved_dictionaries_load_equal(samples, tmp_path):
    trees = dictionary(*samples, 7)  # classes 5 and 6 are never predicted
    trees.save(tmp_path / "trees.npz")
    loaded = CouplingDictionary.load(tmp_path / "trees.npz")
    assert loaded.num_samples.tolist() == trees.num_samples.tolist()
    for j in range(7):
        np.testing.assert_array_equal(loaded.keys(j), trees.keys(j))
        assert loaded.counts(j) == trees.counts(j)
    assert [p.name for p in tmp_path.iterdir()] == ["trees.npz"]


def test_an_empty_dictionary_saves_and_loads(tmp_path):
    CouplingDictionary(3).save(tmp_path / "empty.npz")
    loaded = CouplingDictionary.load(tmp_path / "empty.npz")
    loaded.update([[1, 10], [11, 0], [1, 1]], [2, 2, 2])
    assert loaded.num_keys.tolist() == [0, 0, 3]  # whatever their digits


def test_files_that_are_no_dictionaries_are_errors(tmp_path):
    path = tmp_path / "x.npz"
    path.write_bytes(b"PK\x03\x04 cut short")
    with pytest.raises(ValueError, match="is not a coupling dictionary"):
        CouplingDictionary.load(path)
    whole = {"classes": [1], "counts": [1], "keys": [[1]]}
    for others in (
        {},
        whole | {"classes": [5]},
        whole | {"counts": [0]},
        whole | {"classes": np.array([{}], object)},
    ):
        np.savez(path, num_classes=2, **others)
        with pytest.raises(ValueError, match="is not a coupling dictionary"):
            CouplingDictionary.load(path)
    with pytest.raises(FileNotFoundError):
        CouplingDictionary.load(tmp_path / "missing.npz")


def test_a_wrong_batch_is_an_error_and_changes_nothing():
    trees = dictionary([[1, 2]], [0])
    for codes, predicted, message in [
        ([[1, 2]], [2], r"`predicted` must be in \[0, 1\]"),
        ([[1, 2]], [0.5], "`predicted` must be a vector of class indices"),
        ([[1, 256]], [0], r"`codes` must be in \[0, 255\]"),
        ([[0.1, 0.2]], [0], "`codes` must be integers"),
        ([[1, 2], [1, 2]], [0], "`codes` must be integers"),
        ([[1, 2, 3]], [0], "Keys in this dictionary have 2 codes"),
    ]:
        with pytest.raises(ValueError, match=message):
            trees.update(codes, predicted)
    assert trees.num_samples.tolist() == [1, 0]
    with pytest.raises(ValueError, match="`num_classes` must be"):
        CouplingDictionary(0)
