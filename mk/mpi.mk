# Finds MPI by pkg-config: Open MPI's ompi-c, or what the system takes for mpi-c. dpbench runs under its
# launcher, which it knows by PMIx (mk/pmix.mk comes before).

MPI_PKG := $(firstword $(shell for p in ompi-c mpi-c mpich; do pkg-config --exists $$p 2>/dev/null && echo $$p; done))
$(eval $(call optional,MPI,$(and $(MPI_PKG),$(filter yes,$(HAVE_PMIX))),MPI and PMIx were not both \
	found by pkg-config; Debian's packages libopenmpi-dev and libpmix-dev bring them,comm/mpi,comm mpi))

$(BUILD)/obj/plugins/comm/mpi.o: EXTRA_CFLAGS = $(patsubst -I%,-isystem %,$(shell pkg-config --cflags $(MPI_PKG)))
$(BUILD)/plugins/comm_mpi.so: LDLIBS = $(shell pkg-config --libs $(MPI_PKG))
