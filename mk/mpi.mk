# Finds MPI by pkg-config: Open MPI's ompi-c, or what the system takes for mpi-c.

MPI_PKG    := $(firstword $(shell for p in ompi-c mpi-c mpich; do pkg-config --exists $$p 2>/dev/null && echo $$p; done))
ifneq ($(MPI_PKG),)
HAVE_MPI   := yes
else
HAVE_MPI   := no
MPI_REASON := MPI was not found by pkg-config; Debian's package libopenmpi-dev brings it
endif
ifeq ($(MPI),no)
HAVE_MPI   := no
MPI_REASON := MPI=no
endif
ifeq ($(MPI)-$(HAVE_MPI),yes-no)
ifeq ($(filter deps run help clean,$(MAKECMDGOALS)),)
$(error MPI=yes, but $(MPI_REASON))
endif
endif

$(BUILD)/obj/plugins/comm/mpi.o: EXTRA_CFLAGS = $(patsubst -I%,-isystem %,$(shell pkg-config --cflags $(MPI_PKG)))
$(BUILD)/plugins/comm_mpi.so: LDLIBS = $(shell pkg-config --libs $(MPI_PKG))
