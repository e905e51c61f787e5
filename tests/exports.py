"""Models to export, and broken copies of what was exported."""

import json
import shutil

import keras
import numpy as np

from tests.compaction import with_dead_units
from tests.networks import tiny_capsnet
from tfcaps.export.versions import MANIFEST, write_manifest


def pruned_capsnet(**changes):
    """Returns a tiny network with dead units, the same every time."""
    keras.utils.set_random_seed(0)
    model = tiny_capsnet(**changes)
    return with_dead_units(model, np.random.default_rng(0))


def copied(folder, to):
    """Returns a copy of an exported folder, to be broken."""
    return shutil.copytree(folder, to / "broken")


def signed_again(folder):
    """Writes the manifest anew, as if the broken files had been exported."""
    about = json.loads((folder / MANIFEST).read_text("utf-8"))
    write_manifest(folder, about)
    return folder
