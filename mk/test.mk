# Tests. A unit test is tests/unit/test_NAME.c, a system test (which runs dpbench itself) is
# tests/system/test_NAME.c; both are cmocka programs. A script that counts
# may be one, too: tests/system/NAME.sh or NAME.py. tests/plugins/KIND_NAME.c are plugins that only
# tests use: $(BUILD)/tests/plugins/KIND_NAME.so. tests/preload/NAME.c are for LD_PRELOAD,
# tests/fakes/NAME.c stand in for a library NAME.so.1.

TEST_CFLAGS := $(COMMON) -Icore/include -Icore -Iplugins -I. -Itests -Itests/unit
TEST_LIBS   := -lcmocka $(CORE_LIBS)

UNIT_TESTS   := $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(sort $(wildcard tests/unit/test_*.c)))
UNIT_TESTS   += $(FUZZ_REPLAYS)
SYSTEM_TESTS := $(patsubst tests/system/%.c,$(BUILD)/tests/%,$(sort $(wildcard tests/system/test_*.c)))
SYSTEM_SCRIPTS := $(sort $(wildcard tests/system/*.sh tests/system/*.py))
LONG_TESTS   := $(patsubst tests/long/%.c,$(BUILD)/tests/%,$(sort $(wildcard tests/long/test_*.c)))
TEST_LIB_OBJ := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tests/lib/*.c))
TEST_PLUGINS := $(patsubst tests/plugins/%.c,$(BUILD)/tests/plugins/%.so,$(wildcard tests/plugins/*.c))
TEST_PRELOADS := $(patsubst tests/preload/%.c,$(BUILD)/tests/preload/%.so,$(wildcard tests/preload/*.c))
# Libraries that stand in for NVIDIA's, each alone in a directory for LD_LIBRARY_PATH.
TEST_FAKES := $(addprefix $(BUILD)/tests/fakes/,cuda/libcuda.so.1 cuda_without_init/libcuda.so.1 \
	$(addsuffix /libnvidia-ml.so.1,nvml nvml_before nvml_between nvml_old nvml_without_energy))
ifneq ($(HAVE_VERBS),yes)
TEST_PRELOADS := $(filter-out %/break_queue_pair.so,$(TEST_PRELOADS))
endif
# The oracle of tests/lib/opcheck.c.
TEST_LIB_OBJ += $(BUILD)/obj/plugins/devices/reference/ops.o $(BUILD)/obj/plugins/devices/reference/magnitudes.o

.SECONDARY: $(TEST_LIB_OBJ)
CPU_TESTS    := $(filter $(BUILD)/tests/test_cpu%,$(UNIT_TESTS))
ifneq ($(HAVE_CPU),yes)
UNIT_TESTS := $(filter-out $(CPU_TESTS),$(UNIT_TESTS))
endif
# These write their images by libjpeg.
IMAGE_TESTS := $(addprefix $(BUILD)/tests/test_image_,folder damage training)
ifeq ($(HAVE_JPEG),yes)
$(IMAGE_TESTS): TEST_LIBS += $(JPEG_LIBS)
else
UNIT_TESTS   := $(filter-out $(IMAGE_TESTS),$(UNIT_TESTS))
SYSTEM_TESTS := $(filter-out $(IMAGE_TESTS),$(SYSTEM_TESTS))
endif

ifneq ($(HAVE_GLOO),yes)
SYSTEM_TESTS := $(filter-out $(BUILD)/tests/test_gloo,$(SYSTEM_TESTS))
endif
# Without libibverbs rdma_vm.sh fails, unless that is what was asked for.
ifeq ($(HAVE_VERBS),yes)
$(BUILD)/tests/test_rdma_failure: $(BUILD)/obj/plugins/lib/verbs/failure.o
$(BUILD)/tests/test_rdma_failure: TEST_LIBS += $(VERBS_LIBS)
else
UNIT_TESTS   := $(filter-out %/test_rdma_failure,$(UNIT_TESTS))
SYSTEM_TESTS := $(filter-out %/test_verbs,$(SYSTEM_TESTS))
endif
ifeq ($(VERBS),no)
SYSTEM_SCRIPTS := $(filter-out %/rdma_vm.sh,$(SYSTEM_SCRIPTS))
endif

ifneq ($(HAVE_MPI),yes)
SYSTEM_TESTS := $(filter-out $(BUILD)/tests/test_mpi,$(SYSTEM_TESTS))
endif
# The cuda device on a CUDA for tests: its kernels as C++ for the processor, and NVIDIA's libraries in
# plain loops. Threads of a block have stacks of their own, which sanitizers take for errors.
STAND_IN     := $(BUILD)/tests/cuda/plugins/device_cuda.so
STAND_IN_LIB := $(BUILD)/tests/cuda/libstand_in.so
STAND_IN_OBJ := $(addprefix $(BUILD)/obj/tests/cuda/,libraries.o graphs.o) \
	$(patsubst plugins/%.cu,$(BUILD)/obj/tests/cuda/%.o,$(wildcard plugins/devices/cuda/*.cu)) \
	$(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard plugins/devices/cuda/*.c) $(lib_devices))
STAND_IN_TESTS := $(addprefix $(BUILD)/tests/test_,cuda cuda_arenas cuda_faults cuda_fusion cuda_layouts cuda_queues cuda_runs device_runs \
	gpu_missing)
# comm nccl and hierarchical on it, with a NCCL for tests.
STAND_IN_NCCL := $(BUILD)/tests/cuda/plugins/comm_nccl.so
STAND_IN_NCCL_LIB := $(BUILD)/tests/cuda/plugins/libdpbench-nccl.so
STAND_IN_BESIDE := $(patsubst %,$(BUILD)/tests/cuda/plugins/%,comm_hierarchical.so $(notdir $(MPI_OBJECT)))
STAND_IN_COMMS := $(STAND_IN_NCCL) $(STAND_IN_NCCL_LIB) $(STAND_IN_BESIDE)
ifeq ($(filter devices/cuda comm/nccl,$(SKIPPED))$(SANITIZE),)
$(addprefix $(BUILD)/tests/test_,nccl conf cuda_faults device_runs combinations all_combinations mpi pauses): \
	| $(STAND_IN) $(STAND_IN_COMMS)
$(BUILD)/tests/test_nccl_stand_in: $(BUILD)/obj/tests/cuda/nccl.o $(STAND_IN_LIB)
$(BUILD)/tests/test_nccl_stand_in: TEST_CFLAGS += $(CUDA_CFLAGS)
$(BUILD)/tests/test_nccl_stand_in: TEST_LIBS += $(STAND_IN_LIB) -Wl,-rpath,'$$ORIGIN/cuda' -lstdc++
else
UNIT_TESTS   := $(filter-out %/test_nccl_stand_in,$(UNIT_TESTS))
SYSTEM_TESTS := $(filter-out %/test_nccl,$(SYSTEM_TESTS))
endif
ifeq ($(filter devices/cuda,$(SKIPPED))$(SANITIZE),)
$(STAND_IN_TESTS) $(BUILD)/tests/test_conf: | $(STAND_IN)
$(BUILD)/tests/test_cuda $(BUILD)/tests/test_cuda_fusion $(BUILD)/tests/test_cuda_layouts: TEST_CFLAGS += $(CUDA_CFLAGS)
$(BUILD)/tests/test_cuda: $(patsubst %.c,$(BUILD)/obj/%.o,$(lib_devices))
# The device as it is, with cuDNN as it is.
$(BUILD)/tests/test_cudnn_plans: TEST_CFLAGS += $(CUDA_CFLAGS)
$(BUILD)/tests/test_cudnn_plans: $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard plugins/devices/cuda/*.c) $(lib_devices) $(lib_cuda)) \
	$(patsubst %.cu,$(BUILD)/obj/%.o,$(wildcard plugins/devices/cuda/*.cu))
$(BUILD)/tests/test_cudnn_plans: TEST_LIBS += -Wl,--wrap=cudnnBackendSetAttribute \
	$(filter-out -Wl$(cuda_comma)--version-script=%,$(call cuda_links,$(CUDA_NEEDS_devices/cuda))) -ldl
else
UNIT_TESTS   := $(filter-out $(STAND_IN_TESTS) %/test_cudnn_plans,$(UNIT_TESTS))
SYSTEM_TESTS := $(filter-out $(STAND_IN_TESTS),$(SYSTEM_TESTS))
endif

# These test a library of the plugins'.
LIB_TESTS := $(addprefix $(BUILD)/tests/test_,interface mesh ring ring_tcp)
$(LIB_TESTS): $(patsubst %.c,$(BUILD)/obj/%.o,$(lib_comm))

$(BUILD)/tests/test_cuda_driver: $(BUILD)/obj/plugins/lib/cuda/driver.o

# Its clock stands still at times.
$(BUILD)/tests/test_links: TEST_LIBS += -Wl,--wrap=dpb_now_ns

# It measures by a program of bench.
$(BUILD)/tests/test_network_speed: | $(BUILD)/bench/all_reduce

.PHONY: tests check check-unit check-untimed check-leaks check-threads check-install check-long \
	mutants asan ubsan asan-ubsan tsan
tests: all $(UNIT_TESTS) $(SYSTEM_TESTS) $(LONG_TESTS) $(TEST_PLUGINS) $(TEST_PRELOADS) $(TEST_FAKES)

# Two of these run at a time, the longest first: they compute, or have deadlines far above what they need.
PAIRED_TESTS := $(filter $(UNIT_TESTS) $(SYSTEM_SCRIPTS) $(SYSTEM_TESTS), \
	$(addprefix $(BUILD)/tests/test_,identity learning exchange cpu_models conf mutants comm_command) \
	$(addprefix tests/system/,rdma_vm.sh install.sh headers.sh layers.sh bench.py) \
	$(addprefix $(BUILD)/tests/test_,pauses ps_cpu traffic effects combinations cuda cuda_runs nccl cpu \
		image_training reference_gradients cuda_arenas cuda_queues device_runs launchers mpi gloo \
		cuda_faults cuda_fusion cuda_layouts faults network world cli gpu_missing continue full_disk \
		gpu_clocks image_folder store flags cudnn_plans))
check: tests
	$(Q)BUILD=$(BUILD) tools/run-tests $(PAIRED_TESTS) -- \
		$(filter-out $(PAIRED_TESTS),$(UNIT_TESTS) $(SYSTEM_SCRIPTS) $(SYSTEM_TESTS))
# A guest is slow enough without a sanitizer.
GUEST_SCRIPTS := tests/system/rdma_vm.sh
# What a sanitizer slows down is no test of times, nor of two epochs' learning; and what goes the ways
# of other tests on larger networks (conf, identity) or by mutants takes too long under one.
TIMED_TESTS := $(addprefix $(BUILD)/tests/test_,measuring overlap learning conf identity mutants)
UNTIMED_TESTS := $(filter-out $(GUEST_SCRIPTS) $(TIMED_TESTS),$(SYSTEM_SCRIPTS) $(SYSTEM_TESTS))
check-untimed: tests
	$(Q)BUILD=$(BUILD) tools/run-tests $(filter $(PAIRED_TESTS),$(UNTIMED_TESTS)) -- \
		$(filter-out $(PAIRED_TESTS),$(UNTIMED_TESTS))
check-leaks: tests
	$(Q)BUILD=$(BUILD) tools/run-tests $(filter-out $(CPU_TESTS),$(UNIT_TESTS))
# Of the system tests all that run jobs, but those of times. They take minutes: THREAD_SYSTEM="nan
# continue" runs these alone.
THREAD_SYSTEM ?= combinations continue effects exchange faults full_disk identity mutants nan ps_cpu \
	stall traffic
THREAD_TESTS = $(UNIT_TESTS) $(addprefix $(BUILD)/tests/test_,$(THREAD_SYSTEM))
check-threads: tests
	$(Q)BUILD=$(BUILD) tools/run-tests $(THREAD_TESTS) tests/threads/run
check-unit: tests
	$(Q)BUILD=$(BUILD) tools/run-tests $(UNIT_TESTS)
# One test program: make check-feed
check-%: tests
	$(Q)BUILD=$(BUILD) tools/run-tests $(BUILD)/tests/test_$*

# What needs a GPU, in minutes: `make check-gpu`; on a machine that cannot build what `make gpu-pack` packs,
# and then `tests/gpu/run build` (docs/gpu-status.md).
.PHONY: check-gpu gpu-pack
check-gpu: tests
	$(Q)tests/gpu/run $(BUILD)
gpu-pack: tests
	$(Q)tests/gpu/pack $(BUILD) $(BUILD)/gpu-pack.tar.gz

# The documents' commands on a bare Debian that is made for it, as root or by sudo.
check-install: all
	$(Q)BUILD=$(BUILD) TEST_TIMEOUT_S=1800 tools/run-tests tests/install/bare-root

# What takes longer than `make check` may: other strategies' accuracy, PyTorch in its own venv, all
# cells of the matrices that test_identity and test_exchange take a part of.
# LONG="models random_faults": of tests/long only these.
LONG_SCRIPT_pytorch    := tests/pytorch/run
LONG_SCRIPT_rdma_vm    := tests/long/rdma_vm.sh
LONG_SCRIPT_rdma_speed := tests/long/rdma_speed.sh
LONG_SCRIPT_openmpi5   := tests/long/openmpi5/run
LONG ?= identity exchange pauses $(if $(filter %/test_device_runs,$(SYSTEM_TESTS)),device_runs) \
	$(patsubst $(BUILD)/tests/test_%,%,$(LONG_TESTS)) pytorch rdma_vm rdma_speed openmpi5
check-long: tests $(BUILD)/bench/all_reduce
	$(Q)BUILD=$(BUILD) DPB_ALL_CELLS=1 TEST_TIMEOUT_S=1800 tools/run-tests \
		$(foreach t,$(LONG),$(or $(LONG_SCRIPT_$(t)),$(BUILD)/tests/test_$(t)))
	$(Q)$(MAKE) fuzz

# Every check must catch what it is there for: each mutant of each strategy.
mutants: tests
	$(Q)BUILD=$(BUILD) DPB_ALL_MUTANTS=1 tools/run-tests \
		$(filter %/test_mutants %/test_device_runs,$(SYSTEM_TESTS))

# The same suite under a sanitizer, in a build directory of its own. oneDNN's and libgomp's threads
# keep what they allocate until the end of the process. Leaks are looked for where oneDNN is not loaded:
# there LeakSanitizer's own tracer crashes now and then, which would fail a run that has no leak.
define check_addresses
	$(Q)ASAN_OPTIONS=detect_leaks=1 LSAN_OPTIONS=suppressions=$(CURDIR)/tests/lsan.supp \
		UBSAN_OPTIONS=print_stacktrace=1 $(MAKE) check-leaks $(1)
	$(Q)ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
		$(MAKE) check-untimed $(if $(filter yes,$(HAVE_CPU)),check-cpu check-cpu_models) $(1)
endef
ASAN := BUILD=$(BUILD)/asan ONEDNN=$(ONEDNN) CUDA=no CFLAGS="-O1 -g -fno-omit-frame-pointer" \
	SANITIZE=-fsanitize=address
asan:
	$(call check_addresses,$(ASAN))

UBSAN := BUILD=$(BUILD)/ubsan ONEDNN=$(ONEDNN) CUDA=no CFLAGS="-O1 -g" \
	SANITIZE="-fsanitize=undefined -fno-sanitize-recover=undefined"
ubsan:
	$(Q)UBSAN_OPTIONS=print_stacktrace=1 $(MAKE) check-unit $(UBSAN)
	$(Q)UBSAN_OPTIONS=print_stacktrace=1 $(MAKE) check-untimed $(UBSAN)

# Both in one build and one run, for CI, which has no time for two.
ASAN_UBSAN := BUILD=$(BUILD)/asan-ubsan ONEDNN=$(ONEDNN) CUDA=no CFLAGS="-O1 -g -fno-omit-frame-pointer" \
	SANITIZE="-fsanitize=address,undefined -fno-sanitize-recover=undefined"
asan-ubsan:
	$(call check_addresses,$(ASAN_UBSAN))

# Data races, on the reference device: libgomp gives false alarms. Between processes a race is not seen:
# test_ranks has ranks as threads, tests/threads/run the threads of each rank.
TSAN := BUILD=$(BUILD)/tsan CPU=no CUDA=no CFLAGS="-O1 -g" SANITIZE=-fsanitize=thread
tsan:
	$(Q)TSAN_OPTIONS="halt_on_error=1 exitcode=66 second_deadlock_stack=1" \
	$(MAKE) check-threads $(TSAN)

$(BUILD)/tests/test_%: tests/unit/test_%.c $(TEST_LIB_OBJ) $(BUILD)/libcore.a
	@echo "  TEST  $@"
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(TEST_CFLAGS) -MF $@.d -o $@ $< $(filter %.o %.a,$^) $(TEST_LIBS)
$(BUILD)/tests/test_%: tests/system/test_%.c $(TEST_LIB_OBJ) $(BUILD)/libcore.a
	@echo "  TEST  $@"
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(TEST_CFLAGS) -MF $@.d -o $@ $< $(filter %.o %.a,$^) $(TEST_LIBS)
$(BUILD)/tests/test_%: tests/long/test_%.c $(TEST_LIB_OBJ) $(BUILD)/libcore.a
	@echo "  TEST  $@"
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(TEST_CFLAGS) -MF $@.d -o $@ $< $(filter %.o %.a,$^) $(TEST_LIBS)

$(BUILD)/obj/tests/%.o: tests/%.c
	@echo "  CC    $<"
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(TEST_CFLAGS) -fPIC -c -o $@ $<

# A strategy among them may use the library of the strategies.
$(BUILD)/tests/plugins/%.so: tests/plugins/%.c $(patsubst %.c,$(BUILD)/obj/%.o,$(lib_comm))
	@echo "  LD    $@"
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(PLUGIN_CFLAGS) -MF $@.d -shared -o $@ $< $(filter %.o,$^) -lm -lpthread

# They say that they are GPUs, and the driver's library tells of those.
$(BUILD)/tests/plugins/device_timed.so $(BUILD)/tests/plugins/device_copies.so: $(BUILD)/obj/plugins/devices/cuda/nvml.o

STAND_IN_CXXFLAGS = $(PLUGIN_CXXFLAGS) $(UNHARDEN) -DDPB_KERNELS_ON_HOST -D__shared__=static -ffp-contract=off -Itests/cuda $(CUDA_CFLAGS)
# Plugins share the runtime, as they share CUDA's.
STAND_IN_LIB_OBJ := $(addprefix $(BUILD)/obj/tests/cuda/,runtime.o memory.o)
$(STAND_IN_LIB_OBJ): STAND_IN_CXXFLAGS += -fvisibility=default
$(BUILD)/obj/tests/cuda/%.o: tests/cuda/%.cc
	@echo "  CXX   $<"
	@mkdir -p $(@D)
	$(Q)$(CXX) $(CFLAGS) $(STAND_IN_CXXFLAGS) -c -o $@ $<
$(BUILD)/obj/tests/cuda/%.o: plugins/%.cu
	@echo "  CXX   $<"
	@mkdir -p $(@D)
	$(Q)$(CXX) $(CFLAGS) $(STAND_IN_CXXFLAGS) -x c++ -c -o $@ $<
$(STAND_IN_LIB): $(STAND_IN_LIB_OBJ)
	@echo "  LD    $@"
	@mkdir -p $(@D)
	$(Q)$(CXX) -shared -Wl,-z,defs -Wl,-soname,$(@F) -o $@ $^
$(STAND_IN): $(STAND_IN_OBJ) $(STAND_IN_LIB)
	@echo "  LD    $@"
	@mkdir -p $(@D)
	$(Q)$(CXX) -shared -Wl,-z,defs -o $@ $^ -Wl,-rpath,'$$ORIGIN/..' -Wl,--version-script=mk/plugin.map -lm
$(STAND_IN_NCCL): $(patsubst %.c,$(BUILD)/obj/%.o,plugins/comm/nccl.c $(filter-out %/library.c,$(lib_nccl)) $(lib_comm))
$(STAND_IN_NCCL_LIB): $(patsubst %.c,$(BUILD)/obj/%.o,$(lib_nccl))
$(STAND_IN_NCCL) $(STAND_IN_NCCL_LIB): $(BUILD)/obj/tests/cuda/nccl.o $(STAND_IN_LIB)
	@echo "  LD    $@"
	@mkdir -p $(@D)
	$(Q)$(CXX) -shared -Wl,-z,defs -o $@ $^ -Wl,-rpath,'$$ORIGIN/..' -Wl,--version-script=mk/plugin.map -lm -lpthread
# What loads libraries from beside itself.
$(STAND_IN_BESIDE): $(BUILD)/tests/cuda/plugins/%: $(BUILD)/plugins/%
	@mkdir -p $(@D)
	$(Q)cp $< $@

# For LD_PRELOAD into dpbench.
$(BUILD)/tests/preload/%.so: tests/preload/%.c
	@echo "  LD    $@"
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(TEST_CFLAGS) -fPIC -MF $@.d -shared -o $@ $<

$(BUILD)/tests/fakes/%: tests/fakes/$$(basename $$(basename $$(@F))).c
	@echo "  LD    $@"
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(TEST_CFLAGS) $(FAKE_FLAGS) -fPIC -MF $@.d -shared -Wl,-soname,$(@F) -o $@ $<
$(BUILD)/tests/fakes/cuda_without_init/%: FAKE_FLAGS = -DFAKE_WITHOUT_INIT
$(BUILD)/tests/fakes/nvml_before/%: FAKE_FLAGS = -DFAKE_BEFORE
$(BUILD)/tests/fakes/nvml_between/%: FAKE_FLAGS = -DFAKE_BETWEEN
$(BUILD)/tests/fakes/nvml_old/%: FAKE_FLAGS = -DFAKE_OLD
$(BUILD)/tests/fakes/nvml_without_energy/%: FAKE_FLAGS = -DFAKE_WITHOUT_ENERGY

-include $(wildcard $(BUILD)/tests/fakes/*/*.d $(BUILD)/tests/*.d $(BUILD)/tests/plugins/*.d)
