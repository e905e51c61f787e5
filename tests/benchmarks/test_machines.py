"""Figures of several machines, and their medians."""

import json

import pytest

from benchmarks import machines, tables
from cli import UserError
from tests.benchmarks.results import FORMULATIONS, MACHINE, REM, cells, part


def test_medians_are_those_of_machines_and_days(tmp_path):
    parts = {"formulations": part(FORMULATIONS), "rem": part(REM, quick=True)}
    tiled = "class layer, step, couplings constant: speed against tiled"
    known = []
    for day, slow in enumerate((9, 6, 3, 7)):
        (tmp_path / machines.FILE).write_text(json.dumps(known))
        rows = [
            {**row, "step": {"ms": 20.0 * slow}}
            if row["name"] == "tiled"
            else row
            for row in FORMULATIONS["rows"]
        ]
        here = {**MACHINE, "date": f"2026-01-{min(day, 2) + 1:02}"}
        measured = {
            **part({**FORMULATIONS, "rows": rows}), "machine": here
        }  # fmt: skip
        parts["formulations"] = measured
        known = machines.added(machines.read(tmp_path), parts, here)
    # The last run took the place of one on the same day.
    assert [machine["figures"][tiled] for machine in known] == [9, 6, 7]
    page = tables.page(parts, known)
    assert cells(page, tiled)[0][2:] == [
        "7.00x", "3", "7.00x", "6.00x", "9.00x",
    ]  # fmt: skip
    # A quick run, and one of another part, take nothing away.
    quick = {"formulations": {**measured, **part(FORMULATIONS, quick=True)}}
    assert machines.added(known, quick, here) == known
    # Quick runs say nothing, and other machines' parts are not of this one.
    assert not any("rem.evaluate" in machine["figures"] for machine in known)
    elsewhere = {**MACHINE, "cpu": "another"}
    assert machines.added([], parts, elsewhere) == []
    assert "- 2026-01-02: a CPU (avx2), 2 cores\n" in page


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        '[{"cpu": "a CPU"}]',
        json.dumps([{key: [] for key in (*machines._KEYS, "figures")}]),
    ],
)
def test_a_file_of_machines_that_is_none_is_said(text, tmp_path):
    (tmp_path / machines.FILE).write_text(text)
    with pytest.raises(UserError, match="is not what this command writes"):
        machines.read(tmp_path)
