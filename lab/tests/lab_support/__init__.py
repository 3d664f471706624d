"""Servers of the lab and results of runs, for its tests."""
