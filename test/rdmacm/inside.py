"""inside.py: a program in a network namespace of its own, and another host at the end of a veth pair: t0 here, t1 there.

Takes BUILD_DIR from the program's arguments.
"""
import os
import subprocess
import sys
import time

SKIPPED = 77
INSIDE = "ANYVERBS_TEST_INSIDE"
BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else os.path.abspath("build")


def go_inside():
    """Starts the program anew in a namespace, as root or in a user namespace; where even that is forbidden it ends with SKIPPED."""
    if INSIDE in os.environ:
        return
    for how in (["unshare", "-n"], ["unshare", "-rn"]):
        if subprocess.run([*how, "ip", "link", "add", "t0", "type", "veth"], capture_output=True, check=False).returncode == 0:
            os.execvpe("unshare", [*how, sys.executable, *sys.argv[:1], BUILD, *sys.argv[1:]], {**os.environ, INSIDE: "1"})
    print("skipped: needs unshare, ip and veth: root, or user namespaces")
    sys.exit(SKIPPED)


def ip(*words, host=None):
    """`host`: a process of the namespace."""
    enter = ["nsenter", "-t", str(host), "-n"] if host else []
    subprocess.run([*enter, "ip", *words], check=True)


def start_host():
    """The other host: a process that lives in its namespace until it is killed."""
    host = subprocess.Popen(["unshare", "-n", "sleep", "1000"], stdout=subprocess.DEVNULL)
    ip("link", "set", "lo", "up")
    while os.readlink(f"/proc/{host.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
        time.sleep(0.01)
    ip("link", "add", "t0", "type", "veth", "peer", "name", "t1")
    ip("link", "set", "t1", "netns", str(host.pid))
    return host
