# Finds PMIx, by which mpirun and srun tell a process which rank of what it is. Its library is loaded
# at run time, and only under such a launcher: the headers are all that is needed here.

PMIX_FOUND := $(wildcard $(shell $(PKG_CONFIG) --variable=includedir pmix 2>/dev/null)/pmix.h)
$(eval $(call optional,PMIX,$(PMIX_FOUND),PMIx was not found; Debian's package libpmix-dev brings \
	it,,launching by mpirun and srun))

ifeq ($(HAVE_PMIX),yes)
$(BUILD)/obj/core/world/pmix.o: CORE_CFLAGS += $(patsubst -I%,-isystem %,$(shell $(PKG_CONFIG) --cflags pmix)) -DDPB_HAVE_PMIX=1
# Of PMIx, for MPI to find before the library's: see core/world/pmix.c.
EXPORTS = -Wl,--export-dynamic-symbol=PMIx_Abort,--export-dynamic-symbol=PMIx_Initialized
endif
