# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The mgroups authors
"""The table as a picture: for each row, bars of ours, the peers and the limit."""

from xml.sax.saxutils import escape

WIDTH, MARGIN, NAMES, LABELS = 860, 24, 120, 285  # of a column
BAR, GAP, TITLE, NOTE = 13, 4, 20, 15
COLOURS = {"ours": "#2166ac", "limit": "#b5b5b5", "DCP": "#e08214", "Megatron-Core": "#c2679a", "safetensors": "#5aae61"}
OTHERS = "#8c6bb1"


def text(x, y, words, size=12, colour="#222", weight="normal"):
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}" font-weight="{weight}">{escape(words)}</text>'


def seconds(value):
    return f"{value:.3g} s" if value >= 1 else f"{1e3 * value:.3g} ms"


def label(row, name):
    """Wall and CPU time, and how much faster ours is."""
    words = seconds(row.median(name))
    cpu = row.median(name, "cpu_seconds")
    if cpu is not None:
        words += f", CPU {seconds(cpu)}"
    speed = row.ratio(name, "seconds")
    return words if name == "ours" or speed is None else f"{words}; ours {speed:.2f}x as fast"


def draw_row(row, left, y):
    """Each row has its own scale: its slowest contestant fills the width."""
    out = [text(left, y + 13, ", ".join(words for words in (row.work, row.size_text) if words), weight="600")]
    y += TITLE
    names = row.names()
    most = max(row.median(name) for name in names)
    x, room = left + NAMES, WIDTH - MARGIN - NAMES - LABELS
    for name in names:
        length = max(1.0, room * row.median(name) / most)
        out.append(text(left + 10, y + 10.5, name, size=11, colour="#555"))
        out.append(f'<rect x="{x}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2" fill="{COLOURS.get(name, OTHERS)}"/>')
        out.append(text(f"{x + length + 6:.1f}", y + 10.5, label(row, name), size=11, weight="600" if name == "ours" else "normal"))
        y += BAR + GAP
    for note in row.notes:
        out.append(text(left + 10, y + 10, note, size=10.5, colour="#777"))
        y += NOTE
    return out, y + 8


def draw_column(place, rows, left, y):
    out = [text(left, y + 16, place or "in memory", size=15, weight="600", colour="#777")]
    y += 28
    part = rows[0].part
    for row in rows:
        if row.part != part:
            part = row.part
            out.append(f'<line x1="{left}" y1="{y + 3}" x2="{left + WIDTH - MARGIN}" y2="{y + 3}" stroke="#ddd"/>')
            y += 14
        lines, y = draw_row(row, left, y)
        out += lines
    return out, y


def write_picture(path, rows, machine, repeats):
    """Disk and tmpfs beside each other, and what uses no files below the shorter."""
    facts = ", ".join(f"{name} {value}" for name, value in machine.items() if name not in ("cpu", "cores", "system"))
    out = [
        text(MARGIN, 34, "mgroups beside its peers and the machine's limit", size=18, weight="600"),
        text(MARGIN, 54, f"Medians of up to {repeats} rounds, all in turn. Shorter is better; each group has its scale.", colour="#555"),
        text(MARGIN, 71, f"{machine['cpu']}, {machine['cores']} cores; {facts}", colour="#555"),
    ]
    bottoms = []
    for place in ("disk", "tmpfs", ""):
        chosen = [row for row in rows if row.place == place]
        if not chosen:
            continue
        if place or not bottoms:
            column, top = len(bottoms), 90
            bottoms.append(top)
        else:
            column = bottoms.index(min(bottoms))
            top = bottoms[column] + 20
        lines, bottoms[column] = draw_column(place, chosen, MARGIN + column * WIDTH, top)
        out += lines
    width, height = MARGIN + WIDTH * len(bottoms), max(bottoms) + MARGIN
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    with open(path, "w") as file:
        file.write(f'{head} font-family="sans-serif">\n<rect width="100%" height="100%" fill="#fff"/>\n')
        file.write("\n".join(out) + "\n</svg>\n")
