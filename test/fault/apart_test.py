#!/usr/bin/env python3
"""apart_test: two users, and two nodes of one user, on one machine neither see nor disturb each other.

usage: apart_test.py [unittest's arguments]
"""
import re
import subprocess
import unittest

import fault

KINDS = ("send", "write", "read", "event", "ud")


class Apart(unittest.TestCase):
    __test__ = False

    def worlds(self):
        raise NotImplementedError

    def setUp(self):
        self.a, self.b = self.worlds()
        self.addCleanup(self.a.close)
        self.addCleanup(self.b.close)

    def pair(self, world, kind):
        ends = [world.end(), world.end()]
        for end in ends:
            self.assertEqual(end.line(), "open")
        fault.connect(*ends, kind)
        fault.go(*ends)
        return ends

    def end_well(self, ends):
        for end in ends:
            self.assertEqual(end.expect("stop", "stopped"), ["0"])
        for end in ends:
            self.assertEqual(end.quit(), (0, ""))

    def pids(self, world):
        return {p["pid"] for p in world.status()["processes"]}

    def gids(self, world):
        return {g["gid"] for g in world.status()["devices"][0]["ports"][0]["gids"]}

    def test_traffic_side_by_side(self):
        for kind in KINDS:
            with self.subTest(kind=kind):
                a, b = self.pair(self.a, kind), self.pair(self.b, kind)
                for sender in (a[0], b[0]):
                    self.assertTrue(fault.wait_progress(sender, 50))
                self.assertEqual(self.pids(self.a), {end.pid for end in a})
                self.assertEqual(self.pids(self.b), {end.pid for end in b})
                self.assertFalse(self.gids(self.a) & self.gids(self.b))
                self.end_well(a)
                self.end_well(b)

    def test_deaths_of_the_others(self):
        """Processes and the node of one world die: the other's traffic and slots know nothing of it."""
        b = self.pair(self.b, "send")
        slots = self.b.status()["slots_taken"]
        for number in range(10):
            a = self.pair(self.a, KINDS[number % len(KINDS)])
            a[number % 2].kill()
            if number % 3 == 0:
                self.a.kill_node()
            a[1 - number % 2].kill()
            self.assertTrue(fault.wait_progress(b[0], 50), f"round {number}")
            self.assertEqual(self.b.status()["slots_taken"], slots)
        self.end_well(b)

    def test_numbers_of_the_others_lead_nowhere(self):
        """Queue pairs of both worlds bear the same numbers; an address of one, used in the other, reaches nobody."""
        a, b = self.pair(self.a, "send"), self.pair(self.b, "send")
        stranger = self.a.end()
        stranger.line()
        stranger.expect("qp send sender", "qp")
        other = self.b.end()
        other.line()
        target = " ".join(other.expect("qp send receiver", "qp"))
        stranger.expect(f"connect {target}", "connected")
        stranger.expect("go", "going")
        self.assertEqual(stranger.wait_error(), f"ended {fault.RETRY_EXCEEDED}")
        self.assertTrue(fault.wait_progress(a[0], 50) and fault.wait_progress(b[0], 50))
        self.assertEqual(other.ask("wait 0"), "running 0")
        stranger.expect("stop", "stopped")
        self.end_well(a)
        self.end_well(b)

    def test_folders_are_private(self):
        for world in (self.a, self.b):
            end = world.end()
            end.line()
            folder = world.status()["folder"]
            mode = subprocess.check_output(["stat", "-c", "%a", folder], text=True)
            self.assertEqual(mode, "700\n")


class TwoNodes(Apart):
    __test__ = True

    def worlds(self):
        return fault.World(), fault.World()


class TwoUsers(Apart):
    """Their nodes bear the same name."""
    __test__ = True

    def worlds(self):
        if not fault.can_be_nobody():
            self.skipTest("needs root, to be a second user")
        a, b = fault.World(), fault.World(fault.NOBODY)
        b.environment["ANYVERBS_NODE"] = a.environment["ANYVERBS_NODE"]
        return a, b

    def test_another_user_at_our_address(self):
        """Somebody else's process listens where our node would: the node is in its folder, also when he has gone."""
        self.a.end().line()
        with open("/proc/net/unix", encoding="ascii") as f:
            names = re.findall(r"@(\S*" + re.escape(self.a.environment["ANYVERBS_NODE"]) + r")\s", f.read())
        self.assertTrue(names, "the node's address is not in /proc/net/unix")
        self.a.close()
        squatter = subprocess.Popen(fault.NOBODY + [
            "python3", "-c", "import socket, time\n"
            "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
            f"s.bind({chr(0) + names[0]!r}); s.listen(); print('up', flush=True); time.sleep(60)"],
            stdout=subprocess.PIPE, text=True)
        self.addCleanup(squatter.stdout.close)
        self.addCleanup(squatter.wait)
        self.addCleanup(squatter.kill)
        self.assertEqual(squatter.stdout.readline(), "up\n")
        self.assertNotIn("error", self.a.end().line())
        squatter.kill()
        squatter.wait()
        pid = self.a.node_pid()
        self.assertNotIn("error", self.a.end().line())
        self.assertEqual(self.a.node_pid(), pid)


def load_tests(loader, _tests, _pattern):
    suite = unittest.TestSuite()
    for case in (TwoNodes, TwoUsers):
        suite.addTests(loader.loadTestsFromTestCase(case))
    return suite


if __name__ == "__main__":
    unittest.main()
