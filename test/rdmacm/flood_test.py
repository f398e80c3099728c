#!/usr/bin/env python3
"""flood_test.py: a flood of connection requests, from a process of the same host and from another host: the listener's memory
stays bounded, its backlog holds, data goes on beside it, and the next honest client connects.

usage: flood_test.py BUILD_DIR
"""
import json
import os
import re
import shutil
import subprocess
import time
import unittest

from nodes import COMMAND, HOSTS, NodesTest

REQUESTS = 100000
BACKLOG = 64
LIMIT_S = 120         # for all of the requests
GROWTH_KIB = 48 << 10  # of the listener: 12,288 MADs, 8,192 requests without a handler's look, and what malloc keeps


class FloodTest(NodesTest):
    def setUp(self):
        super().setUp()
        self.listener = self.start("a", "rdmacm_peer", "listen", HOSTS["a"], str(BACKLOG), "TCP", "1")
        self.port = self.listener.stdout.readline().strip()
        self.assertRegex(self.port, r"^\d+$", "the listener does not listen")
        self.pid = self.of_program(self.listener.pid)

    def of_program(self, pid):
        """`anyverbs run` becomes the program, or has it as its child."""
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            return int((f.read().split() or [pid])[0])

    def resident_kib(self):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as f:
            return sum(int(kib) for kib in re.findall(r"(?:RssAnon|RssShmem):\s+(\d+) kB", f.read()))

    def order(self, line):
        self.listener.stdin.write(line + "\n")
        self.listener.stdin.flush()

    def counters(self):
        said = subprocess.run([COMMAND, "status", "--json"], env=self.env["a"], capture_output=True, text=True, check=True)
        for process in json.loads(said.stdout)["processes"]:
            if process["pid"] == self.pid:
                return process["counters"]
        return self.fail("the listener is not in status")

    def settle(self):
        """Waits until all that was sent has been received or lost: the number of MADs received."""
        before, now = -1, self.counters()["mad_received"]
        while now != before:
            time.sleep(0.5)
            before, now = now, self.counters()["mad_received"]
        return now

    def flood(self, host):
        """Sends all requests and watches the listener meanwhile: the seconds, and KiB that it grew at most."""
        before, most, begin = self.resident_kib(), 0, time.monotonic()
        sender = self.start(host, "rdmacm_flood", str(REQUESTS), HOSTS["a"], self.port)
        while sender.poll() is None:
            most = max(most, self.resident_kib() - before)
            self.assertLess(time.monotonic() - begin, LIMIT_S, "the flood does not end")
            time.sleep(0.05)
        out, err = sender.communicate()
        self.assertEqual(sender.returncode, 0, err)
        self.assertIn(f"sent {REQUESTS}", out)
        return time.monotonic() - begin, most

    def check_honest_client(self, host):
        self.order("accept")
        client = self.start(host, "rdmacm_peer", "connect", HOSTS["a"], self.port)
        out, err = client.communicate(timeout=60)
        self.assertEqual(client.returncode, 0, err)
        self.assertEqual(out, "established\n")
        self.assertEqual(self.listener.stdout.readline(), "accepted\n")

    def check_flood(self, host):
        self.check_honest_client(host)  # what the first connection needs is no growth
        seconds, grown = self.flood(host)
        print(f"{REQUESTS} requests from host {host}: {seconds:.1f} s, the listener grew by {grown} KiB")
        self.assertLess(grown, GROWTH_KIB)
        self.assertGreater(self.settle(), 1000)
        self.order("drain")
        drained = int(self.listener.stdout.readline().split()[1])
        self.assertGreater(drained, 0)
        self.assertLessEqual(drained, BACKLOG)
        self.check_honest_client(host)

    def test_from_a_process_of_the_host(self):
        self.check_flood("a")

    def test_from_another_host(self):
        self.check_flood("b")

    def write_from(self, host):
        """MiB/s of ib_write_bw from a process of this host to one of the listener's."""
        words = [COMMAND, "run", "ib_write_bw", "-F", "-x", "1", "-s", "65536", "-D", "1", "-p",
                 str(20000 + os.getpid() % 10000)]
        server = subprocess.Popen(words, env=self.env["a"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.children.append(server)
        for _ in range(100):
            done = subprocess.run([*words, "127.0.0.1"], env=self.env[host], capture_output=True, text=True, timeout=60,
                                  check=False)
            if done.returncode == 0:
                break
            time.sleep(0.1)  # the server does not listen yet
        rates = re.findall(r"(?m)^ *65536 +\d+ +[\d.]+ +([\d.]+)", done.stdout)
        self.assertEqual(len(rates), 1, done.stdout + done.stderr)
        self.assertEqual(server.wait(60), 0)
        return float(rates[0])

    @unittest.skipIf(shutil.which("ib_write_bw") is None, "ib_write_bw is missing")
    def test_data_goes_on(self):
        """Beside a flood from another host, between processes and from that host. The four programs share the cores."""
        quiet = [self.write_from(host) for host in HOSTS]
        sender = self.start("b", "rdmacm_flood", str(100 * REQUESTS), HOSTS["a"], self.port)
        time.sleep(0.5)
        flooded = [self.write_from(host) for host in HOSTS]
        self.assertIsNone(sender.poll(), "the flood ended early")
        for host, before, after in zip(HOSTS, quiet, flooded):
            print(f"ib_write_bw from host {host}: {before:.0f} MiB/s, beside the flood {after:.0f}")
            self.assertGreater(after, before / 200)  # other programs may share the cores, too


if __name__ == "__main__":
    unittest.main()
