"""A sheet to draw on, measured in CSS pixels from its top left corner, and how it is saved."""

import io
import re
import textwrap
import warnings
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.transforms import Affine2D

from stanchion_lab.report import colours

WIDE, NARROW = 760, 350
"""A column of text; a phone."""
SIZE = 12.0
PNG_SCALE = 2

STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": SIZE,
    "text.color": colours.INK,
    "text.parse_math": False,  # a dollar in a title is a dollar
    "axes.edgecolor": colours.RULE,
    "axes.facecolor": "none",
    "axes.labelcolor": colours.MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 1.0,
    "axes.axisbelow": True,
    "grid.color": colours.RULE,
    "grid.linewidth": 0.7,
    "xtick.color": colours.RULE,
    "ytick.color": colours.RULE,
    "xtick.labelcolor": colours.MUTED,
    "ytick.labelcolor": colours.MUTED,
    "figure.facecolor": colours.PAPER,
    "savefig.facecolor": colours.PAPER,
    "path.simplify": False,  # a dot is a line of no length, and would be simplified away
    "svg.fonttype": "none",
    "svg.hashsalt": "stanchion",  # the same result gives the same file
}
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


class Sheet:
    """`top` grows as it is filled; how high it is, is known when it is finished."""

    def __init__(self, width: int, title: str = "") -> None:
        self.width = width
        self.top = 8.0
        self.figure = Figure(dpi=72)
        # From pixels below the top to inches above the bottom; set by finish().
        self._down = Affine2D()
        self._pixels = self._down + self.figure.dpi_scale_trans
        self._placed: list[tuple[Axes, float, float, float, float]] = []
        if title:
            self.paragraph(title, size=15, weight="bold", gap=10)
        self.headroom = self.top - 8
        self.drawn = ""

    @property
    def narrow(self) -> bool:
        return self.width < WIDE

    def axes(self, left: float, top: float, width: float, height: float, **more: Any) -> Axes:
        axes = self.figure.add_axes((0, 0, 1, 1), **more)
        self._placed.append((axes, left, top, width, height))
        return axes

    def text(self, left: float, top: float, text: str, **more: Any) -> None:
        self.figure.text(left, top, text, **{"va": "top", "transform": self._pixels, **more})

    def box(self, left: float, top: float, width: float, height: float, colour: str, edge: str = "none") -> None:
        place = (left, top)
        self.add(
            Rectangle(place, width, height, facecolor=colour, edgecolor=edge, linewidth=0 if edge == "none" else 1)
        )

    def line(self, places: Sequence[tuple[float, float]], **more: Any) -> None:
        self.add(Line2D([left for left, _ in places], [top for _, top in places], **more))

    def add(self, artist: Artist) -> None:
        """Its coordinates are pixels."""
        artist.set_transform(self._pixels)
        self.figure.add_artist(artist)

    def paragraph(self, text: str, size: float = SIZE, left: float = 8, gap: float = 4, **more: Any) -> None:
        """Across the sheet, in as many lines as it takes; then `top` is below it."""
        for line in wrapped(text, self.width - left - 8, size):
            self.text(left, self.top, line, fontsize=size, **more)
            self.top += size * 1.3
        self.top += gap

    def legend(self, entries: Sequence[tuple[str, str]]) -> None:
        """Names after their colours, one after the other, in as many rows as it takes."""
        left = 8.0
        for name, colour in entries:
            needed = 18 + _width(name, 11) + 16
            if left + needed > self.width and left > 8:
                left, self.top = 8.0, self.top + 17
            self.box(left, self.top + 1, 11, 11, colour)
            self.text(left + 17, self.top + 6.5, name, fontsize=11, va="center_baseline")
            left += needed
        self.top += 17 + 8

    def finish(self) -> Figure:
        """Cut off below what was drawn."""
        height = self.top + 6
        self.figure.set_size_inches(self.width / 72, height / 72)
        self._down.clear().scale(1 / 72, -1 / 72).translate(0, height / 72)
        for axes, left, top, width, tall in self._placed:
            axes.set_position((left / self.width, 1 - (top + tall) / height, width / self.width, tall / height))
        return self.figure


def _width(text: str, size: float) -> float:
    """About: DejaVu is among the wide ones, and a page may show another."""
    return len(text) * size * 0.58


def wrapped(text: str, width: float, size: float) -> list[str]:
    return textwrap.wrap(text, max(8, int(width / (size * 0.56)))) or [""]


def svg(sheet: Sheet) -> str:
    """A file of its own."""
    # In pixels, as the sheet was measured, and not in matplotlib's points.
    text = re.sub(r'((?:width|height)="[\d.]+)pt"', r'\1"', _svg(sheet), count=2)
    return re.sub(r"(<svg [^>]*>)", rf"\1\n<style>{colours.SHEET}</style>", text, count=1)


def png(sheet: Sheet) -> bytes:
    return _saved(sheet, "png")


def inline(sheet: Sheet, prefix: str, label: str) -> str:
    """For the middle of a page, which has its title already: no identifier is like another's."""
    text = _svg(sheet)
    text = text[text.index("<svg") :]
    text = re.sub(r"<style type=\"text/css\">.*?</style>", "", text, count=1, flags=re.DOTALL)
    text = re.sub(r' id="', f' id="{prefix}-', text)
    text = text.replace('xlink:href="#', f'href="#{prefix}-').replace("url(#", f"url(#{prefix}-")
    height = sheet.figure.get_figheight() * 72 - sheet.headroom
    box = f"0 {sheet.headroom:g} {sheet.width} {height:g}"
    head = f'<svg role="img" aria-label="{label}" viewBox="{box}" width="{sheet.width}" height="{height:g}">'
    return re.sub(r"<svg [^>]*>", lambda _: head, text, count=1)


def _svg(sheet: Sheet) -> str:
    if not sheet.drawn:
        # It is measured with the font that matplotlib brings; few readers have it.
        text = _saved(sheet, "svg").decode()
        sheet.drawn = text.replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")
    return sheet.drawn


def _saved(sheet: Sheet, kind: str) -> bytes:
    figure = sheet.finish()
    FigureCanvasAgg(figure)
    to = io.BytesIO()
    with warnings.catch_warnings():
        # A script that the font lacks is drawn as boxes in the PNG; in an SVG, the browser has a font for it.
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from", UserWarning)
        if kind == "svg":
            figure.savefig(to, format="svg", metadata=_NO_METADATA)
        else:
            figure.savefig(to, format="png", dpi=72 * PNG_SCALE, metadata={"Software": None})
    return to.getvalue()


def style() -> Any:
    """Everything is drawn and saved within it: matplotlib looks up some of its settings late."""
    return mpl.rc_context(STYLE)
