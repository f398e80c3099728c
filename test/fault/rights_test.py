#!/usr/bin/env python3
"""rights_test: missing rights and resources: a fallback where there can be one, else a clear message and an errno.

usage: rights_test.py [unittest's arguments]
"""
import errno
import os
import subprocess
import time
import unittest

import fault

ONE_SIDED = ("write", "read", "atomic")
EVERY = ("send", "big", "ud", "uc", "event") + ONE_SIDED
# Yama's ptrace_scope 1, and what a process says of a peer that it may not attach to.
YAMA = (fault.program(os.path.join(os.pardir, "filter")), "yama")
MAPS_ONLY = "shared memory alone is reached directly"
CLEAR = ("Too many open files", "Cannot allocate memory", "Resource temporarily unavailable")


def told_early(why):
    """What `connect` may say where the peer refuses the pair while the queue pair connects: the refusal comes before
    RTR, or between RTR and RTS."""
    return f"error to RTR: {why}", "error to RTS: Invalid argument"


class Case(unittest.TestCase):
    def setUp(self):
        self.world = fault.World()
        self.addCleanup(self.world.close)

    def check_traffic(self, sender, receiver, kinds, more=30):
        for kind in kinds:
            with self.subTest(kind=kind):
                fault.connect(sender, receiver, kind)
                fault.go(sender, receiver)
                self.assertTrue(fault.wait_progress(sender, more), f"{kind}: no progress")
                for end in (sender, receiver):
                    self.assertEqual(end.expect("stop", "stopped"), ["0"])

    def pair(self, world, before=(), **env):
        ends = [world.end(*before, **env), world.end(*before, **env)]
        for end in ends:
            self.assertEqual(end.line(), "open")
        return ends

    def end_well(self, *ends, says=""):
        for end in ends:
            status, said = end.quit()
            self.assertEqual(status, 0, said)
            self.assertIn(says, said)


class NoDirectAccess(Case):
    """The target's engine copies, also for a target that never polls."""

    def check(self, world, before=(), says="cannot be reached directly", **env):
        sender, receiver = self.pair(world, before, END_NEVER_POLLS="1", ANYVERBS_LOG="info", **env)
        self.check_traffic(sender, receiver, EVERY)
        self.end_well(sender, says=says if "ANYVERBS_DIRECT" not in env else "")
        self.end_well(receiver)

    def test_seccomp_eperm(self):
        self.check(self.world, (fault.program("confine"), str(errno.EPERM)))

    def test_seccomp_enosys(self):
        self.check(self.world, (fault.program("confine"), str(errno.ENOSYS)))

    def test_yama(self):
        """What lies in no memory file; and what does, without a look at the peer's memory."""
        self.check(self.world, YAMA, says=MAPS_ONLY)

    def test_switched_off(self):
        self.check(self.world, ANYVERBS_DIRECT="0")

    def test_undumpable_target(self):
        if not fault.can_be_nobody():
            self.skipTest("needs root, to become another user without capabilities")
        with fault.World(fault.NOBODY) as world:
            self.check(world, END_UNDUMPABLE="1")

    def test_one_side_only(self):
        """One end may reach the other, not the other way round."""
        free = self.world.end(END_NEVER_POLLS="1")
        bound = self.world.end(fault.program("confine"), str(errno.EPERM), END_NEVER_POLLS="1")
        free.line()
        bound.line()
        self.check_traffic(free, bound, EVERY)
        self.check_traffic(bound, free, EVERY)
        self.end_well(free, bound)


class Maps(Case):
    """A connection brings the peer's memory along, where that may be; else everything goes another way."""

    def check(self, files, before=()):
        if os.environ.get("ANYVERBS_ADOPT") == "0":
            files = 0
        ends = self.pair(self.world, before)
        fault.connect(*ends, "write")
        for end in ends:
            deadline = time.monotonic() + fault.PATIENCE_S
            while fault.memory_files(end) < files and time.monotonic() < deadline:
                time.sleep(0.01)
            self.assertEqual(fault.memory_files(end), files)
        self.check_traffic(*ends, EVERY)
        self.assertEqual([fault.memory_files(end) for end in ends], [files, files])
        self.end_well(*ends)

    def test_before_the_first_operation(self):
        self.check(2)

    def test_descriptor_that_is_not_let_through(self):
        self.check(2, (fault.program("confine"), "--getfd", str(errno.EPERM)))

    def test_descriptor_call_that_is_not_there(self):
        self.check(2, (fault.program("confine"), "--getfd", str(errno.ENOSYS)))

    def test_yama(self):
        self.check(2, YAMA)

    def as_nobody(self):
        """A user without capabilities, which are above Yama and above what is not dumpable."""
        if not fault.can_be_nobody():
            self.skipTest("needs root, to become another user without capabilities")
        self.world.close()
        self.world = fault.World(fault.NOBODY)
        self.addCleanup(self.world.close)

    def test_ordinary_user(self):
        self.as_nobody()
        self.check(2)

    def check_not_dumpable(self, before=()):
        self.as_nobody()
        ends = self.pair(self.world, before, END_UNDUMPABLE="1")
        self.check_traffic(*ends, ONE_SIDED)
        for end in ends:
            self.assertLess(fault.memory_files(end), 2)
        self.end_well(*ends)

    def test_not_if_not_dumpable(self):
        self.check_not_dumpable()

    def test_not_with_yama_if_not_dumpable(self):
        self.check_not_dumpable(YAMA)

    def test_not_with_a_limit_of_address_space(self):
        self.check(0, ("prlimit", f"--as={1 << 40}"))

    def test_not_without_the_right_to_ptrace(self):
        ends = self.pair(self.world, (fault.program("confine"), str(errno.EPERM)))
        self.check_traffic(*ends, ONE_SIDED)
        for end in ends:
            self.assertLess(fault.memory_files(end), 2)
        self.end_well(*ends)


class FewResources(Case):
    def check_clear(self, done, what):
        """It worked, or ended with an errno that says why; returns whether it worked. Many programs do not tell the
        errno of a device that is not there, or does not open: so there is a message, too, and unasked."""
        self.assertIn(done.returncode, (0, 3), f"{what}: {done.stdout} {done.stderr}")
        if done.returncode == 0:
            return True
        self.assertTrue(any(text in done.stdout for text in CLEAR), f"{what}: {done.stdout}")
        if done.stdout.startswith(("error devices", "error open")):
            self.assertTrue(any(text in done.stderr for text in CLEAR), f"{what}: the message is {done.stderr!r}")
        return False

    def alone(self, *before, **env):
        return self.world.run(*before, fault.program("end"), **env)

    def test_memlock_64_kib(self):
        ends = self.pair(self.world, ("prlimit", "--memlock=65536"))
        self.check_traffic(*ends, EVERY)
        self.end_well(*ends)

    def test_descriptors(self):
        """Whatever descriptor is the first that cannot be had: no crash, no hang, a clear error."""
        keep = self.world.end()
        keep.line()
        worked = [n for n in range(4, 40) if self.check_clear(self.alone("prlimit", f"--nofile={n}"), f"nofile {n}")]
        self.assertTrue(worked and worked == list(range(worked[0], 40)), f"it worked with {worked}")
        self.assertEqual([p["pid"] for p in self.world.wait_processes(keep.pid)["processes"]], [keep.pid])

    def test_descriptors_for_a_peer(self):
        """A process too poor for its peer's descriptors is told so when it connects, at the latest, and never later."""
        worked = []
        for n in range(10, 41):
            with self.subTest(nofile=n):
                poor, rich = self.world.end("prlimit", f"--nofile={n}"), self.world.end()
                self.assertEqual(rich.line(), "open")
                said = poor.line()
                if said == "open":
                    said = poor.ask("qp send sender")
                if said.startswith("qp "):
                    theirs = " ".join(rich.expect("qp send receiver", "qp"))
                    mine = said.removeprefix("qp ")
                    said = poor.ask(f"connect {theirs}")
                if said == "connected":
                    rich.expect(f"connect {mine}", "connected")
                    fault.go(poor, rich)
                    self.assertTrue(fault.wait_progress(poor, 30), "no progress")
                    poor.expect("stop", "stopped")
                    rich.expect("stop", "stopped")
                    worked.append(n)
                else:
                    self.assertRegex(said, "^error .*Too many open files$")
        self.assertTrue(worked and worked == list(range(worked[0], 41)), f"it worked with {worked}")

    def test_descriptors_of_a_node_that_must_start(self):
        for n in (4, 6, 8, 10, 12):
            self.check_clear(self.alone("prlimit", f"--nofile={n}:1000", ANYVERBS_LOG="error"), f"nofile {n}")
        self.assertEqual(self.alone().returncode, 0)

    def test_peer_that_cannot_be_taken(self):
        """A process without a free descriptor cannot get a peer: the peer's sends fail in time, and later ones work."""
        poor = self.world.end()
        poor.line()
        poor.expect("qp send receiver", "qp")
        taken = set(os.listdir(f"/proc/{poor.pid}/fd"))
        lowest = next(n for n in range(20000) if str(n) not in taken)
        subprocess.run(["prlimit", f"--pid={poor.pid}", f"--nofile={lowest}:20000"], check=True)
        rich = self.world.end()
        rich.line()
        rich.expect("qp send sender", "qp")
        mine = " ".join(poor.expect("qp send receiver", "qp"))
        said = rich.ask(f"connect {mine}")
        if said == "connected":
            rich.expect("go", "going")
            self.assertIn(rich.wait_error(), (f"ended {fault.RETRY_EXCEEDED}", f"ended {fault.FLUSHED}"))
            rich.expect("stop", "stopped")
        else:
            self.assertIn(said, told_early("Too many open files"))
            rich = self.world.end()
            rich.line()
        poor.expect("stop", "stopped")
        subprocess.run(["prlimit", f"--pid={poor.pid}", "--nofile=1000:20000"], check=True)
        self.check_traffic(rich, poor, ("send", "write"))
        self.end_well(rich, poor)

    def check_unmappable(self, poor_connects_first):
        """A process that cannot map its peer: it is as if it were not there, for a while."""
        poor, rich = self.world.end(), self.world.end()
        poor.line()
        rich.line()
        theirs = {e: " ".join(e.expect(f"qp send {role}", "qp")) for e, role in ((poor, "receiver"), (rich, "sender"))}
        with open(f"/proc/{poor.pid}/statm", encoding="ascii") as f:
            size = int(f.read().split()[0]) * os.sysconf("SC_PAGE_SIZE") + (1 << 20)
        subprocess.run(["prlimit", f"--pid={poor.pid}", f"--as={size}:unlimited"], check=True)
        order = ((poor, rich), (rich, poor)) if poor_connects_first else ((rich, poor), (poor, rich))
        for end, other in order:
            said = end.ask(f"connect {theirs[other]}")
            if said != "connected":
                self.assertIs(end, rich)
                self.assertIn(said, told_early("Cannot allocate memory"))
                break
        else:
            rich.expect("go", "going")
            self.assertIn(rich.wait_error(), (f"ended {fault.RETRY_EXCEEDED}", f"ended {fault.FLUSHED}"))
            rich.expect("stop", "stopped")
            self.end_well(rich)
        subprocess.run(["prlimit", f"--pid={poor.pid}", "--as=unlimited:unlimited"], check=True)
        rich = self.world.end()
        rich.line()
        self.check_traffic(rich, poor, ("send", "write"))
        self.end_well(rich, poor)

    def test_peer_that_cannot_be_mapped_by_who_connects(self):
        self.check_unmappable(True)

    def test_peer_that_cannot_be_mapped_by_who_is_connected_to(self):
        self.check_unmappable(False)

    def test_address_space(self):
        keep = self.world.end()
        keep.line()
        worked = [mib for mib in range(20, 600, 20)
                  if self.check_clear(self.alone("prlimit", f"--as={mib << 20}"), f"{mib} MiB of address space")]
        self.assertTrue(worked, "it never worked")
        self.assertEqual([p["pid"] for p in self.world.wait_processes(keep.pid)["processes"]], [keep.pid])

    def test_size_of_files(self):
        """RLIMIT_FSIZE holds for memory files, too: a program is told so without asking for messages."""
        keep = self.world.end()
        keep.line()
        done = self.world.run("prlimit", "--fsize=1000000", fault.program("end"))
        self.assertEqual(done.returncode, 3, done.stdout)
        self.assertIn("File too large", done.stdout)
        self.assertIn("RLIMIT_FSIZE", done.stderr)

    def test_maps(self):
        for spare in (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30):
            self.check_clear(self.alone(END_SPARE_MAPS=str(spare)), f"{spare} maps left")
        self.assertEqual(self.alone(END_SPARE_MAPS="200").returncode, 0)

    def test_no_more_processes(self):
        if not fault.can_be_nobody():
            self.skipTest("needs root, to become a user with a limit")
        with fault.World(fault.NOBODY) as world:
            limited = ("prlimit", "--nproc=0", fault.program("end"))
            # no node yet: it cannot be forked
            done = world.run(*limited, ANYVERBS_LOG="error")
            self.assertEqual((done.returncode, done.stdout), (3, "error devices: Function not implemented\n"))
            self.assertIn("cannot start", done.stderr)
            self.assertIn("Resource temporarily unavailable", done.stderr)
            self.assertFalse(world.status()["running"])
            keep = world.end()
            keep.line()
            # with a node: the engine's thread cannot be made
            self.assertFalse(self.check_clear(world.run(*limited, ANYVERBS_LOG="error"), "no thread"))
            self.assertEqual([p["pid"] for p in world.wait_processes(keep.pid)["processes"]], [keep.pid])


class NoPlace(Case):
    def check(self, world, **env):
        ends = self.pair(world, **env)
        self.check_traffic(*ends, ("send", "write"))
        self.assertTrue(world.kill_node())
        more = self.pair(world, **env)
        self.check_traffic(*more, ("send", "write"))
        self.check_traffic(*ends, ("send", "write"))
        self.end_well(*ends, *more)

    def test_folders_that_do_not_exist(self):
        self.check(self.world, HOME="/nonexistent", TMPDIR="/nonexistent", XDG_RUNTIME_DIR="/nonexistent")

    def test_no_variables(self):
        self.check(self.world, HOME=None, TMPDIR=None, XDG_RUNTIME_DIR=None)

    def test_ordinary_user_without_a_home(self):
        if not fault.can_be_nobody():
            self.skipTest("needs root, to become nobody")
        with fault.World(fault.NOBODY) as world:
            self.check(world, HOME="/nonexistent", TMPDIR="/proc", XDG_RUNTIME_DIR="/root")

    def test_full_folder(self):
        """A place where nothing can be written, because nothing at all fits."""
        os.chmod(self.world.folder, 0o500)
        self.check(self.world, HOME="/proc", TMPDIR="/proc", XDG_RUNTIME_DIR="/dev/null")


if __name__ == "__main__":
    unittest.main()
