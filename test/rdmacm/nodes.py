"""nodes.py: two nodes on loopback addresses of their own, as two hosts are: what the tests of this folder begin with.

Takes BUILD_DIR from the program's arguments.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else os.path.abspath("build")
COMMAND = os.path.join(BUILD, "bin", "anyverbs")
# Of this run alone: an address belongs to one node of the network namespace.
NET = f"127.{64 + (os.getpid() >> 14 & 31)}.{os.getpid() >> 6 & 255}."
HOSTS = {"a": NET + str((os.getpid() & 63) * 4 + 1), "b": NET + str((os.getpid() & 63) * 4 + 2)}


class NodesTest(unittest.TestCase):
    """`env`: the environment of a program of each host."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="anyverbs-nodes-")
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("ANYVERBS_", "XDG_"))}
        self.env = {host: dict(clean, ANYVERBS_NODE=f"nodes-{os.getpid()}-{host}", ANYVERBS_ADDR=address,
                               XDG_RUNTIME_DIR=self.folder) for host, address in HOSTS.items()}
        self.children = []

    def tearDown(self):
        for child in self.children:
            child.kill()
            child.communicate()
        for env in self.env.values():
            subprocess.run([COMMAND, "stop", "--force"], env=env, capture_output=True, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, host, program, *words):
        """A program of the build's test folder, which ends with the test."""
        child = subprocess.Popen([COMMAND, "run", os.path.join(BUILD, "test", program), *words], env=self.env[host], text=True,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.children.append(child)
        return child
