# Tests. A unit test is tests/unit/test_NAME.c, a system test (which runs dpbench itself) is
# tests/system/test_NAME.c; both are cmocka programs. A script that counts
# may be one, too: tests/system/NAME.sh or NAME.py. tests/plugins/KIND_NAME.c are plugins that only
# tests use: $(BUILD)/tests/plugins/KIND_NAME.so. tests/preload/NAME.c are for LD_PRELOAD,
# tests/fakes/NAME.c stand in for a library NAME.so.1.
#
# What a test needs it says in its first line (tools/test-needs); no test is named here for it.

TEST_CFLAGS := $(COMMON) -Icore/include -Icore -Iplugins -I. -Itests -Itests/unit $(COMM_PATHS)
TEST_LIBS   := -lcmocka $(CORE_LIBS)

NEEDS := $(shell tools/test-needs)
$(if $(filter-out 0,$(.SHELLSTATUS)),$(error tools/test-needs has failed))
# The programs of files, and those of the tests that need WORD.
programs = $(patsubst %.c,$(BUILD)/tests/%,$(notdir $(filter %.c,$(1)))) $(filter-out %.c,$(1))
needing  = $(call programs,$(patsubst %:$(1),%,$(filter %:$(1),$(NEEDS))))
without  = $(if $(filter yes,$(HAVE_$(1))),,$(2))

HAVE_STAND_IN      := $(if $(SANITIZE)$(filter devices/cuda,$(SKIPPED)),no,yes)
HAVE_STAND_IN_NCCL := $(if $(SANITIZE)$(filter devices/cuda comm/nccl,$(SKIPPED)),no,yes)
# Without libibverbs the guest's tests fail, unless that is what was asked for.
LACKING := $(call without,CPU,cpu) $(call without,JPEG,jpeg) $(call without,GLOO,gloo) $(call without,VERBS,verbs) \
	$(call without,MPI,mpi) $(call without,STAND_IN,cuda) $(call without,STAND_IN_NCCL,nccl) \
	$(if $(filter no,$(VERBS))$(SANITIZE),guest)
present  = $(filter-out $(foreach word,$(LACKING),$(call needing,$(word))),$(call programs,$(1)))

UNIT_TESTS   := $(call present,$(sort $(wildcard tests/unit/test_*.c))) $(FUZZ_REPLAYS)
SYSTEM_TESTS := $(call present,$(sort $(wildcard $(addprefix tests/system/,test_*.c *.sh *.py))))
# Tests of the CUDA code want a toolkit, and no GPU. They are a run of their own: make check-cuda.
CUDA_TESTS   := $(filter $(call needing,cuda) $(call needing,nccl),$(UNIT_TESTS) $(SYSTEM_TESTS))
UNIT_TESTS   := $(filter-out $(CUDA_TESTS),$(UNIT_TESTS))
SYSTEM_TESTS := $(filter-out $(CUDA_TESTS),$(SYSTEM_TESTS))
LONG_TESTS   := $(call present,$(sort $(wildcard $(addprefix tests/long/,test_*.c *.sh */run) tests/pytorch/run)))
TEST_LIB_OBJ := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tests/lib/*.c))
TEST_PLUGINS := $(patsubst tests/plugins/%.c,$(BUILD)/tests/plugins/%.so,$(wildcard tests/plugins/*.c))
TEST_PRELOADS := $(patsubst tests/preload/%.c,$(BUILD)/tests/preload/%.so,$(wildcard tests/preload/*.c))
# Libraries that stand in for NVIDIA's, each alone in a directory for LD_LIBRARY_PATH.
TEST_FAKES := $(addprefix $(BUILD)/tests/fakes/,cuda/libcuda.so.1 cuda_without_init/libcuda.so.1 \
	$(addsuffix /libnvidia-ml.so.1,nvml nvml_before nvml_between nvml_old nvml_without_energy))
ifneq ($(HAVE_VERBS),yes)
TEST_PRELOADS := $(filter-out %/break_queue_pair.so,$(TEST_PRELOADS))
endif

.SECONDARY: $(TEST_LIB_OBJ)
# These write their images by libjpeg.
$(call needing,jpeg): TEST_LIBS += $(JPEG_LIBS)
$(BUILD)/tests/test_rdma_failure: $(BUILD)/obj/plugins/lib/verbs/failure.o
$(BUILD)/tests/test_rdma_failure: TEST_LIBS += $(VERBS_LIBS)

# The cuda device on a CUDA for tests: its kernels as C++ for the processor, and NVIDIA's libraries in
# plain loops. Threads of a block have stacks of their own, which sanitizers take for errors.
STAND_IN     := $(BUILD)/tests/cuda/plugins/device_cuda.so
STAND_IN_LIB := $(BUILD)/tests/cuda/libstand_in.so
STAND_IN_SHARED = $(BUILD)/obj/tests/cuda/shared_first.o $(1) $(BUILD)/obj/tests/cuda/shared_last.o
STAND_IN_KERNELS := $(call STAND_IN_SHARED,$(patsubst plugins/%.cu,$(BUILD)/obj/tests/cuda/%.o,$(wildcard plugins/devices/cuda/*.cu)))
STAND_IN_OBJ := $(addprefix $(BUILD)/obj/tests/cuda/,libraries.o graphs.o graph_checks.o graph_compute.o) \
	$(STAND_IN_KERNELS) $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard plugins/devices/cuda/*.c) $(lib_devices))
# comm nccl and hierarchical on it, with a NCCL for tests.
STAND_IN_NCCL := $(BUILD)/tests/cuda/plugins/comm_nccl.so
STAND_IN_NCCL_LIB := $(BUILD)/tests/cuda/plugins/libdpbench-nccl.so
STAND_IN_BESIDE := $(patsubst %,$(BUILD)/tests/cuda/plugins/%,comm_hierarchical.so $(notdir $(MPI_OBJECT)))
STAND_IN_COMMS := $(STAND_IN_NCCL) $(STAND_IN_NCCL_LIB) $(STAND_IN_BESIDE)
# The kernels that nvcc made, on a runtime that hands launches over to a reader of their PTX
# (tests/cuda/ptx.py).
LAUNCHES := $(BUILD)/tests/cuda/launches.so
STAND_INS := $(if $(filter yes,$(HAVE_STAND_IN)),$(STAND_IN) $(LAUNCHES)) \
	$(if $(filter yes,$(HAVE_STAND_IN_NCCL)),$(STAND_IN_COMMS))
$(call needing,cuda) $(call needing,nccl): TEST_CFLAGS += $(CUDA_CFLAGS)
$(BUILD)/tests/test_nccl_stand_in: $(BUILD)/obj/tests/cuda/nccl.o $(STAND_IN_LIB)
$(BUILD)/tests/test_nccl_stand_in: TEST_LIBS += $(STAND_IN_LIB) -Wl,-rpath,'$$ORIGIN/cuda' -lstdc++
$(BUILD)/tests/test_cuda_stand_in: $(call STAND_IN_SHARED,$(addprefix $(BUILD)/obj/tests/cuda/devices/cuda/kernels_,simple.o sequence.o)) \
	$(STAND_IN_LIB)
$(BUILD)/tests/test_cuda_stand_in: TEST_LIBS += $(STAND_IN_LIB) -Wl,-rpath,'$$ORIGIN/cuda' -lstdc++
$(BUILD)/tests/test_cuda_memory: $(patsubst %.c,$(BUILD)/obj/%.o,$(lib_devices))
# The device as it is, with cuDNN as it is.
$(BUILD)/tests/test_cudnn_plans: $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard plugins/devices/cuda/*.c) $(lib_devices) $(lib_cuda)) \
	$(patsubst %.cu,$(BUILD)/obj/%.o,$(wildcard plugins/devices/cuda/*.cu))
$(BUILD)/tests/test_cudnn_plans: TEST_LIBS += -Wl,--wrap=cudnnBackendSetAttribute \
	$(filter-out -Wl$(cuda_comma)--version-script=%,$(call cuda_links,$(CUDA_NEEDS_devices/cuda))) -ldl

# These test a library of the plugins'.
LIB_TESTS := $(addprefix $(BUILD)/tests/test_,gather interface mesh ring ring_tcp)
$(LIB_TESTS): $(patsubst %.c,$(BUILD)/obj/%.o,$(lib_comm))

$(BUILD)/tests/test_cuda_driver: $(BUILD)/obj/plugins/lib/cuda/driver.o

# What Python's library makes of the numbers that they have.
$(addprefix $(BUILD)/tests/test_,comparison stats): $(BUILD)/tests/stats_oracle.h
$(addprefix $(BUILD)/tests/test_,comparison stats): TEST_CFLAGS += -I$(BUILD)/tests
$(BUILD)/tests/stats_oracle.h: tests/unit/stats_oracle.py
	$(Q)mkdir -p $(@D)
	$(Q)$< >$@.part && mv $@.part $@

# Their clocks stand still at times, or hurry.
$(addprefix $(BUILD)/tests/test_,links result_files): TEST_LIBS += -Wl,--wrap=dpb_now_ns

# Its plugin opens and locks files by the test's functions.
$(BUILD)/tests/test_image_folder: TEST_LIBS += -Wl,--export-dynamic-symbol=open,--export-dynamic-symbol=flock

# Its keeper runs on an old system.
$(BUILD)/tests/test_party: TEST_LIBS += -Wl,--wrap=close_range

# Its peers close while they are read.
$(BUILD)/tests/test_world: TEST_LIBS += -Wl,--wrap=recvmsg

# It measures by a program of bench.
$(BUILD)/tests/test_network_speed: | $(BUILD)/bench/all_reduce

.PHONY: tests tests-cuda tests-long check check-built check-cuda check-unit check-leaks check-addresses check-threads check-install \
	check-foreign check-aarch64 check-long mutants asan ubsan asan-ubsan tsan
TESTS       := $(UNIT_TESTS) $(SYSTEM_TESTS)
# Long ones that a pack for a GPU takes along (tests/gpu/list): gpu_first.sh packs.
PACKED_TESTS := $(filter %/test_gpu_machine %/test_model_ops,$(LONG_TESTS))
TESTS_TAKE  := $(TEST_PLUGINS) $(TEST_PRELOADS) $(TEST_FAKES)
tests: $(HOST_BUILD) $(TESTS) $(TESTS_TAKE)
	$(Q)tools/summary $(BUILD) $(NOT_BUILT)
tests-cuda: all $(TESTS) $(TESTS_TAKE) $(CUDA_TESTS) $(STAND_INS) $(PACKED_TESTS)
tests-long: tests-cuda $(LONG_TESTS)

run_tests = $(Q)BUILD=$(BUILD) tools/run-tests $(1)
# By itself it does all that it needs: a second make looks again at what deps brought.
check: deps
	$(Q)$(MAKE) $(JOBS) tests
	$(Q)$(MAKE) check-built
check-built: tests
	$(Q)DPB_TEST_CUDA=no BUILD=$(BUILD) tools/run-tests $(TESTS)
# The kernels on a CUDA for tests, the device on it with cuDNN as it is, and the machine code; the cases
# `cuda: ...` of the other tests, and those that look at all plugins.
check-cuda:
	$(if $(CUDA_TESTS),,$(error no CUDA toolkit was found; `make deps CUDA=yes` brings one))
	$(Q)$(MAKE) $(JOBS) tests-cuda
	$(Q)DPB_TEST_CUDA=only BUILD=$(BUILD) tools/run-tests $(sort $(CUDA_TESTS) \
		$(filter $(call needing,stand-in) $(call needing,built),$(TESTS)))
check-unit: tests
	$(call run_tests,$(UNIT_TESTS))
# On a processor that is emulated (tests/aarch64/run).
FOREIGN_TESTS := $(filter-out $(call needing,native),$(UNIT_TESTS))
check-foreign: all $(FOREIGN_TESTS) $(TESTS_TAKE)
	$(call run_tests,$(FOREIGN_TESTS))
check-aarch64:
	$(Q)DPB_BUILD=$(BUILD) tests/aarch64/run
# Under a sanitizer: without oneDNN, then the others.
SANITIZED  := $(filter-out $(call needing,plain),$(TESTS))
LEAK_TESTS := $(filter-out $(call needing,cpu),$(filter $(UNIT_TESTS),$(SANITIZED)))
check-leaks: tests
	$(call run_tests,$(LEAK_TESTS))
check-addresses: tests
	$(call run_tests,$(filter-out $(LEAK_TESTS),$(SANITIZED)))
# Of the system tests those that run jobs. They take minutes: THREAD_SYSTEM="nan continue" runs these alone.
THREAD_SYSTEM ?= $(patsubst $(BUILD)/tests/test_%,%,$(call needing,threads))
check-threads: tests
	$(call run_tests,$(UNIT_TESTS) $(addprefix $(BUILD)/tests/test_,$(THREAD_SYSTEM)) tests/threads/run)

# One test: make check-feed, make check-bench. What the programs of names are; an error where there is none.
named = $(foreach name,$(1),$(or $(firstword $(filter $(addprefix %/,test_$(name) $(name) $(addprefix $(name),.sh .py /run)), \
	$(2))),$(error there is no test '$(name)' here)))
check-%: all $(TESTS_TAKE) $$(call named,$$*,$$(TESTS) $$(CUDA_TESTS) $$(LONG_TESTS)) \
	$$(if $$(filter $$(call needing,stand-in),$$(call named,$$*,$$(TESTS) $$(CUDA_TESTS) $$(LONG_TESTS))),$(STAND_INS))
	$(call run_tests,$(call named,$*,$(TESTS) $(CUDA_TESTS) $(LONG_TESTS)))

# What needs a GPU, in minutes: `make check-gpu`; on a machine that cannot build what `make gpu-pack` packs,
# and then `tests/gpu/run build` (docs/gpu-status.md).
.PHONY: check-gpu gpu-pack gpu-first gpu-first-pack
check-gpu: tests-long
	$(Q)tests/gpu/run $(BUILD)
gpu-pack: tests-long
	$(Q)tests/gpu/pack $(BUILD) $(BUILD)/gpu-pack.tar.gz
# The first minutes with a GPU, by tests/gpu/first, from such a pack without data; GPU_OUT: where the files
# go; GPU_CALL=2: the second call. Without make: tests/gpu/first PACK OUT CALL.
GPU_OUT  ?= $(BUILD)/gpu-first
GPU_CALL ?= 1
gpu-first-pack: tests-long
	$(Q)tests/gpu/pack $(BUILD) $(BUILD)/gpu-first.tar.gz nodata
gpu-first:
	$(Q)tests/gpu/first $(firstword $(wildcard $(BUILD)/gpu-first.tar.gz) $(BUILD)) $(GPU_OUT) $(GPU_CALL)

# The documents' commands on a bare Debian that is made for it, as root or by sudo.
check-install: all
	$(Q)BUILD=$(BUILD) tools/run-tests tests/install/bare-root

# What takes longer than `make check` may: other strategies' accuracy, PyTorch in its own venv, all
# cells of the matrices that test_identity and test_exchange take a part of.
# LONG="models random_faults": of tests/long only these.
LONG_MORE := $(call present,$(patsubst %:cells,%,$(filter %:cells,$(NEEDS)))) $(LONG_TESTS)
check-long: tests-long $(BUILD)/bench/all_reduce
	$(Q)BUILD=$(BUILD) DPB_ALL_CELLS=1 tools/run-tests \
		$(if $(LONG),$(call named,$(LONG),$(LONG_MORE)),$(LONG_MORE))
	$(Q)$(MAKE) $(JOBS) fuzz

# Every check must catch what it is there for: each mutant of each strategy.
mutants: tests-cuda
	$(Q)BUILD=$(BUILD) DPB_ALL_MUTANTS=1 tools/run-tests $(filter $(call needing,mutants),$(TESTS) $(CUDA_TESTS))

# The same suite under a sanitizer, in a build directory of its own. oneDNN's and libgomp's threads
# keep what they allocate until the end of the process. Leaks are looked for where oneDNN is not loaded:
# there LeakSanitizer's own tracer crashes now and then, which would fail a run that has no leak.
define check_addresses
	$(Q)$(MAKE) $(JOBS) tests $(1)
	$(Q)ASAN_OPTIONS=detect_leaks=1 LSAN_OPTIONS=suppressions=$(CURDIR)/tests/lsan.supp \
		UBSAN_OPTIONS=print_stacktrace=1 $(MAKE) check-leaks $(1)
	$(Q)ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 TEST_JOBS=$$(nproc) $(MAKE) check-addresses $(1)
endef
SANITIZED_BUILD = BUILD=$(BUILD)/$(1) ONEDNN=$(ONEDNN) CUDA=no CFLAGS="-O1 -g -fno-omit-frame-pointer" \
	SANITIZE="$(2)"
UNDEFINED := undefined -fno-sanitize-recover=undefined
asan:
	$(call check_addresses,$(call SANITIZED_BUILD,$@,-fsanitize=address))
ubsan:
	$(call check_addresses,$(call SANITIZED_BUILD,$@,-fsanitize=$(UNDEFINED)))
# Both in one build and one run, for CI, which has no time for two.
asan-ubsan:
	$(call check_addresses,$(call SANITIZED_BUILD,$@,-fsanitize=address$(cuda_comma)$(UNDEFINED)))

# Data races, on the reference device: libgomp gives false alarms. Between processes a race is not seen:
# test_ranks has ranks as threads, tests/threads/run the threads of each rank. A process that sleeps a
# second at its exit, as the sanitizer has it, would be a stall (test_stall).
TSAN := BUILD=$(BUILD)/tsan CPU=no CUDA=no CFLAGS="-O1 -g" SANITIZE=-fsanitize=thread
tsan:
	$(Q)$(MAKE) $(JOBS) tests $(TSAN)
	$(Q)TSAN_OPTIONS="halt_on_error=1 exitcode=66 second_deadlock_stack=1 atexit_sleep_ms=100" \
		TEST_JOBS=$$(nproc) $(MAKE) check-threads $(TSAN)

# -O1: what tests compute is little beside what compiling them takes.
define test_rule
$(BUILD)/tests/test_%: tests/$(1)/test_%.c $(TEST_LIB_OBJ) $(LIBS)
	@echo "  TEST  $$@"
	@mkdir -p $$(@D)
	$(Q)$$(CC) $$(CPPFLAGS) $$(CFLAGS) -O1 $$(TEST_CFLAGS) $$(LDFLAGS) -MF $$@.d -o $$@ $$< $$(filter %.o,$$^) $$(filter %.a,$$^) $$(TEST_LIBS)
endef
$(foreach group,unit system long,$(eval $(call test_rule,$(group))))

$(BUILD)/obj/tests/%.o: tests/%.c
	@echo "  CC    $<"
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(TEST_CFLAGS) -fPIC -c -o $@ $<

# A strategy among them may use the library of the strategies.
$(BUILD)/tests/plugins/%.so: tests/plugins/%.c $(patsubst %.c,$(BUILD)/obj/%.o,$(lib_comm))
	@echo "  LD    $@"
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(PLUGIN_CFLAGS) $(LDFLAGS) -MF $@.d -shared -o $@ $< $(filter %.o,$^) -lm -lpthread

# They say that they are GPUs, and the driver's library tells of those.
$(BUILD)/tests/plugins/device_timed.so $(BUILD)/tests/plugins/device_copies.so: $(BUILD)/obj/plugins/devices/cuda/nvml.o

STAND_IN_CXXFLAGS = $(PLUGIN_CXXFLAGS) $(UNHARDEN) -DDPB_KERNELS_ON_HOST -D__shared__=static -ffp-contract=off -Itests/cuda $(CUDA_CFLAGS)
# Plugins share the runtime, as they share CUDA's.
STAND_IN_LIB_OBJ := $(addprefix $(BUILD)/obj/tests/cuda/,runtime.o devices.o blocks.o memory.o)
# In its loops tests of convolutions pass most of their time.
$(BUILD)/obj/tests/cuda/graph_compute.o: STAND_IN_CXXFLAGS += -O3
$(STAND_IN_LIB_OBJ): STAND_IN_CXXFLAGS += -fvisibility=default
$(BUILD)/obj/tests/cuda/%.o: tests/cuda/%.cc
	@echo "  CXX   $<"
	@mkdir -p $(@D)
	$(Q)$(CXX) $(CFLAGS) $(STAND_IN_CXXFLAGS) -c -o $@ $<
# Their templates take the compiler twice as long at -O2 -g.
$(BUILD)/obj/tests/cuda/%.o: plugins/%.cu
	@echo "  CXX   $<"
	@mkdir -p $(@D)
	$(Q)$(CXX) $(CFLAGS) -O1 -g0 $(STAND_IN_CXXFLAGS) -x c++ -c -o $@ $<
$(STAND_IN_LIB): $(STAND_IN_LIB_OBJ)
	@echo "  LD    $@"
	@mkdir -p $(@D)
	$(Q)$(CXX) -shared $(LDFLAGS) -Wl,-z,defs -Wl,-soname,$(@F) -o $@ $^
$(STAND_IN): $(STAND_IN_OBJ) $(STAND_IN_LIB)
	@echo "  LD    $@"
	@mkdir -p $(@D)
	$(Q)$(CXX) -shared $(LDFLAGS) -Wl,-z,defs -o $@ $^ -Wl,-rpath,'$$ORIGIN/..' -Wl,--version-script=mk/plugin.map -lm
$(BUILD)/obj/tests/cuda/launches.o: TEST_CFLAGS += $(CUDA_CFLAGS) -Wno-missing-prototypes
$(LAUNCHES): $(BUILD)/obj/tests/cuda/launches.o $(patsubst %.cu,$(BUILD)/obj/%.o,$(wildcard plugins/devices/cuda/*.cu))
	@echo "  LD    $@"
	@mkdir -p $(@D)
	$(Q)$(CXX) -shared $(LDFLAGS) -Wl,-z,defs -o $@ $^
$(STAND_IN_NCCL): $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard plugins/comm/nccl/*.c) $(filter-out %/library.c,$(lib_nccl)) $(lib_comm))
$(STAND_IN_NCCL_LIB): $(patsubst %.c,$(BUILD)/obj/%.o,$(lib_nccl))
$(STAND_IN_NCCL) $(STAND_IN_NCCL_LIB): $(BUILD)/obj/tests/cuda/nccl.o $(STAND_IN_LIB)
	@echo "  LD    $@"
	@mkdir -p $(@D)
	$(Q)$(CXX) -shared $(LDFLAGS) -Wl,-z,defs -o $@ $^ -Wl,-rpath,'$$ORIGIN/..' -Wl,--version-script=mk/plugin.map -lm -lpthread
# What loads libraries from beside itself.
$(STAND_IN_BESIDE): $(BUILD)/tests/cuda/plugins/%: $(BUILD)/plugins/%
	@mkdir -p $(@D)
	$(Q)cp $< $@

# For LD_PRELOAD into dpbench.
$(BUILD)/tests/preload/%.so: tests/preload/%.c
	@echo "  LD    $@"
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(TEST_CFLAGS) $(LDFLAGS) -fPIC -MF $@.d -shared -o $@ $<

$(BUILD)/tests/fakes/%: tests/fakes/$$(basename $$(basename $$(@F))).c
	@echo "  LD    $@"
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(TEST_CFLAGS) $(FAKE_FLAGS) $(LDFLAGS) -fPIC -MF $@.d -shared -Wl,-soname,$(@F) -o $@ $<
$(BUILD)/tests/fakes/cuda_without_init/%: FAKE_FLAGS = -DFAKE_WITHOUT_INIT
$(BUILD)/tests/fakes/nvml_before/%: FAKE_FLAGS = -DFAKE_BEFORE
$(BUILD)/tests/fakes/nvml_between/%: FAKE_FLAGS = -DFAKE_BETWEEN
$(BUILD)/tests/fakes/nvml_old/%: FAKE_FLAGS = -DFAKE_OLD
$(BUILD)/tests/fakes/nvml_without_energy/%: FAKE_FLAGS = -DFAKE_WITHOUT_ENERGY

-include $(wildcard $(BUILD)/tests/fakes/*/*.d $(BUILD)/tests/*.d $(BUILD)/tests/plugins/*.d \
	$(BUILD)/tests/preload/*.d)
