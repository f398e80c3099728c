#!/usr/bin/env python3
"""opensm_test.py: Debian's OpenSM brings fabrics up, and Debian's tools look at them.

usage: opensm_test.py BUILD_DIR [Subnets | Large]       Large takes minutes
"""
import os
import re
import shutil
import subprocess
import sys
import time
import unittest

from fabric_bed import Bed

Bed.build = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else os.path.abspath("build")
MISSING = [p for p in ("opensm", "ibnetdiscover", "ibdiagnet", "ibv_rc_pingpong", "ib_send_lat", "ucx_perftest", "qperf") if shutil.which(p) is None]

# topology, routing engine, ports of CAs: what OpenSM must be able to route without falling back
ENGINES = [
    ("star:2", "minhop", 2),
    ("fat-tree:6x18", "minhop", 108),
    ("fat-tree:6x18", "updn", 108),
    ("fat-tree:6x18", "ftree", 108),
    ("mesh:4x4", "dor", 16),
    ("mesh:4x4", "lash", 16),
    ("torus:4x4", "dor", 16),
    ("torus:4x4", "lash", 16),
    ("torus:3x3x3", "lash", 27),
    ("dragonfly:3x2x1", "minhop", 24),
]

LARGE = [
    ("fat-tree:54x18", "minhop", 972),
    ("fat-tree:54x18", "updn", 972),
    ("fat-tree:54x18", "ftree", 972),
    ("fat-tree:288x18", "minhop", 5184),
    ("fat-tree:648x18", "minhop", 11664),
]
LARGE_S = 1200
SAQUERY_MS = "60000"  # on a busy machine 1,000 records take longer than saquery waits
MPI_ALL = os.environ.get("MPI_ALL", os.path.join(os.path.dirname(os.path.abspath(__file__)), "mpi_all.c"))
MPI = ("--allow-run-as-root --oversubscribe --bind-to none --mca plm isolated --mca pml ucx --mca osc ucx --mca mpi_yield_when_idle 1 "
       "--mca opal_common_ucx_devices any -x UCX_TLS=rc_v,ud_v,self -x UCX_NET_DEVICES=ib0:1").split()

# Of a fat tree of four leaves, two spines and 16 hosts. {h5}: the LID of a host, {leaf1}: of a switch.
DIAGS = [
    ("ibnetdiscover", r'Ca\s+1 "H-02a0000000000500"\s+# "h5 ib0"'),
    ("ibnetdiscover -p", r"CA +{h5} +1 0x02a0000000000501 4x EDR - SW +{leaf2} +1"),
    ("ibstat", r"State: Active\n.*\n.*\n\tBase lid: {h3}|State: Active(.|\n)*Base lid: {h3}\n"),
    ("ibstatus", r"state:\s+4: ACTIVE"),
    ("iblinkinfo", r"4X +25.78125 Gbps Active/ +LinkUp"),
    ("ibhosts", r'"h16 ib0"'),
    ("ibswitches", r'"spine2" base port 0 lid {spine2}'),
    ("ibqueryerrors", r"22 nodes checked, 0 bad nodes found"),
    ("ibdiagnet -o {root}", r"-I- No bad Guids were found(.|\n)*-I- No bad Links"),
    ("perfquery {h5} 1", r"PortXmitPkts:\.+[1-9]"),
    ("perfquery -x {h5} 1", r"PortUnicastXmitPkts:\.+[1-9]"),
    ("perfquery -a {leaf1}", r"PortSelect:\.+255"),
    ("saquery -p --src-to-dst {h3}:{h5}", r"dlid\.+{h5}\n\t\tslid\.+{h3}\n(.|\n)*mtu\.+0x85|dlid\.+{h5}\n\t\tslid\.+{h3}\n"),
    ("saquery -g", r"MGID\.+ff12:401b:ffff::ffff:ffff\n\t\tMlid\.+0xC000"),
    ("saquery -m 0xC000", r"PortGid"),
    ("saquery -N", r"h16 ib0"),
    ("saquery -S", r"\A\Z"),  # nobody has registered one
    ("saquery -s", r"isSM|lid\.+{h1}"),
    ("smpquery nodeinfo {h5}", r"NodeType:\.+Channel Adapter"),
    ("smpquery nodedesc {leaf1}", r"leaf1"),
    ("smpquery portinfo {h5} 1", r"LinkState:\.+Active"),
    ("smpquery switchinfo {leaf1}", r"LinearFdbCap:\.+49152"),
    ("smpquery pkeys {h5}", r"0xffff"),
    ("smpquery MEPI {h5} 1", r"LinkSpeedSupported:\.+0x00"),
    ("ibtracert {h3} {h9}", r'To ca .* "h9 ib0"'),
    ("ibroute {leaf1}", r"valid lids dumped"),
    ("ibroute -M {leaf1}", r"valid mlids dumped"),
    ("sminfo", r"sm lid {h1} .* SMINFO_MASTER"),
    ("ibaddr {h5}", r"LID start 0x5 end 0x5|GID fe80::2a0:0:0:501"),
    ("ibportstate {h5} 1 query", r"PhysLinkState:\.+LinkUp"),
]

# Client and server alike; the client has the server's address behind its words.
PAIRS = [
    "ib_send_lat -d ib0 -n 200",
    "ib_write_lat -d ib0 -n 200",
    "ib_read_lat -d ib0 -n 200",
    "ib_atomic_lat -d ib0 -n 200",
    "ib_send_lat -d ib0 -n 200 -c XRC",
    "ib_send_bw -d ib0 -n 200 -c UD",
    "ib_write_bw -d ib0 -n 200 -c UC",
    "env UCX_NET_DEVICES=ib0:1 UCX_TLS=rc_v,self ucx_perftest -t tag_lat -n 100 -w 10",
    "env UCX_NET_DEVICES=ib0:1 UCX_TLS=ud_v,self ucx_perftest -t tag_lat -n 100 -w 10",
]
QPERF = "qperf 127.0.0.1 -i ib0:1 -t 1 rc_lat ud_lat rc_rdma_write_bw"


class Managed(Bed):
    def lids(self):
        """By the names of hosts and switches."""
        text = self.on("h1", "saquery", "-N")
        lids = re.findall(r"\blid\.+(\d+)(?:.|\n)*?NodeDescription\.+(\S+)", text)
        return {name: lid for lid, name in lids}

    def engine(self, topology, engine, ports):
        sm = self.opensm("h1", "-R", engine + ",no_fallback", up=False)
        sm.wait("SUBNET UP", patience_s=LARGE_S)
        self.assertIn(f"{engine} tables configured on all switches", sm.log())
        self.assertEqual(self.fabric("show").count("ACTIVE"), self.fabric("show").count("->"))
        if ports < 1000:
            self.assertEqual(self.on("h1", "saquery", "-t", SAQUERY_MS, "-N").count("Channel Adapter"), ports)
        self.assertEqual(sm.errors(), [])
        sm.stop()

    def engines(self, table):
        for topology, engine, ports in table:
            with self.subTest(topology=topology, engine=engine):
                self.fabric("up", "--no-sm", "--topology", topology)
                try:
                    self.engine(topology, engine, ports)
                finally:
                    self.fabric("down", "--force")
        self.fabric("up", "--no-sm", "--topology", "star:2")


class Subnets(Managed):
    def test_engines(self):
        self.engines(ENGINES)

    def test_tools(self):
        self.fabric("up", "--no-sm", "--topology", "fat-tree:4x4,radix=8")
        sm = self.opensm("h1")
        known = {**self.lids(), "root": self.root}
        for words, pattern in DIAGS:
            with self.subTest(words):
                text = self.on("h3", *words.format(**known).split())
                for name, value in known.items():
                    pattern = pattern.replace("{" + name + "}", value)
                self.assertRegex(text, pattern)
        self.assertEqual(sm.errors(), [])

    def test_data_and_ping(self):
        self.fabric("up", "--no-sm", "--topology", "star:3")
        self.opensm("h1")
        for program in "ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong":
            client, server = self.pair(program, "-n", "500", hosts=("h2", "h3"))
            self.assertIn("500 iters", client + server)
        server = self.start("h2", "ibping", "-S")
        try:
            lid = self.lid("h2")
            self.until(lambda: " 100 received" in subprocess.run(
                self.words("run", "--host", "h3", "ibping", "-f", "-c", "100", str(lid)), env=self.env, capture_output=True,
                text=True, timeout=60).stdout)
        finally:
            server.kill()
            server.communicate()

    def test_programs_by_lid(self):
        self.fabric("up", "--topology", "fat-tree:2x2,radix=4")
        self.opensm("h1")
        for words in PAIRS:
            with self.subTest(words):
                self.pair(*words.split(), hosts=("h2", "h3"))
        server = self.start("h2", "qperf")
        try:
            done = []
            self.until(lambda: done.append(subprocess.run(self.words("run", "--host", "h3", *QPERF.split()), env=self.env,
                                                          capture_output=True, text=True, timeout=60)) or not done[-1].returncode)
            self.assertEqual(done[-1].stdout.count("latency"), 2)
        finally:
            server.kill()
            server.communicate()

    def test_partitions(self):
        """A pair in a partition talks there; full and limited members; who is in none does not."""
        self.fabric("up", "--no-sm", "--topology", "star:4")
        guid = "0x02a0000000000{}01"
        members = ",".join(f"{guid.format(i)}={kind}" for i, kind in ((1, "full"), (2, "full"), (3, "limited")))
        path = os.path.join(self.root, "partitions")
        with open(path, "w") as f:
            f.write(f"Default=0x7fff,ipoib:ALL=full;\nblue=0x8001:{members};\n")
        sm = self.opensm("h1", "-P", path)
        read = ("sh", "-c", "cat /sys/class/infiniband/ib0/ports/1/pkeys/*")
        got = {h: self.on(h, *read).split() for h in ("h1", "h2", "h3", "h4")}
        self.assertEqual(got, {"h1": ["0xffff", "0x8001"], "h2": ["0xffff", "0x8001"], "h3": ["0xffff", "0x0001"],
                               "h4": ["0xffff"]})
        self.assertEqual(sm.errors(), [])

    def test_handover(self):
        """A better one takes over from the master, and its death gives the subnet back."""
        self.fabric("up", "--no-sm", "--topology", "star:3")
        first = self.opensm("h1", "-p", "1")
        second = self.opensm("h2", "-p", "5", up=False)
        second.wait("Entering MASTER")
        first.wait("Entering STANDBY")
        self.until(lambda: f"sm lid {self.lid('h2')} " in self.on("h3", "sminfo"))
        second.kill()
        first.wait("Entering MASTER", 2)
        self.until(lambda: f"sm lid {self.lid('h1')} " in self.on("h3", "sminfo"))

    def test_the_node_s_own_manager_yields(self):
        """To any OpenSM, on any host; it takes over when that one dies, and LIDs stay."""
        self.fabric("up", "--topology", "fat-tree:4x4,radix=8")
        before = [self.lid(f"h{i}") for i in range(1, 17)]
        self.assertIn("own: master", self.fabric("show"))
        for host in "h7", "h1":
            sm = self.opensm(host)
            self.until(lambda: "own: standby" in self.fabric("show"))
            self.until(lambda: f"sm lid {self.lid(host)} " in self.on("h3", "sminfo"))
            self.assertEqual(sm.errors(), [])
            self.assertEqual(sm.log().count("Entering STANDBY"), 1)
            sm.kill()
            self.until(lambda: "own: master, " not in self.fabric("show") and "own: master" in self.fabric("show"))
            self.assertIn("SMINFO_MASTER", self.on("h3", "sminfo"))
            self.pair("ibv_rc_pingpong", "-n", "100", hosts=("h2", "h9"))
        self.assertEqual(before, [self.lid(f"h{i}") for i in range(1, 17)])

    def test_a_failing_link_is_routed_around(self):
        self.fabric("up", "--no-sm", "--topology", "fat-tree:2x2,radix=4")
        sm = self.opensm("h1")
        a, b = self.lid("h1"), self.lid("h4")
        before = self.on("h1", "ibtracert", str(a), str(b))
        spine = re.search(r'"(spine\d)"', before).group(1)
        port = re.search(r"\[(\d+)\] -> switch port .* \"" + spine, before).group(1)
        self.fabric("link", f"leaf1:{port}", "down")
        sm.wait("SUBNET UP", 2)
        self.until(lambda: f'-> switch port' in self.on("h1", "ibtracert", str(a), str(b)))
        after = self.on("h1", "ibtracert", str(a), str(b))
        self.assertIn('"h4 ib0"', after)
        self.assertNotIn(f"[{port}] -> switch port", after.split("leaf1")[1].splitlines()[1])
        self.pair("ibv_rc_pingpong", "-n", "100", hosts=("h1", "h4"))

    def test_a_connection_outlives_its_route(self):
        """The links of a spine go down under a running RC connection, and OpenSM finds the other."""
        self.fabric("up", "--no-sm", "--topology", "fat-tree:4x2,radix=4")
        sm = self.opensm("h1")
        words = ("ib_send_lat", "-d", "ib0", "-D", "3", "-u", "18")
        server = self.start("h2", *words)
        try:
            time.sleep(0.5)  # until it listens
            client = self.start("h3", *words, "127.0.0.1")
            time.sleep(1)
            trace = self.on("h2", "ibtracert", str(self.lid("h2")), str(self.lid("h3")))
            spine = re.search(r'"(spine\d)"', trace).group(1)
            for port in range(1, 5):
                self.fabric("link", f"{spine}:{port}", "down")
            sm.wait("SUBNET UP", 2)
            out = client.communicate(timeout=60)[0]
            self.assertEqual((client.returncode, server.wait(60)), (0, 0), out)
        finally:
            server.kill()
            server.communicate()
        self.assertNotIn(spine, self.on("h2", "ibtracert", str(self.lid("h2")), str(self.lid("h3"))))

    def received(self):
        """Packets at h2 and h3."""
        name = "/sys/class/infiniband/ib0/ports/1/counters/unicast_rcv_packets"
        return sum(int(self.on(host, "cat", name)) for host in ("h2", "h3"))

    def converse(self, *words):
        """Two ends of a connection whose data is seen to arrive."""
        before = self.received()
        ends = [self.start("h2", *words)]
        self.addCleanup(ends[0].communicate)
        self.addCleanup(ends[0].kill)
        while len(ends) < 2 or self.received() < before + 10000:
            if len(ends) == 1 or ends[1].poll() is not None:  # until the server listens
                ends[1:] = [self.start("h3", *words, "127.0.0.1")]
                self.addCleanup(ends[1].communicate)
                self.addCleanup(ends[1].kill)
            self.assertIsNone(ends[0].poll())
        return ends

    def test_a_connection_outlives_a_reboot_of_its_switch(self):
        self.fabric("up", "--no-sm", "--topology", "star:3")
        sm = self.opensm("h1")
        ends = self.converse("ib_send_bw", "-d", "ib0", "-s", "1024", "--run_infinitely", "-u", "20")
        self.fabric("reboot", "leaf1")
        sm.wait("SUBNET UP", 2)
        before = self.received()
        self.until(lambda: self.received() > before + 10000)
        self.assertEqual([end.poll() for end in ends], [None, None])

    def test_a_connection_ends_with_its_switch(self):
        """Nobody brings the switch that reboots up again."""
        self.fabric("up", "--no-sm", "--topology", "star:3")
        sm = self.opensm("h1")
        ends = self.converse("ibv_rc_pingpong", "-n", "1000000000")
        sm.kill()
        self.fabric("reboot", "leaf1")
        out = [end.stdout.read() for end in ends]
        self.assertTrue(any("transport retry counter exceeded" in text for text in out), out)
        for end in ends:
            self.assertNotEqual(end.wait(60), 0)

    def test_traps(self):
        """OpenSM hears of errors of a link and of a node's new IsSM, and represses each: none comes again."""
        self.fabric("up", "--no-sm", "--topology", "star:3")
        sm = self.opensm("h1")
        lids = self.lids()
        for counter, trap in ("local-integrity", 129), ("buffer-overrun", 130), ("link-recovery", 131):
            self.fabric("error", "leaf1:2", counter, "1")
            sm.wait(f"num:{trap} ")
        self.start_issm("h3")
        sm.wait("num:144 ")
        heard = sm.log().count("Received Generic Notice")
        self.assertGreaterEqual(heard, 4)
        time.sleep(1.5)  # OpenSM sets a SubnetTimeOut of 1.07 s
        self.assertEqual(sm.log().count("Received Generic Notice"), heard)
        self.assertRegex(sm.log(), rf"num:129 .*from LID:{lids['leaf1']} ")

    def start_issm(self, host):
        """Until the test ends. The shell itself stays: IsSM ends with the process that has opened the device."""
        holder = subprocess.Popen(self.words("run", "--host", host, "sh", "-c", "exec 3</dev/infiniband/issm0; read word"),
                                  env=self.env, stdin=subprocess.PIPE)
        self.addCleanup(holder.communicate)
        self.addCleanup(holder.kill)

    def test_ibportstate(self):
        """A port that is disabled and enabled again comes back."""
        self.fabric("up", "--no-sm", "--topology", "star:3")
        sm = self.opensm("h1")
        switch = self.lids()["switch"] if "switch" in self.lids() else next(
            v for k, v in self.lids().items() if not k.startswith("h"))
        self.on("h1", "ibportstate", switch, "3", "disable")
        self.until(lambda: "1: DOWN" in self.on("h3", "ibstatus"))
        self.on("h1", "ibportstate", switch, "3", "enable")
        self.until(lambda: "4: ACTIVE" in self.on("h3", "ibstatus"))
        self.assertEqual([e for e in sm.errors() if "ERR" in e], [])


class Large(Managed):
    def test_engines(self):
        self.engines(LARGE)

    def test_mpi_over_16_hosts(self):
        program, rank = (os.path.join(self.root, name) for name in ("mpi_all", "rank"))
        subprocess.run(["mpicc", "-O2", "-o", program, MPI_ALL], check=True)
        with open(rank, "w") as f:
            f.write(f'#!/bin/sh\nexec {self.words()[0]} run --host h$((OMPI_COMM_WORLD_RANK + 1)) "$@"\n')
        os.chmod(rank, 0o755)
        self.fabric("up", "--no-sm", "--topology", "fat-tree:4x4,radix=8")
        self.opensm("h1")
        done = subprocess.run(["mpirun", "-np", "16", *MPI, rank, program, "65536", "3"], env=self.env, capture_output=True,
                              text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("ok 16 ranks 65536 bytes", done.stdout)


if __name__ == "__main__":
    if MISSING:
        print(f"SKIP {', '.join(MISSING)}: not installed")
        sys.exit(77)
    unittest.main(defaultTest="Subnets")
