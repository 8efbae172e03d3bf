"""Draws the table of docs/benchmarks/torch.md as an SVG: how many times faster tutti is than gloo.

    plot.py [TABLE.md] [OUT.svg]      default: docs/benchmarks/torch.md, and torch.svg beside it
"""

import html
import math
import os
import re
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
ROW, TOP, LEFT, WIDTH, RIGHT = 15, 40, 210, 400, 24
TICKS = [0.5, 1, 2, 4, 8, 16, 32, 64]
SERIES = [("2 ranks", "#1f5fa8"), ("4 ranks", "#d9822b")]


def read_rows(path):
    """Returns the first table with a column of ratios: a label and the ratios of each row."""
    rows = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if len(cells) == 5 and re.fullmatch(r"[0-9.]+", cells[2]):
                rows.append((cells[0], [float(cells[2]), float(cells[4])]))
            elif rows:
                break
    return rows


def to_label(text):
    """Writes a number of bytes or parameters at the end in units."""
    match = re.match(r"(DDP step), (\d+)", text)
    if match:
        return f"{match[1]}, {int(match[2]) / 1e6:g} M parameters"
    match = re.fullmatch(r"(\w+) (\d+)", text)
    if not match:
        return text
    n, unit = int(match[2]), 0
    while n >= 1024:
        n, unit = n // 1024, unit + 1
    return f"{match[1]}, {n} {['B', 'KiB', 'MiB'][unit]}"


def to_x(ratio):
    low, high = math.log2(TICKS[0]), math.log2(TICKS[-1])
    return LEFT + WIDTH * (math.log2(min(max(ratio, TICKS[0]), TICKS[-1])) - low) / (high - low)


def draw(rows):
    bottom = TOP + ROW * len(rows)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + RIGHT}" height="{bottom + 30}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for tick in TICKS:
        x, colour = to_x(tick), "#888" if tick == 1 else "#ddd"
        out.append(f'<line x1="{x:.1f}" y1="{TOP - 4}" x2="{x:.1f}" y2="{bottom}" stroke="{colour}"/>')
        out.append(f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="middle">{tick:g}</text>')
    out.append(f'<text x="{LEFT + WIDTH / 2}" y="{bottom + 27}" text-anchor="middle">gloo / tutti, times</text>')
    for i, (name, colour) in enumerate(SERIES):
        out.append(f'<circle cx="{LEFT + 80 * i + 4}" cy="18" r="4" fill="{colour}"/>')
        out.append(f'<text x="{LEFT + 80 * i + 14}" y="22">{name}</text>')
    for row, (label, ratios) in enumerate(rows):
        y = TOP + ROW * row + ROW / 2
        out.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{html.escape(to_label(label))}</text>')
        for ratio, (_, colour) in zip(ratios, SERIES):
            out.append(f'<circle cx="{to_x(ratio):.1f}" cy="{y}" r="4" fill="{colour}" fill-opacity="0.85"/>')
    return "\n".join(out + ["</svg>\n"])


def main():
    table = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "docs", "benchmarks", "torch.md")
    picture = sys.argv[2] if len(sys.argv) > 2 else os.path.splitext(table)[0] + ".svg"
    rows = read_rows(table)
    if not rows:
        sys.exit(f"plot.py: {table} has no table of operations with the ratios of 2 and 4 ranks")
    with open(picture, "w", encoding="utf-8") as file:
        file.write(draw(rows))


if __name__ == "__main__":
    main()
