"""Settings of a run: how the network is trained."""

import dataclasses

from training.configs.setting import setting

TRAINING = "training"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """How long, how fast and on what the network is trained."""

    epochs: int = setting(
        8, "passes over the images", low=1, group=TRAINING, metavar="N"
    )
    rem_epochs: int | None = setting(
        None,
        "the same of REM (default: as many)",
        low=1,
        group=TRAINING,
        metavar="N",
        rem=True,
    )
    trials: int = setting(
        1,
        "starts of the baseline, of which the one with the lowest training "
        "loss after the first two epochs is trained on",
        low=1,
        high=100,
        group=TRAINING,
        metavar="N",
    )
    trial_epochs: int = setting(
        2, "epochs after which starts are compared", low=1
    )
    rounds: int = setting(
        1,
        "most rounds of so many epochs that the baseline is trained for, "
        "while validation images gain by them (default: 3 for folders of "
        "pictures without --epochs, or 1)",
        low=1,
        high=100,
        group=TRAINING,
        metavar="N",
    )
    batch_size: int = setting(
        128,
        "images in a step, over all replicas",
        low=1,
        group=TRAINING,
        metavar="N",
    )
    learning_rate: float = setting(
        2e-3,
        "of Adam at the start",
        low=0.0,
        high=1e3,
        group=TRAINING,
        metavar="RATE",
    )
    learning_rate_decay: float | None = setting(
        None,
        "the learning rate's factor from epoch to epoch; without it the rate "
        "falls to 0 as a cosine",
        low=0.0,
        high=1.0,
    )
    patience: int | None = setting(
        None,
        "epochs without a lower validation loss after which a training ends. "
        "The baseline is then that of the lowest validation loss, REM that of "
        "the last epoch, as in the paper",
        low=1,
    )
    stop_accuracy: float | None = setting(
        None,
        "validation accuracy at which a training ends, though not before its "
        "schedule of pruning",
        low=0.0,
        high=1.0,
    )
    sharpness_start: float | None = setting(
        None,
        "sharpness of the routing in the first epoch, from which it grows by "
        "the same factor each epoch to that of the network, at 60 % of the "
        "training; of networks whose sharpness is scheduled",
        low=1e-3,
        high=1e6,
    )
    hard_margin_from: int | None = setting(
        None,
        "first epoch, counted from 0, with the harder margins of "
        "`tfcaps.losses.HardenMargin`",
        low=0,
    )
    seed: int = setting(
        0,
        "seed of weights, order and augmentation",
        low=0,
        high=2**32 - 1,
        group=TRAINING,
        metavar="N",
    )
    strategy: str = setting(
        "none",
        "mirrored trains on all GPUs of this machine; data-parallel on all "
        "devices, on the JAX backend, see training/devices.py",
        choices=("none", "mirrored", "data-parallel"),
        group=TRAINING,
    )
    dtype_policy: str = setting(
        "float32",
        "mixed_bfloat16 trains faster on GPUs, and on CPUs that compute in "
        "it; the trained model is float32 in any case",
        # Not float16: its gradients would have to be scaled.
        choices=("float32", "mixed_bfloat16"),
        group=TRAINING,
    )
    deterministic: bool = setting(
        False,
        "the same numbers bit for bit in every run, also in one that was "
        "stopped and resumed; may be slower",
        group=TRAINING,
    )
