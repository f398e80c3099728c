"""fabric_bed.py: a fabric of its own for each test, its hosts, and Debian's OpenSM on them."""
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PATIENCE_S = 20
# The node answers no MAD while it writes the /sys of a host, 85 files that each take a rename. XDG_RUNTIME_DIR is a tmpfs wherever
# there is one; on a busy disk that takes a second, and OpenSM gives an SMP up after 0.8.
# A container's /dev/shm may have 64 MB, too few for large fabrics.
RUNTIME = "/dev/shm" if os.access("/dev/shm", os.W_OK) and shutil.disk_usage("/dev/shm").free > 1 << 30 else None
# A standby OpenSM polls the master, and a light sweep looks for new switches, this often.
OPENSM_CONF = "force_log_flush TRUE\nsminfo_polling_timeout 500\npolling_retry_number 2\nsweep_interval 1\nmax_wire_smps 32\nmax_wire_smps2 32\n"


class OpenSM:
    """A running opensm, with files of its own."""

    def __init__(self, bed, host, *options, conf=""):
        self.folder = tempfile.mkdtemp(dir=bed.root, prefix=f"opensm-{host}-")
        self.log_path = os.path.join(self.folder, "log")
        with open(os.path.join(self.folder, "conf"), "w") as f:
            f.write(OPENSM_CONF + conf)
        env = {**bed.env, "OSM_CACHE_DIR": self.folder, "OSM_TMP_DIR": self.folder}
        words = bed.words("run", "--host", host, "opensm", "-F", os.path.join(self.folder, "conf"), "-f", self.log_path, *options)
        self.process = subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)

    def log(self):
        try:
            with open(self.log_path, errors="replace") as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def wait(self, text, count=1, patience_s=PATIENCE_S):
        """Until the log has the text so often."""
        deadline = time.monotonic() + patience_s
        while self.log().count(text) < count:
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise AssertionError(f"no {text!r} in {self.log()}")
            time.sleep(0.05)

    def errors(self):
        """Lines of its log. A MAD that it waited for in vain, as on a busy machine, is LATE (scripts/again)."""
        lines = [line for line in self.log().splitlines() if re.search(r"\bERR\b|: error", line)]
        if any("IB_TIMEOUT" in line for line in lines):
            print(f"LATE: {lines[0]}", file=sys.stderr)
        return lines

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Returns its log."""
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        return self.log()


class Bed(unittest.TestCase):
    build = "build"
    count = 0  # of the tests of this process
    command_s = 30  # that `anyverbs fabric` may take

    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="anyverbs-host-", dir=RUNTIME)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("ANYVERBS_")}
        # A program that outlives its test by a moment may begin a node of the same name elsewhere, where the next test would find it.
        Bed.count += 1
        self.env.update(ANYVERBS_NODE=f"host-{os.getpid()}-{Bed.count}", XDG_RUNTIME_DIR=self.root)
        self.managers = []
        self.carrier = None  # the node that the fabric began with, unless the test kills it

    def tearDown(self):
        """The node lives until then."""
        for sm in self.managers:
            if sm.process.poll() is None:
                sm.kill()
        self.fabric("hosts")
        carrier = self.node()
        self.fabric("down", "--force")
        shutil.rmtree(self.root, ignore_errors=True)
        if self.carrier is not None:
            self.assertEqual(carrier, self.carrier, "the node has died")

    def words(self, *words):
        return [os.path.join(self.build, "bin/anyverbs"), *words]

    def fabric(self, *words):
        name = ("--name", self.env["ANYVERBS_NODE"])
        done = subprocess.run(self.words("fabric", *words, *name), env=self.env, capture_output=True, text=True,
                              timeout=self.command_s)
        self.assertEqual(done.returncode, 0, done.stderr)
        if words[0] == "up":
            self.carrier = self.node()
        return done.stdout

    def node(self):
        """The pid of the node, which has the lock of its folder; None while there is none."""
        try:
            folder = os.stat(os.path.join(self.root, "anyverbs", self.env["ANYVERBS_NODE"] + "-fabric"))
        except FileNotFoundError:
            return None
        with open("/proc/locks") as f:
            for line in f:
                words = line.split()
                if words[1] == "FLOCK" and words[5].endswith(f":{folder.st_ino}"):
                    return int(words[4])
        return None

    def kill_node(self):
        pid = self.node()
        self.carrier = None
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def on(self, host, *words, status=0, timeout=60):
        done = subprocess.run(self.words("run", "--host", host, *words), env=self.env, capture_output=True, text=True,
                              timeout=timeout)
        self.assertEqual(done.returncode, status, f"{words}: {done.stdout}{done.stderr}")
        return done.stdout

    def start(self, host, *words):
        return subprocess.Popen(self.words("run", "--host", host, *words), env=self.env, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)

    def pair(self, *words, client=0, server=0, hosts=("h1", "h2")):
        """The outputs of a client and of the server before it."""
        first = self.start(hosts[0], *words)
        try:
            for _ in range(100):  # until the server listens
                second = subprocess.run(self.words("run", "--host", hosts[1], *words, "127.0.0.1"), env=self.env,
                                        capture_output=True, text=True, timeout=60)
                if not re.search("Couldn't connect|Connection refused|connect: |connect\\(\\) failed", second.stdout + second.stderr):
                    break
                time.sleep(0.05)
            self.assertEqual(second.returncode, client, second.stdout + second.stderr)
            out = first.communicate(timeout=60)[0]
            self.assertEqual(first.returncode, server, out)
        finally:
            first.kill()
            first.communicate()
        return second.stdout, out

    def opensm(self, host, *options, conf="", up=True):
        sm = OpenSM(self, host, *options, conf=conf)
        self.managers.append(sm)
        if up:
            sm.wait("SUBNET UP")
        return sm

    def lid(self, host):
        return int(self.on(host, "cat", "/sys/class/infiniband/ib0/ports/1/lid"), 16)

    def until(self, question, patience_s=PATIENCE_S):
        deadline = time.monotonic() + patience_s
        while not question():
            self.assertLess(time.monotonic(), deadline, "it takes too long")
            time.sleep(0.05)
