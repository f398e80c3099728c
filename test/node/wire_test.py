#!/usr/bin/env python3
"""wire_test.py: programs of two nodes that talk over UDP while their nodes are killed and replaced.

usage: wire_test.py BUILD_DIR

Two nodes of one machine, each with a loopback address, are two hosts to their programs (ibv_rc_pingpong).
"""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else os.path.abspath("build")
ANYVERBS = os.path.join(BUILD, "bin", "anyverbs")
SKIPPED = 77
PATIENCE_S = 60  # for what must happen, however busy the machine: nothing waits so long unless it is lost


class Host:
    """A node with an address of its own."""
    count = 0

    def __init__(self, folder):
        Host.count += 1
        pid = os.getpid()
        self.address = f"127.{100 + Host.count}.{pid >> 8 & 255}.{pid & 255 or 1}"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("ANYVERBS_", "LD_"))}
        self.env.update(ANYVERBS_NODE=f"wire-{pid}-{Host.count}", ANYVERBS_ADDR=self.address, ANYVERBS_IDLE_S="20",
                        XDG_RUNTIME_DIR=folder)

    def start(self, *words):
        return subprocess.Popen([ANYVERBS, "run", *words], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True)

    def status(self):
        done = subprocess.run([ANYVERBS, "status", "--json"], env=self.env, capture_output=True, text=True, timeout=30)
        return json.loads(done.stdout)

    def stop(self):
        subprocess.run([ANYVERBS, "stop", "--force"], env=self.env, capture_output=True, timeout=30)


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="anyverbs-wire-")
        self.hosts = [Host(self.folder), Host(self.folder)]
        self.children = []

    def tearDown(self):
        for child in self.children:
            child.kill()
            child.communicate()
        for host in self.hosts:
            host.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def until(self, what, seconds=PATIENCE_S):
        """Waits until that is true; whether it is."""
        deadline = time.monotonic() + seconds
        while not what() and time.monotonic() < deadline:
            time.sleep(0.02)
        return what()

    @staticmethod
    def listens(port):
        """Asked of the kernel: the server takes the first connection for its peer."""
        for table in ("tcp", "tcp6"):
            try:
                with open(f"/proc/net/{table}", encoding="ascii") as f:
                    rows = [line.split() for line in f.readlines()[1:]]
            except FileNotFoundError:  # no IPv6
                continue
            if any(row[3] == "0A" and int(row[1].rsplit(":", 1)[1], 16) == port for row in rows):
                return True
        return False

    def pingpong(self, *words):
        """A server on the first host and a client on the second."""
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        command = ("ibv_rc_pingpong", "-g", "1", "-c", "-p", str(port), *words)
        server = self.hosts[0].start(*command)
        self.children.append(server)
        self.assertTrue(self.until(lambda: self.listens(port) or server.poll() is not None))
        client = self.hosts[1].start(*command, "127.0.0.1")
        self.children.append(client)
        return server, client

    def assert_good(self, *children):
        for child in children:
            output, _ = child.communicate(timeout=100)
            self.assertEqual(child.returncode, 0, output)
            self.assertIn("iters in", output)

    def received(self, host):
        """Messages, of the only process there."""
        processes = self.hosts[host].status().get("processes", [])
        return processes[0]["qps"][0]["received"] if processes and processes[0]["qps"] else 0

    def wait_progress(self, host):
        before = self.received(host)
        self.assertTrue(self.until(lambda: self.received(host) > before), "the messages stand still")

    def socket_of(self, host):
        """(what the host's address has, how many slots use it)."""
        address = (self.hosts[host].status().get("addresses") or [{}])[0]
        return address.get("udp"), address.get("slots")

    def test_kill_the_nodes_under_traffic(self):
        server, client = self.pingpong("-n", str(10 ** 9), "-s", "64")  # longer than the test, however quick it is
        killed = set()
        for _ in range(3):
            for host in (0, 1):
                self.wait_progress(host)
                pid = self.hosts[host].status()["pid"]
                self.assertNotIn(pid, killed)
                killed.add(pid)
                os.kill(pid, signal.SIGKILL)
                # the survivor starts another, and brings its socket along
                self.until(lambda: self.socket_of(host) == ("open", 1))
                self.assertEqual(self.socket_of(host), ("open", 1))
        for host in (0, 1):
            self.wait_progress(host)
        self.assertIsNone(server.poll())
        self.assertIsNone(client.poll())
        client.kill()
        server.kill()
        # newcomers find everything in order
        self.assert_good(*self.pingpong("-n", "200"))

    def test_a_short_one_survives_from_beginning_to_end(self):
        server, client = self.pingpong("-n", "20000", "-s", "5000")
        self.assertTrue(self.until(lambda: self.received(0) > 0 or client.poll() is not None))
        for host in (0, 1):
            pid = self.hosts[host].status().get("pid")
            if pid:
                os.kill(pid, signal.SIGKILL)
        self.assert_good(server, client)


if __name__ == "__main__":
    if shutil.which("ibv_rc_pingpong") is None:
        print("skipped: ibv_rc_pingpong is not installed")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
