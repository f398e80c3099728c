#!/usr/bin/python3
"""datagram.py: one end of a few datagrams over ib0, with keys of choice.

usage: datagram.py receive QKEY PKEY_INDEX               prints its queue pair's number, and how many came when standard input ends
       datagram.py send LID QPN QKEY PKEY_INDEX [SL]     sends ten, and prints the status of each
       datagram.py group MLID QKEY MGID                  the same to a group, of which the host is no member
"""
import ipaddress
import sys

import pyverbs.enums as e
from pyverbs.addr import GID, AH, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

COUNT, BYTES, GRH = 10, 64, 40


class End:
    def __init__(self, qkey, pkey_index):
        self.context = Context(name="ib0")
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 2 * COUNT)
        self.mr = MR(self.pd, BYTES + GRH, e.IBV_ACCESS_LOCAL_WRITE)
        attr = QPAttr(port_num=1)
        attr.qkey, attr.pkey_index = qkey, pkey_index
        cap = QPCap(max_send_wr=COUNT, max_recv_wr=COUNT)
        self.qp = QP(self.pd, QPInitAttr(qp_type=e.IBV_QPT_UD, scq=self.cq, rcq=self.cq, cap=cap), attr)
        self.sge = SGE(self.mr.buf, BYTES + GRH, self.mr.lkey)

    def receive(self):
        for _ in range(COUNT):
            self.qp.post_recv(RecvWR(sg=[self.sge], num_sge=1))
        print(self.qp.qp_num, flush=True)
        sys.stdin.read()
        print(self.cq.poll(COUNT)[0], flush=True)

    def send(self, lid, qpn, sl, mgid=None):
        attr = AHAttr(dlid=lid, sl=sl, port_num=1)
        if mgid is not None:
            group = GID(ipaddress.IPv6Address(mgid).exploded)
            attr = AHAttr(dlid=lid, port_num=1, is_global=1, gr=GlobalRoute(dgid=group, sgid_index=0, hop_limit=1))
        ah = AH(self.pd, attr=attr)
        for _ in range(COUNT):
            wr = SendWR(opcode=e.IBV_WR_SEND, num_sge=1, sg=[SGE(self.mr.buf, BYTES, self.mr.lkey)])
            wr.set_wr_ud(ah, qpn, self.qkey)
            self.qp.post_send(wr)
        left = COUNT
        while left > 0:
            count, wcs = self.cq.poll(left)
            left -= count
            for wc in wcs:
                print(int(wc.status))


def main():
    if sys.argv[1] == "group":
        qkey = int(sys.argv[3], 0)
        end = End(qkey, 0)
        end.qkey = qkey
        end.send(int(sys.argv[2], 0), 0xffffff, 0, sys.argv[4])
        return
    words = [int(w, 0) for w in sys.argv[2:]]
    if sys.argv[1] == "receive":
        End(words[0], words[1]).receive()
    else:
        end = End(words[2], words[3])
        end.qkey = words[2]
        end.send(words[0], words[1], words[4] if len(words) > 4 else 0)


if __name__ == "__main__":
    main()
