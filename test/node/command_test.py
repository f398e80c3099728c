#!/usr/bin/env python3
"""command_test.py: the `anyverbs` command, and what users see of the node.

usage: command_test.py BUILD_DIR

Each case has a node, a folder and a staged installation of its own: the command and the daemon with a stand-in for a door.
"""
import ipaddress
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else os.path.abspath("build")


class Case(unittest.TestCase):
    count = 0

    def setUp(self):
        Case.count += 1
        self.root = tempfile.mkdtemp(prefix="anyverbs-command-")
        self.doors = os.path.join(self.root, "lib/anyverbs")
        self.bin = os.path.join(self.root, "bin")
        self.runtime = os.path.join(self.root, "run")
        for folder in (self.bin, self.doors):
            os.makedirs(folder)
        os.mkdir(self.runtime, 0o700)
        for name in ("anyverbs", "anyverbsd"):
            shutil.copy(os.path.join(BUILD, "bin", name), self.bin)
        shutil.copy(os.path.join(BUILD, "test/node_attach"), self.bin)
        open(os.path.join(self.doors, "libibverbs.so.1"), "w").close()
        os.chmod(self.root, 0o755)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("ANYVERBS_", "LD_"))}
        self.env.update(ANYVERBS_NODE=f"command-{os.getpid()}-{Case.count}", ANYVERBS_ADDR="own", ANYVERBS_IDLE_S="20",
                        XDG_RUNTIME_DIR=self.runtime, PATH=self.bin + ":" + os.environ["PATH"])
        self.bring_suppressions()
        self.children = []

    def bring_suppressions(self):
        """Another user may not be able to read the tree, where a sanitizer's file of suppressions lies."""
        for name, value in self.env.items():
            file = re.search(r"suppressions=([^: ]+)", value) if name.endswith("SAN_OPTIONS") else None
            if file:
                self.env[name] = value.replace(file[1], shutil.copy(file[1], self.root))

    def tearDown(self):
        for child in self.children:
            child.kill()
            child.communicate()
        self.run_command("stop", "--force")
        shutil.rmtree(self.root, ignore_errors=True)

    def run_command(self, *words, **env):
        return subprocess.run(["anyverbs", *words], env={**self.env, **env}, capture_output=True, text=True, timeout=30)

    def attach(self, seconds=60, prefix=(), **env):
        child = subprocess.Popen([*prefix, "node_attach", str(seconds)], env={**self.env, **env},
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.children.append(child)
        line = child.stdout.readline().split()
        self.assertEqual(len(line), 3, child.stderr.read() if not line else line)
        return child, int(line[0]), int(line[1]), int(line[2])

    def status(self, **env):
        return json.loads(self.run_command("status", "--json", **env).stdout)

    def status_when_up(self):
        for _ in range(1000):
            done = self.run_command("status", "--json")
            if done.returncode == 0 and json.loads(done.stdout).get("running"):
                break
            time.sleep(0.02)
        return json.loads(done.stdout)

    # ---- usage ----

    def test_variables_that_do_not_exist_or_hold_what_they_cannot(self):
        for name, bad, good in (("NODE", "a/b", "a.b"), ("LOG", "verbose", "WARN"), ("ADDR", "127.0.0.300", "127.0.0.2,fd00::1"),
                                ("PATHS", "upd", "shm,udp"), ("SOURCE_PORTS", "9", "8"), ("CONNECTED_SOCKETS", "many", "0"),
                                ("ADOPT", "off", "0"), ("BORN_SHARED", "yes", "1"), ("IDLE_S", "-1", "never"), ("NOD", "a", None)):
            with self.subTest(name=name):
                done = self.run_command("version", **{"ANYVERBS_" + name: bad})
                self.assertEqual((done.returncode, done.stderr.count("\n")), (0, 1), done.stderr)
                self.assertRegex(done.stderr, f"^anyverbs: warning: ANYVERBS_{name}" + (f"={bad}: it takes " if good else " is no variable"))
                if good:
                    self.assertEqual(self.run_command("version", **{"ANYVERBS_" + name: good}).stderr, "")

    def test_values_are_judged_as_the_libraries_judge_them(self):
        eight = ",".join(f"roce{i}" for i in range(8))
        for name, good, bad in (("DEVICES", (eight, eight + ",roce3", eight + ", " * 2000), (eight + ",roce8", "roce1," * 400 + "roce", eight[6:] + ",roce9")),
                                ("PATHS", ("shm udp", "udp shm", "udp,shm", " shm, udp ,", "shm,shm"), ("SHM", ",", "shm;udp", "shm,tcp")),
                                ("SOURCE_PORTS", ("000", "8"), (" 8", "+8", "9", "0x1")),
                                ("CONNECTED_SOCKETS", ("032",), ("-1", " 1", "33", "4294967297")),
                                ("DIRECT", ("0",), ("00", "01", " 1")),
                                ("REST_S", ("0", "0.5", "1e10", "never"), ("Never", "nan", "-1", "5s")),
                                ("ADDR", ("127.0.0.2 fd00::1", "10.0.0.1,", "own"), ("224.0.0.1", "own,10.0.0.1", "0.0.0.0", "ff02::1", "::", "127.1")),
                                ("LOG", ("none", "Debug"), ("5", "err"))):
            for value in good + bad:
                with self.subTest(name=name, value=value):
                    done = self.run_command("version", **{"ANYVERBS_" + name: value})
                    self.assertEqual((done.returncode, "it takes" in done.stderr), (0, value in bad), done.stderr)

    def test_every_variable_of_the_source_is_known(self):
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
        found = subprocess.run(["grep", "-rhoE", '"ANYVERBS_[A-Z_]+"', "--include=*.c", os.path.join(source, "src"),
                                os.path.join(source, "tools")], capture_output=True, text=True, check=True).stdout.replace('"', "")
        names = set(found.split()) - {"ANYVERBS_"}
        self.assertGreater(len(names), 10)
        done = self.run_command("version", **{name: "" for name in names})
        self.assertEqual(done.stderr, "")

    def test_help_and_version(self):
        for words in (["help"], ["--help"], ["-h"]):
            done = self.run_command(*words)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("usage: anyverbs", done.stdout)
        names = re.findall(r"(?m)^  (\w+)  +\S", self.run_command("help").stdout)
        self.assertLessEqual({"run", "status", "top", "qp", "port", "device", "capture", "fabric", "stop", "version", "help"}, set(names))
        for name in names:
            asked, option = self.run_command("help", name), self.run_command(name, "--help")
            self.assertEqual((asked.returncode, asked.stderr), (0, ""))
            self.assertEqual(asked.stdout, option.stdout)
            self.assertIn(f"usage: anyverbs {name}", asked.stdout)
        done = self.run_command("version")
        self.assertRegex(done.stdout, r"^anyverbs \d+\.\d+\.\d+\n$")

    def test_misuse_is_2_and_on_standard_error(self):
        for words in ([], ["nonsense"], ["help", "nonsense"], ["help", "run", "x"], ["fabric"], ["fabric", "x"], ["capture"], ["status", "x"], ["qp"], ["qp", "1"], ["qp", "1", "x"], ["qp", "-1", "1"], ["qp", "1", "0x1000000"], ["stop", "x"], ["port"],
                      ["port", "roce0"], ["port", "up", "down", "up"], ["port", "x" * 40, "up"], ["port", "", "up"], ["version", "x"], ["run"],
                      ["device"], ["device", "add"], ["device", "list", "x"], ["device", "add", "x"], ["device", "remove", "roce1", "x"],
                      ["run", "--"], ["run", "-x", "true"]):
            done = self.run_command(*words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
            self.assertNotEqual(done.stderr, "")

    def test_full_disk_is_an_error(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run(["anyverbs", "help"], env=self.env, stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 1)

    # ---- run ----

    def test_run_puts_the_doors_in_front(self):
        script = 'echo "$LD_LIBRARY_PATH|$LD_PRELOAD"'
        done = self.run_command("run", "sh", "-c", script)
        self.assertEqual(done.stdout, f"{self.doors}|\n")
        done = self.run_command("run", "--", "sh", "-c", script, LD_LIBRARY_PATH="/a:/b")
        self.assertEqual(done.stdout, f"{self.doors}:/a:/b|\n")
        done = self.run_command("run", "anyverbs", "run", "sh", "-c", script)
        self.assertEqual(done.stdout, f"{self.doors}|\n")

    def test_run_preloads_the_shim_if_it_is_there(self):
        preload = os.path.join(self.doors, "libanyverbs-preload-libasan.so")
        shutil.copy("/lib/x86_64-linux-gnu/libm.so.6" if os.path.exists("/lib/x86_64-linux-gnu/libm.so.6")
                    else os.path.realpath(shutil.which("true")), preload)
        done = self.run_command("run", "sh", "-c", 'echo "$LD_PRELOAD"')
        self.assertEqual(done.stdout, preload + "\n")

    def test_run_from_a_folder_with_a_blank_or_a_colon(self):
        """A blank ends a path in LD_PRELOAD only; colons and semicolons end one in LD_LIBRARY_PATH, too."""
        for name, good in (("a b", True), ("a:b", False), ("a;b", False)):
            moved = os.path.join(self.root, name)
            os.mkdir(moved)
            shutil.copytree(self.bin, os.path.join(moved, "bin"))
            shutil.copytree(self.doors, os.path.join(moved, "lib/anyverbs"))
            open(os.path.join(moved, "lib/anyverbs/libanyverbs-preload-libasan.so"), "w").close()
            done = subprocess.run([os.path.join(moved, "bin/anyverbs"), "run", "sh", "-c", 'echo "$LD_LIBRARY_PATH|$LD_PRELOAD"'], env=self.env,
                                  capture_output=True, text=True, timeout=30, check=False)
            if good:
                self.assertEqual((done.returncode, done.stdout), (0, f"{moved}/lib/anyverbs|libanyverbs-preload-libasan.so\n"))
            else:
                self.assertEqual((done.returncode, done.stdout), (126, ""))
                self.assertIn("must have no ':' or ';' in its name", done.stderr)

    def test_run_exit_codes(self):
        self.assertEqual(self.run_command("run", "sh", "-c", "exit 7").returncode, 7)
        done = self.run_command("run", "no-such-program")
        self.assertEqual(done.returncode, 127)
        self.assertIn("no-such-program: No such file", done.stderr)
        done = self.run_command("run", "/")
        self.assertEqual(done.returncode, 126)
        os.remove(os.path.join(self.doors, "libibverbs.so.1"))
        done = self.run_command("run", "true")
        self.assertEqual(done.returncode, 126)
        self.assertIn("libibverbs.so.1", done.stderr)

    def test_run_takes_settings(self):
        show = ("sh", "-c", 'echo "$ANYVERBS_LOG|$ANYVERBS_REST_S|$1"', "sh")
        done = self.run_command("run", "ANYVERBS_LOG=warn", "ANYVERBS_REST_S=7", *show, "ANYVERBS_LOG=x")
        self.assertEqual((done.stdout, done.stderr), ("warn|7|ANYVERBS_LOG=x\n", ""))
        done = self.run_command("run", "--", "ANYVERBS_LOG=warn")  # a program's name
        self.assertEqual(done.returncode, 127)
        done = self.run_command("run", "ANYVERBS_LOG=loud", "true")
        self.assertEqual(done.returncode, 0)
        self.assertIn("warning: ANYVERBS_LOG=loud: it takes error, warn", done.stderr)
        self.assertIn("no variable of anyverbs", self.run_command("run", "ANYVERBS_LOGS=1", "true").stderr)

    def test_help_lists_the_settings(self):
        done = self.run_command("help", "settings")
        listed = re.findall(r"^  (ANYVERBS_\w+)=", done.stdout, re.M)
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../man/anyverbs.1"), encoding="utf-8") as page:
            page = page.read()
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../man/anyverbsd.8"), encoding="utf-8") as daemon:
            page += daemon.read()
        self.assertGreater(len(listed), 10)
        for name in listed:
            self.assertRegex(page, rf"(?m)^\.B {name}$")

    def test_run_passes_signals_and_arguments(self):
        done = self.run_command("run", "printf", "%s.", "--help", "a b", "")
        self.assertEqual(done.stdout, "--help.a b..")
        self.assertEqual(self.run_command("run", "sh", "-c", "kill -TERM $$").returncode, -signal.SIGTERM)

    def test_run_starts_the_node(self):
        begin = time.monotonic()
        done = subprocess.run(["sh", "-c", 'echo "[$(anyverbs run pwd)]"'], env=self.env, capture_output=True, text=True,
                              timeout=60)
        self.assertEqual(done.stdout, f"[{os.getcwd()}]\n")
        self.assertLess(time.monotonic() - begin, 5)
        self.assertEqual(self.read("infiniband", "roce0", "node_type"), "1: CA\n")

    def test_run_without_a_node_warns(self):
        os.remove(os.path.join(self.bin, "anyverbsd"))
        done = self.run_command("run", "echo", "done", ANYVERBS_DAEMON="/nonexistent")
        self.assertEqual((done.returncode, done.stdout), (0, "done\n"))
        self.assertIn("node cannot be started", done.stderr)

    def test_command_substitution_ends_although_the_node_stays(self):
        begin = time.monotonic()
        done = subprocess.run(["sh", "-c", 'echo "[$(anyverbs run node_attach 0)]"'], env=self.env, capture_output=True,
                              text=True, timeout=60)
        self.assertLess(time.monotonic() - begin, 5)
        self.assertRegex(done.stdout, r"^\[\d+ \d+ \d+\]\n$")
        self.assertEqual(done.stderr, "")
        self.assertTrue(self.status()["running"])

    # ---- status and stop ----

    def test_a_node_that_was_killed_is_waited_for(self):
        """While a process holds what it gave; without one there is no next node."""
        child, _, _, node = self.attach()
        record = os.path.join(self.root, "x.pcapng")
        for words, expected in ((("device", "list"), "roce0"), (("status",), "roce0"), (("top", "--once"), "roce0"), (("device", "add", "roce3"), ""),
                                (("capture", "--seconds", "0.01", record), ""), (("qp", "1", "2"), None)):
            os.kill(node, signal.SIGKILL)
            done = self.run_command(*words)
            self.assertIn("no process of the node" if expected is None else expected, done.stdout + done.stderr, words)
            self.assertEqual(done.returncode, 1 if expected is None else 0, (words, done.stderr))
            node = self.status()["pid"]
        child.kill()
        child.wait()
        os.kill(node, signal.SIGKILL)
        self.assertFalse(self.status()["running"])
        self.assertIn("no node is up", self.run_command("device", "list").stderr)

    def test_nobody_else_may_read_a_capture(self):
        new, old = (os.path.join(self.root, name) for name in ("new.pcapng", "old.pcapng"))
        open(old, "w").close()
        os.chmod(old, 0o644)
        for record, mode in ((new, 0o600), (old, 0o644)):
            self.assertEqual(self.run_command("capture", "--seconds", "0.01", record).returncode, 0)
            self.assertEqual(os.stat(record).st_mode & 0o777, mode)

    def test_status_without_a_node(self):
        done = self.run_command("status")
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        done = self.run_command("status", "--json")
        self.assertEqual((done.returncode, json.loads(done.stdout)), (1, {"running": False}))

    def test_status_shows_device_and_processes(self):
        child, slot, process, node = self.attach()
        s = self.status()
        self.assertEqual((s["running"], s["node"], s["pid"]), (True, self.env["ANYVERBS_NODE"], node))
        self.assertTrue(s["folder"].startswith(self.runtime))
        device = s["devices"][0]
        self.assertEqual(device["name"], "roce0")
        self.assertEqual(device["ports"][0]["state"], "ACTIVE")
        gids = device["ports"][0]["gids"]
        self.assertEqual([g["index"] for g in gids[:2]], [0, 1])
        self.assertTrue(gids[0]["gid"].startswith("fe80::"))
        self.assertTrue(gids[1]["gid"].startswith("::ffff:127."))
        self.assertEqual(len(s["processes"]), 1)
        p = s["processes"][0]
        self.assertEqual((p["process"], p["pid"], p["slots"], p["slot_count"]), (process, child.pid, [slot], 1))
        self.assertEqual(p["command"], "node_attach")
        self.assertEqual(p["qps"], [{"qpn": slot << 14 | 1000, "type": "RC", "state": "RTS", "peer_qpn": 77, "sent": 3,
                                     "sent_bytes": 300, "received": 4, "received_bytes": 400, "errors": 5}])
        self.assertEqual((p["counters"]["rx_packets"], p["counters"]["direct_operations"]), (12345, 42))
        text = self.run_command("status").stdout
        qp = f"QP 0x{slot << 14 | 1000:06x} RC RTS   -> 0x00004d  sent 3 (300 B), received 4 (400 B), errors 5"
        for word in ("roce0", "ACTIVE", "node_attach", str(child.pid), gids[1]["gid"], qp, "counters: rx_packets 12345, direct_operations 42\n"):
            self.assertIn(word, text)

    def test_status_of_many_processes(self):
        expected = sorted(self.attach()[2] for _ in range(20))
        self.assertEqual([p["process"] for p in self.status()["processes"]], expected)

    def test_stop(self):
        self.assertEqual(self.run_command("stop").returncode, 0)
        child, slot, process, node = self.attach()
        done = self.run_command("stop")
        self.assertEqual(done.returncode, 1)
        self.assertIn("attached", done.stderr)
        self.assertTrue(self.status()["running"])
        child.kill()
        child.wait()
        for _ in range(100):
            done = self.run_command("stop")
            if done.returncode == 0:
                break
            time.sleep(0.02)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        self.assertEqual(self.status(), {"running": False})

    def test_stop_by_force(self):
        child = self.attach()[0]
        self.assertEqual(self.run_command("stop", "--force").returncode, 0)
        child.kill()  # while it lives it has a next node
        child.wait()
        self.assertEqual(self.status(), {"running": False})

    def test_daemon_by_hand(self):
        child = subprocess.Popen(["anyverbsd"], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.children.append(child)
        for _ in range(200):
            if self.status()["running"]:
                break
            time.sleep(0.02)
        self.assertEqual(self.status()["pid"], child.pid)
        second = subprocess.run(["anyverbsd"], env=self.env, capture_output=True, text=True, timeout=60)
        self.assertEqual(second.returncode, 1)
        self.assertIn("up already", second.stderr)
        self.assertEqual(subprocess.run(["anyverbsd", "--spawned"], env=self.env, timeout=60).returncode, 0)
        self.assertEqual(subprocess.run(["anyverbsd", "--bad"], env=self.env, capture_output=True).returncode, 2)
        child.send_signal(signal.SIGINT)
        self.assertEqual(child.wait(10), 0)

    def port_shows(self, state, downs):
        port = self.status()["devices"][0]["ports"][0]
        self.assertEqual((port["state"], port["link_downed"]), (state, downs))
        self.assertIn(f"port 1 {state}", self.run_command("status").stdout)

    def test_port(self):
        for words in (["down"], ["roce0", "down"]):
            done = self.run_command("port", *words)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
            self.port_shows("DOWN", 1)
        done = self.run_command("port", "roce9", "up")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("roce9", done.stderr)
        self.port_shows("DOWN", 1)
        self.assertEqual(self.run_command("port", "roce0", "up").returncode, 0)
        self.port_shows("ACTIVE", 1)
        self.run_command("stop")
        self.attach()
        self.port_shows("ACTIVE", 0)

    def device_names(self):
        return [device["name"] for device in self.status()["devices"]]

    def test_device_comes_and_goes(self):
        self.assertEqual(self.run_command("device", "list").returncode, 1)
        self.attach(ANYVERBS_DEVICES="roce0,roce3")
        self.assertEqual(self.device_names(), ["roce0", "roce3"])
        self.assertIn("device roce3 has a loopback address", self.run_command("status").stdout)
        done = self.run_command("device", "add", "roce1")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        self.assertEqual(self.device_names(), ["roce0", "roce3", "roce1"])
        guids = [device["node_guid"] for device in self.status()["devices"]]
        self.assertEqual(len(set(guids)), 3)
        self.assertEqual(self.run_command("port", "roce1", "down").returncode, 0)
        self.assertEqual([device["ports"][0]["state"] for device in self.status()["devices"]],
                         ["ACTIVE", "ACTIVE", "DOWN"])
        self.assertEqual(self.run_command("device", "list").stdout,
                         f"roce0 {guids[0]} ACTIVE\nroce3 {guids[1]} ACTIVE\nroce1 {guids[2]} DOWN\n")
        for words, code, why in ((["add", "roce1"], 1, "there already"), (["remove", "roce2"], 1, "no device"),
                                 (["remove", "roce0"], 1, "first"), (["add", "mlx5_0"], 2, "roce and a number")):
            done = self.run_command("device", *words)
            self.assertEqual((done.returncode, done.stdout), (code, ""), words)
            self.assertIn(why, done.stderr)
        for name in ("roce1", "roce3"):
            self.assertEqual(self.run_command("device", "remove", name).returncode, 0)
        self.assertEqual(self.device_names(), ["roce0"])
        self.assertNotIn("has a loopback address", self.run_command("status").stdout)

    # ---- apart ----

    def test_two_nodes_do_not_see_each_other(self):
        other = self.env["ANYVERBS_NODE"] + "-b"
        first = self.attach()
        second = self.attach(ANYVERBS_NODE=other)
        a, b = self.status(), self.status(ANYVERBS_NODE=other)
        self.assertNotEqual(a["pid"], b["pid"])
        self.assertNotEqual(a["folder"], b["folder"])
        self.assertNotEqual(a["devices"][0]["node_guid"], b["devices"][0]["node_guid"])
        for i in (0, 1):
            self.assertNotEqual(a["devices"][0]["ports"][0]["gids"][i]["gid"], b["devices"][0]["ports"][0]["gids"][i]["gid"])
        self.assertEqual([p["process"] for p in a["processes"]], [first[2]])
        self.assertEqual([p["process"] for p in b["processes"]], [second[2]])
        self.assertEqual(self.run_command("stop", "--force").returncode, 0)
        self.assertTrue(self.status(ANYVERBS_NODE=other)["running"])
        self.run_command("stop", "--force", ANYVERBS_NODE=other)

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "needs root and setpriv")
    def test_two_users_do_not_see_each_other(self):
        nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        mine, theirs = self.attach(), self.attach(prefix=nobody)
        self.assertNotEqual(mine[3], theirs[3])

        def as_nobody(*words):
            return subprocess.run([*nobody, "anyverbs", *words], env=self.env, capture_output=True, text=True, timeout=30)
        a, b = self.status(), json.loads(as_nobody("status", "--json").stdout)
        self.assertNotEqual(a["devices"][0]["node_guid"], b["devices"][0]["node_guid"])
        self.assertNotEqual(a["folder"], b["folder"])
        self.assertEqual(os.stat(b["folder"]).st_uid, 65534)
        self.assertEqual(os.stat(b["folder"]).st_mode & 0o777, 0o700)
        self.assertEqual([p["process"] for p in a["processes"]], [mine[2]])
        self.assertEqual([p["process"] for p in b["processes"]], [theirs[2]])
        self.assertEqual(as_nobody("stop", "--force").returncode, 0)
        self.assertTrue(self.status()["running"])
        shutil.rmtree(b["folder"], ignore_errors=True)

    def squat(self, listen, full=False):
        """Another user's process that has the node's abstract address first."""
        squatter = ("import socket, sys, time\n"
                    "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
                    f"s.bind('\\0anyverbs/0/{self.env['ANYVERBS_NODE']}')\n"
                    f"{'s.listen(0)' if listen else ''}\n"
                    "more = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(8)]\n"
                    f"for m in more if {full} else ():\n"
                    "    m.setblocking(False)\n"
                    "    m.connect_ex(s.getsockname())\n"
                    "print(flush=True)\ntime.sleep(60)\n")
        child = subprocess.Popen([*NOBODY, "/usr/bin/python3", "-c", squatter], stdout=subprocess.PIPE)
        self.children.append(child)
        child.stdout.readline()
        return child

    def linger(self, count):
        """Another user's process that passes the node sockets whose close waits for an hour; the node closes them last."""
        script = ("import socket, struct, sys\n"
                  "tcp = socket.socket()\n"
                  "tcp.bind(('127.0.0.1', 0))\n"
                  "tcp.listen(1)\n"
                  "kept = []\n"
                  f"for _ in range({count}):\n"
                  "    c = socket.create_connection(tcp.getsockname())\n"
                  "    kept.append(tcp.accept())  # reads nothing\n"
                  "    c.setblocking(False)\n"
                  "    try:\n"
                  "        while True: c.send(bytes(65536))\n"
                  "    except BlockingIOError: pass\n"
                  "    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 3600))\n"
                  "    x = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
                  f"    x.connect('\\0anyverbs/0/{self.env['ANYVERBS_NODE']}')\n"
                  "    socket.send_fds(x, [b'hello'], [c.fileno()])\n"
                  "    socket.close(c.detach())\n"
                  "    kept.append(x)\n"
                  "print(flush=True)\nsys.stdin.read()\n")
        child = subprocess.Popen([*NOBODY, "/usr/bin/python3", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.children.append(child)
        self.assertEqual(child.stdout.readline(), b"\n")
        return child

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "needs root and setpriv")
    def test_another_user_passes_sockets_that_linger(self):
        first = self.attach()
        for count in (1, 80):
            os.kill(first[3], signal.SIGSTOP)  # so that it does not refuse a socket before something lies in it
            stranger = self.linger(count)
            os.kill(first[3], signal.SIGCONT)
            self.assertEqual(self.attach()[3], first[3])
            stranger.kill()
            stranger.wait()

    def in_spite_of_a_squatter(self, squatter):
        first = self.attach()
        second = self.attach()
        self.assertEqual(first[3], second[3])
        self.assertEqual(self.status()["pid"], first[3])
        squatter.kill()
        squatter.wait()
        # where nobody has the address there is no second node
        third = self.attach()
        self.assertEqual(third[3], first[3])
        self.assertEqual(len(self.status()["processes"]), 3)
        self.assertEqual(self.run_command("stop", "--force").returncode, 0)
        fourth = self.attach()
        self.assertNotEqual(fourth[3], first[3])
        self.assertNotIn(fourth[1], (first[1], second[1], third[1]))

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "needs root and setpriv")
    def test_another_user_listens_at_our_address(self):
        self.in_spite_of_a_squatter(self.squat(True))

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "needs root and setpriv")
    def test_another_user_listens_at_our_address_and_accepts_nobody(self):
        self.in_spite_of_a_squatter(self.squat(True, full=True))

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "needs root and setpriv")
    def test_another_user_has_our_address(self):
        self.in_spite_of_a_squatter(self.squat(False))

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "needs root and setpriv")
    def test_nodes_that_start_at_once_at_a_taken_address_are_one(self):
        self.squat(True)
        several = [subprocess.Popen(["node_attach", "60"], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                   for _ in range(8)]
        self.children += several
        lines = [child.stdout.readline().split() for child in several]
        self.assertEqual(len({line[0] for line in lines}), 8, lines)
        self.assertEqual(len({line[2] for line in lines}), 1, lines)

    @unittest.skipUnless(os.geteuid() == 0 and subprocess.run([*NOBODY, "unshare", "-Ur", "true"], capture_output=True).returncode == 0,
                         "needs root, setpriv and user namespaces")
    def test_root_of_a_user_namespace_has_a_node_of_its_own(self):
        runtime = os.path.join(self.root, "theirs")
        os.mkdir(runtime, 0o700)
        os.chown(runtime, 65534, 65534)
        inside = [*NOBODY, "unshare", "-Ur"]
        for mine_first in (True, False):
            with self.subTest(mine_first=mine_first):
                self.env["ANYVERBS_NODE"] += "-x"
                env = {"XDG_RUNTIME_DIR": runtime}
                mine = self.attach() if mine_first else None
                theirs = self.attach(prefix=inside, **env)
                mine = mine or self.attach()
                self.assertEqual([p["process"] for p in self.status()["processes"]], [mine[2]])
                done = subprocess.run([*inside, "anyverbs", "status", "--json"], env={**self.env, **env}, capture_output=True,
                                      text=True, timeout=30)
                b = json.loads(done.stdout)
                self.assertEqual([p["process"] for p in b["processes"]], [theirs[2]])
                self.assertNotEqual(self.status()["devices"][0]["node_guid"], b["devices"][0]["node_guid"])
                self.assertEqual([a["udp"] for a in b["addresses"]], ["open"])
                theirs[0].kill()
                subprocess.run([*inside, "anyverbs", "stop", "--force"], env={**self.env, **env}, timeout=30)
                self.run_command("stop", "--force")

    @unittest.skipUnless(subprocess.run(["unshare", "-rn", "true"], capture_output=True).returncode == 0, "needs unshare")
    def test_network_namespaces_do_not_see_each_other(self):
        inside = ("unshare", "-n") if os.geteuid() == 0 else ("unshare", "-rn")
        mine, theirs = self.attach(), self.attach(prefix=inside)
        self.assertNotEqual(mine[3], theirs[3])
        self.assertEqual([p["process"] for p in self.status()["processes"]], [mine[2]])
        enter = ["nsenter", "-t", str(theirs[0].pid), "-n", *([] if os.geteuid() == 0 else ["-U", "--preserve-credentials"])]
        done = subprocess.run([*enter, "anyverbs", "status", "--json"], env=self.env, capture_output=True, text=True)
        b = json.loads(done.stdout)
        self.assertEqual([p["process"] for p in b["processes"]], [theirs[2]])
        self.assertNotEqual(self.status()["folder"], b["folder"])
        gids = b["devices"][0]["ports"][0]["gids"]
        self.assertEqual(len(gids), 2)  # no interface at all: the device works nevertheless
        os.kill(b["pid"], signal.SIGKILL)

    # ---- addresses and files ----

    @unittest.skipUnless(subprocess.run(["unshare", "-n", "ip", "link", "add", "t0", "type", "veth"],
                                        capture_output=True).returncode == 0, "needs root, ip and veth")
    def test_addresses_come_and_go(self):
        default = {"ANYVERBS_NODE": "default", "ANYVERBS_ADDR": ""}
        child = self.attach(prefix=("unshare", "-n"), **default)[0]
        inside = ("nsenter", "-t", str(child.pid), "-n")

        def look():
            done = subprocess.run([*inside, "anyverbs", "status", "--json"], env={**self.env, **default},
                                  capture_output=True, text=True)
            status = json.loads(done.stdout)
            return status["devices"][0]["ports"][0]["gids"], f"{status['folder']}/sys/class/infiniband/roce0/ports/1/gids/"

        def is_in_tree(gid, folder):
            try:
                with open(f"{folder}{gid['index']}") as f:
                    return ipaddress.ip_address(f.read().strip()) == ipaddress.ip_address(gid["gid"])
            except FileNotFoundError:
                return False

        def gids():
            deadline = time.monotonic() + 60
            while True:  # the tree says the same, but for a change between the two looks
                shown, folder = look()
                if all(is_in_tree(g, folder) for g in shown):
                    return {g["index"]: g["gid"] for g in shown if not g["gid"].startswith("fe80:")}
                self.assertLess(time.monotonic(), deadline, shown)

        def change(*words, until):
            subprocess.run([*inside, "ip", *words], check=True)
            deadline = time.monotonic() + 60
            while not until(gids()) and time.monotonic() < deadline:
                time.sleep(0.05)
            self.assertTrue(until(gids()), gids())
        self.assertTrue(gids()[1].startswith("::ffff:127."))
        subprocess.run([*inside, "ip", "link", "add", "t0", "type", "veth", "peer", "name", "t1"], check=True)
        subprocess.run([*inside, "ip", "link", "set", "t0", "up"], check=True)
        change("addr", "add", "10.9.8.1/24", "dev", "t0", until=lambda g: g.get(1) == "::ffff:10.9.8.1")
        change("addr", "add", "10.9.8.2/24", "dev", "t0", until=lambda g: "::ffff:10.9.8.2" in g.values())
        where = [i for i, g in gids().items() if g == "::ffff:10.9.8.2"][0]
        change("addr", "add", "10.9.9.3/24", "dev", "t0", until=lambda g: "::ffff:10.9.9.3" in g.values())
        self.assertEqual(gids()[where], "::ffff:10.9.8.2")
        change("addr", "flush", "dev", "t0", until=lambda g: g.get(1, "").startswith("::ffff:127."))
        self.assertEqual(list(gids()), [1])
        subprocess.run([*inside, "anyverbs", "stop", "--force"], env={**self.env, **default})

    def test_addr_gives_a_node_its_address(self):
        self.attach(ANYVERBS_ADDR="10.1.2.3, fd00::5,nonsense")
        gids = [g["gid"] for g in self.status()["devices"][0]["ports"][0]["gids"]]
        self.assertEqual(gids[1:], ["::ffff:10.1.2.3", "fd00::5"])

    def read(self, *path):
        with open(os.path.join(self.status()["devices"][0]["sysfs"], "class", *path)) as f:
            return f.read()

    def test_sysfs_tree_has_the_kernels_formats(self):
        self.attach()
        device = self.status()["devices"][0]
        port = ("infiniband", "roce0", "ports", "1")
        self.assertRegex(self.read("infiniband", "roce0", "node_guid"), r"^[0-9a-f]{4}(:[0-9a-f]{4}){3}\n$")
        self.assertEqual(self.read("infiniband", "roce0", "node_guid").replace(":", "").strip(), device["node_guid"])
        self.assertEqual(self.read("infiniband", "roce0", "node_type"), "1: CA\n")
        self.assertEqual(self.read(*port, "state"), "4: ACTIVE\n")
        self.assertEqual(self.read(*port, "phys_state"), "5: LinkUp\n")
        self.assertEqual(self.read(*port, "rate"), "100 Gb/sec (4X EDR)\n")
        self.assertEqual(self.read(*port, "link_layer"), "Ethernet\n")
        self.assertEqual(self.read(*port, "pkeys", "0"), "0xffff\n")
        self.assertRegex(self.read(*port, "gids", "0"), r"^fe80:0000:0000:0000(:[0-9a-f]{4}){4}\n$")
        self.assertEqual(self.read(*port, "gids", "63"), ":".join(["0000"] * 8) + "\n")
        self.assertEqual(self.read(*port, "gid_attrs", "types", "0"), "RoCE v2\n")
        self.assertEqual(self.read(*port, "gid_attrs", "ndevs", "1"), "lo\n")
        self.assertEqual(self.read("infiniband_verbs", "uverbs0", "ibdev"), "roce0\n")
        self.assertRegex(self.read("infiniband_verbs", "uverbs0", "dev"), r"^\d+:\d+\n$")
        self.assertEqual(self.read("infiniband_verbs", "abi_version"), "6\n")
        for attr in "types", "ndevs":
            self.assertEqual(self.read(*port, "gid_attrs", attr, "63"), "")
        self.assertEqual(os.listdir(os.path.join(device["sysfs"], "dev/infiniband")), ["uverbs0"])

    @unittest.skipIf(os.environ.get("AV_SANITIZE"), "a program of the distribution loads no sanitized library")
    def test_device_is_a_link_to_programs(self):
        """With the shim, which leads what the link's text names into the tree, and without it."""
        def on(*words):
            env = {**self.env, "LD_PRELOAD": os.path.join(BUILD, "lib/anyverbs/libanyverbs-preload.so")}
            return subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=True).stdout

        self.attach()
        path, function = "/sys/class/infiniband/roce0/device", "/sys/devices/anyverbs/roce0"
        tree = self.status()["devices"][0]["sysfs"]
        self.assertEqual(os.path.realpath(tree + path[4:]), os.path.realpath(tree + function[4:]))
        self.assertEqual(on("readlink", path), "../../../devices/anyverbs/roce0\n")
        self.assertEqual(on("stat", "-c", "%F", path), "symbolic link\n")
        self.assertIn(" device -> ../../../devices/anyverbs/roce0\n", on("ls", "-l", os.path.dirname(path)))
        self.assertEqual(on("readlink", "-f", path), f"{function}\n")
        self.assertEqual(on("python3", "-c", f"import os; print(os.path.realpath('{path}'))"), f"{function}\n")
        for file in "infiniband_verbs/uverbs0", "infiniband_mad/umad0":
            self.assertEqual(on("readlink", "-f", f"/sys/class/{file}/device"), f"{function}\n")
            self.assertEqual(on("ls", "-d", f"{function}/{file}"), f"{function}/{file}\n")
            # what libibverbs looks for, and no function has that is on no bus
            on("test", "-e", f"/sys/class/{file}/device/numa_node")
            on("test", "!", "-e", f"/sys/class/{file}/device/modalias")
        for folder in path, function:
            self.assertEqual(on("cat", f"{folder}/numa_node"), "-1\n")
            self.assertEqual(on("ls", f"{folder}/infiniband", f"{folder}/infiniband_verbs", f"{folder}/net").split()[1::2], ["roce0", "uverbs0", "lo"])

    def test_folder_of_somebody_else_is_not_used(self):
        os.mkdir(os.path.join(self.runtime, "anyverbs"), 0o755)
        self.attach()
        self.assertFalse(self.status()["folder"].startswith(self.runtime))
        self.assertNotEqual(self.status()["folder"], "")
        shutil.rmtree(self.status()["folder"])

    def test_folder_of_a_node_is_not_touched_by_a_second_daemon(self):
        """Somebody has the address and does not listen, so both daemons come to the folder, and one has its lock."""
        daemon = ["anyverbsd", "--node", self.env["ANYVERBS_NODE"]]
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as squatter:
            squatter.bind(f"\0anyverbs/{os.geteuid()}/{self.env['ANYVERBS_NODE']}")
            first = subprocess.Popen(daemon, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.children.append(first)
            status = self.status_when_up()
            before = os.stat(status["folder"]).st_mtime_ns
            second = subprocess.run(daemon, env=self.env, capture_output=True, timeout=60, check=False)
            self.assertNotEqual(second.returncode, 0)
            self.assertEqual(os.stat(status["folder"]).st_mtime_ns, before)
            self.assertEqual(self.status()["pid"], status["pid"])

    def test_folder_goes_with_the_node(self):
        child = self.attach()[0]
        folder = self.status()["folder"]
        self.assertTrue(os.path.exists(folder + "/slots"))
        self.run_command("stop", "--force")  # somebody holds a slot: everything stays
        self.assertTrue(os.path.exists(folder + "/slots"))
        child.kill()
        child.wait()
        child = self.attach()[0]
        child.kill()
        child.wait()
        for _ in range(100):
            if self.run_command("stop").returncode == 0:
                break
            time.sleep(0.02)
        self.assertFalse(os.path.exists(folder))

    @unittest.skipUnless(subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0, "needs root")
    def test_works_without_any_writable_folder(self):
        script = ("mount -t tmpfs none /dev/shm && touch /dev/shm/anyverbs-0 && mount -t tmpfs none /run && "
                  "mount --bind /tmp /mnt && mount -t tmpfs none /tmp && touch /tmp/anyverbs-0 && "
                  f"export PATH=/mnt/{os.path.basename(self.root)}/bin:$PATH && "
                  "node_attach 0.2 && exec node_attach 60")
        # a sanitizer's file of suppressions, if the tree lies below /tmp
        moved = {k: v.replace("=/tmp/", "=/mnt/") for k, v in self.env.items() if k.endswith("SAN_OPTIONS")}
        child = subprocess.Popen(["unshare", "-m", "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 text=True, env={**self.env, "XDG_RUNTIME_DIR": "", "ANYVERBS_LOG": "error", **moved})
        self.children.append(child)
        first, second = child.stdout.readline().split(), child.stdout.readline().split()
        self.assertEqual((len(first), len(second)), (3, 3))
        self.assertNotEqual(first[0], second[0])
        s = self.status()
        self.assertEqual((s["folder"], s["devices"][0]["sysfs"], len(s["processes"])), ("", "", 1))

    def test_log_goes_into_the_folder(self):
        self.attach(ANYVERBS_LOG="info")
        with open(os.path.join(self.status()["folder"], "log")) as f:
            self.assertIn("is up", f.read())

    # ---- fabric ----

    def fabric(self, *words, code=0):
        done = self.run_command("fabric", *words)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr

    def ports(self, name):
        nodes = json.loads(self.fabric("show", "--json"))["nodes"]
        return {p["port"]: p for n in nodes if n["description"].split()[0] == name for p in n["ports"]}

    def daemon(self):
        """The pid of the daemon that has the folder locked."""
        folder = os.stat(os.path.join(self.runtime, "anyverbs", self.env["ANYVERBS_NODE"] + "-fabric"))
        with open("/proc/locks") as f:
            return [int(line.split()[4]) for line in f if "FLOCK" in line and line.split()[5].endswith(f":{folder.st_ino}")][0]

    def test_goes_up_and_down(self):
        self.assertIn("no fabric is up", self.fabric("show", code=1))
        self.fabric("up", "--topology", "fat-tree:2x2,radix=8")
        self.assertIn("is up already", self.fabric("up", code=1))
        self.assertIn("3 switches, 4 CAs, 8 links", self.fabric("show"))
        hosts = [line.split() for line in self.fabric("hosts").splitlines()]
        self.assertEqual([words[0] for words in hosts], ["h1", "h2", "h3", "h4"])
        self.assertEqual([words[-1] for words in hosts], [f"127.64.0.{n}" for n in (1, 2, 3, 4)])
        self.assertEqual(self.fabric("show", "--dot").count(" -- "), 8)
        self.fabric("down")
        self.assertIn("no fabric is up", self.fabric("down", code=1))

    @unittest.skipIf(shutil.which("dot") is None, "graphviz is not installed")
    def test_draws_the_fabric(self):
        self.fabric("up", "--topology", "star:3,speed=HDR")
        self.fabric("link", "h2:1", "down")
        self.fabric("error", "leaf1:3", "symbol", "7")
        drawn = xml.etree.ElementTree.fromstring(self.fabric("show", "--svg"))
        words = [t.text for t in drawn.iter("{http://www.w3.org/2000/svg}text")]
        self.assertEqual([words.count(w) for w in ("leaf1", "h1 ib0", "200", "CUT", "7 errors")], [1, 1, 2, 1, 1], words)

    def test_says_where_a_topology_is_wrong(self):
        self.assertIn("star:x:1:6:", self.fabric("up", "--topology", "star:x", code=1))
        self.assertIn('star has no option "hosts"', self.fabric("up", "--topology", "star:2,hosts=3", code=1))
        with open(os.path.join(self.root, "net"), "w") as f:
            f.write('Switch 8 "a"\n[1] "b"[1]\n')
        self.assertIn('net:2:5: there is no node "b"', self.fabric("up", f.name, code=1))
        self.assertIn("netx: No such file", self.fabric("up", f.name + "x", code=1))
        self.assertIn("Is a directory", self.fabric("up", self.root, code=1))

    def test_says_which_word_is_wrong(self):
        self.assertIn("is `--topology star:2` meant", self.fabric("up", "star:2", code=1))
        for words in ("--nosm",), ("star", "--nosm"), ("--topology", "star:2", "--topology"), ("--topology=star:2", "--nosm"):
            self.assertIn(f"not here: {words[-1]}", self.fabric("up", *words, code=2))
        for words in ("fabric", "up", "--help"), ("ipoib", "down", "-h"):
            self.assertIn(f"usage: anyverbs {words[0]}", self.run_command(*words).stdout)
        self.assertIn("no value: --host", self.run_command("run", "--host").stderr)

    def test_reads_a_topology_from_a_pipe(self):
        done = subprocess.run(["anyverbs", "fabric", "up", "--no-sm", "/dev/stdin"], env=self.env, capture_output=True, text=True,
                              input='Hca 1 "h1"\n[1] "h2"[1]\nHca 1 "h2"\n', timeout=30)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("0 switches, 2 CAs", self.fabric("show"))
        self.fabric("down")

    def test_changes_while_it_is_up(self):
        self.fabric("up", "--no-sm", "--topology", "star:3")
        self.assertEqual(self.ports("leaf1")[2]["state"], "INIT")
        self.fabric("link", "h2:1", "down")
        self.assertEqual(self.ports("leaf1")[2]["state"], "CUT")
        self.fabric("link", "leaf1:2", "up")
        self.assertEqual(self.ports("leaf1")[2]["state"], "INIT")
        self.fabric("error", "leaf1:1", "symbol", "7")
        self.assertEqual(self.ports("leaf1")[1]["symbol"], 7)
        self.fabric("error", "h1:1", "symbol", "2")  # the other end of that cable
        self.assertIn("\\n9 errors", self.fabric("show", "--dot"))
        self.assertIn("a counter is symbol", self.fabric("error", "leaf1:1", "bad", "7", code=2))
        for words in ("fail", "leaf1:1"), ("reboot", "h1:1"):
            self.assertIn("without a port", self.fabric(*words, code=2))
        self.assertEqual(self.ports("h3")[1]["state"], "INIT")
        self.fabric("fail", "leaf1")
        self.assertEqual({self.ports(f"h{i}")[1]["state"] for i in (1, 2, 3)}, {"CUT"})
        self.assertIn("has no cable", self.fabric("link", "leaf1:9", "up", code=1))
        self.assertIn("no node", self.fabric("reboot", "leaf2", code=1))
        self.fabric("reboot", "h1")

    def test_is_not_stopped_by_mistake(self):
        self.fabric("up", "--topology", "star:3")
        done = self.run_command("stop")
        self.assertEqual(done.returncode, 1)
        self.assertIn("carries a fabric", done.stderr)
        self.assertIn("1 switches, 3 CAs", self.fabric("show"))
        self.assertEqual(self.run_command("stop", "--force").returncode, 0)
        self.assertIn("no fabric is up", self.fabric("show", code=1))

    @unittest.skipIf(os.geteuid() != 0, "only root can hide another node of that name")
    def test_is_named_by_status(self):
        """A tool without ANYVERBS_NODE looks at another node, and says where the fabric is."""
        script = """mkdir -p /tmp/anyverbs-0 && mount -t tmpfs -o mode=700 tmpfs /tmp/anyverbs-0
            anyverbs status; echo; anyverbs fabric up && anyverbs status; anyverbs top --once; ANYVERBS_NODE=fabric anyverbs stop --force"""
        env = {k: v for k, v in self.env.items() if k not in ("ANYVERBS_NODE", "XDG_RUNTIME_DIR")}
        done = subprocess.run(["unshare", "--mount", "--net", "sh", "-c", script], env=env, capture_output=True, text=True, timeout=60)
        before, after = done.stdout.split("\n\n")
        self.assertNotIn("ANYVERBS_NODE", before)
        self.assertEqual(after.count("the fabric's node is: ANYVERBS_NODE=fabric"), 2, done)

    def test_says_why_a_node_does_not_answer(self):
        """It is stopped; it has no folder, here since its places are read-only. Each takes five seconds, all at once."""
        self.fabric("up", "--topology", "star:2")
        daemon = self.daemon()
        os.kill(daemon, signal.SIGSTOP)
        try:
            asks = [(words, f"node {self.env['ANYVERBS_NODE']} does not answer", self.env)
                    for words in (("anyverbs", "fabric", "hosts"), ("anyverbs", "status"), ("anyverbs", "stop"))]
            if os.geteuid() == 0:
                script = "; ".join(f"mkdir -p {p} && mount -t tmpfs -o ro,mode=700 tmpfs {p}" for p in ("/tmp/anyverbs-0", "/dev/shm/anyverbs-0"))
                env = {k: v for k, v in self.env.items() if k != "XDG_RUNTIME_DIR"}
                asks.append((("unshare", "--mount", "--net", "sh", "-c", script + "; anyverbs fabric up"), "It needs a folder", env))
            runs = [(subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True), why) for words, why, env in asks]
            for run, why in runs:
                self.assertIn(why, run.communicate(timeout=60)[1])
                self.assertEqual(run.returncode, 1)
        finally:
            os.kill(daemon, signal.SIGCONT)
        self.fabric("down")

    def test_survives_its_node(self):
        self.fabric("up", "--topology", "star:3")
        self.fabric("link", "h2:1", "down")
        os.kill(self.daemon(), signal.SIGKILL)
        self.assertEqual(self.ports("leaf1")[2]["state"], "CUT")
        self.fabric("down")

    @unittest.skipIf(os.geteuid() != 0, "only root can make a network namespace")
    def test_is_reached_from_other_network_namespaces(self):
        self.fabric("up", "--topology", "star:3")
        done = subprocess.run(["unshare", "-n", "anyverbs", "fabric", "show"], env=self.env, capture_output=True, text=True, timeout=30)
        self.assertIn("1 switches, 3 CAs", done.stdout, done.stderr)

    def test_run_names_the_host(self):
        done = self.run_command("run", "--host", "h2", "sh", "-c", "echo $ANYVERBS_HOST")
        self.assertEqual(done.stdout, "h2\n", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
