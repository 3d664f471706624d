"""Helpers of the end-to-end tests: a strict client, a server started for real, and rendezvous between the two."""
