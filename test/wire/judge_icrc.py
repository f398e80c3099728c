"""judge_icrc.py: the ICRC over IPv6, which scapy does not compute, by zlib over a masked packet of scapy's layers."""
import zlib

from scapy.all import IPv6, UDP, raw


def icrc_over_ipv6(packet):
    """The last 4 bytes of the packet as they should be: annex A17.3.3."""
    masked = IPv6(packet[:-4])
    masked.tc, masked.fl, masked.hlim = 0xff, 0xfffff, 0xff
    masked[UDP].chksum = 0xffff
    covered = bytearray(b"\xff" * 8 + raw(masked))
    covered[8 + 40 + 8 + 4] = 0xff
    return zlib.crc32(bytes(covered)).to_bytes(4, "little")
