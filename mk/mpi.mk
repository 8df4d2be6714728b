# Finds MPI by pkg-config: Open MPI's ompi-c, or what the system takes for mpi-c. dpbench runs under its
# launcher, which it knows by PMIx (mk/pmix.mk comes before). Nothing is linked to it but an object
# beside the plugins, which strategies load (plugins/lib/object/mpi.h).

MPI_PKG := $(firstword $(shell for p in ompi-c mpi-c mpich; do $(PKG_CONFIG) --exists $$p 2>/dev/null && echo $$p; done))
$(eval $(call optional,MPI,$(and $(MPI_PKG),$(filter yes,$(HAVE_PMIX))),MPI and PMIx were not both \
	found by pkg-config; Debian's packages libopenmpi-dev and libpmix-dev bring them,comm/mpi lib/mpi,comm mpi))

ifeq ($(HAVE_MPI),yes)
MPI_OBJECT := $(BUILD)/plugins/libdpbench-mpi.so
PLUGINS += $(MPI_OBJECT)
$(MPI_OBJECT): $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard plugins/lib/mpi/*.c))
$(MPI_OBJECT): LDLIBS = $(shell $(PKG_CONFIG) --libs $(MPI_PKG))
$(BUILD)/obj/plugins/lib/mpi/%.o: EXTRA_CFLAGS = $(patsubst -I%,-isystem %,$(shell $(PKG_CONFIG) --cflags $(MPI_PKG)))
endif
