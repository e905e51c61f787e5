"""The benchmarks: what they compare is equal, and their pages are right."""

import json
import time
from functools import partial

import keras
import numpy as np
import pytest

from benchmarks import before, formulations, measure, models, run, serving
from benchmarks.formulations import CANDIDATES, OF_EM, Size
from benchmarks.measure import Row, Settings, interleaved
from tests.commands import told_by
from tests.networks import SMALL_NETWORKS
from tests.tolerance import assert_close
from tfcaps.graphs import is_routed
from tfcaps.models import load_pretrained

MACHINE = {
    "date": "2026-01-02",
    "commit": "abc",
    "cpu": "a CPU",
    "cpus": 2,
    "backend": "jax",
    "accelerators": ["a GPU"],
    "python": "3.11.1",
    "packages": {"numpy": "2.3.0", "keras": "3.15.1"},
}
ROWS = [
    Row("tiled", [64, 8], {"ms": 90.0}, {"ms": 1800.0}, "ours"),
    Row("ours", [64, 8], {"ms": 10.0}, {"ms": 400.0}, "ours", 1e3, 7e3, 2.5),
]
SMALL = Size(batch=2, children=5, child_dim=4, parents=3, dim=6)


command = partial(told_by, run.main)


def cells(page, start):
    """Returns the cells of the table rows that begin so."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.splitlines()
        if line.startswith(f"| {start}")
    ]


def test_all_candidates_are_timed_and_the_first_calls_left_out(monkeypatch):
    calls = []
    candidates = {name: lambda name=name: calls.append(name) for name in "ab"}
    timings = interleaved("test", candidates, rounds=4)
    assert list(timings) == ["a", "b"]
    assert timings["a"]["rounds"] == 4
    low, high = timings["a"]["quartiles"]
    assert 0 < low <= timings["a"]["ms"] <= high
    assert calls[:4] == ["a", "a", "b", "b"]
    monkeypatch.setattr(measure, "_SECONDS", 0.0)
    assert interleaved("test", {"a": int}, rounds=9)["a"]["rounds"] == 3


@pytest.mark.parametrize("gradient", CANDIDATES)
def test_formulations_agree_with_tfcaps(gradient):
    size = SMALL if gradient != "em" else OF_EM._replace(batch=98, children=9)
    expected = formulations.make_step("tfcaps", gradient, size)()
    for name in CANDIDATES[gradient][:-1]:
        results = formulations.make_step(name, gradient, size)()
        for tensor, wanted in zip(results, expected, strict=True):
            scale = np.abs(wanted).max()
            tensor = np.reshape(tensor, wanted.shape)
            assert_close(tensor / scale, wanted / scale, atol=1e-4)
    name = CANDIDATES[gradient][0]
    forward = formulations.make_step(name, gradient, size, backward=False)
    np.testing.assert_allclose(forward()[0], expected[0], atol=1e-4)


@pytest.mark.parametrize("name", ["dr_capsnet", "em_capsnet", "deepcaps"])
def test_the_floor_has_the_layers_before_routing(name):
    network = SMALL_NETWORKS[name]()
    floor = models.floor(network)
    assert not any(map(is_routed, floor.layers))
    first = next(layer for layer in network.layers if is_routed(layer))
    before = keras.Model(network.input, keras.tree.flatten(first.input)[0])
    assert before.weights
    assert [id(w) for w in floor.weights[:-2]] == list(map(id, before.weights))
    assert floor.weights[-2].shape == (1, 3)


def test_a_part_takes_its_own_place_and_the_page_compares_its_rows(
    tmp_path, monkeypatch
):
    for module in (formulations, models, serving):
        monkeypatch.setattr(module, "measure", lambda _: ROWS)
    monkeypatch.setattr(models, "measure_on_gpu", lambda _: ROWS)
    monkeypatch.setattr(run, "machine", lambda: MACHINE)
    out = ("--out", tmp_path / "new")
    command("--only", "formulations", "--rounds", 3, *out)
    command("--only", "models", "gpu", "serving", "--quick", *out)
    page = (tmp_path / "new" / "benchmarks.md").read_text("utf-8")
    for part in ("formulations", "models", "gpu", "serving"):
        assert cells(page, part) == [
            [part, "tiled", "64x8", "90.00", "9.00", "1,800.00", "4.50", "",
             "", "", "ours"],
            [part, "ours", "64x8", "10.00", "", "400.00", "", "1,000",
             "7,000", "2.50", ""],
        ]  # fmt: skip
    line = (
        "a GPU, 2026-01-02, commit abc, a CPU, 2 cores, backend jax, python "
        "3.11.1, keras 3.15.1, at most"
    )
    assert page.endswith(
        f"\n- formulations: {line} 3 rounds.\n"
        f"- models: {line} 2 rounds, quick.\n"
        f"- gpu: {line} 2 rounds, quick.\n"
        f"- serving: {line} 2 rounds, quick.\n"
    )


def test_another_checkout_is_timed_in_turns(tmp_path, monkeypatch):
    (tmp_path / "old" / "benchmarks").mkdir(parents=True)
    order = []

    def process(root, name, rounds):
        order.append(root.name)
        step = {"ms": 10.0 * len(order)}  # of the old one 10 and 30 ms
        names = name, f"{name}, floor"
        return {
            n: {"inputs": [2], "forward": step, "step": step} for n in names
        }

    monkeypatch.setattr(before, "_in_process", process)
    monkeypatch.setattr(run, "machine", lambda: MACHINE)
    flags = "--quick", "--out", tmp_path
    command("--before", tmp_path / "old", *flags)
    assert order == ["old", run.ROOT.name] * 2
    page = (tmp_path / "benchmarks.md").read_text("utf-8")
    name = "dr_capsnet_small"
    assert [(c[1], c[5], c[6], c[-1]) for c in cells(page, "before")] == [
        (name, "30.00", "1.50", f"{name}, before"),
        (f"{name}, before", "20.00", "1.00", f"{name}, floor, before"),
        (f"{name}, floor", "30.00", "1.50", f"{name}, floor, before"),
        (f"{name}, floor, before", "20.00", "", ""),
    ]
    told = command("--before", tmp_path / "none", *flags, status=2)
    assert "none is no checkout of this repository; make one by" in told


@pytest.mark.slow
def test_every_client_is_answered():
    model = load_pretrained("figures")
    rows = serving.measure(Settings(quick=True))
    assert len(rows) == 3 * len(serving.CLIENTS)
    assert {tuple(row.inputs[1:]) for row in rows} == {model.input_shape[1:]}
    for row in rows:
        assert 0 < row.forward["ms"] <= row.p99_ms and row.per_second > 0
    waits = serving.load(lambda image: time.sleep(0.01), None, 4, 0.05)
    assert 4 <= len(waits) <= 24


def test_another_backend_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    told = command("--only", "gpu", "--out", tmp_path, status=2)
    assert "need the backend tensorflow or jax, not 'torch'" in told


def test_the_page_in_results_is_made_of_its_data():
    folder = run.ROOT / "results"
    parts = json.loads((folder / "benchmarks.json").read_text("utf-8"))
    page = (folder / "benchmarks.md").read_text("utf-8")
    assert page.endswith(f"\n\n{run.page(parts)}")
