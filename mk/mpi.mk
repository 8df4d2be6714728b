# Finds MPI by pkg-config: Open MPI's ompi-c, or what the system takes for mpi-c.

MPI_PKG := $(firstword $(shell for p in ompi-c mpi-c mpich; do pkg-config --exists $$p 2>/dev/null && echo $$p; done))
$(eval $(call optional,MPI,$(MPI_PKG),MPI was not found by pkg-config; Debian's package \
	libopenmpi-dev brings it,comm/mpi,comm mpi))

$(BUILD)/obj/plugins/comm/mpi.o: EXTRA_CFLAGS = $(patsubst -I%,-isystem %,$(shell pkg-config --cflags $(MPI_PKG)))
$(BUILD)/plugins/comm_mpi.so: LDLIBS = $(shell pkg-config --libs $(MPI_PKG))
