#!/usr/bin/env python3
"""refuse_test.py: what fails on hardware fails between hosts of a fabric, each as a row: keys, partitions, SLs, LIDs, routes.

usage: refuse_test.py BUILD_DIR
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
PYTHON = "/usr/bin/python3"  # pyverbs is built for Debian's own
DATAGRAM = (PYTHON, os.path.join(os.path.dirname(os.path.abspath(__file__)), "datagram.py"))
MISSING = [p for p in ("opensm", "ib_send_lat", "smpquery", "saquery") if shutil.which(p) is None]
if subprocess.run([PYTHON, "-c", "import pyverbs"], capture_output=True, check=False).returncode != 0:
    MISSING.append("pyverbs")
# SL 2 has no VL; LMC 1: each port has two LIDs
CONF = ("qos TRUE\nqos_max_vls 4\nqos_high_limit 4\nqos_vlarb_high 0:4\nqos_vlarb_low 0:4,1:4\n"
        "qos_sl2vl 0,1,15,1,1,1,1,1,1,1,1,1,1,1,1,1\nlmc 1\n")
PARTITIONS = "Default=0x7fff,ipoib:ALL=full;\nblue=0x8001:{1}=full,{2}=full,{3}=limited,{4}=limited;\n"
GUID = "0x02a0000000000{}01"
RETRY_EXCEEDED = "status 12"
QKEY, OTHER_QKEY = 0x1234, 0x1235
BLUE = 1  # the index of the partition's P_Key in the tables of h1 to h4; h5 has only the default one

# from, to, the connection's P_Key index at each end, SL: does an RC connection work?
CONNECTIONS = [
    ("both full members", "h1", "h2", BLUE, BLUE, 0, True),
    ("a full and a limited member", "h1", "h3", BLUE, BLUE, 0, True),
    ("two limited members", "h3", "h4", BLUE, BLUE, 0, False),
    ("no member", "h1", "h5", BLUE, 0, 0, False),
    ("another SL", "h1", "h2", 0, 0, 1, True),
    ("an SL without a VL", "h1", "h2", 0, 0, 2, False),
]
# the receiver's P_Key index and Q_Key, the sender's, and what of PortInfo counts
DATAGRAMS = [
    ("the same keys", (QKEY, 0), (QKEY, 0), "h1", "h2", None),
    ("in a partition", (QKEY, BLUE), (QKEY, BLUE), "h1", "h3", None),
    ("a wrong Q_Key", (QKEY, 0), (OTHER_QKEY, 0), "h1", "h2", "QkeyViolations"),
    ("the P_Key of another queue pair", (QKEY, 0), (QKEY, BLUE), "h1", "h2", "PkeyViolations"),
    ("two limited members", (QKEY, BLUE), (QKEY, BLUE), "h3", "h4", "drop"),
]


class Refused(Bed):
    """All on one fabric."""
    bed = None

    @classmethod
    def setUpClass(cls):
        cls.bed = Bed()
        cls.bed.setUp()

    @classmethod
    def tearDownClass(cls):
        cls.bed.tearDown()

    def setUp(self):
        self.root, self.env, self.managers = self.bed.root, self.bed.env, self.bed.managers
        if not self.managers:
            self.bring_up()
        self.sm = self.managers[0]

    def tearDown(self):
        pass

    def bring_up(self):
        self.fabric("up", "--no-sm", "--topology", "star:5")
        path = os.path.join(self.root, "partitions")
        with open(path, "w") as f:
            f.write(PARTITIONS.format(*(GUID.format(i) for i in range(5))))
        self.opensm("h1", "-Q", "-P", path, conf=CONF)

    def begin(self, host, *words, **how):
        process = subprocess.Popen(self.words("run", "--host", host, *words), env=self.env, stdout=subprocess.PIPE, text=True, **how)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def connects(self, words, hosts, pkeys):
        """What a client says whose queue pair is connected with one of another host, and whether it succeeds."""
        server = self.begin(hosts[0], *words, "--pkey_index", str(pkeys[0]), stderr=subprocess.DEVNULL)
        for _ in range(100):  # until the server listens
            client = subprocess.run(self.words("run", "--host", hosts[1], *words, "--pkey_index", str(pkeys[1]), "127.0.0.1"),
                                    env=self.env, capture_output=True, text=True, timeout=60)
            if not re.search("Couldn't connect|Connection refused|connect\\(\\) failed", client.stdout + client.stderr):
                break
            time.sleep(0.05)
        server.kill()
        return client.stdout + client.stderr, client.returncode == 0

    def test_connections(self):
        for why, client, server, mine, theirs, sl, works in CONNECTIONS:
            with self.subTest(why):
                words = ("ib_send_lat", "-d", "ib0", "-n", "20", "-u", "10", "-S", str(sl))
                out, done = self.connects(words, (server, client), (theirs, mine))
                self.assertEqual(done, works, out)
                if not works:
                    self.assertIn(RETRY_EXCEEDED, out)

    def violations(self, host):
        text = self.on(host, "smpquery", "portinfo", str(self.lid(host)), "1")
        return {name: int(n) for name, n in re.findall(r"^([MPQ]keyViolations):\.*(\d+)", text, re.M)}

    def datagrams(self, receiver, sender, keys, sent, lid=None, sl=0):
        """How many of ten arrive."""
        first = self.begin(receiver, *DATAGRAM, "receive", *map(str, keys), stdin=subprocess.PIPE)
        qpn = first.stdout.readline().strip()
        lid = self.lid(receiver) if lid is None else lid
        out = self.on(sender, *DATAGRAM, "send", str(lid), qpn, *map(str, sent), str(sl))
        self.assertEqual(out.split(), ["0"] * 10)  # a datagram's sender never learns what became of it
        return int(first.communicate("", timeout=60)[0])

    def test_datagrams(self):
        for why, keys, sent, sender, receiver, counts in DATAGRAMS:
            with self.subTest(why):
                before = self.violations(receiver)
                self.assertEqual(self.datagrams(receiver, sender, keys, sent), 0 if counts else 10)
                if counts in before:
                    self.until(lambda: self.violations(receiver)[counts] >= before[counts] + 10)
                    after = self.violations(receiver)
                    self.assertEqual({n for n in after if after[n] != before[n]}, {counts})
                else:
                    self.assertEqual(self.violations(receiver), before)

    def test_a_wrong_key_is_told_the_manager(self):
        for trap, keys, sent in (258, (QKEY, 0), (OTHER_QKEY, 0)), (257, (QKEY, 0), (QKEY, BLUE)):
            self.datagrams("h2", "h1", keys, sent)
            self.until(lambda: re.search(rf"trap[ :]*{trap}|num[: =]*{trap}", self.sm.log(), re.I))

    def test_lids(self):
        """With LMC 1 a port has two LIDs; a LID of nobody is nowhere."""
        base = self.lid("h2")
        self.assertIn("LMC:.............................1", self.on("h1", "smpquery", "portinfo", str(base), "1"))
        for lid, arrive in (base, 10), (base + 1, 10), (1000, 0):
            with self.subTest(lid=lid):
                self.assertEqual(self.datagrams("h2", "h1", (QKEY, 0), (QKEY, 0), lid), arrive)
        self.assertEqual(self.on("h1", "saquery", "-p", "--src-to-dst", f"{self.lid('h1')}:{base + 1}").count(f"dlid....................{base + 1}\n"), 1)

    def test_an_sl_without_a_vl(self):
        for sl, arrive in (0, 10), (1, 10), (2, 0):
            with self.subTest(sl=sl):
                self.assertEqual(self.datagrams("h2", "h1", (QKEY, 0), (QKEY, 0), sl=sl), arrive)


if __name__ == "__main__":
    if MISSING:
        print(f"SKIP {', '.join(MISSING)}: not installed")
        sys.exit(77)
    unittest.main()
