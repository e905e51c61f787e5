"""What a run prints at its end."""

from collections.abc import Iterable, Mapping

from tfcaps.rem import Report
from training import learnt, summary
from training.folder import RunFolder
from training.tables import TITLES

# Pictures that a network of a data set can be asked about.
_EXAMPLES = {"figures": "docs/guides/figure.png"}


def tell(
    folder: RunFolder,
    reports: Mapping[str, Report],
    sentences: Iterable[str],
    compared: float | None,
    *,
    num_images: int,
    has_report: bool,
) -> None:
    """Prints the sentence, the table, where the report is, and what to try.

    Args:
        folder: The run.
        reports: One for each model.
        sentences: What was measured besides, which the report says too.
        compared: Accuracy with a dense head, or `None`.
        num_images: Number of training images.
        has_report: Whether there is a report; without, verdicts and sentences
            are printed.
    """
    paragraphs = [summary.text(reports, compared)]
    for name, report in reports.items():
        if report.learnt is False:
            rows = folder.read_metrics(name)
            advice = learnt.advice(folder.config, num_images, rows, compared)
            paragraphs.append(summary.wrapped(f"{TITLES[name]}: {advice}"))
    if not has_report:
        told = [
            f"{TITLES[n]}: {report.verdict}" for n, report in reports.items()
        ]
        paragraphs += map(summary.wrapped, [*told, *sentences])
    picture = _EXAMPLES.get(folder.config.dataset, "your-picture.png")
    last = [
        f"report: {folder.path / 'report.html'}"
        if has_report
        else f"files of the run: {folder.path}",
        f"try next: python training/explain.py --run {folder.path} {picture}",
    ]
    print("", *paragraphs, "\n".join(last), sep="\n\n")
