#!/usr/bin/python3
"""fabric_capture_test.py: `anyverbs capture` while Debian's programs run on hosts of a fabric: tshark judges the file from the LRH
on, and both CRCs are computed once more, here.

usage: fabric_capture_test.py BUILD_DIR      Exit status 77: tshark, perftest, OpenSM or infiniband-diags is not installed.
"""
import collections
import os
import shutil
import signal
import struct
import subprocess
import sys
import unittest
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../node"))
from fabric_bed import Bed

Bed.build = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else os.path.abspath("build")
MISSING = [p for p in ("tshark", "opensm", "ibv_rc_pingpong", "ib_write_lat", "ibnetdiscover", "perfquery", "saquery", "rping")
           if shutil.which(p) is None]
ERF_LINK, ERF_HEADER, ERF_INFINIBAND = 197, 16, 21
LRH, GRH, BTH, ICRC, VCRC = 8, 40, 12, 4, 2
LOCAL, GLOBAL, SMP_VL = 2, 3, 15
RC_ACK, RC_READ, READ_RESPONSES = 17, 12, {13, 14, 15, 16}
# The subnet of the tests: SL 3 goes by VL 5, two hosts have a partition of their own.
SL, VL, PKEY = 3, 5, 0x8001
QOS = "qos TRUE\nqos_max_vls 8\nqos_high_limit 4\nqos_vlarb_high 0:4\nqos_vlarb_low 0:0,1:4,5:4\nqos_sl2vl 0,1,2,5,4,5,6,7,7,7,7,7,7,7,7,7\n"


def packets(path):
    """The InfiniBand packets of a pcapng file, from the LRH on."""
    with open(path, "rb") as f:
        data = f.read()
    at, links = 0, []
    while at < len(data):
        kind, total = struct.unpack_from("<II", data, at)
        if kind == 1:
            links.append(struct.unpack_from("<H", data, at + 8)[0])
        if kind == 6:
            interface, _, _, kept, length = struct.unpack_from("<IIIII", data, at + 8)
            assert links[interface] == ERF_LINK and kept == length
            frame = data[at + 28:at + 28 + kept]
            assert frame[8] == ERF_INFINIBAND and struct.unpack_from(">H", frame, 14)[0] == kept - ERF_HEADER
            yield frame[ERF_HEADER:]
        at += total


def vcrc(packet):
    crc = 0xffff
    for byte in packet:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xd008 if crc & 1 else 0)
    return (crc ^ 0xffff).to_bytes(2, "little")


def icrc(packet, transport):
    """IBA vol 1, 7.8.1; `transport`: where the BTH lies."""
    masked = bytearray(packet)
    if transport == LRH:
        masked[0] |= 0xf0
    else:
        masked[:LRH] = b"\xff" * LRH
        masked[LRH] |= 0x0f
        masked[LRH + 1:LRH + 4] = b"\xff" * 3
        masked[LRH + 7] = 0xff
    masked[transport + 4] = 0xff
    return zlib.crc32(masked).to_bytes(4, "little")


Header = collections.namedtuple("Header", "vl sl lnh dlid slid opcode pkey dqpn psn length")


class Capture(Bed):
    """All on one fabric."""
    bed = None

    @classmethod
    def setUpClass(cls):
        cls.bed = Bed()
        cls.bed.setUp()

    @classmethod
    def tearDownClass(cls):
        cls.bed.tearDown()

    def setUp(self):
        self.root, self.env, self.managers = self.bed.root, self.bed.env, self.bed.managers
        self.file = os.path.join(self.root, "file.pcapng")
        self.recorder = None
        if not self.managers:
            self.bring_up()
        self.lids = {h: self.lid(h) for h in ("h1", "h2", "h3")}

    def tearDown(self):
        pass

    def bring_up(self):
        self.fabric("up", "--no-sm", "--topology", "star:3")
        guid = "0x02a0000000000{}01"
        partitions = os.path.join(self.root, "partitions")
        with open(partitions, "w") as f:
            f.write("Default=0x7fff,ipoib:ALL=full;\nblue=0x8001:" + ",".join(guid.format(i) + "=full" for i in (2, 3)) + ";\n")
        self.opensm("h1", "-Q", "-P", partitions, conf=QOS)

    def begin(self):
        self.recorder = subprocess.Popen(self.words("capture", self.file), env=self.env, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.recorder.stderr.close)
        self.addCleanup(self.recorder.wait)
        self.addCleanup(self.recorder.kill)
        self.assertIn("and the fabric", self.recorder.stderr.readline())

    def tshark(self, *options):
        return subprocess.run(["tshark", "-r", self.file, *options], capture_output=True, text=True, check=True).stdout.splitlines()

    def fields(self, which, *names):
        words = [w for n in names for w in ("-e", "infiniband." + n)]
        return [tuple(line.split("\t")) for line in self.tshark("-Y", which, "-T", "fields", *words)]

    def end(self):
        """Ends the capture and judges the file: its packets' headers, and their bytes."""
        self.recorder.send_signal(signal.SIGINT)
        said = self.recorder.communicate(timeout=20)[1]
        self.assertEqual(self.recorder.returncode, 0, said)
        self.assertIn(" 0 dropped", said)
        found = list(packets(self.file))
        self.assertIn(f"{len(found)} frames captured", said)
        self.assertEqual(self.tshark("-Y", "_ws.malformed || _ws.expert.severity == error"), [])
        crcs = "(infiniband.variant.crc || infiniband.mad.mgmtclass == 4)"  # tshark shows none behind its PMA's fields
        self.assertEqual(len(self.tshark("-Y", f"infiniband.lrh && infiniband.bth && {crcs}")), len(found))
        return [(self.judge(p), p) for p in found]

    def judge(self, p):
        lnh = p[1] & 3
        self.assertIn(lnh, (LOCAL, GLOBAL))
        transport = LRH + (GRH if lnh == GLOBAL else 0)
        covered = len(p) - VCRC
        self.assertEqual(struct.unpack_from(">H", p, 4)[0] * 4, covered)
        if lnh == GLOBAL:
            self.assertEqual(struct.unpack_from(">H", p, LRH + 4)[0], covered - transport)
        self.assertEqual(icrc(p[:covered - ICRC], transport), p[covered - ICRC:covered])
        self.assertEqual(vcrc(p[:covered]), p[covered:])
        dlid, slid = struct.unpack_from(">HxxH", p, 2)
        opcode, _, pkey, dqpn, psn = struct.unpack_from(">BBHII", p, transport)
        return Header(p[0] >> 4, p[1] >> 4, lnh, dlid, slid, opcode, pkey, dqpn & 0xffffff, psn & 0xffffff, len(p))

    def judge_numbers(self, headers, mtu, read_bytes=0):
        """What one queue pair sends to another carries one PSN after the other; a READ takes its response's."""
        expected = {}
        for h in headers:
            if h.opcode == RC_ACK or h.opcode in READ_RESPONSES or h.opcode >= 0x20:
                continue
            self.assertEqual(expected.get(h.dqpn, h.psn), h.psn)
            step = max(1, -(-read_bytes // mtu)) if h.opcode == RC_READ else 1
            expected[h.dqpn] = (h.psn + step) & 0xffffff
        return expected

    def data(self, *words):
        """The headers of what queue pairs of programs send between h2 and h3."""
        self.begin()
        self.pair(*words, hosts=("h2", "h3"))
        headers = [h for h, _ in self.end() if h.dqpn > 1]
        ways = {(self.lids["h2"], self.lids["h3"]), (self.lids["h3"], self.lids["h2"])}
        self.assertLessEqual({(h.slid, h.dlid) for h in headers}, ways)
        return headers

    def test_reliable_connections(self):
        headers = self.data("ibv_rc_pingpong", "-n", "10", "-s", "4000", "-m", "1024", "-l", str(SL))
        self.assertEqual({(h.lnh, h.sl, h.vl, h.pkey) for h in headers}, {(LOCAL, SL, VL, 0xffff)})
        self.assertEqual([h.opcode for h in headers if h.opcode != RC_ACK], [0, 1, 1, 2] * 20)
        self.assertEqual(len(self.judge_numbers(headers, 1024)), 2)

    def test_with_a_grh_and_in_a_partition(self):
        headers = self.data("ib_write_lat", "-d", "ib0", "-x", "0", "-s", "8", "-n", "20", "--pkey_index", "1")
        self.assertEqual({(h.lnh, h.sl, h.vl, h.pkey) for h in headers}, {(GLOBAL, 0, 0, PKEY)})
        self.assertEqual(sum(h.opcode == 10 for h in headers), 40)
        self.judge_numbers(headers, 4096)
        gids = set(self.fields("infiniband.grh", "grh.sgid", "grh.dgid"))
        gid = "fe80::2a0:0:0:{}01"
        self.assertEqual(gids, {(gid.format(2), gid.format(3)), (gid.format(3), gid.format(2))})

    def test_reads(self):
        headers = self.data("ib_read_bw", "-d", "ib0", "-s", "10000", "-n", "5", "-m", "2048")
        self.assertEqual(sum(h.opcode == RC_READ for h in headers), 5)
        self.assertEqual([h.opcode for h in headers if h.opcode in READ_RESPONSES], [13, 14, 14, 14, 15] * 5)
        self.judge_numbers(headers, 2048, 10000)
        reth = self.fields("infiniband.bth.opcode == 12", "reth.dmalen")
        self.assertEqual({int(n) for n, in reth}, {10000})

    def test_datagrams(self):
        headers = self.data("ibv_ud_pingpong", "-n", "10", "-s", "700", "-l", str(SL))
        self.assertEqual([h.opcode for h in headers], [0x64] * 20)
        self.assertEqual({(h.lnh, h.sl, h.vl) for h in headers}, {(LOCAL, SL, VL)})
        keys = self.fields("infiniband.deth && infiniband.bth.destqp > 1", "deth.q_key", "deth.srcqp")  # MADs may be beside them
        self.assertEqual({int(key, 0) for key, _ in keys}, {0x11111111})
        self.assertEqual({int(qp, 0) for _, qp in keys}, {h.dqpn for h in headers})

    def test_subnet_management(self):
        self.begin()
        self.on("h2", "ibnetdiscover")
        self.on("h2", "smpquery", "portinfo", str(self.lids["h3"]), "1")
        h2, h3 = self.lids["h2"], self.lids["h3"]
        smps = [(h, p) for h, p in self.end() if h.dqpn == 0]
        self.assertEqual({(h.vl, h.sl, h.lnh) for h, _ in smps}, {(SMP_VL, 0, LOCAL)})
        self.assertEqual({h.length for h, _ in smps}, {LRH + BTH + 8 + 256 + ICRC + VCRC})
        directed = [h for h, p in smps if p[LRH + BTH + 8 + 1] == 0x81]
        self.assertEqual({(h.slid, h.dlid) for h in directed}, {(0xffff, 0xffff)})
        by_lid = [(h.slid, h.dlid) for h, p in smps if p[LRH + BTH + 8 + 1] == 0x01]
        self.assertIn((h2, h3), by_lid)
        self.assertIn((h3, h2), by_lid)
        # each request of a hop or more has its answer: the hop pointer says which way it goes
        way = self.fields("infiniband.smpdirected", "mad.transactionid", "mad.method", "smpdirected.hoppointer", "smpdirected.hopcount")
        asked = {t: int(count, 0) for t, method, pointer, count in way if method == "0x01"}
        answered = {t: int(count, 0) for t, method, pointer, count in way if method == "0x81"}
        self.assertEqual(asked, answered)
        self.assertGreaterEqual(len(asked), 4)
        self.assertEqual({int(pointer, 0) for _, method, pointer, _ in way if method == "0x01"}, {1})  # as it leaves h2's port
        out, in_ = (len(self.tshark("-Y", f"infiniband.smpdirected && frame.packet_flags_direction == {way}")) for way in (2, 1))
        self.assertEqual(out + in_, 2 * len(asked))
        self.assertGreaterEqual(in_, 2)  # of the switch

    def test_general_services(self):
        self.begin()
        self.on("h2", "saquery", "-p", "--src-to-dst", f"{self.lids['h2']}:{self.lids['h3']}")
        self.on("h2", "perfquery", str(self.lids["h3"]), "1")
        server = self.start("h2", "rping", "-s", "-a", "127.64.0.2", "-C", "2")
        try:
            self.until(lambda: not subprocess.run(self.words("run", "--host", "h3", "rping", "-c", "-a", "127.64.0.2", "-C", "2"),
                                                  env=self.env, capture_output=True, timeout=60).returncode)
        finally:
            server.kill()
            server.communicate()
        gmps = [(h, p) for h, p in self.end() if h.dqpn == 1]
        self.assertEqual({(h.vl, h.pkey) for h, _ in gmps}, {(0, 0xffff)})
        text = "\n".join(self.tshark())
        for message in ("SubnAdmGet(PathRecord)", "SubnAdmGetResp(PathRecord)", "SubnAdmGetTable(PathRecord)", "PERF (PortCounters)",
                        "CM: ConnectRequest", "CM: ConnectReply",
                        "CM: ReadyToUse", "CM: DisconnectRequest"):
            self.assertIn(message, text)
        self.assertEqual({int(k, 0) for k, in self.fields("infiniband.bth.destqp == 1", "deth.q_key")}, {0x80010000})
        record = self.fields('infiniband.mad.method == 0x81 && infiniband.mad.mgmtclass == 3', "pathrecord.slid", "pathrecord.dlid")
        self.assertIn((self.lids["h3"], self.lids["h2"]), [(int(a, 0), int(b, 0)) for a, b in record])  # rping's

    def test_ethernet_and_the_fabric_in_one_file(self):
        """Each link layer has an interface of the file."""
        self.begin()
        self.pair("ibv_rc_pingpong", "-n", "3", "-s", "64", hosts=("h2", "h3"))
        env = {**self.env, "ANYVERBS_ADDR": "own"}
        words = self.words("run", "ibv_rc_pingpong", "-d", "roce0", "-g", "1", "-n", "3", "-s", "64", "-p", "18999")
        server = subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self.until(lambda: subprocess.run([*words, "127.0.0.1"], env=env, capture_output=True, timeout=60).returncode == 0)
            server.wait(60)
        finally:
            server.kill()
            server.wait()
        self.recorder.send_signal(signal.SIGINT)
        self.recorder.wait(20)
        self.assertEqual(self.tshark("-Y", "_ws.malformed || _ws.expert.severity == error"), [])
        self.assertEqual(len(self.tshark("-Y", "infiniband.lrh && infiniband.bth.opcode == 4")), 6)
        self.assertEqual(len(self.tshark("-Y", "udp.dstport == 4791 && infiniband.bth.opcode == 4")), 6)


if __name__ == "__main__":
    if MISSING:
        print(f"SKIP {', '.join(MISSING)}: not installed")
        sys.exit(77)
    unittest.main()
