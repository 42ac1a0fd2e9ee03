"""params.yaml as frozen, typed, range-checked blocks: one file per block, so that a stage imports its own only."""
