#!/usr/bin/env python3
"""resolve_test.py: addresses that are resolved, or not, on a host of our own whose neighbours come and go: network namespaces
joined by a veth pair.

usage: resolve_test.py BUILD_DIR

Needs no right: an ordinary user gets them in a user namespace of his own. Where even that is forbidden it ends with 77: skipped.
"""
import errno
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from inside import BUILD, go_inside, ip, start_host

PATIENCE = 30  # seconds, for a busy machine


class Resolve(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.mkdtemp(prefix="anyverbs-resolve-")
        os.chmod(cls.root, 0o700)
        cls.env = {k: v for k, v in os.environ.items() if not k.startswith(("ANYVERBS_", "LD_", "XDG_"))}
        cls.env.update(ANYVERBS_NODE=f"resolve-{os.getpid()}", XDG_RUNTIME_DIR=cls.root)
        cls.peer = start_host()
        ip("addr", "add", "10.9.0.1/24", "dev", "t0")
        ip("link", "set", "t0", "up")
        ip("addr", "add", "10.9.0.2/24", "dev", "t1", host=cls.peer.pid)
        ip("link", "set", "t1", "up", host=cls.peer.pid)
        cls.link_local = cls.link_local_of("t1", cls.peer.pid)

    @classmethod
    def link_local_of(cls, name, host):
        """Once it is usable on both sides."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            words = subprocess.run(["nsenter", "-t", str(host), "-n", "ip", "-6", "-o", "addr", "show", "dev", name, "scope", "link"],
                                   capture_output=True, text=True, check=True).stdout
            mine = subprocess.run(["ip", "-6", "-o", "addr", "show", "dev", "t0", "scope", "link"],
                                  capture_output=True, text=True, check=True).stdout
            if "fe80" in words and "fe80" in mine and "tentative" not in words + mine:
                return words.split()[3].split("/")[0]
            time.sleep(0.05)
        return None

    @classmethod
    def tearDownClass(cls):
        subprocess.run([f"{BUILD}/bin/anyverbs", "stop", "--force"], env=cls.env, capture_output=True)
        cls.peer.kill()
        cls.peer.wait()
        shutil.rmtree(cls.root, ignore_errors=True)

    def run_it(self, *words):
        done = subprocess.run([f"{BUILD}/test/rdmacm_resolver", *words], env=self.env, capture_output=True, text=True, timeout=200)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [line.split() for line in done.stdout.splitlines()]

    def resolve(self, to, timeout_ms=5000):
        """(event or errno's name, status, milliseconds)"""
        line, = self.run_it("resolve", to, str(timeout_ms))
        return self.judge(line)

    @staticmethod
    def judge(line):
        if line[0] == "error":
            return errno.errorcode[int(line[1])], 0, 0
        return line[0].removeprefix("RDMA_CM_EVENT_"), int(line[1]), int(line[2])

    def test_a_neighbour_that_answers(self):
        event, status, _ = self.resolve("10.9.0.2")
        self.assertEqual((event, status), ("ADDR_RESOLVED", 0))

    def test_a_neighbour_that_is_silent_costs_the_timeout(self):
        for timeout_ms in (200, 900):
            event, status, took = self.resolve("10.9.0.77", timeout_ms)
            self.assertEqual((event, status), ("ADDR_ERROR", -errno.ETIMEDOUT))
            self.assertGreaterEqual(took, timeout_ms)
            self.assertLess(took, timeout_ms + 15000)

    def test_a_neighbour_that_comes_late(self):
        add = threading.Timer(4, ip, ("addr", "add", "10.9.0.5/24", "dev", "t1"), {"host": self.peer.pid})
        add.start()
        event, status, took = self.resolve("10.9.0.5", 20000)
        add.join()
        ip("addr", "del", "10.9.0.5/24", "dev", "t1", host=self.peer.pid)
        self.assertEqual((event, status), ("ADDR_RESOLVED", 0))
        self.assertGreater(took, 500)

    def test_no_route(self):
        self.assertEqual(self.resolve("203.0.113.7")[0], "ENETUNREACH")

    def test_a_link_local_neighbour(self):
        if self.link_local is None:
            self.skipTest("no IPv6 here")
        self.assertEqual(self.resolve(f"{self.link_local}%t0")[:2], ("ADDR_RESOLVED", 0))

    def test_scopes_are_interfaces(self):
        if self.link_local is None:
            self.skipTest("no IPv6 here")
        mine = self.link_local_of("t0", os.getpid())
        index = str(socket.if_nametoindex("t0"))
        self.assertEqual(self.run_it("scopes", f"{mine}%t0"), [[index] * 3])
        self.assertEqual(self.run_it("scopes", "::1"), [["0"] * 3])

    def test_the_wildcard_is_this_host(self):
        for to in ("0.0.0.0", "::"):
            self.assertEqual(self.resolve(to)[:2], ("ADDR_RESOLVED", 0), to)

    def test_binding(self):
        wanted = {"10.9.0.1": 0, "10.9.0.2": errno.EADDRNOTAVAIL, "2001:db8::7": errno.EADDRNOTAVAIL, "fe80::7": errno.EINVAL}
        for address, err in wanted.items():
            (_, got), = self.run_it("bind", address)
            self.assertEqual(int(got), err, address)

    def test_few_descriptors_are_no_lack_of_devices(self):
        self.resolve("127.0.0.1")  # the node runs
        lines = [self.judge(line) for line in self.run_it("scarce", "127.0.0.1")]
        wrong = [(i, line) for i, line in enumerate(lines) if line[0] not in ("EMFILE", "ENFILE", "ADDR_RESOLVED")
                 and line[1] not in (-errno.EMFILE, -errno.ENFILE)]
        self.assertEqual(wrong, [])
        self.assertIn("EMFILE", [line[0] for line in lines])
        self.assertEqual(lines[-1][0], "ADDR_RESOLVED")

    def next_line(self, child, seconds):
        ready, _, _ = select.select([child.stdout], [], [], seconds)
        return os.read(child.stdout.fileno(), 4096).decode() if ready else ""

    def test_an_address_that_leaves(self):
        ip("addr", "add", "10.9.0.9/24", "dev", "t0")
        child = None
        try:
            end = time.monotonic() + PATIENCE
            while self.run_it("bind", "10.9.0.9") != [["error", "0"]] and time.monotonic() < end:
                time.sleep(0.1)
            child = subprocess.Popen([f"{BUILD}/test/rdmacm_resolver", "watch", "10.9.0.9"], env=self.env, stdout=subprocess.PIPE)
            self.assertEqual(self.next_line(child, PATIENCE), "bound 0\n")
            for _ in range(2):  # it may come and go
                ip("addr", "add", "10.9.0.10/24", "dev", "t0")  # another one's coming and going is none of the id's business
                ip("addr", "del", "10.9.0.10/24", "dev", "t0")
                self.assertEqual(self.next_line(child, 1), "")
                ip("addr", "del", "10.9.0.9/24", "dev", "t0")
                self.assertTrue(self.next_line(child, PATIENCE).startswith("RDMA_CM_EVENT_ADDR_CHANGE 0 "))
                ip("addr", "add", "10.9.0.9/24", "dev", "t0")
                self.assertEqual(self.next_line(child, 1), "")
        finally:
            if child:
                child.kill()
                child.communicate()
            ip("addr", "del", "10.9.0.9/24", "dev", "t0")


if __name__ == "__main__":
    go_inside()
    unittest.main()
