"""Table 10: Tiny ImageNet, DR-CapsNet on a frozen ResNet-18.

python experiments/run.py table_10 --data-dir FOLDER

FOLDER holds `tiny-imagenet-200/` and `resnet18.keras`, a ResNet-18 that was
trained on ImageNet, without its top, for 224x224 pixels. Keras has none, but
KerasHub has; this needs the internet, so it was tried without the download:

    backbone = keras_hub.models.ResNetBackbone.from_preset(
        "resnet_18_imagenet", image_shape=(224, 224, 3)
    )
    keras.Model(backbone.input, backbone.output).save("resnet18.keras")

Expected time: unmeasured on CPU and on GPU; the backbone sees 224x224 pixels.
Expected result: the published column.
"""

from experiments import paper
from experiments.experiment import Experiment
from experiments.published import TABLE_10

_DATASET, _NETWORK = "Tiny ImageNet", "DR-CapsNet"
COLUMNS = (paper.ACCURACY, paper.ENTROPY, paper.SPARSITY)


def get_experiment(recipe: str = "short") -> Experiment:
    """Returns the experiment of table 10."""
    published = {model: cells for (_, model), cells in TABLE_10.items()}
    sparsity = published["+REM"][2] or 0
    return Experiment(
        "Table 10: Tiny ImageNet",
        ("network", "model"),
        COLUMNS,
        tuple(
            paper.rows(
                (_NETWORK,),
                paper.run_name(_DATASET, _NETWORK),
                paper.config(recipe, _DATASET, _NETWORK, sparsity),
                COLUMNS,
                published,
            )
        ),
        paper.SEEDS,
        (
            paper.RECIPE_NOTES[recipe],
            "The paper's K=129 are 129 edges, that is 128 levels "
            '(`mode="midrise"`), fine enough for couplings of 1/200.',
            "Images are turned at 64x64 and then resized; the paper resizes "
            "first.",
        ),
    )
