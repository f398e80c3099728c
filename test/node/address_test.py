#!/usr/bin/env python3
"""address_test.py: the node's addresses and links, on hosts of our own: network namespaces joined by a veth pair.

usage: address_test.py BUILD_DIR

Needs no right: an ordinary user gets them in a user namespace of his own. Where even that is forbidden it ends with 77: skipped.
"""
import ipaddress
import json
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

SKIPPED = 77
INSIDE = "ADDRESS_TEST_INSIDE"
BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else os.path.abspath("build")
RETRY = 60  # seconds: the node tries again within 5 at most; the rest is time for a busy machine
PORT = 4791
# A program of the distribution brings no sanitizer's runtime for our library (test/clients/run --sanitizer preloads it).
FOREIGN = unittest.skipIf(os.environ.get("AV_SANITIZE"), "a program of the distribution loads no sanitized library")
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def go_inside():
    """Goes on in a network namespace of its own, as the root of a user namespace if need be."""
    for how in (["unshare", "-n"], ["unshare", "-rn"]):
        if subprocess.run([*how, "ip", "link", "add", "t0", "type", "veth"], capture_output=True).returncode == 0:
            os.execvpe("unshare", [*how, sys.executable, *sys.argv[:1], BUILD, *sys.argv[1:]], {**os.environ, INSIDE: "1"})
    print("skipped: needs unshare, ip and veth: root, or user namespaces")
    sys.exit(SKIPPED)


def ip(*words, host=None):
    enter = ["nsenter", "-t", str(host), "-n"] if host else []
    subprocess.run([*enter, "ip", *words], check=True)


class Case(unittest.TestCase):
    count = 0

    def setUp(self):
        Case.count += 1
        self.root = tempfile.mkdtemp(prefix="anyverbs-address-")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("ANYVERBS_", "LD_", "XDG_"))}
        self.env.update(ANYVERBS_IDLE_S="60", ANYVERBS_LOG="info", XDG_RUNTIME_DIR=self.root,
                        PATH=f"{BUILD}/bin:{BUILD}/test:" + os.environ["PATH"])
        os.chmod(self.root, 0o700)
        self.children, self.nodes = [], []
        ip("link", "set", "lo", "up")

    def tearDown(self):
        for child in self.children:
            child.kill()
            child.communicate()
        for host, env in self.nodes:
            self.run_on(host, "anyverbs", "stop", "--force", **env)
        subprocess.run(["ip", "link", "del", "t0"], capture_output=True)
        shutil.rmtree(self.root, ignore_errors=True)

    def run_on(self, host, *words, **env):
        enter = ["nsenter", "-t", str(host), "-n"] if host else []
        return subprocess.run([*enter, *words], env={**self.env, **env}, capture_output=True, text=True, timeout=30)

    def begin(self, *words, host=None, **env):
        """A process of a node: the child, and the slot it has."""
        enter = ["nsenter", "-t", str(host), "-n"] if host else []
        child = subprocess.Popen([*enter, "node_attach", *(words or ["60"])], env={**self.env, **env}, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.children.append(child)
        self.nodes.append((host, env))
        line = child.stdout.readline().split()
        self.assertEqual(len(line), 3, line or child.stderr.read())
        return child, int(line[0])

    def status(self, host=None, **env):
        done = self.run_on(host, "anyverbs", "status", "--json", **env)
        self.assertNotEqual(done.stdout, "", done.stderr)
        return json.loads(done.stdout)

    def port(self, host=None, **env):
        return self.status(host, **env)["devices"][0]["ports"][0]

    def gids(self, **env):
        return {str(ipaddress.ip_address(g["gid"]).ipv4_mapped or ipaddress.ip_address(g["gid"])): g
                for g in self.port(**env)["gids"]}

    def udp(self, host=None, **env):
        return {a["address"]: a["udp"] for a in self.status(host, **env)["addresses"]}

    def until(self, what, expected, seconds=60):
        deadline = time.monotonic() + seconds
        while what() != expected and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertEqual(what(), expected)

    def log(self, **env):
        with open(self.status(**env)["folder"] + "/log") as f:
            return f.read()

    def sysfs(self, *path):
        with open(os.path.join(self.status()["devices"][0]["sysfs"], "class/infiniband/roce0/ports/1", *path)) as f:
            return f.read().strip()

    def veth(self, link_local=True):
        ip("link", "add", "t0", "type", "veth", "peer", "name", "t1")
        for end in ("t0", "t1") if not link_local else ():
            ip("link", "set", end, "addrgenmode", "none")
        ip("link", "set", "t0", "up")
        ip("link", "set", "t1", "up")

    def link_local(self):
        done = subprocess.run(["ip", "-6", "addr", "show", "dev", "t0", "scope", "link"], capture_output=True, text=True)
        return re.search(r"inet6 (fe80:[0-9a-f:]+)/", done.stdout).group(1)

    def other_host(self):
        """Another network namespace that has the other end of a veth pair: the pid of a process that keeps it."""
        child = subprocess.Popen(["unshare", "-n", "sh", "-c", "ip link set lo up; echo; exec sleep 600"],
                                 stdout=subprocess.PIPE, text=True)
        self.children.append(child)
        child.stdout.readline()
        self.veth()
        ip("link", "set", "t1", "netns", str(child.pid))
        ip("link", "set", "t1", "up", host=child.pid)
        ip("addr", "add", "10.9.8.1/24", "dev", "t0")
        ip("addr", "add", "fd09::1/64", "dev", "t0", "nodad")
        ip("addr", "add", "10.9.8.2/24", "dev", "t1", host=child.pid)
        ip("addr", "add", "fd09::2/64", "dev", "t1", "nodad", host=child.pid)
        self.until(lambda: "tentative" in subprocess.run(["ip", "addr"], capture_output=True, text=True).stdout, False)
        return child.pid

    # ---- the table ----

    def test_table_follows_the_interfaces(self):
        self.veth()
        ip("addr", "add", "10.9.8.1/24", "dev", "t0")
        self.begin()
        self.assertEqual(self.gids()["10.9.8.1"]["index"], 1)
        self.assertEqual({g["type"] for g in self.gids().values()}, {"RoCE v2"})
        ip("addr", "add", "fd09::1/64", "dev", "t0")
        self.until(lambda: "fd09::1" in self.gids(), True)
        local = self.link_local()
        self.until(lambda: local in self.gids(), True)
        for address in ("10.9.8.1", "fd09::1", local):
            self.until(lambda: self.gids()[address]["wire"], True)
            g = self.gids()[address]
            self.assertEqual((g["interface"], g["link"], g["mtu"]), ("t0", True, 1024), address)
            self.assertEqual(self.sysfs("gid_attrs/ndevs", str(g["index"])), "t0")
            self.assertEqual(self.sysfs("gid_attrs/types", str(g["index"])), "RoCE v2")
            self.assertEqual(ipaddress.ip_address(self.sysfs("gids", str(g["index"]))), ipaddress.ip_address(g["gid"]))
        where = self.gids()["fd09::1"]["index"]
        ip("addr", "del", "10.9.8.1/24", "dev", "t0")
        self.until(lambda: "10.9.8.1" in self.gids(), False)
        self.assertEqual(self.gids()["fd09::1"]["index"], where)
        ip("addr", "add", "10.9.8.1/24", "dev", "t0")  # its socket is still good
        self.until(lambda: self.gids().get("10.9.8.1", {}).get("wire"), True)
        ip("link", "set", "t0", "down")
        self.until(lambda: [a for a in self.gids() if a in ("10.9.8.1", "fd09::1", local)], [])

    def test_mtu_follows_the_interface(self):
        self.veth(link_local=False)  # which would come when it likes, and has less room for payload
        ip("addr", "add", "10.9.8.1/24", "dev", "t0")
        self.begin()
        for mtu, expected in ((1500, 1024), (9000, 4096), (2127, 1024), (2128, 2048), (576, 256), (592, 512), (4176, 4096)):
            ip("link", "set", "t0", "mtu", str(mtu))
            self.until(lambda: (self.port()["mtu"], self.gids()["10.9.8.1"]["mtu"]), (expected, expected))

    def test_table_and_mtu_follow_while_other_addresses_come_and_go(self):
        self.veth(link_local=False)
        ip("addr", "add", "10.9.8.1/24", "dev", "t0")
        self.begin()
        churn = subprocess.Popen(["bash", "-c", "exec ip -batch <(yes 'addr add 10.9.7.1/24 dev t1\naddr del 10.9.7.1/24 dev t1')"])
        self.children.append(churn)
        ip("addr", "add", "10.9.8.2/24", "dev", "t0")
        self.until(lambda: "10.9.8.2" in self.gids(), True, seconds=20)
        ip("link", "set", "t0", "mtu", "9000")
        self.until(lambda: self.gids()["10.9.8.1"]["mtu"], 4096, seconds=20)
        self.assertIsNone(churn.poll())

    # ---- the port ----

    def shows(self, state, downs):
        self.until(lambda: (self.port()["state"], self.port()["link_downed"]), (state, downs))
        self.assertEqual(self.sysfs("state"), {"ACTIVE": "4: ACTIVE", "DOWN": "1: DOWN"}[state])

    def test_port_follows_the_link(self):
        self.veth()
        ip("addr", "add", "10.9.8.1/24", "dev", "t0")
        self.begin()
        self.shows("ACTIVE", 0)
        ip("link", "set", "t1", "down")
        self.shows("DOWN", 1)
        self.assertFalse(self.gids()["10.9.8.1"]["link"])
        ip("link", "set", "t1", "up")
        self.shows("ACTIVE", 1)
        ip("link", "set", "t0", "down")
        self.shows("DOWN", 2)
        ip("link", "del", "t0")  # a host without interfaces works
        self.shows("ACTIVE", 2)

    def watch(self):
        """`ibv_asyncwatch`, an application that asks for asynchronous events."""
        child = subprocess.Popen(["anyverbs", "run", "stdbuf", "-oL", "ibv_asyncwatch", "-d", "roce0"], env=self.env,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.children.append(child)
        self.nodes.append((None, {}))
        self.hears(child, "async event FD")
        return child

    def hears(self, child, word, seconds=60):
        """Within that time."""
        said, deadline = b"", time.monotonic() + seconds
        while word not in said.decode() and time.monotonic() < deadline:
            if select.select([child.stdout], [], [], 0.2)[0]:
                said += os.read(child.stdout.fileno(), 4096)
        self.assertIn(word, said.decode())

    @FOREIGN
    @unittest.skipIf(shutil.which("ibv_asyncwatch") is None, "ibv_asyncwatch (ibverbs-utils) is not installed")
    def test_an_application_hears_of_addresses_and_links(self):
        self.veth()
        ip("addr", "add", "10.9.8.1/24", "dev", "t0")
        child = self.watch()
        for change in (("addr", "add", "10.9.8.2/24"), ("addr", "del", "10.9.8.2/24"), ("addr", "add", "fd09::1/64", "nodad")):
            while select.select([child.stdout], [], [], 1)[0]:  # of what was before
                os.read(child.stdout.fileno(), 4096)
            ip(*change[:3], "dev", "t0", *change[3:])
            self.hears(child, "IBV_EVENT_GID_CHANGE")
        ip("link", "set", "t1", "down")
        self.hears(child, "IBV_EVENT_PORT_ERR")
        ip("link", "set", "t1", "up")
        self.hears(child, "IBV_EVENT_PORT_ACTIVE")

    def test_port_command_goes_before_the_link(self):
        self.veth()
        ip("addr", "add", "10.9.8.1/24", "dev", "t0")
        self.begin()
        self.run_on(None, "anyverbs", "port", "down")
        self.shows("DOWN", 1)
        ip("link", "set", "t1", "down")
        self.until(lambda: self.gids()["10.9.8.1"]["link"], False)
        ip("link", "set", "t1", "up")
        self.until(lambda: self.gids()["10.9.8.1"]["link"], True)
        self.shows("DOWN", 1)
        self.run_on(None, "anyverbs", "port", "up")
        self.shows("ACTIVE", 1)
        ip("link", "set", "t1", "down")
        self.shows("DOWN", 2)
        self.run_on(None, "anyverbs", "port", "up")
        self.shows("ACTIVE", 2)
        ip("link", "set", "t1", "up")
        self.until(lambda: self.gids()["10.9.8.1"]["link"], True)
        ip("link", "set", "t1", "down")
        self.shows("DOWN", 3)

    # ---- whose address it is ----

    def squat(self):
        """A node whose UDP port another program has: that program's socket."""
        squatter = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(squatter.close)
        squatter.bind(("0.0.0.0", PORT))
        self.veth()
        ip("addr", "add", "10.9.8.1/24", "dev", "t0")
        self.begin("60")
        self.assertEqual(self.udp()["10.9.8.1"], "port_taken")
        return squatter

    def test_port_4791_taken(self):
        squatter = self.squat()
        self.assertEqual((self.gids()["10.9.8.1"]["index"], self.gids()["10.9.8.1"]["wire"]), (1, False))
        self.assertEqual(self.port()["state"], "ACTIVE")
        self.assertIn("10.9.8.1: UDP port 4791 is taken by another program", self.log())
        self.assertIn("taken by another program", self.run_on(None, "anyverbs", "status").stdout)
        squatter.close()
        self.until(lambda: self.udp()["10.9.8.1"], "open", RETRY)
        self.assertEqual((self.gids()["10.9.8.1"]["index"], self.gids()["10.9.8.1"]["wire"]), (1, True))
        self.assertEqual(self.log().count("taken by another program"), 1)

    def test_port_4791_taken_for_a_moment(self):
        """As by a node that has just been killed: its successor has the port soon, not after 5 s."""
        squatter = self.squat()
        begun = time.monotonic()
        squatter.close()
        self.until(lambda: self.udp()["10.9.8.1"], "open", RETRY)
        self.assertLess(time.monotonic() - begun, 3.5)

    @FOREIGN
    @unittest.skipIf(shutil.which("ibv_rc_pingpong") is None, "ibv_rc_pingpong (ibverbs-utils) is not installed")
    def test_port_4791_taken_and_local_paths_go_on(self):
        """Two processes of this host, by the very GID whose port is taken."""
        self.squat()
        words = ["anyverbs", "run", "ibv_rc_pingpong", "-d", "roce0", "-g", "1", "-c", "-n", "200", "-s", "5000"]
        server = subprocess.Popen(words, env=self.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.children.append(server)
        self.until(lambda: "18515" in subprocess.run(["ss", "-Hltn"], capture_output=True, text=True).stdout, True)
        client = self.run_on(None, *words, "127.0.0.1")
        self.assertEqual((client.returncode, server.wait(30)), (0, 0), client.stdout + client.stderr)
        self.assertIn("200 iters", client.stdout)

    @FOREIGN
    @unittest.skipIf(shutil.which("ibv_rc_pingpong") is None, "ibv_rc_pingpong (ibverbs-utils) is not installed")
    def test_port_4791_taken_and_the_application_is_told(self):
        """Who would send to another host by that GID is told in its log, and does not just time out."""
        squatter = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(squatter.close)
        squatter.bind(("127.0.0.9", PORT))
        a = {"ANYVERBS_NODE": "a", "ANYVERBS_ADDR": "127.0.0.9", "ANYVERBS_LOG": "warn"}
        b = {"ANYVERBS_NODE": "b", "ANYVERBS_ADDR": "127.0.0.10", "ANYVERBS_LOG": "warn"}
        self.nodes += [(None, a), (None, b)]
        words = ["anyverbs", "run", "ibv_rc_pingpong", "-d", "roce0", "-g", "1", "-n", "1"]
        server = subprocess.Popen(words, env={**self.env, **a}, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.children.append(server)
        self.until(lambda: "18515" in subprocess.run(["ss", "-Hltn"], capture_output=True, text=True).stdout, True)
        client = self.run_on(None, *words, "127.0.0.1", **b)
        self.assertIn("retry counter exceeded", client.stdout + client.stderr)
        self.assertNotIn("no datagram leaves", client.stdout + client.stderr)
        server.kill()
        self.assertIn("no datagram leaves this host from GID ::ffff:127.0.0.9", server.communicate(timeout=10)[0])

    def test_port_taken_by_one_that_would_share_it(self):
        squatter = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind(("127.0.0.9", PORT))
        self.begin("60", ANYVERBS_NODE="b", ANYVERBS_ADDR="127.0.0.9")
        self.assertEqual(self.udp(ANYVERBS_NODE="b"), {"127.0.0.9": "port_taken"})
        squatter.close()

    def test_an_address_belongs_to_one_node(self):
        a = {"ANYVERBS_NODE": "a", "ANYVERBS_ADDR": "127.0.0.2"}
        b = {"ANYVERBS_NODE": "b", "ANYVERBS_ADDR": "127.0.0.2,127.0.0.3"}
        first, _ = self.begin(**a)
        self.begin(**b)
        self.assertEqual(self.udp(**a), {"127.0.0.2": "open"})
        self.assertEqual(self.udp(**b), {"127.0.0.2": "other_node", "127.0.0.3": "open"})
        self.assertNotIn("127.0.0.2", self.gids(**b))
        self.assertEqual(self.gids(**b)["127.0.0.3"]["index"], 1)
        self.assertIn("127.0.0.2: another node of this network namespace has this address", self.log(**b))
        self.assertIn("another node has this address", self.run_on(None, "anyverbs", "status", **b).stdout)
        first.kill()
        first.wait()
        self.run_on(None, "anyverbs", "stop", "--force", **a)
        self.until(lambda: self.gids(**b).get("127.0.0.2", {}).get("wire"), True, RETRY)
        self.assertEqual(self.gids(**b)["127.0.0.3"]["index"], 1)

    @unittest.skipUnless(subprocess.run([*NOBODY, "true"], capture_output=True).returncode == 0, "needs root and setpriv")
    def test_an_address_belongs_to_one_user(self):
        self.veth()
        ip("addr", "add", "10.9.8.1/24", "dev", "t0")
        self.begin()
        env = {k: v for k, v in self.env.items() if k != "XDG_RUNTIME_DIR"}
        if subprocess.run([*NOBODY, "sh", "-c", "command -v node_attach"], env=env, capture_output=True).returncode != 0:
            self.skipTest("another user cannot reach the build tree")
        child = subprocess.Popen([*NOBODY, "node_attach", "60"], env=env, stdout=subprocess.PIPE)
        self.children.append(child)
        self.assertEqual(len(child.stdout.readline().split()), 3)

        def as_nobody(*words):
            return subprocess.run([*NOBODY, "anyverbs", *words], env=env, capture_output=True, text=True, timeout=30).stdout
        theirs = json.loads(as_nobody("status", "--json"))
        self.assertEqual(self.udp()["10.9.8.1"], "open")
        udp = {a["address"]: a["udp"] for a in theirs["addresses"]}
        self.assertEqual(udp.pop("10.9.8.1"), "other_node")
        gids = [g["gid"] for g in theirs["devices"][0]["ports"][0]["gids"]]
        self.assertNotIn("::ffff:10.9.8.1", gids)
        self.assertTrue(gids[1].startswith("::ffff:127."))  # their own, for themselves
        self.assertEqual(udp[gids[1].removeprefix("::ffff:")], "open")
        as_nobody("stop", "--force")
        shutil.rmtree(theirs["folder"], ignore_errors=True)

    def test_the_first_node_has_the_host_s_addresses_whatever_its_name(self):
        self.veth()
        ip("addr", "add", "10.9.8.1/24", "dev", "t0")
        a, b = {"ANYVERBS_NODE": "a"}, {"ANYVERBS_NODE": "b"}
        first, _ = self.begin(**a)
        self.assertEqual((self.gids(**a)["10.9.8.1"]["index"], self.gids(**a)["10.9.8.1"]["wire"]), (1, True))
        self.assertNotIn("came first", self.run_on(None, "anyverbs", "status", **a).stdout)
        second, _ = self.begin(**b)
        own = [g for g in self.gids(**b) if g.startswith("127.")]
        self.assertEqual((len(own), self.gids(**b)[own[0]]["index"], self.gids(**b)[own[0]]["wire"]), (1, 1, True))
        self.assertEqual((self.udp(**b)["10.9.8.1"], self.udp(**b)[own[0]]), ("other_node", "open"))
        self.assertNotIn("10.9.8.1", self.gids(**b))
        self.assertEqual(self.port(**b)["state"], "ACTIVE")
        for said in (self.log(**b), self.run_on(None, "anyverbs", "status", **b).stdout):
            self.assertEqual(said.count("another node of this network namespace came first and has the host's addresses"), 1, said)
        ip("link", "set", "t1", "down")  # is nothing to the second
        self.until(lambda: self.port(**a)["state"], "DOWN")
        self.assertEqual(self.port(**b)["state"], "ACTIVE")
        ip("link", "set", "t1", "up")
        first.kill()
        first.wait()
        self.run_on(None, "anyverbs", "stop", "--force", **a)
        self.assertIn(own[0], self.gids(**b))  # its process' own, as long as it lives
        second.kill()
        second.wait()
        self.until(lambda: self.gids(**b).get("10.9.8.1", {}).get("wire"), True, RETRY)
        self.assertNotIn("came first", self.run_on(None, "anyverbs", "status", **b).stdout)

    def test_nodes_that_start_at_once_share_no_addresses(self):
        self.veth()
        ip("addr", "add", "10.9.8.1/24", "dev", "t0")
        ip("addr", "add", "fd09::1/64", "dev", "t0", "nodad")
        self.nodes += [(None, {"ANYVERBS_NODE": f"n{i}"}) for i in range(4)]
        for i in range(4):
            self.children.append(subprocess.Popen(["node_attach", "60"], env={**self.env, "ANYVERBS_NODE": f"n{i}"},
                                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        for child in self.children:
            self.assertEqual(len(child.stdout.readline().split()), 3)
        have = [{"10.9.8.1", "fd09::1"} & set(self.gids(**env)) for _, env in self.nodes]
        self.assertEqual(sorted(map(len, have)), [0, 0, 0, 2])

    def test_who_is_first_stays_so_when_its_node_is_killed(self):
        self.veth()
        ip("addr", "add", "10.9.8.1/24", "dev", "t0")
        a, b, c = ({"ANYVERBS_NODE": name} for name in "abc")
        first, _ = self.begin(**a)
        os.kill(self.status(**a)["pid"], signal.SIGKILL)
        self.begin(**b)  # while only a process of the first is there, which holds the sockets
        self.assertNotIn("10.9.8.1", self.gids(**b))
        self.begin(**a)
        self.assertEqual(self.gids(**a)["10.9.8.1"]["index"], 1)
        # a later one stays so, too, whoever has gone meanwhile
        os.kill(self.status(**b)["pid"], signal.SIGKILL)
        first.kill()
        self.run_on(None, "anyverbs", "stop", "--force", **a)
        self.children[2].kill()
        self.begin(**b)
        self.assertNotIn("10.9.8.1", self.gids(**b))
        self.children[0].wait()
        self.children[2].wait()
        self.begin(**c)
        self.assertEqual(self.gids(**c)["10.9.8.1"]["index"], 1)

    def test_a_node_that_wants_none_of_the_host_s_addresses(self):
        self.veth()
        ip("addr", "add", "10.9.8.1/24", "dev", "t0")
        a = {"ANYVERBS_NODE": "a", "ANYVERBS_ADDR": "own"}
        self.begin(**a)
        self.assertEqual(len(self.gids(**a)), 2)
        self.assertEqual([str(g)[:4] for g in self.udp(**a)], ["127."])
        self.begin()
        self.assertEqual(self.gids()["10.9.8.1"]["index"], 1)

    def pingpong(self, host, client_host, a, b):
        """The results of ibv_rc_pingpong -g 1: node `a` on `host` serves `b`."""
        words = ["anyverbs", "run", "ibv_rc_pingpong", "-d", "roce0", "-g", "1", "-n", "10"]
        enter = ["nsenter", "-t", str(host), "-n"] if host else []
        self.nodes += [(host, a), (client_host, b)]
        server = subprocess.Popen([*enter, *words], env={**self.env, **a}, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.children.append(server)
        self.until(lambda: "18515" in self.run_on(host, "ss", "-Hltn").stdout, True)
        client = self.run_on(client_host, *words, "10.9.8.2" if host else "127.0.0.1", **b)
        return server, client

    @FOREIGN
    @unittest.skipIf(shutil.which("ibv_rc_pingpong") is None, "ibv_rc_pingpong (ibverbs-utils) is not installed")
    def test_named_nodes_of_two_hosts_reach_each_other(self):
        server, client = self.pingpong(self.other_host(), None, {"ANYVERBS_NODE": "a"}, {"ANYVERBS_NODE": "b"})
        self.assertEqual((client.returncode, server.wait(30)), (0, 0), client.stdout + client.stderr)

    @FOREIGN
    @unittest.skipIf(shutil.which("ibv_rc_pingpong") is None, "ibv_rc_pingpong (ibverbs-utils) is not installed")
    def test_a_later_node_is_told_that_it_cannot_connect_to_another_host(self):
        other = self.other_host()
        self.begin()
        server, client = self.pingpong(other, None, {"ANYVERBS_NODE": "a"}, {"ANYVERBS_NODE": "b", "ANYVERBS_LOG": "warn"})
        said = client.stdout + client.stderr
        self.assertIn("Failed to modify QP to RTR", said)
        self.assertIn("a loopback address, to ::ffff:10.9.8.2, which is another host's", said)
        self.assertIn("no route from GID ::ffff:127.", said)

    def test_an_address_that_the_host_gets_later(self):
        env = {"ANYVERBS_NODE": "a", "ANYVERBS_ADDR": "10.9.8.1,fd09::1"}
        self.begin(**env)
        self.assertEqual(self.udp(**env), {"10.9.8.1": "absent", "fd09::1": "absent"})
        self.assertFalse(self.gids(**env)["10.9.8.1"]["wire"])
        self.veth()
        ip("addr", "add", "10.9.8.1/24", "dev", "t0")
        ip("addr", "add", "10.9.8.7/24", "dev", "t0")
        ip("addr", "add", "fd09::1/64", "dev", "t0")
        self.until(lambda: self.udp(**env), {"10.9.8.1": "open", "fd09::1": "open"})
        self.assertEqual(self.gids(**env)["10.9.8.1"]["interface"], "t0")
        self.assertNotIn("10.9.8.7", self.gids(**env))

    # ---- between hosts ----

    def send(self, host, to, qpn, size, interface=""):
        """A datagram from another host."""
        script = ("import socket, sys\n"
                  "to, qpn, size, interface = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]\n"
                  "s = socket.socket(socket.AF_INET6 if ':' in to else socket.AF_INET, socket.SOCK_DGRAM)\n"
                  "if interface and ':' in to:\n"
                  "    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, socket.if_nametoindex(interface))\n"
                  "packet = bytes([100, 0, 255, 255]) + qpn.to_bytes(4, 'big') + bytes(size - 8)\n"
                  f"s.sendto(packet, socket.getaddrinfo(to, {PORT}, type=socket.SOCK_DGRAM)[0][4])\n")
        done = self.run_on(host, sys.executable, "-c", script, to, str(qpn), str(size), interface)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_datagrams_from_another_host(self):
        other = self.other_host()
        groups = ("ff0e::ffff:239.7.7.1", "::ffff:239.7.7.2", "ff15::77")
        first, slot_1 = self.begin("60", *groups)
        second, slot_2 = self.begin("60", groups[2])
        local = self.link_local()
        for n, address in enumerate(("10.9.8.1", "fd09::1", local + "%t1")):
            self.send(other, address, slot_1 << 14 | 5, 100 + n)
            self.assertEqual(first.stdout.readline(), f"udp {100 + n}\n")
            self.send(other, address, slot_2 << 14 | 5, 200 + n)
            self.assertEqual(second.stdout.readline(), f"udp {200 + n}\n")
        self.send(other, "10.9.8.1", 1, 50)
        self.until(lambda: [a["dropped"] for a in self.status()["addresses"] if a["address"] == "10.9.8.1"], [1])
        ip("route", "add", "239.0.0.0/8", "dev", "t1", host=other)
        self.send(other, "239.7.7.1", 0xffffff, 301)
        self.assertEqual(first.stdout.readline(), f"{groups[0]} 301\n")
        self.send(other, "239.7.7.2", 0xffffff, 302)
        self.assertEqual(first.stdout.readline(), f"{groups[1]} 302\n")
        self.send(other, "ff15::77", 0xffffff, 303, "t1")
        self.assertEqual(first.stdout.readline(), f"{groups[2]} 303\n")
        self.assertEqual(second.stdout.readline(), f"{groups[2]} 303\n")

    def test_what_finds_no_room_is_counted(self):
        other = self.other_host()
        child, slot = self.begin("60", "ff15::77")
        child.send_signal(signal.SIGSTOP)
        script = ("import socket, sys\n"
                  "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
                  "packet = bytes([100, 0, 255, 255]) + int(sys.argv[1]).to_bytes(4, 'big') + bytes(1000)\n"
                  f"for _ in range(30000): s.sendto(packet, ('10.9.8.1', {PORT}))\n")
        done = self.run_on(other, sys.executable, "-c", script, str(slot << 14))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lost = [a["lost"] for a in self.status()["addresses"] if a["address"] == "10.9.8.1"][0]
        self.assertGreater(lost, 1000)
        self.assertIn(f"{lost} found no room", self.run_on(None, "anyverbs", "status").stdout)
        child.send_signal(signal.SIGCONT)

    def test_sockets_go_on_without_the_node(self):
        other = self.other_host()
        first, slot_1 = self.begin("60", "ff15::77")
        second, slot_2 = self.begin("60", "ff15::77")
        os.kill(self.status()["pid"], signal.SIGKILL)
        self.send(other, "fd09::1", slot_2 << 14, 100)
        self.assertEqual(second.stdout.readline(), "udp 100\n")
        self.send(other, "10.9.8.1", slot_1 << 14, 101)
        self.assertEqual(first.stdout.readline(), "udp 101\n")
        # the next node finds the port taken by the survivors of the first
        self.begin("60")
        self.assertEqual(self.udp()["10.9.8.1"], "port_taken")
        self.assertEqual(self.gids()["10.9.8.1"]["index"], 1)


if __name__ == "__main__":
    if not os.environ.get(INSIDE):
        go_inside()
    unittest.main(verbosity=2)
