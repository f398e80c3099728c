"""plot.py: figures as pictures (SVG), legible on light and dark pages: how far each row of a run is from its target, and how the stored
figures compare with those of the peers."""
import math
from xml.sax.saxutils import escape

ROW, LEFT, WIDTH, RIGHT, TOP = 22, 250, 420, 330, 40
COLOURS = {"met": "#2f7d4f", "missed": "#b5402f", "reported": "#5b6b7b", "unsteady": "#b98a2f"}
DECADES = 1.5  # to either side of the target
# A panel of its own, so that the text never stands on a page's colour; dark where the reader's pages are.
STYLE = """<style>
text { fill: #1f2933 } .panel { fill: #ffffff; stroke: #c3cad2 } .line { stroke: #1f2933 } .quiet { fill: #52606d }
@media (prefers-color-scheme: dark) {
text { fill: #e4e7eb } .panel { fill: #161b22; stroke: #3a444f } .line { stroke: #e4e7eb } .quiet { fill: #9aa5b1 }
}
</style>"""
FASTER, SLOWER = "#3a8fd0", "#c9803a"
PEER_LEFT, PEER_WIDTH, PEER_RIGHT, PEER_TOP = 190, 300, 370, 58


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
             STYLE, f'<rect class="panel" x="0.5" y="0.5" width="{LEFT + WIDTH + RIGHT - 1}" height="{height - 1}" rx="6"/>',
             f'<text x="8" y="20" font-size="14">anyverbs {escape(str(about["commit"]))}, {escape(about["cpu"])}, '
             f'{escape(about["date"])}</text>']
    lines += [draw_row(result, TOP + ROW * i) for i, result in enumerate(results)]
    lines += [f'<line x1="{middle}" y1="{TOP}" x2="{middle}" y2="{height - 26}" class="line"/>',
              f'<text x="{middle}" y="{height - 10}" text-anchor="middle">worse | target | better (each end: '
              f'{10 ** DECADES:.0f} times)</text>', "</svg>"]
    return "\n".join(lines) + "\n"


# ---- the stored figures beside the peers' ----

def faster(result):
    """How many times as fast as the peer: latencies count inversely."""
    return 1 / result["ratio"] if result["unit"] == "us" else result["ratio"]


def figure(value, unit):
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def draw_peer(title, name, result, y, scale):
    times = faster(result)
    one = PEER_LEFT + scale(1)
    end = PEER_LEFT + scale(times)
    colour = FASTER if times >= 1 else SLOWER
    said = f'{figure(result["ours"], result["unit"])}, {name} {figure(result["limit"], result["unit"])}'
    return (f'<text x="{PEER_LEFT - 8}" y="{y + 15}" text-anchor="end">{escape(title)}</text>'
            f'<rect x="{min(one, end):.1f}" y="{y + 4}" width="{max(abs(end - one), 1):.1f}" height="{ROW - 8}" fill="{colour}"/>'
            f'<text x="{max(one, end) + 6:.1f}" y="{y + 15}">{times:.2g}x</text>'
            f'<text class="quiet" x="{PEER_LEFT + PEER_WIDTH + 8}" y="{y + 15}">{escape(said)}</text>')


def draw_peers(pairs):
    """A bar for each (title, name of the peer, stored result): how many times as fast anyverbs is, on a logarithmic scale."""
    most = max([2.0] + [max(faster(result), 1 / faster(result)) for _, _, result in pairs])

    def scale(times):
        return PEER_WIDTH * (0.3 + 0.6 * math.log(times) / math.log(most)) if times >= 1 else \
            PEER_WIDTH * max(0.02, 0.3 + 0.6 * math.log(times) / math.log(most))
    width, height = PEER_LEFT + PEER_WIDTH + PEER_RIGHT, PEER_TOP + ROW * len(pairs) + 30
    one = PEER_LEFT + scale(1)
    where = sorted({f'{r["machine"]["cpu"]}, {r["machine"]["cores"]} cores, {r["machine"]["date"][:10]}' for _, _, r in pairs})
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
             'font-family="sans-serif" font-size="12">', STYLE,
             f'<rect class="panel" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="6"/>',
             '<text x="12" y="22" font-size="15" font-weight="bold">How many times as fast as...</text>',
             f'<text class="quiet" x="12" y="40">measured in alternating blocks by bench/run; {escape("; ".join(where))}</text>']
    lines += [draw_peer(title, name, result, PEER_TOP + ROW * i, scale) for i, (title, name, result) in enumerate(pairs)]
    lines += [f'<line class="line" x1="{one:.1f}" y1="{PEER_TOP}" x2="{one:.1f}" y2="{height - 26}"/>',
              f'<text class="quiet" x="{one:.1f}" y="{height - 10}" text-anchor="middle">as fast</text>', "</svg>"]
    return "\n".join(lines) + "\n"
