"""Draws the table of docs/benchmarks/shared-memory.md: how many times faster Tutti is than Open MPI.

    against.py            writes docs/pictures/against.svg
    against.py --check    exits with 1 if the picture is not the table's
"""

import html
import math
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "..", "benchmarks", "shared-memory.md")
PICTURE = os.path.join(HERE, "against.svg")
ROW, TOP, LEFT, WIDTH, RIGHT = 17, 62, 150, 470, 24
TICKS = [0.5, 1, 2, 4, 8, 16]
# Colours of Okabe and Ito; the shapes tell the series apart in black and white.
SERIES = [("2 ranks", "#0072B2", "circle"), ("4 ranks", "#D55E00", "square"), ("8 ranks", "#009E73", "triangle")]


def read_rows():
    """Returns the label and the ratios of each row of the page's first table."""
    rows = []
    with open(TABLE, encoding="utf-8") as file:
        for line in file:
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            times = [re.fullmatch(r"([\d.]+) / ([\d.]+) / (?:[\d.]+|-)", cell) for cell in cells[1:]]
            if len(cells) == 4 and all(times):
                rows.append((cells[0], [float(time[2]) / float(time[1]) for time in times]))
            elif rows and not line.startswith("|"):
                return rows
    return rows


def to_x(ratio):
    low, high = math.log2(TICKS[0]), math.log2(TICKS[-1])
    return LEFT + WIDTH * (math.log2(ratio) - low) / (high - low)


def mark(x, y, colour, shape):
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.2" fill="{colour}"/>'
    if shape == "square":
        return f'<rect x="{x - 3.8:.1f}" y="{y - 3.8:.1f}" width="7.6" height="7.6" fill="{colour}"/>'
    return f'<path d="M{x:.1f} {y - 5:.1f} l4.8 8.6 h-9.6 z" fill="{colour}"/>'


def draw(rows):
    bottom = TOP + ROW * len(rows)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + RIGHT}" height="{bottom + 38}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14" font-weight="bold">Time of Open MPI / time of Tutti, one host</text>',
    ]
    for tick in TICKS:
        x, colour = to_x(tick), "#666" if tick == 1 else "#ddd"
        out.append(f'<line x1="{x:.1f}" y1="{TOP - 4}" x2="{x:.1f}" y2="{bottom}" stroke="{colour}"/>')
        out.append(f'<text x="{x:.1f}" y="{bottom + 15}" text-anchor="middle">{tick:g}</text>')
    out.append(
        f'<text x="{LEFT + WIDTH / 2}" y="{bottom + 32}" text-anchor="middle">'
        "times as fast (right of 1: Tutti is faster); 2 cores, so 4 and 8 ranks share them</text>"
    )
    for i, (name, colour, shape) in enumerate(SERIES):
        out.append(mark(LEFT + 90 * i + 5, 40, colour, shape))
        out.append(f'<text x="{LEFT + 90 * i + 15}" y="44">{name}</text>')
    for row, (label, ratios) in enumerate(rows):
        y = TOP + ROW * row + ROW / 2
        out.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{html.escape(label)}</text>')
        out += [mark(to_x(ratio), y, colour, shape) for ratio, (_, colour, shape) in zip(ratios, SERIES)]
    return "\n".join(out + ["</svg>\n"])


def main():
    picture = draw(read_rows())
    if sys.argv[1:] == ["--check"]:
        with open(PICTURE, encoding="utf-8") as file:
            same = file.read() == picture
        sys.exit(None if same else "docs/pictures/against.svg is not the table's: run docs/pictures/against.py")
    with open(PICTURE, "w", encoding="utf-8") as file:
        file.write(picture)


if __name__ == "__main__":
    main()
