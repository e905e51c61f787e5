"""Report on whether trees name parts, as a table and as JSON."""

import dataclasses
from typing import Any

from tfcaps.rem.results import Result, lines_of

# Trees name parts if both are at least so large: few leaves on few parts may
# have clear types, and many leaves on each part name none.
LEAST_FOUND = 0.8
LEAST_INFORMATION = 0.8
# A type of fewer leaves is not used.
USED_SHARE = 0.01
# Leaves are of one type if their most frequent one has a larger share: words
# for that beside a low NMI, and the share above which no part need be known.
_ONE_TYPE = ((0.999, "all"), (0.95, "nearly all"), (0.75, "mostly"))
ONE_TYPE = 0.95


@dataclasses.dataclass(frozen=True)
class NamedParts(Result):
    """The result of `tfcaps.rem.named_parts`.

    Leaves are the children in a tree. Measures from `found` on are `None` where
    parts are not known, and from `information` on where their kinds are not.

    Attributes:
        samples: How many images were used.
        empty_trees: Share of images whose tree has no leaf.
        leaves: Mean number of leaves of a tree.
        leaves_deviation: Its standard deviation over images.
        types: How many types of children there are.
        types_used: How many have more than 1 % of the leaves.
        type_bits: Entropy of the leaves' types in bits.
        type_evenness: That entropy over its highest value, log2 of `types`, in
            [0, 1].
        top_type: The most frequent type of the leaves, or `None` without any.
        top_type_share: Share of the leaves that are of it.
        slot_bits: Mean over predicted classes of the entropy in bits of
            `Trees.slots`, the set of types in a tree.
        distinct_trees: How many such sets there are.
        found: Share of the objects' parts with a leaf at most `reach` pixels
            from their centre.
        found_once: Share with exactly one.
        own: Share of the leaves on the object's own parts.
        loose: Share on loose parts, which belong to no object.
        nothing: Share on neither.
        perfect: Share of images with as many leaves as parts and exactly one on
            each.
        information: Normalised mutual information (NMI) of a leaf's type and
            the kind of the part under it, over leaves on parts, in [0, 1].
        rand_index: Adjusted Rand index (ARI) of the same.
        purity: Share of the leaves that lie on a part of the kind on which most
            leaves of their type lie. A leaf on nothing does not.
        consistency: Share of the types that show for which some kind is under
            the type's leaf, the one coupled most, in at least 80 % of the
            images that show it.
        table: How many leaves of each type lie on parts of each kind, `[types,
            kinds]`.
        kind_names: What the kinds are called.
        names: For each type the kind on which most of its leaves lie, or `None`
            if none does.
        reach: As given, in pixels.
        stability: What `part_stability` returned, or `None` where
            that was not measured.
    """

    samples: int
    empty_trees: float
    leaves: float
    leaves_deviation: float
    types: int
    types_used: int
    type_bits: float
    type_evenness: float
    top_type: int | None
    top_type_share: float
    slot_bits: float
    distinct_trees: int
    found: float | None = None
    found_once: float | None = None
    own: float | None = None
    loose: float | None = None
    nothing: float | None = None
    perfect: float | None = None
    information: float | None = None
    rand_index: float | None = None
    purity: float | None = None
    consistency: float | None = None
    table: tuple[tuple[int, ...], ...] | None = None
    kind_names: tuple[str, ...] | None = None
    names: tuple[str | None, ...] | None = None
    reach: float | None = None
    stability: float | None = None

    @property
    def named(self) -> bool | None:
        """Whether the trees name parts, or `None` where that is not known.

        They do if at least 80 % of the parts have exactly one leaf and the NMI
        is at least 0.8. Trees with more than 95 % of their leaves of one type
        name none, whatever parts there are.
        """
        if self._failures:
            return False
        if self.found_once is None or self.information is None:
            return None
        return True

    @property
    def _failures(self) -> list[str]:
        """Why the trees do not name parts, as far as that is known."""
        if self.top_type is None:
            return ["they have no leaf"]
        failures = []
        if self.information is None:
            if self.top_type_share > ONE_TYPE:
                failures.append(self._of_one_type())
        elif self.information < LEAST_INFORMATION:
            failures.append(self._of_one_type() or self._uninformative)
        elif self._num_kinds < 2:
            failures.append("there are leaves on parts of one kind only")
        if self.found_once is not None and self.found_once < LEAST_FOUND:
            failures.append(
                f"{_percent(self.found_once)} of the parts have exactly one "
                f"leaf, fewer than {_percent(LEAST_FOUND)}"
            )
        return failures

    @property
    def _uninformative(self) -> str:
        return (
            "the type of a leaf says too little about the part under it (NMI "
            f"{self.information:.2f}, below {LEAST_INFORMATION:.2f})"
        )

    def _of_one_type(self) -> str:
        """Returns that most leaves are of one type, nothing if they are not."""
        words = [
            word for share, word in _ONE_TYPE if self.top_type_share > share
        ]
        if not words:
            return ""
        known = self.information is not None
        nmi = f"NMI {self.information:.2f}, " if known else ""
        return (
            f"their leaves are {words[0]} of one type ({nmi}"
            f"{_percent(self.top_type_share)} of the leaves are of type "
            f"{self.top_type})"
        )

    @property
    def _num_kinds(self) -> int:
        """On parts of how many kinds there are leaves."""
        return sum(
            any(column) for column in zip(*self.table or (), strict=True)
        )

    @property
    def verdict(self) -> str:
        """One sentence on whether the trees name parts."""
        if self._failures:
            return f"The trees do not name parts: {'; '.join(self._failures)}."
        if self.named:
            return (
                f"The trees name parts: {_percent(self.found_once)} of the "
                "parts have exactly one leaf, and its type says what is under "
                f"it (NMI {self.information:.2f})."
            )
        missing = "masks" if self.found is None else "kinds of the parts"
        return (
            f"Whether the trees name parts is not known without {missing}: "
            f"their leaves are of {self.types_used} of {self.types} types, "
            f"{_percent(self.top_type_share)} of type {self.top_type}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns all measures, ready for JSON."""
        return {
            **super().to_dict(),
            "named": self.named,
            "verdict": self.verdict,
        }

    def rows(self) -> list[tuple[str, str]]:
        """Returns the names of measures, and what they are as text."""
        rows = [
            (
                "leaves of a tree",
                f"{self.leaves:.1f} ± {self.leaves_deviation:.1f}",
            ),
            (
                "types of leaves",
                f"{self.types_used} of {self.types}, {self.type_bits:.2f} bits",
            ),
            ("most frequent type", _percent(self.top_type_share)),
            (
                "sets of types",
                f"{self.distinct_trees}, {self.slot_bits:.2f} bits in a class",
            ),
        ]
        shares = [
            ("parts with a leaf", self.found),
            ("parts with exactly one leaf", self.found_once),
            ("leaves on the object's parts", self.own),
            ("leaves on loose parts", self.loose),
            ("leaves on nothing", self.nothing),
            ("trees of one leaf on each part", self.perfect),
            ("purity of types", self.purity),
            ("types that are consistent", self.consistency),
            ("hit parts stable under noise", self.stability),
        ]
        rows += [(name, _percent(n)) for name, n in shares if n is not None]
        if self.information is not None:
            rows += [
                ("NMI of type and kind", f"{self.information:.2f}"),
                ("ARI of type and kind", f"{self.rand_index:.2f}"),
            ]
        return rows

    def __str__(self) -> str:
        return "\n".join(
            [*lines_of(self.rows()), *self._counts(), "", self.verdict]
        )

    def _counts(self) -> list[str]:
        """Returns the table of types and kinds, of types that show."""
        if self.table is None or self.kind_names is None:
            return []
        widths = [max(len(name), 6) for name in self.kind_names]
        cells = [["leaves of type", *self.kind_names]] + [
            [str(number), *map(str, row)]
            for number, row in enumerate(self.table)
            if any(row)
        ]
        return [
            "",
            *(
                f"{first:>14}"
                + "".join(
                    f"  {text:>{width}}"
                    for text, width in zip(rest, widths, strict=True)
                )
                for first, *rest in cells
            ),
        ]


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"
