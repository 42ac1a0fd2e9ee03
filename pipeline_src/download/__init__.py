"""Fetch raw data by entries of the catalogue, and make the synthetic sample tasks."""
