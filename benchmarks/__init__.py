"""Benchmarks of speed and memory, each beside another implementation."""
