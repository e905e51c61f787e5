"""Runs that rebuild the network while structured pruning empties it."""

import dataclasses

import keras
import numpy as np
import pytest

import tfcaps
from tests.networks import tiny_capsnet
from tests.nightly import nightly
from tests.rem.pruning.test_structured import compiled
from tests.training.test_run import command, metrics, tiny_data
from tests.training.test_warm_start import weights
from tfcaps import rem
from training import configs, rebuilding
from training.backup import BackUp
from training.measure import Measure
from training.moments import carry_on

_FLAGS = (
    "--rem", "--bare", "--no-baseline", "--deterministic", "--epochs", 5,
    "--batch-size", 4, "--decay", 0.01, "--counterfactual-necessity", 0.5,
    "--pruning", "structured", "--final-sparsity", 0.6,
)  # fmt: skip


class Killed(Exception):
    """What ends a run."""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tiny_data(tmp_path_factory.mktemp("data") / "tiny.npz")


@pytest.fixture
def always(monkeypatch):
    """Rebuilds networks however small they are."""
    monkeypatch.setattr(rebuilding, "_WORTH", 0)


def left_by(folder):
    rows = metrics(folder)
    latest = {row["epoch"]: row for row in rows}
    for row in rows:
        del row["seconds_per_step"]
    return [latest[epoch] for epoch in sorted(latest)], weights(
        folder / "model.keras"
    )


def same(left, other, **tolerances):
    keys = ("epoch", "loss", "sparsity", "test_accuracy", "entropy_bits")
    assert [len(rows) for rows, _ in (left, other)] == [5, 5]
    for row, wanted in zip(left[0], other[0], strict=True):
        for key in keys:
            np.testing.assert_allclose(row[key], wanted[key], **tolerances)
    for array, wanted in zip(left[1], other[1], strict=True):
        np.testing.assert_allclose(array, wanted, **tolerances)


@pytest.mark.slow
def test_a_rebuilt_network_is_trained_as_the_masked_one(
    data, tmp_path, monkeypatch, capsys
):
    def run(name, worth, resumed=False):
        monkeypatch.setattr(rebuilding, "_WORTH", worth)
        capsys.readouterr()
        flags = ("--resume", "--bare") if resumed else (*_FLAGS, "--dataset")
        flags = flags if resumed else (*flags, data)
        assert command(*flags, "--force", "--out", tmp_path / name) == 0
        shown = capsys.readouterr().out
        return left_by(tmp_path / name), shown

    masked, shown = run("masked", np.inf)
    assert "rebuilt: " not in shown
    rebuilt, shown = run("rebuilt", 0)
    assert shown.count("rebuilt: ") == 2
    assert "Epoch 3/5" in shown
    same(rebuilt, masked, rtol=1e-4, atol=1e-5)
    # A run that was begun before networks were rebuilt goes on so.
    with monkeypatch.context() as patched:
        write = BackUp.write

        def killed(self, model, done):
            write(self, model, done)
            if done == 4:
                raise Killed

        patched.setattr(BackUp, "write", killed)
        with pytest.raises(Killed):
            run("begun", np.inf)
    resumed, shown = run("begun", 0, resumed=True)
    assert shown.count("rebuilt: ") == 1
    same(resumed, masked, rtol=1e-4, atol=1e-5)


@nightly
@pytest.mark.slow
def test_a_killed_run_ends_like_one_that_was_not(
    data, tmp_path, monkeypatch, always
):
    flags = (*_FLAGS, "--force", "--dataset", data)
    assert command(*flags, "--out", tmp_path / "whole") == 0
    expected = left_by(tmp_path / "whole")

    def kill(owner, name, at):
        """Ends the run at one of the calls, or does nothing more."""
        original, calls = getattr(owner, name), []

        def killed(*args, **kwargs):
            calls.append(args)
            if len(calls) == at:
                raise Killed
            return original(*args, **kwargs)

        return killed

    out = tmp_path / "run"
    resume = ("--resume", "--bare", "--force", "--out", out)
    begun = (*flags, "--out", out)
    for owner, name, at, command_line in (
        (rebuilding, "carry_on", 1, begun),
        # Its network is there, and no back-up of the stage.
        (BackUp, "write", 1, resume),
        (Measure, "on_epoch_end", 2, resume),
        (rebuilding, "_write_stage", 1, resume),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, kill(owner, name, at))
            with pytest.raises(Killed):
                command(*command_line)
    assert command(*resume) == 0
    same(left_by(out), expected, rtol=0, atol=0)
    assert not list(out.glob("backup*"))


def test_networks_are_rebuilt_where_it_is_worth_it():
    config = configs.Config(
        dataset="mnist", epochs=8, batch_size=128, final_sparsity=0.97
    )
    config = dataclasses.replace(config, pruning_begin=0.0, pruning_end=0.6)
    found = rebuilding.cuts(config, 422, 2e8)
    assert found == [1, 2, 3, 4]
    assert rebuilding.cuts(config, 422, 2e6) == [1]
    assert not rebuilding.cuts(config, 10, 2e6)
    half = dataclasses.replace(config, final_sparsity=0.5)
    assert rebuilding.cuts(half, 422, 2e8) == [2, 5]
    # A stage ends at the next cut; in a run that is beyond it, at once.
    ends = [rebuilding.end_of_stage(1, k, found, 8) for k in (0, 1, 2, 4, 6)]
    assert ends == [2, 2, 2, 4, 6]
    assert rebuilding.end_of_stage(5, 7, found, 8) == 8
    assert rebuilding.end_of_stage(4, 4, found, 4) == 4


def test_moments_stay_with_their_weights(rng):
    model = compiled(tiny_capsnet(), keras.optimizers.Adam(0.01))
    images = rng.random((24, 8, 8, 1), dtype=np.float32), np.arange(24) % 3
    rem.prune_structured(model, lambda step: 0.5)
    model.fit(*images, verbose=0, callbacks=[rem.UpdatePruningStep()])
    groups = model.pruning.groups
    masks = dict(
        zip(
            [v.path for v in groups.variables],
            groups.masks(groups.kept(model.pruning.masks())),
            strict=True,
        )
    )
    before, optimizer = {}, model.optimizer
    for k, variable in enumerate(model.trainable_variables):
        for moments in (optimizer._momentums, optimizer._velocities):
            kept = masks.get(variable.path, np.ones(variable.shape, bool))
            before.setdefault(variable.path, []).append(
                np.array(moments[k])[kept]
            )
    compact = compiled(rem.compact(model), keras.optimizers.Adam(0.01))
    # One whose place is not known gets the mean.
    bias = compact.get_layer("conv").bias
    bias.assign(bias + 1.0)
    carry_on(model, compact, model, compact)
    new = compact.optimizer
    assert int(new.iterations) == int(optimizer.iterations) == 1
    assert len(before) == len(new._momentums)
    for k, variable in enumerate(compact.trainable_variables):
        for moments, old in zip(
            (new._momentums, new._velocities),
            before[variable.path],
            strict=True,
        ):
            left = np.array(moments[k]).ravel()
            if variable is bias:
                assert len(set(left)) == 1
                continue
            assert np.any(left)
            np.testing.assert_array_equal(left, old)


def test_a_loss_that_silences_trees_knows_which_children_are_left(rng):
    model = compiled(tiny_capsnet())
    rem.prune_structured(model, lambda step: 0.6, units=("types", "children"))
    model.pruning.begin_step(model, 1)
    images = rng.random((6, 8, 8, 1), dtype=np.float32)
    layer = tfcaps.layers.CompactCaps
    compact = rem.compact(model)
    assert isinstance(compact.get_layer("class_caps"), layer)
    asked, wanted = (
        rem.add_couplings(network, counterfactual=True)(images)
        for network in (compact, model)
    )
    for name, output in wanted.items():
        np.testing.assert_allclose(asked[name], output, 1e-5, 1e-6)
