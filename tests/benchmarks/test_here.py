"""How fast it is here, beside machines that were measured."""

import json

import pytest

from benchmarks import here
from benchmarks.common import main
from benchmarks.measure import call_elsewhere
from tests.benchmarks.results import MACHINE, cells

COST = {
    "ms": 80.0, "user_ms": 100.0, "system_ms": 4.0, "faults": 1_234.0,
    "peak_mb": 900.0, "steps": 10,
}  # fmt: skip


def command(*flags):
    return main(here.make_parser(), here.run, here._check, flags)


def test_known_machines_stand_below_this_one(tmp_path, monkeypatch, capsys):
    known = [
        {
            "kind": kind,
            "machine": MACHINE,
            "kept": {"parts_capsnet": {**COST, "ms": 160.0}},
        }
        for kind in ("as it is", "as without AVX-512")
    ]
    (tmp_path / "here.json").write_text(json.dumps(known))
    monkeypatch.setattr(here, "call_elsewhere", lambda _, name: COST)
    networks = "parts_capsnet,dr_capsnet_small"
    assert command("--networks", networks, "--out", str(tmp_path)) == 0
    text = capsys.readouterr().out
    this, *others = cells(text, "parts_capsnet")
    assert this[1:] == ["this one", "80", "1,234", "4.0 %"]
    for other, kind in zip(
        others, ("no AVX-512", "as without AVX-512"), strict=True
    ):
        assert other[1] == f"{MACHINE['cpu']}, 2 cores, {kind}"
        assert other[2:] == ["160", "1,234", "4.0 %"]
    assert len(cells(text, "dr_capsnet_small")) == 1


def test_a_broken_file_is_one_sentence(tmp_path, capsys):
    (tmp_path / "here.json").write_text("{")
    assert command("--out", str(tmp_path)) == 2
    assert "here.json is not what this command" in capsys.readouterr().err


@pytest.mark.slow
def test_a_network_is_measured_in_a_process_of_its_own():
    flags = {"name": "dr_capsnet_small", "batch": 2, "seconds": 0.0}
    cost = call_elsewhere("benchmarks.here:measure", **flags)
    assert cost.keys() == COST.keys() and cost["steps"] == 1
    assert cost["ms"] > 0 and cost["peak_mb"] > 100
    with pytest.raises(RuntimeError, match="'unknown'.* ended with status"):
        call_elsewhere("benchmarks.here:measure", name="unknown")
