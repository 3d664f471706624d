"""One colour for each outcome and each kind of server, in every picture. From Okabe and Ito's palette (2008), which
colour-blind readers can tell apart, with two of Tol's for what it lacks.

Pictures are drawn in the light colours. In the dark a style sheet exchanges them, by their value: so the same SVG is
right in a page and alone, and a program that knows no style sheets shows the light one."""

from stanchion_lab import result

INK = "#1b1f24"
MUTED = "#5c646e"
RULE = "#d3d8de"
SHADE = "#eceff2"
PAPER = "#fdfdfc"
STALL = "#f3e2c4"

OUTCOMES = {
    result.SERVED: "#009e73",
    result.TOLD: "#56b4e9",
    result.GATEWAY: "#d55e00",
    result.ERROR: "#cc79a7",
    result.REFUSED: "#e69f00",
    result.BROKEN: "#882255",
    result.LATE: "#85898f",
}
ON_MOST = "#0b0d10"
ON = {result.BROKEN: "#ffffff"}
"""Text on these colours, in the light and in the dark."""

KINDS = {
    "stanchion": "#0072b2",
    "gunicorn": "#d55e00",
    "granian": "#cc79a7",
    "uwsgi": "#a07d00",
    "unicorn": "#e69f00",
    "puma": "#882255",
    "nginx": "#009e73",
    "haproxy": "#2f6f9f",
    "envoy": "#aa4499",
}
OTHER_KIND = "#7b62b5"


def of_kind(kind: str) -> str:
    return KINDS.get(kind, OTHER_KIND)


DARK = {
    INK: "#e7eaee",
    MUTED: "#a0a8b2",
    RULE: "#3b424b",
    SHADE: "#242a31",
    PAPER: "#14171b",
    STALL: "#4a3a1c",
    "#0072b2": "#4ba6e0",
    "#009e73": "#1bb489",
    "#d55e00": "#ee7420",
    "#882255": "#c95a92",
    "#a07d00": "#c9a21f",
    "#85898f": "#979ca3",
    "#2f6f9f": "#6fb1e0",
    "#aa4499": "#d27cc4",
    OTHER_KIND: "#a18bd8",
}

SHEET = "@media screen and (prefers-color-scheme: dark) {{\n{rules}\n}}".format(
    rules="\n".join(
        f'svg [style*="{what}: {light}"] {{ {what}: {dark} !important }}'
        for light, dark in DARK.items()
        for what in ("fill", "stroke")
    )
)
