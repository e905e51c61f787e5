"""The README and the guides: code runs, commands parse, links lead somewhere.

The code blocks of a page run in their order in one namespace, in an empty
folder. What a page takes for granted (images, a finished run, a server) is made
by the fixture of that page, and by nothing else.
"""

import contextlib
import importlib
import inspect
import os
import pkgutil
import re
import shlex
import shutil
import sys
import urllib.request
from pathlib import Path

import grpc
import keras
import pytest
import tensorflow as tf

from export.run import FORMATS
from markdown_table import markdown
from tests import hub, rem_by_data, serving
from tests.examples.test_kanji import symbols
from tests.networks import draw_weights, tiny_capsnet
from tests.pictures import KINDS, write_shapes
from tfcaps import export, rem
from tfcaps.routing import execution
from training.configs import Config
from training.datasets import figures
from training.folder import RunFolder
from training.tables import NOTHING

ROOT = Path(__file__).parents[1]
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text("utf-8")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
}
MKDOCS = (ROOT / "mkdocs.yml").read_text("utf-8")
HOW_TO = MKDOCS[MKDOCS.index("How-to") : MKDOCS.index("Explanation:")]
HOW_TO = [f"docs/{page}" for page in re.findall(r": (\S+\.md)$", HOW_TO, re.M)]
# Where the guide says that the server is.
SERVER = "http://localhost:8501"
GRPC_SERVER = "localhost:8500"

# Their code trains or exports; the start page remains.
SLOW = ["README.md", "docs/api/viz.md", "docs/research/kanji.md"]
SLOW += [
    f"docs/guides/{name}.md"
    for name in (
        *("data", "devices", "extend", "layers", "measure", "named_parts"),
        *("parse_trees", "photos", "pretrained", "prune", "runtimes", "serve"),
        *("train_rem", "trees"),
    )
]

_PYTHON = ("python", "py")
_SHELLS = ("", "sh", "bash", "shell", "console")
_OUTPUT = re.compile(
    r"^```python\n(?P<code>.*?)^```\n\n```text\n(?P<shown>.*?)^```$",
    re.M | re.S,
)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
# How far a shown number may be off, as trainings differ between processors.
TOLERANCE = {"rel": 0.05, "abs": 0.05}
# Of a training on couplings, and of the codes of its trees.
TOLERANCES = {"docs/guides/train_rem.md": {"rel": 0.3, "abs": 15, "share": 1}}
_BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.M | re.S)
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_COMMAND = re.compile(
    r"\bpython3? (?:-m ((?:benchmarks|examples)[.\w]+)"
    r"|((?:training|export)/\w+)\.py)(.*)"
)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_NAME = re.compile(r"`((?:tfcaps|rem|viz)\.(?!json\b)[a-zA-Z_.]*\w)")
_FILE = re.compile(
    r"`((?:tfcaps|training|export|examples|tests|results|docs)/[\w./-]+)`"
)
_DIRECTIVE = re.compile(r"^::: ([\w.]+)\.(\w+)$", re.M)


def blocks(text):
    """Yields language, code and the number of lines before it."""
    for match in _BLOCK.finditer(text):
        yield match[1], match[2], text.count("\n", 0, match.start(2))


def python_of(text):
    return [(code, at) for name, code, at in blocks(text) if name in _PYTHON]


def outputs_of(text):
    """Returns what a page shows below its code, by code."""
    return {m["code"]: m["shown"] for m in _OUTPUT.finditer(text)}


def commands_of(text):
    """Returns module and arguments of the repository's commands."""
    shown = [code for name, code, _ in blocks(text) if name in _SHELLS]
    shown += _SPAN.findall(_BLOCK.sub("", text))
    lines = "\n".join(shown).replace("\\\n", " ").splitlines()
    found = (_COMMAND.search(line) for line in lines)
    return [
        ((match[1] or match[2]).replace("/", "."), match[3])
        for match in found
        if match
    ]


def anchors_of(text):
    """Returns the anchors of a page's headings, as MkDocs makes them."""
    headings = re.findall(r"^#+ (.+)$", _BLOCK.sub("", text), re.M)
    words = [re.sub(r"[^\w\s-]", "", heading).lower() for heading in headings]
    return {re.sub(r"[\s-]+", "-", heading.strip()) for heading in words}


# ------------------------------------------------- what pages take for granted


def _images(folder, rng, stack):
    """Images of 28x28 pixels and their classes."""
    given = {}
    for prefix in ("", "test_"):
        images = rng.uniform(size=(64, 28, 28, 1)).astype("float32")
        given[f"{prefix}images"] = images
        given[f"{prefix}labels"] = rng.integers(0, 10, len(images))
    return given


def _figures(folder, rng, stack):
    """A few figures, and no time."""
    (pixels, labels), _ = figures.draw(128, 5)
    images = (pixels / 255).astype("float32")
    return {"images": images, "labels": labels, "epochs": 2}


def _symbols(folder, rng, stack):
    """Images of symbols that share their parts, and their classes."""
    images, labels, _ = symbols()
    return {"images": images, "labels": labels}


def _finished_run(folder, rng, stack):
    """`runs/digits-rem`, as `training/run.py --rem` leaves it."""
    model = draw_weights(tiny_capsnet(10), 0, class_caps=9.0)
    images = rng.uniform(size=(64, 8, 8, 1)).astype("float32")
    report = rem.evaluate(model, (images, rng.integers(0, 10, len(images))))
    run = RunFolder(folder / "runs" / "digits-rem", Config(rem=True))
    run.create()
    run.save_data("digits", [str(j) for j in range(10)])
    names = run.config.model_names
    run.save_reports({n: report for n in names}, {n: {} for n in names})
    return {}


def serve_digits(folder, rng, stack):
    """A server of `served/digits/1`, found at the guide's addresses."""
    served = folder / "served"
    export.save(tiny_capsnet(10), served / "digits")
    url = stack.enter_context(serving.serve_rest(served))
    grpc_address = stack.enter_context(serving.serve_grpc(served))
    ask, channel = urllib.request.Request, grpc.insecure_channel

    def request(address, *args, **kwargs):
        assert address.startswith(SERVER)
        return ask(address.replace(SERVER, url), *args, **kwargs)

    def insecure_channel(address):
        assert address == GRPC_SERVER
        return channel(grpc_address)

    patch = stack.enter_context(pytest.MonkeyPatch.context())
    patch.setattr(urllib.request, "Request", request)
    patch.setattr(grpc, "insecure_channel", insecure_channel)
    return {"url": url}


def _photos(folder, rng, stack):
    """`photos`, with a folder for each class."""
    write_shapes(folder / "photos", dict.fromkeys(KINDS, 10))
    return {}


def _images_and_hub(folder, rng, stack):
    """Images, and a folder in the place of the Hugging Face Hub."""
    patch = stack.enter_context(pytest.MonkeyPatch.context())
    hub.install(folder / "hub", patch)
    return _images(folder, rng, stack)


def _other_formats(folder, rng, stack):
    """`served/digits/1` in all formats but SavedModel."""
    others = [name for name in FORMATS if name != "savedmodel"]
    for name in others:
        for module in FORMATS[name].split():
            pytest.importorskip(module, reason=f"{name} needs {module}")
    export.save(tiny_capsnet(10), folder / "served" / "digits", formats=others)
    return {}


def _kept_runs(folder, rng, stack):
    """Finished runs of one's own, as the page keeps them."""
    own = folder / "results" / "mine"
    own.mkdir(parents=True)
    shutil.copy(ROOT / "results" / "data_sets" / "runs.jsonl", own)
    return {}


GIVEN = {
    "docs/guides/paper.md": _kept_runs,
    "docs/api/viz.md": _figures,
    "docs/research/kanji.md": _symbols,
    "docs/guides/named_parts.md": _figures,
    "docs/guides/photos.md": _photos,
    "docs/guides/pretrained.md": _images_and_hub,
    "docs/guides/runtimes.md": _other_formats,
    "docs/guides/serve.md": serve_digits,
    "docs/guides/trees.md": _finished_run,
}


# ----------------------------------------------------------------------- tests


def agrees(printed, shown, tolerance=TOLERANCE):
    """The same words, and numbers within the tolerance.

    Numbers to 1 are shares, and at most `share` apart where that is given.
    """
    assert _NUMBER.sub("#", printed).split() == _NUMBER.sub("#", shown).split()
    pairs = zip(*map(_NUMBER.findall, (printed, shown)), strict=True)
    limits = dict(tolerance)
    share = limits.pop("share", limits["abs"])
    for new, old in ((float(a), float(b)) for a, b in pairs):
        at_most = {"abs": share} if max(new, old) <= 1 else {}
        assert new == pytest.approx(old, **limits | at_most)


@pytest.fixture
def quick_and_alone(monkeypatch, two_replicas):
    """Leaves out what takes long, and what would outlive the page."""
    # XLA takes seconds to compile what here runs once.
    monkeypatch.setattr(execution, "MANY_VOTES", 2**40)
    # A page that makes a strategy gets the one of all tests.
    monkeypatch.setattr(tf.distribute, "MirroredStrategy", lambda: two_replicas)
    policy = keras.config.dtype_policy()
    yield
    keras.config.set_dtype_policy(policy)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if page in SLOW else ())
        for page, text in PAGES.items()
        if python_of(text)
    ],
)
def test_code_runs(page, tmp_path, monkeypatch, rng, quick_and_alone, capsys):
    monkeypatch.chdir(tmp_path)
    given = GIVEN.get(page, lambda *_: {})
    with contextlib.ExitStack() as stack:
        names = given(tmp_path, rng, stack)
        namespace = {"__name__": "__main__", **names}
        shown = outputs_of(PAGES[page])
        tolerance = TOLERANCES.get(page, TOLERANCE)
        for code, line in python_of(PAGES[page]):
            capsys.readouterr()
            # So that a traceback names the line of the page.
            exec(compile("\n" * line + code, page, "exec"), namespace)
            if code in shown:
                agrees(capsys.readouterr().out, shown[code], tolerance)


def test_commands_parse():
    for text in PAGES.values():
        for module, arguments in commands_of(text):
            parser = importlib.import_module(module).make_parser()
            try:
                parser.parse_args(shlex.split(arguments, comments=True))
            except SystemExit as stopped:
                assert not stopped.code, f"{module} refuses {arguments}"


def test_links_lead_somewhere():
    for page, text in PAGES.items():
        for link in _LINK.findall(text):
            link, _, anchor = link.partition("#")
            if not link.startswith(("http://", "https://")):
                path = (
                    (ROOT / page).parent / link if link else ROOT / page
                ).resolve()
                assert path.exists(), (page, link)
                target = path.relative_to(ROOT).as_posix()
                if anchor and target in PAGES:
                    assert anchor in anchors_of(PAGES[target]), (page, anchor)


def test_names_and_files_exist():
    for page, text in PAGES.items():
        for name in _NAME.findall(text):
            name = name if name.startswith("tfcaps.") else f"tfcaps.{name}"
            assert pkgutil.resolve_name(name), page
        for file in () if "/research/" in page else _FILE.findall(text):
            assert (ROOT / file).exists(), (page, file)


def test_navigation_has_every_page():
    pages = set(re.findall(r": (\S+\.md)$", MKDOCS, re.M))
    assert {f"docs/{page}" for page in pages} == PAGES.keys() - {"README.md"}
    assert GIVEN.keys() <= PAGES.keys()


@pytest.mark.parametrize(
    "name",
    ["export", "layers", "losses", "models", "parts", "rem", "routing", "viz"],
)
def test_every_public_name_is_documented_where_it_is_defined(name):
    part = importlib.import_module(f"tfcaps.{name}")
    documented = []
    for module, member in _DIRECTIVE.findall(PAGES[f"docs/api/{name}.md"]):
        value = getattr(importlib.import_module(module), member)
        # mkdocstrings reads files: a name that is imported is not in them.
        assert value.__module__ == module
        documented.append(value)
    public = getattr(part, "__all__", None) or [
        member
        for member, value in vars(part).items()
        if not member.startswith("_")
        and not inspect.ismodule(value)
        and getattr(value, "__module__", "").startswith(part.__name__)
    ]
    assert len({*documented}) == len(documented)
    # Two names of one thing, such as FcCaps, need one entry. Types of results
    # are documented too, and not among the public names.
    assert {getattr(part, member) for member in public} <= {*documented}


def test_guides_are_short():
    assert len(PAGES["README.md"].splitlines()) <= 140
    guides = [t for page, t in PAGES.items() if page.startswith("docs/guides/")]
    assert sum(len(text.split()) for text in guides) <= 15_000
    assert len(HOW_TO) >= 10
    for page in HOW_TO:  # without what is printed
        text = re.sub(r"(?ms)^```text\n.*?^```$", "", PAGES[page])
        if page in GENERATED:  # and without the table that is made
            text = re.sub(r"(?m)^\|.*\n", "", text)
        assert len(text.split()) <= 600, page
        first = r"\|" if page in GENERATED else "```"
        assert re.match(rf"# .+\n\n(.+\n){{0,2}}\n?{first}", PAGES[page]), page


def test_a_release_is_told_in_80_lines():
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    newest = text.split("\n## ")[1]
    assert len(newest.splitlines()) <= 80


def test_readme_links_a_term_to_the_glossary_where_it_is_first_used():
    text, linked = _BLOCK.sub("", PAGES["README.md"]), 0
    for terms in re.findall(r"\*\*([^*]+)\.\*\*", PAGES["docs/glossary.md"]):
        for term in re.split(", | and ", terms):
            used = re.search(rf"\b{term.rstrip('s')}s?\b", text, re.I)
            if used:
                link = r"[^.[]*\[?[^\]]*\]\(docs/glossary\.md#"
                assert re.match(link, text[used.end() :]), term
                linked += 1
    assert linked >= 10


def test_tables_of_results_fit_a_screen():
    pages = [*(ROOT / "results").glob("*/*.md")]
    pages += (ROOT / "docs" / "research").glob("*.md")
    for page in pages:
        for row in re.findall(r"^\|.*\|$", page.read_text("utf-8"), re.M):
            assert re.sub(r"\\\||`[^`]*`", "", row).count("|") <= 9, (page, row)
    first = PAGES["docs/research/results.md"]
    first = first[first.index("\n| ") :].partition("\n| -")[0]
    assert "accuracy, %" in first and "entropy" in first


def test_commits_stand_in_research_notes_alone():
    cards = (ROOT / "tfcaps/models/pretrained").glob("*.md")
    pages = {p.name: p.read_text("utf-8") for p in (*ROOT.glob("*.md"), *cards)}
    for page, text in (PAGES | pages).items():
        if not page.startswith("docs/research/"):
            assert not re.search(r"\bcommit [0-9a-f]{7,}", text), page


def test_research_notes_say_when_and_how_to_repeat():
    for page, text in PAGES.items():
        if page.startswith("docs/research/") and not page.endswith("index.md"):
            note = text[: text.index("\n\n", text.index("\n\n") + 2)]
            assert re.search(r"\b20\d\d\b.*(Repeat|Kept)", note, re.S), page


def overview():
    """Returns the page of all layers, routings, losses, callbacks, networks."""
    lines = ["# All layers, losses and networks", ""]
    lines += ["Made from the docstrings by `python -m tests.test_docs`.", ""]
    for part in (
        *("layers", "routing", "losses", "parts", "callbacks", "models"),
    ):
        module = importlib.import_module(f"tfcaps.{part}")
        page = f"[{part}]({part}.md)"
        lines += [f"| `tfcaps.{part}`, see {page} | |", "|---|---|"]
        for name, value in sorted(vars(module).items()):
            local = getattr(value, "__module__", "").startswith(module.__name__)
            if part == "routing":  # their tools are no routings
                local = local and name.endswith("Routing") and name != "Routing"
            if local and not inspect.ismodule(value) and name[0] != "_":
                doc = inspect.getdoc(value)
                lines.append(f"| `{name}` | {doc.splitlines()[0]} |")
        lines.append("")
    return "\n".join(lines)


def paper():
    """Returns the guide to the paper, with what is published beside ours."""
    text = (ROOT / "results/paper_recipe/table.md").read_text("utf-8")
    rows = {}
    for line in re.findall(r"^\|(.*)\|$", text, re.M):
        name, *cells = (cell.strip() for cell in line.split("|"))
        rows.setdefault(name, []).extend(cells)
    heads, _, *names = rows
    columns = [
        rows[heads].index(x)
        for x in ("accuracy, %", "entropy by place, bits", "sparsity, %")
    ]
    lines = [["published, and ours: +Q → +REM"]]
    for head in ("accuracy, %", "entropy, bits", "pruned, %"):
        lines[0] += [head, "ours"]
    lines[0].append("seeds")
    for pair in zip(names[::2], names[1::2], strict=True):
        lines.append([pair[0].removesuffix(", +Q")])
        for k in columns:
            which = pair if k != columns[2] else pair[1:]  # +Q is not pruned
            published, ours = (
                " → ".join(rows[name][at].partition(" (")[0] for name in which)
                for at in (k + 1, k)
            )
            lines[-1] += [published, "not run" if NOTHING in ours else ours]
        done = rows[pair[1]][rows[heads].index("seeds done")]
        lines[-1].append(done.partition(" ")[0])
    page = PAGES["docs/guides/paper.md"]
    first = re.search(r"(^\|.*\n)+", page, re.M)[0]
    return page.replace(first, f"{markdown(lines)}\n")


GENERATED = {
    "docs/api/overview.md": overview,
    "docs/api/rem_by_data.md": rem_by_data.page,
    "docs/guides/paper.md": paper,
}


@pytest.mark.parametrize("page", GENERATED)
def test_a_page_is_what_the_code_says(page):
    assert PAGES[page] == GENERATED[page]()


if __name__ == "__main__":
    for page in sys.argv[1:]:  # what it draws lies beside it then
        os.chdir(ROOT / Path(page).parent)
        namespace = {"__name__": "__main__"}
        for code, _ in python_of(PAGES[page]):
            exec(code, namespace)
    for name, made in () if sys.argv[1:] else GENERATED.items():
        (ROOT / name).write_text(made(), "utf-8")
