"""Pictures of the pages are not older than the code that draws them.

python -m tests.test_drawn    # after drawing and looking: writes the hashes
"""

import ast
import hashlib
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "pictures.toml"
PICTURES = tomllib.loads(FILE.read_text("utf-8"))["picture"]
DRAWN = [picture for picture in PICTURES if "kept" not in picture]


def code_of(place):
    """Returns the code of `path` or `path:function`, without its docstrings."""
    path, _, name = place.partition(":")
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef):
            first = node.body[0]
            is_text = isinstance(first, ast.Expr) and isinstance(
                first.value, ast.Constant
            )
            if is_text:
                node.body[0] = ast.Pass()
    named = [node for node in tree.body if getattr(node, "name", "") == name]
    return "".join(map(ast.unparse, named if name else [tree]))


def hash_of(picture):
    code = "".join(map(code_of, picture["by"]))
    return hashlib.sha256(code.encode()).hexdigest()[:16]


@pytest.mark.parametrize("picture", DRAWN, ids=lambda picture: picture["file"])
def test_a_picture_is_as_new_as_the_code_that_draws_it(picture):
    assert picture.get("drawn") == hash_of(picture), (
        f"{picture['by']} draws otherwise since {picture['file']} was drawn. "
        f"Draw it again by:\n{picture['command'].strip()}\nlook at it, and run "
        "python -m tests.test_drawn"
    )


def test_every_picture_is_listed():
    names = [picture["file"] for picture in PICTURES]
    assert len(names) == len({*names})
    found = [
        path.relative_to(ROOT).as_posix()
        for folder in ("docs", "results")
        for suffix in ("png", "jpg")
        for path in (ROOT / folder).rglob(f"*.{suffix}")
    ]
    assert sorted(names) == sorted(found)
    assert all(each.keys() & {"kept", "command"} for each in PICTURES)


def noted(text):
    """Returns the list of pictures with the hashes of today's code."""
    entries = text.split("\n\n")
    for picture in DRAWN:
        (k,) = (k for k, e in enumerate(entries) if f'"{picture["file"]}"' in e)
        lines = [x for x in entries[k].splitlines() if "drawn = " not in x]
        lines.append(f'drawn = "{hash_of(picture)}"')
        entries[k] = "\n".join(lines)
    return "\n\n".join(entries).rstrip() + "\n"


if __name__ == "__main__":
    FILE.write_text(noted(FILE.read_text("utf-8")), "utf-8")
