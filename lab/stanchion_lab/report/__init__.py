"""The report of a run for people: a page, pictures as files, and text for a terminal (text.py)."""

from stanchion_lab.report.kept import keep
from stanchion_lab.report.page import render, render_index

__all__ = ["keep", "render", "render_index"]
