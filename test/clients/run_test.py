#!/usr/bin/env python3
"""run_test: the client runner itself, on rows whose verdict is known, without the stack in front."""
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
# The name is the verdict that the row must get, and a word.
ROWS = r"""
ok exit         | | | true | exit 0 | 5 |
FAIL exit       | | | false | exit 0 | 5 |
ok status       | | | bash -c "exit 3" | exit 3 | 5 |
ok lasts        | | | sleep 5 | lasts 0.3 | 5 |
FAIL lasts      | | | true | lasts 0.3 | 5 |
FAIL hangs      | | | sleep 100 | exit 0 | 0.5 |
ok output       | | | echo a | client ~ ^a$ | 5 |
FAIL output     | | | echo b | client ~ ^a$ | 5 |
FAIL forbidden  | | | echo bad | client !~ bad | 5 |
ok each %X      | X=a,b | | echo %X | client ~ ^(a\|b)$ | 5 |
ok environment  | | | WORD=bar printenv WORD | client ~ ^bar$ | 5 |
ok node         | | | printenv ANYVERBS_NODE | client ~ ^clients- | 5 | own
SKIP absent     | | | no-such-program | exit 0 | 5 |
SKIP absent too | | | NEEDS="sh no-such-program" true | exit 0 | 5 |
ok stays        | | SERVER_THAT_STAYS | CLIENT | exit 0 ; stays ; server ~ got x | 10 |
FAIL stays      | | bash -c "exit 0" %PORT | true | exit 0 ; stays | 5 |
FAIL make       | | | @broken | exit 0 | 5 |
ok pair         | | SERVER | CLIENT | exit 0 ; server ~ got x | 10 |
FAIL server     | | bash -c "exit 4" %PORT | true | exit 0 | 5 |
FAIL crash      | | | bash -c "kill -SEGV $$" | exit 0 | 5 |
FAIL rule       | | | true | never | 5 |
@make broken cc -o %OUT /nonexistent.c
"""
SERVER = (sys.executable + r''' -c "import socket as s; l = s.create_server(('127.0.0.1', %PORT)); '''
          r'''c, _ = l.accept(); print('got', c.recv(1).decode())"''')
STAYING = SERVER[:-1] + r'''; import sys; sys.stdout.flush(); import time; time.sleep(9)"'''
CLIENT = sys.executable + r''' -c "import socket as s; s.create_connection(('127.0.0.1', %PORT)).send(b'x')"'''


def run(text, *arguments):
    with tempfile.NamedTemporaryFile("w", suffix=".table") as table:
        table.write(text)
        table.flush()
        return subprocess.run([sys.executable, os.path.join(HERE, "run"), "--fake", "--table", table.name, *arguments],
                              capture_output=True, text=True, check=False)


class Runner(unittest.TestCase):
    def test_verdicts(self):
        done = run(ROWS.replace("SERVER_THAT_STAYS", STAYING).replace("SERVER", SERVER).replace("CLIENT", CLIENT))
        rows = re.findall(r"^(ok|FAIL|SKIP) +(ok|FAIL|SKIP) (\S.*?)  ", done.stdout, re.M)
        for verdict, expected, name in rows:
            self.assertEqual(verdict, expected, f"{name}\n{done.stdout}")
        self.assertEqual(len(rows), ROWS.count("\n") - 1, done.stdout + done.stderr)
        self.assertIn("10 passed, 10 failed, 2 skipped", done.stdout)
        self.assertEqual(done.returncode, 1)

    def test_all_good_is_status_0(self):
        self.assertEqual(run("fine | | | true | | 5 |\n").returncode, 0)

    def test_a_sanitizers_report_fails_the_row(self):
        bad = "int main(int n, char **a) { volatile int x[2] = { 1 }; return x[n + 5]; }"
        table = f"@make bad sh -c 'echo \"{bad}\" | cc -x c -fsanitize=address -o %OUT -'\nbad | | | @bad | exit 66 | 20 |\n"
        done = run(table, "--sanitizer", "address")
        self.assertIn("1 reports of the sanitizer", done.stdout)
        self.assertIn("stack-buffer-overflow", done.stdout)
        self.assertIn("0 passed, 1 failed, 0 skipped", done.stdout)

    @unittest.skipIf(os.geteuid() != 0, "only root can mount")
    def test_tmp_is_its_own(self):
        with tempfile.NamedTemporaryFile(dir="/tmp") as stale:
            done = run(f"hidden | | | test ! -e {stale.name} | | 5 |\nkept | | | test -e %SRC/run | | 5 |\n")
            self.assertTrue(os.path.exists(stale.name))
        self.assertIn("2 passed", done.stdout, done.stderr)

    def test_folder_is_each_rows_own(self):
        row = "%s | | mkdir %%FOLDER/server | mkdir %%FOLDER/client | | 5 |\n"
        done = run(row % "first" + row % "second")
        self.assertIn("2 passed", done.stdout, done.stdout)

    def test_no_rows_is_a_failure(self):
        self.assertEqual(run("# nothing\n").returncode, 1)

    def test_malformed_table_is_refused(self):
        done = run("name | true\n")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("7 fields", done.stderr)

    def test_leaves_no_process(self):
        marker = f"0.0{os.getpid()}"
        begin = time.monotonic()
        run(f"hangs | | | bash -c \"sleep 60.{marker[2:]} & sleep 60.{marker[2:]}\" | exit 0 | 0.3 |\n")
        self.assertLess(time.monotonic() - begin, 10)
        left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
        self.assertNotIn(f"sleep 60.{marker[2:]}", left)

    def test_real_tables_are_well_formed(self):
        done = subprocess.run([sys.executable, os.path.join(HERE, "run"), "--list"], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(len(done.stdout.splitlines()), 250)
        self.assertNotIn("%", re.sub(r"%(PORT|SRC|STACK|COPY|SELF|FOLDER)", "", done.stdout))


if __name__ == "__main__":
    unittest.main()
