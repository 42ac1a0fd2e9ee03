"""What DVC and Snakemake need from a stage: code fingerprints, checks for edits, records in dvc.lock."""
