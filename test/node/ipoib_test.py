#!/usr/bin/env python3
"""ipoib_test.py: IPoIB interfaces of hosts of a fabric, each in a network namespace of its own with nothing but lo and ib0, and
Debian's programs over them.

usage: ipoib_test.py BUILD_DIR
"""
import json
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
PROGRAMS = "ip ping iperf3 perfquery opensm setpriv rping ucmatose udaddy rstream riostream udpong ib_send_lat".split()
MISSING = [p for p in PROGRAMS if shutil.which(p) is None]

RECEIVE = """
import socket, struct, sys
six = ":" in sys.argv[1]
s = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 7000))
index = socket.if_nametoindex("ib0")
if six:
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, socket.inet_pton(socket.AF_INET6, sys.argv[1]) + struct.pack("i", index))
else:
    s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(sys.argv[1]) + struct.pack("=4si", bytes(4), index))
print("listens", flush=True)
print(s.recv(100).decode(), flush=True)
"""
SEND = """
import socket, sys
six = ":" in sys.argv[1]
s = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
s.setsockopt(*((socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, socket.if_nametoindex("ib0")) if six else
               (socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(sys.argv[2]))))
s.sendto(b"to the group", (sys.argv[1], 7000))
"""
BURST = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(int(sys.argv[1])):
    s.sendto(b"burst", (sys.argv[2], 7000))
"""

# Datagrams to each of the addresses nobody has, or echo requests from them, for some seconds.
DEAD = """
import socket, struct, sys, time
to, seconds, base = sys.argv[1], float(sys.argv[2]), sys.argv[3]
def echo(source):
    def checksum(data):
        total = sum(struct.unpack(f">{len(data) // 2}H", data))
        while total >> 16:
            total = (total & 0xffff) + (total >> 16)
        return ~total & 0xffff
    icmp = struct.pack(">BBHHH", 8, 0, 0, 1, 1)
    icmp = icmp[:2] + struct.pack(">H", checksum(icmp)) + icmp[4:]
    return struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(icmp), 0, 0, 64, 1, 0, socket.inet_aton(source), socket.inet_aton(to)) + icmp
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print("sends", flush=True)
end = time.monotonic() + seconds
while time.monotonic() < end:
    for i in range(1, 255):
        try:
            if to == "nobody":
                plain.sendto(bytes(500), (f"{base}.{i}", 9))
            else:
                raw.sendto(echo(f"{base}.{i}"), (to, 0))
        except OSError:
            pass
    time.sleep(0.05)
"""


class IPoIB(Bed):
    def setUp(self):
        super().setUp()
        self.spaces = {}

    def tearDown(self):
        for host in self.spaces:
            subprocess.run(self.words("ipoib", "down", "--host", host), env=self.env, capture_output=True, timeout=60)
        super().tearDown()
        for space in self.spaces.values():
            subprocess.run(["ip", "netns", "del", space], capture_output=True, timeout=30)

    def space(self, host):
        if host not in self.spaces:
            self.spaces[host] = f"ipoib-{os.getpid()}-{host}"
            subprocess.run(["ip", "netns", "add", self.spaces[host]], check=True)
            subprocess.run(["ip", "-n", self.spaces[host], "link", "set", "lo", "up"], check=True)
        return self.spaces[host]

    def interface(self, host, *words):
        """Gives the host its interface: 10.1.0.N and fd00::N."""
        n = host[1:]
        command = self.words("ipoib", "up", "--host", host, "--netns", self.space(host), "--address", f"10.1.0.{n}/24",
                             "--address", f"fd00::{n}/64", *words)
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr

    def inside(self, host, *words):
        """The words of a program in the host's namespace."""
        return ["ip", "netns", "exec", self.space(host), *words]

    def call(self, host, *words, status=0, timeout=60):
        done = subprocess.run(self.inside(host, *words), env=self.env, capture_output=True, text=True, timeout=timeout)
        if status is not None:
            self.assertEqual(done.returncode, status, f"{words}: {done.stdout}{done.stderr}")
        return done.stdout

    def begin(self, host, *words):
        process = subprocess.Popen(self.inside(host, *words), env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def ping(self, host, to, count=3, **more):
        return self.call(host, "ping", "-n", "-c", str(count), "-i", "0.1", "-W", "20", to, **more)

    def reaches(self, host, to):
        return subprocess.run(self.inside(host, "ping", "-n", "-c", "1", "-W", "2", to), capture_output=True).returncode == 0

    def status(self, host):
        out = subprocess.run(self.words("ipoib", "status", "--host", host), env=self.env, capture_output=True, text=True).stdout
        return out.split()

    def until_state(self, host, state):
        self.until(lambda: self.status(host)[2:3] == [state])

    def program(self, host):
        return int(self.status(host)[4])

    def sent_packets(self, host):
        out = self.on(host, "perfquery", "-x")
        return int(re.search(r"PortXmitPkts:\.*(\d+)", out).group(1))

    def group(self, listener, sender, group):
        """A datagram to a group arrives, as soon as the listener is in it."""
        receiver = self.begin(listener, sys.executable, "-c", RECEIVE, group)
        self.assertEqual(receiver.stdout.readline().strip(), "listens")
        self.until(lambda: self.call(sender, sys.executable, "-c", SEND, group, f"10.1.0.{sender[1:]}") == "" and
                   receiver.poll() is not None)
        self.assertIn("to the group", receiver.stdout.read())

    def iperf(self, server, client, *words, to="10.1.0."):
        self.begin(server, "iperf3", "-s", "-1")
        for _ in range(200):
            out = self.call(client, "iperf3", "-c", to + server[1:], "-J", *words, status=None)
            if "Connection refused" not in out:
                break
            time.sleep(0.05)
        said = json.loads(out)
        self.assertNotIn("error", said)
        return said["end"]

    def up(self, *words, hosts=3):
        self.fabric("up", "--topology", "star:3", *words)
        if not words:
            self.until(lambda: self.fabric("hosts").count("ACTIVE") == 3)

    # ---- tests ----

    def test_programs(self):
        self.up()
        for host in ("h1", "h2", "h3"):
            self.assertEqual(self.interface(host), "")
        self.assertEqual(self.status("h1")[:3], ["h1", "ib0", "UP"])
        self.assertIn("10.1.0.1/24", self.status("h1"))
        links = self.call("h1", "ip", "-br", "link")
        self.assertEqual(sorted(line.split()[0] for line in links.splitlines()), ["ib0", "lo"])
        self.assertIn("mtu 2044", self.call("h1", "ip", "link", "show", "ib0"))
        before = self.sent_packets("h1")
        self.ping("h1", "10.1.0.2")
        self.ping("h1", "10.1.0.3")
        self.ping("h3", "fd00::1")
        self.ping("h2", "fe80::2a0:0:0:101%ib0")
        self.call("h1", "ping", "-n", "-c", "2", "-W", "20", "-M", "do", "-s", "2016", "10.1.0.2")  # 2044 with its headers
        self.call("h1", "ping", "-n", "-c", "2", "-W", "20", "-s", "5000", "fd00::2")
        self.assertGreater(self.iperf("h2", "h1", "-t", "1")["sum_received"]["bytes"], 100000)
        self.assertGreater(self.iperf("h1", "h3", "-u", "-b", "2M", "-t", "1")["sum"]["packets"], 10)
        self.assertGreater(self.iperf("h1", "h3", "-n", "1M", to="fd00::")["sum_sent"]["bytes"], 1000000)
        self.until(lambda: self.sent_packets("h1") > before + 100)
        self.group("h2", "h1", "239.1.2.3")
        self.group("h3", "h2", "ff05::1:2")
        self.call("h1", sys.executable, "-c", SEND, "10.1.0.255", "10.1.0.1")
        for nobody in ("10.1.0.99", "fd00::99"):
            self.assertRegex(self.call("h1", "ping", "-n", "-c", "1", "-W", "20", nobody, status=1), "[Uu]nreachable")

    def test_queues_a_burst(self):
        """The kernel keeps 900 packets while the program does not run."""
        def count(key):
            return json.loads(self.call("h1", "ip", "-s", "-j", "link", "show", "ib0"))[0]["stats64"]["tx"][key]

        self.up()
        for host in ("h1", "h2"):
            self.interface(host)
        self.ping("h1", "10.1.0.2")
        program = self.program("h1")
        os.kill(program, signal.SIGSTOP)
        try:
            dropped = count("dropped")
            self.call("h1", sys.executable, "-c", BURST, "900", "10.1.0.2")
            self.assertEqual(count("dropped"), dropped)
        finally:
            sent = count("packets")
            os.kill(program, signal.SIGCONT)
        self.until(lambda: count("packets") >= sent + 900)

    def test_dead_neighbours(self):
        """What waits for neighbours that do not answer stops no other traffic: a program of the host sends to them, and then
        another host asks for answers to them."""
        self.up()
        for host in ("h1", "h2", "h3"):
            self.interface(host)
            self.call(host, "ip", "address", "add", f"10.7.0.{host[1:]}/16", "dev", "ib0")
        self.ping("h2", "10.1.0.1")
        for host, to in ("h1", "nobody"), ("h3", "10.7.0.1"):
            with self.subTest(host):
                flood = self.begin(host, sys.executable, "-c", DEAD, to, "4", "10.7.9")
                self.assertEqual(flood.stdout.readline().strip(), "sends")
                out = self.call("h2", "ping", "-n", "-c", "30", "-i", "0.1", "-W", "5", "10.1.0.1", status=None)
                self.assertGreaterEqual(int(re.search(r"(\d+) received", out).group(1)), 27, out)
                self.assertEqual(flood.wait(60), 0)

    def test_routes(self):
        """By a router that is a host of the fabric: h1 - h2 - h3, the subnets of which differ."""
        self.up()
        for host in ("h1", "h2", "h3"):
            self.interface(host)
        self.call("h2", "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
        self.call("h3", "ip", "address", "add", "10.3.0.3/24", "dev", "ib0")
        self.call("h3", "ip", "address", "del", "10.1.0.3/24", "dev", "ib0")
        self.call("h2", "ip", "address", "add", "10.3.0.2/24", "dev", "ib0")
        self.call("h3", "ip", "route", "add", "10.1.0.0/24", "via", "10.3.0.2")
        self.call("h1", "ip", "route", "add", "10.3.0.0/24", "via", "10.1.0.2")
        out = self.ping("h1", "10.3.0.3")
        self.assertIn("ttl=63", out)

    def test_another_subnet_manager(self):
        """OpenSM is killed, and another one comes: what is known is used meanwhile, and then all works as before."""
        self.up("--no-sm")
        first = self.opensm("h3")
        for host in ("h1", "h2"):
            self.interface(host)
        self.ping("h1", "10.1.0.2")
        runs = self.begin("h1", "ping", "-n", "-i", "0.05", "-W", "20", "10.1.0.2")
        first.kill()
        self.ping("h2", "10.1.0.1")
        self.opensm("h2")
        self.interface("h3")
        self.ping("h3", "10.1.0.1")
        self.ping("h1", "fd00::3")
        self.group("h3", "h1", "239.1.2.3")
        runs.send_signal(signal.SIGINT)
        out = runs.communicate(timeout=30)[0]
        sent, received = map(int, re.search(r"(\d+) packets transmitted, (\d+) received", out).groups())
        # the last one may be on its way; datagrams are dropped for a receiver that gets no processor for a second
        self.assertGreaterEqual(received, sent * 9 // 10 - 1, out[-300:])

    def test_a_link_that_is_down(self):
        self.up()
        for host in ("h1", "h2"):
            self.interface(host)
        self.ping("h1", "10.1.0.2")
        for mtu, stays in ("4000", "2044"), ("1500", "1500"):  # the link's is 2044
            self.call("h1", "ip", "link", "set", "ib0", "mtu", mtu)
            self.until(lambda: f"mtu {stays} " in self.call("h1", "ip", "link", "show", "ib0"))
        self.fabric("link", "h1", "down")
        self.until_state("h1", "NO-CARRIER")
        self.assertFalse(self.reaches("h2", "10.1.0.1"))
        self.fabric("link", "h1", "up")
        self.until_state("h1", "UP")
        self.until(lambda: self.reaches("h2", "10.1.0.1"))
        self.ping("h1", "fd00::2")
        self.assertIn("mtu 1500 ", self.call("h1", "ip", "link", "show", "ib0"))

    def test_a_program_that_is_killed(self):
        self.up()
        for host in ("h1", "h2"):
            self.interface(host)
        self.ping("h1", "10.1.0.2")
        os.kill(self.program("h2"), signal.SIGKILL)
        self.until(lambda: "ib0" not in self.call("h2", "ip", "-br", "link"))
        self.assertEqual(self.status("h2"), [])
        self.assertEqual([f for f in os.listdir(self.root) if "ipoib" in f], [])
        # another one has another queue pair: its announcement says so
        self.interface("h2")
        self.until(lambda: self.reaches("h1", "10.1.0.2"))
        self.until(lambda: self.reaches("h1", "fd00::2"))

    def test_a_node_that_is_killed(self):
        self.up()
        for host in ("h1", "h2"):
            self.interface(host)
        self.ping("h1", "10.1.0.2")
        self.kill_node()
        self.ping("h1", "10.1.0.2")
        self.interface("h3")
        self.until(lambda: self.reaches("h3", "10.1.0.1"))

    def test_a_fabric_that_ends(self):
        """Its interfaces end with it, and the hosts of the next one have room for theirs."""
        self.up()
        self.interface("h1")
        stays = self.begin("h2", *self.words("ipoib", "up", "--host", "h2", "--foreground"))
        self.until_state("h2", "UP")
        self.fabric("down", "--force")
        self.assertIn("the fabric is down", stays.communicate(timeout=30)[0])
        self.assertEqual(stays.returncode, 1)
        self.until(lambda: self.status("h1") == [])
        self.assertNotIn("ib0", self.call("h1", "ip", "-br", "link"))
        self.up()
        for host in ("h1", "h2"):
            self.interface(host)
        self.ping("h1", "10.1.0.2")

    def connect(self, server, client, hosts=("h1", "h2")):
        """Both ends of a program of the RDMA CM, in their namespaces: the client begins again until the server listens."""
        first = self.begin(hosts[0], *self.words("run", "--host", hosts[0], *server.split()))
        words = self.inside(hosts[1], *self.words("run", "--host", hosts[1], *client.split()))
        for _ in range(100):
            second = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=60)
            out = second.stdout + second.stderr
            if second.returncode == 0 or first.poll() is not None:
                break
            time.sleep(0.05)
        self.assertEqual(second.returncode, 0, client + out)
        self.assertEqual(first.wait(60), 0, server)
        return out

    def pong(self, local, *words, client=True):
        """A server on h1, whose address /proc/net/udp shows as `local`, and its client on h2."""
        server = self.begin("h1", *self.words("run", "--host", "h1", "udpong", *words))
        self.until(lambda: f"{local}:1C06" in self.call("h1", "cat", "/proc/net/udp", "/proc/net/udp6"))
        before = self.sent_packets("h2")
        if client:
            self.call("h2", *self.words("run", "--host", "h2", *"udpong -s 10.1.0.1 -T e -C 500 -S 512".split()))
            self.until(lambda: self.sent_packets("h2") >= before + 450)
        server.kill()
        server.wait(60)

    def test_the_rdma_cm(self):
        """Addresses of the interfaces, without a ping before; those of hosts without an interface beside them; an address of this
        host; what is left when the interface is gone. An interface meanwhile waits for its link: the port is not in its partition."""
        self.up()
        waits = self.begin("h3", *self.words("ipoib", "up", "--host", "h3", "--pkey", "0x1234"))
        for host in ("h1", "h2"):
            self.interface(host)
        for server, client in (("rping -s -a 10.1.0.1 -C 3", "rping -c -a 10.1.0.1 -C 3"),
                               ("rping -s -C 3", "rping -c -a 10.1.0.1 -C 3"),
                               ("rping -s -a fd00::1 -C 3", "rping -c -a fd00::1 -C 3"),
                               ("ucmatose -b 10.1.0.1", "ucmatose -b 10.1.0.2 -s 10.1.0.1"),
                               ("udaddy", "udaddy -s 10.1.0.1"),
                               ("rstream -S 65536 -C 10 -T v", "rstream -s 10.1.0.1 -S 65536 -C 10 -T v"),
                               ("rstream -b fd00::1 -S 1000 -C 10 -T a", "rstream -s fd00::1 -S 1000 -C 10 -T a"),
                               ("riostream -S 65536 -C 10 -I 2 -T v", "riostream -s 10.1.0.1 -S 65536 -C 10 -I 2 -T v"),
                               ("rping -s -a 127.64.0.1 -C 3", "rping -c -a 127.64.0.1 -C 3")):
            self.connect(server, client)
        self.connect("ib_send_lat -R -n 100", "ib_send_lat -R -n 100 10.1.0.1")
        self.pong("0100010A", "-b", "10.1.0.1")
        self.pong("00000000", "-b", "0.0.0.0")
        # without -b udpong listens at ::1, by UDP (-T s) as well, so that no other host reaches it
        self.pong("000000000000000001000000", client=False)
        self.pong("000000000000000001000000", "-T", "s", client=False)
        self.connect("rping -s -a 10.1.0.1 -C 1", "rping -c -a 10.1.0.1 -C 1", hosts=("h1", "h1"))
        wrong = ("rping -c -a 10.1.0.9 -C 1", "rping -c -a 10.2.0.1 -C 1")  # nobody has the address; no route
        for words in wrong:
            self.call("h2", *self.words("run", "--host", "h2", *words.split()), status=255)
        os.kill(self.program("h2"), signal.SIGKILL)
        self.until(lambda: "ib0" not in self.call("h2", "ip", "-br", "link"))
        self.call("h2", *self.words("run", "--host", "h2", *"rping -c -a 10.1.0.1 -C 1".split()), status=255)
        self.connect("rping -s -C 3", "rping -c -a 127.64.0.1 -C 3")
        self.assertIn("not in the partition 0x1234,", waits.communicate(timeout=60)[0])
        self.assertEqual(self.status("h3")[2], "NO-CARRIER")

    def test_up_and_down(self):
        self.up()
        self.interface("h1", "--name", "fabric0")
        self.assertEqual(self.status("h1")[:3], ["h1", "fabric0", "UP"])
        again = subprocess.run(self.words("ipoib", "up", "--host", "h1", "--netns", self.space("h1"), "--name", "fabric0"),
                               env=self.env, capture_output=True, text=True, timeout=60)
        self.assertEqual(again.returncode, 1)
        self.assertIn("there is an interface fabric0 already", again.stderr)
        apart = {**self.env, "ANYVERBS_NODE": f"{self.env['ANYVERBS_NODE']}-apart"}  # a node without a fabric
        for words, env, why in ((("--host", "h9"), self.env, "the fabric has no host h9"),
                                (("--host", "h1", "--device", "ib7"), self.env, "host h1 has no port 1 of an adapter ib7"),
                                (("--host", "h1", "--port", "2"), self.env, "host h1 has no port 2 of an adapter ib0"),
                                (("--host", "h1", "--netns", "nowhere"), self.env, "namespace nowhere"),
                                (("--host", "h1"), apart, "no fabric of this user is up")):
            wrong = subprocess.run(self.words("ipoib", "up", *words), env=env, capture_output=True, text=True, timeout=60)
            self.assertEqual(wrong.returncode, 1, wrong.stderr)
            self.assertIn(why, wrong.stderr)
        subprocess.run(self.words("stop"), env=apart, capture_output=True, timeout=60)
        done = subprocess.run(self.words("ipoib", "down", "--host", "h1"), env=self.env, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("fabric0", self.call("h1", "ip", "-br", "link"))
        done = subprocess.run(self.words("ipoib", "down", "--host", "h1"), env=self.env, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)

    def test_a_program_that_is_stopped(self):
        self.up()
        self.interface("h1")
        os.kill(self.program("h1"), signal.SIGSTOP)
        done = subprocess.run(self.words("ipoib", "down", "--host", "h1"), env=self.env, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.status("h1"), [])
        self.assertNotIn("ib0", self.call("h1", "ip", "-br", "link"))

    def test_an_ordinary_user(self):
        """Each host in a user and network namespace of his own, which needs no privilege."""
        user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        apart = [*user, "unshare", "--user", "--map-root-user", "--net"]
        for words in ([*user, *self.words("version")], [*apart, "true"]):
            if subprocess.run(words, capture_output=True).returncode != 0:
                self.skipTest(f"{' '.join(words)} fails")
        self.up()  # another fabric, of this user
        os.chmod(self.root, 0o711)
        own = os.path.join(self.root, "user")
        os.mkdir(own, 0o700)
        os.chown(own, 65534, 65534)
        env = {**self.env, "XDG_RUNTIME_DIR": own}

        def call(*words):
            done = subprocess.run([*user, *self.words(*words)], env=env, capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return done.stdout

        def host(n, then):
            up = " ".join(self.words("ipoib", "up", "--host", f"h{n}", "--address", f"10.1.0.{n}/24"))
            process = subprocess.Popen([*apart, "sh", "-c", f"ip link set lo up && {up} && {then}"], env=env, text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.addCleanup(process.communicate)
            self.addCleanup(process.kill)
            return process

        name = ("--name", self.env["ANYVERBS_NODE"])
        call("fabric", "up", "--topology", "fat-tree:2x2,radix=4", *name)  # h1 and h4 at different switches
        try:
            server = host(4, "echo up && read word")
            self.assertEqual(server.stdout.readline().strip(), "up")
            out = host(1, "ping -n -c 3 -i 0.2 -W 20 10.1.0.4").communicate(timeout=60)[0]
            self.assertIn("bytes from 10.1.0.4", out)
            self.assertIn("10.1.0.4/24", call("ipoib", "status", "--host", "h4"))
            call("ipoib", "down", "--host", "h4")
            call("ipoib", "down", "--host", "h1")
        finally:
            call("fabric", "down", "--force", *name)

    def test_no_right(self):
        self.up()
        words = ["setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin"]
        done = subprocess.run([*words, *self.words("ipoib", "up", "--host", "h1")], env=self.env, capture_output=True, text=True,
                              timeout=60)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("CAP_NET_ADMIN", done.stderr)
        self.assertIn("unshare", done.stderr)


def may():
    return os.geteuid() == 0 and os.path.exists("/dev/net/tun") and subprocess.run(
        ["ip", "netns", "add", f"ipoib-{os.getpid()}"], capture_output=True).returncode == 0 and subprocess.run(
            ["ip", "netns", "del", f"ipoib-{os.getpid()}"], capture_output=True).returncode == 0


if __name__ == "__main__":
    if MISSING:
        print(f"SKIP {', '.join(MISSING)}: not installed")
        sys.exit(77)
    if not may():
        print("SKIP: needs root, network namespaces and /dev/net/tun")
        sys.exit(77)
    unittest.main()
