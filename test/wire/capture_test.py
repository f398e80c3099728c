#!/usr/bin/python3
"""capture_test.py: `anyverbs capture` while Debian's programs run: tshark and scapy judge the file.

usage: capture_test.py BUILD_DIR      Exit status 77: scapy, tshark or perftest is not installed.

Each case has a node of its own. Needs Debian's own python3, for which python3-scapy is built.
"""
import json
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

try:
    from scapy.config import conf
    conf.verb = 0
    logging.getLogger("scapy").setLevel(logging.ERROR)  # it wants comments to end with a newline
    from scapy.all import IP, IPv6, UDP, raw, rdpcap
    from scapy.contrib.roce import BTH
    from judge_icrc import icrc_over_ipv6
except ImportError:
    print("SKIP scapy is not installed")
    sys.exit(77)
for tool in ("tshark", "ib_write_lat", "ibv_rc_pingpong"):
    if shutil.which(tool) is None:
        print(f"SKIP {tool} is not installed")
        sys.exit(77)

COMMAND = os.path.join(os.path.abspath(sys.argv.pop(1)), "bin/anyverbs")
RC, UC, UD = 0x00, 0x20, 0x60
FIRST, MIDDLE, LAST, ONLY = 0, 1, 2, 4
WRITE, READ_REQUEST, ACK = 6, 12, 17
READ_RESPONSE = {13, 14, 15, 16}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(what, seconds=10):
    """Without touching what is waited for."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return
        time.sleep(0.02)
    raise AssertionError("waited in vain")


def listens(port):
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(name, encoding="ascii") as table:
            if any(re.search(f":{port:04X} \\S+ 0A ", line) for line in table):
                return True
    return False


def frames(path):
    """The packets of a file, from the IP header on."""
    return [p[IP] if IP in p else p[IPv6] for p in rdpcap(path)]


def tshark(path, *options):
    return subprocess.run(["tshark", "-r", path, *options], capture_output=True, text=True, check=True).stdout.splitlines()


class Case(unittest.TestCase):
    count = 0

    def setUp(self):
        Case.count += 1
        self.folder = tempfile.mkdtemp(prefix="anyverbs-capture-")
        self.file = os.path.join(self.folder, "file.pcapng")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("ANYVERBS_")}
        self.env.update(ANYVERBS_NODE=f"capture-{os.getpid()}-{Case.count}", ANYVERBS_ADDR="own", ANYVERBS_IDLE_S="20")
        self.children = []

    def tearDown(self):
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()
            for stream in (child.stdin, child.stdout, child.stderr):
                if stream:
                    stream.close()
        subprocess.run([COMMAND, "stop", "--force"], env=self.env, check=False)
        shutil.rmtree(self.folder)

    def start(self, *words, env=None, **how):
        how = {"stdin": subprocess.DEVNULL, **how}
        child = subprocess.Popen([COMMAND, *words], env={**self.env, **(env or {})}, text=True, **how)
        self.children.append(child)
        return child

    def capture(self, *options, file=None, env=None):
        """A recorder that has begun."""
        child = self.start("capture", *options, file or self.file, stderr=subprocess.PIPE, env=env)
        self.assertRegex(child.stderr.readline(), "capturing on roce0")
        return child

    def finish(self, recorder):
        """Ends it: (frames, dropped) as it says."""
        recorder.send_signal(signal.SIGINT)
        _, said = recorder.communicate(timeout=10)
        self.assertEqual(recorder.returncode, 0, said)
        found = re.search(r"(\d+) frames captured, (\d+) dropped", said)
        return int(found.group(1)), int(found.group(2))

    def address(self):
        """The node's first IPv4 address."""
        status = subprocess.run([COMMAND, "status", "--json"], env=self.env, capture_output=True, text=True, check=True).stdout
        return re.search(r"::ffff:([0-9.]+)", status)[1]

    def pair(self, *words, env=None, client_env=None, devices=("", "")):
        """A client and its server, each with its device where %DEVICE stands; both must succeed."""
        port = free_port()
        words = [w.replace("%PORT", str(port)) for w in words] + ["-p", str(port)]
        server_words, words = [[w.replace("%DEVICE", d) for w in words] for d in devices]
        server = self.start("run", *server_words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        wait_for(lambda: listens(port) or server.poll() is not None)
        client = self.start("run", *words, "127.0.0.1", env=client_env or env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        out = "".join(child.communicate(timeout=60)[0] for child in (client, server))
        # perftest measures its clock when all is sent, and gives up where it is preempted
        if "Can't produce a report" not in out:
            self.assertEqual((client.returncode, server.returncode), (0, 0), out)

    # ---- judges ----

    def judge(self, path=None, count=None, checksum=True):
        """tshark finds nothing wrong with the frames, and each has its ICRC. `checksum`: and that of UDP."""
        path = path or self.file
        packets = frames(path)
        self.assertEqual(tshark(path, "-Y", "_ws.malformed"), [])
        self.assertEqual(tshark(path, "-o", f"udp.check_checksum:{checksum}", "-Y", "_ws.expert.severity == error"), [])
        self.assertEqual(len(tshark(path, "-Y", "infiniband.bth")), len(packets))
        if count is not None:
            self.assertEqual(len(packets), count)
        for packet in packets:
            before = raw(packet)
            if packet.version == 4:
                again = IP(before)
                again[BTH].icrc = None
                self.assertEqual(raw(again)[-4:], before[-4:])
            else:
                self.assertEqual(icrc_over_ipv6(before), before[-4:])
        return packets

    def judge_numbers(self, packets):
        """What one queue pair sends to another carries one PSN after the other; a READ takes its response's."""
        expected = {}
        for bth in (p[BTH] for p in packets):
            if bth.opcode == RC + ACK or bth.opcode in READ_RESPONSE:
                continue
            if bth.dqpn in expected:
                self.assertEqual(bth.psn, expected[bth.dqpn])
            step = 1
            if bth.opcode == RC + READ_REQUEST:
                length = int.from_bytes(raw(bth)[24:28], "big")
                step = max(1, -(-length // self.mtu))
            expected[bth.dqpn] = (bth.psn + step) & 0xffffff
        return expected


class Local(Case):
    mtu = 4096

    def test_sends_are_cut_at_the_mtu(self):
        recorder = self.capture()
        self.pair("ibv_rc_pingpong", "-d", "roce0", "-g", "1", "-n", "20", "-s", "4000", "-m", "1024")
        written, dropped = self.finish(recorder)
        packets = self.judge(count=written)
        self.assertEqual(dropped, 0)
        sends = [p[BTH].opcode for p in packets if p[BTH].opcode != RC + ACK]
        self.assertEqual(sends, [FIRST, MIDDLE, MIDDLE, LAST] * 40)
        last = self.judge_numbers(packets)
        self.assertEqual(len(last), 2)
        acks = [p[BTH] for p in packets if p[BTH].opcode == RC + ACK]
        self.assertGreaterEqual(len(acks), 2)
        ends = {(p[BTH].psn) for p in packets if p[BTH].opcode == LAST}
        self.assertLessEqual({a.psn for a in acks}, ends)

    def test_copies_are_writes(self):
        for direct in ("1", "0"):
            recorder = self.capture()
            self.pair("ib_write_lat", "-d", "roce0", "-x", "1", "-n", "50", "-s", "8", env={"ANYVERBS_DIRECT": direct})
            written, dropped = self.finish(recorder)
            packets = self.judge(count=written)
            self.assertEqual(dropped, 0)
            self.assertEqual(sum(p[BTH].opcode == WRITE + ONLY for p in packets), 100)
            self.judge_numbers(packets)

    def test_reads_and_long_messages(self):
        for direct, *words in (("1", "ib_read_bw", "-s", "100000"), ("0", "ib_read_bw", "-s", "100000"),
                               ("1", "ib_send_bw", "-s", "200000"), ("0", "ib_write_bw", "-s", "50000"), ("1", "ib_atomic_bw")):
            with self.subTest(words=words, direct=direct):
                recorder = self.capture()
                self.pair(*words, "-d", "roce0", "-x", "1", "-n", "7", env={"ANYVERBS_DIRECT": direct})
                written, dropped = self.finish(recorder)
                packets = self.judge(count=written)
                self.assertEqual(dropped, 0)
                self.assertGreater(len(packets), 7)
                self.judge_numbers(packets)

    def test_datagrams_over_ipv6(self):
        recorder = self.capture()
        self.pair("ibv_ud_pingpong", "-d", "roce0", "-g", "0", "-n", "10", "-s", "700")
        written, _ = self.finish(recorder)
        packets = self.judge(count=written)
        self.assertEqual([p[BTH].opcode for p in packets], [UD + ONLY] * 20)
        self.assertEqual({p.version for p in packets}, {6})
        self.assertEqual({p.src for p in packets}, {p.dst for p in packets})

    def test_each_device_has_its_addresses(self):
        self.env["ANYVERBS_DEVICES"] = "roce0,roce1,roce2"
        recorder = self.capture()
        status = subprocess.run([COMMAND, "status", "--json"], env=self.env, capture_output=True, text=True, check=True).stdout
        address = {d["name"]: next(g["gid"] for g in d["ports"][0]["gids"] if g["index"] == 1) for d in json.loads(status)["devices"]}
        address = {name: gid.removeprefix("::ffff:") for name, gid in address.items()}
        self.assertEqual(len(set(address.values())), 3)
        self.finish(recorder)
        for devices, *words in ((("roce0", "roce2"), "ibv_rc_pingpong", "-g", "1", "-n", "5"),
                                (("roce2", "roce1"), "ib_write_bw", "-x", "1", "-n", "5", "-s", "64"),
                                (("roce1", "roce1"), "ibv_ud_pingpong", "-g", "1", "-n", "5", "-s", "100")):
            with self.subTest(devices=devices, program=words[0]):
                recorder = self.capture()
                self.pair(*words, "-d", "%DEVICE", devices=devices)
                self.finish(recorder)
                packets = self.judge()
                server, client = (address[d] for d in devices)
                seen = {(p.src, p.dst) for p in packets}
                self.assertLessEqual(seen, {(server, client), (client, server)})
                self.assertIn((client, server), seen)

    def test_a_process_that_runs_already(self):
        port = str(free_port())
        words = ("run", "ib_write_lat", "-d", "roce0", "-x", "1", "-s", "8", "-D", "60", "-p", port)
        server = self.start(*words, stdout=subprocess.DEVNULL)
        wait_for(lambda: listens(int(port)))
        client = self.start(*words, "127.0.0.1", stdout=subprocess.DEVNULL)
        status = lambda: subprocess.run([COMMAND, "status"], env=self.env, capture_output=True, text=True, check=False).stdout
        wait_for(lambda: len(re.findall("RTS", status())) >= 2)
        recorder = self.capture("--count", "500")
        _, said = recorder.communicate(timeout=20)
        self.assertIn("500 frames captured", said)
        self.assertIsNone(server.poll())
        self.assertIsNone(client.poll())
        self.judge(count=500)


class Command(Case):
    def test_limits(self):
        began = time.monotonic()
        recorder = self.capture("--seconds", "0.3")
        _, said = recorder.communicate(timeout=20)
        self.assertIn("0 frames captured, 0 dropped", said)
        self.assertGreaterEqual(time.monotonic() - began, 0.3)
        self.judge(count=0)

    def test_snaplen(self):
        recorder = self.capture("--snaplen", "90")
        self.pair("ibv_uc_pingpong", "-d", "roce0", "-g", "1", "-n", "5", "-s", "1000")
        self.finish(recorder)
        self.assertEqual(tshark(self.file, "-Y", "_ws.malformed"), [])
        self.assertEqual(tshark(self.file, "-Y", "frame.cap_len > 90 || frame.len < 1000"), [])
        self.assertEqual(len(tshark(self.file, "-Y", "infiniband.bth.opcode == 36")), 10)

    def test_standard_output(self):
        recorder = self.start("capture", "--seconds", "0.2", "-", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with open(self.file, "wb") as copy:
            shutil.copyfileobj(recorder.stdout.buffer, copy)
        self.assertEqual(recorder.wait(timeout=10), 0)
        self.judge(count=0)

    def test_says_why_it_cannot_write(self):
        for shell, why in (("anyverbs capture - > /dev/full", "cannot write -: No space left on device"),
                           ("anyverbs capture /dev/full", "cannot write /dev/full: No space left on device"),
                           ("anyverbs capture - >&-", "-: Bad file descriptor"),
                           ("anyverbs status > /dev/full", "cannot write the output: No space left on device")):
            done = subprocess.run(["sh", "-c", shell], env={**self.env, "PATH": os.path.dirname(COMMAND) + ":" + os.environ["PATH"]},
                                  capture_output=True, text=True, timeout=30, check=False)
            self.assertEqual(done.returncode, 1, shell)
            self.assertEqual([line for line in done.stderr.splitlines() if "cannot" in line or "Bad" in line],
                             [f"anyverbs: {'' if 'output' in why else 'capture: '}{why}"], shell)

    def test_its_reader_leaves(self):
        """It ends though no frame comes: by SIGPIPE and without a word, or, where that is ignored, with the reason."""
        for ignored in False, True:
            reading, writing = os.pipe()
            recorder = self.start("capture", "-", stdout=writing, stderr=subprocess.PIPE, restore_signals=not ignored)
            os.close(writing)
            self.assertIn("capturing on", recorder.stderr.readline())
            os.close(reading)
            _, said = recorder.communicate(timeout=20)
            self.assertEqual((recorder.returncode, said), (1, "anyverbs: capture: cannot write -: Broken pipe\n") if ignored else
                             (-signal.SIGPIPE, ""))

    def test_what_is_made_up_says_so(self):
        recorder = self.capture()
        self.pair("ib_write_lat", "-d", "roce0", "-x", "1", "-n", "5", "-s", "8")
        self.finish(recorder)
        comments = set(tshark(self.file, "-T", "fields", "-e", "frame.comment"))
        self.assertEqual(comments, {"direct copy", "direct copy; nobody sent this"})

    def test_one_at_a_time(self):
        recorder = self.capture()
        other = self.start("capture", self.file + "2", stderr=subprocess.PIPE)
        _, said = other.communicate(timeout=10)
        self.assertEqual(other.returncode, 1)
        self.assertIn("somebody else captures", said)
        self.finish(recorder)
        self.finish(self.capture())

    def test_wrong_arguments(self):
        for words in ([], ["a", "b"], ["--count", "0", "a"], ["--snaplen", "63", "a"], ["--seconds"], ["--what", "1", "a"]):
            done = subprocess.run([COMMAND, "capture", *words], env=self.env, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2, words)
        done = subprocess.run([COMMAND, "capture", "/nonexistent/a"], env=self.env, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)


class Fault(Case):
    mtu = 4096

    def test_the_recorder_dies(self):
        recorder = self.capture()
        port = str(free_port())
        words = ("run", "ib_send_lat", "-d", "roce0", "-x", "1", "-s", "8", "-D", "3", "-p", port)
        server = self.start(*words, stdout=subprocess.DEVNULL)
        wait_for(lambda: listens(int(port)))
        client = self.start(*words, "127.0.0.1", stdout=subprocess.DEVNULL)
        wait_for(lambda: os.path.getsize(self.file) > 20000)
        recorder.kill()
        self.assertEqual(client.wait(timeout=60), 0)
        self.assertEqual(server.wait(timeout=60), 0)
        again = self.capture()
        self.pair("ibv_rc_pingpong", "-d", "roce0", "-g", "1", "-n", "5", "-s", "100")
        self.finish(again)
        self.assertEqual(sum(p[BTH].opcode == ONLY for p in self.judge()), 10)

    def test_the_node_dies(self):
        recorder = self.capture()
        status = subprocess.run([COMMAND, "status"], env=self.env, capture_output=True, text=True, check=True).stdout
        node = int(re.search(r"pid (\d+)", status).group(1))
        os.kill(node, signal.SIGKILL)

        def is_back():
            done = subprocess.run([COMMAND, "capture", "--seconds", "0.01", os.devnull], env=self.env, capture_output=True,
                                  text=True, check=False)
            return "somebody else" in done.stderr

        wait_for(is_back)
        self.pair("ibv_rc_pingpong", "-d", "roce0", "-g", "1", "-n", "5", "-s", "100")
        self.finish(recorder)
        self.assertEqual(sum(p[BTH].opcode == ONLY for p in self.judge()), 10)


class Wire(Case):
    mtu = 1024

    def between(self, *words):
        """A client and its server on two hosts: the server's address, all addresses, the frames."""
        here, there = ({"ANYVERBS_NODE": self.env["ANYVERBS_NODE"] + end, "ANYVERBS_ADDR": f"127.{os.getpid() >> 8 & 255}."
                        f"{os.getpid() & 255}.{address}"} for end, address in (("a", 2), ("b", 3)))
        recorder = self.capture(env=here)
        self.pair(*words, "-d", "roce0", "-g", "1", "-n", "20", env=here, client_env=there)
        written, dropped = self.finish(recorder)
        for env in (here, there):
            subprocess.run([COMMAND, "stop", "--force"], env={**self.env, **env}, check=False)
        self.assertEqual(dropped, 0)
        return here["ANYVERBS_ADDR"], {e["ANYVERBS_ADDR"] for e in (here, there)}, self.judge(count=written)

    def ecn(self):
        """What leaves, and what has come in as the socket showed it."""
        return [set(tshark(self.file, "-Y", f"frame.packet_flags_direction == {way}", "-T", "fields", "-e", "ip.dsfield"))
                for way in (1, 2)]

    def test_two_hosts(self):
        here, addresses, packets = self.between("ibv_rc_pingpong", "-s", "4000", "-m", "1024")
        sends = [p for p in packets if p[BTH].opcode != RC + ACK]
        self.assertGreaterEqual(len(sends), 160)
        self.assertEqual({p.src for p in sends}, addresses)
        inbound = tshark(self.file, "-Y", "frame.packet_flags_direction == 1", "-T", "fields", "-e", "ip.dst")
        self.assertEqual(set(inbound), {here})
        self.assertEqual(set(tshark(self.file, "-T", "fields", "-e", "frame.comment")), {""})
        self.assertEqual(self.ecn(), [{"0x02"}, {"0x02"}])  # ECT(0)
        ports = {(p.src, p[UDP].sport) for p in packets}  # one for each queue pair, the same from both ends
        self.assertEqual(len(ports), 2)
        self.assertEqual({port >> 14 for _, port in ports}, {3})
        self.assertEqual({p[UDP].dport for p in packets}, {4791})

    def test_datagrams_are_not_slowed_down(self):
        _, _, packets = self.between("ibv_ud_pingpong", "-s", "700")
        self.assertEqual({p[BTH].opcode for p in packets}, {UD + ONLY})
        self.assertEqual(self.ecn(), [{"0x00"}, {"0x00"}])  # not ECN-capable


if __name__ == "__main__":
    unittest.main()
