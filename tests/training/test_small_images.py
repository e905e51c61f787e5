"""Which data sets and networks get the losses of small images."""

import pytest

from training import configs, presets


@pytest.mark.parametrize("dataset", ["mnist", "mine.npz", "digits"])
def test_the_default_network_is_trained_to_use_its_trees(dataset):
    for model in (None, "dr_capsnet_small"):
        config = configs.load(dataset, model)
        assert config.counterfactual_weights == (1.0, 1.0)
        assert config.coupling_share < 0.5
        assert (config.pruning_begin, config.pruning_end) == (0.2, 0.8)


def test_other_networks_and_the_paper_have_none_of_that():
    other = configs.load("mnist", "efficient_capsnet")
    assert not any(other.counterfactual_weights)
    assert other.pruning_begin == 0.0
    published = presets.published(configs.load("mnist"))
    assert not any(published.counterfactual_weights)
    assert not any(published.coupling_weights)
