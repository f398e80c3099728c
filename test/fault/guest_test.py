#!/usr/bin/env python3
"""guest_test: how we behave in somebody's process: one test per rule. usage: guest_test.py [unittest's arguments]"""
import os
import re
import subprocess
import time
import unittest

import fault

DOORS = os.path.join(fault.BUILD, "lib", "anyverbs")
DOOR = os.path.join(DOORS, "libibverbs.so.1")
TLS_LIMIT = 128  # bytes of thread-local storage that a library of ours may have, all of it static: glibc keeps 512 for all that are loaded late
EXITS = 25


class Case(unittest.TestCase):
    def setUp(self):
        self.world = fault.World()
        self.addCleanup(self.world.close)

    def run_case(self, program, *words, **env):
        done = self.world.run(fault.program(program), *words, **env)
        self.assertEqual((done.returncode, done.stderr), (0, ""), f"{program} {' '.join(words)}")
        return done.stdout


class Guest(Case):
    # Our threads block all signals but those of copies that fault.
    def test_threads_block_all_signals(self):
        self.run_case("guest", "signals_blocked")

    def test_signalfd_gets_its_signals(self):
        self.run_case("guest", "signalfd")

    def test_sigwait_gets_its_signals(self):
        self.run_case("guest", "sigwait")

    def test_no_sigchld_from_us(self):
        self.run_case("guest", "no_sigchld")

    # Nor is any other signal's handler ours.
    def test_no_signal_handler_is_taken(self):
        self.run_case("guest", "no_handler")

    # Every descriptor is CLOEXEC.
    def test_no_descriptor_comes_through_exec(self):
        self.run_case("guest", "cloexec")

    # The libraries are linked nodelete.
    def test_dlopen_and_dlclose_again_and_again(self):
        self.run_case("loads", "again", DOOR)

    def test_dlopen_from_many_threads(self):
        self.run_case("loads", "from_many", DOOR)

    def test_libraries_are_nodelete(self):
        for library in self.libraries():
            self.assertIn("NODELETE", subprocess.check_output(["readelf", "-d", library], text=True), library)

    def libraries(self):
        return [os.path.join(DOORS, name) for name in os.listdir(DOORS) if re.search(r"\.so\.\d+$", name)]

    # No large static TLS.
    def test_no_large_static_tls(self):
        self.assertTrue(self.libraries())
        for library in self.libraries():
            headers = subprocess.check_output(["readelf", "-lW", library], text=True)
            tls = re.findall(r"^\s+TLS\s+\S+\s+\S+\s+\S+\s+\S+\s+(0x[0-9a-f]+)", headers, re.M)
            self.assertLessEqual(sum(int(size, 16) for size in tls), TLS_LIMIT, library)

    # No atexit order is assumed.
    def test_exit_while_other_threads_are_inside(self):
        for _ in range(EXITS):
            self.run_case("guest", "exit_while_busy")

    def test_verbs_from_atexit_handlers_and_destructors(self):
        for _ in range(EXITS // 5):
            self.run_case("guest", "exit_handler")

    def test_first_verb_in_an_atexit_handler(self):
        self.run_case("guest", "exit_first_use")

    # No printing unless asked.
    def test_silent_when_it_fails(self):
        self.assertEqual(self.run_case("guest", "no_node", ANYVERBS_DAEMON="/nonexistent"), "ENOSYS\n")

    def test_says_why_when_asked(self):
        done = self.world.run(fault.program("guest"), "no_node", ANYVERBS_DAEMON="/nonexistent", ANYVERBS_LOG="error")
        self.assertEqual(done.returncode, 0)
        self.assertIn("/nonexistent", done.stderr)

    # $(anyverbs run ...) ends, and leaves the node behind.
    def test_command_substitution_ends(self):
        # a node that held the pipe would do so until it leaves, and run() does not wait for that
        done = self.world.run("bash", "-c", f'said=$("{fault.TOOL}" run "$0" no_handler 2>&1); echo "$?:$said"',
                              fault.program("guest"), ANYVERBS_IDLE_S="600")
        self.assertEqual(done.stdout, "0:\n")
        self.assertTrue(self.world.status()["running"])

    # Not a rule of guests, but found here: a refusal that overtakes the answer to a READ.
    def test_read_before_a_send_that_finds_no_receive(self):
        self.run_case("guest", "read_then_rnr", ANYVERBS_DIRECT="0")

    # Threads of the host may be cancelled where they wait.
    def test_cancelled_while_waiting_for_an_event(self):
        self.run_case("guest", "cancelled_waiter", ANYVERBS_DIRECT="0")

    # Anywhere else a thread that is to be cancelled comes back first.
    @unittest.skipIf(os.environ.get("AV_SANITIZE"), "a sanitizer's library calls the C library's cancellation points")
    def test_cancelled_in_every_verb(self):
        for direct in ("0", "1"):
            with self.subTest(direct=direct):
                self.run_case("guest", "cancelled_verbs", ANYVERBS_DIRECT=direct)

    # Who links us and calls no verb pays nothing.
    def test_no_verb_no_thread_no_descriptor_no_node(self):
        self.run_case("guest", "no_verb")
        self.assertFalse(self.world.status()["running"])


class Fork(Case):
    def test_child_uses_its_parents_context(self):
        self.run_case("forks", "child_uses_context")

    def test_child_gives_back_what_it_inherited(self):
        self.run_case("forks", "child_destroys")

    def test_fork_under_traffic(self):
        self.run_case("forks", "under_traffic")

    def test_fork_and_exec_under_traffic(self):
        self.run_case("forks", "exec_under_traffic")

    def test_children_of_children(self):
        self.run_case("forks", "generations")

    def test_fork_init(self):
        self.run_case("forks", "fork_init")

    def test_raw_clone_holds_descriptors_while_peers_die(self):
        """A child that no atfork handler knows of keeps copies of all descriptors, dead peers' among them."""
        survivor = self.world.end()
        survivor.line()
        for _ in range(5):
            peer = self.world.end()
            peer.line()
            fault.connect(peer, survivor, "send")
            fault.go(peer, survivor)
            self.assertTrue(fault.wait_progress(peer, 5))
            survivor.expect("child", "child")
            peer.kill()
            self.assertIn(survivor.wait_error(), ("ended 5", "ended 12"))
            survivor.expect("stop", "stopped")
        before = self.cpu_ticks(survivor.pid)
        time.sleep(0.5)
        self.assertLess(self.cpu_ticks(survivor.pid) - before, 10, "the engine's thread does not sleep")
        self.assertEqual(survivor.quit(), (0, ""))

    def cpu_ticks(self, pid):
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            words = f.read().rsplit(")", 1)[1].split()
        return int(words[11]) + int(words[12])

    def test_nothing_is_left_in_the_node(self):
        self.run_case("forks", "under_traffic")
        status = self.world.wait_processes()
        self.assertEqual((status["processes"], status["slots_taken"], status["pairs"]), ([], 0, 0))


if __name__ == "__main__":
    unittest.main()
