"""Named changes to a study, run as DVC's experiments."""
