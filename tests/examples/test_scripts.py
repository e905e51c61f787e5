"""Every script at toy size, and the pages that are made of its rows."""

import importlib
import json
import shutil
from importlib import metadata
from pathlib import Path

import pytest

import markdown_table
from examples import named_parts, seeds
from tests.nightly import nightly

RESULTS = Path(__file__).parents[2] / "results"
# The page of each, and what it needs to be done in seconds.
SCRIPTS = {
    "generators": ("generators", "--samples 128 --tested 60"),
    "handwriting.train": ("mnist", "digits --samples 128 --tested 20"),
    "kanji.train": ("kanji", "--samples 400 --tested 60"),
    "letters.train": ("syndacate", "--samples 60 --tested 20"),
    "smallest": (
        "smallest",
        "--samples 128 --tested 10 --weights 0.5 --filters 0.5",
    ),
    "strokes.train": ("strokes", "--samples 400 --tested 60"),
    "viewpoints": ("views", "--samples 128 --tested 10"),
}


@nightly
@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_trains_measures_and_draws(name, tmp_path, monkeypatch):
    if name.startswith(("kanji", "strokes")) and not [
        *metadata.distributions(name="kanjivg")
    ]:
        pytest.skip("the package kanjivg is not installed (extra kanji)")
    script = importlib.import_module(f"examples.{name}")
    if name == "viewpoints":
        monkeypatch.setattr(script, "VIEWS", script.VIEWS[::36])
    page, flags = SCRIPTS[name]
    flags += f" --seeds 0 --epochs 1 --to {tmp_path} --draw {tmp_path}/a.png"
    monkeypatch.setattr("sys.argv", ["script", *flags.split()])
    assert not seeds.main(page, script.make_parser(), script.measured)
    (line,) = (tmp_path / f"{page}.jsonl").read_text("utf-8").splitlines()
    assert json.loads(line)["seed"] == 0
    table = (tmp_path / f"{page}.md").read_text("utf-8").splitlines()
    assert len(table) > 4 and table[4].count("–") < table[4].count("|") / 2
    assert (tmp_path / "a.png").exists() == (
        name not in ("generators", "viewpoints")
    )


def test_pages_of_named_parts_have_the_tables_of_their_rows(tmp_path):
    folder = tmp_path / "named_parts"
    shutil.copytree(RESULTS / "named_parts", folder)
    names = [page for page, _ in SCRIPTS.values()]
    paths = [folder / f"{name}.md" for name in ("table", *names)]
    before = [path.read_text("utf-8") for path in paths]
    for path in paths:
        markdown_table.write_tables(path, "| x |")
    named_parts.run(named_parts.make_parser().parse_args([str(folder)]))
    for name, path in zip(names, paths[1:], strict=True):
        lines = path.with_suffix(".jsonl").read_text("utf-8").splitlines()
        seeds.write_page(path, name, [*map(json.loads, lines)])
    assert [path.read_text("utf-8") for path in paths] == before


def test_a_row_for_each_seed_is_added_and_words_stay(tmp_path, monkeypatch):
    heads = ("seed", "twice", "unknown")
    columns = [[head, f"{{{head}}}"] for head in heads]
    page = {"order": ["seed"], "columns": columns}
    monkeypatch.setitem(seeds.PAGES, "some", page)
    parser = seeds.make_parser("some", "Measures.", 9, 1, 9)
    for numbers in ((3, 1), (2,)):
        flags = ["--to", tmp_path, "--seeds", *numbers]
        monkeypatch.setattr("sys.argv", ["some", *map(str, flags)])
        assert not seeds.main("some", parser, lambda *_: {"twice": "a \\1"})
        text = (tmp_path / "some.md").read_text("utf-8")
        (tmp_path / "some.md").write_text(f"Above.\n{text}Below.\n", "utf-8")
    assert text.startswith("Above.\n# some\n\n| seed")
    assert text.endswith(" a \\1 |       – |\nBelow.\n")
    assert [line[2] for line in text.splitlines() if " a " in line] == [*"123"]
