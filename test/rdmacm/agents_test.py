#!/usr/bin/env python3
"""agents_test.py: unsolicited MADs between processes and hosts: each goes to the process whose agent takes its method, in messages of
many MADs (RMPP) both ways; one table for the agents of all processes, which outlives the node and not a process.

usage: agents_test.py BUILD_DIR
"""
import errno
import json
import os
import signal
import subprocess
import time
import unittest

from nodes import COMMAND, HOSTS, NodesTest

GET, TABLE, MULTI = "0x01", "0x12", "0x14"  # methods
BYTES = 100001  # 464 segments, of 220 bytes at most, in windows of 64
UNSUPPORTED = "status 0xc\n"


class AgentsTest(NodesTest):
    def serve(self, host, *methods):
        """The server and its first line."""
        child = self.start(host, "rdmacm_agents", "serve", *methods)
        return child, child.stdout.readline()

    def ask(self, host, method, size=BYTES):
        child = self.start(host, "rdmacm_agents", "ask", HOSTS["a"], method, str(size))
        out, err = child.communicate(timeout=60)
        self.assertEqual(child.returncode, 0, err)
        return out

    def test_two_processes_share_a_class(self):
        self.assertEqual(self.serve("a", TABLE)[1], "ready\n")
        self.assertEqual(self.serve("a", MULTI)[1], "ready\n")
        for host in HOSTS:
            for method in (TABLE, MULTI):
                self.assertEqual(self.ask(host, method), f"answered {BYTES}\n", host + method)

    def test_a_method_has_one_process(self):
        first, said = self.serve("a", TABLE)
        self.assertEqual(said, "ready\n")
        self.assertEqual(self.serve("a", GET, TABLE)[1], f"refused {errno.EINVAL}\n")
        self.assertEqual(self.serve("b", GET, TABLE)[1], "ready\n")  # another host has another table
        first.kill()
        first.wait()
        for _ in range(100):
            _, said = self.serve("a", GET, TABLE)
            if said == "ready\n":
                break
            time.sleep(0.01)  # the node has not seen the end
        self.assertEqual(said, "ready\n")
        self.assertEqual(self.ask("a", TABLE), f"answered {BYTES}\n")

    def test_a_get_for_nobody_is_refused(self):
        self.serve("a", TABLE)
        for host in HOSTS:
            begin = time.monotonic()
            self.assertEqual(self.ask(host, GET, 10), UNSUPPORTED, host)
            self.assertLess(time.monotonic() - begin, 2.5)

    def test_agents_outlive_the_node(self):
        server, _ = self.serve("a", TABLE)
        pid = json.loads(subprocess.run([COMMAND, "status", "--json"], env=self.env["a"], capture_output=True, text=True,
                                        check=True).stdout)["pid"]
        os.kill(pid, signal.SIGKILL)
        for host in HOSTS:
            self.assertEqual(self.ask(host, TABLE), f"answered {BYTES}\n", host)
        self.assertEqual(self.serve("a", TABLE)[1], f"refused {errno.EINVAL}\n")
        self.assertIsNone(server.poll())


if __name__ == "__main__":
    unittest.main()
