"""What a run says at its end, and whether it has learnt anything."""

import dataclasses

import keras
import numpy as np
import pytest

from cli import UserError
from markdown_table import markdown
from tests.refusals import refusals
from tests.training.test_run import command, metrics, refused
from tfcaps.rem import (
    CouplingDictionary,
    Faithfulness,
    NamedParts,
    PixelFaithfulness,
    Report,
)
from tfcaps.rem.evaluation.saliency_checks import SaliencyChecks
from training import results, summary

NONE, SOME, ALL = ({"zero": x, "mean": x} for x in (0.0, 0.5, 1.0))
CONTROLS = ("answer_changes", "shorter", "necessity")
USED = Faithfulness(
    answer_changes={"zero": 0.892, "mean": 0.892},
    answer_changes_chance=0.9,
    shorter=ALL,
    necessity=ALL,
    **{
        f"{name}_{which}": NONE
        for name in CONTROLS
        for which in ("random", "active")
    },
    sufficiency=ALL,
    sufficiency_random=SOME,
    sufficiency_longest=SOME,
    size=0.1,
    empty_trees=0.0,
    class_share=0.5,
    stability=None,
    samples=100,
)
_FILLS = ("blur", "grey", "other")
_ALIKE = {
    name: dict.fromkeys(_FILLS, 0.25)
    for name in (
        *("prediction", "prediction_answers", "local_truth_random"),
        *("completeness", "completeness_random", "completeness_active"),
        *("change", "change_random", "change_active"),
    )
}
PIXELS = PixelFaithfulness(
    local_truth={"blur": 0.39, "grey": 0.42, "other": 0.16},
    completeness_best=0.9, change_best=0.9, window=0.35, area=0.2, leaves=300,
    samples=100, **_ALIKE,
)  # fmt: skip
KINDS = ((50, 0), (0, 50))
NAMED = NamedParts(
    leaves=2.0, types=2, types_used=2, top_type=0, top_type_share=0.5,
    slot_bits=0.25, found_once=0.997, information=1.0, table=KINDS,
    kind_names=("bar", "disc"), names=("bar", "disc"),
)  # fmt: skip


def report_of(**changes):
    """Returns a report of a network with two routed layers."""
    measures = {
        "levels": 11, "mode": "midtread",
        "levels_per_layer": {"hidden_caps": 5, "class_caps": 11},
        "accuracy": 0.9, "accuracy_quantized": 0.9,
        "nonuniform_share": 0.5, "strong_share": 0.3, "whole_share": 0.1,
        "t_score": 0.2, "zero_layers": [], "sparsity": 0.8,
        "sparsity_paper": 0.7, "nonzero_parameters": 1, "total_parameters": 5,
        "dictionary": CouplingDictionary(2), "majority_share": 0.5,
    }  # fmt: skip
    return Report(**{**measures, **changes})


@pytest.fixture
def report():
    trees = CouplingDictionary(2)
    trees.update(np.full((100, 3), [10, 0, 0]), np.arange(100) % 2)
    return report_of(
        accuracy=1.0, accuracy_quantized=1.0, nonuniform_share=1.0,
        whole_share=0.0, t_score=0.9, sparsity=0.7, dictionary=trees,
        nonzero_parameters=30,
        faithfulness=USED, named_parts=NAMED,
    )  # fmt: skip


def changed(report, **values):
    """Returns a report with other values, also of its parts."""
    parts = {
        name: values.pop(name)
        for name in ("faithfulness", "named_parts")
        if isinstance(values.get(name), dict)
    }
    values |= {
        name: dataclasses.replace(getattr(report, name), **new)
        for name, new in parts.items()
    }
    return dataclasses.replace(report, **values)


RIGHT = "The accuracy on new images is 100.0 %"
NAMES = f"{RIGHT}, and the trees say why: 99.7 % of the parts are in them, "
NAMES += "each once"
CHANGES = "without them the answer changes for 89.2 % of the images"
CHANGES += " (with them at their mean 89.2 %, by chance 90.0 %)"
USES = f"{RIGHT}, and the network uses its trees: {CHANGES}"
NOT_WHY = f"{RIGHT}, but its trees do not say why: "


def used(share=0.892, shorter=1.0, **changes):
    of_both = {
        "answer_changes": {"zero": share, "mean": share},
        "shorter": {"zero": shorter, "mean": shorter},
    }
    return {"faithfulness": {**of_both, **changes}}


def parts(**changes):
    return {"named_parts": changes}


# Changes of the report, and what is said then.
SENTENCES = """
dict()
    {NAMES}, and {CHANGES}.
parts(information=0.09, top_type_share=1.0)
    {USES}, but they do not name parts: the type of a leaf says too little about
    the part under it (NMI 0.09, below 0.80); 100.0 % of their leaves are of
    type 0.
parts(found_once=None, information=None)
    {USES}; whether they name parts is not known without masks.
dict(named_parts=None)
    {USES}; they are of capsules without places.
used(pixels=PIXELS)
    {USES}, but a leaf is not made by what is under it.
dict(faithfulness=None)
    {RIGHT}; whether the network uses its trees was not measured.
used(0.01, answer_changes_chance=0.02)
    {RIGHT}; whether the network uses its trees cannot be told, as nearly all
    images have the same answer.
dict(nonuniform_share=0.0)
    {NOT_WHY}its couplings are all but equal.
dict(whole_share=0.9)
    {NOT_WHY}nearly every capsule is in every tree.
used(0.1, 0.2)
    {NOT_WHY}without them 90.0 % of the images keep their answer.
used(0.1, 0.97)
    {RIGHT}, but its trees are not needed: without them 90.0 % of the images
    keep their answer, if less surely, as what is left is enough.
used(0.0, empty_trees=0.97)
    {NOT_WHY}97.0 % of them have no part at all.
used(answer_changes_active=dict(zero=0.9, mean=1.0))
    {NOT_WHY}as many other active children matter as much.
dict(accuracy=0.5, accuracy_quantized=0.5)
    The accuracy on new images is 50.0 %, and that of always answering the most
    frequent class 50.0 %: the network has learnt nothing.
"""


@refusals(SENTENCES, used=used, parts=parts, PIXELS=PIXELS)
def test_a_sentence_says_whether_trees_say_why(report, call, said):
    found = changed(report, **call())
    told = said.format_map(globals())
    assert summary.sentence(found) == told
    is_warning = ", but it" in told[:60] or "learnt nothing" in told
    assert summary.is_warning(found) == is_warning


def test_leaves_and_maps_that_tell_nothing_are_called_so(report):
    of_one = {"pixels": PIXELS, "saliency": SaliencyChecks(0.83, 0.77)}
    found = changed(report, faithfulness=of_one)
    (_, first), *others = summary.sentences(found)
    assert not first and others == [
        (PIXELS.verdict, True),
        (of_one["saliency"].verdict, True),
    ]
    assert found.verdict.endswith(
        f"{PIXELS.verdict} {others[1][0]} {NAMED.verdict}"
    )
    assert len(summary.sentences(report)) == 1


# What baseline and REM are changed to, the head of the table, and the note.
BEFORE = {"sparsity": 0.0, "nonzero_parameters": 90}
TABLES = {
    "the size alone": (
        {**BEFORE, "accuracy": 0.991},
        ["weights", "pruned"],
        "REM changed the size and nothing else that is measured here, by a "
        "point or a tenth (in brackets without): accuracy 100.00 (99.10), "
        "found once 99.7 (99.7), NMI 1.00 (1.00), local 42.0 (42.0), answer "
        "changes 89.2 (89.2), shorter 100.0 (100.0), by place 0.00 (0.00). In",
    ),
    "a point": (
        {**BEFORE, "accuracy": 0.989},
        ["accuracy", "weights", "pruned"],
        "Alike with and without REM, by less than a point or a tenth: found",
    ),
    "answers": (
        {**BEFORE, **used(0.5)},
        ["answer changes", "weights", "pruned"],
        "Alike with and without REM, by less than a point or a tenth: accuracy",
    ),
    "what one has": (
        {**BEFORE, "named_parts": None},
        ["found once", "NMI", "weights", "pruned"],
        "Alike with and without REM, by less than a point or a tenth: accuracy",
    ),
}


@pytest.mark.parametrize("case", TABLES)
def test_the_table_has_what_models_differ_in(report, case):
    before, head, note = TABLES[case]
    report = changed(report, faithfulness={"pixels": PIXELS})
    both = {"baseline": changed(report, **before), "rem": report}
    assert summary.cells(both)[0] == ["model", *head]
    assert " ".join(summary.note(both).split()).startswith(note)


def test_the_table_has_both_shares_and_both_entropies(report):
    report = changed(report, faithfulness={"pixels": PIXELS})
    both = {"baseline": changed(report, sparsity=0.0), "rem": report}
    assert markdown(summary.cells({"rem": report})).split("\n")[0::2] == [
        "| model | accuracy | found once |  NMI | local |   answer changes "
        "| shorter | by place | weights | pruned |",
        "| REM   |   100.00 |       99.7 | 1.00 |  42.0 | 89.2 (90.0, 0.0) "
        "|   100.0 |     0.00 |      30 |   70.0 |",
    ]
    lines = summary.text(both).splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith("The accuracy on new images is 100.0 %")
    # Trees of two places, which are one of types.
    moved, types = CouplingDictionary(2), CouplingDictionary(2)
    moved.update(np.eye(2, dtype=int)[np.arange(8) % 2], np.arange(8) // 4)
    types.update(np.ones((8, 1), int), np.arange(8) // 4)
    bare = changed(
        report, faithfulness=None, named_parts=None, dictionary=moved,
        type_dictionary=types, grid=(1, 2, 1),
    )  # fmt: skip
    heads = ["model", "accuracy", "by place", "type", "weights", "pruned"]
    row = ["REM", "100.00", "1.00", "0.00", "30", "70.0"]
    assert summary.cells({"rem": bare}) == [heads, row]
    assert "NMI: " not in summary.note({"rem": bare})
    assert summary.cells({"baseline": report, "rem": bare})[2][3] == "–"
    for told in (str(bare), summary.note({"rem": bare})):
        assert "many where objects move" in " ".join(told.split())
    assert "many where objects" not in summary.note(both)
    printed = " ".join(str(bare).split())
    assert "trees by place 1.00 of" in printed
    assert "trees by type 0.00 of" in printed


def test_other_test_sets_are_told_with_both_entropies():
    known = {"accuracy": 0.5, "accuracy_quantized": 0.5, "entropy_bits": 7.0}
    tests = {"new": {**known, "type_entropy_bits": 0.5}, "old": known}
    told = results.Results({}, {"rem": tests}, None).sentences
    assert [sentence.partition("quantised, ")[2] for sentence in told] == [
        "7.00 bits by place, 0.50 by type.", "7.00 bits.",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("counts", "accuracy", "expected"),
    [
        # 0.5 + 2.33 * sqrt(0.25 / 100) = 0.6165
        ((50, 50), 0.61, False),
        ((50, 50), 0.62, True),
        # 0.9 + 2.33 * sqrt(0.09 / 100) = 0.9699
        ((10, 90), 0.96, False),
        ((10, 90), 0.98, True),
        ((10, 19), 0.0, None),  # too few
        ((0, 50), 1.0, None),  # one class
    ],
)
def test_accuracy_must_be_clearly_above_one_constant_answer(
    counts, accuracy, expected
):
    trees = CouplingDictionary(2)
    trees.update(np.zeros((sum(counts), 1), int), np.zeros(sum(counts), int))
    report = report_of(
        dictionary=trees,
        majority_share=max(counts) / sum(counts),
        accuracy_quantized=accuracy,
    )
    assert report.learnt is report.to_dict()["learnt"] is expected
    assert ("learnt nothing" in report.verdict) == (expected is False)
    assert ("The trees" in report.verdict) == (expected is not False)


def test_only_a_baseline_that_has_learnt_nothing_ends_a_run():
    row = {"majority_share": 0.5, "test_accuracy_quantized": 0.48}
    rows = [row | {"learnt": known} for known in (None, False)]
    # The last one counts, if it is of no older version.
    for others in ([], rows[:1], [row], [*rows, row | {"learnt": True}]):
        results.check_learnt(others)
    expected = r"48\.0%.* 50\.0%.*--epochs.*--force"
    with pytest.raises(UserError, match=expected):
        results.check_learnt(rows)


@pytest.mark.slow
def test_rem_is_not_trained_after_a_baseline_that_has_learnt_nothing(tmp_path):
    rng = np.random.default_rng(0)
    noise, labels = rng.random((2, 40, 8, 8), np.float32), np.arange(40) % 2
    arrays = {"x_train": noise[0], "x_test": noise[1]}
    np.savez(tmp_path / "noise.npz", y_train=labels, y_test=labels, **arrays)
    out = tmp_path / "run"
    flags = ("--rem", "--dataset", tmp_path / "noise.npz", "--epochs", 2)
    told = refused(*flags, "--bare", "--out", out)
    assert "the baseline has learnt nothing" in told
    assert {row["model"] for row in metrics(out)} == {"baseline"}
    assert metrics(out)[-1]["learnt"] is False
    keras.utils.clear_session()
    printed = command("--resume", "--out", out, "--bare", "--force")
    printed = " ".join(printed.split())
    assert "What to try: " in printed
    assert printed.count("and its trees mean nothing") == 2


def test_a_report_ends_with_steps_that_have_a_guide_and_with_words(tmp_path):
    page = tmp_path / "report.html"
    steps = summary.steps(page, tmp_path, "a.png", warning=True)
    assert len(steps) == 4
    assert all((tmp_path / guide).exists() for *_, guide in steps)
    assert [step[1] for step in summary.steps(page, tmp_path)] == [
        "Serve the network"
    ]
    words = summary.words()
    assert words["Margin"].startswith("The length of the predicted class")
    assert len(words) > 35 and not any("**" in each for each in words.values())
