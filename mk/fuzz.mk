# Hostile input: tests/fuzz/fuzz_NAME.c, each one target; files that a run begins with lie in
# tests/fuzz/corpus/NAME (tests/fuzz/seeds.py makes them; a file that once was a finding stays there).
#
#   make fuzz FUZZ_S=60 [FUZZ=NAME...]   libFuzzer with address and undefined, that long each, in
#                                        $(BUILD)/fuzz; what it finds it leaves there as crash-*
#
# `make check` runs the files of the corpora through the same targets, without libFuzzer.

FUZZ_S  ?= 60
FUZZ    ?= $(patsubst tests/fuzz/fuzz_%.c,%,$(sort $(wildcard tests/fuzz/fuzz_*.c)))
FUZZ_CC ?= clang
FUZZ_BUILD := BUILD=$(BUILD)/fuzz CC=$(FUZZ_CC) CPU=no CUDA=no CFLAGS="-O1 -g -fno-omit-frame-pointer -Wno-pass-failed" \
	SANITIZE="-fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=undefined"

# What a target needs beside core.
FUZZ_NEEDS_idx     := plugins/data/idx
FUZZ_NEEDS_cifar10 := plugins/data/cifar
FUZZ_NEEDS_tokens  := plugins/data/tokens
FUZZ_NEEDS_jpeg    := $(basename $(lib_images))
FUZZ_NEEDS_pack    := $(FUZZ_NEEDS_jpeg) $(basename $(wildcard plugins/data/image_folder/*.c))
FUZZ_NEEDS_tfrecord := $(FUZZ_NEEDS_jpeg) plugins/data/tfrecord
FUZZ_NEEDS_tar     := $(FUZZ_NEEDS_jpeg) plugins/data/tar
FUZZ_NEEDS_ring    := $(basename $(lib_comm))
FUZZ_NEEDS_mesh    := $(FUZZ_NEEDS_ring)
FUZZ_NEEDS_text    := plugins/lib/tcp/interface
$(foreach c,$(call plugin_names,codecs),$(eval FUZZ_NEEDS_codec_$c := plugins/codecs/$c))
FUZZ_LIBS_idx      := -lz
FUZZ_LIBS_pack      = $(JPEG_LIBS)
FUZZ_LIBS_jpeg      = $(JPEG_LIBS)
FUZZ_LIBS_tfrecord  = $(JPEG_LIBS)
FUZZ_LIBS_tar       = $(JPEG_LIBS) $(ARCHIVE_LIBS)
FUZZ_LIBS_result   := -Wl,--wrap=dpb_machine_describe,--wrap=dpb_experiment_create,--wrap=dpb_plugin_load
FUZZ_LIBS_profile  := -Wl,--wrap=dpb_experiment_create
FUZZ_SKIPPED       := $(if $(filter yes,$(HAVE_JPEG)),,pack jpeg tfrecord) $(if $(filter yes,$(HAVE_ARCHIVE)),,tar)
FUZZ_RUN           := $(filter-out $(FUZZ_SKIPPED),$(FUZZ))
FUZZ_OBJ            = $(patsubst %,$(BUILD)/obj/%.o,tests/fuzz/fuzz_$* tests/fuzz/lib $(FUZZ_NEEDS_$*)) \
	$(LIBS)

FUZZ_REPLAYS := $(patsubst %,$(BUILD)/tests/fuzz_%,$(FUZZ_RUN))

.PHONY: fuzz fuzz-deps fuzz-programs fuzz-seeds
.SECONDARY: $(patsubst %,$(BUILD)/obj/tests/fuzz/%.o,lib replay $(addprefix fuzz_,$(FUZZ)))
.SECONDEXPANSION:
$(BUILD)/tests/fuzz_%: $$(FUZZ_OBJ) $(BUILD)/obj/tests/fuzz/replay.o
	@echo "  TEST  $@"
	@mkdir -p $(@D)
	$(Q)$(CC) $(SANITIZE) $(LDFLAGS) -o $@ $(filter %.o %.a,$^) $(FUZZ_LIBS_$*) $(CORE_LIBS)
$(BUILD)/fuzz_%: $$(FUZZ_OBJ)
	@echo "  FUZZ  $@"
	$(Q)$(CC) $(SANITIZE) $(LDFLAGS) -fsanitize=fuzzer -o $@ $(filter %.o %.a,$^) $(FUZZ_LIBS_$*) $(CORE_LIBS)

fuzz-programs: $(patsubst %,$(BUILD)/fuzz_%,$(FUZZ_RUN))
fuzz: fuzz-deps
	$(Q)$(MAKE) fuzz-programs FUZZ="$(FUZZ)" $(FUZZ_BUILD)
	$(Q)tests/fuzz/run $(BUILD)/fuzz $(FUZZ_S) $(FUZZ_RUN)
fuzz-deps:
	$(Q)tools/packages clang libclang-rt-14-dev
fuzz-seeds:
	$(Q)tests/fuzz/seeds.py tests/fuzz/corpus
