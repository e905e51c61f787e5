"""Routings equal public implementations: outputs, and gradients of poses."""

import numpy as np
import pytest

from tests.golden import assert_golden, load
from tests.gradients import value_and_gradients
from tests.tolerance import assert_close
from tfcaps.routing import DynamicRouting, EMRouting, ScaledDistanceRouting

ITERATIONS = [1, 2, 3, 5]
WITH_BIAS = {"votes": "votes", "bias": "bias"}
WITH_ACTIVATIONS = {**WITH_BIAS, "activations": "input_activations"}


def compare(routing, golden, arguments, outputs, gradients, **renamed):
    """Compares with a golden file.

    Args:
        routing: The routing.
        golden: Arrays of the file.
        arguments: Their names, by the routing's.
        outputs: Names of the outputs, with `{}` for ours.
        gradients: Names of the gradients, by the routing's arguments.
        **renamed: What the file calls an output.
    """
    values = {name: golden[theirs] for name, theirs in arguments.items()}
    for name, output in routing(**values)._asdict().items():
        assert_golden(golden, outputs, **{renamed.get(name, name): output})
    _, (found,) = value_and_gradients(
        lambda values: routing(**values).poses,
        values,
        upstream=golden["upstream"],
    )
    for name, theirs in gradients.items():
        assert_close(found[name], golden[theirs], atol=1e-4, err_msg=name)


@pytest.mark.parametrize("iterations", ITERATIONS)
def test_dynamic_routing(iterations):
    at = f"iter{iterations}"
    compare(
        DynamicRouting(iterations),
        load("02_dynamic_routing"),
        WITH_BIAS,
        f"{{}}_{at}",
        {
            "votes": f"grad_votes_last_only_{at}",
            "bias": f"grad_bias_const_couplings_{at}",
        },
    )
    for gradient, name in (("full", "through"), ("last", "last_only")):
        compare(
            DynamicRouting(iterations, gradient),
            load("02_dynamic_routing_nobias"),
            {"votes": "votes"},
            f"{{}}_{at}",
            {"votes": f"grad_votes_{name}_{at}"},
        )


@pytest.mark.parametrize("iterations", [1, 2, 3])
@pytest.mark.parametrize("levels", [5, 11])
def test_quantized_dynamic_routing(levels, iterations):
    at = f"iter{iterations}"
    compare(
        DynamicRouting(iterations, levels=levels),
        load(f"03_quantized_routing_K{levels}"),
        WITH_BIAS,
        f"{{}}_{at}",
        {"votes": f"grad_votes_{at}"},
        couplings="couplings_quantized",
    )


def test_a_coupling_on_an_edge_goes_down_and_leaves_the_bias_alone():
    golden = load("03_bin_edges")
    routed = DynamicRouting(1, levels=5)(
        golden["onedge_votes"], bias=golden["onedge_bias"]
    )
    assert_golden(golden, "onedge_{}", **routed._asdict())
    assert not np.any(routed.couplings)


@pytest.mark.parametrize("iterations", ITERATIONS)
def test_scaled_distance_routing(iterations):
    golden, at = load("04_sda_routing"), f"iter{iterations}"
    compare(
        ScaledDistanceRouting(iterations, "batch", "last"),
        golden,
        WITH_ACTIVATIONS,
        f"{{}}_{at}",
        {k: f"grad_{name}_{at}" for k, name in WITH_ACTIVATIONS.items()},
    )
    values = {k: golden[name] for k, name in WITH_ACTIVATIONS.items()}
    alone = ScaledDistanceRouting(iterations, "sample")(**values)
    assert_golden(golden, f"{{}}_batch_of_one_{at}", poses=alone.poses)
    if iterations == 3:
        routed = ScaledDistanceRouting(3, "batch", levels=11)(**values)
        assert_golden(golden, "quantized_K11_{}_iter3", **routed._asdict())


EM = {
    "votes": "votes",
    "activations": "input_activations",
    "beta_u": "beta_u",
    "beta_a": "beta_a",
}


@pytest.mark.parametrize("temperature", [0.01, 0.1])
@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_em_routing(iterations, temperature):
    golden = load("07_em_routing")
    values = {name: golden[theirs] for name, theirs in EM.items()}
    epsilon = float(golden["eps_f64"])
    routed = EMRouting(iterations, temperature, epsilon=epsilon)(**values)
    routed = routed._asdict()
    routed["assignments"] = routed.pop("couplings")
    at = f"lambda{temperature}".replace(".", "p")
    assert_golden(golden, f"{{}}_{at}_iter{iterations}", 2e-5, **routed)
    if (iterations, temperature) != (3, 0.01):
        return
    _, (gradients,) = value_and_gradients(
        lambda values: EMRouting(3, 0.01)(**values)[:2],
        values,
        upstream=[golden["upstream_poses"], golden["upstream_activations"]],
    )
    for name, theirs in EM.items():
        expected = golden[f"grad_{theirs}_lambda0p01_iter3"]
        # Few are as small as what is added: most are compared relatively.
        assert np.mean(1e-3 * np.abs(expected) < 1e-6) < 0.06
        assert_close(gradients[name], expected, rtol=1e-3, err_msg=name)


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_em_routing_of_the_authors_later_code(iterations):
    golden, at = load("07_em_routing_google_variant"), f"iter{iterations}"
    poses, activations, _ = EMRouting(
        iterations,
        inverse_temperature=float(golden["final_beta_f64"]),
        epsilon=float(golden["min_var_f64"]),
        variant="code",
    )(
        golden["votes"],
        golden["input_activations"],
        beta_u=golden["sigma_biases"],
        beta_a=golden["activation_biases"],
    )
    outputs = {"poses": poses, "activations": activations}
    assert_golden(golden, f"{{}}_{at}", 2e-5, **outputs)
    logits = np.log(activations) - np.log1p(-activations)
    assert_golden(golden, f"{{}}_{at}", 1e-4, activation_logits=logits)
