#!/usr/bin/env python3
"""groups_test.py: multicast groups between hosts of a fabric: Debian's mckey joins and leaves at the subnet administrator, which
forgets a host when its last member has left or died.

usage: groups_test.py BUILD_DIR [CLASS...]
"""
import os
import re
import shutil
import subprocess
import sys
import unittest

from fabric_bed import Bed

Bed.build = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else os.path.abspath("build")
MISSING = [p for p in ("mckey", "saquery", "opensm", "stdbuf") if shutil.which(p) is None]
PYTHON = "/usr/bin/python3"  # pyverbs is built for Debian's own
DATAGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "datagram.py")
RDMA_UDP_QKEY = "0x01234567"
GROUP = "ff12:4001:ffff::f01:203"  # of 239.1.2.3, with the RDMA CM's signature


class Groups(Bed):
    topology = "fat-tree:2x2"

    def setUp(self):
        super().setUp()
        self.fabric("up", "--topology", self.topology, *self.up())
        self.manage()
        self.until(lambda: self.fabric("hosts").count("ACTIVE") == 4)

    def up(self):
        return ()

    def manage(self):
        pass

    def begin(self, host, *words):
        process = self.start(host, *words)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def members(self, mgid=GROUP):
        """The hosts that the SA knows as members of the group."""
        text = self.on("h1", "saquery", "--smkey", "1", "-m")
        records = re.findall(r"MGID\.+(\S+)\s+Mlid.*?NodeDescription\.+(\S+)", text, re.DOTALL)
        return sorted(host for group, host in records if group == mgid)

    def groups(self):
        return re.findall(r"MGID\.+(\S+)", self.on("h1", "saquery", "-g"))


class Mckey(Groups):
    trees_of_one = True

    def test_members_receive(self):
        """Two hosts on other switches, one of them twice; by the host's address or the route to the group alone."""
        receivers = [self.begin("h3", "mckey", "-m", "239.1.2.3", "-b", "127.64.0.3"),
                     self.begin("h4", "mckey", "-m", "239.1.2.3"), self.begin("h4", "mckey", "-m", "239.1.2.3")]
        self.until(lambda: self.members() == ["h3", "h4"])
        out = self.on("h1", "mckey", "-m", "239.1.2.3", "-s")
        self.assertRegex(out, f"joined dgid: {GROUP} mlid 0xc")
        for receiver in receivers:
            self.assertEqual(receiver.wait(30), 0)
            self.assertIn("data transfers complete", receiver.stdout.read())
        self.until(lambda: GROUP not in self.groups())

    def test_a_host_leaves_with_its_last_member(self):
        first, second = (self.begin("h3", "stdbuf", "-oL", "mckey", "-m", "239.1.2.3") for _ in range(2))
        other = self.begin("h4", "stdbuf", "-oL", "mckey", "-m", "239.1.2.3")
        for process in first, second, other:
            while "joined dgid" not in process.stdout.readline():
                self.assertIsNone(process.poll())
        self.assertEqual(self.members(), ["h3", "h4"])
        first.kill()
        first.wait()
        other.kill()
        self.until(lambda: self.members() == ["h3"])
        second.kill()
        self.until(lambda: GROUP not in self.groups())

    def counts(self, lid, port):
        """Packets of a port, all and multicast, out and in."""
        text = self.on("h1", "perfquery", "-x", str(lid), str(port))
        return [int(re.search(name + r":\.*(\d+)", text).group(1))
                for name in ("PortXmitPkts", "PortMulticastXmitPkts", "PortRcvPkts", "PortMulticastRcvPkts")]

    def test_datagrams_count_along_their_tree(self):
        """From h2 to h3 and h4, behind another leaf: once on the way up, and once to each."""
        messages = 500
        receivers = [self.begin(host, "mckey", "-m", "239.1.2.3", "-C", str(messages)) for host in ("h3", "h4")]
        self.until(lambda: self.members() == ["h3", "h4"])
        trace = self.on("h2", "ibtracert", str(self.lid("h2")), str(self.lid("h3")))
        port, lid = re.search(r"-> switch port \{\S+\}\[(\d+)\] lid (\d+)-", trace).groups()
        away = {host: (self.lid(host), 1) for host in ("h1", "h2", "h3", "h4")} | {"leaf": (lid, port)}
        before = {host: self.counts(*port) for host, port in away.items()}
        self.on("h2", "mckey", "-m", "239.1.2.3", "-s", "-C", str(messages))
        for receiver in receivers:
            self.assertEqual(receiver.wait(30), 0)
        after = {host: self.counts(*port) for host, port in away.items()}
        more = {host: [a - b for a, b in zip(after[host], before[host])] for host in away}
        self.assertEqual(more["h2"][1], messages, more)
        self.assertEqual([more[place][3] for place in ("leaf", "h1", "h3", "h4")], [messages, 0, messages, messages], more)
        self.assertGreaterEqual(more["h2"][0], messages)
        self.assertGreaterEqual(more["h3"][2], messages)

    def arrived(self):
        """Multicast packets at h3."""
        return self.counts(self.lid("h3"), 1)[3]

    @unittest.skipIf(subprocess.run([PYTHON, "-c", "import pyverbs"], capture_output=True, check=False).returncode != 0,
                     "pyverbs is not installed")
    def test_datagrams_of_a_host_that_is_no_member(self):
        """They take the group's tree where it passes their leaf, and are dropped by a leaf without it. OpenSM sets no table for
        a single member."""
        hosts = ["h3"] if self.trees_of_one else ["h2", "h3"]
        receiver = [self.begin(host, "mckey", "-m", "239.1.2.3", "-C", "20") for host in hosts][-1]
        self.until(lambda: self.members() == hosts)
        mlid = re.search(re.escape(GROUP) + r"\s+Mlid\.+(\S+)", self.on("h1", "saquery", "-g")).group(1)
        before = self.arrived()

        def send(host):
            self.assertEqual(self.on(host, PYTHON, DATAGRAM, "group", mlid, RDMA_UDP_QKEY, GROUP).split(), ["0"] * 10)
            return self.arrived()

        self.until(lambda: send("h4") > before)  # OpenSM answers a join before it sets the tables
        before = self.arrived()
        if self.trees_of_one:
            self.assertEqual(send("h1"), before)
        self.until(lambda: send("h4") > before and receiver.poll() is not None)
        self.assertEqual(receiver.returncode, 0)

    def test_a_member_that_sends_only(self):
        receiver = self.begin("h3", "mckey", "-m", "239.1.2.3")
        self.until(lambda: self.members() == ["h3"])
        self.on("h2", "mckey", "-m", "239.1.2.3", "-s", "-o")
        self.assertEqual(receiver.wait(30), 0)
        self.on("h2", "mckey", "-m", "239.1.2.3", "-s", "-o", "-C", "0")  # alone: it makes the group

    def test_an_mgid(self):
        """A GID as the group's address (AF_IB)."""
        receiver = self.begin("h3", "mckey", "-M", "ff15:1::77", "-b", "127.64.0.3")
        self.until(lambda: self.members("ff15:1::77") == ["h3"])
        self.on("h2", "mckey", "-M", "ff15:1::77", "-b", "127.64.0.2", "-s")
        self.assertEqual(receiver.wait(30), 0)

    def test_port_spaces_and_addresses(self):
        """IPoIB's own groups, IPv6, and a group that the SA names."""
        for words, mgid in (("-m 239.1.1.1 -p 2", "ff12:401b:ffff::f01:101"), ("-m ff0e::1:2:3", "ff12:6001:ffff::1:2:3"),
                            ("-m ff0e::1:2:3 -p 2", "ff12:601b:ffff::1:2:3"), ("-m 0.0.0.0", "ff12:a01b:")):
            source = [] if ":" in words else ["-b", "127.64.0.2"]
            out = self.on("h2", "mckey", *words.split(), *source, "-s", "-C", "0")
            self.assertIn("joined dgid: " + mgid, out)
        self.until(lambda: self.groups() == ["ff12:401b:ffff::ffff:ffff"])


class Mastered(Mckey):
    """The same under OpenSM, which makes IPoIB's broadcast group as well."""
    trees_of_one = False

    def up(self):
        return ("--no-sm",)

    def manage(self):
        self.opensm("h1")


class Masterless(Groups):
    def up(self):
        return ("--no-sm",)

    def setUp(self):
        Bed.setUp(self)
        self.fabric("up", "--topology", "star:2", "--no-sm")

    def test_nobody_to_ask(self):
        done = subprocess.run(self.words("run", "--host", "h1", "mckey", "-m", "239.1.2.3", "-b", "127.64.0.1"), env=self.env,
                              capture_output=True, text=True, timeout=60)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("failure joining: Resource temporarily unavailable", done.stderr)


if __name__ == "__main__":
    if MISSING:
        print(f"SKIP {', '.join(MISSING)}: not installed")
        sys.exit(77)
    unittest.main()
