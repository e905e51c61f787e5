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
from tfcaps.rem.evaluation.evaluate import costs
from tfcaps.rem.evaluation.levels import CURVE
from tfcaps.rem.evaluation.named_parts import part_stability
from training import features, summary
from training.batches import Batches, measured_at_once
from training.configs import LOWEST, Config
from training.datasets import Data
from training.folder import RunFolder
from training.images import Array
from training.sample import Sample
from training.tables import TITLES

Models = Mapping[str, keras.Model]
_NOISY = 500  # test images that are looked at under noise
_ASKED = 100  # whose pixels are replaced; half of them, where that takes long
_ADVICE = (
    "What to try: more --epochs, another --learning-rate, --model or --resize; "
    "and look whether the labels can be told from the images."
)
# Pictures that a network of a data set can be asked about.
_EXAMPLES = {"figures": "docs/guides/figure.png"}


@dataclasses.dataclass(frozen=True)
class Results:
    """What was measured of the models of a run, by model."""

    reports: Mapping[str, rem.Report]  # on the test images
    tests: Mapping[str, Mapping[str, Any]]  # measures on other test sets
    sample: Sample

    @property
    def sentences(self) -> list[str]:
        """What was measured on other test sets, in words."""

        def bits(values: Mapping[str, Any]) -> str:
            types = values.get("type_entropy_bits")
            by_type = "" if types is None else f" by place, {types:.2f} by type"
            return f"{values['entropy_bits']:.2f} bits{by_type}"

        return [
            f"{TITLES[name]}, {test} images: accuracy {values['accuracy']:.2%},"
            f" {values['accuracy_quantized']:.2%} quantised, {bits(values)}."
            for name, tests in self.tests.items()
            for test, values in tests.items()
        ]


def check_learnt(rows: Sequence[Mapping[str, Any]]) -> None:
    """Ends a run whose baseline has learnt nothing, before REM is trained."""
    if rows and rows[-1].get("learnt") is False:
        raise UserError(
            "the accuracy on the test images is "
            f"{rows[-1]['test_accuracy_quantized']:.1%}, and that of always "
            "answering the most frequent class "
            f"{rows[-1]['majority_share']:.1%}: the baseline has learnt "
            f"nothing, so REM is not trained. {_ADVICE} To go on all the same, "
            "add --force."
        )


# ----------------------------------------------------------------- the measures


def measure(
    config: Config,
    data: Data,
    models: Models,
    cache: dict[str, Array] | None = None,
    folder: RunFolder | None = None,
) -> Results:
    """Measures each model on the test images, and on the other test sets.

    Repeated measures use the features of a frozen backbone in the `cache`, see
    `features.cache_features`. What the `folder` has is not measured again.
    """
    reports: dict[str, rem.Report] = {}
    tests: dict[str, dict[str, Any]] = {}
    for name in models:
        if folder is not None and (known := folder.read_report(name)):
            reports[name], tests[name] = known
    levels = config.fixed_levels
    if config.levels == LOWEST and len(reports) < len(models):
        levels = lowest_levels(config, data, models)
    sample = Sample(data, config, cache)
    for name, model in models.items():
        if name in reports:
            continue
        of_tests = {}
        head, seen = sample.behind(model)
        for test, split in {"test": seen, **data.others}.items():
            _tell(name, f"parse trees of the {test} images")
            network, curve = (head, CURVE) if split is seen else (model, ())
            evaluator = rem.Evaluator(
                network, levels, mode=config.mode, curve=curve
            )
            batches = Batches(*split, measured_at_once(network))
            report = evaluator.run(batches, verbose=progress() % 2)
            of_tests[test] = dataclasses.replace(report, **costs(model))
        named = measure_parts(model, sample)
        used = faithfulness(name, model, sample)
        if named is not None:
            # Children have places; through a backbone it takes minutes.
            if head is model or name == [*models][-1]:
                pixels = in_pixels(name, model, sample)
                used = dataclasses.replace(used, pixels=pixels)
            print(f"\n{summary.wrapped(str(named))}", flush=True)
        reports[name] = dataclasses.replace(
            of_tests.pop("test"), faithfulness=used, named_parts=named
        )
        tests[name] = {test: one.to_dict() for test, one in of_tests.items()}
        if folder is not None and len(reports) < len(models):
            folder.save_reports(reports, tests, is_all=False)
    return Results(reports, tests, sample)


def _tell(name: str, what: str) -> None:
    print(f"\n{TITLES[name]}: {what}", flush=True)


def lowest_levels(
    config: Config, data: Data, models: Models
) -> tuple[int, ...]:
    """Returns the lowest levels at which no model becomes less accurate.

    The accuracy is that on the validation images. Models get the same levels:
    with fewer of them any network has fewer trees.
    """
    batch_size = min(map(measured_at_once, models.values()))
    print("\nthe lowest levels at which the accuracy holds", flush=True)
    each = [
        rem.lowest_levels(
            model,
            Batches(*data.validation, batch_size),
            mode=config.mode,
            verbose=progress() % 2,
        )
        for model in models.values()
    ]
    levels = tuple(map(max, zip(*each, strict=True)))
    pairs = zip(models, each, strict=True)
    text = "; ".join(f"{TITLES[name]} {own}" for name, own in pairs)
    print(f"levels    {levels} ({text})", flush=True)
    return levels


def faithfulness(
    name: str, model: keras.Model, sample: Sample
) -> rem.Faithfulness:
    """Measures whether the model uses its trees."""
    _tell(name, "what it does without its trees")
    head, _ = sample.behind(model)
    of_maps = head is not model
    used = rem.faithfulness(
        head,
        sample.batches(model),
        trees=sample.trees(model),
        shifts=0 if of_maps else 256,
        verbose=progress() % 2,
    )
    if of_maps:
        stability = sample.stability(model)
        used = dataclasses.replace(used, stability=stability)
    print(summary.wrapped(used.verdict), flush=True)
    return used


def in_pixels(
    name: str, model: keras.Model, sample: Sample
) -> rem.PixelFaithfulness:
    """Measures whether the trees of the model are true of the pixels."""
    _tell(name, "what it does without pixels")
    samples, layer = _ASKED, features.backbone_of(model)
    if layer is not None:  # each image takes long
        samples //= 5 if layer.calls_a_sample > 1 else 2
    asked = rem.pixel_faithfulness(
        model,
        sample.images[:samples],
        trees=sample.trees(model)[:samples],
        samples=samples,
        ceiling=samples // 5,
        verbose=progress() % 2,
    )
    print(summary.wrapped(asked.verdict), flush=True)
    return asked


def measure_parts(model: keras.Model, sample: Sample) -> rem.NamedParts | None:
    """Measures whether the trees of a model name known parts.

    Where parts are not known, the types alone are measured, and nothing if the
    children have no places.
    """
    trees, masks = sample.trees(model), sample.masks
    if not trees.has_places:
        return None
    if masks is None:
        decoder = getattr(model, "decoder", None)
        if decoder is not None:
            images = sample.images[:]
            masks = rem.estimated_parts(trees, images, decoder.size)
        return rem.named_parts(trees, masks)
    some = slice(_NOISY)
    stability = part_stability(
        model,
        sample.images[some],
        trees[some],
        masks[some],
        batch_size=measured_at_once(model),
    )
    return dataclasses.replace(
        rem.named_parts(trees, masks), stability=stability
    )


# ------------------------------------------------------- the report, the export


def write_report(
    folder: RunFolder,
    models: Models,
    results: Results,
    name: str,
    decoded: keras.Model | None = None,
) -> Path:
    """Draws `figures/<name>.png` and writes `report.html`; returns its path.

    The data have a name. What is drawn of one model is of the last.
    """
    from tfcaps import viz  # it needs matplotlib
    from training import figures

    folder.figures.mkdir(exist_ok=True)
    config, reports, sample = folder.config, results.reports, results.sample
    last, model = folder.main, models[folder.main]
    first = figures.named_trees(model, folder, sample)
    others = figures.of_measures(folder, reports, sample.class_names)
    trees = figures.right_and_wrong(last, model, sample)
    (others if first else first).append(trees)
    if maps := figures.saliency(models, reports, sample):
        others.append(maps)
    if decoded is not None:
        others.append(figures.reconstructions(decoded, sample))
    head, *rows = summary.cells(reports)
    text = (folder.path / "environment.json").read_text("utf-8")
    settings = {**dataclasses.asdict(config), **json.loads(text)}
    page = folder.path / "report.html"
    start = viz.Section(
        f"tfcaps: {config.model} on {name}",
        sentences=summary.sentences(reports[last]),
        figures=figures.save(first, folder.figures),
        table=(head, rows),
        note=summary.note(reports),
    )
    said = (*summary.of_fit(model), *results.sentences)
    texts = {
        TITLES[k]: "\n\n".join(str(x) for x in (one, one.named_parts) if x)
        for k, one in reports.items()
    }
    used = [(k, str(x)) for k, x in settings.items() if config.uses(k)]
    folded = [
        viz.Section("All measures", [(x, False) for x in said], texts=texts),
        viz.Section(
            "All figures", figures=figures.save(others, folder.figures)
        ),
        viz.Section("Settings", table=(("setting", "value"), used)),
    ]
    warning = summary.is_warning(reports[last])
    picture = _picture(config)
    todo = summary.steps(page, folder.path, picture, warning=warning)
    steps = [viz.Step(*step) for step in todo]
    viz.write_report(page, start, folded, steps=steps, words=summary.words())
    return page


def _picture(config: Config) -> str:
    """Returns a picture that the network of a run can be asked about."""
    return _EXAMPLES.get(config.dataset, "your-picture.png")


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


def tell(folder: RunFolder, results: Results, *, has_report: bool) -> None:
    """Prints the sentence, the table, where the report is, and what to try.

    Without a report, verdicts and sentences are printed too.
    """
    paragraphs, reports = [summary.text(results.reports)], results.reports
    more = [_ADVICE for one in reports.values() if one.learnt is False][:1]
    where = f"report: {folder.path / 'report.html'}"
    if not has_report:
        more += [
            f"{TITLES[name]}: {one.verdict}" for name, one in reports.items()
        ]
        more += results.sentences
        where = f"files of the run: {folder.path}"
    paragraphs += map(summary.wrapped, more)
    picture = _picture(folder.config)
    command = f"python training/explain.py --run {folder.path} {picture}"
    guides = f"docs/guides/report.md; the words: {summary.GLOSSARY}"
    where += f"\nhow to read it: {guides}\ntry next: {command}"
    print("", *paragraphs, where, sep="\n\n")
