/* needs: threads built */
/*
 * test_effects.c - no option is only echoed: for each one, two runs that differ in it alone differ
 * in what is observed: losses, numbers of ranks, steps and bytes, files, exit codes. A row for
 * every option of core and of all plugins that were built: one without a row fails the test.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/sandbox.h"
#include "lib/test.h"
#include "lib/training.h"

/* Where the difference is looked for, beside paths into the result. */
#define EXIT_CODE "exit code"
#define FILES "files"     /* in the directory `out` */
#define PROFILE "profile" /* whether there is one: it is full of times */

struct effect {
    const char *option;
    const char *settings; /* of both runs */
    const char *a, *b;    /* values; "": left out */
    const char *seen;
};

/* Runs that are quick: what the rows say comes later and wins. */
static const char base[] =
    "-c empty.ini --json run.results=results run.steady_limit_s=0 run.warmup_steps=0 run.batch=2 "
    "data.name=synthetic data.samples=24 data.test_samples=6 model.name=tiny device.name=reference "
    "device.threads=1 run.precision=fp64 optimizer.learning_rate=0.1";

#define STEPS "run.steps=4 "
#define GATE                                                                                     \
    STEPS "run.steady_limit_s=0.2s run.steady_window=4 run.steady_windows=1 run.steady_drift=1 " \
          "run.steady_spread=10 "
#define GPT                                                                            \
    STEPS "model.name=gpt model.layers=1 model.heads=2 model.width=8 model.context=8 " \
          "model.nclass=9 "
#define TWO "run.workers=2 comm.name=shm "
#define ASYNC "comm.name=ps_async run.servers=1 "
#define CODEC TWO "run.precision=fp32 "
#define RING "run.workers=2 comm.name=ring_tcp "

static const struct effect effects[] = {
    {"run.name", STEPS, "left", "right", "name"},
    {"run.workers", STEPS, "1", "2", "ranks"},
    {"run.learners", STEPS "device.threads=2", "1", "2", "ranks"},
    {"run.servers", STEPS "comm.name=ps_cpu", "1", "2", "ranks"},
    {"run.mode", STEPS, "train", "forward", "loss"},
    {"run.batch", STEPS, "2", "3", "loss"},
    {"run.accumulate", STEPS, "1", "2", "loss"},
    {"run.survive", STEPS "run.workers=2 comm.name=shm", "no", "yes", EXIT_CODE},
    {"run.steps", "", "2", "3", "loss"},
    {"run.seconds", "", "0.05s", "0.4s", "loss"},
    {"run.epochs", "", "1", "2", "loss"},
    {"run.warmup_steps", STEPS, "0", "3", "loss"},
    {"run.steady_window", GATE, "4", "9", "timing.warmup_steps"},
    /* So many windows that a disturbance cannot make as many of one. */
    {"run.steady_windows", GATE, "1", "40", "timing.warmup_steps"},
    {"run.steady_drift", GATE "run.steps=400", "1", "1e-6", "timing.steady"},
    {"run.steady_spread", GATE "run.steps=400", "10", "1e-6", "timing.steady"},
    {"run.steady_limit_s", STEPS, "0.2s", "0", "timing.gated"},
    {"run.require_steady", GATE "run.steady_spread=1e-6", "no", "yes", EXIT_CODE},
    {"run.precision", STEPS, "fp64", "fp32", "loss"},
    {"run.seed", STEPS, "1", "2", "loss"},
    {"run.results", STEPS, "results", "out", FILES},
    {"run.prove", STEPS TWO, "no", "yes", "verification.exchange"},
    {"run.nan", "run.steps=40 run.precision=fp32 optimizer.learning_rate=1e6 optimizer.momentum=0",
     "stop", "continue", EXIT_CODE},
    {"run.delay", STEPS, "none", "constant(1ms)", "ranks.0.breakdown_ns.delay"},
    {"run.delay_ranks", STEPS TWO "run.delay=constant(1ms)", "0", "1",
     "ranks.1.breakdown_ns.delay"},
    {"run.monitor", STEPS, "0", "10ms", "monitor"},
    {"run.profile", STEPS "run.precision=fp32 device.name=cpu", "no", "yes", PROFILE},
    {"model.name", STEPS, "tiny", "tiny_bn", "model.parameters"},
    {"model.layers", GPT, "1", "2", "model.parameters"},
    {"model.heads", GPT, "1", "2", "loss"},
    {"model.width", GPT, "4", "8", "model.parameters"},
    {"model.context", GPT, "8", "9", "model.parameters"},
    {"model.tied", GPT, "yes", "no", "model.parameters"},
    {"model.patch", STEPS "model.name=vit model.layers=1 model.heads=1 model.width=4 model.image=8",
     "4", "8", "model.macs_per_sample"},
    {"model.nclass", STEPS, "4", "5", "model.parameters"},
    {"model.image", STEPS, "9", "11", "model.macs_per_sample"},
    {"model.label_smoothing", STEPS, "0", "0.1", "loss"},
    {"data.shuffle", STEPS, "yes", "no", "loss"},
    {"data.shard", STEPS TWO, "no", "yes", "loss"},
    {"data.samples", "run.epochs=1", "24", "12", "loss"},
    {"data.test_samples", STEPS "eval.final=yes", "6", "5", "eval.0.samples"},
    {"data.distinct", STEPS, "0", "2", "loss"},
    {"data.type", STEPS, "uint8", "fp32", "loss"},
    {"device.name", STEPS "run.precision=fp32", "reference", "cpu", "loss"},
    {"device.threads", STEPS, "1", "2", "ranks.0.threads"},
    {"comm.name", STEPS TWO, "shm", "independent", "loss"},
    {"comm.transport", STEPS TWO "comm.name=gloo", "tcp", "ibverbs", EXIT_CODE},
    {"comm.transport", STEPS TWO "comm.name=hierarchical", "tcp", "mpi", EXIT_CODE},
    {"comm.transport", STEPS TWO "comm.name=ps_cpu comm.hosts=1+1 comm.interface=lo", "tcp",
     "verbs", EXIT_CODE},
    {"comm.bound", STEPS ASYNC, "-1", "2", "strategy.consistency"},
    {"comm.log", STEPS ASYNC, "", "out/log", FILES},
    {"comm.push_every", STEPS ASYNC, "1", "2", "comm.bytes_per_step"},
    {"comm.fetch_every", STEPS ASYNC, "1", "2", "loss"},
    {"comm.interface", STEPS TWO "comm.name=gloo", "lo", "no_such", EXIT_CODE},
    {"comm.gradient", STEPS TWO "run.precision=fp32", "fp32", "bf16", "comm.bytes_per_step"},
    {"comm.codec", STEPS TWO "run.precision=fp32", "none", "int8", "comm.bytes_per_step"},
    {"comm.codec_feedback", STEPS CODEC "comm.codec=topk", "no", "yes", "loss"},
    {"comm.codec_start_step", STEPS CODEC "comm.codec=topk", "0", "2", "loss"},
    {"comm.codec_ratio", STEPS CODEC "comm.codec=topk", "0.1", "0.2", "comm.bytes_per_step"},
    {"comm.codec_back", STEPS CODEC "comm.codec=topk comm.name=ps_cpu", "no", "yes",
     "comm.bytes_per_step"},
    {"comm.codec_momentum", STEPS CODEC "comm.codec=topk optimizer.momentum=0", "0", "0.9", "loss"},
    {"comm.codec_warmup_steps", STEPS CODEC "comm.codec=topk", "0", "4", "comm.bytes_per_step"},
    {"comm.codec_rounding", STEPS CODEC "comm.codec=int8", "nearest", "stochastic", "loss"},
    {"comm.codec_format", STEPS CODEC "comm.codec=fp8", "e4m3", "e5m2", "loss"},
    {"comm.codec_levels", STEPS CODEC "comm.codec=qsgd", "7", "8", "comm.bytes_per_step"},
    {"comm.codec_rank", STEPS CODEC "comm.codec=powersgd", "1", "2", "comm.bytes_per_step"},
    {"comm.codec_threshold", STEPS CODEC "comm.codec=threshold", "0.001", "0.1", "loss"},
    {"comm.late", STEPS TWO, "0", "1", "loss"},
    {"comm.hosts", STEPS "run.workers=2", "2", "1+1", "ranks.1.machine"},
    {"comm.chunk", STEPS RING "comm.inbox=64KiB", "16KiB", "17KiB", EXIT_CODE},
    {"comm.inbox", STEPS RING "comm.chunk=16KiB", "64KiB", "63KiB", EXIT_CODE},
    {"comm.interface", STEPS RING, "lo", "127.0.0.2", EXIT_CODE},
    {"comm.port", STEPS RING, "0", "65535", EXIT_CODE},
    {"comm.shard", STEPS TWO "comm.gradient=bf16 run.precision=fp32", "none", "optimizer",
     "comm.bytes_per_step"},
    {"comm.period", STEPS TWO "comm.name=local_sgd", "1", "2", "loss"},
    {"comm.average_state", STEPS TWO "comm.name=local_sgd comm.period=1", "no", "yes", "loss"},
    {"comm.outer_late", STEPS TWO "run.precision=fp32 comm.name=diloco comm.period=1", "0", "1",
     "loss"},
    {"comm.outer_rate", STEPS TWO "comm.name=diloco comm.period=1", "0.7", "0.5", "loss"},
    {"comm.outer_momentum", STEPS TWO "comm.name=diloco comm.period=1", "0.9", "0.5", "loss"},
    {"comm.alpha", STEPS TWO "comm.name=easgd comm.period=1", "0", "0.1", "loss"},
    {"comm.local_centers", "run.steps=8 " TWO "comm.name=sma", "no", "yes", "loss"},
    {"comm.momentum_on_center", "run.steps=8 " TWO "comm.name=sma", "yes", "no", "loss"},
    {"comm.restart",
     "run.epochs=2 data.samples=16 optimizer.schedule=step optimizer.decay_at=1 " TWO
     "comm.name=sma",
     "0", "0.2", "loss"},
    {"comm.center_momentum", "run.steps=8 " TWO "comm.name=sma", "0.9", "0.5", "loss"},
    {"comm.matching", STEPS "run.workers=3 comm.name=gossip", "ring", "random", "loss"},
    {"comm.seed", STEPS "run.workers=4 comm.name=gossip comm.matching=random", "1", "2", "loss"},
    {"optimizer.name", STEPS "optimizer.learning_rate=0.01", "sgd", "adagrad", "loss"},
    {"optimizer.learning_rate", STEPS, "0.1", "0.2", "loss"},
    {"optimizer.momentum", STEPS, "0.9", "0.5", "loss"},
    {"optimizer.nesterov", STEPS, "no", "yes", "loss"},
    {"optimizer.weight_decay", STEPS, "0", "0.1", "loss"},
    {"optimizer.epsilon", STEPS "optimizer.name=adagrad", "1e-10", "1", "loss"},
    {"optimizer.beta1", STEPS "optimizer.name=adam", "0.9", "0.5", "loss"},
    {"optimizer.beta2", STEPS "optimizer.name=adam", "0.999", "0.5", "loss"},
    {"optimizer.decoupled_decay", STEPS "optimizer.name=adam optimizer.weight_decay=0.1", "no",
     "yes", "loss"},
    {"optimizer.rms_decay", STEPS "optimizer.name=rmsprop", "0.9", "0.5", "loss"},
    {"optimizer.trust", STEPS "optimizer.name=lars", "0.001", "0.002", "loss"},
    {"optimizer.clip_norm", STEPS, "0", "0.01", "loss"},
    {"optimizer.schedule", STEPS, "constant", "cosine", "loss"},
    {"optimizer.decay_at", "run.epochs=2 optimizer.schedule=step", "1", "1.5", "loss"},
    {"optimizer.rates", "run.epochs=2 optimizer.schedule=piecewise optimizer.decay_at=1", "0.01",
     "0.02", "loss"},
    {"optimizer.decay_factor", "run.epochs=2 optimizer.schedule=step optimizer.decay_at=0.2", "0.1",
     "0.5", "loss"},
    {"optimizer.decay_power", STEPS "optimizer.schedule=polynomial", "1", "2", "loss"},
    {"optimizer.end_rate", STEPS "optimizer.schedule=polynomial", "0", "0.05", "loss"},
    {"optimizer.warmup_epochs", STEPS "optimizer.linear_scaling=yes", "0", "1", "loss"},
    {"optimizer.warmup_epochs", STEPS, "0", "1", "loss"},
    {"optimizer.linear_scaling", STEPS, "no", "yes", "loss"},
    {"optimizer.linear_base", STEPS "optimizer.linear_scaling=yes", "256", "4", "loss"},
    {"eval.every", STEPS, "0", "2", "eval"},
    {"eval.every_epochs", STEPS, "0", "0.25", "eval"},
    {"eval.batches", STEPS "eval.final=yes", "0", "2", "eval.0.samples"},
    {"eval.final", STEPS, "no", "yes", "eval"},
    {"eval.target", "run.steps=40 eval.every=1", "0", "1e-9", "loss"},
    {"eval.target_loss", "run.steps=40 eval.every=1", "0", "1e6", "loss"},
    {"eval.require_target", STEPS "eval.every=4 eval.target=1", "no", "yes", EXIT_CODE},
    {"checkpoint.load", STEPS, "", "begun.safetensors", "loss"},
    {"checkpoint.resume", STEPS "checkpoint.load=begun.safetensors", "yes", "no",
     "timing.first_step"},
    {"checkpoint.save", STEPS, "", "out/a.safetensors", FILES},
    {"checkpoint.at", STEPS "checkpoint.save=out/a.safetensors", "2", "3", FILES},
    {"checkpoint.every", STEPS "checkpoint.save=out/a.safetensors", "0", "3", FILES},
    {"model.zero_gamma", "run.steps=2 run.batch=2 model.name=resnet20 model.image=16", "no", "yes",
     "loss"},
    {"model.form",
     "run.steps=1 run.mode=forward model.name=densenet40_k12 model.image=8 run.batch=1", "paper",
     "tf", "model.macs_per_sample"},
    {"model.version",
     "run.steps=1 run.mode=forward model.name=resnet50 model.image=32 run.batch=1 device.name=cpu "
     "run.precision=fp32",
     "v1", "v1.5", "model.macs_per_sample"},
};

/* Options that show where something is slow, wrong or damaged, and the tests that see to that. */
static const struct {
    const char *option, *test;
} elsewhere[] = {
    {"checkpoint.layout", "gpt2.py"},
    {"checkpoint.partial", "test_contracts"},
    {"checkpoint.place", "test_restart"},
    {"comm.ack_timeout", "rdma_vm.sh"},
    {"comm.algo", "test_nccl"},
    {"comm.algorithm", "test_gloo"},
    {"comm.bucket", "test_overlap"},
    {"comm.capture", "test_nccl"},
    {"comm.device", "rdma_vm.sh"},
    {"comm.gid_index", "rdma_vm.sh"},
    {"comm.host_ids", "test_nccl"},
    {"comm.inside", "test_device_runs"},
    {"comm.k", "test_ps_async"},
    {"comm.max_ctas", "test_nccl"},
    {"comm.min_ctas", "test_nccl"},
    {"comm.policy", "test_ps_async"},
    {"comm.poll", "rdma_vm.sh"},
    {"comm.proto", "test_nccl"},
    {"comm.rate", "test_ps_async"},
    {"comm.shards", "test_device_strategies"},
    {"comm.softsync", "test_ps_async"},
    {"comm.streams", "test_ring_tcp"},
    {"comm_test.barrier", "test_comm_command"},
    {"comm_test.codecs", "test_comm_command"},
    {"comm_test.iterations", "test_comm_command"},
    {"comm_test.max_bytes", "test_comm_command"},
    {"comm_test.min_bytes", "test_comm_command"},
    {"comm_test.operation", "test_collectives"},
    {"comm_test.seconds", "test_comm_command"},
    {"comm_test.sizes", "test_comm_command"},
    {"comm_test.step_factor", "test_comm_command"},
    {"comm_test.warmup_iterations", "test_comm_command"},
    {"data.area_max", "test_image_folder"},
    {"data.area_min", "test_image_folder"},
    {"data.aspect_max", "test_image_folder"},
    {"data.aspect_min", "test_image_folder"},
    {"data.augment", "test_cifar10"},
    {"data.decode", "test_image_folder"},
    {"data.direct", "test_image_folder, test_shards, test_tokens"},
    {"data.eval_ratio", "test_image_folder"},
    {"data.flip", "test_image_folder"},
    {"data.image_key", "test_shards"},
    {"data.label_first", "test_shards"},
    {"data.label_key", "test_shards"},
    {"data.length", "test_tokens"},
    {"data.max_corrupt", "test_image_damage"},
    {"data.max_pixels", "test_image_damage"},
    {"data.name", "test_cifar"},
    {"data.path", "test_idx, test_cifar10, test_image_folder"},
    {"data.place", "test_cuda_memory, test_cuda_runs"},
    {"data.preload", "test_image_training"},
    {"data.shard_file", "test_image_training"},
    {"data.test_path", "test_tokens"},
    {"data.threads", "test_data_command"},
    {"data.train", "test_image_folder"},
    {"data.val", "test_image_folder"},
    {"data.vocabulary", "test_tokens"},
    {"device.gpu_direct", "test_emulated"},
    {"device.graphs", "test_cuda"},
    {"device.host_cores", "test_emulated"},
    {"device.host_link", "test_emulated"},
    {"device.host_link_workers", "test_emulated"},
    {"device.ids", "test_cuda"},
    {"device.inside", "test_emulated"},
    {"device.inside_link", "test_emulated"},
    {"device.layout", "test_cuda_layouts"},
    {"device.mps", "test_cuda_runs"},
    {"device.overlap_slowdown", "test_emulated"},
    {"device.profile", "test_emulated"},
    {"device.tuning", "test_cuda_tuning"},
    {"device.update", "test_emulated"},
    {"device.workspace", "test_cuda_tuning"},
    {"eval.criterion", "test_continue"},
    {"model.file", "test_emulated"},
    {"run.comm_cores", "test_overlap"},
    {"run.conform", "test_writing_plugins"},
    {"run.dilation", "test_emulated"},
    {"run.global_batch", "test_bad_input"},
    {"run.loss_scale", "test_loss_scale, test_cuda_runs"},
    {"run.launch", "test_environment"},
    {"run.memory", "test_too_large"},
    {"run.open", "test_environment"},
    {"run.port", "test_environment"},
    {"run.rejoin", "test_restart"},
    {"run.restart", "test_restart"},
    {"run.stall_warning_s", "test_stall"},
    {"run.timeout_s", "test_faults"},
    {"run.trace", "test_trace"},
    {"run.trace_steps", "test_trace"},
};

enum {
    N_EFFECTS = sizeof effects / sizeof *effects,
    N_ELSEWHERE = sizeof elsewhere / sizeof *elsewhere
};

/* ---- observing ----------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* The names in `out`, which is empty again afterwards; times of day in them do not count. */
static char *take_files(void)
{
    enum { MOST = 16, LENGTH = 256 };
    static char text[MOST * LENGTH];
    char names[MOST][LENGTH];
    size_t n = 0;
    DIR *directory = opendir("out");
    if (!directory)
        fail_msg("there is no directory `out`");
    for (struct dirent *entry; (entry = readdir(directory)) && n < MOST;)
        if (entry->d_name[0] != '.')
            snprintf(names[n++], LENGTH, "%s", entry->d_name);
    qsort(names, n, LENGTH, compare_names);
    text[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        unlinkat(dirfd(directory), names[i], 0);
        strcat(strcat(text, names[i]), " ");
    }
    closedir(directory);
    return strdup(text);
}

/* What a run with the option so set shows. */
static char *observe(const struct effect *effect, const char *setting)
{
    struct command command;
    char *seen;
    dpbench(&command, 60, "%s %s %s%s%s", base, effect->settings, setting[0] ? effect->option : "",
            setting[0] ? "=" : "", setting);
    bool may_fail = strcmp(effect->seen, EXIT_CODE) == 0;
    if (command.exit_code != 0 && !may_fail)
        fail_msg("%s = '%s': exit code %d: %s", effect->option, setting, command.exit_code,
                 command.err);
    if (may_fail) {
        assert_true(asprintf(&seen, "%d", command.exit_code) > 0);
    } else if (strcmp(effect->seen, FILES) == 0) {
        seen = take_files();
    } else if (strcmp(effect->seen, PROFILE) == 0) {
        seen = strdup(json_is_object(json_at(command.json, PROFILE)) ? "there" : "not there");
    } else {
        const json_t *value = json_at(command.json, effect->seen);
        if (!value)
            fail_msg("%s = '%s': the result has no %s", effect->option, setting, effect->seen);
        /* Of ranks it is their number that counts: they have times in them. */
        seen = strcmp(effect->seen, "ranks") == 0
                   ? (asprintf(&seen, "%zu", json_array_size(value)) > 0 ? seen : NULL)
                   : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    }
    assert_non_null(seen);
    return own_memory(seen, free);
}

static void test_effect(void **state)
{
    const struct effect *effect = *state;
    char *a = observe(effect, effect->a), *again = observe(effect, effect->a),
         *b = observe(effect, effect->b);
    if (strcmp(a, b) == 0)
        fail_msg("%s = '%s' and '%s' show the same %s: %s", effect->option, effect->a, effect->b,
                 effect->seen, a);
    /* And nothing but the option makes the difference; by the clock steps are as many as they
     * are. */
    if (strcmp(a, again) != 0 && strcmp(effect->option, "run.seconds") != 0 &&
        strcmp(effect->option, "run.results") != 0 &&
        strcmp(effect->seen, "timing.warmup_steps") != 0)
        fail_msg("%s = '%s' twice shows %s: %s and %s", effect->option, effect->a, effect->seen, a,
                 again);
}

/* ---- no option is forgotten ---------------------------------------------------------------- */

static bool has_row(const char *option)
{
    for (size_t i = 0; i < N_EFFECTS; i++)
        if (strcmp(effects[i].option, option) == 0)
            return true;
    for (size_t i = 0; i < N_ELSEWHERE; i++)
        if (strcmp(elsewhere[i].option, option) == 0)
            return true;
    return false;
}

/* `help all` lists options as "  section.key = ..."; those of studies change no run. */
CASE(test_complete)
{
    enum { FEWEST = 100 };
    struct command command;
    char option[64];
    int n = 0;
    unsetenv("DPBENCH_PLUGIN_PATH"); /* not the tests' own */
    dpbench_ends(&command, 60, 0, "help all");
    for (char *line = strtok(command.out, "\n"); line; line = strtok(NULL, "\n")) {
        if (sscanf(line, "  %63[a-z0-9_.] = ", option) != 1 || !strchr(option, '.') ||
            !strstr(line, " = ") || strncmp(option, "sweep.", 6) == 0 ||
            strncmp(option, "tune.", 5) == 0)
            continue;
        n++;
        if (!has_row(option))
            fail_msg("option %s has no row in tests/system/test_effects.c", option);
    }
    assert_true(n > FEWEST);
}

static int setup(void **state)
{
    int code = sandbox_setup(state);
    struct command command;
    sandbox_write("empty.ini", "%s", "");
    mkdir("out", 0777);
    dpbench(&command, 60, "%s run.steps=3 checkpoint.save=begun.safetensors", base);
    code = code ? code : command.exit_code;
    return code;
}

int main(void)
{
    for (size_t i = 0; i < N_EFFECTS; i++)
        if ((have_cpu_device() ||
             (strcmp(effects[i].b, "cpu") != 0 && !strstr(effects[i].settings, "=cpu"))) &&
            (have_plugin("comm_gloo") || !strstr(effects[i].settings, "=gloo")))
            add_case(test_effect, &effects[i], "%s", effects[i].option);
    add_case(test_complete, NULL, "every option has a row");
    if (have_plugin("device_cuda"))
        add_case(test_complete, NULL, "cuda: every option has a row");
    return test_main(setup, sandbox_teardown);
}
