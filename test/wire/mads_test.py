#!/usr/bin/python3
"""mads_test.py: every message of the CM that leaves here, as `anyverbs capture` and a veth show it.

usage: mads_test.py BUILD_DIR      Exit status 77: scapy, tshark or perftest is not installed.

`mads` (mads.c) makes each exchange once, with a value of its own in each field. Judges: mad_layout.py, over all 256 bytes; tshark, for the
messages that it knows; scapy and zlib, for the ICRC.
"""
import ipaddress
import os
import re
import signal
import subprocess
import sys
import time
import unittest

import capture_test as capture  # takes BUILD_DIR from the arguments
from capture_test import BTH, UDP, raw, tshark
from mad_layout import ATTRIBUTES, LAYOUT, Mad

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", folder) for folder in ("across", "clients")]
import hosts  # noqa: E402
import ports  # noqa: E402

BUILD = os.path.dirname(os.path.dirname(capture.COMMAND))
MADS = os.path.join(BUILD, "test", "mads")
ACK_DELAY = 15  # of our device
BLOCK_S = 1  # so long the kernel may keep packets from dumpcap
UDP_BYTES = 8 + 12 + 8 + 256 + 4

# ---- what mads.c asks for ----


def asked_path(name, alternate, sgid, dgid):
    flow, hops, traffic, sl, rate, life = (0x54321, 62, 0x28, 2, 7, 13) if alternate else (0x12345, 63, 0x68, 5, 16, 15)
    # on RoCE there are no LIDs: the permissive one
    return {name + "local_lid": 0xffff, name + "remote_lid": 0xffff, name + "local_gid": sgid, name + "remote_gid": dgid,
            name + "flow_label": flow, name + "rate": rate, name + "traffic_class": traffic, name + "hop_limit": hops, name + "sl": sl,
            name + "subnet_local": 0, name + "ack_timeout": ack_timeout(life)}


def ack_timeout(life):
    """The exponent of two times the path's life time and the device's delay, rounded up where they are near each other."""
    larger, smaller = max(life + 1, ACK_DELAY), min(life + 1, ACK_DELAY)
    return larger + (larger - smaller <= 1)


def asked_req(service, qpn, sgid, dgid, uc=False):
    """Without what only RC has, for UC."""
    rc = {"responder_resources": 5, "initiator_depth": 6, "retries": 5, "rnr_retries": 3, "srq": 1}
    if uc:
        rc = {name: 0 for name in rc}
    return {"vendor": 0x616263, "service_id": 0x1122334455660000 | service, "qkey": 0, "qpn": qpn, "remote_timeout": 19,
            "transport": int(uc), "flow_control": 1, "psn": 0x654321, "local_timeout": 18, "pkey": 0xffff, "mtu": 3, "rdc": 0,
            "cm_retries": 9, "extended": 0, "private": b"may I", **rc, **asked_path("", False, sgid, dgid),
            **asked_path("alt_", True, sgid, dgid)}


ABOUT_REQ, ABOUT_REP, ABOUT_OTHER = range(3)
REP = {"qkey": 0, "qpn": 0xabcdef, "vendor_high": 0x41, "vendor_middle": 0x42, "vendor_low": 0x43, "psn": 0x111213,
       "responder_resources": 4, "initiator_depth": 3, "ack_delay": ACK_DELAY, "failover": 2, "flow_control": 1, "rnr_retries": 6, "srq": 1,
       "private": b"come in"}


def conversation(qpn, sgid, dgid):
    """(from the client, kind, fields) of a connection, from its REQ to its DREP."""
    return [(True, "REQ", asked_req(1, qpn, sgid, dgid)),
            (False, "MRA", {"about": ABOUT_REQ, "timeout": 21, "private": b"a moment"}),
            (False, "REP", REP),
            (True, "MRA", {"about": ABOUT_REP, "timeout": 22, "private": b"soon"}),
            (True, "RTU", {"private": b"done"}),
            (True, "LAP", {"remote_qpn": 0xabcdef, "remote_timeout": 19, "private": b"this way", **asked_path("alt_", True, sgid, dgid)}),
            (False, "MRA", {"about": ABOUT_OTHER, "timeout": 17, "private": b"looking"}),
            (False, "APR", {"info_length": 11, "status": 3, "info": b"information", "private": b"rather not"}),
            (True, "DREQ", {"remote_qpn": 0xabcdef, "private": b"leaving"}),
            (False, "DREP", {"private": b"farewell"})]


# What tshark calls our fields, where it knows the message.
TSHARK = {
    "REQ": {"": "local_id", ".serviceid": "service_id", ".localcaguid": "guid", ".localqkey": "qkey", ".localqpn": "qpn",
            ".responderres": "responder_resources", ".initdepth": "initiator_depth", ".remoteresptout": "remote_timeout",
            ".transpsvctype": "transport", ".e2eflowctrl": "flow_control", ".startpsn": "psn", ".localresptout": "local_timeout",
            ".retrcount": "retries", ".pkey": "pkey", ".pppmtu": "mtu", ".rdcexist": "rdc", ".rnrretrcount": "rnr_retries",
            ".maxcmretr": "cm_retries", ".srq": "srq", ".prim_locallid": "local_lid", ".prim_remotelid": "remote_lid",
            ".prim_tfcclass": "traffic_class", ".prim_hoplim": "hop_limit", ".prim_sl": "sl", ".prim_subnetlocal": "subnet_local",
            ".prim_localacktout": "ack_timeout", ".alt_tfcclass": "alt_traffic_class", ".alt_hoplim": "alt_hop_limit", ".alt_sl": "alt_sl",
            ".alt_localacktout": "alt_ack_timeout"},
    "REP": {"": "local_id", ".remotecommid": "remote_id", ".localqkey": "qkey", ".localqpn": "qpn", ".startpsn": "psn",
            ".respres": "responder_resources", ".initdepth": "initiator_depth", ".tgtackdelay": "ack_delay", ".failoveracc": "failover",
            ".e2eflowctrl": "flow_control", ".rnrretrcount": "rnr_retries", ".srq": "srq", ".localcaguid": "guid"},
    "RTU": {".localcommid": "local_id", ".remotecommid": "remote_id"},
    "REJ": {".localcommid": "local_id", ".remotecommid": "remote_id", ".msgrej": "about", ".rejinfolen": "ari_length", ".reason": "reason"},
    "DREQ": {".localcommid": "local_id", ".remotecommid": "remote_id"},
    "DREP": {".localcommid": "local_id", ".remotecommid": "remote_id"},
}
TSHARK_NAMES = {"DREP": "drsp"}


def gid_of(address):
    address = ipaddress.ip_address(address)
    return address.packed if address.version == 6 else bytes(10) + b"\xff\xff" + address.packed


class Judged(capture.Case):
    """The exchanges and their judges; where they go, the cases below say."""
    checksum = True

    def judge_frames(self, path_of_file):
        """The CM messages of a file. Nothing in it is malformed, each frame is a MAD's, as QP1 sends them, with the right ICRC."""
        packets = self.judge(path_of_file, checksum=self.checksum)
        for packet in packets:
            self.assertEqual(packet[UDP].len, UDP_BYTES)
            bth = raw(packet[BTH])
            self.assertEqual(bth[:2], b"\x64\x40")  # UD SEND only; nothing solicited, migrated, no pad
            self.assertEqual(bth[2:4], b"\xff\xff")
            self.assertEqual(int.from_bytes(bth[4:8], "big"), 1)
            self.assertEqual(bth[8], 0)
            self.assertEqual(bth[12:20], bytes.fromhex("8001000000000001"))
            self.assertEqual(bth[20:24], b"\x01\x07\x02\x03")
            self.assertEqual(bth[24:28] + bth[38:40], bytes(6))  # status, class specific; reserved
        mads = [Mad(bytes(raw(p[BTH])[20:-4])) for p in packets]
        self.assertEqual([m.kind for m in mads if m.reserved], [])
        self.judge_by_tshark(path_of_file, mads)
        return mads

    def judge_by_tshark(self, path_of_file, mads):
        for kind, names in TSHARK.items():
            prefix = "infiniband.cm." + TSHARK_NAMES.get(kind, kind.lower())
            wanted = [word for name in names for word in ("-e", prefix + name)]
            attribute = 0x10 + ATTRIBUTES.index(kind)
            lines = tshark(path_of_file, "-Y", f"infiniband.mad.attributeid == {attribute}", "-T", "fields", "-E", "separator=|", *wanted)
            seen = [[int(v, 0) for v in line.split("|")] for line in lines]
            self.assertEqual(seen, [[m.fields[f] for f in names.values()] for m in mads if m.kind == kind], kind)

    def compare(self, mad, kind, fields, **more):
        self.assertEqual(mad.kind, kind)
        expected = {**fields, **more}
        for name, value in expected.items():
            if isinstance(value, bytes):
                expected[name] = value.ljust(len(mad.fields[name]), b"\0")
        got = {name: mad.fields[name] for name in expected}
        self.assertEqual(got, expected, kind)
        left = set(mad.fields) - set(expected) - {"ari"}
        self.assertEqual(left, set(), kind)

    def judge_all(self, path_of_file, said, sgid, dgid):
        """`said`: what the client printed."""
        mads = self.judge_frames(path_of_file)
        ids = {name: int(number, 16) for name, number in re.findall(r"(\S+) ([0-9a-f]{8}) ", said)}
        other = int(re.search(r"connect \S+ ([0-9a-f]{8})", said)[1], 16)
        guids = [next(m.fields["guid"] for m in mads if m.kind == kind) for kind in ("REQ", "REP")]
        self.judge_connection([m for m in mads if m.of(ids["connect"])], (ids["connect"], other), guids, sgid, dgid)
        self.judge_rejections(mads, ids, guids, sgid, dgid)
        self.judge_sidr(mads, ids)
        self.assertEqual({m.kind for m in mads}, set(ATTRIBUTES))

    def judge_connection(self, mads, ids, guids, sgid, dgid):
        """Of what was repeated, the first."""
        seen, once = set(), []
        for mad in mads:
            if mad.bytes not in seen:
                once.append(mad)
            seen.add(mad.bytes)
        expected = conversation(0x123456, sgid, dgid)
        self.assertEqual([m.kind for m in once], [kind for _, kind, _ in expected])
        tids = {}
        for mad, (client, kind, fields) in zip(once, expected):
            more = {"local_id": ids[0 if client else 1]}
            if kind != "REQ":
                more["remote_id"] = ids[1 if client else 0]
            if "guid" in LAYOUT[kind]:
                more["guid"] = guids[0 if client else 1]
            self.compare(mad, kind, fields, **more)
            self.assertEqual(mad.modifier, {"REQ": 0x71727374, "REP": 0x51525354}.get(kind, 0))
            exchange = 1 + (kind == "LAP") + 2 * (kind == "DREQ") if client and kind in ("REQ", "LAP", "DREQ") else exchange
            self.assertEqual(tids.setdefault(exchange, mad.tid), mad.tid, kind)
        self.assertEqual(len(set(tids.values())), 3)
        self.assertEqual({tid >> 54 for tid in tids.values()}, {ids[0] >> 22})  # the client's process
        self.assertNotEqual(ids[0] >> 22, 0)

    def judge_rejections(self, mads, ids, guids, sgid, dgid):
        def both(name):
            found = [m for m in mads if m.of(ids[name])]
            return next(m for m in found if m.kind == "REQ"), next(m for m in found if m.kind == "REJ")

        # the two used one id after the other: told apart by the service
        requests = {m.fields["service_id"] & 0xff: m for m in mads if m.kind == "REQ"}
        self.compare(requests[2], "REQ", asked_req(2, 0x123457, sgid, dgid, uc=True), local_id=ids["refuse"], guid=guids[0])
        rejections = {m.tid: m for m in mads if m.kind == "REJ"}
        refused, nobody = (rejections[requests[service].tid] for service in (2, 0x99))
        self.compare(refused, "REJ", {"about": ABOUT_REQ, "ari_length": 3, "reason": 15, "private": b"not with me"}, local_id=0,
                     remote_id=ids["refuse"])
        self.assertEqual(refused.fields["ari"], b"why".ljust(72, b"\0"))
        self.compare(nobody, "REJ", {"about": ABOUT_REQ, "ari_length": 0, "reason": 8, "private": b""}, local_id=0,
                     remote_id=ids["nobody"])
        request, timeout = both("timeout")
        self.assertEqual(timeout.tid, request.tid)
        self.compare(timeout, "REJ", {"about": ABOUT_OTHER, "ari_length": 8, "reason": 4, "private": b""}, local_id=ids["timeout"],
                     remote_id=0)
        self.assertEqual(timeout.fields["ari"], guids[0].to_bytes(8, "big").ljust(72, b"\0"))
        _, stale = both("stale")
        self.compare(stale, "REJ", {"about": ABOUT_REQ, "ari_length": 0, "reason": 10, "private": b""}, local_id=0, remote_id=ids["stale"])

    def judge_sidr(self, mads, ids):
        info = {"info_length": 4, "info": b"more", "private": b"that one"}
        answers = {"sidr": (4, {"status": 0, "qpn": 0x313233, "qkey": 0x41424344, **info}),
                   "sidr-refuse": (5, {"status": 3, "qpn": 0, "qkey": 0, **info}),
                   "sidr-nobody": (0x99, {"status": 1, "qpn": 0, "qkey": 0, "info_length": 0, "info": b"", "private": b""})}
        for name, (service, answer) in answers.items():
            found = [m for m in mads if m.of(ids[name])]
            request, reply = (next(m for m in found if m.kind == kind) for kind in ("SIDR_REQ", "SIDR_REP"))
            service |= 0x1122334455660000
            self.compare(request, "SIDR_REQ", {"pkey": 0xffff, "service_id": service, "private": b"which one"}, local_id=ids[name])
            self.compare(reply, "SIDR_REP", answer, remote_id=ids[name], service_id=service)
            self.assertEqual(request.tid, reply.tid)


    def end(self, server, client):
        """What the client said. The server must have heard that a REQ was withdrawn before it was answered."""
        said, _ = client.communicate(timeout=60)
        self.assertEqual(client.returncode, 0, said)
        told, _ = server.communicate("", timeout=10)
        self.assertEqual((server.returncode, told), (0, "withdrawn 4\n"))
        return said


class Captured(Judged):
    def converse(self, there, here, dgid):
        """Server and client with the environments, and beside the server another process that listens; what the client said."""
        port = capture.free_port()
        other = self.start("run", "rping", "-s", "-p", str(port), env=there)
        capture.wait_for(lambda: ports.bound_by_cm(port))
        server = self.start("run", MADS, "serve", env=there, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(server.stdout.readline(), "ready\n")
        client = self.start("run", MADS, "ask", "1", dgid, env=here, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said = self.end(server, client)
        other.kill()
        return said

    def test_one_host(self):
        recorder = self.capture()
        address = self.address()
        said = self.converse({}, {}, "::ffff:" + address)
        _, dropped = self.finish(recorder)
        self.assertEqual(dropped, 0)
        self.judge_all(self.file, said, gid_of(address), gid_of(address))
        self.assertEqual(set(tshark(self.file, "-T", "fields", "-e", "frame.comment")), {"shared memory"})

    def test_two_hosts(self):
        ends = [{"ANYVERBS_NODE": self.env["ANYVERBS_NODE"] + end, "ANYVERBS_ADDR": f"127.{os.getpid() >> 8 & 255}."
                 f"{os.getpid() & 255}.{number}"} for end, number in (("a", 4), ("b", 5))]
        for recording in (0, 1):
            recorder = self.capture(env=ends[recording])
            said = self.converse(ends[0], ends[1], "::ffff:" + ends[0]["ANYVERBS_ADDR"])
            _, dropped = self.finish(recorder)
            self.assertEqual(dropped, 0)
            self.judge_all(self.file, said, gid_of(ends[1]["ANYVERBS_ADDR"]), gid_of(ends[0]["ANYVERBS_ADDR"]))
            self.assertEqual(set(tshark(self.file, "-T", "fields", "-e", "frame.comment")), {""})
        for env in ends:
            subprocess.run([capture.COMMAND, "stop", "--force"], env={**self.env, **env}, check=False)


@unittest.skipIf(hosts.can_be_wired(), hosts.can_be_wired())
class Veth(Judged):
    """What the kernel has on a link between two namespaces. It leaves UDP's checksum to the adapter, which a veth is none."""
    checksum = False

    def converse(self, pair, index, dgid):
        server = pair.start(0, [MADS, "serve"])
        self.children.append(server)
        self.assertEqual(server.stdout.readline(), "ready\n")
        client = pair.start(1, [MADS, "ask", str(index), dgid])
        self.children.append(client)
        return self.end(server, client)

    def record(self, pair):
        """dumpcap on the client's link."""
        child = subprocess.Popen([*pair.prefixes[1], "dumpcap", "-q", "-i", "eth0", "-f", "udp port 4791", "-w", self.file],
                                 stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.children.append(child)
        while "File:" not in child.stderr.readline():
            self.assertIsNone(child.poll())
        return child

    def judge_link(self, pair, index, sgid, dgid):
        recorder = self.record(pair)
        said = self.converse(pair, index, dgid if ":" in dgid else "::ffff:" + dgid)
        time.sleep(BLOCK_S)
        recorder.send_signal(signal.SIGINT)
        recorder.wait(timeout=10)
        self.judge_all(self.file, said, gid_of(sgid), gid_of(dgid))

    def test_both_families(self):
        with hosts.Wired(BUILD) as pair:
            pair.lay()
            self.judge_link(pair, 1, pair.addresses[1], pair.addresses[0])
            self.judge_link(pair, 2, "fd08::2", "fd08::1")


class Connections(capture.Case):
    """What programs of librdmacm say: the header of annex A11."""

    def test_header(self):
        recorder = self.capture()
        port = capture.free_port()
        # ucmatose stays until its DREQ is answered. rping does not: where it has ended, there is nobody to send the DREP to.
        words = ["-p", str(port), "-C", "3"]
        server = self.start("run", "ucmatose", *words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        capture.wait_for(lambda: ports.bound_by_cm(port))
        client = self.start("run", "ucmatose", "-s", "127.0.0.1", *words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for child in (client, server):
            said, _ = child.communicate(timeout=30)
            self.assertEqual(child.returncode, 0, said)
        self.finish(recorder)
        self.judge()
        names = ["serviceid", "ip_cm.majv", "ip_cm.minv", "ip_cm.ipv", "ip_cm.sip4", "ip_cm.dip4", "ip_cm.sport"]
        lines = tshark(self.file, "-Y", "infiniband.mad.attributeid == 0x10", "-T", "fields", "-E", "separator=|",
                       *[word for name in names for word in ("-e", "infiniband.cm.req." + name)])
        for line in lines:
            service, major, minor, family, source, destination, sport = line.split("|")
            self.assertEqual(int(service, 0), 0x01060000 | port)
            self.assertEqual([int(v, 0) for v in (major, minor, family)], [0, 0, 4])
            self.assertEqual((source, destination), (self.address(), "127.0.0.1"))
            self.assertIn(int(sport, 0), range(32768, 61000))
        self.assertNotEqual(lines, [])
        kinds = tshark(self.file, "-Y", "infiniband.mad", "-T", "fields", "-e", "infiniband.mad.attributeid")
        self.assertLessEqual({0x10, 0x13, 0x14, 0x15, 0x16}, {int(k, 0) for k in kinds})


if __name__ == "__main__":
    unittest.main()
