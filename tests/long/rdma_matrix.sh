#!/bin/sh
# needs: guest
#
# As rdma_vm.sh: every number of hosts, type and size, and faults that take their time. Run
# from the top of the tree; DPB_BUILD=build.
exec tests/rdma-vm/run long
