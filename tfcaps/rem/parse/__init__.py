"""Parse trees: their couplings, keys, dictionaries and receptive fields."""
