"""params.yaml and machine.yaml as frozen, typed, range-checked sections; a file has those that are used together."""
