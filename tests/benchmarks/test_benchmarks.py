"""The benchmarks: what they compare is equal, and their files are right."""

import keras
import numpy as np
import pytest

from benchmarks import formulations, measure, models, rem, run
from benchmarks.common import ROOT
from benchmarks.formulations import CANDIDATES, Size
from benchmarks.measure import Row, interleaved, memory_of_step
from cli import run_command
from tests.benchmarks.results import MACHINE, cells
from tests.networks import SMALL_NETWORKS
from tests.nightly import nightly
from tfcaps.graphs import is_routed
from tfcaps.rem import CouplingDictionary

ROWS = [
    Row("tiled", [64, 8], {"ms": 90.0}, {"ms": 1800.0}, "ours"),
    Row("ours", [64, 8], {"ms": 10.0}, {"ms": 400.0}, "ours", 1e3, 3e3),
]
SMALL = Size(batch=2, children=5, child_dim=4, parents=3, dim=6)._asdict()


def command(*flags):
    return run_command(run.make_parser(), run.run, flags)


def part(*rows):
    settings = {"rounds": 15, "quick": True}
    named = [row._asdict() for row in rows]
    return {"machine": MACHINE, "settings": settings, "rows": named}


def test_all_candidates_are_timed_and_the_first_calls_left_out():
    calls = []
    candidates = {name: lambda name=name: calls.append(name) for name in "ab"}
    timings = interleaved("test", candidates, rounds=3)
    assert list(timings) == ["a", "b"]
    assert timings["a"]["rounds"] == 3
    low, high = timings["a"]["quartiles"]
    assert 0 < low <= timings["a"]["ms"] <= high
    assert calls[:4] == ["a", "a", "b", "b"]
    late = interleaved("test", {"a": int}, rounds=9, seconds=0.0)
    assert late["a"]["rounds"] == 3


@pytest.mark.slow
def test_peak_memory_is_what_a_step_adds(tmp_path, monkeypatch):
    (tmp_path / "steps.py").write_text(
        "def hold(megabytes):\n    return lambda: b'x' * megabytes * 10**6\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    peak, process = memory_of_step("steps:hold", megabytes=300)
    if not measure._CLEAR.exists():
        pytest.skip("this system does not tell")
    assert peak == pytest.approx(300, rel=0.1)
    assert process == pytest.approx(300, rel=0.1)


def test_a_step_that_fails_is_named():
    with pytest.raises(RuntimeError, match="builtins:no_such_step"):
        memory_of_step("builtins:no_such_step")


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
    np.testing.assert_allclose(np.squeeze(forward), poses, atol=1e-4)


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
    codes, predicted = rem.draw_codes(50)
    trees = CouplingDictionary(10)
    trees.update(codes, predicted)
    counters = rem.count_strings(codes, predicted)
    assert [len(c) for c in counters] == trees.num_keys.tolist()
    assert sum(c.total() for c in counters) == 50


def test_the_page_compares_rows_and_leaves_empty_what_is_unknown():
    page = run.page({"layers": part(*ROWS), "rem": part(ROWS[-1])})
    assert cells(page, "layers") == [
        ["layers", "tiled", "64x8", "90.00", "9.00", "1,800.00", "4.50", "", "",
         "ours"],
        ["layers", "ours", "64x8", "10.00", "", "400.00", "", "1,000", "3,000",
         ""],
    ]  # fmt: skip
    line = (
        "2026-01-02, commit abc, a CPU, 2 cores, python 3.11.1, tensorflow "
        "2.21.0, at most 15 rounds, quick."
    )
    assert page.endswith(f"\n- layers: {line}\n- rem: {line}\n")


def test_a_part_takes_its_own_place_and_leaves_the_others(
    tmp_path, monkeypatch
):
    for module in (formulations, rem):
        monkeypatch.setattr(module, "measure", lambda _: ROWS)
    out = ("--out", str(tmp_path / "new"))
    assert command("--only", "formulations", "--rounds", "3", *out) == 0
    assert command("--only", "rem", *out) == 0
    parts = run.read(tmp_path / "new")
    assert list(parts) == ["formulations", "rem"]
    assert parts["formulations"]["settings"]["rounds"] == 3
    assert parts["rem"]["settings"]["rounds"] == 15
    page = (tmp_path / "new" / "benchmarks.md").read_text("utf-8")
    assert page == run.page(parts)


@nightly
@pytest.mark.slow
def test_a_quick_run_writes_both_files(tmp_path, capsys):
    out = ("--out", str(tmp_path))
    flags = ("--quick", "--rounds", "1", "--only", "formulations")
    assert command(*flags, *out) == 0
    printed = capsys.readouterr().out
    assert "formulations, gradient last, step: tfcaps" in printed
    rows = run.read(tmp_path)["formulations"]["rows"]
    assert len(rows) == 5
    assert all(row["step"]["ms"] > 0 for row in rows)
    page = (tmp_path / "benchmarks.md").read_text("utf-8")
    assert len(cells(page, "formulations")) == 5


def test_mistakes_are_one_sentence(tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        command("--only", "rem,speed")
    assert stopped.value.code == 2
    message = "'speed' is no part; the parts are formulations, models, rem"
    assert message in capsys.readouterr().err
    for text, message in (
        # Of a former version.
        ('{"rem": {"result": {}}}', "must hold rows of parts"),
        ("{", "is not what this command writes"),
    ):
        (tmp_path / "benchmarks.json").write_text(text)
        assert command("--out", str(tmp_path)) == 2
        assert message in capsys.readouterr().err


def test_the_page_in_results_is_made_of_its_data():
    folder = ROOT / "results"
    page = (folder / "benchmarks.md").read_text("utf-8")
    assert page == run.page(run.read(folder))
