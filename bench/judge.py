"""judge.py: what blocks of figures say about a row, and how that is shown. Pure functions."""
import statistics

import counts
import rows

DRIFT_MAX = 1.3     # the two looks at the limit around a block may differ by this factor
OTHERS_MAX = 0.15   # share of the two cores that other programs may have during a block
KEPT_MIN = 3        # fewer blocks than that say nothing
CHANGE_SHOWN = 0.1  # --compare marks ratios that moved by more


def judge_block(before, ours, after, others):
    kept = max(before, after) <= DRIFT_MAX * min(before, after) and others <= OTHERS_MAX
    return {"before": before, "ours": ours, "after": after, "ratio": 2 * ours / (before + after),
            "others": round(others, 3), "kept": kept}


def begin_result(row):
    """What the table needs to know of a row, measured or not."""
    result = {"name": row.name, "title": row.title, "group": row.group, "unit": row.unit, "target": row.target,
              "worse": rows.worse_sign(row)}
    if isinstance(row, rows.Row):
        result["limit_name"] = rows.limit_name(row.limit)
    return result


def summarise_blocks(row, blocks):
    """With too few blocks the figures are those of all, for what they are worth."""
    kept = [b for b in blocks if b["kept"]]
    used = kept if len(kept) >= KEPT_MIN else blocks
    result = begin_result(row)
    result.update(blocks=blocks, kept=len(kept), verdict="unsteady",
                  ours=statistics.median(b["ours"] for b in used),
                  limit=statistics.median((b["before"] + b["after"]) / 2 for b in used),
                  ratio=statistics.median(b["ratio"] for b in used))
    if row.target is None:
        result["verdict"] = "reported"
    elif len(kept) >= KEPT_MIN:
        met = result["ratio"] <= row.target if result["worse"] > 0 else result["ratio"] >= row.target
        result["verdict"] = "met" if met else "missed"
    return result


def summarise_fixed(row, values):
    ours = statistics.median(values)
    result = begin_result(row)
    result.update(values=values, ours=ours, ratio=ours / row.target, verdict="met" if ours < row.target else "missed")
    return result


def summarise_count(row, value, then):
    """then: the results of the run to compare with, by name; None: no such run."""
    before = (then or {}).get(row.name, {}).get("ours")
    result = begin_result(row)
    result.update(ours=value, verdict="reported" if before is None else "met")
    if before is not None:
        result.update(target=before, ratio=value / before)
        if counts.is_grown(row.name.removeprefix("count_"), value, before):
            result["verdict"] = "grown"
    return result


def without_blocks(result):
    """What a later run is compared with."""
    return {key: result[key] for key in ("name", "unit", "ours", "limit", "ratio") if key in result}


# ---- showing ----

def show_number(value, unit):
    if value is None:
        return "-"
    digits = 0 if value >= 100 else 2 if value >= 1 else 3
    return f"{value:,.{digits}f} {unit}"


def show_target(result):
    if result["target"] is None:
        return "-"
    if result["group"] == "instructions":
        return f"<= {result['target']:,.0f} + {counts.tolerance(result['name'].removeprefix('count_')):.0%}"
    sign = "<=" if result["worse"] > 0 else ">="
    if "limit_name" in result:
        return f"{sign} {result['target']:g}x"
    return f"< {result['target']:g} {result['unit']}"


def show_change(result, old):
    """The ratio's change since the run that is compared with: both are held against their own limit. Instructions need none."""
    key = "ours" if result.get("group") == "instructions" else "ratio"
    if not old or key not in old or key not in result:
        return "-"
    change = result[key] / old[key] - 1
    mark = ""
    if abs(change) > CHANGE_SHOWN:
        mark = " worse" if change * result["worse"] > 0 else " better"
    return f"{change:+.0%}{mark}"


def show_row(result, then):
    limit = "-"
    if result.get("limit") is not None:
        limit = f"{result['limit_name']} {show_number(result['limit'], result['unit'])}"
    ratio = f"{result['ratio']:.2f}x" if "limit_name" in result and "ratio" in result else "-"
    cells = [result["title"], show_number(result.get("ours"), result["unit"]), limit, ratio, show_target(result),
             result["verdict"]]
    if "blocks" in result:
        cells[5] += f" ({result['kept']} of {len(result['blocks'])} blocks)"
    if then is not None:
        cells.append(show_change(result, then.get(result["name"])))
    return cells


def show_table(results, then):
    lines = [["test", "ours", "limit", "ratio", "target", "verdict"] + (["since"] if then is not None else [])]
    lines += [show_row(r, then) for r in results]
    widths = [max(len(cells[i]) for cells in lines) for i in range(len(lines[0]))]
    for cells in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths)).rstrip())
    for r in results:
        if "why" in r:
            print(f"{r['name']}: {r['why']}")
