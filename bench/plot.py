"""plot.py: the results of a run as a picture (SVG): how far each row is from its target."""
import math
from xml.sax.saxutils import escape

ROW, LEFT, WIDTH, RIGHT, TOP = 22, 250, 420, 330, 40
COLOURS = {"met": "#2f7d4f", "missed": "#b5402f", "reported": "#5b6b7b", "unsteady": "#b98a2f"}
DECADES = 1.5  # to either side of the target


def place(result):
    """Where a row's bar ends, -1 (worse than the target by DECADES) to 1; the target is 0. None: it has no figure."""
    if result.get("ratio") is None or result["ratio"] <= 0:
        return None
    goal = (result["target"] or 1) if "limit_name" in result else 1
    better = math.log10(result["ratio"] / goal) * -result["worse"]
    return max(-1, min(1, better / DECADES))


def draw_row(result, y):
    middle = LEFT + WIDTH / 2
    text = f'<text x="{LEFT - 8}" y="{y + 15}" text-anchor="end">{escape(result["title"])}</text>'
    at = place(result)
    if at is not None:
        x, width = min(middle, middle + at * WIDTH / 2), abs(at) * WIDTH / 2
        text += f'<rect x="{x:.1f}" y="{y + 4}" width="{max(width, 1):.1f}" height="{ROW - 8}" ' \
                f'fill="{COLOURS.get(result["verdict"], "#999")}"/>'
    said = result["verdict"]
    if at is not None:
        limit = f' of {result["limit_name"]}' if "limit_name" in result else " of what is allowed"
        said = f'{result["ratio"]:.2f}x{limit}: {result["verdict"]}'
    return text + f'<text x="{LEFT + WIDTH + 8}" y="{y + 15}">{escape(said)}</text>'


def draw(results, about):
    """The picture as text. Bars to the right are better than the target, to the left worse; a logarithmic scale."""
    height = TOP + ROW * len(results) + 30
    middle = LEFT + WIDTH / 2
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + RIGHT}" height="{height}" '
             'font-family="sans-serif" font-size="12">',
             '<rect width="100%" height="100%" fill="white"/>',
             f'<text x="8" y="20" font-size="14">anyverbs {escape(str(about["commit"]))}, {escape(about["cpu"])}, '
             f'{escape(about["date"])}</text>']
    lines += [draw_row(result, TOP + ROW * i) for i, result in enumerate(results)]
    lines += [f'<line x1="{middle}" y1="{TOP}" x2="{middle}" y2="{height - 26}" stroke="black"/>',
              f'<text x="{middle}" y="{height - 10}" text-anchor="middle">worse | target | better (each end: '
              f'{10 ** DECADES:.0f} times)</text>', "</svg>"]
    return "\n".join(lines) + "\n"
