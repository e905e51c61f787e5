"""A network of shared parts that finds its body plan from images and labels."""

import tempfile
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from tfcaps import graphs
from tfcaps.ops import Array, check_that, parts_of
from tfcaps.parts import body_plan
from tfcaps.parts.body_plan_caps import BodyPlanCaps, WindowParts

# Most photos that types and plans are estimated on.
_MOST = 2500
# A plan fits if parts are nearer to it than so much of their distance to the
# middle of the others: birds 0.4, cats and dogs 0.5, ten kinds of things 0.7.
_NEAR = 0.6
# Photos on which components are fitted.
_FEW = 400
# Components of the two maps of windows by which types are told.
_LOCAL = (96, 80)


@keras.saving.register_keras_serializable(package="tfcaps")
class BodyPlanModel(keras.Model):
    """A functional model of shared parts whose `fit` finds its body plan.

    It maps images to lengths of classes, as every network does. `fit(images,
    labels)` takes class labels only, and no gradient passes the backbone: its
    features of all images are computed once; types, plans and evidence are
    estimated on them, see `tfcaps.parts.body_plan`. The number of plans and the
    weight of the evidence's penalty are chosen on images that are held out.

    Args:
        inputs: The input of images.
        outputs: The lengths, as `tfcaps.models.body_plan_capsnet` makes them.
        name: String. Name of the model.
        **kwargs: Arguments of `keras.Model`.

    Attributes:
        report: What `fit` chose and measured on training images, a dict; empty
            before. `form` says in words whether body plans fit, and how many:
            `plans` is 0 if held-out images do not have their parts much nearer
            to where a plan has them than to the middle of the others.
    """

    # Copies with other outputs are plain, see `tfcaps.graphs`.
    trains_itself = True

    def __init__(
        self, inputs: Any, outputs: Any, name: str | None = None, **kwargs: Any
    ):
        super().__init__(inputs=inputs, outputs=outputs, name=name, **kwargs)
        self.report: dict[str, Any] = {}
        # XLA takes longer to compile a backbone than most take to use it.
        self.jit_compile = False
        for kind in (WindowParts, BodyPlanCaps):
            graphs.only_layer(self, kind)  # or an error

    def save(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Saves the model, as `keras.Model.save` does; not as `.h5`."""
        graphs.check_file(self, filepath)
        super().save(filepath, *args, **kwargs)

    def fit(
        self,
        x: Any,
        y: Any,
        batch_size: int = 4,
        verbose: Any = "auto",
        validation_split: float = 0.2,
        seed: int = 0,
        cache: str | Path | None = None,
    ) -> keras.callbacks.History:
        """Estimates types, plans and evidence.

        Args:
            x: Images `[n, h, w, c]`, as the network takes them.
            y: Their class indices, `[n]`.
            batch_size: Int. Images whose features are computed at once.
                Defaults to `4`.
            verbose: As in Keras, the progress of the features. Defaults to
                `"auto"`.
            validation_split: Float in (0, 1). Share of the images, drawn at
                random, that is held out to choose the plans on. Defaults to
                `0.2`.
            seed: Int. Of all that is random. Defaults to `0`.
            cache: Folder in which features stay for another call with the same
                images and backbone. Defaults to `None`, a temporary one.

        Returns:
            A `History` of one epoch, with `accuracy`, `val_accuracy` and
            `seconds`.

        Raises:
            ValueError: If there is not one label for each image, or too few.
        """
        labels = np.asarray(() if y is None else y).astype(int).reshape(-1)
        classes = self.output_shape[1]
        if len(labels) != len(x) or len(labels) < 10:
            raise ValueError(
                "There must be one label for each image, and ten of them. "
                f"Received: {len(x)} images and {len(labels)} labels."
            )
        if labels.min() < 0 or labels.max() >= classes:
            raise ValueError(
                f"Labels must be class indices below {classes}. Received: "
                f"{labels.min()} to {labels.max()}."
            )
        held_out = {"validation_split": validation_split}
        check_that(0 < validation_split < 1, "be in (0, 1)", **held_out)
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            maps = self.maps(x, cache or folder, batch_size, bool(verbose))
            self._estimate(maps, labels, validation_split, seed)
        history = keras.callbacks.History()
        history.set_model(self)
        history.on_train_begin()
        names = ("accuracy", "val_accuracy")
        logs = {name: self.report[name] for name in names}
        logs["seconds"] = time.perf_counter() - start
        history.on_epoch_end(0, logs)
        self.history = history
        return history

    def maps(
        self,
        images: Any,
        folder: str | Path,
        batch_size: int = 4,
        verbose: int = 0,
    ) -> dict[str, Array]:
        """Returns the backbone's features of images, computed once.

        Args:
            images: Images, as in `fit`.
            folder: Where they are kept, in float16.
            batch_size: Int. Images at once. Defaults to `4`.
            verbose: 0 or 1. Show progress. Defaults to `0`.

        Returns:
            `local`, what windows show, `[n, h, w, d]`, and `deep` and `middle`,
            the maps of whole images.

        Raises:
            ValueError: If the folder has those of another number of images, or
                of another shape.
        """
        folder, size = Path(folder), batch_size
        layer = next(x for x in self.layers if hasattr(x, "whole"))
        front, _ = graphs.split(self, layer)
        whole = layer.whole()
        outputs = {
            "local": front.outputs[0],
            **dict(zip(("deep", "middle"), whole.outputs, strict=True)),
        }
        paths = {name: folder / f"{name}.npy" for name in outputs}
        count = len(images)
        mark = folder / "images"  # how many of them are done
        done = int(mark.read_text()) if mark.exists() else 0
        if done < count:
            folder.mkdir(parents=True, exist_ok=True)
            made = {
                name: np.lib.format.open_memmap(
                    paths[name],
                    "r+" if done else "w+",
                    np.float16,
                    (count, *map(int, tensor.shape[1:])),
                )
                for name, tensor in outputs.items()
            }
            for model in (front, whole):
                # XLA takes longer to compile a backbone than to run it.
                model.compile(jit_compile=False)
            bar = keras.utils.Progbar(count, verbose=int(verbose))
            for start in range(done, count, size):
                rows = slice(start, min(start + size, count))
                some = np.asarray(images[rows], "float32")
                made["local"][rows] = front.predict_on_batch(some)
                if some.shape[1:3] != layer.sides:
                    some = ops.image.resize(
                        some, layer.sides, data_format="channels_last"
                    )
                deep, middle = whole.predict_on_batch(some)
                made["deep"][rows], made["middle"][rows] = deep, middle
                mark.write_text(str(rows.stop))
                bar.update(rows.stop)
        maps = {name: np.load(path, "r") for name, path in paths.items()}
        for name, tensor in outputs.items():
            wanted, shape = (count, *tensor.shape[1:]), maps[name].shape
            if shape != wanted:
                raise ValueError(
                    "`cache` must be of the same images, windows and backbone. "
                    f"Received: {paths[name]} of shape {shape}, not {wanted}."
                )
        return maps

    def _estimate(
        self, maps: dict[str, Array], labels: Array, split: float, seed: int
    ) -> None:
        draw = np.random.default_rng(seed)
        held = draw.permutation(len(labels)) < split * len(labels)
        some = np.sort(draw.permutation(len(labels))[:_MOST])
        parts = graphs.only_layer(self, WindowParts)
        count = parts.num_types
        found = body_plan.frames(maps["deep"][some], maps["middle"][some])
        reductions, seen = _reduced(maps["local"], some, parts)
        told = body_plan.told_places(found, seen, seed)
        types = body_plan.types_of(found, told, count, seed)
        network = body_plan.local_network(found, types, seen, count, seed)
        del seen
        self._take_network(network, reductions)
        # What the leaves of all images are.
        there = []
        for rows in parts_of(len(labels), body_plan.BATCH):
            poses, _ = parts(maps["local"][rows].astype("f4"))
            there.append(ops.convert_to_numpy(poses[..., 2]))
        presence = np.concatenate(there).reshape(len(labels), -1, count)
        cells, active = presence.argmax(axis=1), presence.max(axis=1)
        columns = parts.ratio * maps["local"].shape[2]
        row, column = cells // columns, cells % columns
        look = np.stack(
            [
                x[r // parts.ratio, c // parts.ratio, : parts.coarse]
                for x, r, c in zip(maps["local"], row, column, strict=True)
            ]
        ).astype("f4")
        self._estimate_evidence(look, active, labels, seed)
        stands = (np.stack([row, column], -1) + 0.5) * parts.stride - 0.5
        facing = np.ones(len(labels))
        facing[some] = found.facing
        self._estimate_plans(
            stands[some], active[some], facing[some], held[some], seed
        )

    def _take_network(self, network: keras.Model, reductions: Any) -> None:
        """Takes over a network of components as layers on features."""
        scale, first, last = (
            layer
            for layer in network.layers
            if not isinstance(layer, keras.layers.Dropout)
        )
        deviation = np.sqrt(ops.convert_to_numpy(scale.variance)).ravel() + 1e-7
        mean = ops.convert_to_numpy(scale.mean).ravel()
        kernel, bias = first.get_weights()
        kernel = kernel / deviation[:, None]
        bias = bias - mean @ kernel
        parts = graphs.only_layer(self, WindowParts)
        kernels = np.split(kernel, [reductions[0].kernel.shape[1]])
        near = parts.fine_kernel.shape[:2]
        kernels[1] = kernels[1].reshape(*near, -1, kernel.shape[1])
        folded = []
        for reduction, own in zip(reductions, kernels, strict=True):
            folded.append(reduction.kernel @ own)
            shift = reduction.mean @ folded[-1]
            bias = bias - shift.reshape(-1, len(bias)).sum(axis=0)
        rest = parts.get_weights()[5:]
        parts.set_weights([*folded, bias, *last.get_weights(), *rest])

    def _estimate_evidence(
        self, look: Array, active: Array, labels: Array, seed: int
    ) -> None:
        says, strength, held_out = body_plan.best_evidence(
            look, active, labels, self.output_shape[1], seed
        )
        parts = graphs.only_layer(self, WindowParts)
        parts.transformation.assign(says.kernel)
        parts.constants.assign(says.constants)
        graphs.only_layer(self, BodyPlanCaps).bias.assign(says.bias)
        self.report |= {
            "accuracy": says.accuracy(look, active, labels),
            "val_accuracy": held_out,
            "strength": strength,
        }

    def _estimate_plans(
        self,
        places: Array,
        active: Array,
        facing: Array,
        held: Array,
        seed: int,
    ) -> None:
        layer = graphs.only_layer(self, BodyPlanCaps)
        side = float(max(self.input_shape[1:3]))
        tried = {
            count: body_plan.plans_of(
                places, active, facing, held, count, side, seed
            )
            for count in range(1, layer.plans + 1)
        }
        chosen = 1
        for count, plans in tried.items():
            if plans.gains(tried[chosen].errors):
                chosen = count
        plans = tried[chosen]
        middle = body_plan.middle_errors(places, active, held, side)
        amid = float(np.exp(middle.mean()))
        fits = plans.gains(middle) and plans.error < _NEAR * amid
        # Those that are not needed are copies of the first.
        number = np.arange(layer.plans) % chosen
        layer.plan.assign(plans.places[number])
        layer.spread.assign(plans.spreads[number])
        # Each part at its mean place in the image, whatever the others.
        mean = places[~held].mean(axis=0)
        logs = body_plan.log_distance(mean, places[held], side)
        without = body_plan.weighted(logs, active[held])
        self.report |= {
            "plans": chosen if fits else 0,
            "plan_error": plans.error,
            "plan_errors": [each.error for each in tried.values()],
            "error_amid_others": amid,
            "error_without_plan": float(np.exp(without.mean())),
        }
        self.report["form"] = _form(self.report)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "report": self.report}

    @classmethod
    def from_config(cls, config: Any, custom_objects: Any = None) -> Any:
        config = dict(config)
        report = dict(config.pop("report", {}))
        model = super().from_config(config, custom_objects)
        model.report = report
        return model


def _form(report: dict[str, Any]) -> str:
    """Says which form a network took."""
    number = ("no body plan", "one body plan", "two plans", "three plans")
    count = report["plans"]
    errors = (
        f"a held-out image has a part {report['plan_error']:.1%} of its side "
        f"from where a plan has it, {report['error_amid_others']:.1%} from the "
        "middle of the others"
    )
    if count:
        name = number[count] if count < len(number) else f"{count} plans"
        return f"{name}: {errors}"
    return f"{number[0]}, parts stand anywhere: {errors}"


def _reduced(maps: Array, rows: Array, parts: WindowParts) -> Any:
    """Returns components of both maps of windows, and those of some photos."""
    few = rows[:: -(-len(rows) // _FEW)]
    reductions = [
        body_plan.components(x, size)
        for x, size in zip(_split(maps[few], parts), _LOCAL, strict=True)
    ]
    deep, fine = (reduction.kernel.shape[1] for reduction in reductions)
    side = parts.ratio + 2 * parts.margin
    shape = (len(rows), *maps.shape[1:3], deep + side**2 * fine)
    reduced = np.empty(shape, "f2")
    for some in parts_of(len(rows), body_plan.BATCH):
        split = _split(maps[rows[some]], parts)
        x, places = (
            reduction(x) for reduction, x in zip(reductions, split, strict=True)
        )
        reduced[some, ..., :deep] = x
        reduced[some, ..., deep:] = places.reshape(*x.shape[:3], -1)
    return reductions, body_plan.Windows(
        reduced, deep, parts.ratio, parts.margin
    )


def _split(maps: Array, parts: WindowParts) -> list[Array]:
    """Returns the two maps of windows, of the finer one what a window has."""
    n, rows, columns, _ = maps.shape
    fine = maps[..., parts.coarse :].reshape(n, rows, -1, parts.fine)
    return [maps[..., : parts.coarse], fine]
