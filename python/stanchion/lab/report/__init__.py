"""The report of a run for people: a page, pictures as files, and text for a terminal (text.py)."""

from stanchion.lab.report.page import render, render_index

__all__ = ["render", "render_index"]
