"""pyverbs_test.py: a test in pyverbs, as a project may have one: it needs a device, which anyverbs provides.

usage: anyverbs run python3 ci/pyverbs_test.py       needs python3-pyverbs
"""
import unittest

import pyverbs.device
from pyverbs.cq import CQ
from pyverbs.enums import IBV_ACCESS_LOCAL_WRITE, IBV_PORT_ACTIVE
from pyverbs.mr import MR
from pyverbs.pd import PD


class Device(unittest.TestCase):
    def setUp(self):
        devices = pyverbs.device.get_device_list()
        self.assertTrue(devices, "there is no RDMA device")
        self.context = pyverbs.device.Context(name=devices[0].name.decode())

    def test_port_is_active(self):
        self.assertEqual(self.context.query_port(1).state, IBV_PORT_ACTIVE)

    def test_memory_is_registered(self):
        with PD(self.context) as pd, MR(pd, 4096, IBV_ACCESS_LOCAL_WRITE) as mr:
            mr.write("hello", 5)
            self.assertEqual(mr.read(5, 0), b"hello")

    def test_new_completion_queue_is_empty(self):
        with CQ(self.context, 10) as cq:
            self.assertEqual(cq.poll()[0], 0)


if __name__ == "__main__":
    unittest.main()
