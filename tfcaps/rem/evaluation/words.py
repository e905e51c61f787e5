"""The words of measures: sentences, and the rows of a table, of each result."""

from typing import Any

from tfcaps.rem.results import Row, percent

# Why entropy has two numbers.
BY_PLACE = (
    "Trees by place, the paper's key, are many where objects move, as the same "
    "tree is another key one place further; trees by type do not count places."
)
# What took the place of silenced children, and what becomes of images by a
# measure, or does not.
_IN_PLACE = {"zero": "", "mean": " (its children at their mean poses)"}
_CHANGES = {
    "answer_changes": ("change their answer", "keep their answer"),
    "necessity": (
        "change their answer or are shorter",
        "neither change their answer nor are shorter",
    ),
}
_FILLS = {"blur": "blurred", "grey": "grey", "other": "of another image"}


# ------------------------------------------------------------------ evaluate


def report_verdict(report: Any) -> str:
    """Says whether trees say anything, are used, and name parts.

    The trees of a network that has learnt nothing are not judged.
    """
    if report.learnt is False:
        return (
            f"The accuracy is {percent(report.accuracy_quantized)}, and that "
            "of always answering the most frequent class "
            f"{percent(report.majority_share)}: the network has learnt "
            "nothing, and its trees mean nothing."
        )
    used, reason = report.faithfulness, report.trivial_reason
    routed = (
        f"{percent(report.nonuniform_share)} of the codes differ from the "
        f"uniform coupling, T-score {report.t_score:.3f}"
    )
    whole = (
        f"{percent(report.whole_share)} of the samples couple every child "
        "with their class"
    )
    nothing = "and the entropy says nothing"
    why = {
        "zero": f"all couplings are rounded to 0, {report.levels} levels are "
        "too few",
        "uniform": f"{routed}, so that there is hardly any routing {nothing}",
        "whole": f"{whole}, so that they repeat the class {nothing}",
    }
    sentences = [f"The trees say more than their class: {routed}; {whole}."]
    if reason:
        sentences = [f"The trees are trivial: {why[reason]}."]
    if used is None and not reason:
        sentences.append("Whether the network uses them was not measured.")
    elif used is not None and (used.empty or not reason):
        sentences.append(used.verdict)
    elif used is not None:
        sentences.append(
            "To silence such trees tells nothing of the routing: "
            f"{without_trees(used)}."
        )
    others = [*(used.further if used else ()), report.named_parts]
    sentences += [one.verdict for one in others if one is not None]
    return " ".join(sentences)


def report_rows(report: Any) -> list[Row]:
    """Returns the rows of a `Report`."""
    trees, types = report.dictionary, report.type_entropy_bits
    never = int((trees.num_samples == 0).sum())

    def bits(value: float | None) -> str | None:
        ceiling = f"of at most {report.ceiling_bits:.2f} bits"
        return None if value is None else f"{value:.2f} {ceiling}"

    left, adds = report.t_score_voting, report.multiply_adds
    left = None if left == report.t_score else left
    by_place = ", trees by place" * (types is not None)
    rows: list[Row] = [
        ("accuracy", percent(report.accuracy, 2)),
        ("accuracy, quantised", percent(report.accuracy_quantized, 2)),
        ("most frequent class", percent(report.majority_share, 2)),
        (f"entropy{by_place}", bits(report.entropy_bits)),
        ("keys per class, median", f"{report.median_keys:g}"),
        ("entropy, trees by type", bits(types)),
        ("entropy, by offset", bits(report.offset_entropy_bits)),
        ("entropy, types in it", bits(report.slot_entropy_bits)),
        ("classes never predicted", f"{never} of {trees.num_classes}"),
        ("codes off uniform", percent(report.nonuniform_share)),
        ("children in a tree", percent(report.strong_share)),
        ("trees of every child", percent(report.whole_share)),
        ("T-score", f"{report.t_score:.3f}"),
        (
            f"T-score of the {report.voting_children} children left",
            _decimals(left, 3),
        ),
        ("sparsity", percent(report.sparsity)),
        (
            "parameters, non-zero",
            f"{report.nonzero_parameters:,} of {report.total_parameters:,}",
        ),
        ("multiply-adds", f"{adds:,}" if adds else None),
    ]
    if report.faithfulness is not None:
        rows += report.faithfulness.rows
    return rows


# -------------------------------------------------------------- faithfulness


def without_trees(used: Any) -> str:
    """Says how many answers change without trees, by chance, in controls."""
    others = ", ".join(
        f"without as many {control} {percent(of_others['zero'])}"
        for control, of_others in used.controls("answer_changes").items()
    )
    return (
        f"without its tree, the answer to "
        f"{percent(used.answer_changes['zero'])} of the images changes "
        f"({percent(used.answer_changes['mean'])} with its children at "
        f"their mean poses), by chance {percent(used.answer_changes_chance)}, "
        f"{others}"
    )


def faithfulness_verdict(used: Any) -> str:
    """Says whether the network uses its trees."""
    by_chance = percent(used.answer_changes_chance)
    if used.empty is None:
        return (
            "Whether the trees are used is not known: nearly all images have "
            "the same answer, and by chance it would change for "
            f"{by_chance} of them."
        )
    if used.doubt is None:
        return f"The trees are used: {without_trees(used)}."
    name, control = used.doubt
    measure, share, _ = used.judged[name]
    without = f"without its tree{_IN_PLACE[name]}"
    goes, stays = _CHANGES[measure]
    if control:
        others = percent(used.controls(measure)[control][name])
        return (
            f"The trees are empty: {without}, {percent(share)} of the images "
            f"{goes}, and without as many {control} {others}, so that it "
            "hardly matters which children are in a tree."
        )
    same = f"{without}, {percent(1.0 - share)} of the images {stays}"
    if name == "zero":
        same += f", by chance {percent(1.0 - used.answer_changes_chance)}"
    if used.is_redundant:
        return (
            f"The trees are not needed: {same}; the class of "
            f"{percent(used.shorter[name])} gets shorter, but what is left is "
            "enough for the same answer."
        )
    return f"The trees are empty: {same}."


def faithfulness_rows(used: Any) -> list[Row]:
    """Returns the rows of `Faithfulness`, and of what belongs to it."""
    rows: list[Row] = [("images measured", f"{used.samples:,}")]
    sufficient = {
        "random children": used.sufficiency_random,
        "the most active ones": used.sufficiency_longest,
    }
    by_chance = f", by chance {percent(used.answer_changes_chance)}"
    for title, measure, controls, more in (
        ("answer changes", "answer_changes", None, by_chance),
        ("shorter", "shorter", None, ""),
        ("sufficiency", "sufficiency", sufficient, ""),
    ):
        for name, share in getattr(used, measure).items():
            text = f"{percent(share)}{more}"
            for which, others in (controls or used.controls(measure)).items():
                text += f", of {which} {percent(others[name])}"
            rows.append((f"{title}, {name}", text))
    rows += [
        ("size of a tree", f"{percent(used.size)} of the children"),
        ("images without a tree", percent(used.empty_trees)),
        ("class share", f"{used.class_share:.3f}"),
        ("stability", _decimals(used.stability, 3) or "–"),
    ]
    return rows + [row for one in used.further for row in one.rows]


# --------------------------------------------------------------------- pixels


def pixels_verdict(asked: Any) -> str:
    """Says whether leaves are made by their windows, and what these do."""
    side = f"{percent(asked.window, 0)} of a side"
    first = (
        f"The leaves are made by their windows ({side}): at least "
        f"{percent(min(asked.local_truth.values()))} of them stay when all "
        "else is replaced."
    )
    if not asked.local:
        first = (
            f"The leaves are not made by their windows ({side}): "
            f"{_why_not_local(asked)}. So where a leaf is drawn does not tell "
            "what it is made by."
        )
    numbers = (
        f"The windows of a tree ({percent(asked.area, 0)} of an image) alone "
        f"keep {percent(asked.completeness['grey'])} of the answers (random "
        f"ones {percent(asked.completeness_random['grey'])}, the best found "
        f"{percent(asked.completeness_best)}); without them "
        f"{percent(asked.change['grey'])} change (random ones "
        f"{percent(asked.change_random['grey'])}, the best found "
        f"{percent(asked.change_best)})"
    )
    if not asked.tell:
        numbers += ", so that they tell no more than random windows"
    return f"{first} {numbers}."


def _why_not_local(asked: Any) -> str:
    if asked.not_local is None:
        return "no tree has any"
    fill, elsewhere = asked.not_local
    if elsewhere:
        return (
            f"{percent(asked.local_truth_random[fill])} of them stay when only "
            f"another window is left and all else is {_FILLS[fill]}"
        )
    return (
        f"when all outside of it is {_FILLS[fill]}, "
        f"{percent(asked.local_truth[fill])} of them stay"
    )


def pixels_rows(asked: Any) -> list[Row]:
    """Returns the rows of `PixelFaithfulness`."""
    rows: list[Row] = [("leaves asked of pixels", f"{asked.leaves:,}")]
    for title, measure in (
        ("leaves made by their window", "local_truth"),
        ("answers kept by windows alone", "completeness"),
        ("answers changed without windows", "change"),
    ):
        for fill, share in getattr(asked, measure).items():
            text = str(percent(share))
            for control in ("random", "active"):
                others = getattr(asked, f"{measure}_{control}", None)
                if others is not None and others[fill] is not None:
                    text += f", {control} {percent(others[fill])}"
            best = getattr(asked, f"{measure}_best", None)
            if fill == "grey" and best is not None:
                text += f", best {percent(best)}"
            rows.append((f"{title}, {fill}", text))
    for fill, value in asked.prediction.items():
        answers = percent(asked.prediction_answers[fill])
        text = f"rank correlation {value:.2f}, answers {answers}"
        rows.append((f"prediction, {fill}", text))
    return rows


# -------------------------------------------------------------- saliency maps


def saliency_verdict(checks: Any) -> str:
    """Says whether saliency maps explain anything."""
    numbers = (
        "their rank correlation with those of random weights is "
        f"{checks.randomization:.2f}, with those of other images "
        f"{checks.other_image:.2f}"
    )
    if checks.specific:
        return f"The saliency maps are of the image: {numbers}."
    return f"The saliency maps are no explanation: {numbers}."


def saliency_rows(checks: Any) -> list[Row]:
    """Returns the rows of `SaliencyChecks`."""
    return [
        ("maps like those of random weights", f"{checks.randomization:.2f}"),
        ("maps like those of other images", f"{checks.other_image:.2f}"),
    ]


# ----------------------------------------------------------------- true parts


def parts_verdict(named: Any) -> str:
    """Says whether trees name parts."""
    estimated = ", as far as the images alone show" * (named.clear is not None)
    if named.clear is False:
        return (
            "Whether the trees name parts is not known: without masks the "
            "images do not show clearly which parts and kinds there are."
        )
    if named.failures:
        why = "; ".join(_why_unnamed(named, each) for each in named.failures)
        return f"The trees do not name parts{estimated}: {why}."
    if named.named:
        return (
            f"The trees name parts{estimated}: "
            f"{percent(named.found_once)} of the parts "
            "have exactly one leaf, and its type says what is under it (NMI "
            f"{named.information:.2f})."
        )
    missing = "masks" if named.found_once is None else "kinds of the parts"
    return (
        f"Whether the trees name parts is not known without {missing}: their "
        f"leaves are of {named.types_used} of {named.types} types, "
        f"{percent(named.top_type_share)} of type {named.top_type}."
    )


def _why_unnamed(named: Any, failure: str) -> str:
    of_one = (
        f"{percent(named.top_type_share)} of their leaves are of type "
        f"{named.top_type}"
    )
    if failure == "information":
        return (
            "the type of a leaf says too little about the part under it (NMI "
            f"{named.information:.2f}, below {named.least:.2f}); {of_one}"
        )
    return {
        "no leaf": "they have no leaf",
        "one type": of_one,
        "one kind": "there are leaves on parts of one kind only",
        "found": f"{percent(named.found_once)} of the parts have exactly one "
        f"leaf, fewer than {percent(named.least)}",
    }[failure]


def parts_rows(named: Any) -> list[Row]:
    """Returns the rows of `NamedParts`."""
    return [
        ("leaves of a tree", f"{named.leaves:.1f}"),
        ("types of leaves", f"{named.types_used} of {named.types}"),
        ("most frequent type", percent(named.top_type_share)),
        ("sets of types in a class", f"{named.slot_bits:.2f} bits"),
        ("parts with exactly one leaf", percent(named.found_once)),
        ("leaves on the object's parts", percent(named.own)),
        ("leaves on loose parts", percent(named.loose)),
        ("trees of one leaf on each part", percent(named.perfect)),
        ("purity of types", percent(named.purity)),
        ("parts with their name", percent(named.parts_named)),
        ("labelled F1 of the tree", percent(named.labelled_f1)),
        ("hit parts stable under noise", percent(named.stability)),
        ("NMI of type and kind", _decimals(named.information, 2)),
        ("ARI of type and kind", _decimals(named.rand_index, 2)),
    ]


def parts_table(named: Any) -> list[str]:
    """Returns lines of how many leaves of a type lie on a kind."""
    rows = [("leaves of type", *(named.kind_names or ()))]
    rows += [(k, *row) for k, row in enumerate(named.table or ()) if any(row)]
    return [
        f"{first:>14}" + "".join(f"  {text:>8}" for text in rest)
        for first, *rest in rows
    ]


def keypoints_rows(found: Any) -> list[Row]:
    """Returns the rows of `Keypoints`."""
    return [
        ("keypoints", f"{found.points:,}"),
        ("keypoints with a type", percent(found.covered)),
        ("NMI of type and part", _decimals(found.information, 3)),
        ("ARI of type and part", _decimals(found.rand_index, 3)),
        ("consistent types", percent(found.consistency)),
        ("stable under noise", percent(found.stability)),
        ("error of keypoints by types", percent(found.regression_error)),
        ("leaves in the box", percent(found.in_box)),
        ("places in the box", percent(found.in_box_random)),
    ]


def _decimals(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f}"


# ------------------------------------------------------------------- answers


def margin_text(length: float, other: float) -> str:
    """Returns the margin of two lengths that are written with two digits."""
    return f"{round(length, 2) - round(other, 2):.2f}"


def length_meaning(blueprints: Any) -> str:
    """Says what the length of a class is, by whether there are blueprints."""
    what = "how much of a class was found, such as 0.33 for one of three parts"
    if blueprints is None:
        what = "how strongly the capsules of the image agree on a class"
    return (
        f"A length, from 0 to 1, says {what}. It is no probability: lengths do "
        "not sum to 1."
    )
