"""One runnable module per claim of speed: ``python -m benchmarks.<name>`` measures ours beside a peer, in one run."""
