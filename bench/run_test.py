#!/usr/bin/env python3
"""run_test.py: bench/run's reading and judging, and a whole run over made-up tools."""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import counts   # noqa: E402
import judge    # noqa: E402
import measure  # noqa: E402
import plot     # noqa: E402
import rows     # noqa: E402



def load(name):
    """A program of this folder as a module."""
    loader = importlib.machinery.SourceFileLoader("bench_" + name, os.path.join(HERE, name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_" + name, loader))
    loader.exec_module(module)
    return module


run, budget = load("run"), load("budget")

LAT = """\
---------------------------------------------------------------------------------------
                    Send Latency Test
 Number of qps   : 1\t\tTransport type : IB
 Mtu             : 4096[B]
---------------------------------------------------------------------------------------
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]\
   99% percentile[usec]   99.9% percentile[usec] 
Conflicting CPU frequency values detected: 2596.098000 != 3100.000000. CPU Frequency is not max.
 8       1000          0.17           5.36         0.21     \t       0.24        \t0.09   \t\t0.63    \t\t5.36
---------------------------------------------------------------------------------------
"""
BW = """\
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 1048576    2000             0.00               11500.25\t\t   0.011500
"""

# Stands for build/bin/anyverbs: the server listens, the client connects; MODE chooses what goes wrong.
ANYVERBS = """#!/usr/bin/env python3
import os, socket, sys
mode, args = os.environ.get("MODE", ""), sys.argv[1:]
if args[0] == "stop":
    sys.exit(0)
args = args[1:]
tool = os.path.basename(args[0])
if tool in ("first", "footprint"):
    print(tool, {"first": "12.5 ms", "footprint": "4096 bytes"}[tool])
    sys.exit(0)
port = int(args[args.index("-p") + 1])
if args[-1] == "127.0.0.1":
    socket.create_connection(("127.0.0.1", port)).close()
    if mode == "client":
        print("Couldn't create QP")
        sys.exit(1)
    print(LAT if tool.endswith("_lat") else BW)
else:
    if mode == "server":
        print("Unable to open the device")
        sys.exit(1)
    s = socket.create_server(("127.0.0.1", port))
    s.accept()
"""
LIMITS = """#!/bin/sh
for name; do :; done
case $name in mailbox) echo mailbox 0.0700 us;; writev8*) echo $name 1.4 us;; udp_*) echo $name 0.2 us;; *) echo $name 12000 MiB/s;; esac
"""


def block(before, ours, after, others=0.0):
    return judge.judge_block(before, ours, after, others)


class Parse(unittest.TestCase):
    def test_latency(self):
        row = measure.parse_perftest(LAT)
        self.assertEqual(row["#bytes"], (8, ""))
        self.assertEqual(row["t_typical"], (0.21, "usec"))
        self.assertEqual(row["99.9% percentile"], (5.36, "usec"))
        self.assertEqual(len(row), 9)

    def test_bandwidth(self):
        row = measure.parse_perftest(BW)
        self.assertEqual(row["BW average"], (11500.25, "MB/sec"))
        self.assertEqual(row["MsgRate"], (0.0115, "Mpps"))

    def test_no_row(self):
        for text in ("", "Failed to modify QP", BW.splitlines()[0], BW.replace("11500.25", "")):
            with self.assertRaises(measure.Failure):
                measure.parse_perftest(text)

    def test_ucx(self):
        csv = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n"
        csv += "20000,0.150,22.751,22.8,0.34,12000.50,43955,24000000\n"
        self.assertEqual([measure.parse_ucx(csv, unit) for unit in (rows.LATENCY, rows.BANDWIDTH, rows.RATE)],
                         [0.15, 12000.5, 24.0])
        self.assertEqual(measure.parse_ucx(csv.replace("\n20000,", "\n 250,"), rows.BANDWIDTH), 12000.5)  # it pads to four
        with self.assertRaises(measure.Failure):
            measure.parse_ucx(csv.splitlines()[0], rows.LATENCY)

    def test_own_tools(self):
        self.assertEqual(measure.parse_lines("first 1.5 ms\nqps 10\n"), {"first": 1.5, "qps": 10})


class Processes(unittest.TestCase):
    def test_nobody_reads_yet(self):
        """A server that says much is not held up until its client has ended."""
        process = measure.Process([sys.executable, "-c", "print('x' * 1000000)"])
        try:
            process.child.wait(20)
            self.assertEqual(len(process.result(1)), 1000001)
        finally:
            process.end()


class Judge(unittest.TestCase):
    def setUp(self):
        judge.OTHERS_MAX = 0.15

    lower = rows.SPINE[0]
    higher = rows.SPINE[2]

    def test_median_of_what_is_kept(self):
        blocks = [block(1, 2, 1), block(1, 2.5, 1), block(1, 99, 5), block(1, 99, 1, 0.2), block(1, 3, 1)]
        result = judge.summarise_blocks(self.lower, blocks)
        self.assertEqual((result["kept"], result["ratio"], result["verdict"]), (3, 2.5, "met"))

    def test_direction(self):
        for test, ratio, verdict in ((self.lower, 3.1, "missed"), (self.lower, 2.9, "met"),
                                     (self.higher, 0.79, "missed"), (self.higher, 0.81, "met")):
            self.assertEqual(judge.summarise_blocks(test, [block(1, ratio, 1)] * 3)["verdict"], verdict)

    def test_too_few_blocks(self):
        result = judge.summarise_blocks(self.lower, [block(1, 1, 1), block(1, 2, 9), block(9, 3, 1)])
        self.assertEqual((result["verdict"], result["kept"]), ("unsteady", 1))
        self.assertEqual(judge.show_row(result, None)[5], "unsteady (1 of 3 blocks)")

    def test_drift_and_others(self):
        self.assertTrue(block(1, 5, 1.29)["kept"])
        self.assertFalse(block(1.31, 5, 1)["kept"])
        self.assertFalse(block(1, 5, 1, 0.16)["kept"])

    def test_others_are_seen_and_we_are_not(self):
        cpu = min(os.sched_getaffinity(0))
        others = measure.Others([cpu])
        busy = ["taskset", "-c", str(cpu), sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"]
        subprocess.run(busy, check=True)
        end = others.now()
        wall, total, ours = (after - before for before, after in zip(others.begin, end))
        self.assertGreater(ours, 0.25)
        self.assertGreaterEqual(total + 0.1, ours)
        others.now = lambda: end
        self.assertAlmostEqual(others.share(), max(total - ours, 0) / wall)

    def test_change(self):
        now = {"name": "send_lat", "ratio": 2.4, "worse": +1}
        self.assertEqual(judge.show_change(now, {"ratio": 2.0}), "+20% worse")
        self.assertEqual(judge.show_change(now, {"ratio": 2.3}), "+4%")
        self.assertEqual(judge.show_change(dict(now, worse=-1), {"ratio": 2.0}), "+20% better")
        self.assertEqual(judge.show_change(now, None), "-")


class Counts(unittest.TestCase):
    row = rows.COUNTS[0]

    def verdict(self, value, before):
        return judge.summarise_count(self.row, value, before and {self.row.name: {"ours": before}})["verdict"]

    def test_growth_is_seen(self):
        self.assertEqual([self.verdict(*v) for v in ((1000, None), (1000, 1000), (1019, 1000), (1021, 1000), (900, 1000))],
                         ["reported", "met", "met", "grown", "met"])

    def test_row(self):
        result = judge.summarise_count(self.row, 1021, {self.row.name: {"ours": 1000}})
        self.assertEqual(judge.show_row(result, {self.row.name: {"ours": 1000}})[1:],
                         ["1,021 instructions", "-", "-", "<= 1,000 + 2%", "grown", "+2%"])


class Budget(unittest.TestCase):
    """Two calls, at 0x10 and 0x20 of the library; 0x1000 is shared, 0x2000 the stack."""
    trace = [("I", 0x11)] + [("I", 0x10), ("S", 0x1000), ("S", 0x1008), ("I", 0x14), ("L", 0x2000), ("I", 0x20), ("I", 0x24),
                             ("M", 0x3040)] * 3

    def test_calls_and_messages(self):
        parts = budget.calls(self.trace, {0x10: "ibv_post_send", 0x20: "ibv_poll_cq"})
        self.assertEqual([call for call, _ in parts], ["ibv_post_send", "ibv_poll_cq"] * 3)
        budget.FIRST, first = 0, budget.FIRST
        self.addCleanup(setattr, budget, "FIRST", first)
        self.assertEqual([{call: len(part) for call, part in m.items()} for m in budget.messages(parts)],
                         [{"ibv_post_send": 5, "ibv_poll_cq": 3}] * 2)

    def test_weight(self):
        maps = budget.Maps(0)
        maps.text = "1000-2000 rw-s 0 0 0 /memfd:board\n2000-3000 rw-p 0 0 0 \n3000-4000 rw-p 0 0 0 \n"
        maps.sort(0x2008)
        self.assertEqual(budget.weigh(self.trace[1:9], {0x24}, maps),
                         {"instructions": 4, "atomic": 1, "lines": 3, "stack": 1, "written": 2, "shared": 1})


class Rows(unittest.TestCase):
    def test_names_are_one_row_each(self):
        names = [row.name for row in rows.ROWS]
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual({row.group for row in rows.ROWS}, set(rows.GROUPS))


class Plot(unittest.TestCase):
    def result(self, ratio, target=2.0, worse=+1, **more):
        return dict({"title": "a < b", "limit_name": "mailbox", "ratio": ratio, "target": target, "worse": worse,
                     "verdict": "met"}, **more)

    def test_better_is_to_the_right(self):
        self.assertEqual(plot.place(self.result(2.0)), 0)
        self.assertGreater(plot.place(self.result(1.0)), 0)
        self.assertLess(plot.place(self.result(1.0, worse=-1)), 0)
        self.assertEqual(plot.place(self.result(1e9)), -1)
        self.assertIsNone(plot.place({"title": "failed", "target": None, "worse": 1}))

    def test_is_xml(self):
        results = [self.result(1.0), self.result(3.0, verdict="missed"),
                   {"title": "x", "target": None, "worse": 1, "verdict": "failed"}]
        text = plot.draw(results, {"commit": None, "cpu": "<a>", "date": "today"})
        root = xml.etree.ElementTree.fromstring(text)
        self.assertEqual(len(root.findall("{http://www.w3.org/2000/svg}rect")), 3)


    def test_peers_bar_right_where_ours_is_faster(self):
        machine = {"cpu": "<a>", "cores": 2, "date": "2026-01-02T"}
        result = {"machine": machine, "unit": "us", "ours": 1.0, "limit": 4.0, "ratio": 0.25}
        self.assertEqual(plot.faster(result), 4)
        slow = {"machine": machine, "unit": "MiB/s", "ours": 1.0, "limit": 4.0, "ratio": 0.25}
        self.assertEqual(plot.faster(slow), 0.25)
        text = plot.draw_peers([("a < b", "UCX", result), ("c", "TCP", slow)])
        self.assertIn("prefers-color-scheme: dark", text)
        bars = [r for r in xml.etree.ElementTree.fromstring(text).findall("{http://www.w3.org/2000/svg}rect") if r.get("fill")]
        self.assertEqual([bar.get("fill") for bar in bars], [plot.FASTER, plot.SLOWER])
        self.assertAlmostEqual(float(bars[1].get("x")) + float(bars[1].get("width")), float(bars[0].get("x")), delta=0.2)
        self.assertAlmostEqual(float(bars[1].get("width")), float(bars[0].get("width")), delta=0.2)  # 4 times and a quarter: one scale
        self.assertLess(text.index("against UCX"), text.index("against TCP"))

    def test_the_plot_of_the_documents_is_of_the_stored_figures(self):
        here = os.path.dirname(os.path.abspath(run.__file__))
        with tempfile.NamedTemporaryFile() as drawn:
            self.assertEqual(run.main(["--stored", "--svg", drawn.name]), 0)
            with open(os.path.join(here, "..", "docs", "speed.svg"), "rb") as kept:
                self.assertEqual(kept.read(), drawn.read())


class Whole(unittest.TestCase):
    def setUp(self):
        self.build = tempfile.TemporaryDirectory()
        for path, text in (("bin/anyverbs", ANYVERBS.replace("LAT if", repr(LAT) + " if").replace("else BW", "else "
                                                              + repr(BW))), ("bench/limits", LIMITS), ("bench/netlimits", LIMITS)):
            path = os.path.join(self.build.name, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as f:
                f.write(text)
            os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
        os.environ.pop("MODE", None)

    def tearDown(self):
        os.environ.pop("MODE", None)
        self.build.cleanup()

    def bench(self, *args):
        judge.OTHERS_MAX = 1  # the test may share its machine
        cpu = str(min(os.sched_getaffinity(0)))
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            status = run.main(["--build", self.build.name, "--quick", "--cpus", f"{cpu},{cpu}", *args])
        return status, out.getvalue()

    def test_table_and_json(self):
        path = os.path.join(self.build.name, "out.json")
        only = ["--only", "send_lat", "--only", "write_bw", "--only", "first_warm"]
        status, text = self.bench("--json", path, *only)
        self.assertEqual(status, 0)
        self.assertRegex(text, r"ib_send_lat 8 B +0\.210 us +mailbox 0\.070 us +3\.00x +<= 3x +met \(3 of 3 blocks\)")
        self.assertRegex(text, r"ib_write_bw 1 MiB +11,500 MiB/s +writev1m 12,000 MiB/s +0\.96x +>= 0\.8x +met")
        self.assertRegex(text, r"node up +12\.50 ms +- +- +< 50 ms +met")
        with open(path) as f:
            data = json.load(f)
        self.assertEqual([t["name"] for t in data["tests"]], ["send_lat", "write_bw", "first_warm"])
        self.assertEqual(len(data["tests"][0]["blocks"]), 3)
        status, text = self.bench("--compare", path, *only)
        self.assertRegex(text, r"met \(3 of 3 blocks\) +\+0%")

    def test_counts_of_another_kind_of_build(self):
        cache = os.path.join(self.build.name, "CMakeCache.txt")
        with self.assertRaisesRegex(counts.Failure, "No such file"):
            counts.check_build(self.build.name)
        for said, accepted in (("CMAKE_BUILD_TYPE:STRING=Release\n", False), ("CMAKE_BUILD_TYPE:STRING=RelWithDebInfo\n", True)):
            with open(cache, "w", encoding="utf-8") as f:
                f.write("CMAKE_AR:FILEPATH=ar\n" + said)
            if accepted:
                counts.check_build(self.build.name)
            else:
                self.assertRaisesRegex(counts.Failure, "is a Release build", counts.measure, self.build.name, "send")

    def test_stored_run(self):
        """What --store keeps is what the next run is compared with, and a row that has grown since is one that failed."""
        self.addCleanup(setattr, run, "STORED", run.STORED)
        self.addCleanup(setattr, run, "PLOT", run.PLOT)
        run.PLOT = os.path.join(self.build.name, "speed.svg")
        self.addCleanup(setattr, counts, "STORED", counts.STORED)
        self.addCleanup(setattr, counts, "measure", counts.measure)
        run.STORED, counts.STORED = (os.path.join(self.build.name, name) for name in ("stored.json", "instructions.json"))
        counts.measure = lambda build, kind, runs: 1000
        self.assertEqual(self.bench("--store", "--only", "write_bw", "--only", "count_send")[0], 0)
        self.assertEqual(self.bench("--store", "--only", "first_warm", "--only", "count_write")[0], 0)
        with open(run.STORED) as f:
            self.assertEqual([t["name"] for t in json.load(f)["tests"]], ["write_bw", "first_warm"])
        self.assertEqual(counts.stored(), {"send": 1000, "write": 1000})
        counts.measure = lambda build, kind, runs: 1030
        status, text = self.bench("--only", "write_bw", "--only", "count_send")
        self.assertEqual(status, 1)
        self.assertRegex(text, r"ib_write_bw .* met \(3 of 3 blocks\) +\+0%")
        self.assertRegex(text, r"in turn +1,030 instructions +- +- +<= 1,000 \+ 2% +grown +\+3%")

    def test_two_hosts(self):
        status, text = self.bench("--only", "udp_send_lat", "--only", "udp_write_lat", "--only", "udp_write_bw_tcp")
        self.assertEqual(status, 1)
        self.assertRegex(text, r"UDP: ib_send_lat 8 B +0\.210 us +udp_pingpong 0\.200 us +1\.05x +<= 1\.5x +met")
        self.assertRegex(text, r"UDP: ib_write_lat 8 B +0\.210 us +udp_woken 0\.200 us +1\.05x +- +reported")
        self.assertRegex(text, r"against TCP +11,500 MiB/s +tcp_stream 12,000 MiB/s +0\.96x +>= 1x +missed")

    def test_missed(self):
        status, text = self.bench("--only", "qp_memory")
        self.assertEqual(status, 1)
        self.assertRegex(text, r"4,096 bytes .*< 2112 bytes +missed")

    def test_failures_say_why(self):
        for mode, why in (("client", "Couldn't create QP"), ("server", "Unable to open the device")):
            os.environ["MODE"] = mode
            status, text = self.bench("--only", "write_lat")
            self.assertEqual(status, 1)
            self.assertRegex(text, "failed")
            self.assertIn(why, text)

    def test_nothing_built(self):
        os.unlink(os.path.join(self.build.name, "bench/limits"))
        self.assertEqual(self.bench()[0], 2)


if __name__ == "__main__":
    unittest.main()
