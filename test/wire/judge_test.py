#!/usr/bin/python3
"""judge_test.py: scapy and tshark judge our packets, and our receiver judges scapy's and an adapter's.

usage: judge_test.py PROGRAM      PROGRAM: packets.c, built. Exit status 77: scapy or tshark is not installed.

scapy (contrib/roce) computes the ICRC over IPv4 only; for IPv6 see judge_icrc.py. Needs Debian's own python3, for which python3-scapy is built.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    from scapy.config import conf
    conf.verb = 0
    from scapy.all import Ether, IP, IPv6, Raw, UDP, raw, wrpcap
    from scapy.contrib.roce import AETH, BTH, cnp
    from judge_icrc import icrc_over_ipv6
except ImportError:
    print("SKIP scapy is not installed")
    sys.exit(77)
if shutil.which("tshark") is None:
    print("SKIP tshark is not installed")
    sys.exit(77)

PROGRAM = sys.argv.pop(1)
KINDS = 2 * (25 + 12 + 2 + 2 + 4)  # IPv4 and IPv6; RC, UC, UD, UD to a group, and a CNP whatever the type
# From the IP header on. The adapter's own: captured from a ConnectX-4 Lx, and an example of a ConnectX' UC SEND, both from the
# tests of scapy's RoCE layer, where their ICRC is the adapter's.
CAPTURED = {
    "CNP": "45c2003c718c4000401191610a0011010a001201000012b7002800008100ffff40000118" + 20 * "00" + "82fd002a",
    "UC SEND": "450100400478400" "04011b4d5c0a80007c0a80007c00012b7002caca22460ffff000000d300cf17104630818be28935d90e9a9550"
               "5401be885e50000078f353f3",
}
# tshark guesses at payloads; at short ones some guesses fail, and it calls that malformed, an adapter's packets included.
GUESSES = ["--disable-heuristic", "rpcrdma_infiniband", "--disable-heuristic", "eth_over_ib",
           "--disable-heuristic", "mellanox_eoib"]


def ours():
    """[(name, bytes from the IP header on)]: what we send."""
    out = subprocess.run([PROGRAM, "make"], capture_output=True, text=True, check=True).stdout
    return [(name, bytes.fromhex(packet)) for name, packet in (line.split() for line in out.splitlines())]


def verdicts(packets):
    text = "".join(p.hex() + "\n" for p in packets)
    return subprocess.run([PROGRAM, "judge"], input=text, capture_output=True, text=True, check=True).stdout.split()


def layers(packet):
    return (IP if packet[0] >> 4 == 4 else IPv6)(packet)


def tshark(packets, *options):
    folder = tempfile.mkdtemp(prefix="anyverbs-wire-")
    try:
        path = os.path.join(folder, "all.pcap")
        wrpcap(path, [Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / layers(p) for p in packets])
        return subprocess.run(["tshark", "-r", path, *GUESSES, *options], capture_output=True, text=True,
                              check=True).stdout.splitlines()
    finally:
        shutil.rmtree(folder)


class Sent(unittest.TestCase):
    def setUp(self):
        self.packets = ours()

    def test_there_are_packets_of_every_kind(self):
        self.assertEqual(len({name.rsplit("-", 1)[0] for name, _ in self.packets}), KINDS)

    def test_some_go_to_groups(self):
        groups = [layers(p) for name, p in self.packets if name.startswith("group")]
        self.assertEqual({p.version for p in groups}, {4, 6})
        self.assertEqual({p.dst.partition("." if p.version == 4 else ":")[0] for p in groups}, {"239", "ff18"})

    def test_scapy_computes_the_same_icrc(self):
        checked = 0
        for name, packet in self.packets:
            if packet[0] >> 4 == 4:
                again = IP(packet)
                again[BTH].icrc = None
                self.assertEqual(raw(again), packet, name)
                checked += 1
        self.assertGreaterEqual(checked, 290)

    def test_zlib_computes_the_same_icrc_over_ipv6(self):
        checked = 0
        for name, packet in self.packets:
            if packet[0] >> 4 == 6:
                self.assertEqual(packet[-4:], icrc_over_ipv6(packet), name)
                checked += 1
        self.assertGreaterEqual(checked, 290)

    def test_headers_of_ip_are_right(self):
        for name, packet in self.packets:
            again = layers(packet)
            if packet[0] >> 4 == 4:
                del again.chksum, again.len
            else:
                del again.plen
            del again[UDP].len
            self.assertEqual(raw(again), packet, name)

    def test_tshark_finds_nothing_malformed(self):
        packets = [p for _, p in self.packets]
        found = tshark(packets, "-Y", "_ws.malformed", "-T", "fields", "-e", "frame.number", "-e", "frame.protocols")
        self.assertEqual([(self.packets[int(f.split()[0]) - 1][0], f) for f in found], [])

    def test_tshark_sees_the_same_fields(self):
        fields = ["infiniband.bth.opcode", "infiniband.bth.destqp", "infiniband.bth.psn", "infiniband.bth.padcnt",
                  "infiniband.invariant.crc"]
        seen = tshark([p for _, p in self.packets], "-T", "fields", "-E", "separator=|", *[w for f in fields for w in ("-e", f)])
        self.assertEqual(len(seen), len(self.packets))
        for (name, packet), line in zip(self.packets, seen):
            bth = packet[28 if packet[0] >> 4 == 4 else 48:]
            expected = [bth[0], int.from_bytes(bth[5:8], "big"), int.from_bytes(bth[9:12], "big"), bth[1] >> 4 & 3,
                        int.from_bytes(packet[-4:], "big")]
            if bth[0] in (0x81, 0x1c, 0x1d):
                expected.pop()  # it shows none of a CNP, and knows neither FLUSH nor atomic write
            self.assertEqual([int(v, 0) for v in line.split("|") if v], expected, name)


class Received(unittest.TestCase):
    def test_our_own_packets(self):
        packets = ours()
        self.assertEqual([n for (n, _), v in zip(packets, verdicts([p for _, p in packets])) if v != "good"], [])

    def test_packets_of_adapters(self):
        for name, packet in CAPTURED.items():
            packet = bytes.fromhex(packet)
            again = IP(packet)
            again[BTH].icrc = None
            self.assertEqual(raw(again), packet, name)  # scapy says so, too
            self.assertEqual(verdicts([packet]), ["good"], name)

    def test_packets_of_scapy(self):
        flows = [IP(src="10.0.0.1", dst="10.0.0.2", id=i, flags=f, tos=t) / UDP(sport=49152 + i % 1000, dport=4791)
                 for i in (0, 1, 7777, 65535) for f in ("", "DF") for t in (0, 0xb9)]
        contents = [BTH(opcode=0x04, dqpn=17, psn=3) / Raw(b"anyverbs"), BTH(opcode=0x24, dqpn=17) / Raw(bytes(1024)),
                    BTH(opcode=0x11, dqpn=0xffffff, ackreq=0) / AETH(syndrome=0x1f, msn=9), cnp(dqpn=5)]
        packets = [raw(f / c) for f in flows for c in contents]
        self.assertEqual(len(packets), 64)
        self.assertEqual(set(verdicts(packets)), {"good"})
        damaged = [p[:-9] + bytes([p[-9] ^ 4]) + p[-8:] for p in packets]
        self.assertEqual(set(verdicts(damaged)), {"bad"})


if __name__ == "__main__":
    unittest.main()
