"""Predictions become scores."""
