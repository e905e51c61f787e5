"""The benchmarks: what they compare is equal, and their files are right."""

import json

import keras
import numpy as np
import pytest

from benchmarks import (
    formulations,
    memory,
    models,
    rem,
    run,
    tables,
)
from benchmarks.command import ROOT
from benchmarks.formulations import CANDIDATES, Size
from benchmarks.measure import interleaved
from cli import run_command
from markdown_table import UNMEASURED
from tests.benchmarks.results import (
    FORMULATIONS,
    REM,
    cells,
    part,
)
from tests.networks import SMALL_NETWORKS
from tfcaps.graphs import is_routed
from tfcaps.rem import CouplingDictionary

SMALL = Size(batch=2, children=5, child_dim=4, parents=3, dim=6)._asdict()


def command(*flags):
    return run_command(run.make_parser(), run.run, flags)


def test_all_candidates_are_timed_and_the_first_calls_left_out():
    calls = []
    candidates = {name: lambda name=name: calls.append(name) for name in "ab"}
    timings = interleaved("test", candidates, rounds=3)
    assert list(timings) == ["a", "b"]
    assert timings["a"]["rounds"] == 3
    low, high = timings["a"]["quartiles"]
    assert 0 < low <= timings["a"]["ms"] <= high
    assert calls[:4] == ["a", "a", "b", "b"]


def test_no_round_is_begun_when_time_is_up():
    timings = interleaved("test", {"a": int}, rounds=9, seconds=0.0)
    assert timings["a"]["rounds"] == 3


@pytest.mark.slow
def test_peak_memory_is_what_a_step_adds(tmp_path, monkeypatch):
    (tmp_path / "steps.py").write_text(
        "def hold(megabytes):\n    return lambda: b'x' * megabytes * 10**6\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    use = memory.of_step("test", "steps:hold", steps=2, megabytes=300)
    if use.peak_mb is None:
        pytest.skip("this system does not tell")
    assert use.peak_mb == pytest.approx(300, rel=0.1)
    assert use.process_mb == pytest.approx(300, rel=0.1)
    use = memory.of_step("test", "steps:hold", steps=0, megabytes=300)
    assert use.peak_mb == pytest.approx(300, rel=0.1)


def test_memory_that_a_pool_hides_is_not_reported(monkeypatch):
    monkeypatch.setattr(memory, "_read", lambda field: 10**9)
    monkeypatch.setattr(memory, "_reset_peak", lambda: 10**9)
    assert memory._measure(lambda: b"x", steps=1).peak_mb is None


def test_a_step_that_fails_is_named():
    with pytest.raises(RuntimeError, match="builtins:no_such_step"):
        memory.of_step("test", "builtins:no_such_step")


@pytest.mark.parametrize("gradient", CANDIDATES)
def test_formulations_agree_with_tfcaps(gradient):
    results = {
        name: formulations.make_step(name, gradient, SMALL)()
        for name in CANDIDATES[gradient]
    }
    formulations.check(results)
    poses, *_ = results["tfcaps"]
    (forward,) = np.atleast_2d(
        [formulations.make_step("einsum", gradient, SMALL, backward=False)()]
    )
    np.testing.assert_allclose(forward, poses, atol=1e-4)


def test_the_two_gradients_differ_and_that_is_found():
    results = {
        "tfcaps": formulations.make_step("tfcaps", "last", SMALL)(),
        "einsum": formulations.make_step("einsum", "full", SMALL)(),
    }
    with pytest.raises(RuntimeError, match="gradients of children.*'einsum'"):
        formulations.check(results)


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


def test_all_weights_of_the_floor_are_trained():
    floor = models.floor(SMALL_NETWORKS["dr_capsnet"]())
    models.to_train(floor, "dr_capsnet")
    weights = floor.get_weights()
    floor.train_on_batch(np.ones((2, 8, 8, 1), "float32"), np.array([0, 1]))
    for before, after in zip(weights, floor.get_weights(), strict=True):
        assert np.any(before != after)


def test_strings_count_what_the_dictionary_counts():
    codes = rem._codes(3)[[0, 1, 1, 2]]
    predicted = np.array([0, 1, 1, 0])
    trees = CouplingDictionary(10)
    trees.update(codes, predicted)
    counters = rem.count_strings(codes, predicted)
    assert [len(c) for c in counters] == trees.num_keys.tolist()
    assert counters[1].most_common()[0][1] == 2


def test_the_page_compares_with_tfcaps_and_says_what_was_not_measurable():
    page = tables.page(
        {"formulations": part(FORMULATIONS), "rem": part(REM, quick=True)}
    )
    none = UNMEASURED
    assert cells(page, "last")[:2] == [
        ["last", "tiled", "90.00", "9.00", "180.00", "9.00", *[none] * 4],
        ["last", "einsum", "45.00", "4.50", "90.00", "4.50", "1,000", "4.00",
         "2,000", "4.00"],
    ]  # fmt: skip
    assert cells(page, "rem.evaluate")[0][1:] == [
        "1,100.0", "predict", "1,000.0", "1.10",
    ]  # fmt: skip
    assert cells(page, "20,000 keys")[0][-1] == "25.00"
    assert "## models" not in page
    line = (
        "2026-01-02, commit abc, a CPU, 2 cores, python 3.11.1, tensorflow "
        "2.21.0, at most 15 rounds"
    )
    assert f"\n{line}.\n" in page and f"\n{line}, quick.\n" in page


def test_a_network_is_compared_with_its_floor():
    times = {"network": {"ms": 100.0}, "floor": {"ms": 96.0}}
    network = {"name": "dr_capsnet", "images": [64, 28, 28, 1]}
    use = {"peak_mb": 3210.0, "process_mb": 4000.0, "seconds": 2.0}
    result = {
        "rows": [{**network, "training": times, "prediction": times}],
        "memory": [{"name": "x", "batch": 32, **use}],
    }
    page = tables.page({"models": part(result)})
    assert cells(page, "dr_capsnet")[0][1:5] == [
        "64x28x28x1", "640.0", "666.7", "0.960",
    ]  # fmt: skip
    assert cells(page, "x ")[0] == ["x", "32", "3,210", "4,000", "2.00"]


def test_a_part_takes_its_own_place_and_leaves_the_others(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(formulations, "measure", lambda _: FORMULATIONS)
    monkeypatch.setattr(rem, "measure", lambda _: REM)
    out = ("--out", str(tmp_path / "new"))
    assert command("--only", "formulations", *out) == 0
    assert command("--only", "rem", "--rounds", "3", *out) == 0
    parts = json.loads((tmp_path / "new" / "benchmarks.json").read_text())
    assert parts.keys() == {"formulations", "rem"}
    assert parts["formulations"]["settings"]["rounds"] == 15
    assert parts["rem"]["settings"]["rounds"] == 3
    page = (tmp_path / "new" / "benchmarks.md").read_text("utf-8")
    assert page == tables.page(parts)
    assert page.index("## formulations") < page.index("## rem")


@pytest.mark.slow
def test_a_quick_run_writes_both_files(tmp_path, capsys):
    out = ("--out", str(tmp_path))
    flags = ("--quick", "--rounds", "1", "--only", "formulations")
    assert command(*flags, *out) == 0
    printed = capsys.readouterr().out
    assert "formulations, gradient last, step: tfcaps" in printed
    parts = json.loads((tmp_path / "benchmarks.json").read_text())
    rows = parts["formulations"]["result"]["rows"]
    assert len(rows) == 8
    assert all(row["step"]["ms"] > 0 for row in rows)
    page = (tmp_path / "benchmarks.md").read_text("utf-8")
    assert len(cells(page, "full")) == 4


def test_mistakes_are_one_sentence(tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        command("--only", "rem,speed")
    assert stopped.value.code == 2
    message = "'speed' is no part; the parts are formulations, layers, models"
    assert message in capsys.readouterr().err
    (tmp_path / "benchmarks.json").write_text('{"speed": 1}')
    assert command("--out", str(tmp_path)) == 2
    assert "must hold some of formulations" in capsys.readouterr().err
    (tmp_path / "benchmarks.json").write_text("{")
    assert command("--out", str(tmp_path)) == 2
    assert "is not what this command writes" in capsys.readouterr().err


def test_the_page_in_results_is_made_of_its_data():
    folder = ROOT / "results"
    page = (folder / "benchmarks.md").read_text("utf-8")
    assert page == tables.page(run.read(folder))
