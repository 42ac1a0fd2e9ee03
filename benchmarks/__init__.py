"""Benchmarks: ``python -m benchmarks.<name>`` compares this project's speed with that of another library."""
