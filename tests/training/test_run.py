"""The main job, end to end on tiny data, and its mistakes."""

import json
import shutil
from functools import partial

import keras
import numpy as np
import pytest

import tfcaps
from tests.commands import status_of, told_by
from tests.tolerance import assert_all_equal
from tests.training.test_figures import ALWAYS
from tfcaps import rem
from tfcaps.export import ExportError
from training import results, run, train
from training.folder import RunFolder


def tiny_data(path, size=8, test=8):
    rng = np.random.default_rng(0)
    labels = np.arange(19) % 3  # three of them are for validation
    np.savez(
        path,
        x_train=rng.random((19, size, size), dtype=np.float32),
        y_train=labels,
        x_test=rng.random((test, size, size), dtype=np.float32),
        y_test=np.arange(test) % 3,
    )
    return str(path)


command = partial(told_by, run.main)
refused = partial(command, status=2)


def metrics(folder):
    lines = (folder / "metrics.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.slow
def test_a_run_leaves_everything_it_promises(finished):
    names = {p.name for p in finished.iterdir()}
    assert names >= {
        "config.json", "data.json", "environment.json", "metrics.jsonl",
        "model.keras", "baseline.keras", "rem.json", "dictionary.npz",
        "figures", "report.html", "served",
    }  # fmt: skip
    assert not [n for n in names if n.startswith((".", "backup"))]
    figures = {p.stem for p in (finished / "figures").iterdir()}
    assert figures == ALWAYS | {"tradeoff_levels", "reconstructions"}
    served = list((finished / "served").glob("*/*/saved_model.pb"))
    assert [p.parent.name for p in served] == ["1"]
    about = json.loads((served[0].parent / "manifest.json").read_text())
    assert about["classes"] == ["0", "1", "2"]
    report = json.loads((finished / "rem.json").read_text())["models"]["rem"]
    assert about["metrics"]["accuracy"] == report["accuracy"]
    page = (finished / "report.html").read_text("utf-8")
    assert page.count("<figure>") == len(figures)
    environment = json.loads((finished / "environment.json").read_text())
    assert environment["packages"]["keras"] == keras.__version__


def test_the_saved_model_and_dictionary_are_those_of_the_report(finished):
    reports = json.loads((finished / "rem.json").read_text())["models"]
    assert set(reports) == {"baseline", "rem"}
    model = keras.models.load_model(finished / "model.keras")
    assert getattr(model, "optimizer", None) is None
    with np.load(finished.parent / "tiny.npz") as data:
        report = rem.evaluate(
            model, (data["x_test"][..., None], data["y_test"])
        )
    saved = reports["rem"]
    assert report.accuracy_quantized == saved["accuracy_quantized"]
    assert report.sparsity == pytest.approx(0.5, abs=0.01)
    trees = rem.CouplingDictionary.load(finished / "dictionary.npz")
    assert trees.num_keys.tolist() == saved["per_class"]["num_keys"]
    assert reports["baseline"]["sparsity"] == 0.0


def test_metrics_have_a_line_for_each_model_and_epoch(finished):
    rows = metrics(finished)
    assert [(row["model"], row["epoch"]) for row in rows] == [
        ("baseline", 0), ("baseline", 1), ("rem", 0), ("rem", 1),
    ]  # fmt: skip
    assert rows[-1]["sparsity"] == pytest.approx(0.5, abs=0.01)
    assert all(np.isfinite(row["loss"]) for row in rows)


@pytest.mark.slow
def test_the_closing_table_stands_on_stdout(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "_export", lambda folder, to: None)
    data = tiny_data(tmp_path / "tiny.npz")
    out = tmp_path / "plain"
    printed = command("--dataset", data, "--epochs", 1, "--out", out)
    assert "| Baseline |" in printed and "| REM" not in printed
    assert f"report: {out / 'report.html'}" in printed
    told, table, end = printed.rsplit("\n\n", 2)
    lines = [*told.splitlines()[-3:], *table.splitlines()]
    assert max(map(len, lines)) <= 100
    assert "The accuracy on new images is " in told
    assert end.splitlines()[-1] == (
        f"try next: python training/explain.py --run {out} your-picture.png"
    )
    assert not (out / "baseline.keras").exists()
    assert (out / "model.keras").is_file()


def test_resuming_removes_what_was_being_written(finished, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "run")
    (folder / "served" / "tiny").mkdir()
    (folder / "figures" / ".my-notes").touch()
    before = set(folder.rglob("*"))
    for name in (
        ".rem.json-a1_b2c3d",
        ".staged-model.keras",
        "figures/.curves.png-tjz7y9ci",
        "served/.models.config-tjz7y9ci",
        "served/tiny/.publish-tjz7y9ci/variables",
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    with RunFolder.resume(folder).hold():
        pass
    assert set(folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("lost", "again"),
    [
        ((), []),
        (("report.html",), ["draws"]),
        (("served",), ["exports"]),
        (("report.html", "served"), ["draws", "exports"]),
        pytest.param(
            ("baseline_dictionary.npz",), ["measures"], marks=pytest.mark.slow
        ),
    ],
    ids=lambda value: "+".join(value) or "nothing",
)
def test_what_is_finished_is_not_done_again(
    finished, tmp_path, monkeypatch, lost, again
):
    path, done = shutil.copytree(finished, tmp_path / "run"), []
    for name in lost:
        each = path / name
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    measure = rem.Evaluator.run

    def evaluate(self, *args, **kwargs):
        done.append("measures")
        return measure(self, *args, **kwargs)

    monkeypatch.setattr(rem.Evaluator, "run", evaluate)
    monkeypatch.setattr(
        results, "write_report", lambda *_: done.append("draws")
    )
    monkeypatch.setattr(results, "_export", lambda *_: done.append("exports"))
    before = json.loads((path / "rem.json").read_text())
    files = {each: each.stat().st_mtime_ns for each in path.rglob("*.json")}
    printed = command("--resume", "--out", path)
    assert done == again
    if not lost:  # also where nothing can be written
        assert files == {each: each.stat().st_mtime_ns for each in files}
    assert json.loads((path / "rem.json").read_text()) == before
    assert "| REM" in printed and not list(path.glob("measured-*"))


def test_an_export_that_fails_leaves_the_report_and_says_so(
    finished, tmp_path, monkeypatch, capsys
):
    path = shutil.copytree(finished, tmp_path / "run")
    shutil.rmtree(path / "served")

    def fail(*args, **kwargs):
        raise ExportError("savedmodel: an answer differs.")

    monkeypatch.setattr("tfcaps.export.save", fail)
    assert status_of(run.main, "--resume", "--out", path) == 2
    printed = capsys.readouterr()
    assert f"report: {path / 'report.html'}" in printed.out
    assert "is drawn, but it was not exported: savedmodel: an" in printed.err
    assert printed.err.strip().endswith(f"--resume --out {path}")


@pytest.mark.slow
def test_mixed_precision_trains_and_leaves_a_network_in_float32(
    tmp_path, monkeypatch
):
    prepared = []
    prepare = train.prepare

    def spy(*args):
        prepared.append(prepare(*args))
        return prepared[-1]

    monkeypatch.setattr(train, "prepare", spy)
    out = tmp_path / "run"
    command(
        "--rem", "--bare", "--dataset", tiny_data(tmp_path / "tiny.npz"),
        "--epochs", 2, "--batch-size", 8, "--final-sparsity", 0.5,
        "--dtype-policy", "mixed_bfloat16", "--out", out,
    )  # fmt: skip
    assert keras.config.dtype_policy().name == "float32"
    folder = RunFolder.resume(out)
    for name, ready in zip(("baseline", "rem"), prepared, strict=True):
        left = folder.load_model(name)
        for layer in ready.full_model.layers:
            assert layer.compute_dtype == "bfloat16" or not layer.weights
        assert all(x.compute_dtype == "float32" for x in left.layers)
        assert_all_equal(left.get_weights(), ready.full_model.get_weights())
    assert rem.sparsity(left) == pytest.approx(0.5, abs=0.01)


@pytest.mark.slow
def test_an_epoch_that_is_not_finite_is_not_backed_up(tmp_path, monkeypatch):
    data = tiny_data(tmp_path / "tiny.npz")
    monkeypatch.setattr(
        tfcaps.losses.MarginLoss,
        "call",
        lambda self, y_true, y_pred: keras.ops.sum(np.nan * y_pred, axis=-1),
    )
    out = tmp_path / "run"
    told = refused("--dataset", data, "--epochs", 1, "--out", out)
    assert "loss became nan in step 1 of epoch 1" in told
    assert not list(out.rglob("*.h5")) and not list(out.glob("*.keras"))
