"""fields.py: what our CM and Linux's say in the messages of one program, field by field."""
import contextlib
import os
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "wire"))
from mad_layout import Mad  # noqa: E402

# What belongs to the connection or to its side.
OWN = {"local_id", "remote_id", "remote_qpn", "guid", "qpn", "psn", "service_id", "local_gid", "remote_gid", "flow_label"}
ADDRESSES = slice(4, 36)  # of the RDMA CM's header, in front of the private data of a REQ
SOURCE_PORT = slice(2, 4)
BTH_DETH, ICRC = 20, 4


@contextlib.contextmanager
def recorded(netns, messages):
    """Appends (the sender's address, Mad) for each message of the CM that passes tap0 meanwhile."""
    with tempfile.NamedTemporaryFile(suffix=".pcapng") as file:
        dumpcap = subprocess.Popen(["ip", "netns", "exec", netns, "dumpcap", "-q", "-i", "tap0", "-f", "udp port 4791", "-w", file.name],
                                   stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        while dumpcap.poll() is None and "File:" not in dumpcap.stderr.readline():
            pass
        try:
            yield
        finally:
            dumpcap.send_signal(signal.SIGINT)
            dumpcap.communicate()
        messages += read(file.name)


def read(path):
    said = subprocess.run(["tshark", "-r", path, "-Y", "infiniband.mad.mgmtclass == 7", "-T", "fields", "-e", "ip.src", "-e", "udp.payload"],
                          capture_output=True, text=True, check=True).stdout
    lines = [line.split("\t") for line in said.splitlines()]
    return [(source, Mad(bytes.fromhex(payload)[BTH_DETH:-ICRC])) for source, payload in lines]


def compared(mad):
    """The fields of a message that say the same on both sides, if the CMs are alike."""
    fields = {name: value for name, value in mad.fields.items() if name not in OWN}
    if mad.kind in ("REQ", "SIDR_REQ"):
        data = bytearray(fields["private"])
        data[ADDRESSES] = bytes(32)
        data[SOURCE_PORT] = bytes(2)
        fields["private"] = bytes(data)
    return fields


def differences(messages, ours, theirs):
    """[kind, field, our value, their value] of the first message of each kind from either side; and which kinds both have sent."""
    first = {}
    for source, mad in messages:
        first.setdefault((source, mad.kind), compared(mad))
    kinds = sorted({kind for source, kind in first if source == ours} & {kind for source, kind in first if source == theirs})
    return [(kind, name, value, first[theirs, kind][name]) for kind in kinds for name, value in first[ours, kind].items()
            if first[theirs, kind][name] != value], kinds
