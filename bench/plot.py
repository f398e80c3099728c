"""plot.py: figures as pictures (SVG), legible on light and dark pages: how far each row of a run is from its target, and how the stored
figures compare with those of the peers."""
import math
from xml.sax.saxutils import escape

ROW, LEFT, WIDTH, RIGHT, TOP = 22, 250, 420, 330, 40
COLOURS = {"met": "#2f7d4f", "missed": "#b5402f", "reported": "#5b6b7b", "unsteady": "#b98a2f"}
DECADES = 1.5  # to either side of the target
# A panel of its own, so that the text never stands on a page's colour; dark where the reader's pages are.
STYLE = """<style>
text { fill: #1f2933 } .panel { fill: #ffffff; stroke: #c3cad2 } .line { stroke: #1f2933 } .grid { stroke: #e1e6eb } .quiet { fill: #52606d }
@media (prefers-color-scheme: dark) {
text { fill: #e4e7eb } .panel { fill: #161b22; stroke: #3a444f } .line { stroke: #e4e7eb } .grid { stroke: #2a323c } .quiet { fill: #9aa5b1 }
}
</style>"""
FASTER, SLOWER = "#3a8fd0", "#c9803a"
PEER_LEFT, PEER_WIDTH, PEER_TOP = 190, 280, 50
PEER_OURS, PEER_THEIRS, PEER_FULL = 580, 680, 860  # right ends of the figures, and the width of all


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


# The peers' first words, in the order of their groups, and what stands above each.
GROUPS = {"UCX": "against UCX", "Open": "against Open MPI", "TCP": "against TCP", "raw": "against raw shared memory"}
TICKS = (0.25, 0.5, 1, 2, 4, 8)


def draw_peer(title, name, result, y, scale):
    times = faster(result)
    one, end = scale(1), scale(times)
    colour = FASTER if times >= 1 else SLOWER
    words = name.split(" ", 1)
    test = words[1] if words[0] == "UCX" and len(words) > 1 else ""
    return (f'<text x="{PEER_LEFT - 8}" y="{y + 15}" text-anchor="end">{escape(title)}</text>'
            f'<rect x="{min(one, end):.1f}" y="{y + 4}" width="{max(abs(end - one), 1):.1f}" height="{ROW - 8}" fill="{colour}"/>'
            f'<text x="{max(one, end) + 6:.1f}" y="{y + 15}">{times:.2g}x</text>'
            f'<text x="{PEER_OURS}" y="{y + 15}" text-anchor="end">{escape(figure(result["ours"], result["unit"]))}</text>'
            f'<text class="quiet" x="{PEER_THEIRS}" y="{y + 15}" text-anchor="end">{escape(figure(result["limit"], result["unit"]))}</text>'
            f'<text class="quiet" x="{PEER_THEIRS + 10}" y="{y + 15}">{escape(test)}</text>')


def grouped(pairs):
    """(heading, its pairs) of each group that has some; faster ones first."""
    for word, heading in GROUPS.items():
        some = [pair for pair in pairs if pair[1].split(" ")[0] == word]
        if some:
            yield heading, sorted(some, key=lambda pair: -faster(pair[2]))


def draw_axis(scale, top, bottom):
    """A line at 1, thin ones at the other ticks, and their labels."""
    for times in TICKS:
        x = scale(times)
        if PEER_LEFT <= x <= PEER_LEFT + PEER_WIDTH:
            yield (f'<line class="{"line" if times == 1 else "grid"}" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}"/>'
                   f'<text class="quiet" x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{"as fast" if times == 1 else f"{times:g}x"}</text>')


def draw_peers(pairs):
    """A bar for each (title, name of the peer, stored result): how many times as fast anyverbs is, on a logarithmic scale."""
    all_times = [faster(result) for _, _, result in pairs]
    least, most = min([0.5] + all_times), max([2.0] + all_times)

    def scale(times):
        return PEER_LEFT + PEER_WIDTH * (0.02 + 0.85 * math.log(times / least) / math.log(most / least))
    groups = list(grouped(pairs))
    bottom = PEER_TOP + ROW * (len(pairs) + len(groups)) + 6
    width, height = PEER_FULL, bottom + 28
    where = sorted({f'{r["machine"]["cpu"]}, {r["machine"]["cores"]} cores, {r["machine"]["date"][:10]}' for _, _, r in pairs})
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
             'font-family="sans-serif" font-size="12">', "<title>How many times as fast as UCX, TCP and raw shared memory</title>", STYLE,
             f'<rect class="panel" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="6"/>',
             '<text x="12" y="22" font-size="15" font-weight="bold">How many times as fast as...</text>',
             f'<text class="quiet" x="12" y="40">measured in alternating blocks by bench/run; {escape("; ".join(where))}</text>',
             f'<text x="{PEER_OURS}" y="40" text-anchor="end">anyverbs</text><text class="quiet" x="{PEER_THEIRS}" y="40" text-anchor="end">the other</text>']
    lines += draw_axis(scale, PEER_TOP, bottom)
    y = PEER_TOP
    for heading, some in groups:
        lines.append(f'<text x="12" y="{y + 16}" font-weight="bold">{escape(heading)}</text>')
        lines += [draw_peer(*pair, y + ROW * (i + 1), scale) for i, pair in enumerate(some)]
        y += ROW * (len(some) + 1)
    return "\n".join(lines + ["</svg>"]) + "\n"
