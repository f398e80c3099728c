#!/usr/bin/env python3
"""full_test.py: the places where a node's folder may lie are full, one after the other.

usage: full_test.py BUILD_DIR

Runs in a mount namespace of its own, with small file systems on those places: as root, or in a user namespace. Where even that is
forbidden it ends with 77: skipped.
"""
import json
import os
import signal
import subprocess
import sys
import unittest

SKIPPED = 77
INSIDE = "FULL_TEST_INSIDE"
BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else os.path.abspath("build")
XDG, TMP, SHM = "/run/xdg", "/tmp", "/dev/shm"
PLACES = (XDG, TMP, SHM)
ASIDE = "/mnt"  # where a build that lies in one of those places is seen meanwhile
ROOM = "size=4m"
OVERFLOWN = ("setpriv", "--reuid=2000", "--regid=2000", "--clear-groups", "unshare", "-U", "--map-user=65534", "--map-group=65534")
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def go_inside():
    for how in (["unshare", "-mn"], ["unshare", "-rmn"]):
        if subprocess.run([*how, "mount", "-t", "tmpfs", "none", "/run"], capture_output=True).returncode == 0:
            os.execvpe("unshare", [*how, sys.executable, *sys.argv[:1], BUILD, *sys.argv[1:]], {**os.environ, INSIDE: "1"})
    print("skipped: needs unshare and mount: root, or user namespaces")
    sys.exit(SKIPPED)


def step_aside():
    """The file systems of the cases would hide a build that lies there."""
    if BUILD.startswith(("/run/", TMP + "/", SHM + "/")):
        subprocess.run(["mount", "--bind", BUILD, ASIDE], check=True)
        return ASIDE
    return BUILD


def fill(place):
    """Leaves no block free."""
    with open(os.path.join(place, "filler"), "wb", buffering=0) as f:
        try:
            while True:
                f.write(bytes(4096))
        except OSError:
            pass


class Case(unittest.TestCase):
    def setUp(self):
        subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
        os.mkdir(XDG, 0o700)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("ANYVERBS_", "LD_", "XDG_"))}
        self.env.update(ANYVERBS_IDLE_S="60", ANYVERBS_LOG="info", ANYVERBS_NODE=f"full-{os.getpid()}", XDG_RUNTIME_DIR=XDG,
                        PATH=f"{BUILD}/bin:{BUILD}/test:" + os.environ["PATH"])
        self.children = []

    def tearDown(self):
        for child in self.children:
            child.kill()
            child.communicate()
        self.run_program("anyverbs", "stop", "--force")
        for place in (*PLACES, "/run"):
            subprocess.run(["umount", "-l", place], capture_output=True)

    def mount(self, *options):
        for place, option in zip(PLACES, options):
            subprocess.run(["mount", "-t", "tmpfs", "-o", option, "none", place], check=True)

    def run_program(self, *words):
        return subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=60)

    def attach(self):
        child = subprocess.Popen(["node_attach", "60"], env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
        self.children.append(child)
        line = child.stdout.readline().split()
        self.assertEqual(len(line), 3, line or child.stderr.read())
        return [int(word) for word in line]

    def status(self):
        done = self.run_program("anyverbs", "status", "--json")
        self.assertNotEqual(done.stdout, "", done.stderr)
        return json.loads(done.stdout)

    def goes_on(self, place):
        """The node lives, in this place, with as many processes as come; the pid."""
        slots = {self.attach()[0] for _ in range(3)}
        self.assertEqual(len(slots), 3)
        status = self.status()
        device = status["devices"][0]
        self.assertTrue(status["running"])
        if place is None:
            self.assertEqual((status["folder"], device["sysfs"]), ("", ""))
        else:
            self.assertEqual(status["folder"][:len(place)], place)
            with open(device["sysfs"] + "/class/infiniband/roce0/ports/1/gids/1") as f:
                self.assertEqual(len(f.read().strip()), 39)
            self.assertEqual(os.listdir(device["sysfs"] + "/dev/infiniband"), ["uverbs0"])
        return status["pid"]

    def test_the_next_place_is_taken(self):
        self.mount(ROOM, ROOM, ROOM)
        for full, place in enumerate((XDG, TMP, SHM, None)):
            with self.subTest(place=place):
                if full > 0:
                    fill(PLACES[full - 1])
                self.goes_on(place)
                for child in self.children:
                    child.kill()
                    child.wait()
                self.run_program("anyverbs", "stop", "--force")
                if place is not None:  # it takes its files with it, so that there is room for the filler
                    self.assertEqual([name for _, _, names in os.walk(place) for name in names if name not in ("filler", "log")], [])

    def test_no_file_can_be_made(self):
        self.mount("nr_inodes=2", ROOM, ROOM)
        self.goes_on(TMP)

    def test_files_for_half_a_tree(self):
        self.mount("nr_inodes=50", ROOM, ROOM)
        self.attach()
        status = self.status()
        self.assertEqual((status["folder"][:len(XDG)], status["devices"][0]["sysfs"]), (XDG, ""))
        self.assertFalse(os.path.exists(status["folder"] + "/sys"))

    def test_less_room_than_the_tree_needs(self):
        self.mount("size=64k", ROOM, ROOM)
        self.goes_on(TMP)

    def test_the_place_fills_up_while_the_node_runs(self):
        self.mount(ROOM, ROOM, ROOM)
        pid = self.goes_on(XDG)
        fill(XDG)
        self.assertEqual(self.goes_on(XDG), pid)
        for state, shown in (("down", "DOWN"), ("up", "ACTIVE")):
            self.run_program("anyverbs", "port", state)
            self.assertEqual(self.status()["devices"][0]["ports"][0]["state"], shown)
        # the next one finds the place full, with processes whose slots are there
        before = {slot for p in self.status()["processes"] for slot in p["slots"]}
        os.kill(pid, signal.SIGKILL)
        self.assertNotIn(self.attach()[0], before)
        status = self.status()
        self.assertNotEqual(status["pid"], pid)
        self.assertEqual(status["folder"][:len(XDG)], XDG)

    def squat(self, count, uid=0):
        """Another user's process that has the first `count` abstract addresses of the node of user `uid`."""
        script = ("import socket\n"
                  f"for i in range({count}):\n"
                  "    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
                  f"    s.bind('\\0anyverbs/{uid}/{self.env['ANYVERBS_NODE']}' + (f'/{{i}}' if i else ''))\n"
                  "    s.listen()\n"
                  "    globals()[f's{i}'] = s\n"
                  "print(flush=True)\nwhile True: s0.accept()\n")
        squatter = subprocess.Popen([*NOBODY, "/usr/bin/python3", "-c", script], stdout=subprocess.PIPE)
        self.children.append(squatter)
        self.assertEqual(squatter.stdout.readline(), b"\n")
        return squatter

    @unittest.skipUnless(subprocess.run([*NOBODY, "true"], capture_output=True).returncode == 0, "needs root and setpriv")
    def test_another_user_has_the_address_and_the_folders(self):
        self.mount(ROOM, ROOM + ",mode=1777", ROOM + ",mode=1777")
        del self.env["XDG_RUNTIME_DIR"]
        theirs = [f"{place}/anyverbs-0" for place in (TMP, SHM)]
        subprocess.run([*NOBODY, "mkdir", "-m", "777", *theirs], check=True)
        squatter = self.squat(1)
        pid = self.goes_on(None)
        said = self.run_program("anyverbs", "status").stdout
        for place in theirs:
            self.assertIn(f"cannot use {place}/", said)
        squatter.kill()
        squatter.wait()
        self.assertEqual(self.goes_on(None), pid)  # where nobody has the address there is no second node

    @unittest.skipUnless(subprocess.run([*OVERFLOWN, "true"], capture_output=True).returncode == 0, "needs root and user namespaces")
    def test_a_user_who_has_the_number_of_all_others(self):
        """In his user namespace any stranger's credentials look like his own."""
        self.mount(ROOM, ROOM + ",mode=1777", ROOM + ",mode=1777")
        del self.env["XDG_RUNTIME_DIR"]
        self.squat(1, uid=65534)
        child = subprocess.Popen([*OVERFLOWN, "node_attach", "60"], env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
        self.children.append(child)
        line = child.stdout.readline().split()
        self.assertEqual(len(line), 3, line or child.stderr.read())
        status = json.loads(self.run_program(*OVERFLOWN, "anyverbs", "status", "--json").stdout)
        self.assertEqual(status["folder"][:len(TMP)], TMP)
        with open("/proc/net/unix") as f:
            self.assertEqual(f.read().count(f"@anyverbs/65534/{self.env['ANYVERBS_NODE']}/"), 0)
        self.assertEqual(self.run_program(*OVERFLOWN, "anyverbs", "stop", "--force").returncode, 0)

    @unittest.skipUnless(subprocess.run([*NOBODY, "true"], capture_output=True).returncode == 0, "needs root and setpriv")
    def test_another_user_has_all_addresses_and_no_folder_helps(self):
        self.mount(*["size=4k"] * 3)
        for place in PLACES:
            fill(place)
        squatter = self.squat(16)
        done = self.run_program("node_attach", "0")
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"are taken by another user's process {squatter.pid}, ", done.stderr)
        done = self.run_program("unshare", "-pf", "node_attach", "0")  # where that process has no number
        self.assertIn("are taken by another user's process, ", done.stderr)

    @unittest.skipUnless(subprocess.run([*NOBODY, "true"], capture_output=True).returncode == 0, "needs root and setpriv")
    def test_another_user_has_all_addresses(self):
        self.mount(ROOM, ROOM, ROOM)
        self.squat(16)
        self.goes_on(XDG)

    @unittest.skipIf(os.environ.get("AV_SANITIZE"), "a program of the distribution loads no sanitized library")
    @unittest.skipUnless(subprocess.run([*NOBODY, "true"], capture_output=True).returncode == 0, "needs root and setpriv")
    def test_another_user_shows_a_tree(self):
        """In the first place, with a link to a folder of ours where the devices should be."""
        self.mount(ROOM, ROOM + ",mode=1777", ROOM + ",mode=1777")
        del self.env["XDG_RUNTIME_DIR"]
        tree = f"{TMP}/anyverbs-0/{self.env['ANYVERBS_NODE']}-{os.stat('/proc/self/ns/net').st_ino}/sys/class"
        script = f"umask 0; mkdir -p {tree}/infiniband_verbs/uverbs0; ln -s /usr {tree}/infiniband; echo theirs > {tree}/infiniband_verbs/uverbs0/ibdev"
        subprocess.run([*NOBODY, "sh", "-c", script], check=True)
        self.goes_on(SHM)
        self.assertEqual(self.run_program("anyverbs", "run", "cat", "/sys/class/infiniband_verbs/uverbs0/ibdev").stdout, "roce0\n")

    @unittest.skipIf(os.environ.get("AV_SANITIZE"), "a program of the distribution loads no sanitized library")
    def test_a_program_runs_where_all_places_are_full(self):
        self.mount(*["size=4k"] * 3)
        for place in PLACES:
            fill(place)
        done = self.run_program("anyverbs", "run", "ibv_devinfo")
        self.assertEqual((done.returncode, done.stderr.count("fail")), (0, 0), done.stdout + done.stderr)
        self.assertIn("PORT_ACTIVE", done.stdout)


if __name__ == "__main__":
    if not os.environ.get(INSIDE):
        go_inside()
    BUILD = step_aside()
    unittest.main(verbosity=2)
