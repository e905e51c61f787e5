"""Measures, draws, exports and tells what a run has trained."""

import contextlib
import dataclasses
import io
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from cli import UserError, progress
from export import run as export_command
from tfcaps import rem
from tfcaps.rem.evaluation.faithfulness import SHIFTED, tree_stability
from tfcaps.rem.evaluation.levels import CURVE
from tfcaps.rem.evaluation.named_parts import part_stability
from training import features, summary
from training.batches import Batches, measured_at_once
from training.configs import LOWEST, Config
from training.datasets import Data
from training.folder import RunFolder
from training.images import Array, Split
from training.tables import TITLES

Reports = dict[str, rem.Report]
# Test images that are looked at for known parts.
_LOOKED_AT = 2000
_NOISY = 500  # of these are looked at under noise
_ASKED = 100  # whose pixels are replaced; half of them, where that takes long
_ADVICE = (
    "What to try: more --epochs, another --learning-rate, --model or --resize; "
    "and look whether the labels can be told from the images."
)
# Pictures that a network of a data set can be asked about.
_EXAMPLES = {"figures": "docs/guides/figure.png"}


@dataclasses.dataclass(frozen=True)
class Results:
    """What a run has trained and measured, by model."""

    models: Mapping[str, keras.Model]
    reports: Reports  # on the test images
    tests: Mapping[str, Mapping[str, Any]]  # what was measured besides

    @property
    def sentences(self) -> list[str]:
        """All that is not in `reports`, in words."""

        def bits(values: Mapping[str, Any]) -> str:
            types = values.get("type_entropy_bits")
            by_type = "" if types is None else f" by place, {types:.2f} by type"
            return f"{values['entropy_bits']:.2f} bits{by_type}"

        return [
            f"{TITLES[name]}, {test} images: {values['accuracy']:.2%} right, "
            f"{values['accuracy_quantized']:.2%} quantised, {bits(values)}."
            for name, tests in self.tests.items()
            for test, values in tests.items()
        ]


def check_learnt(rows: Sequence[Mapping[str, Any]]) -> None:
    """Ends a run whose baseline has learnt nothing, before REM is trained."""
    if rows and rows[-1].get("learnt") is False:
        raise UserError(
            f"{rows[-1]['test_accuracy_quantized']:.1%} of the test images are "
            "right, and always naming the most frequent class would be right "
            f"for {rows[-1]['majority_share']:.1%}: the baseline has learnt "
            f"nothing, so REM is not trained. {_ADVICE} To go on all the same, "
            "add --force."
        )


# ----------------------------------------------------------------- the measures


def measure(
    config: Config,
    data: Data,
    models: Mapping[str, keras.Model],
    kept: dict[str, Array] | None = None,
    folder: RunFolder | None = None,
) -> tuple[Reports, dict[str, dict[str, Any]]]:
    """Measures each model on the test images, and on the other test sets.

    What looks at images many times takes the maps of a frozen backbone that are
    `kept`, as `features.cache_features` has them, if there are any. What the
    `folder` of the run has is not measured again.
    """
    reports: Reports = {}
    tests: dict[str, dict[str, Any]] = {}
    if folder is not None:
        for name in models:
            if known := folder.read_report(name):
                reports[name], tests[name] = known
    levels = config.fixed_levels
    if config.levels == LOWEST and len(reports) < len(models):
        levels = lowest_levels(config, data, models)
    for name, model in models.items():
        if name in reports:
            continue
        measured = {}
        for test, split in {"test": data.test, **data.others}.items():
            told = f"{TITLES[name]}: parse trees of the {test} images"
            print(f"\n{told}", flush=True)
            batches = Batches(*split, measured_at_once(model))
            curve = CURVE if test == "test" else ()
            evaluator = rem.Evaluator(
                model, levels, mode=config.mode, curve=curve
            )
            measured[test] = evaluator.run(batches, verbose=progress() % 2)
        head, seen = model, data
        if kept and data.masks is None:  # noise is of images
            cached = features.cache_features(model, data, config, kept)
            head, seen = cached.head, cached.data
        named = measure_parts(head, seen)
        used = faithfulness(name, head, seen.test)
        if head is not model:  # a shift by a cell is none by a pixel
            images, *_ = Batches(*data.test, SHIFTED, seed=0)[0]
            few = measured_at_once(model)
            trees = rem.trees(model, images, couplings=False, batch_size=few)
            stability = tree_stability(
                model, images, trees.in_tree, batch_size=few
            )
            used = dataclasses.replace(used, stability=stability)
        is_last = name == [*models][-1]
        # Children have places; through a backbone it takes minutes.
        if named is not None and (head is model or is_last):
            pixels = in_pixels(name, model, data.test)
            used = dataclasses.replace(used, pixels=pixels)
        reports[name] = dataclasses.replace(
            measured.pop("test"),
            faithfulness=used,
            named_parts=named,
        )
        if named is not None:
            print(f"\n{summary.wrapped(str(named))}", flush=True)
        tests[name] = {test: one.to_dict() for test, one in measured.items()}
        if folder is not None:
            folder.save_report(name, reports[name], tests[name])
    return reports, tests


def lowest_levels(
    config: Config, data: Data, models: Mapping[str, keras.Model]
) -> tuple[int, ...]:
    """Returns the lowest levels at which no model becomes less accurate.

    The accuracy is that on the validation images. Models get the same levels:
    with fewer of them any network has fewer trees.
    """
    batch_size = min(map(measured_at_once, models.values()))
    print("\nthe lowest levels at which the accuracy holds", flush=True)
    chosen = {
        TITLES[name]: rem.lowest_levels(
            model,
            Batches(*data.validation, batch_size),
            mode=config.mode,
            verbose=progress() % 2,
        )
        for name, model in models.items()
    }
    levels = tuple(map(max, zip(*chosen.values(), strict=True)))
    told = "; ".join(f"{title} {each}" for title, each in chosen.items())
    print(f"levels    {levels} ({told})", flush=True)
    return levels


def faithfulness(
    name: str, model: keras.Model, split: Split
) -> rem.Faithfulness:
    """Measures whether the model uses its trees, on 2,000 images at most."""
    print(f"\n{TITLES[name]}: what it does without its trees", flush=True)
    # Drawn, as images may come class by class.
    batches = Batches(*split, measured_at_once(model), seed=0)
    used = rem.faithfulness(model, batches, verbose=progress() % 2)
    print(summary.wrapped(used.verdict), flush=True)
    return used


def in_pixels(
    name: str, model: keras.Model, split: Split
) -> rem.PixelFaithfulness:
    """Measures whether the trees of the model are true of the pixels."""
    print(f"\n{TITLES[name]}: what it does without pixels", flush=True)
    samples = _ASKED
    if features.backbone_of(model) is not None:  # each image takes long
        samples = samples // 2
    asked = rem.pixel_faithfulness(
        model,
        Batches(*split, samples, seed=0),
        samples=samples,
        ceiling=samples // 5,
        verbose=progress() % 2,
    )
    print(summary.wrapped(asked.verdict), flush=True)
    return asked


def measure_parts(model: keras.Model, data: Data) -> rem.NamedParts | None:
    """Measures whether the trees of a model name known parts.

    Trees are those of the first 2,000 test images at most, with couplings as
    they are. Without masks, or parts in them, the types alone are measured, and
    nothing if the children have no positions or there is no image.
    """
    images = data.test.images[:_LOOKED_AT]
    if not len(images):
        return None
    few = measured_at_once(model)
    trees = rem.trees(model, images, couplings=False, batch_size=few)
    if not trees.has_places:
        return None
    masks = None if data.masks is None else data.masks[:_LOOKED_AT]
    if masks is None or not masks.parts.any():
        return rem.named_parts(trees)
    there: Any = masks.parts.any(axis=(1, 2, 3))
    trees, images, masks = trees[there], images[there], masks[there]
    known = rem.PartMasks(
        masks.parts if masks.centres is None else masks.centres,
        masks.loose if masks.loose_centres is None else masks.loose_centres,
        masks.kinds,
        masks.loose_kinds,
        masks.kind_names or None,
        # Of boxes the whole, of other parts the middle.
        reach=None if masks.centres is None and masks.kind_names else 2.5,
    )
    named = rem.named_parts(trees, known)
    some = slice(_NOISY)
    stability = part_stability(
        model, images[some], trees[some], known[some], batch_size=few
    )
    return dataclasses.replace(named, stability=stability)


# ------------------------------------------------------- the report, the export


def write_report(
    folder: RunFolder,
    data: Data,
    measured: Results,
    decoded: keras.Model | None = None,
) -> Path:
    """Draws `figures/<name>.png` and writes `report.html`; returns its path."""
    from tfcaps import viz  # it needs matplotlib
    from training import figures

    folder.figures.mkdir(exist_ok=True)
    config, models, reports = folder.config, measured.models, measured.reports
    last = list(reports.values())[-1]
    first = figures.named_trees(models, folder, data)
    others = figures.of_dictionaries(folder, data, reports)
    others |= figures.of_models(models, data, reports)
    if not first:
        first["tree_fields"] = others.pop("tree_fields")
    if decoded is not None:
        others |= figures.of_decoder(decoded, data)
    drawn, more = (
        [
            (drawing.save(folder.figures / name), heading, caption)
            for name, (drawing, heading, caption) in some.drawings.items()
        ]
        for some in (first, others)
    )
    head, *rows = summary.cells(reports)
    text = (folder.path / "environment.json").read_text("utf-8")
    settings = {**dataclasses.asdict(config), **json.loads(text)}
    page = folder.path / "report.html"
    viz.write_report(
        page,
        viz.Section(
            f"tfcaps: {config.model} on {data.name}",
            sentences=summary.sentences(last),
            figures=drawn,
            table=(head, rows),
            note=summary.note(reports),
        ),
        [
            viz.Section(
                "All measures",
                sentences=[(text, False) for text in measured.sentences],
                texts={
                    TITLES[name]: "\n\n".join(
                        str(part) for part in (one, one.named_parts) if part
                    )
                    for name, one in reports.items()
                },
            ),
            viz.Section(
                "All figures",
                figures=more,
                sentences=[(text, False) for text in others.left_out],
            ),
            viz.Section(
                "Settings",
                table=(
                    ("setting", "value"),
                    [(name, str(value)) for name, value in settings.items()],
                ),
            ),
        ],
    )
    return page


def export(folder: RunFolder, name: str) -> str | None:
    """Exports the network `name` unless that is done; returns why it failed.

    The run is of use without an export.
    """
    served = folder.served / name / "1"
    if not served.exists():
        print("\nexporting, and checking what is exported", flush=True)
        try:
            _export(folder.path, folder.served)
        except (UserError, OSError) as error:
            return str(error)
    print(f"\nmodel for TensorFlow Serving: {served}")
    return None


def _export(run: Path, to: Path) -> None:
    """Exports what the run wrote, as the export command does.

    TensorFlow writes the SavedModel; on another backend it needs a process of
    its own.
    """
    flags = ["--run", str(run), "--to", str(to), "--version", "1"]
    if keras.backend.backend() != "tensorflow":
        command = [sys.executable, export_command.__file__, *flags]
        done = subprocess.run(command, stdout=subprocess.DEVNULL)
        if done.returncode:
            raise UserError(f"{run} could not be exported, see above.")
        return
    options = export_command.make_parser().parse_args(flags)
    export_command.check(options)
    with contextlib.redirect_stdout(io.StringIO()):
        export_command.export(options)


def tell(folder: RunFolder, measured: Results, *, has_report: bool) -> None:
    """Prints the sentence, the table, where the report is, and what to try.

    Without a report, verdicts and sentences are printed too.
    """
    paragraphs, reports = [summary.text(measured.reports)], measured.reports
    if any(found.learnt is False for found in reports.values()):
        paragraphs.append(summary.wrapped(_ADVICE))
    where = f"report: {folder.path / 'report.html'}"
    if not has_report:
        verdicts = [f"{TITLES[n]}: {one.verdict}" for n, one in reports.items()]
        paragraphs += map(summary.wrapped, [*verdicts, *measured.sentences])
        where = f"files of the run: {folder.path}"
    picture = _EXAMPLES.get(folder.config.dataset, "your-picture.png")
    command = f"python training/explain.py --run {folder.path} {picture}"
    last = f"{where}\ntry next: {command}"
    print("", *paragraphs, last, sep="\n\n")
