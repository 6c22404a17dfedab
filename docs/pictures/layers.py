"""Draw the layers of pto: write `layers.svg` beside this file.

A test compares the picture in the repository with the output of this script.
"""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 860, 560
FONT = "font-family='Helvetica, Arial, sans-serif'"
CORE, PLUGIN, YOURS = "#dbe9f6", "#fde3c8", "#e3f1dc"
LINE, TEXT, FAINT = "#44546a", "#1b2733", "#5a6877"


def box(x: int, y: int, width: int, height: int, title: str, text: str, fill: str) -> str:
    """Draw a rectangle with a bold title and lines of text below it."""
    middle = x + width // 2
    lines = text.split("\n") if text else []
    top = y + (height - 18 * len(lines)) // 2 + 4
    parts = [
        f"<rect x='{x}' y='{y}' width='{width}' height='{height}' rx='6' fill='{fill}' "
        f"stroke='{LINE}'/>",
        write(middle, top, title, 15, TEXT, "bold"),
    ]
    parts += [write(middle, top + 18 * (i + 1), line, 13, TEXT) for i, line in enumerate(lines)]
    return "\n".join(parts)


def write(
    x: int, y: int, text: str, size: int, fill: str, weight: str = "normal", anchor: str = "middle"
) -> str:
    """Draw a line of text that is placed at (x, y)."""
    return (
        f"<text x='{x}' y='{y}' {FONT} font-size='{size}' font-weight='{weight}' fill='{fill}' "
        f"text-anchor='{anchor}'>{escape(text)}</text>"
    )


def arrow(x1: int, y1: int, x2: int, y2: int, both: bool = False) -> str:
    """Draw an arrow from (x1, y1) to (x2, y2), with two heads for ``both``."""
    start = "marker-start='url(#head)' " if both else ""
    return (
        f"<line x1='{x1}' y1='{y1}' x2='{x2}' y2='{y2}' stroke='{LINE}' stroke-width='1.5' "
        f"{start}marker-end='url(#head)'/>"
    )


def frame(x: int, y: int, width: int, height: int, label: str) -> str:
    """Draw a dashed frame with its label in the upper left corner."""
    return (
        f"<rect x='{x}' y='{y}' width='{width}' height='{height}' rx='8' fill='none' "
        f"stroke='{FAINT}' stroke-dasharray='5 4'/>\n"
        + write(x + 12, y + 20, label, 13, FAINT, anchor="start")
    )


def legend(x: int, y: int, fill: str, text: str) -> str:
    """Draw a coloured square and its meaning."""
    return (
        f"<rect x='{x}' y='{y}' width='16' height='16' rx='3' fill='{fill}' stroke='{LINE}'/>\n"
        + write(x + 24, y + 13, text, 13, TEXT, anchor="start")
    )


def picture() -> str:
    """Return the picture as SVG."""
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' "
        f"width='{WIDTH}' height='{HEIGHT}'>",
        "<title>The layers of pto</title>",
        "<defs><marker id='head' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='8' "
        f"markerHeight='8' orient='auto-start-reverse'><path d='M0,0 L8,4 L0,8 z' fill='{LINE}'/>"
        "</marker></defs>",
        f"<rect width='{WIDTH}' height='{HEIGHT}' fill='white'/>",
        box(20, 20, 410, 64, "Python program", "Worker: several chips, processes, levels", YOURS),
        box(
            450,
            20,
            390,
            64,
            "Case on disk or Python program",
            "pto run, open_device: one chip",
            YOURS,
        ),
        arrow(225, 84, 225, 142),
        frame(20, 112, 410, 232, "levels 3 and up: processes"),
        box(40, 144, 370, 50, "Worker", "graph of tasks, engine, heap rings", CORE),
        *(arrow(x, 195, x, 223, both=True) for x in (82, 202, 345)),
        box(40, 224, 370, 26, "transport", "", PLUGIN),
        *(arrow(x, 251, x, 279, both=True) for x in (82, 202, 345)),
        box(40, 280, 85, 52, "chip", "a process", CORE),
        box(135, 280, 135, 52, "SUB child", "Python function", CORE),
        box(280, 280, 130, 52, "Worker", "one level lower", CORE),
        arrow(645, 84, 645, 142),
        frame(450, 112, 390, 318, "level 2: one chip"),
        box(470, 144, 350, 64, "pto_core", "compiles, loads, copies, waits, reports", CORE),
        arrow(550, 208, 550, 246),
        arrow(740, 208, 740, 246),
        box(470, 246, 160, 84, "runtime variant", "finds edges,\nschedules tasks", PLUGIN),
        arrow(632, 288, 658, 288, both=True),
        box(660, 246, 160, 84, "backend", "memory, cores,\nclock, threads", PLUGIN),
        arrow(550, 330, 550, 362),
        arrow(740, 330, 740, 362),
        box(470, 362, 160, 52, "orchestration", "C++ or Python", YOURS),
        box(660, 362, 160, 52, "kernels", "C++ or Python", YOURS),
        "<path d='M82,332 L82,388 L448,388' fill='none' "
        f"stroke='{LINE}' stroke-width='1.5' marker-end='url(#head)'/>",
        write(245, 380, "each chip runs level 2 in its own process", 13, FAINT),
        legend(40, 470, YOURS, "your program"),
        legend(240, 470, CORE, "pto_core, which imports no plugin"),
        legend(560, 470, PLUGIN, "plugins, chosen by name"),
        write(
            WIDTH // 2,
            525,
            "n backends and m runtime variants are n + m builds: each library knows only the ABI",
            13,
            FAINT,
        ),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(picture())
