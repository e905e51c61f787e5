"""Rows of seeds, and the pages that are made of them."""

import shutil
from pathlib import Path

import markdown_table
from examples import part_types, seeds, viewpoints
from examples.handwriting import train as handwriting_train
from examples.kanji import train as kanji_train
from examples.letters import train as letters_train
from experiments import named_parts

RESULTS = Path(__file__).parents[2] / "results"


def test_pages_of_named_parts_have_the_tables_of_their_rows(tmp_path):
    folder = tmp_path / "named_parts"
    shutil.copytree(RESULTS / "named_parts", folder)
    scripts = [
        script.PAGE
        for script in (
            *(part_types, viewpoints),
            *(handwriting_train, kanji_train, letters_train),
        )
    ]
    pages = [folder / f"{n}.md" for n in ("table", *(s.name for s in scripts))]
    before = [page.read_text("utf-8") for page in pages]
    for page in pages:
        markdown_table.write_tables(page, "| x |")
    named_parts.run(named_parts.make_parser().parse_args([str(folder)]))
    for script in scripts:
        script.write(folder)
    assert [page.read_text("utf-8") for page in pages] == before


def test_a_row_for_each_seed_is_added_and_words_stay(tmp_path, monkeypatch):
    page = seeds.Page("some", (("seed", "{seed}"), ("twice", "{twice}")))
    parser = seeds.make_parser("some", "Measures.", 9, 1, 9)
    for numbers in ((3, 1), (2,)):
        flags = ["--to", tmp_path, "--seeds", *numbers]
        monkeypatch.setattr("sys.argv", ["some", *map(str, flags)])
        assert not page.main(parser, lambda _, seed: {"twice": "a \\1"})
        text = (tmp_path / "some.md").read_text("utf-8")
        (tmp_path / "some.md").write_text(f"Above.\n{text}Below.\n", "utf-8")
    assert text.startswith("Above.\n# some\n\n| seed")
    assert text.endswith(" a \\1 |\nBelow.\n")
    assert [line[2] for line in text.splitlines() if " a " in line] == [*"123"]
