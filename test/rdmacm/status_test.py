#!/usr/bin/env python3
"""status_test.py: what `anyverbs status` says of connections: who listens where, and the counters of QP1 and of the CM.

usage: status_test.py BUILD_DIR
"""
import json
import os
import re
import select
import subprocess
import time
import unittest

from nodes import BUILD, COMMAND, HOSTS, NodesTest


class StatusTest(NodesTest):
    def listen(self, host, space, count=1, address=None):
        """The listener and its ports."""
        child = self.start(host, "rdmacm_peer", "listen", address or HOSTS[host], "8", space, str(count))
        return child, [int(child.stdout.readline()) for _ in range(count)]

    def say(self, host, *words):
        return subprocess.run([COMMAND, "status", *words], env=self.env[host], capture_output=True, text=True,
                              check=True).stdout

    def listeners(self, host):
        """(space, address, port) of every process of the node."""
        return sorted((one["space"], one["address"], one["port"]) for process in json.loads(self.say(host, "--json"))["processes"]
                      for one in process["listeners"])

    def test_ports_of_each_space(self):
        _, tcp = self.listen("a", "TCP", 2)
        _, udp = self.listen("a", "UDP")
        self.assertEqual(self.listeners("a"), sorted([("TCP", HOSTS["a"], port) for port in tcp] +
                                                     [("UDP", HOSTS["a"], udp[0])]))
        said = re.findall(r"(?m)^ +listens on (.*)$", self.say("a"))
        self.assertEqual(len(said), 2)
        for port in tcp:
            self.assertIn(f"TCP {HOSTS['a']}:{port}", "\n".join(said))

    def test_a_listener_without_descriptors_says_so(self):
        """Whatever its limit: it does not begin, or it warns, or a client connects."""
        keeper, _ = self.listen("a", "TCP")  # so that the node has the usual limit
        self.env["a"]["ANYVERBS_LOG"] = "warn"
        ends = {"fails": [], "warns": [], "serves": []}
        limits = (8, 12, 14, 16, 18, 20, 24, 28, 32, 40)
        for most in limits:
            child = subprocess.Popen(["prlimit", f"--nofile={most}", COMMAND, "run", f"{BUILD}/test/rdmacm_peer", "listen", HOSTS["a"], "8",
                                      "TCP", "1"], env=self.env["a"], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE)
            self.children.append(child)
            port = child.stdout.readline().strip()
            if not port:
                ends["fails"].append(most)
            elif select.select([child.stderr], [], [], 0)[0] and b"too few descriptors" in os.read(child.stderr.fileno(), 65536):
                ends["warns"].append(most)
            else:
                ends["serves"].append(most)
                client = self.start("a", "rdmacm_peer", "connect", HOSTS["a"], port)
                child.stdin.write("accept\n")
                child.stdin.flush()
                self.assertEqual(client.wait(), 0, most)
            child.kill()
            child.wait()
        self.assertTrue(ends["warns"] and ends["serves"], ends)
        self.assertIsNone(keeper.poll())

    def test_a_wildcard_is_shown(self):
        _, ports = self.listen("a", "TCP", address="0.0.0.0")
        self.assertEqual(self.listeners("a"), [("TCP", "0.0.0.0", ports[0])])

    def test_a_port_goes_with_its_listener(self):
        child, _ = self.listen("a", "TCP")
        self.assertEqual(len(self.listeners("a")), 1)
        keeper, ports = self.listen("a", "UDP")
        child.kill()
        child.wait()
        for _ in range(500):
            if len(self.listeners("a")) == 1:
                break
        self.assertEqual(self.listeners("a"), [("UDP", HOSTS["a"], ports[0])])
        self.assertIsNone(keeper.poll())

    def test_each_node_has_ports_of_its_own(self):
        _, here = self.listen("a", "TCP", 3)
        _, there = self.listen("b", "TCP", 1)
        self.assertEqual(self.listeners("a"), sorted(("TCP", HOSTS["a"], port) for port in here))
        self.assertEqual(self.listeners("b"), [("TCP", HOSTS["b"], there[0])])
        for host, address in HOSTS.items():
            shown = json.loads(self.say(host, "--json"))["addresses"]
            self.assertEqual([one["address"] for one in shown], [address])

    def test_many_are_counted_in_text(self):
        self.listen("a", "TCP", 40)
        self.assertRegex(self.say("a"), r"(?m)^ +listens on (TCP [\d.]+:\d+, ){15}TCP [\d.]+:\d+ and 24 more")
        self.assertEqual(len(self.listeners("a")), 40)

    def connections(self, host):
        """Of every process of the node."""
        return [one for process in json.loads(self.say(host, "--json"))["processes"] for one in process["connections"]]

    def await_connections(self, host, states):
        for _ in range(500):
            found = self.connections(host)
            if sorted(one["state"] for one in found) == sorted(states):
                return found
            time.sleep(0.02)
        self.fail(f"{found} are not {states}")

    def test_both_ends_of_a_connection(self):
        listener, ports = self.listen("a", "TCP")
        self.assertEqual(self.connections("a"), [])
        child = self.start("b", "rdmacm_peer", "hold", HOSTS["a"], str(ports[0]))
        listener.stdin.write("accept\n")
        listener.stdin.flush()
        self.assertEqual(listener.stdout.readline(), "accepted\n")
        self.assertEqual(child.stdout.readline(), "established\n")
        here, there = self.await_connections("a", ["ESTABLISHED"])[0], self.await_connections("b", ["ESTABLISHED"])[0]
        for end, passive in ((here, True), (there, False)):
            self.assertEqual((end["space"], end["port"], end["passive"], end["device"]), ("TCP", ports[0], passive, "roce0"))
        self.assertEqual((here["local_address"], here["remote_address"]), (HOSTS["a"], HOSTS["b"]))
        self.assertEqual((there["local_address"], there["remote_address"]), (HOSTS["b"], HOSTS["a"]))
        self.assertEqual((here["local_id"], here["remote_id"]), (there["remote_id"], there["local_id"]))
        self.assertEqual((here["local_qpn"], here["remote_qpn"]), (there["remote_qpn"], there["local_qpn"]))
        self.assertEqual(here["local_qpn"], 0x200001)  # the number that the program named
        self.assertRegex(self.say("a"), rf"(?m)^ +connection TCP {HOSTS['a']}:{ports[0]} <- {HOSTS['b']}  ESTABLISHED  roce0  "
                                        rf"QP 0x200001 - 0x\w+  id {here['local_id']} - {here['remote_id']}$")
        self.assertRegex(self.say("b"), rf"(?m)^ +connection TCP {HOSTS['b']} -> {HOSTS['a']}:{ports[0]}  ESTABLISHED  roce0  ")
        child.communicate(timeout=30)  # it leaves
        self.assertEqual(child.returncode, 0)
        self.assertEqual(self.connections("b"), [])
        self.await_connections("a", ["DREQ_RCVD"])  # the program has not answered yet

    def test_a_request_that_nobody_has_answered(self):
        _, ports = self.listen("a", "TCP")
        self.start("b", "rdmacm_peer", "hold", HOSTS["a"], str(ports[0]))
        self.assertTrue(self.await_connections("a", ["MRA_REQ_SENT"])[0]["passive"])
        sent = self.await_connections("b", ["MRA_REQ_RCVD"])[0]
        self.assertEqual((sent["passive"], sent["remote_qpn"]), (False, 0))

    def test_connections_of_several_replies(self):
        _, ports = self.listen("a", "TCP", 3)  # of which each has a backlog of 8
        for i in range(18):  # a reply has 16
            self.start("b", "rdmacm_peer", "hold", HOSTS["a"], str(ports[i % 3]))
        found = self.await_connections("a", 18 * ["MRA_REQ_SENT"])
        self.assertEqual(len({one["local_id"] for one in found}), 18)

    def test_counters_of_a_connection(self):
        listener, ports = self.listen("a", "TCP")
        listener.stdin.write("accept\n")
        listener.stdin.flush()
        client = self.start("a", "rdmacm_peer", "connect", HOSTS["a"], str(ports[0]))
        client.communicate(timeout=30)
        self.assertEqual(client.returncode, 0)
        self.assertEqual(listener.stdout.readline(), "accepted\n")
        counters = json.loads(self.say("a", "--json"))["processes"][0]["counters"]
        self.assertGreaterEqual(counters["mad_received"], 2)  # REQ, RTU
        self.assertGreaterEqual(counters["cm_received"], 2)
        self.assertGreaterEqual(counters["cm_sent"], 1)  # REP
        self.assertGreaterEqual(counters["mad_sent"], 1)
        self.assertEqual(counters["cm_malformed"], 0)
        self.assertRegex(self.say("a"), r"mad_received \d+.* cm_sent \d+")


if __name__ == "__main__":
    unittest.main()
