"""fault.py: what the fault tests share: a node of their own, and ends of transfers that are told what to do by lines.

The environment names the build: FAULT_BUILD, the folder with bin/, lib/anyverbs/ and test/fault/ in it.
"""
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

BUILD = os.environ.get("FAULT_BUILD", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build"))
TOOL = os.path.join(BUILD, "bin", "anyverbs")
PROGRAMS = os.path.join(BUILD, "test", "fault")
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
FLUSHED, REMOTE_ACCESS, RETRY_EXCEEDED = 5, 10, 12
PATIENCE_S = 60  # for what must happen, however busy the machine: nothing waits so long unless it is lost


class Gone(Exception):
    """The process has ended, or does not answer."""


def program(name):
    return os.path.join(PROGRAMS, name)


def can_be_nobody():
    """Whether this user may become nobody, and nobody may read the build."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return False
    return subprocess.run(NOBODY + ["test", "-x", TOOL], check=False).returncode == 0


class World:
    """A node that nobody else uses, and its folder."""
    number = 0

    def __init__(self, prefix=(), **more):
        World.number += 1
        self.prefix = list(prefix)
        self.folder = tempfile.mkdtemp(prefix="anyverbs-fault-")
        os.chmod(self.folder, 0o777)
        runtime = os.path.join(self.folder, "run")
        os.mkdir(runtime, 0o700)
        if prefix:
            os.chown(runtime, 65534, 65534)
        self.environment = {k: v for k, v in os.environ.items()
                            if k == "ANYVERBS_ADOPT" or not k.startswith(("ANYVERBS_", "LD_"))}
        self.environment.update(ANYVERBS_NODE=f"fault-{os.getpid()}-{World.number}", ANYVERBS_ADDR="own", XDG_RUNTIME_DIR=runtime,
                                ANYVERBS_IDLE_S="20", **more)
        self.ends = []

    def with_env(self, more):
        environment = dict(self.environment)
        environment.update(more)
        return {k: v for k, v in environment.items() if v is not None}

    def run(self, *words, timeout=2 * PATIENCE_S, **env):
        """Runs a program to its end."""
        return subprocess.run(self.prefix + list(words), env=self.with_env(env), cwd="/", text=True, check=False,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout)

    def start(self, *words, **env):
        end = Process(self.prefix + list(words), self.with_env(env))
        self.ends.append(end)
        return end

    def end(self, *before, **env):
        return self.start(*before, program("end"), **env)

    def status(self):
        why = ""
        for _ in range(5):  # a node that gets no processor time may let the tool wait in vain
            done = self.run(TOOL, "status", "--json")
            try:
                return json.loads(done.stdout)
            except json.JSONDecodeError:
                why += done.stdout + done.stderr
                print("status:", repr(done.stdout), repr(done.stderr), file=sys.stderr)
        return {"running": False, "why": why}

    def node_pid(self):
        return self.status().get("pid", 0)

    def kill_node(self):
        pid = self.node_pid()
        if pid:
            os.kill(pid, signal.SIGKILL)
        return pid

    def wait_processes(self, *pids):
        """Waits until the node knows these processes and no other; the last status."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            status = self.status()
            known = sorted(p["pid"] for p in status.get("processes", []))
            if known == sorted(pids):
                return status
            if time.monotonic() > deadline:
                print(f"LATE: not these processes within {PATIENCE_S} s", flush=True)
                return status
            time.sleep(0.01)

    def close(self):
        for end in self.ends:
            end.kill()
        self.run(TOOL, "stop", "--force")
        deadline = time.monotonic() + PATIENCE_S
        while self.status().get("running") and time.monotonic() < deadline:
            time.sleep(0.01)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Process:
    """A program that answers each line with a line."""

    def __init__(self, words, environment):
        self.process = subprocess.Popen(words, env=environment, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, bufsize=0)
        self.pid = self.process.pid
        self.buffer = b""
        self.died = 0.0

    def line(self, seconds=PATIENCE_S):
        deadline = time.monotonic() + seconds
        while b"\n" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise Gone(f"LATE: no answer within {seconds} s")
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                raise Gone(f"ended: {self.errors()}")
            self.buffer += more
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.decode().strip()

    def tell(self, line):
        try:
            self.process.stdin.write(line.encode() + b"\n")
        except BrokenPipeError as e:
            raise Gone("ended") from e

    def ask(self, line, seconds=PATIENCE_S):
        self.tell(line)
        return self.line(seconds)

    def expect(self, line, answer, seconds=PATIENCE_S):
        got = self.ask(line, seconds)
        if not got.startswith(answer):
            raise Gone(f"{line}: {got!r} instead of {answer!r}")
        return got.split()[1:]

    def wait_error(self):
        """Waits for the first completion in error: "ended STATUS", or "running N" if none comes."""
        return self.ask(f"wait {PATIENCE_S * 1000 // 2}")

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.died = time.monotonic()
        self.process.wait()
        self.drop()

    def errors(self):
        try:
            os.set_blocking(self.process.stderr.fileno(), False)
            return (self.process.stderr.read() or b"").decode(errors="replace")
        except ValueError:
            return ""

    def drop(self):
        for f in (self.process.stdin, self.process.stdout, self.process.stderr):
            f.close()

    def quit(self, seconds=PATIENCE_S):
        """Ends in good order: returns (exit status, what it said on standard error)."""
        try:
            self.tell("quit")
        except Gone:
            pass
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            status = "hangs"
        said = self.errors()
        self.drop()
        return status, said


def usage(end):
    keys = ("descriptors", "maps", "rss_kb", "threads")
    return dict(zip(keys, map(int, end.expect("usage", "usage"))))


def memory_files(end):
    """Memory files that a process has mapped: its own, and its peers'."""
    with open(f"/proc/{end.pid}/maps", encoding="ascii") as f:
        return len({line.split()[4] for line in f if " rw-s " in line and "/memfd:anyverbs-memory" in line})


def connect(sender, receiver, kind):
    """Makes a connected pair of queue pairs of two ends."""
    theirs = {}
    for end, role in ((sender, "sender"), (receiver, "receiver")):
        theirs[end] = " ".join(end.expect(f"qp {kind} {role}", "qp"))
    for end, other in ((receiver, sender), (sender, receiver)):
        end.expect(f"connect {theirs[other]}", "connected")


def go(sender, receiver):
    receiver.expect("go", "going")
    sender.expect("go", "going")


def count(end):
    return int(end.expect("count", "count")[0])


def wait_progress(end, more=1, seconds=PATIENCE_S):
    """Waits until the count of completions has grown by `more`."""
    begin = count(end)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if count(end) >= begin + more:
            return True
        time.sleep(0.002)
    return False
