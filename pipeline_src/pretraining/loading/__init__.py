"""From the sample index to batches; masks are drawn as a batch is loaded."""
