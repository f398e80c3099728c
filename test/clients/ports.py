"""ports.py: who waits for clients on a port of this machine, as the kernel's tables show it."""


def bound_by_cm(port):
    """Does an id of the RDMA CM have the port, in any port space? Its byte is locked (src/node/bind.c)."""
    with open("/proc/locks", encoding="ascii") as locks:
        for line in locks:
            words = line.split()
            if "OFDLCK" in words and words[-2].isdigit():
                start = int(words[-2])
                if start >> 62 == 1 and start >> 28 & 0xffff == port:
                    return True
    return False


def listening(port, pid):
    """Whether somebody listens on the TCP port where the process is, or has the UDP port. Asks the kernel's tables: a trial connection
    would be accepted."""
    for table, state in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
        try:
            with open(f"/proc/{pid}/net/{table}", encoding="ascii") as f:
                for line in f:
                    fields = line.split()
                    if fields[3] == state and fields[1].endswith(f":{port:04X}"):
                        return True
        except OSError:
            continue
    return False
