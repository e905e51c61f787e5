"""The flags of the main job."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tfcaps
from tfcaps.cli import Parser, number
from training import datasets, models
from training.configs.limits import CHOICES, RANGES

_EPILOG = """\
examples:
  training/run.py --rem                              figures, a few minutes
  training/run.py --rem --dataset photos/            a folder for each class
  training/run.py --rem --dataset mnist --dry-run    what would it do?
  training/run.py --resume --out runs/figures-rem    after it was stopped

Settings that are not given come from training/configs/.
"""

_Add = Callable[..., Any]


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(
        prog="training/run.py",
        description="Trains a capsule network and reports what its couplings "
        "do.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for title, add_to in (
        ("data", _add_data),
        ("network", _add_network),
        ("training", _add_training),
        ("routing entropy minimisation", _add_rem),
        ("the run", _add_run),
    ):
        add_to(parser.add_argument_group(title).add_argument)
    return parser


def _add_data(add: _Add) -> None:
    add(
        "--dataset",
        metavar="NAME",
        help="one of --list-datasets (default: figures), any name of "
        "TensorFlow Datasets, an .npz file, a folder of class folders, or a "
        ".csv file with the columns file and label",
    )
    add(
        "--list-datasets",
        action=_Print,
        lines=datasets.DESCRIPTIONS,
        help="print the data sets with their meaning, and end",
    )
    add("--data-dir", metavar="FOLDER", help="prepared TensorFlow Datasets")
    add(
        "--samples",
        type=_within("samples", int),
        metavar="N",
        help="use only so many training and test images",
    )
    add(
        "--validation",
        type=_within("validation", float),
        metavar="SHARE",
        help="share of the training images that is only for choosing, 0 to 0.5",
    )
    add(
        "--resize",
        type=_within("resize", int),
        metavar="PIXELS",
        help="rows and columns to which images are resized",
    )
    add(
        "--balanced",
        action=argparse.BooleanOptionalAction,
        help="repeat training images of rare classes, or not",
    )
    add(
        "--flip",
        action=argparse.BooleanOptionalAction,
        help="mirror half of the training images, or not, as where left and "
        "right tell classes apart",
    )
    add(
        "--recolour",
        type=_within("recolour", float),
        metavar="SHARE",
        help="exchange the channels of a share of the training images; 0 "
        "where colours tell classes apart",
    )
    add(
        "--skip-broken",
        action="store_true",
        help="leave out pictures that cannot be read or have two classes, and "
        "list them",
    )


def _add_network(add: _Add) -> None:
    add("--model", metavar="NAME", help="one of --list-models")
    add(
        "--list-models",
        action=_Print,
        lines={name: known.about for name, known in models.MODELS.items()},
        help="print the networks with their meaning, and end",
    )
    add(
        "--backbone",
        metavar="NAME",
        help="a network of keras.applications, such as MobileNetV3Small, or "
        "a .keras file without its top (in --data-dir or a path), on whose "
        "feature map --model parts_capsnet, one of its kind, or dr_capsnet "
        "then stands",
    )
    add(
        "--fine-tune",
        dest="fine_tune_epochs",
        type=_within("fine_tune_epochs", int),
        metavar="EPOCHS",
        help="further epochs in which the backbone is trained too",
    )
    add(
        "--routing",
        type=_routing,
        metavar="NAME",
        help="dynamic, em, regularized, scaled_distance, self_attention, "
        "uniform, or a number of iterations of dynamic routing (default: the "
        "model's own)",
    )
    add(
        "--dense-head",
        action=argparse.BooleanOptionalAction,
        help="train the network with a dense layer in the place of its "
        "capsules too, to compare with (default: for folders of pictures)",
    )
    add(
        "--decoder",
        choices=CHOICES["decoder"],
        help="reconstruct images too: trained with the capsules, or afterwards",
    )


def _add_training(add: _Add) -> None:
    add(
        "--recipe",
        choices=("paper",),
        help="train and prune as in the REM paper: up to 1,000 epochs, "
        "iterative pruning with decay, no coupling loss; other flags change it",
    )
    add(
        "--epochs",
        type=_within("epochs", int),
        metavar="N",
        help="passes over the images",
    )
    add(
        "--rounds",
        type=_within("rounds", int),
        metavar="N",
        help="most rounds of so many epochs that the baseline is trained for, "
        "while validation images gain by them (default: 3 for folders of "
        "pictures without --epochs, or 1)",
    )
    add(
        "--batch-size",
        type=_within("batch_size", int),
        metavar="N",
        help="images in a step",
    )
    add(
        "--learning-rate",
        type=_within("learning_rate", float),
        metavar="RATE",
        help="of Adam at the start",
    )
    add(
        "--seed",
        type=_within("seed", int),
        metavar="N",
        help="seed of weights, order and augmentation",
    )
    add(
        "--strategy",
        choices=CHOICES["strategy"],
        help="mirrored trains on all GPUs of this machine; data-parallel on "
        "all devices, on the JAX backend, see training/devices.py",
    )
    add(
        "--dtype-policy",
        choices=CHOICES["dtype_policy"],
        help="mixed_bfloat16 trains faster on GPUs, and on CPUs that compute "
        "in it; the trained model is float32 in any case",
    )
    add(
        "--deterministic",
        action="store_true",
        help="the same numbers bit for bit in every run, also in one that was "
        "stopped and resumed; may be slower",
    )


def _add_rem(add: _Add) -> None:
    add(
        "--rem",
        action="store_true",
        help="train a REM model beside the baseline",
    )
    add(
        "--no-baseline",
        dest="baseline",
        action="store_const",
        const=False,
        help="train the REM model alone",
    )
    add(
        "--warm-start",
        action=argparse.BooleanOptionalAction,
        help="begin REM with the weights of the trained baseline, or as that "
        "one began",
    )
    add(
        "--pruning",
        choices=CHOICES["pruning"],
        help="what is pruned when, see training/pruning.py",
    )
    add(
        "--final-sparsity",
        type=_within("final_sparsity", float),
        metavar="SHARE",
        help="weights pruned in the end, 0 to 0.999",
    )
    add(
        "--decay",
        type=_within("decay", float),
        metavar="RATE",
        help="rate of the paper's sensitivity-gated decay; 0 for none",
    )
    add(
        "--coupling-spread",
        type=_within("coupling_spread", float),
        metavar="WEIGHT",
        help="weight of the wish for the same couplings in all images of a "
        "class; 0 for none",
    )
    add(
        "--coupling-polarization",
        type=_within("coupling_polarization", float),
        metavar="WEIGHT",
        help="weight of the wish for couplings of 0 and 1; 0 for none",
    )
    add(
        "--coupling-crowding",
        type=_within("coupling_crowding", float),
        metavar="WEIGHT",
        help="weight of the wish for at most --coupling-share of the children "
        "in a class's tree; 0 for none",
    )
    add(
        "--coupling-share",
        type=_within("coupling_share", float),
        metavar="SHARE",
        help="share of the children that a class may have, 0 to 1",
    )
    add(
        "--coupling-types",
        action="store_true",
        help="compare the types of capsules in a tree, wherever they are",
    )
    add(
        "--counterfactual-necessity",
        type=_within("counterfactual_necessity", float),
        metavar="WEIGHT",
        help="weight of the wish that a class vanishes without its tree; 0 for "
        "none",
    )
    add(
        "--counterfactual-sufficiency",
        type=_within("counterfactual_sufficiency", float),
        metavar="WEIGHT",
        help="weight of the wish that the tree alone tells the class; 0 for "
        "none",
    )
    add(
        "--coupling-ramp",
        type=_within("coupling_ramp", float),
        metavar="SHARE",
        help="share of the training over which these weights grow from 0",
    )
    add(
        "--levels",
        type=_levels,
        metavar="N",
        help="levels of the couplings, 2 to 256; or several with commas, one "
        "for each routed layer",
    )


def _add_run(add: _Add) -> None:
    add(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="run folder, which must not exist (default: a new one in runs/)",
    )
    add(
        "--resume",
        action="store_true",
        help="go on with the run in --out, with its settings",
    )
    add(
        "--dry-run",
        action="store_true",
        help="print what the run would do and how long it may take, and end",
    )
    add(
        "--bare",
        action="store_true",
        help="train and measure, but draw and export nothing, search no "
        "levels, and train no decoder on frozen capsules",
    )
    add(
        "--force",
        action="store_true",
        help="train REM even if the baseline has learnt nothing",
    )
    add(
        "--tensorboard",
        action="store_true",
        help="also write logs to OUT/tensorboard (needs tfcaps[tensorboard])",
    )


class _Print(argparse.Action):
    """Prints names and what they mean, and ends the command."""

    def __init__(self, *args: Any, lines: dict[str, str], **kwargs: Any):
        super().__init__(*args, nargs=0, **kwargs)
        self.lines = lines

    def __call__(self, parser: Any, *args: Any) -> None:
        width = max(map(len, self.lines))
        for name, about in self.lines.items():
            print(f"{name:{width}}  {about}")
        parser.exit()


def _routing(text: str) -> str:
    try:
        tfcaps.routing.get(int(text) if text.isdigit() else text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def _within(name: str, kind: type) -> Callable[[str], Any]:
    """Returns what reads a flag within the limits of its setting."""
    low, high = RANGES[name]
    return lambda text: number(text, kind, low, high)


def _levels(text: str) -> int | tuple[int, ...]:
    level = _within("levels", int)
    levels = tuple(level(part) for part in text.split(","))
    return levels if levels[1:] else levels[0]
