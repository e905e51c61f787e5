"""How fast it is here, beside machines that were measured."""

import json

import pytest

from benchmarks import faults, here
from benchmarks.command import ROOT
from benchmarks.faults import Cost
from cli import UserError, run_command
from tests.benchmarks.results import MACHINE, cells


def measured(kind="as it is", units=("avx2",)):
    cost = Cost(80.0, 100.0, 4.0, 30.0, 900.0, 10)
    more = cost._replace(ms=160.0, system_ms=90.0, faults=45_000.0)
    return {
        "kind": kind,
        "machine": {**MACHINE, "vector_units": list(units), "cores": 2},
        "kept": {"parts_capsnet": cost._asdict()},
        "given_back": {"parts_capsnet": more._asdict()},
    }


def test_known_machines_stand_below_this_one(tmp_path, monkeypatch, capsys):
    costs = {
        "parts_capsnet": Cost(100.0, 50.0, 2.0, 1_234.0, 800.0, 10),
        "dr_capsnet_small": Cost(7.0, 50.0, 2.0, 1_234.0, 800.0, 10),
    }
    (tmp_path / "here.json").write_text(json.dumps([measured()]))
    monkeypatch.setattr(
        faults, "of_training", lambda name, seconds: costs[name]
    )
    flags = ["--networks", ",".join(costs), "--out", str(tmp_path)]
    assert run_command(here.make_parser(), here.run, flags) == 0
    text = capsys.readouterr().out
    this, known = cells(text, "parts_capsnet")
    assert this[1:] == ["this one", "100", "1,234", "4.0 %"]
    assert known[1] == f"{MACHINE['cpu']}, 2 cores, no AVX-512"
    assert known[2:] == ["80", "30", "4.0 %"]
    assert len(cells(text, "dr_capsnet_small")) == 1


def test_the_page_shows_both_ways():
    page = here.page([measured(), measured(here._AVX2, ["avx512f"])])
    first, second = cells(page, "parts_capsnet")
    assert first == second
    assert first[1:] == [
        "80", "30", "4.0 %", "900", "160", "45,000", "90.0 %", "900",
    ]  # fmt: skip
    assert "as without AVX-512" in page


def test_networks_are_added_to_a_machine_of_the_same_kind():
    other = measured(here._AVX2)
    cost = Cost(1.0, 1.0, 0.0, 0.0, 1.0, 1)._asdict()
    both = {**measured(), "kept": {"a": cost}, "given_back": {"a": cost}}
    known = here.added(here.added([measured()], other), both)
    assert known[0] == other
    assert [*known[1]["kept"]] == [*known[1]["given_back"]]
    assert [*known[1]["kept"]] == ["parts_capsnet", "a"]
    assert len(known) == 2


def test_what_is_recorded_can_be_read(tmp_path, monkeypatch):
    monkeypatch.setattr(here, "_measure", lambda name, kind: measured(kind))
    flags = ["--record", "--networks", "dr_capsnet", "--out", str(tmp_path)]
    assert run_command(here.make_parser(), here.run, flags) == 0
    known = here.read(tmp_path)
    assert [m["kind"] for m in known] == [here._AVX2, here._NATIVE]
    assert (tmp_path / "here.md").read_text("utf-8") == here.page(known)


def test_a_broken_file_is_one_sentence(tmp_path):
    (tmp_path / "here.json").write_text("{")
    with pytest.raises(UserError, match="here.json is not what this command"):
        here.read(tmp_path)


def test_the_page_in_results_is_made_of_its_data():
    folder = ROOT / "results"
    known = json.loads((folder / "here.json").read_text("utf-8"))
    assert (folder / "here.md").read_text("utf-8") == here.page(known)


@pytest.mark.slow
def test_a_network_is_measured_in_a_process_of_its_own():
    cost = faults.of_training("dr_capsnet_small", batch=2, seconds=0.0)
    assert cost.steps == 1
    assert cost.ms > 0 and cost.peak_mb > 100
    with pytest.raises(RuntimeError, match="'unknown'.* ended with status"):
        faults.of_training("unknown")
