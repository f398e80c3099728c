#!/usr/bin/env python3
"""sa_test.py: an upper layer asks the subnet administrator by the calls of ib_sa.h (sa_user.c): subscriptions to traps, services.
Once with the node's own subnet manager, once with OpenSM.

usage: sa_test.py BUILD_DIR
"""
import os
import re
import shutil
import subprocess
import sys
import threading
import unittest

from fabric_bed import Bed

Bed.build = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else os.path.abspath("build")
MISSING = [p for p in ("mckey", "saquery", "opensm") if shutil.which(p) is None]
REPORTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reports.py")
GID_OF_H3 = "fe8000000000000002a0000000000301"
GROUP = "ff1240 01ffff 0000 0000 00000f010203".replace(" ", "")  # of 239.1.2.3, with the RDMA CM's signature


class Program:
    """A running program, sa_user if no other one is named, whose lines are kept."""

    def __init__(self, bed, host, *words, program=()):
        self.bed = bed
        self.lines = []
        program = program or (os.path.join(Bed.build, "test/sa_user"),)
        self.process = subprocess.Popen(bed.words("run", "--host", host, *program, *words), env=bed.env,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.reader = threading.Thread(target=lambda: self.lines.extend(iter(self.process.stdout.readline, "")))
        self.reader.start()
        bed.addCleanup(self.end)

    def wait(self, line, count=1):
        try:
            self.bed.until(lambda: self.lines.count(line + "\n") >= count or self.process.poll() is not None)
        finally:
            self.bed.assertGreaterEqual(self.lines.count(line + "\n"), count, f"no {line!r} in {self.lines}")

    def end(self):
        """By the end of its input; its status."""
        if not self.process.stdin.closed:
            self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
        self.reader.join()
        self.process.stdout.close()
        return self.process.returncode

    def kill(self):
        self.process.kill()
        self.process.wait()


class Client(Bed):
    beds = 0

    def setUp(self):
        super().setUp()
        Client.beds += 1  # the node of the test before may not have ended yet
        self.env["ANYVERBS_NODE"] += f"-{Client.beds}"
        self.fabric("up", "--topology", "fat-tree:2x2", *self.up())
        self.manage()
        self.until(lambda: self.fabric("hosts").count("ACTIVE") == 4)

    def up(self):
        return ()

    def manage(self):
        pass

    def subscribe(self, host, *traps):
        program = Program(self, host, "notices", *map(str, traps))
        for trap in traps:
            program.wait(f"trap {trap}: subscribed")
        return program

    def agent(self, host, *words):
        """A program that takes all Reports of its host by libibumad."""
        program = Program(self, host, *words, program=(sys.executable, REPORTS))
        self.addCleanup(program.kill)
        program.wait("ready")
        return program

    def subscriptions(self):
        """(GID of the subscriber, trap) of what the SA keeps."""
        text = self.on("h4", "saquery", "-I")
        return sorted(re.findall(r"SubscriberGID\.+(\S+).*?trap_num\.+(\d+)", text, re.DOTALL))

    def sa_user(self, host, *words, status=0):
        return self.on(host, os.path.join(Bed.build, "test/sa_user"), *words, status=status).strip()


class Notices(Client):
    def test_gids_come_and_go(self):
        """Two processes of one host and one of another hear of a port whose link goes down and up."""
        programs = [self.subscribe(host, 64, 65) for host in ("h1", "h1", "h2")]
        self.fabric("link", "h3:1", "down")
        for program in programs:
            program.wait(f"trap 65: notice 65 about {GID_OF_H3}")
        self.fabric("link", "h3:1", "up")
        for program in programs:
            program.wait(f"trap 64: notice 64 about {GID_OF_H3}")
            self.assertEqual(program.end(), 0)

    def test_groups_come_and_go(self):
        program = self.subscribe("h1", 66, 67)
        every = self.subscribe("h2", 65535)
        self.on("h3", "mckey", "-m", "239.1.2.3", "-s", "-C", "0", "-b", "127.64.0.3")
        for trap in 66, 67:
            program.wait(f"trap {trap}: notice {trap} about {GROUP}")
            every.wait(f"trap 65535: notice {trap} about {GROUP}")

    def test_a_host_unsubscribes_with_its_last_process(self):
        first, second = (self.subscribe("h1", 65) for _ in range(2))
        self.until(lambda: len(self.subscriptions()) == 1)
        first.kill()
        self.fabric("link", "h3:1", "down")
        second.wait(f"trap 65: notice 65 about {GID_OF_H3}")
        self.assertEqual(len(self.subscriptions()), 1)
        second.kill()
        self.until(lambda: self.subscriptions() == [])
        third = self.subscribe("h1", 64)
        self.assertEqual([trap for _, trap in self.subscriptions()], ["64"])
        self.assertEqual(third.end(), 0)
        self.until(lambda: self.subscriptions() == [])

    def test_a_program_takes_reports_beside_subscribers(self):
        """It answers each, and the node does when it is gone: a Report without an answer is an error in OpenSM's log."""
        before = self.subscribe("h1", 65)
        agent = self.agent("h1")
        after = self.subscribe("h1", 64)
        self.fabric("link", "h3:1", "down")
        agent.wait("trap 65")
        before.wait(f"trap 65: notice 65 about {GID_OF_H3}")
        self.fabric("link", "h3:1", "up")
        agent.wait("trap 64")
        after.wait(f"trap 64: notice 64 about {GID_OF_H3}")
        agent.kill()
        self.fabric("link", "h3:1", "down")
        before.wait(f"trap 65: notice 65 about {GID_OF_H3}", 2)
        self.assertEqual(self.subscriptions(), [("fe80::2a0:0:0:101", trap) for trap in ("64", "65")])

    def test_the_node_dies(self):
        program = self.subscribe("h1", 65)
        self.kill_node()
        self.until(lambda: self.fabric("hosts").count("ACTIVE") == 4)
        self.again(program)
        self.fabric("link", "h3:1", "down")
        program.wait(f"trap 65: notice 65 about {GID_OF_H3}")

    def again(self, program):
        """The node's own subnet manager has died with it."""
        program.wait("trap 65: subscribed", 2)


class Silent(Client):
    def test_a_program_that_takes_reports_does_not_answer(self):
        """Nobody else does, so they come again."""
        program = self.subscribe("h1", 65)
        agent = self.agent("h1", "silent")
        self.fabric("link", "h3:1", "down")
        agent.wait("trap 65", 2)
        program.wait(f"trap 65: notice 65 about {GID_OF_H3}", 2)


class Groups(Client):
    def test_a_group_has_a_multicast_lid(self):
        """As ib_core has it: 0xc000 to 0xfffe."""
        out = self.sa_user("h1", "attach", "0", "4", "0xbfff", "0xc000", "0xfffe", "0xffff")
        self.assertEqual(out.splitlines(), ["0: attach 22 detach 22", "4: attach 22 detach 22", "0xbfff: attach 22 detach 22",
                                            "0xc000: attach 0 detach 0", "0xfffe: attach 0 detach 0", "0xffff: attach 22 detach 22"])


class Services(Client):
    compares_keys = True

    def announced(self):
        """(ID, name, lease) of the services that the SA keeps."""
        text = self.on("h4", "saquery", "-S")
        return sorted(re.findall(r"ServiceID\.+(\S+).*?ServiceLease\.+(\S+).*?ServiceName\.+(\S+)", text, re.DOTALL))

    def test_services_come_and_go(self):
        forever, hour = "0xffffffff", "3600"
        self.assertEqual(self.announced(), [])
        self.assertRegex(self.sa_user("h1", "set", "0x10000001", "storage", forever), "^service 0x10000001 storage lease 4294967295 data 7$")
        self.sa_user("h2", "set", "0x10000002", "database", hour)
        self.assertEqual([(int(id, 0), name) for id, _, name in self.announced()], [(0x10000001, "storage"), (0x10000002, "database")])
        self.assertRegex(self.sa_user("h3", "get", "0x10000002"), r"^service 0x10000002 database lease 3[56]\d\d data 8$")
        self.assertIn("error 22", self.sa_user("h3", "get", "0x10000003", status=1))
        self.sa_user("h1", "delete", "0x10000001")
        self.assertIn("error 22", self.sa_user("h3", "get", "0x10000001", status=1))
        self.assertEqual([name for _, _, name in self.announced()], ["database"])

    def test_a_lease_ends(self):
        self.sa_user("h1", "set", "0x10000001", "storage", "1")
        self.until(lambda: self.announced() == [])

    def test_only_its_owner_deletes_a_service(self):
        """Another port's ServiceGID names another record, or none. OpenSM does not compare the ServiceKey."""
        self.sa_user("h1", "set", "0x10000001", "storage", "3600", "secret")
        self.assertIn("error 22", self.sa_user("h2", "delete", "0x10000001", status=1))
        if self.compares_keys:
            self.assertIn("error 22", self.sa_user("h1", "delete", "0x10000001", "guess", status=1))
        self.assertEqual(len(self.announced()), 1)
        self.sa_user("h1", "delete", "0x10000001", "secret")
        self.assertEqual(self.announced(), [])


class Mastered(Notices, Services):
    """The same under OpenSM."""
    compares_keys = False

    def up(self):
        return ("--no-sm",)

    def manage(self):
        self.sm = self.opensm("h4", "--guid", "0x02a0000000000401")

    def again(self, program):
        """OpenSM lives on, and has the subscription."""
        self.until(lambda: self.node() is not None and self.has_subscription())

    def has_subscription(self):
        """A query that comes to the next node before OpenSM does is lost, and saquery asks once."""
        try:
            return len(self.subscriptions()) == 1
        except AssertionError:
            return False

    def test_another_subnet_manager(self):
        program = self.subscribe("h1", 65)
        self.sm.kill()
        self.opensm("h2")
        program.wait("trap 65: subscribed", 2)
        self.fabric("link", "h3:1", "down")
        program.wait(f"trap 65: notice 65 about {GID_OF_H3}")

    def tearDown(self):
        errors = self.sm.errors()
        super().tearDown()
        self.assertEqual(errors, [])


if __name__ == "__main__":
    if MISSING:
        print(f"SKIP {', '.join(MISSING)}: not installed")
        sys.exit(77)
    unittest.main()
