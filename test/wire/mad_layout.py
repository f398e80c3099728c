"""mad_layout.py: the messages of the CM as IBA vol 1, 12.6 and 12.7 lay them out, written down apart from src/cm.

A field behind the MAD header is (byte, its first bit, bits); one of more than 64 bits is bytes.
"""


def path(name, at, lap=False):
    """A path of a REQ or LAP. The two have the rate in different places."""
    rate, traffic, hops = (41, 39, 40) if lap else (39, 40, 41)
    return {name + "local_lid": (at, 0, 16), name + "remote_lid": (at + 2, 0, 16), name + "local_gid": (at + 4, 0, 128),
            name + "remote_gid": (at + 20, 0, 128), name + "flow_label": (at + 36, 0, 20), name + "rate": (at + rate, 2, 6),
            name + "traffic_class": (at + traffic, 0, 8), name + "hop_limit": (at + hops, 0, 8), name + "sl": (at + 42, 0, 4),
            name + "subnet_local": (at + 42, 4, 1), name + "ack_timeout": (at + 43, 0, 5)}


IDS = {"local_id": (0, 0, 32), "remote_id": (4, 0, 32)}
LAYOUT = {
    "REQ": {"local_id": (0, 0, 32), "vendor": (5, 0, 24), "service_id": (8, 0, 64), "guid": (16, 0, 64), "qkey": (28, 0, 32),
            "qpn": (32, 0, 24), "responder_resources": (35, 0, 8), "initiator_depth": (39, 0, 8), "remote_timeout": (43, 0, 5),
            "transport": (43, 5, 2), "flow_control": (43, 7, 1), "psn": (44, 0, 24), "local_timeout": (47, 0, 5),
            "retries": (47, 5, 3), "pkey": (48, 0, 16), "mtu": (50, 0, 4), "rdc": (50, 4, 1), "rnr_retries": (50, 5, 3),
            "cm_retries": (51, 0, 4), "srq": (51, 4, 1), "extended": (51, 5, 3), **path("", 52), **path("alt_", 96),
            "private": (140, 0, 92 * 8)},
    "MRA": {**IDS, "about": (8, 0, 2), "timeout": (9, 0, 5), "private": (10, 0, 222 * 8)},
    "REJ": {**IDS, "about": (8, 0, 2), "ari_length": (9, 0, 7), "reason": (10, 0, 16), "ari": (12, 0, 72 * 8),
            "private": (84, 0, 148 * 8)},
    "REP": {**IDS, "qkey": (8, 0, 32), "qpn": (12, 0, 24), "vendor_high": (15, 0, 8), "vendor_middle": (19, 0, 8), "psn": (20, 0, 24),
            "vendor_low": (23, 0, 8), "responder_resources": (24, 0, 8), "initiator_depth": (25, 0, 8), "ack_delay": (26, 0, 5),
            "failover": (26, 5, 2), "flow_control": (26, 7, 1), "rnr_retries": (27, 0, 3), "srq": (27, 3, 1), "guid": (28, 0, 64),
            "private": (36, 0, 196 * 8)},
    "RTU": {**IDS, "private": (8, 0, 224 * 8)},
    "DREQ": {**IDS, "remote_qpn": (8, 0, 24), "private": (12, 0, 220 * 8)},
    "DREP": {**IDS, "private": (8, 0, 224 * 8)},
    "SIDR_REQ": {"local_id": (0, 0, 32), "pkey": (4, 0, 16), "service_id": (8, 0, 64), "private": (16, 0, 216 * 8)},
    "SIDR_REP": {"remote_id": (0, 0, 32), "status": (4, 0, 8), "info_length": (5, 0, 8), "qpn": (8, 0, 24), "service_id": (12, 0, 64),
                 "qkey": (20, 0, 32), "info": (24, 0, 72 * 8), "private": (96, 0, 136 * 8)},
    "LAP": {**IDS, "remote_qpn": (12, 0, 24), "remote_timeout": (15, 0, 5), **path("alt_", 20, lap=True), "private": (64, 0, 168 * 8)},
    "APR": {**IDS, "info_length": (8, 0, 8), "status": (9, 0, 8), "info": (12, 0, 72 * 8), "private": (84, 0, 148 * 8)},
}
ATTRIBUTES = ["REQ", "MRA", "REJ", "REP", "RTU", "DREQ", "DREP", "SIDR_REQ", "SIDR_REP", "LAP", "APR"]  # from 0x10 on


class Mad:
    """One message, taken apart."""

    def __init__(self, mad):
        self.bytes = mad
        self.kind = ATTRIBUTES[int.from_bytes(self.bytes[16:18], "big") - 0x10]
        self.tid = int.from_bytes(self.bytes[8:16], "big")
        self.modifier = int.from_bytes(self.bytes[20:24], "big")
        body = int.from_bytes(self.bytes[24:], "big")
        self.fields, known = {}, 0
        for name, (byte, bit, bits) in LAYOUT[self.kind].items():
            shift = 232 * 8 - byte * 8 - bit - bits
            value = body >> shift & (1 << bits) - 1
            known |= (1 << bits) - 1 << shift
            self.fields[name] = value if bits <= 64 else value.to_bytes(bits // 8, "big")
        self.reserved = body & ~known

    def of(self, local_id):
        return local_id in (self.fields.get("local_id"), self.fields.get("remote_id"))
