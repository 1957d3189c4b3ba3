"""Line charts beside and below each other, as one SVG file that needs nothing else."""

from html import escape

WIDTH, HEIGHT = 400, 230  # of a panel, with its margins
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 46, 40
FONT = "font-family=\"Helvetica, Arial, sans-serif\""
INK, GRID = "#333333", "#dddddd"


class Panel:
    def __init__(self, title, most_x, most_y, x_label="time (s)", y_label="delivered (Mbit/s)"):
        self.title = title
        self.most_x = most_x
        self.most_y = most_y
        self.x_label = x_label
        self.y_label = y_label
        self.lines = []  # (name, colour, [(x, y)])
        self.bands = []  # (name, colour, [(x, least, most)])
        self.marks = []  # (name, y)

    def x(self, value):
        return LEFT + value / self.most_x * (WIDTH - LEFT - RIGHT)

    def y(self, value):
        return HEIGHT - BOTTOM - min(value / self.most_y, 1) * (HEIGHT - TOP - BOTTOM)

    def draw(self):
        out = [text(LEFT, 16, self.title, 12, weight="bold"), *self.legend(), *self.axes()]
        for _, colour, points in self.bands:
            edge = [(x, most) for x, _, most in points] + [(x, least) for x, least, _ in reversed(points)]
            out.append(f'<polygon points="{self.path(edge)}" fill="{colour}" fill-opacity="0.3"/>')
        for _, y in self.marks:
            out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{self.y(y):.1f}" y2="{self.y(y):.1f}" stroke="{INK}" '
                       'stroke-dasharray="5 4"/>')
        for _, colour, points in self.lines:
            out.append(f'<polyline points="{self.path(points)}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        return out

    def path(self, points):
        return " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)

    def legend(self):
        at = LEFT
        for name, colour, kind in ([(name, colour, "line") for name, colour, _ in self.lines]
                                   + [(name, colour, "band") for name, colour, _ in self.bands]
                                   + [(name, INK, "mark") for name, _ in self.marks]):
            if kind == "band":
                yield f'<rect x="{at}" y="24" width="18" height="10" fill="{colour}" fill-opacity="0.3"/>'
            else:
                dash = ' stroke-dasharray="5 4"' if kind == "mark" else ""
                yield f'<line x1="{at}" x2="{at + 18}" y1="29" y2="29" stroke="{colour}" stroke-width="2"{dash}/>'
            yield text(at + 22, 33, name, 11)
            at += 34 + round(6.2 * len(name))

    def axes(self):
        for value in steps(self.most_y):
            y = self.y(value)
            yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{GRID}"/>'
            yield text(LEFT - 6, y + 4, f"{value:g}", 11, "end")
        for value in steps(self.most_x):
            x = self.x(value)
            yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM + 4}" stroke="{INK}"/>'
            yield text(x, HEIGHT - BOTTOM + 17, f"{value:g}", 11, "middle")
        yield (f'<polyline points="{LEFT},{TOP} {LEFT},{HEIGHT - BOTTOM} {WIDTH - RIGHT},{HEIGHT - BOTTOM}" fill="none" '
               f'stroke="{INK}"/>')
        yield text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, self.x_label, 11, "middle")
        middle = (TOP + HEIGHT - BOTTOM) / 2
        yield (f'<g transform="rotate(-90 14 {middle:.0f})">' + text(14, middle, self.y_label, 11, "middle") + "</g>")


def text(x, y, words, size, anchor="start", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" '
            f'fill="{INK}">{escape(words)}</text>')


def steps(most):
    """Round numbers from 0 to the most, some five of them."""
    step = next(unit * 10 ** power for power in range(-2, 6) for unit in (1, 2, 5) if most / (unit * 10 ** power) <= 6)
    return [k * step for k in range(int(most / step + 1e-9) + 1)]


def draw(panels, columns):
    rows = (len(panels) + columns - 1) // columns
    width, height = columns * WIDTH, rows * HEIGHT
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
           f'{FONT}>', f'<rect width="{width}" height="{height}" fill="#ffffff"/>']
    for k, panel in enumerate(panels):
        out += [f'<g transform="translate({k % columns * WIDTH} {k // columns * HEIGHT})">', *panel.draw(), "</g>"]
    return "\n".join([*out, "</svg>"]) + "\n"
