"""The main job: train, prune, quantise, measure, draw, export."""
