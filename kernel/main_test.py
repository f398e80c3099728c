#!/usr/bin/env python3
"""main_test.py ECHO: the main of libanyverbs-kernel around a module (echo_module.c)."""
import signal
import subprocess
import sys
import unittest

ECHO = sys.argv.pop()


def run(text, *arguments):
    return subprocess.run([ECHO, *arguments], input=text, capture_output=True, text=True)


class Main(unittest.TestCase):
    def test_lines_write_and_read(self):
        done = run("echo hello you\necho\n\necho again\necho\n", "prefix=> ")
        self.assertEqual(done.stdout, "> hello you\n> again\n")
        self.assertEqual(done.stderr, "ended\n")
        self.assertEqual(done.returncode, 0)

    def test_errors_are_said_and_the_next_line_is_done(self):
        done = run(f"nothing x\necho {'y' * 100}\nnothing\necho z\necho\n")
        self.assertEqual(done.stdout, "z\n")
        self.assertEqual([line.split(":")[0] for line in done.stderr.splitlines()],
                         ["nothing", "echo", "nothing", "ended"])
        self.assertEqual(done.returncode, 1)

    def test_a_line_that_is_too_long(self):
        done = run("echo " + "y" * 10000 + "\n")
        self.assertIn("a line: ", done.stderr)
        self.assertEqual(done.returncode, 1)

    def test_parameters(self):
        self.assertIn("other: ", run("", "other=1").stderr)
        self.assertIn("refuse: ", run("", "refuse=x").stderr)
        self.assertIn("refuse: ", run("", "refuse").stderr)
        done = run("echo x\n", "refuse=1")
        self.assertEqual(done.stderr, "module_init: No such device\n")
        self.assertEqual(done.returncode, 1)

    def test_a_signal_ends_a_write_that_waits(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            program = subprocess.Popen([ECHO], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            program.stdin.write("echo wait\n")
            program.stdin.flush()
            self.assertEqual(program.stderr.readline(), "waits\n")
            program.send_signal(number)
            self.assertRegex(program.stderr.read(), "^echo: .*\nended\n$")
            self.assertEqual(program.wait(), 1)
            program.stdin.close()
            program.stderr.close()

    def test_a_signal_ends_the_reading_of_lines(self):
        program = subprocess.Popen([ECHO], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        program.stdin.write("echo 1\necho\n")
        program.stdin.flush()
        self.assertEqual(program.stdout.readline(), "1\n")
        program.send_signal(signal.SIGTERM)
        self.assertEqual(program.stderr.read(), "ended\n")
        self.assertEqual(program.wait(), 0)
        for pipe in (program.stdin, program.stdout, program.stderr):
            pipe.close()


if __name__ == "__main__":
    unittest.main()
