#!/usr/bin/env python3
"""connections_test.py: Debian's programs of the RDMA CM between hosts of a fabric with the node's own subnet manager: by the
addresses that hosts have without an IP interface.

usage: connections_test.py BUILD_DIR
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

from fabric_bed import Bed

Bed.build = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else os.path.abspath("build")
PROGRAMS = "rping ucmatose udaddy rstream riostream udpong perfquery ib_send_lat ib_write_lat qperf".split()
MISSING = [p for p in PROGRAMS if shutil.which(p) is None]
# what programs say of a connection that is refused: the last are rstream, udaddy and perftest
NOT_YET = ("reject", "refused", "failed to connect", "couldn't connect", "event: rdma_cm_event_rejected", "rpoll: operation now in progress",
           "event: rdma_cm_event_unreachable, error: 1", "unexpected cm event bl blka 8")


class Connections(Bed):
    def setUp(self):
        super().setUp()
        self.fabric("up", "--topology", "star:3")
        self.until(lambda: self.fabric("hosts").count("ACTIVE") == 3)

    def begin(self, host, *words):
        """A program that goes on; it is ended with the test."""
        process = self.start(host, *words)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def connect(self, server, client):
        """Both ends of a program: the client begins again until the server listens."""
        first = self.begin("h1", *server)
        for _ in range(100):
            second = subprocess.run(self.words("run", "--host", "h2", *client), env=self.env, capture_output=True, text=True,
                                    timeout=60)
            out = second.stdout + second.stderr
            if second.returncode == 0 or not any(word in out.lower() for word in NOT_YET):
                break
        self.assertEqual(second.returncode, 0, out)
        return out, first

    def gid(self, host):
        return self.on(host, "cat", "/sys/class/infiniband/ib0/ports/1/gids/0").strip()

    def test_programs(self):
        for server, client in (("rping -s -a 127.64.0.1 -C 3", "rping -c -a 127.64.0.1 -C 3"),
                               ("rping -s -C 3", "rping -c -a 127.64.0.1 -C 3"),
                               ("ucmatose -b 127.64.0.1", "ucmatose -b 127.64.0.2 -s 127.64.0.1"),
                               ("udaddy", "udaddy -s 127.64.0.1"),
                               ("rstream -S 65536 -C 10", "rstream -s 127.64.0.1 -S 65536 -C 10"),
                               ("riostream -S 65536 -C 10 -I 2", "riostream -s 127.64.0.1 -S 65536 -C 10 -I 2"),
                               ("ib_send_lat -R -n 100", "ib_send_lat -R -n 100 127.64.0.1"),
                               ("ib_write_lat -n 100", "ib_write_lat -n 100 127.64.0.1")):
            out, first = self.connect(server.split(), client.split())
            self.assertEqual(first.wait(60), 0, client + out)
        gid = self.gid("h1")
        for server, client in (("ucmatose -f gid -b {}", "ucmatose -f gid -s {}"), ("ucmatose -f gid", "ucmatose -f gid -s {}"),
                               ("ucmatose -f gid -P ib", "ucmatose -f gid -P ib -s {}"), ("udaddy -f gid", "udaddy -f gid -s {}"),
                               ("rstream -f gid -b {} -S 65536 -C 10 -T v", "rstream -f gid -s {} -S 65536 -C 10 -T v"),
                               ("rstream -f gid -T b -S 1000 -C 10", "rstream -f gid -T b -s {} -S 1000 -C 10"),
                               ("rstream -f gid -T a -S 1000 -C 10", "rstream -f gid -T a -s {} -S 1000 -C 10"),
                               ("riostream -f gid -b {} -S 65536 -C 10 -I 2 -T v", "riostream -f gid -s {} -S 65536 -C 10 -I 2 -T v"),
                               ("rstream -f gid -S 1000 -C 10", "rstream -s 127.64.0.1 -S 1000 -C 10")):
            out, first = self.connect(server.format(gid).split(), client.format(gid).split())
            self.assertEqual(first.wait(60), 0, client + out)
        out, first = self.connect(["qperf"], "qperf 127.64.0.1 -t 1 -cm 1 rc_lat".split())
        self.assertIn("latency", out)

    def sent(self, host):
        return int(re.search(r"PortXmitPkts:\.*(\d+)", self.on(host, "perfquery", "-x")).group(1))

    def test_datagrams(self):
        """Datagrams of rsockets go through the fabric once both queue pairs are known."""
        before = [self.sent(host) for host in ("h1", "h2")]
        self.begin("h1", *"udpong -b 127.64.0.1".split())
        self.until(lambda: subprocess.run(["grep", "-q", f"0100407F:{7174:04X}", "/proc/net/udp"]).returncode == 0)
        self.on("h2", *"udpong -s 127.64.0.1 -T e -C 500 -S 512".split())
        for host, packets in zip(("h1", "h2"), before):
            self.until(lambda: self.sent(host) >= packets + 450)

    def test_a_port_is_a_hosts(self):
        """Both hosts listen on one port, and each gets its own requests."""
        other = self.begin("h2", *"rping -s -v -C 1".split())
        out, mine = self.connect("rping -s -v -C 2".split(), "rping -c -a 127.64.0.1 -C 2".split())
        self.assertEqual(mine.wait(60), 0)
        self.assertIsNone(other.poll())
        self.on("h3", *"rping -c -a 127.64.0.2 -C 1".split())
        self.assertEqual(other.wait(60), 0)
        self.assertIn("rdma-ping-0", other.stdout.read())
        self.on("h2", *"rping -c -a 127.64.0.1 -C 1".split(), status=255)  # refused: nobody listens there any more
        self.on("h2", *"rping -c -a 127.64.0.9 -C 1".split(), status=255)  # nobody has the address

    def outlive(self):
        """What a server says whose client is killed."""
        server = self.begin("h1", *"rping -s -v".split())
        client = self.begin("h2", *"rping -c -v -a 127.64.0.1".split())
        while "ping data" not in client.stdout.readline():
            if client.poll() is not None:
                client = self.begin("h2", *"rping -c -v -a 127.64.0.1".split())
        client.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        client.kill()
        return server.communicate(timeout=20)[0]

    def test_a_peer_that_is_killed(self):
        """A server that waits for an acknowledgement mostly ends by that error before it is told: then once more."""
        self.assertTrue(any("DISCONNECT" in self.outlive() for _ in range(40)))


if __name__ == "__main__":
    if MISSING:
        print(f"SKIP {', '.join(MISSING)}: not installed")
        sys.exit(77)
    unittest.main()
