"""across.py: two hosts on one machine, for the rows of the client tables: the server runs on one of them, the client on the other.

lo    two nodes that share the loopback interface, with an address each
veth  two network namespaces joined by a pair of virtual Ethernet devices; needs root

Alone is one host: a network namespace whose address is no loopback one, for programs that take no loopback interface; needs root.
"""
import re
import subprocess
import time

# The server's side, then the client's.
LOOPBACK = ("127.0.0.2", "127.0.0.3")
VETH = ("10.99.7.1", "10.99.7.2")
USERS = (65534, 65533)


ALONE = "10.99.8.1"


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def make_namespace(name):
    ip("netns", "add", name)
    ip("-n", name, "link", "set", "lo", "up")


def await_link(name):
    """The kernel takes up to a second to call a new link up."""
    for _ in range(100):
        said = subprocess.run(["ip", "-n", name, "-o", "link", "show", "eth0"], capture_output=True, text=True).stdout
        if "state UP" in said:
            return
        time.sleep(0.05)


class Across:
    def __init__(self, kind, node, as_users=False, mtu=4200):
        self.kind, self.as_users = kind, as_users
        self.names = [f"{node}-a", f"{node}-b"]
        self.addresses = LOOPBACK if kind == "lo" else VETH
        if kind == "veth":
            self.make_namespaces(mtu)

    def make_namespaces(self, mtu):
        a, b = self.names
        for name in self.names:
            make_namespace(name)
        ip("-n", a, "link", "add", "eth0", "mtu", str(mtu), "type", "veth", "peer", "name", "eth0", "mtu", str(mtu), "netns", b)
        for name in self.names:  # link-local addresses that can be used at once, instead of the kernel's own
            ip("-n", name, "link", "set", "eth0", "addrgenmode", "none")
        for name, address in zip(self.names, self.addresses):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            ip("-n", name, "addr", "add", f"fe80::{address.rsplit('.', 1)[1]}/64", "dev", "eth0", "nodad")
            ip("-n", name, "link", "set", "eth0", "up")
        for name in self.names:
            await_link(name)

    @staticmethod
    def takes(row, kind, as_users):
        """Rows of two processes that meet by an address, and those that say so. GID 0 leads to another host only if it is the
        link-local address of an interface, multicast only with a group of more than this host; and UC has neither flow control nor another try, so what it sends in one go has
        to fit into what the kernel keeps for a receiver that gets no processor."""
        if "across" in row.tags:
            return kind == "veth" and not as_users
        if "veth" in row.tags and kind == "lo":
            return False
        too_much = re.search(r"uc_pingpong.*-s 8388608|-c UC .*-q64|-c UC -a", row.client)
        local = re.search(r"-c UD -g +-n", row.client) or kind == "lo" and re.search(r" -[gx] 0", row.client)
        return bool(row.server) and re.search(r"127\.0\.0\.1|%SELF", row.client) and not row.tags & {"own", "plain", "user", "root"} \
            and not local and not too_much

    def client_text(self, text):
        """The server's address instead of 127.0.0.1; %PEER: the network namespace of its host."""
        return text.replace("127.0.0.1", self.addresses[0]).replace("%PEER", self.names[0])

    def own_text(self, text, side):
        """%SELF: the address of the side's host; %SELF6: its IPv6 address (veth)."""
        return text.replace("%SELF6", f"fe80::{self.addresses[side].rsplit('.', 1)[1]}%eth0").replace("%SELF", self.addresses[side])

    def environment(self, side):
        if self.kind == "veth":
            return {"ANYVERBS_NODE": "default", "ANYVERBS_ADDR": ""}
        return {"ANYVERBS_NODE": self.names[side], "ANYVERBS_ADDR": self.addresses[side]}

    def prefix(self, side):
        words = ["ip", "netns", "exec", self.names[side]] if self.kind == "veth" else []
        if self.as_users:
            user = str(USERS[side])
            words += ["setpriv", "--reuid=" + user, "--regid=" + user, "--clear-groups", "env", "HOME=/nonexistent"]
        return words

    def close(self):
        if self.kind == "veth":
            for name in self.names:
                subprocess.run(["ip", "netns", "del", name])


class Alone:
    """Both ends of the pair are here: so the link is up."""

    def __init__(self, node):
        self.name = f"{node}-c"
        make_namespace(self.name)
        ip("-n", self.name, "link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
        for device in ("eth0", "eth1"):  # no addresses that come late, with an event
            ip("-n", self.name, "link", "set", device, "addrgenmode", "none")
        ip("-n", self.name, "addr", "add", f"{ALONE}/24", "dev", "eth0")
        for device in ("eth0", "eth1"):
            ip("-n", self.name, "link", "set", device, "up")
        await_link(self.name)

    @staticmethod
    def text(text):
        return text.replace("127.0.0.1", ALONE).replace("%SELF", ALONE)

    @staticmethod
    def environment():
        return {"ANYVERBS_NODE": "default", "ANYVERBS_ADDR": ""}

    def prefix(self):
        return ["ip", "netns", "exec", self.name]

    def close(self):
        subprocess.run(["ip", "netns", "del", self.name])
