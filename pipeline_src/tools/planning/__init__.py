"""Estimate a study's sizes, tokens, FLOPs, time, disk space and price before it runs, without torch."""
