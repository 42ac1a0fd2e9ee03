"""Where raw data comes from: the catalogue, its schemes, and the synthetic sample tasks."""
