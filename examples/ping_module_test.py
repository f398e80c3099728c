#!/usr/bin/env python3
"""ping_module_test.py PING ANYVERBS: the module at two ends, and what it says without a peer, interrupted, and of bad lines."""
import os
import signal
import subprocess
import sys
import unittest

COMMAND, PING = sys.argv.pop(), sys.argv.pop()
ENVIRONMENT = dict(os.environ, ANYVERBS_NODE=f"ping-{os.getpid()}", ANYVERBS_IDLE_S="30")
PORT = 7174


def begin(line):
    ping = subprocess.Popen([PING, "timeout=100"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=ENVIRONMENT)
    ping.stdin.write(line)
    ping.stdin.flush()
    return ping


def run(line):
    return subprocess.run([PING, "timeout=100"], input=line, capture_output=True, text=True, env=ENVIRONMENT)


class Ping(unittest.TestCase):
    def setUp(self):
        self.ends = []

    def tearDown(self):
        for end in self.ends:
            end.kill()
            end.communicate()

    def begin(self, line):
        self.ends.append(begin(line))
        return self.ends[-1]

    def client(self, line):
        """Again while nobody listens yet: the server's line has no answer before a client has come."""
        done = run(line)
        while "error -111" in done.stderr:
            done = run(line)
        return done

    def test_there_and_back(self):
        server = self.begin(f"ping server,port={PORT}\nping\n")
        done = self.client(f"ping client,port={PORT},addr=127.0.0.1,count=500\nping\n")
        self.assertEqual(done.stderr, "ping: 500 of 500 came back\n")
        self.assertEqual(done.stdout, "500 messages\n")
        out, said = server.communicate()
        self.assertEqual((out, said, server.returncode), ("500 messages\n", "", 0))

    def test_interrupted(self):
        server = self.begin(f"ping\nping server,port={PORT + 1}\n")
        server.stdout.readline()
        server.send_signal(signal.SIGINT)
        _, said = server.communicate()
        self.assertIn("ping: error -512\n", said)
        self.assertEqual(server.returncode, 1)

    def test_nobody_listens(self):
        done = run(f"ping client,port={PORT + 2},addr=127.0.0.1\n")
        self.assertRegex(done.stderr, r"^ping: CM event 8, status \d+\nping: error -111\n")

    def test_bad_lines(self):
        for line in ("client,port=x", "client,what", "client,addr=1.2.3", "client,port=99999999"):
            self.assertIn("ping: error -22\n", run(f"ping {line}\n").stderr)


if __name__ == "__main__":
    try:
        unittest.main()
    finally:
        subprocess.run([COMMAND, "stop", "--force"], env=ENVIRONMENT, capture_output=True, timeout=60)
