"""What REM measures of a model, as a table and as JSON."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from tfcaps.files import write_atomically
from tfcaps.rem.dictionary import CouplingDictionary

# Below either, couplings are uniform but for noise, and trees say nothing. Too
# strong a decay leaves 0.1 % of the codes off the uniform coupling.
TRIVIAL_SHARE = 0.01
TRIVIAL_T_SCORE = 0.01


@dataclasses.dataclass(frozen=True)
class Report:
    """The result of `tfcaps.rem.evaluate`.

    Entropy is never to be read alone: it cannot exceed the ceiling log2 of the
    samples, and it is 0 for a network that does not route at all.

    Attributes:
        levels: Levels of the couplings.
        accuracy: Share of right predictions, couplings as they are.
        accuracy_quantized: The same with quantised couplings.
        nonuniform_share: Share of the keys' codes that differ from the code of
            the uniform coupling 1/J.
        t_score: Mean T-score of the unquantised couplings, see
            `tfcaps.rem.t_score`.
        sparsity: Share of zeros among transformations and kernels.
        nonzero_parameters: Parameters that are not zero.
        total_parameters: All parameters.
        dictionary: The parse trees of each class.
    """

    levels: int
    accuracy: float
    accuracy_quantized: float
    nonuniform_share: float
    t_score: float
    sparsity: float
    nonzero_parameters: int
    total_parameters: int
    dictionary: CouplingDictionary = dataclasses.field(repr=False)

    @property
    def entropy_bits(self) -> float:
        """Mean over classes of the entropy in bits."""
        return float(np.mean(self.dictionary.entropy_bits))

    @property
    def ceiling_bits(self) -> float:
        """Mean over classes of the highest possible entropy in bits."""
        return float(np.mean(self.dictionary.ceiling_bits))

    @property
    def median_keys(self) -> float:
        """Median over classes of the number of distinct keys."""
        return float(np.median(self.dictionary.num_keys))

    @property
    def trivial(self) -> bool:
        """Whether the couplings are uniform but for noise."""
        return (
            self.nonuniform_share < TRIVIAL_SHARE
            or self.t_score < TRIVIAL_T_SCORE
        )

    @property
    def verdict(self) -> str:
        """One sentence on whether the trees mean anything."""
        measured = (
            f"{100 * self.nonuniform_share:.1f} % of the codes differ from the "
            f"uniform coupling, T-score {self.t_score:.3f}"
        )
        if self.trivial:
            return (
                f"The trees are trivial: {measured}, so that there is hardly "
                "any routing and the entropy says nothing."
            )
        return f"The trees are not trivial: {measured}."

    def to_dict(self) -> dict[str, Any]:
        """Returns everything but the keys themselves, ready for JSON."""
        measures = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name != "dictionary"
        }
        return {
            **measures,
            "entropy_bits": self.entropy_bits,
            "ceiling_bits": self.ceiling_bits,
            "median_keys": self.median_keys,
            "trivial": self.trivial,
            "verdict": self.verdict,
            "num_samples": int(self.dictionary.num_samples.sum()),
            "per_class": {
                "num_samples": self.dictionary.num_samples.tolist(),
                "num_keys": self.dictionary.num_keys.tolist(),
                "entropy_bits": self.dictionary.entropy_bits.tolist(),
                "ceiling_bits": self.dictionary.ceiling_bits.tolist(),
            },
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes `to_dict()` to a JSON file, which appears complete."""
        with write_atomically(Path(path), "w") as file:
            json.dump(self.to_dict(), file, indent=2)
            file.write("\n")

    def __str__(self) -> str:
        rows = [
            ("accuracy", f"{100 * self.accuracy:.2f} %"),
            ("accuracy, quantised", f"{100 * self.accuracy_quantized:.2f} %"),
            (
                "entropy",
                f"{self.entropy_bits:.2f} of at most "
                f"{self.ceiling_bits:.2f} bits",
            ),
            ("keys per class, median", f"{self.median_keys:g}"),
            ("codes off uniform", f"{100 * self.nonuniform_share:.1f} %"),
            ("T-score", f"{self.t_score:.3f}"),
            ("sparsity", f"{100 * self.sparsity:.1f} %"),
            (
                "parameters, non-zero",
                f"{self.nonzero_parameters:,} of {self.total_parameters:,}",
            ),
        ]
        width = max(len(name) for name, _ in rows)
        table = [f"{name:<{width}}  {value}" for name, value in rows]
        trees = self.dictionary
        table += ["", "class  samples  keys  entropy  ceiling (bits)"]
        table += [
            f"{j:>5}  {n:>7}  {keys:>4}  {bits:>7.2f}  {top:>7.2f}"
            for j, (n, keys, bits, top) in enumerate(
                zip(
                    trees.num_samples,
                    trees.num_keys,
                    trees.entropy_bits,
                    trees.ceiling_bits,
                    strict=True,
                )
            )
        ]
        return "\n".join([*table, "", self.verdict])
