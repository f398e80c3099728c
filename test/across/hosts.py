"""hosts.py: two hosts on one machine, each with a node of its own, for the tests across hosts and for bench/run.

Loopback  two nodes that share the loopback interface, with an address each
Wired     two network namespaces, and between them the program `wire` in a third, which loses and damages packets; needs root
"""
import concurrent.futures
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time

READY_S = 20


class Failure(Exception):
    """A transfer that did not end as it should; the text says why."""


def can_be_wired():
    """None, or why there can be no namespaces."""
    if os.geteuid() != 0:
        return "needs root, to make network namespaces"
    if shutil.which("ip") is None:
        return "ip (iproute2) is missing"
    probe = f"anyverbs-probe-{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", probe], capture_output=True, check=False).returncode != 0:
        return "network namespaces cannot be made here"
    subprocess.run(["ip", "netns", "del", probe], check=False)
    return None


def free_port():
    """Below those that the kernel gives to whoever asks for any, so that nobody has it a moment later; good enough for a
    namespace where nobody else is."""
    for port in random.sample(range(20000, 32000), 100):
        with socket.socket() as s:
            try:
                s.bind(("", port))
                return port
            except OSError:
                continue
    raise Failure("no free port")


class Hosts:
    """The pair: side 0 is the server's."""
    prefixes = ([], [])
    addresses = ("127.0.0.1", "127.0.0.1")

    def __init__(self, build):
        self.build = build
        self.tool = os.path.join(build, "bin", "anyverbs")
        self.folder = tempfile.mkdtemp(prefix="anyverbs-across-")
        clean = {k: v for k, v in os.environ.items()
                 if k == "ANYVERBS_CONNECTED_SOCKETS" or not k.startswith(("ANYVERBS_", "LD_", "XDG_"))}
        self.environments = []
        for side in "ab":
            os.mkdir(os.path.join(self.folder, side), 0o700)
            self.environments.append(dict(clean, XDG_RUNTIME_DIR=os.path.join(self.folder, side)))

    def program(self, name):
        return os.path.join(self.build, "test", "across", name)

    def start(self, side, words, cpu=None):
        """On one core, or on any."""
        pin = [] if cpu is None else ["taskset", "-c", str(cpu)]
        return subprocess.Popen(self.prefixes[side] + pin + [self.tool, "run", *words], env=dict(self.environments[side]), cwd="/", text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def await_listener(self, process, port):
        """Asked of the kernel, not by connecting: a server takes the first connection for its peer."""
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline and process.poll() is None:
            for table in ("tcp", "tcp6"):
                try:
                    with open(f"/proc/{process.pid}/net/{table}", encoding="ascii") as f:
                        rows = [line.split() for line in f.readlines()[1:]]
                except OSError:
                    continue  # it has just ended, or there is no IPv6
                if any(row[3] == "0A" and int(row[1].rsplit(":", 1)[1], 16) == port for row in rows):
                    return
            time.sleep(0.01)
        raise Failure(f"{process.args[-1]}: never listened on {port}")

    def start_pair(self, words, cpus=(None, None)):
        """Both ends of a program that takes -p PORT and, on the client's side, an address: (server, client)."""
        port = free_port()
        words = [*words, "-p", str(port)]
        server = self.start(0, words, cpus[0])
        try:
            self.await_listener(server, port)
        except Failure as failure:
            server.kill()
            raise Failure(f"{failure}: {server.communicate()[0][-500:]}") from None
        return server, self.start(1, words + [self.addresses[0]], cpus[1])

    @staticmethod
    def hear(end, deadline):
        """(all that it said, whether it had to be ended)."""
        try:
            return end.communicate(timeout=max(deadline - time.monotonic(), 1))[0], False
        except subprocess.TimeoutExpired:
            end.kill()
            return end.communicate()[0], True

    def run_pair(self, words, seconds=60, **more):
        """What both ends said: (server's, client's). Both must end with status 0 in time."""
        ends = self.start_pair(words, **more)
        deadline = time.monotonic() + seconds
        with concurrent.futures.ThreadPoolExecutor(2) as pool:  # both at once: a full pipe would stop the other
            said, late = zip(*pool.map(lambda end: self.hear(end, deadline), ends))
        if any(late) or ends[0].returncode != 0 or ends[1].returncode != 0:
            why = f"not done within {seconds} s" if any(late) else f"status {ends[0].returncode}, {ends[1].returncode}"
            failure = Failure(f"{' '.join(words)}: {why}\n--- server\n{said[0][-1500:]}\n--- client\n{said[1][-1500:]}")
            failure.said, failure.statuses = said, None if any(late) else (ends[0].returncode, ends[1].returncode)
            raise failure
        return said

    def close(self):
        for side in (0, 1):
            subprocess.run(self.prefixes[side] + [self.tool, "stop", "--force"], env=self.environments[side], check=False,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=30)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Loopback(Hosts):
    def __init__(self, build):
        super().__init__(build)
        pid = os.getpid()
        for side, environment in enumerate(self.environments):
            # An address belongs to one node at a time: nobody else's.
            environment.update(ANYVERBS_NODE=f"across-{pid}-{side}",
                               ANYVERBS_ADDR=f"127.{96 + side}.{pid // 250 % 256}.{1 + pid % 250}")


class Wired(Hosts):
    addresses = ("10.99.8.1", "10.99.8.2")

    def __init__(self, build, mtu=4200):
        super().__init__(build)
        self.names = [f"across-{os.getpid()}-{x}" for x in "abw"]
        self.prefixes = tuple(["ip", "netns", "exec", name] for name in self.names[:2])
        self.wire = None
        try:
            self.make_namespaces(str(mtu))
        except subprocess.CalledProcessError:
            self.close()
            raise

    @staticmethod
    def ip(*words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def make_namespaces(self, mtu):
        for name in self.names:
            self.ip("netns", "add", name)
            self.ip("-n", name, "link", "set", "lo", "up")
        for side in (0, 1):
            host, port = self.names[side], f"port{side}"
            self.ip("-n", host, "link", "add", "eth0", "mtu", mtu, "type", "veth", "peer", "name", port, "mtu", mtu,
                    "netns", self.names[2])
            # Packets leave the host one by one, so that each has a fate of its own.
            self.ip("-n", host, "link", "set", "eth0", "gso_max_segs", "1")
            # GIDs 0, 1 and 2; instead of the kernel's own link-local address, which cannot be used at once
            self.ip("-n", host, "link", "set", "eth0", "addrgenmode", "none")
            for address in (f"fe80::{side + 1}/64", f"{self.addresses[side]}/24", f"fd08::{side + 1}/64"):
                self.ip("-n", host, "addr", "add", address, "dev", "eth0", *(["nodad"] if ":" in address else []))
            self.ip("-n", self.names[2], "link", "set", port, "up")
            self.ip("-n", host, "link", "set", "eth0", "up")
        for name in self.names[:2]:
            for _ in range(100):  # the kernel takes up to a second to call a new link up
                if b"state UP" in subprocess.run(["ip", "-n", name, "-o", "link", "show", "eth0"], capture_output=True,
                                                 check=False).stdout:
                    break
                time.sleep(0.05)

    def lay(self, **chances):
        """A new wire: loss, reorder, duplicate, corrupt, seed. What the one before did: {what: count}."""
        counts = self.cut()
        words = [str(x) for name, value in chances.items() for x in (f"--{name}", value)]
        self.wire = subprocess.Popen(["ip", "netns", "exec", self.names[2], self.program("wire"), "port0", "port1", *words],
                                     text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said = self.wire.stdout.readline()
        if said != "ready\n":
            raise Failure(f"wire: {said}{self.wire.communicate()[0]}")
        return counts

    def cut(self):
        if self.wire is None:
            return {}
        self.wire.send_signal(signal.SIGTERM)
        said = self.wire.communicate(timeout=10)[0]
        self.wire = None
        return {name: int(count) for name, count in (line.split() for line in said.splitlines())}

    def die(self):
        self.wire.send_signal(signal.SIGUSR1)

    def revive(self):
        self.wire.send_signal(signal.SIGUSR2)

    def close(self):
        super().close()
        if self.wire is not None:
            self.wire.kill()
            self.wire.communicate()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
