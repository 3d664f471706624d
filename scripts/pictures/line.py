"""Draws the picture of the line, docs/pictures/line-{light,dark}.svg: one drawing in two sets of colours."""

import sys
from pathlib import Path

NAMES = ("text", "dim", "edge", "box", "mark", "busy")
COLOURS = {
    "light": ("#1f2328", "#59636e", "#8c959f", "#f6f8fa", "#0969da", "#bf8700"),
    "dark": ("#f0f6fc", "#9198a1", "#656c76", "#21262d", "#4493f8", "#d29922"),
}
DESCRIPTION = (
    "Clients connect to the acceptor. It keeps the line, in which five requests wait. Two of three workers are busy; "
    "the free one takes the request at the head. The master watches all, and the template forks the workers."
)


def text(x: int, y: int, words: str, kind: str = "text", size: int = 15, anchor: str = "middle") -> str:
    return f'<text x="{x}" y="{y}" fill="var(--{kind})" font-size="{size}" text-anchor="{anchor}">{words}</text>'


def box(x: int, y: int, width: int, height: int, edge: str = "edge", fill: str = "box") -> str:
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" '
        f'fill="var(--{fill})" stroke="var(--{edge})" stroke-width="1.5"/>'
    )


def arrow(x1: int, y1: int, x2: int, y2: int, kind: str = "edge", dashes: str = "none") -> str:
    return (
        f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="var(--{kind})" stroke-width="1.5" '
        f'stroke-dasharray="{dashes}" marker-end="url(#{kind})"/>'
    )


def clients() -> list[str]:
    parts = [text(55, 28, "clients", "dim")]
    for number, what in enumerate(["slow", "fast", "idle", "slow"]):
        y = 46 + 46 * number
        parts += [box(15, y, 80, 30), text(55, y + 20, what, "dim", 13), arrow(95, y + 15, 158, y + 15)]
    return parts


def acceptor_and_line() -> list[str]:
    parts = [
        box(162, 40, 330, 190),
        text(327, 28, "acceptor (Rust): every connection, and the line"),
        text(214, 128, "read", "dim", 13),
        text(214, 145, "completely", "dim", 13),
        arrow(252, 134, 276, 134),
        text(382, 95, "the line: oldest first", "text", 14),
        text(382, 190, "limits: how many may wait,", "dim", 13),
        text(382, 207, "and for how long", "dim", 13),
    ]
    return parts + [box(282 + 40 * number, 118, 32, 32, "mark") for number in range(5)]


def workers() -> list[str]:
    parts = [text(680, 28, "workers: your app")]
    for number, (what, kind) in enumerate([("busy", "busy"), ("free: takes the next", "mark"), ("busy", "busy")]):
        y = 46 + 64 * number
        parts += [box(590, y, 180, 48, kind), text(680, y + 30, what, kind, 14)]
    return [
        *parts,
        arrow(478, 134, 586, 134, "mark"),
        text(536, 124, "shared", "dim", 12),
        text(536, 152, "memory", "dim", 12),
    ]


def supervision() -> list[str]:
    return [
        box(162, 268, 330, 36),
        text(327, 291, "master: starts and watches the others", "text", 14),
        box(590, 268, 180, 36),
        text(680, 291, "template: imports once", "text", 14),
        arrow(327, 268, 327, 234, "edge", "4 3"),
        arrow(492, 286, 586, 286, "edge", "4 3"),
        arrow(680, 268, 680, 226, "edge", "4 3"),
        text(690, 254, "forks", "dim", 12, "start"),
    ]


def drawing(colours: tuple[str, ...]) -> str:
    """The colours are written out, since what shows an SVG need not know CSS's variables."""
    heads = [
        f'<marker id="{kind}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0 8 4 0 8z" fill="var(--{kind})"/></marker>'
        for kind in ("edge", "mark")
    ]
    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 785 318" width="785" height="318" role="img" '
        'font-family="system-ui, sans-serif">',
        f"<title>{DESCRIPTION}</title>",
        f"<defs>{''.join(heads)}</defs>",
        *clients(),
        *acceptor_and_line(),
        *workers(),
        *supervision(),
        "</svg>",
    ]
    picture = "\n".join(lines) + "\n"
    for kind, colour in zip(NAMES, colours, strict=True):
        picture = picture.replace(f"var(--{kind})", colour)
    return picture


def main() -> None:
    folder = Path(sys.argv[1])
    for scheme, colours in COLOURS.items():
        (folder / f"line-{scheme}.svg").write_text(drawing(colours))


if __name__ == "__main__":
    main()
