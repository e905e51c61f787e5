"""Self-attention routing: what it computes."""

import re

import keras
import numpy as np
import pytest

from tests import reference
from tests.golden import assert_golden, load
from tests.gradients import value_and_gradients
from tests.tolerance import assert_all_close, assert_close
from tfcaps.ops import efficient_squash
from tfcaps.routing import SelfAttentionRouting


def routed_layer(poses, transformation, bias):
    votes = keras.ops.einsum("bik,ijkd->bijd", poses, transformation)
    return SelfAttentionRouting()(votes, bias=bias)


def test_layer_equals_the_public_implementation():
    golden = load("05_self_attention_fccaps")
    arguments = golden["input_poses"], golden["weights"], golden["bias"]
    routed = routed_layer(*arguments)._asdict()
    routed["couplings_before_bias"] = routed.pop("couplings")
    assert_golden(golden, "{}", **routed)
    _, gradients = value_and_gradients(
        lambda *arguments: routed_layer(*arguments).poses,
        *arguments,
        upstream=golden["upstream"],
    )
    gradients = dict(zip(("input", "weights", "bias"), gradients, strict=True))
    assert_golden(golden, "grad_{}", 1e-4, **gradients)


@pytest.mark.parametrize("sharpness", [1.0, 0.1, 20.0])
@pytest.mark.parametrize("shape", [(2, 5, 3, 4), (1, 12, 2, 16), (3, 4, 2, 1)])
def test_routing_equals_all_pairs_of_children(shape, sharpness, rng):
    votes = rng.normal(size=shape).astype("float32")
    bias = rng.normal(size=shape[1:3]).astype("float32")
    routed = SelfAttentionRouting(sharpness=sharpness)(votes, bias=bias)
    poses, couplings = reference.self_attention_routing(votes, bias, sharpness)
    assert_close(routed.poses, poses, atol=1e-5)
    assert_close(routed.couplings, couplings, atol=1e-5)


def test_bias_is_added_to_rounded_couplings(rng):
    votes = rng.normal(size=(2, 5, 3, 4)).astype("float32")
    bias = rng.normal(size=(5, 3)).astype("float32")
    routed = SelfAttentionRouting(levels=5)(votes, bias=bias)
    poses = efficient_squash(
        np.einsum("bij,bijd->bjd", routed.couplings + bias, votes)
    )
    assert_close(routed.poses, poses)


def test_last_gradient_is_that_of_constant_couplings(rng):
    votes = rng.normal(size=(2, 5, 3, 4)).astype("float32")
    bias = rng.normal(size=(5, 3)).astype("float32")
    routing = SelfAttentionRouting(gradient="last")
    couplings = routing(votes).couplings

    def with_constants(votes, bias):
        total = keras.ops.einsum("bij,bijd->bjd", couplings + bias, votes)
        return efficient_squash(total)

    poses, gradients = value_and_gradients(
        lambda votes, bias: routing(votes, bias=bias).poses, votes, bias
    )
    expected, constant = value_and_gradients(with_constants, votes, bias)
    assert_close(poses, expected)
    assert_all_close(gradients, constant, atol=1e-5)


def test_bias_of_another_shape_is_refused():
    message = (
        "The bias of self-attention routing is added to couplings and must "
        "have the shape [children, parents]. Received: shape=(3, 4) for "
        "couplings (2, 5, 3)."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        SelfAttentionRouting()(
            np.zeros((2, 5, 3, 4), "float32"), bias=np.zeros((3, 4))
        )
