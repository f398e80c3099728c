#!/usr/bin/env python3
"""top_test.py: `anyverbs top` in tmux: keys, sizes, processes and nodes that die, and the terminal as it was; `status --prometheus`.

usage: top_test.py BUILD_DIR

Each case has a node and a terminal of its own. tmux draws what top sends, so a case sees what a user sees.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else os.path.abspath("build")
SECONDS = 40  # for what comes at once on a quiet host


class Case(unittest.TestCase):
    count = 0

    def setUp(self):
        Case.count += 1
        self.root = tempfile.mkdtemp(prefix="anyverbs-top-")
        os.chmod(self.root, 0o700)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("ANYVERBS_", "LD_", "TMUX"))}
        self.env.update(ANYVERBS_NODE=f"top-{os.getpid()}-{Case.count}", ANYVERBS_ADDR="own", ANYVERBS_IDLE_S="60", TERM="xterm-256color",
                        XDG_RUNTIME_DIR=self.root, PATH=":".join((BUILD + "/bin", BUILD + "/test", os.environ["PATH"])), PS1="$ ")
        self.children = []
        self.terminal = False
        self.terminals = 0

    def tearDown(self):
        if self.terminal:
            self.tmux("kill-server")
        for child in self.children:
            child.kill()
            child.communicate()
        self.command("stop", "--force")
        shutil.rmtree(self.root, ignore_errors=True)

    def command(self, *words):
        return subprocess.run(["anyverbs", *words], env=self.env, capture_output=True, text=True, timeout=60, check=False)

    def attach(self, program="node_attach"):
        """A process with one queue pair, 0x...3e8, in RTS, with 5 errors."""
        child = subprocess.Popen([program, "600"], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.children.append(child)
        line = child.stdout.readline().split()
        self.assertEqual(len(line), 3)
        return child, int(line[2])

    def tmux(self, *words):
        # LeakSanitizer stops the threads by SIGSTOP, and waits for ever if the SIGCONT of a terminal that goes away takes it back.
        env = dict(self.env, ASAN_OPTIONS=self.env.get("ASAN_OPTIONS", "") + ":detect_leaks=0")
        return subprocess.run(["tmux", "-S", os.path.join(self.root, f"tmux{self.terminals}"), "-f", "/dev/null", *words], env=env, capture_output=True,
                              text=True, timeout=60, check=False)

    def shell(self, line, rows=24, columns=80):
        """A terminal in which an interactive shell has read the line."""
        self.terminals += 1  # a server that has just ended may still be there
        done = self.tmux("new-session", "-d", "-x", str(columns), "-y", str(rows), "bash --norc --noprofile -i")
        self.terminal = True
        self.assertEqual(done.returncode, 0, done.stderr)
        self.tmux("send-keys", "stty -a > before; " + line, "Enter")

    def keys(self, *keys):
        self.tmux("send-keys", *keys)

    def screen(self):
        return self.tmux("capture-pane", "-p").stdout

    def sees(self, pattern, absent=False):
        end = time.monotonic() + SECONDS
        while True:
            shown = self.screen()
            if bool(re.search(pattern, shown)) != absent:
                return shown
            self.assertLess(time.monotonic(), end, f"{'still' if absent else 'no'} {pattern!r} on\n{shown}")
            time.sleep(0.05)

    def top(self, *words, **size):
        self.shell(f"cd {self.root}; stty -a > before; anyverbs top --interval 0.2 {' '.join(words)}; echo \"ended: $?\"", **size)

    def ended(self, code):
        shown = self.sees(rf"ended: {code}\n")
        self.keys("stty -a > after; echo compared", "Enter")
        self.sees(r"\ncompared\n")
        for name in ("before", "after"):
            with open(os.path.join(self.root, name), encoding="utf-8") as f:
                setattr(self, name, f.read())
        self.assertEqual(self.before, self.after)
        self.assertNotIn("processes]", shown, "the table stays on the screen")

    # ---- without a terminal ----

    def test_once(self):
        self.assertEqual(self.command("top", "--once").returncode, 1)
        self.assertEqual(json.loads(self.command("top", "--json").stdout), {"running": False})
        child, node = self.attach()
        done = self.command("top", "--once", "--interval", "0.1")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertNotIn("\033", done.stdout)
        self.assertRegex(done.stdout, rf"(?m)^ +{child.pid} node_attach +1 +0 +0 +0 +0 +0 +5 +0$")
        seen = json.loads(self.command("top", "--json", "--interval", "0.1").stdout)
        self.assertEqual((seen["running"], seen["pid"], len(seen["devices"]), seen["drops"]), (True, node, 1, []))
        self.assertEqual([(q["pid"], q["type"], q["state"], q["peer_qpn"], q["errors"]) for q in seen["qps"]],
                         [(child.pid, "RC", "RTS", 77, 5)])
        self.assertEqual(self.command("top", "--once", "--interval", "0.1", "--filter", "nothing").stdout.count("\n"), 5)
        self.assertEqual(self.command("top", "--once", "--interval", "0.1", "--sort", "qpn", "--view", "qps").stderr, "")
        self.attach()
        done = self.command("top", "--json", "--interval", "0.1", "--sort", "qpn", "--view", "qps")
        numbers = [q["qpn"] for q in json.loads(done.stdout)["qps"]]
        self.assertEqual((len(numbers), numbers), (2, sorted(numbers)))

    def test_misuse(self):
        for words in ([], ["--once", "x"], ["--interval"], ["--interval", "0"], ["--interval", "nan"], ["--interval", "1e9"], ["--view", "x"],
                      ["--sort", "x"], ["--sort"], ["--sort", "errors", "--view", "drops"], ["--view", "drops", "--sort", "errors"], ["--filter", "x" * 40]):
            done = self.command("top", *words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
            self.assertRegex(done.stderr, "^anyverbs: top: ")

    def test_one_queue_pair(self):
        self.assertEqual(self.command("qp", "1", "1").returncode, 1)
        child, _ = self.attach()
        qpn = json.loads(self.command("top", "--json", "--interval", "0.1").stdout)["qps"][0]["qpn"]
        for number in (str(qpn), hex(qpn)):
            done = self.command("qp", str(child.pid), number)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            for pattern in (f"^queue pair 0x{qpn:06x} of PID {child.pid} \\(node_attach\\): RC, RTS\n", "\n  state     ready to send: ",
                            "\n  peer      0x00004d, which no process of this node has", "\n  errors    5 completions",
                            "\n  inside    PSNs, retries and window cannot be read: the process does not show where they are\n"):
                self.assertRegex(done.stdout, pattern)
        for words, said in (((str(child.pid), "5"), "the process has no queue pair 0x000005"), (("1", hex(qpn)), "no process of the node has PID 1")):
            done = self.command("qp", *words)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn(said, done.stderr)

    # ---- keys ----

    def test_views_help_and_quit(self):
        child, node = self.attach()
        self.top()
        self.sees(rf"(?m)^anyverbs top - node {self.env['ANYVERBS_NODE']}, pid {node}, up 0:00:\d\d, every 0.2 s$")
        self.sees(rf"(?m)^ *{child.pid} node_attach +1 ")
        for key, pattern in (("2", r"(?m)^0x\w{3}3e8 +\d+ node_att\w* +RC   RTS   0x00004d"), ("3", r"(?m)^roce0 +ACTIVE "),
                             ("4", r"(?m)^REASON +PID"), ("Tab", r"(?m)^ +PID COMMAND +QPS"), ("h", "by reason\n"), ("h", "PID COMMAND"),
                             ("2", "QPN +PID"), ("q", "ended: 0")):
            self.keys(key)
            self.sees(pattern)
        self.ended(0)

    def test_sort_and_filter(self):
        pids = sorted(self.attach()[0].pid for _ in range(3))
        self.top()
        self.sees(r"(?s)(node_attach.*){3}")

        def order():
            return [int(p) for p in re.findall(r"(?m)^ *(\d+) node_attach", self.screen())]

        for keys, sort, wanted in ((("Left",) * 5, "PID down", pids[::-1]), (("r",), "PID up", pids), ((">",), "COMMAND up", None),
                                   (("<",), "PID down", pids[::-1])):
            self.keys(*keys)
            self.sees("sort " + sort)
            self.assertIn(order(), [wanted] if wanted else [pids, pids[::-1], order()])
        self.keys("/")
        self.keys(*str(pids[1]))
        self.sees(rf"filter: {pids[1]}_")
        self.assertEqual(order(), [pids[1]])
        self.keys("BSpace", "Enter")
        self.sees(rf"filter: {str(pids[1])[:-1]}\n")
        self.keys("Escape")
        self.sees("filter:", absent=True)
        self.assertEqual(sorted(order()), pids)

    def test_sizes(self):
        self.attach()
        self.top("--view", "qps")
        self.sees("node_att")
        for rows, columns in ((24, 80), (50, 200), (10, 40), (3, 12), (1, 1), (24, 80)):
            self.tmux("resize-window", "-x", str(columns), "-y", str(rows))
            end = time.monotonic() + SECONDS
            while True:
                shown = self.screen().rstrip("\n").split("\n")
                if shown[0].startswith("anyverbs top"[:columns]) and (rows < 6 or "QPN" in shown[4]) and len(shown) in (rows, 1):
                    break
                self.assertLess(time.monotonic(), end, (rows, columns, shown))
                time.sleep(0.05)
            self.assertEqual([line for line in shown if len(line) > columns], [])
        self.sees(r"(?m)^h help  1-4 view")

    def test_scrolling(self):
        for _ in range(6):
            self.attach()
        self.top("--sort", "pid", rows=9)  # three rows of the table
        self.sees("rows 1-3 of 6")
        for key, rows in (("Down", "2-4"), ("NPage", "4-6"), ("Down", "4-6"), ("Up", "3-5"), ("Home", "1-3"), ("End", "4-6"), ("PPage", "1-3")):
            self.keys(key)
            self.sees(f"rows {rows} of 6")
        self.keys("Down")
        self.sees("rows 2-4 of 6")
        self.keys("1")  # a view begins with its first row
        self.sees("rows 1-3 of 6")

    def test_no_colours_on_demand(self):
        self.attach()
        self.top()
        self.sees("node_attach")
        self.assertIn("\033[7m", self.tmux("capture-pane", "-p", "-e").stdout)
        self.assertRegex(self.tmux("capture-pane", "-p", "-e").stdout, r"\033\[31m(\033\[\d+m)* *\d+ node_attach")
        self.keys("q")
        self.sees("ended: 0")
        self.keys("NO_COLOR=1 anyverbs top", "Enter")
        self.sees("node_attach")
        self.assertNotRegex(self.tmux("capture-pane", "-p", "-e").stdout, r"\033\[(1|2|7|31)m")

    # ---- what dies ----

    def test_a_process_and_the_node_die(self):
        child, node = self.attach()
        other, _ = self.attach()
        self.top()
        self.sees(rf"(?m)^ *{child.pid} node_attach")
        child.kill()
        self.sees(rf"{child.pid} node_attach", absent=True)
        self.sees(rf"{other.pid} node_attach")
        other.kill()
        os.kill(node, signal.SIGKILL)
        self.sees("no node is up; waiting")
        third, _ = self.attach()
        self.sees(rf"(?m)^ *{third.pid} node_attach")
        self.keys("q")
        self.ended(0)

    def test_a_node_that_does_not_answer(self):
        _, node = self.attach()
        self.top()
        self.sees("node_attach")
        os.kill(node, signal.SIGSTOP)
        try:
            self.sees("the node has not answered for [1-9]")
            self.keys("2")
            self.sees(r"\[2 queue pairs\]")
            self.keys("q")
            self.ended(0)
        finally:
            os.kill(node, signal.SIGCONT)

    # ---- the terminal afterwards ----

    def pid_of_top(self):
        found = subprocess.run(["pgrep", "-f", "-n", "anyverbs top --interval", "-P",
                                self.tmux("display-message", "-p", "#{pane_pid}").stdout.strip()], capture_output=True, text=True, check=True)
        return int(found.stdout)

    def test_signals(self):
        self.attach()
        for name, code in (("INT", 0), ("TERM", 143), ("HUP", 129), ("QUIT", 131), ("SEGV", 139), ("ABRT", 134)):
            with self.subTest(name=name):
                self.top()
                self.sees("node_attach")
                os.kill(self.pid_of_top(), getattr(signal, "SIG" + name))
                self.ended(code)
                self.tmux("kill-server")

    def test_stopped_and_continued(self):
        self.attach()
        self.top()
        self.sees("node_attach")
        self.keys("C-z")
        self.sees("Stopped")
        self.keys("clear; stty -a | grep -c '[^-]icanon'; fg", "Enter")
        self.sees("node_attach")
        self.keys("q")
        self.sees(r"(?m)^1\n")

    def test_a_terminal_that_goes_away(self):
        self.attach()
        self.top()
        self.sees("node_attach")
        pid = self.pid_of_top()
        self.tmux("kill-server")
        self.terminal = False
        end = time.monotonic() + SECONDS
        while os.path.exists(f"/proc/{pid}"):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)

    # ---- hosts of a fabric ----

    def hosts(self):
        """Two hosts, and an rping from one to the other that does not end: PIDs of server and client."""
        if not shutil.which("rping"):
            self.skipTest("rping is not installed (rdmacm-utils)")
        if os.environ.get("AV_SANITIZE"):
            self.skipTest("rping cannot load libraries that a sanitizer has instrumented")
        self.assertEqual(self.command("fabric", "up").stderr, "")
        address = re.search(r"(?m)^h1 .* (127\.\S+)$", self.command("fabric", "hosts").stdout)[1]
        for host, words in (("h1", ("-s", "-a", address)), ("h2", ("-c", "-a", address, "-C", "100000000"))):
            self.children.append(subprocess.Popen(["anyverbs", "run", "--host", host, "rping", *words], env=self.env,
                                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            if host == "h1":
                self.sees_soon(lambda: "listens" in self.command("status").stdout)
        self.sees_soon(lambda: self.command("status").stdout.count(" RTS ") == 2)
        return [child.pid for child in self.children]

    def sees_soon(self, is_so):
        end = time.monotonic() + SECONDS
        while not is_so():
            self.assertLess(time.monotonic(), end, self.command("status").stdout)
            time.sleep(0.05)

    def test_hosts_of_a_fabric(self):
        server, client = self.hosts()
        status = self.command("status").stdout
        for pattern in (r"(?m)^host h1: ib0, port 1 ACTIVE, GUID [0-9a-f]{16}, LID \d+, 127\.64\.0\.\d+$", rf"(?m)^ +{server}  rping .*  on h1$",
                        rf"(?m)^ +{client}  rping .*  on h2$", r"connection TCP .* ESTABLISHED  ib0  QP "):
            self.assertRegex(status, pattern)
        said = json.loads(self.command("status", "--json").stdout)
        self.assertEqual(sorted(p["host"] for p in said["processes"]), ["h1", "h2"])
        self.assertEqual(sorted((h["host"], h["device"], h["state"]) for h in said["hosts"]), [("h1", "ib0", "ACTIVE"), ("h2", "ib0", "ACTIVE")])
        qpn = json.loads(self.command("top", "--json", "--interval", "0.1", "--filter", str(client)).stdout)["qps"][0]["qpn"]
        told = self.command("qp", str(client), str(qpn)).stdout
        for pattern in (rf"\n  peer      0x\w{{6}} of PID {server} \(rping\), in RTS\n", r"\n  from      ib0 of host h2, LID \d+, port ACTIVE\n",
                        r"\n  to        ib0 of host h1, LID \d+, port ACTIVE\n"):
            self.assertRegex(told, pattern)
        peer = re.search(r"\n  peer      (0x\w{6}) ", told)[1]
        self.assertRegex(self.command("qp", str(server), peer).stdout, rf"\n  peer      0x{qpn:06x} of PID {client} \(rping\), in RTS\n")
        self.sees_soon(lambda: all(d["sent_per_s"] > 0 and d["received_bytes_per_s"] > 0 for d in json.loads(
            self.command("top", "--json", "--interval", "0.5").stdout)["devices"] if d["device"] != "roce0"))
        text = self.command("status", "--prometheus").stdout
        seen = parse(text)
        ports = {dict(labels)["fabric_host"]: value for (name, labels), value in seen.items() if name == "anyverbs_port_sent_bytes_total"}
        self.assertEqual([sorted(ports), all(value > 0 for value in ports.values())], [["h1", "h2"], True])
        self.assertEqual({dict(labels).get("fabric_host") for (name, labels) in seen if name == "anyverbs_qp_state"}, {"h1", "h2"})
        self.promtool(text)

    def test_hosts_in_the_table(self):
        server, client = self.hosts()
        self.top()
        self.sees(r"(?m)^ +PID COMMAND .* DROP HOST$")
        self.sees(rf"(?m)^ *{server} rping .* h1$")
        self.sees(", 2 hosts in use\n")
        self.keys("3")
        self.sees(r"(?m)^h2 ib0 +ACTIVE [0-9a-f]{16} 4096")
        for child in self.children:
            child.send_signal(signal.SIGSTOP)  # else the connection fails, and both end
        self.assertEqual(self.command("fabric", "link", "h2", "down").stderr, "")
        self.sees(r"(?m)^h2 ib0 +CUT ")
        self.keys("/", "h", "1", "Enter")
        self.sees(r"(?m)^h2 ib0", absent=True)
        self.sees(r"(?m)^h1 ib0")
        self.keys("Escape")
        self.sees("filter:", absent=True)
        self.keys("1")
        self.sees(rf"(?m)^ *{client} rping .* h2$")
        for child in self.children:
            child.kill()
        self.sees(", 0 hosts in use\n")
        self.sees("DROP HOST", absent=True)
        self.keys("q")
        self.ended(0)

    # ---- Prometheus ----

    def promtool(self, text):
        if shutil.which("promtool"):
            told = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
            self.assertEqual((told.returncode, told.stdout, told.stderr), (0, "", ""))

    def test_prometheus(self):
        done = self.command("status", "--prometheus")
        self.assertEqual((done.returncode, parse(done.stdout)), (1, {("anyverbs_up", ()): 0.0}))
        child, _ = self.attach()
        done = self.command("status", "--prometheus")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        seen = parse(done.stdout)
        values = {name: value for (name, labels), value in seen.items() if dict(labels).get("pid") == str(child.pid)}
        self.assertEqual(values["anyverbs_rx_packets_total"], 12345)
        self.assertEqual(values["anyverbs_direct_operations_total"], 42)
        self.assertEqual(values["anyverbs_qp_sent_bytes_total"], 300)
        self.assertEqual(values["anyverbs_qp_errors_total"], 5)
        states = [dict(labels) for (name, labels) in seen if name == "anyverbs_qp_state"]
        self.assertEqual([(s["state"], s["type"], s["command"]) for s in states], [("RTS", "RC", "node_attach")])
        self.promtool(done.stdout)

    def test_prometheus_of_a_program_with_an_odd_name(self):
        name = 'a"b\\c'
        os.symlink(os.path.join(BUILD, "test/node_attach"), os.path.join(self.root, name))
        child, _ = self.attach(os.path.join(self.root, name))
        text = self.command("status", "--prometheus").stdout
        self.assertEqual({dict(labels)["command"] for (family, labels) in parse(text) if dict(labels).get("pid") == str(child.pid)}, {name})
        self.promtool(text)

    def test_the_parser_is_strict(self):
        good = "# HELP a_total x\n# TYPE a_total counter\na_total{b=\"c\\\\\\\"\"} 1\n"
        self.assertEqual(parse(good), {("a_total", (("b", 'c\\"'),)): 1.0})
        for bad in (good[:-1], good + good, "a 1\n", good.replace("counter", "count"), good.replace('"c', 'c'), good.replace(" 1", " x"),
                    good.replace("a_total", "a-total"), good + "a_total{b=\"c\\\\\\\"\"} 2\n", good.replace("a_total", "a"),
                    good.replace('b="', 'b="\\x'), good + "# HELP c x\n# TYPE c gauge\nc 1\na_total 3\n", good + "\n"):
            with self.assertRaises(ValueError, msg=bad):
                parse(bad)


NAME = "[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\d+(?:\.\d+)?)")


def parse(text):
    """The samples of Prometheus' text format 0.0.4: {(name, labels): value}. Raises ValueError at whatever a scraper or promtool would not
    accept: each family has HELP, then TYPE, then its samples in one block; counters end in _total; no sample comes twice."""
    samples, families, family, kind = {}, set(), None, None
    if not text.endswith("\n"):
        raise ValueError("the last line does not end")
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            family, kind = line.split(" ", 3)[2], None
            if not re.fullmatch(NAME, family) or family in families or line.count(" ") < 3:
                raise ValueError(line)
            families.add(family)
        elif line.startswith("# TYPE "):
            words = line.split(" ")
            if len(words) != 4 or words[2] != family or kind or words[3] not in ("counter", "gauge"):
                raise ValueError(line)
            kind = words[3]
            if (kind == "counter") != family.endswith("_total"):
                raise ValueError(line)
        else:
            found = SAMPLE.fullmatch(line)
            if not found or kind is None or found[1] != family:
                raise ValueError(line)
            labels = tuple(sorted((k, re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], v))
                                  for k, v in re.findall(LABEL, found[2] or "")))
            if len(dict(labels)) != len(labels) or (family, labels) in samples:
                raise ValueError(line)
            samples[family, labels] = float(found[found.lastindex])
    return samples


if __name__ == "__main__":
    unittest.main()
