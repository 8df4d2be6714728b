# dpbench beside its peers: docs/benchmarks.md.
#
#   make bench-deps            what the peers need, from Debian and PyPI into $(BUILD)
#   make bench [BENCH=PART...] every row of bench/parts, or of those parts; ROUNDS=5
#              [ROWS=TEXT]     of them those with TEXT in their names
#   make bench-gpu             the rows that need a GPU; LIMIT=SECONDS for all of them

BENCH  ?=
ROUNDS ?= 5
ROWS   ?=
LIMIT  ?=
BENCH_OWN      := $(patsubst bench/%.c,$(BUILD)/bench/%,$(wildcard bench/*.c))
BENCH_PROGRAMS := $(BENCH_OWN) $(patsubst bench/peers/%.c,$(BUILD)/bench/%,$(wildcard bench/peers/*.c)) \
                  $(patsubst bench/peers/%.cc,$(BUILD)/bench/%,$(wildcard bench/peers/*.cc))

.PHONY: bench bench-own bench-deps bench-gpu
bench-deps:
	$(Q)bench/deps "$(BUILD)"

# A peer that cannot be built here is a row that says so.
bench: all
	$(Q)$(MAKE) -k $(BENCH_PROGRAMS) || true
	$(Q)bench/bench --build "$(BUILD)" --rounds $(ROUNDS) --rows "$(ROWS)" $(LIMIT:%=--limit %) $(BENCH)

# Without bench-deps it takes the machine's own PyTorch.
bench-gpu: all
	$(Q)bench/bench --build "$(BUILD)" --rounds $(ROUNDS) --rows "$(ROWS)" $(LIMIT:%=--limit %) gpu

$(BUILD)/bench/%: bench/peers/%.c
	@echo "  PEER  $@"
	@mkdir -p $(@D)
	$(Q)$(CC) -std=c11 $(CPPFLAGS) $(CFLAGS) $(WARN) $(LDFLAGS) -o $@ $< $(PEER_LIBS) -lpthread

$(BUILD)/bench/%: bench/peers/%.cc
	@echo "  PEER  $@"
	@mkdir -p $(@D)
	$(Q)$(CXX) -std=c++17 $(CFLAGS) -O3 -Wall -Wextra -o $@ $< $(PEER_LIBS) -lpthread

$(BUILD)/bench/gloo_all_reduce: PEER_LIBS = -lgloo
$(BUILD)/bench/jpeg_decode: PEER_LIBS = -ljpeg
$(BUILD)/bench/mpi_all_reduce: CC = mpicc
$(BUILD)/bench/mpi_turns: CORE_CFLAGS += $(patsubst -I%,-isystem %,$(shell $(PKG_CONFIG) --cflags $(MPI_PKG)))
$(BUILD)/bench/mpi_turns: CORE_LIBS += $(shell $(PKG_CONFIG) --libs $(MPI_PKG))
ifneq ($(HAVE_MPI),yes)
BENCH_OWN      := $(filter-out %/mpi_turns,$(BENCH_OWN))
BENCH_PROGRAMS := $(filter-out %/mpi_turns,$(BENCH_PROGRAMS))
endif
bench-own: $(BENCH_OWN)

# Our own parts by themselves: linked with core.
$(BUILD)/bench/%: bench/%.c $(BUILD)/libcore.a
	@echo "  BENCH $@"
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -O3 $(CORE_CFLAGS) $(LDFLAGS) -MF $@.d -o $@ $< $(BUILD)/libcore.a $(CORE_LIBS)

-include $(wildcard $(BUILD)/bench/*.d)
