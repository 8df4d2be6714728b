#!/bin/sh
# needs: guest
#
# ring_verbs on RDMA devices: soft-RoCE in a guest, whatever this machine has. Run from the top of the
# tree; DPB_BUILD=build.
exec tests/rdma-vm/run cases
