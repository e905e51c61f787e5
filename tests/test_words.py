"""One word a thing: what CONTRIBUTING says is not said is not said."""

import re

import pytest

from tests.test_docs import PAGES, ROOT

_SECTION = (
    (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("## Words")[2]
)
_TABLE = re.findall(r"^\|.*\|(.*)\|$", _SECTION.partition("\n## ")[0], re.M)
BANNED = [word for cell in _TABLE for word in re.findall("`([^`]+)`", cell)]
# Where a word is explained, or is that of a file of results.
EXPLAINED = {
    "docs/glossary.md",
    "docs/guides/rem.md",
    "docs/guides/run_files.md",
    "docs/api/rem_by_data.md",
}
SHOWN = [
    *(page for page in PAGES if not page.startswith("docs/research/")),
    *("tfcaps/rem/evaluation/words.py", "training/summary.py"),
    *("training/results.py", "training/plan.py", "training/explain_job.py"),
]
SHOWN += [
    path.relative_to(ROOT).as_posix()
    for pattern in (
        *("docs/notebooks/*.ipynb", "tfcaps/viz/*.py"),
        "tfcaps/models/pretrained/*.md",
    )
    for path in sorted(ROOT.glob(pattern))
]


def told(text, is_code):
    """Returns what is said: strings of code, prose without its code."""
    if is_code:
        return " ".join(re.findall(r'"([^"\n]* [^"\n]*)"', text))
    return re.sub(r"`[^`\n]+`", "", text)


@pytest.mark.parametrize("name", SHOWN)
def test_a_word_that_has_another_name_is_not_used(name):
    text = told((ROOT / name).read_text("utf-8"), name.endswith(".py"))
    for word in () if name in EXPLAINED else BANNED:
        assert not re.search(word, " ".join(text.split())), word


def test_heads_of_results_too():
    pages = [*(ROOT / "results").glob("*/*.md")]
    pages += (ROOT / "docs" / "research").glob("*.md")
    for page in pages:
        for head in re.findall(
            r"^(\|.*\|)\n\| ?-", page.read_text("utf-8"), re.M
        ):
            for word in BANNED:
                assert not re.search(word, head), (page, head)


def test_what_is_looked_for_would_be_found():
    said = "97 % right, the trees are not trivial; it is less than half as long"
    assert sum(bool(re.search(word, said)) for word in BANNED) == 3
    assert len(BANNED) >= 8
