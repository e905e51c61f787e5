"""The table of networks in every runtime."""

import json

import numpy as np
import pytest

from benchmarks import runtimes
from benchmarks.measure import main
from tests.exports import pruned_capsnet
from tests.networks import tiny_capsnet
from tests.nightly import NIGHTLY, nightly


def command(*arguments):
    flags = list(map(str, arguments))
    parser = runtimes.make_parser()
    return main(parser, runtimes.run, runtimes.check, flags)


@pytest.fixture
def data(tmp_path, rng):
    path = tmp_path / "data.npz"
    np.savez(
        path,
        x_train=rng.random((12, 8, 8), dtype="float32"),
        x_test=rng.random((10, 8, 8), dtype="float32"),
        y_test=np.arange(10) % 3,
    )
    return path


@nightly
@pytest.mark.slow
def test_every_network_has_a_row_for_each_runtime(tmp_path, data):
    formats = ("savedmodel", "litert", *(["onnx"] if NIGHTLY else []))
    for module in ("ai_edge_litert", "onnxruntime", "tf2onnx"):
        pytest.importorskip(module)
    tiny_capsnet().save(tmp_path / "dense.keras")
    pruned_capsnet().save(tmp_path / "pruned.keras")
    models = [f"{name}={tmp_path}/{name}.keras" for name in ("dense", "pruned")]
    status = command(
        *models, "--data", data, "--rounds", 3, "--out", tmp_path / "results",
        "--format", *formats,
    )  # fmt: skip
    assert status == 0
    result = json.loads((tmp_path / "results/runtimes.json").read_text())
    names = ["dense", "pruned", "pruned, compacted"]
    assert list(result["networks"]) == names
    assert [
        (row["network"], row["runtime"], row["numbers"])
        for row in result["rows"]
    ] == [
        (name, form, kind)
        for name in names
        for form in formats
        for kind in ("float32", "int8")[: 1 + (form != "savedmodel")]
    ]
    for row in result["rows"]:
        assert all(ms > 0 for ms in row["milliseconds"].values())
        assert row["process_mb"] is None or row["process_mb"] > 10
        exact = result["networks"][row["network"]]["accuracy"]
        if row["numbers"] == "float32":
            assert (row["accuracy"], row["same_trees"]) == (exact, 1.0)
    pruned, compacted = (result["networks"][name] for name in names[1:])
    assert pruned["sparsity"] > 0
    assert compacted["parameters"] < pruned["parameters"]
    assert compacted["entropy_bits"] == pruned["entropy_bits"]
    page = (tmp_path / "results/runtimes.md").read_text("utf-8")
    assert page == runtimes.page(result)
    tables = [line for line in page.splitlines() if line.startswith("|")]
    assert len(tables) == 2 + len(names) + 2 + len(result["rows"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("small.keras",), "'small.keras' is not NAME=FILE.keras"),
        (("a=missing.keras",), "there is no file missing.keras"),
    ],
)
def test_mistakes_are_one_line(arguments, message, data, capsys):
    try:
        status = command(*arguments, "--data", data)
    except SystemExit as stopped:
        status = stopped.code
    error = capsys.readouterr().err
    assert (status, error.count("\n")) == (2, 1)
    assert message in error
