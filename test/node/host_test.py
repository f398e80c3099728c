#!/usr/bin/env python3
"""host_test.py: Debian's programs on two hosts of a fabric: infiniband-diags see and configure it, verbs programs reach each
other by LID, and a link that is down is down.

usage: host_test.py BUILD_DIR
"""
import os
import re
import shutil
import subprocess
import sys
import threading
import unittest

from fabric_bed import Bed

Bed.build = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else os.path.abspath("build")
MISSING = [p for p in ("ibportstate", "ibnetdiscover", "smpquery", "ibv_rc_pingpong") if shutil.which(p) is None]
CA = 'vendid=0xa7b5\ndevid=0x1\nHca 1 "{} ib0"\n[1] "{} ib0"[1]\n\n'


class Hosts(Bed):
    def setUp(self):
        super().setUp()
        net = os.path.join(self.root, "two.net")
        with open(net, "w") as f:
            f.write(CA.format("h1", "h2") + CA.format("h2", "h1"))
        self.fabric("up", "--no-sm", net)

    def configure(self):
        """What a subnet manager does, by hand."""
        for way, lid in ("0", "1"), ("0,1", "2"):
            self.on("h1", "ibportstate", "-D", way, "1", "lid", lid, "smlid", "1")
        for state in "arm", "active":
            for way in "0", "0,1":
                self.on("h1", "ibportstate", "-D", way, "1", state)

    def test_a_host_sees_its_own_adapter_only(self):
        for host in "h1", "h2":
            text = self.on(host, "ibv_devinfo", "-v")
            self.assertEqual([w for w in text.split() if w.startswith(("ib", "roce"))], ["ib0"])
            self.assertIn("InfiniBand", text)
            self.assertIn("PORT_INIT", text)

    def test_directed_routes(self):
        self.assertIn('"h1 ib0"', self.on("h2", "ibnetdiscover"))
        self.assertIn("NodeType:........................Channel Adapter", self.on("h1", "smpquery", "-D", "nodeinfo", "0,1"))

    def test_a_host_has_its_own_sys(self):
        text = self.on("h2", "ibstatus")
        self.assertIn("'ib0' port 1", text)
        self.assertIn("2: INIT", text)
        self.assertIn("InfiniBand", text)
        self.configure()
        text = self.on("h2", "ibstatus")
        self.assertIn("4: ACTIVE", text)
        self.assertIn("0x2", text)
        self.assertIn("CA type: anyverbs-ib", self.on("h1", "ibstat"))
        files = self.on("h1", "ls", "/dev/infiniband", "/sys/class/infiniband_mad").split()
        self.assertEqual(files.count("issm0"), 2)
        self.assertEqual(files.count("umad0"), 2)

    def test_sys_is_read_only(self):
        """Of the files that Linux lets nobody write, and of node_desc, which root may set there."""
        def read():
            return [self.on("h1", "cat", f"/sys/class/infiniband/ib0/{file}") for file in files]

        files = ("node_desc", "ports/1/state")
        before = read()
        for file in files:
            path = f"/sys/class/infiniband/ib0/{file}"
            self.assertEqual(self.on("h1", "stat", "-c", "%a", path), "444\n")
            for write in f"echo x > {path}", f"echo x >> {path}":
                self.assertIn("ermission denied", self.on("h1", "sh", "-c", f"({write}) 2>&1 || true"))
        self.assertEqual(read(), before)

    def test_device_is_a_link(self):
        path = "/sys/class/infiniband/ib0/device"
        self.assertEqual(self.on("h1", "readlink", path), "../../../devices/anyverbs/ib0\n")
        self.assertEqual(self.on("h1", "readlink", "-f", path), "/sys/devices/anyverbs/ib0\n")
        self.assertEqual(self.on("h1", "cat", f"{path}/vendor"), "0xa7b5\n")
        self.assertEqual(self.on("h1", "ls", f"{path}/infiniband_verbs"), "uverbs0\n")
        for file in "infiniband_verbs/uverbs0", "infiniband_mad/umad0", "infiniband_mad/issm0":
            path = f"/sys/class/{file}/device"
            self.assertEqual(self.on("h1", "readlink", path), "../../../devices/anyverbs/ib0\n")
            self.assertEqual(self.on("h1", "readlink", "-f", path), "/sys/devices/anyverbs/ib0\n")
            self.assertEqual(self.on("h1", "ls", "-d", f"{path}/{file}"), f"{path}/{file}\n")

    def test_sys_lists_the_whole_gid_table(self):
        """As on Linux an entry that is not in use has the prefix, the interface ID 0, and a type. No entry has a network interface."""
        port = "/sys/class/infiniband/ib0/ports/1"
        gids, types, ndevs = (self.on("h1", "sh", "-c", f"cd {port}/{folder} && for i in *; do echo $i $(cat $i); done").splitlines()
                              for folder in ("gids", "gid_attrs/types", "gid_attrs/ndevs"))
        unused = "fe80:0000:0000:0000:0000:0000:0000:0000"
        self.assertRegex(gids[0], "^0 fe80:0000:0000:0000:.*[1-9]")
        self.assertEqual(gids[1:], [f"{i} {unused}" for i in range(1, 8)])
        self.assertEqual(types, [f"{i} IB/RoCE v1" for i in range(8)])
        self.assertEqual(ndevs, [str(i) for i in range(8)])
        self.assertIn("Invalid argument", self.on("h1", "sh", "-c", f"cat {port}/gid_attrs/ndevs/0 2>&1 || true"))

    def issm(self, on):
        """Whether the IsSM bit of h1's port becomes so."""
        for _ in range(100):
            if (("IsSM" in self.on("h1", "smpquery", "-D", "portinfo", "0", "1")) == on):
                return True
        return False

    def test_issm_while_it_is_open(self):
        """Closed by hand, by a copy's end and by a death, whoever opens it."""
        wait = "import os, sys; fd = os.open('/dev/infiniband/issm0', os.O_RDONLY); print(1, flush=True); {}sys.stdin.read()"
        for close in "os.close(fd); ", "os.close(os.dup(fd)); ":
            program = subprocess.Popen(self.words("run", "--host", "h1", sys.executable, "-c", wait.format(close)), env=self.env,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            try:
                self.assertEqual(program.stdout.readline(), "1\n")
                self.assertTrue(self.issm(on="dup" in close))
            finally:
                program.kill()
                program.communicate()
            self.assertTrue(self.issm(on=False))

    def test_verbs_by_lid(self):
        self.configure()
        for program in "ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong":
            client, server = self.pair(program, "-n", "500")
            self.assertIn("LID 0x0002", client)
            self.assertIn("500 iters", client + server)

    def test_a_link_that_is_down(self):
        self.configure()
        self.fabric("link", "h2:1", "down")
        self.assertIn("PORT_DOWN", self.on("h2", "ibv_devinfo"))
        self.fabric("link", "h2:1", "up")
        self.assertIn("PORT_INIT", self.on("h2", "ibv_devinfo"))

    def test_a_port_that_is_disabled(self):
        """Its cable has no say in it."""
        states = lambda: [line.split()[4] for line in self.fabric("hosts").splitlines()]
        self.on("h2", "ibportstate", "-D", "0", "1", "disable")
        self.assertEqual(states(), ["DOWN", "DISABLED"])
        self.fabric("link", "h2:1", "down")
        self.assertEqual(states(), ["CUT", "CUT"])
        self.fabric("link", "h2:1", "up")
        self.assertEqual(states(), ["DOWN", "DISABLED"])
        self.on("h2", "ibportstate", "-D", "0", "1", "enable")
        self.assertEqual(states(), ["INIT", "INIT"])


class Managed(Bed):
    """The node's own subnet manager brings the links up, and its SA answers."""

    def setUp(self):
        super().setUp()
        self.fabric("up", "--topology", "star:2")

    def until_active(self, host):
        self.until(lambda: "PORT_ACTIVE" in self.on(host, "ibv_devinfo"))

    def sa(self, *words):
        return self.on("h2", "saquery", *words)

    def test_verbs_by_lid(self):
        for program in "ibv_rc_pingpong", "ibv_ud_pingpong":
            client, server = self.pair(program, "-n", "500")
            self.assertIn("500 iters", client + server)

    def test_a_link_that_is_down(self):
        self.fabric("link", "h2:1", "down")
        self.assertIn("PORT_DOWN", self.on("h2", "ibv_devinfo"))
        self.fabric("link", "h2:1", "up")
        self.until_active("h2")

    @unittest.skipIf(shutil.which("saquery") is None, "saquery is not installed")
    def test_the_sa_answers(self):
        self.assertIn("NodeDescription.........h1 ib0", self.sa())
        self.assertIn("NodeDescription.........leaf1", self.sa())
        self.assertEqual(self.sa("-p").count("PathRecord dump"), 9)
        path = self.sa("--src-to-dst", "2:3")
        self.assertIn("dlid....................3", path)
        self.assertIn("slid....................2", path)
        self.assertIn("MGID....................ff12:401b:ffff::ffff:ffff", self.sa("-g"))
        self.assertIn("SMState...............3", self.sa("SMIR"))
        self.assertIn("Class version............2", self.sa("-c"))
        self.assertEqual(self.sa("LR").count("LinkRecord dump"), 4)
        self.assertEqual(self.sa("SR"), "")

    def port(self, *words):
        """PortCounters of a port: bytes and packets, out and in."""
        text = self.on("h1", "perfquery", "-x", *words)
        found = dict(re.findall(r"(Port(?:Xmit|Rcv)(?:Data|Pkts)):\.*(\d+)", text))
        return [int(found[name]) for name in ("PortXmitData", "PortXmitPkts", "PortRcvData", "PortRcvPkts")]

    def charged(self, *words, hosts=("h1", "h2")):
        """What a program lets each port of the way count: h1, the switch's port to it, to h2, h2. Two MADs may
        come to each, and ours always do."""
        lids = {"h1": self.lid("h1"), "h2": self.lid("h2")}
        ports = [(str(lids["h1"]), "1"), ("1", "1"), ("1", "2"), (str(lids["h2"]), "1")]
        before = [self.port(*p) for p in ports]
        self.pair(*words, hosts=hosts)
        return [[b - a for a, b in zip(one, self.port(*p))] for one, p in zip(before, ports)]

    @unittest.skipIf(shutil.which("perfquery") is None or shutil.which("ib_write_bw") is None, "perfquery, perftest: not installed")
    def test_data_counts_along_its_route(self):
        message, iters = 65536, 1000
        for words, back in (("ib_send_bw",), False), (("ib_write_bw",), False), (("ib_read_bw",), True), \
                (("ib_send_bw", "-c", "UD"), False):
            size = 2048 if "UD" in words else message
            h1, to_h1, to_h2, h2 = self.charged(*words, "-d", "ib0", "-s", str(size), "-n", str(iters), "-F", "-m", "2048")
            # the client is on h2; a READ's data comes from h1
            from_, to = (slice(0, 2), slice(2, 4)) if back else (slice(2, 4), slice(0, 2))
            least = size * iters // 4
            packets = size * iters // 2048
            for port, side in (h1, from_), (to_h1, to), (to_h2, from_), (h2, to):
                data, pkts = port[side]
                self.assertGreaterEqual(data, least, words)
                self.assertLess(data, least * 1.1, words)
                self.assertGreaterEqual(pkts, packets, words)
                self.assertLess(pkts, packets * 1.1, words)
            for port, side in (h1, to), (h2, from_):
                self.assertLess(port[side][0], least / 10, words)

    def count(self, host, name):
        return int(self.on(host, "cat", f"/sys/class/infiniband/ib0/ports/1/counters/{name}"))

    @unittest.skipIf(shutil.which("ib_write_bw") is None, "perftest is not installed")
    def test_sys_has_counters(self):
        before = self.count("h1", "port_rcv_data"), self.count("h2", "port_xmit_data")
        self.pair("ib_write_bw", "-d", "ib0", "-n", "500", "-F", "-m", "1024")
        after = self.count("h1", "port_rcv_data"), self.count("h2", "port_xmit_data")
        for b, a in zip(before, after):
            self.assertGreaterEqual(a - b, 500 * 65536 // 4)
        self.assertGreaterEqual(self.count("h1", "unicast_rcv_packets"), 500 * 64)
        self.assertEqual(self.count("h1", "symbol_error"), 0)
        self.fabric("error", "h1:1", "symbol", "3")
        self.assertEqual(self.count("h1", "symbol_error"), 3)
        # a process that keeps the file's path sees it change
        watch = "import sys, time\np = '/sys/class/infiniband/ib0/ports/1/counters/symbol_error'\n" \
                "print(open(p).read(), end='', flush=True)\nwhile open(p).read() == '3\\n': time.sleep(0.02)\nprint(open(p).read())"
        program = self.start("h1", sys.executable, "-c", watch)
        try:
            self.assertEqual(program.stdout.readline(), "3\n")
            self.fabric("error", "h1:1", "symbol", "4")
            busy = self.start("h2", "ibv_asyncwatch")  # a process of the fabric
            try:
                self.assertEqual(program.stdout.readline(), "7\n")
            finally:
                busy.kill()
                busy.communicate()
        finally:
            program.kill()
            program.communicate()

    @unittest.skipIf(shutil.which("sminfo") is None, "sminfo is not installed")
    def test_who_is_the_master(self):
        self.assertIn("SMINFO_MASTER", self.on("h2", "sminfo"))

    def test_the_next_node_goes_on(self):
        before = self.on("h2", "ibv_devinfo").split("port_lid")[1]
        self.kill_node()
        self.until_active("h2")
        self.assertEqual(before, self.on("h2", "ibv_devinfo").split("port_lid")[1])
        if shutil.which("saquery") is not None:
            self.assertIn("h1 ib0", self.sa())

    @unittest.skipIf(shutil.which("opensm") is None, "opensm is not installed")
    def test_opensm_outlives_its_fabric(self):
        """Its reads fail from then on, without filling the disk by its log, and it ends when it is told to."""
        sm = self.opensm("h1")
        self.fabric("down", "--force")
        sm.wait("recv error", 3)
        self.assertLess(sm.stop().count("recv error"), 1000)
        self.fabric("up")

    @unittest.skipIf(shutil.which("rping") is None, "rping is not installed")
    def test_a_fabric_that_ends_under_programs(self):
        """Their devices are gone, by the event of each library; a program that begins when another fabric is up has its own."""
        watch, server = self.start("h1", "ibv_asyncwatch"), self.start("h2", "rping", "-s", "-a", "127.64.0.2")
        timer = threading.Timer(20, watch.kill)  # its output ends then
        try:
            self.assertIn("ib0", watch.stdout.readline())
            self.until(lambda: ":7174" in subprocess.run(self.words("status"), env=self.env, capture_output=True, text=True).stdout)
            self.fabric("down", "--force")
            timer.start()
            seen = ""
            while "DEVICE_FATAL" not in seen:
                line = watch.stdout.readline()
                self.assertNotEqual(line, "", seen)
                seen += line
            self.assertIn("device removal", server.communicate(timeout=20)[0])
            self.fabric("up")
            self.assertIn("0x02a0000000000101", self.on("h1", "ibstat", "-p"))
        finally:
            timer.cancel()
            for process in watch, server:
                process.kill()
                process.communicate()


class Copies(Bed):
    def discovered(self):
        return [line for line in self.on("h1", "ibnetdiscover").splitlines() if not line.startswith("#")]

    def test_what_ibnetdiscover_prints_is_a_topology(self):
        """A fabric of it looks the same, LIDs and all."""
        for topology in "fat-tree:2x2", "torus:3x3", "dragonfly:3x2x1":
            with self.subTest(topology):
                self.fabric("up", "--topology", topology)
                before = self.discovered()
                self.assertGreater(len(before), 20)
                self.fabric("down")
                path = os.path.join(self.root, "net")
                with open(path, "w") as f:
                    f.write("\n".join(before) + "\n")
                self.fabric("up", path)
                self.assertEqual(self.discovered(), before)
                self.fabric("down")
        self.fabric("up", "--topology", "star:2")


if __name__ == "__main__":
    if MISSING:
        print(f"SKIP {', '.join(MISSING)}: not installed")
        sys.exit(77)
    unittest.main()
