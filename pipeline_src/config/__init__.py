"""params.yaml and machine.yaml as frozen, typed, range-checked sections, in files by the stages that use them."""
