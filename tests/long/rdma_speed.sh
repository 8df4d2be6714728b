#!/bin/sh
# needs: alone guest
#
# How fast ring_verbs is beside ib_write_bw, in one boot of the guest of rdma_vm.sh. Run
# from the top of the tree; DPB_BUILD=build.
exec tests/rdma-vm/run speed
