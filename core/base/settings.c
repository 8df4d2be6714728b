/* settings.c - the tables of core's own options: see settings.h. */
#include "base/settings.h"

#include <stddef.h>
#include <string.h>

#include "base/config.h"
#include "base/options.h"
#include "base/text.h"

/* Named, so that a row without `needs` may end before it. */
#define AT(member) .offset = offsetof(struct dpb_settings, member)
#define MANY 9e15 /* an upper bound that is none, yet exact in a double */

static const char *const modes[] = {"train",   "forward", "evaluate", "comm",
                                    "network", "data",    NULL};
static const char *const memories[] = {"refuse", "warn", NULL};
const char *const dpb_collective_names[] = {"all_reduce", "reduce_scatter", "all_gather",
                                            "broadcast",  "all_to_all",     NULL};
static const char *const barriers[] = {"auto", "memory", "exchange", NULL};
static const char *const nans[] = {"stop", "continue", NULL};
static const char *const precisions[] = {"fp32", "bf16", "fp64", "tf32", "fp16", NULL};
static const char *const gradients[] = {"auto", "fp64", "fp32", "bf16", "fp16", NULL};
static const char *const launches[] = {"rank", "environment", NULL};
static const char *const keepers[] = {"file", "peer", NULL};
static const char *const places[] = {"host", "device", NULL};
const char *const dpb_optimizer_names[] = {"sgd",     "adagrad", "adam", "adamw",
                                           "rmsprop", "lars",    "lamb", NULL};
static const char *const criteria[] = {"last", "median5", NULL};
static const char *const schedules[] = {"constant",   "step",      "cosine",
                                        "polynomial", "piecewise", NULL};

static const struct dpb_option run_rows[] = {
    {"name", DPB_OPT_STRING, NULL, "run", 0, 0, NULL, AT(run.name), "label of the result"},
    {"workers", DPB_OPT_INT, NULL, "1", 1, DPB_JOB_RANKS, NULL, AT(run.workers),
     "places, each with run.learners worker processes"},
    {"learners", DPB_OPT_INT, NULL, "1", 1, DPB_JOB_RANKS, NULL, AT(run.learners),
     "workers that share a place: its GPU, or the cores that one worker would have there"},
    {"servers", DPB_OPT_INT, NULL, "0", 0, DPB_JOB_RANKS, NULL, AT(run.servers),
     "parameter server processes; 0: shards in the workers"},
    {"mode", DPB_OPT_CHOICE, NULL, "train", 0, 0, modes, AT(run.mode),
     "train, or the forward pass alone; evaluate, comm, network: set by `dpbench eval`, "
     "`dpbench comm` and `dpbench links network`"},
    {"batch", DPB_OPT_INT, "samples", NULL, 1, 1 << 20, NULL, AT(run.batch),
     "per worker and micro-batch; default: the model's"},
    {"global_batch", DPB_OPT_INT, "samples", NULL, 1, 1 << 30, NULL, AT(run.global_batch),
     "over all workers and micro-batches; instead of run.batch"},
    {"accumulate", DPB_OPT_INT, NULL, "1", 1, 65536, NULL, AT(run.accumulate),
     "micro-batches a worker goes through in a step"},
    {"steps", DPB_OPT_INT, NULL, NULL, 1, 1e9, NULL, AT(run.steps), "timed steps, after warm-up"},
    {"seconds", DPB_OPT_TIME, "s", NULL, 1e6, 1e15, NULL, AT(run.seconds_ns),
     "timed seconds, after warm-up"},
    {"epochs", DPB_OPT_INT, NULL, NULL, 1, 1e6, NULL, AT(run.epochs),
     "passes over the training set, warm-up included"},
    {"warmup_steps", DPB_OPT_INT, NULL, "10", 0, 1e6, NULL, AT(run.warmup_steps),
     "first steps, not timed"},
    {"steady_window", DPB_OPT_INT, "steps", "20", 4, 10000, NULL, AT(run.steady_window),
     "window of the steady-state gate", "run.steady_limit_s"},
    {"steady_windows", DPB_OPT_INT, NULL, "3", 1, 1000, NULL, AT(run.steady_windows),
     "steady windows in a row that open the gate", "run.steady_limit_s"},
    {"steady_drift", DPB_OPT_REAL, NULL, "0.01", 1e-6, 1, NULL, AT(run.steady_drift),
     "largest drift of a steady window, as a share of its mean", "run.steady_limit_s"},
    {"steady_spread", DPB_OPT_REAL, NULL, "0.05", 1e-6, 10, NULL, AT(run.steady_spread),
     "largest spread (p90 - p10) of a steady window, as a share of its median",
     "run.steady_limit_s"},
    {"steady_limit_s", DPB_OPT_TIME, "s", "60", 0, 1e15, NULL, AT(run.steady_limit_ns),
     "after this the run is timed though not steady; 0: no gate"},
    {"require_steady", DPB_OPT_BOOL, NULL, "no", 0, 0, NULL, AT(run.require_steady),
     "a run that is not steady exits with 5"},
    {"precision", DPB_OPT_CHOICE, NULL, "fp32", 0, 0, precisions, AT(run.precision),
     "of the computation; bf16 and fp16 keep fp32 master weights, tf32 is for tensor cores"},
    {"loss_scale", DPB_OPT_REAL, NULL, "0", 0, 0x1p32, NULL, AT(run.loss_scale),
     "the factor of the loss; 0: 65536 at first, halved by every overflow and "
     "doubled after 1000 steps without one",
     "run.precision = fp16"},
    {"seed", DPB_OPT_INT, NULL, "1", 0, MANY, NULL, AT(run.seed), "of all random numbers"},
    {"comm_cores", DPB_OPT_INT, NULL, "0", 0, 1, NULL, AT(run.comm_cores),
     "cores a worker gives to communication"},
    {"results", DPB_OPT_STRING, "directory", "results", 0, 0, NULL, AT(run.results),
     "directory of the result files"},
    {"prove", DPB_OPT_BOOL, NULL, "no", 0, 0, NULL, AT(run.prove),
     "check an exchange of random gradients against its float64 sum before timing"},
    {"conform", DPB_OPT_BOOL, NULL, "yes", 0, 0, NULL, AT(run.conform),
     "first try a device that is not dpbench's own on the run's model, as `dpbench conform` does"},
    {"profile", DPB_OPT_BOOL, NULL, "no", 0, 0, NULL, AT(run.profile),
     "times every op of the timed steps, beside the machine's limits"},
    {"trace", DPB_OPT_STRING, "file", "", 0, 0, NULL, AT(run.trace),
     "the last steps of all ranks as a timeline, for ui.perfetto.dev; run.profile adds the layers"},
    {"trace_steps", DPB_OPT_INT, "steps", "20", 1, 1000, NULL, AT(run.trace_steps),
     "how many steps, each with room for 4096 spans a rank", "run.trace"},
    {"monitor", DPB_OPT_TIME, "s", "0", 0, 1e15, NULL, AT(run.monitor_ns),
     "samples CPU time, memory, network, disks, GPU and power of each machine so often, in the "
     "result's `monitor`; 0: never"},
    {"timeout_s", DPB_OPT_TIME, "s", "60", 1e6, 1e15, NULL, AT(run.timeout_ns),
     "deadline of every wait for another process, and of a worker that does nothing"},
    {"launch", DPB_OPT_CHOICE, NULL, "rank", 0, 0, launches, AT(run.launch),
     "what a process that another launcher starts is: a rank, or by the variables of its "
     "environment the launcher of as many workers as any other (docs/launching.md)"},
    {"port", DPB_OPT_INT, NULL, "0", 0, 65535, NULL, AT(run.port),
     "where rank 0 listens if variables alone make a job (RANK, MASTER_ADDR; docs/launching.md); "
     "0: the port after MASTER_PORT"},
    {"open", DPB_OPT_BOOL, NULL, "no", 0, 0, NULL, AT(run.open),
     "such a job takes any process of the network for its own: it has no secret"},
    {"stall_warning_s", DPB_OPT_TIME, "s", "10", 0, 1e15, NULL, AT(run.stall_warning_ns),
     "without progress for so long, name the late rank once, and where all are; 0: never"},
    {"memory", DPB_OPT_CHOICE, NULL, "refuse", 0, 0, memories, AT(run.memory),
     "whether a run that needs more memory than there is is refused, or warned about"},
    {"survive", DPB_OPT_BOOL, NULL, "no", 0, 0, NULL, AT(run.survive),
     "where a signal ends a worker that trains, the others train on; rank 0 excepted"},
    {"restart", DPB_OPT_INT, NULL, "0", 0, 1000, NULL, AT(run.restart),
     "so often all ranks start again from the newest checkpoint after the loss of one "
     "(docs/reliability.md)"},
    {"rejoin", DPB_OPT_TIME, "s", "0", 0, 1e15, NULL, AT(run.rejoin_ns),
     "so long a job of several launchers waits for another one in the place of a lost one; 0: such "
     "a loss ends the job",
     "run.restart"},
    {"nan", DPB_OPT_CHOICE, NULL, "stop", 0, 0, nans, AT(run.nan),
     "a loss or a new weight that is not finite ends the run at its step, or is only reported"},
    {"delay", DPB_OPT_STRING, NULL, "none", 0, 0, NULL, AT(run.delay),
     "workers sleep before they hand over gradients, by seed, rank and step: constant(20 ms), "
     "exponential(20 ms) with that mean, pareto(20 ms, 1.5) with that minimum and shape, "
     "chance(50 ms, 0.05) in that share of the steps, trace(FILE) of one delay a line, in ms"},
    {"delay_ranks", DPB_OPT_STRING, NULL, "all", 0, 0, NULL, AT(run.delay_ranks),
     "which workers run.delay is for, as in 0,2", "run.delay"},
    {"dilation", DPB_OPT_REAL, NULL, "1", 1, 1e4, NULL, AT(run.dilation),
     "with device emulated: computing and run.delay take so many times as long, and the result's "
     "times are divided by it, for networks that are slower by as much (`dpbench hosts`)"},
    {0},
};

static const struct dpb_option model_rows[] = {
    {"name", DPB_OPT_STRING, NULL, "lenet", 0, 0, NULL, AT(model.name), "plugin: the network"},
    {"nclass", DPB_OPT_INT, NULL, NULL, 2, 1 << 24, NULL, AT(model.nclass),
     "classes; default: the data's, else the model's"},
    {"image", DPB_OPT_INT, "pixels", NULL, 1, 65535, NULL, AT(model.image),
     "height and width of the samples, where model and data can have others"},
    {"label_smoothing", DPB_OPT_REAL, NULL, "0", 0, 1, NULL, AT(model.label_smoothing),
     "share of each label that goes to all classes alike; all losses use the smoothed labels"},
    {0},
};

static const struct dpb_option data_rows[] = {
    {"name", DPB_OPT_STRING, NULL, "synthetic", 0, 0, NULL, AT(data.name),
     "plugin: where samples come from"},
    {"shuffle", DPB_OPT_BOOL, NULL, "yes", 0, 0, NULL, AT(data.shuffle), "a new order every epoch"},
    {"shard", DPB_OPT_BOOL, NULL, "no", 0, 0, NULL, AT(data.shard),
     "worker r of W trains on samples r, r + W, r + 2 W, ... only: disjoint reading, at the price "
     "of an order that depends on W"},
    {"threads", DPB_OPT_INT, NULL, "1", 0, 256, NULL, AT(data.threads),
     "helper threads that decode ahead; 0: none, the loop does it"},
    {"place", DPB_OPT_CHOICE, NULL, "host", 0, 0, places, AT(data.place),
     "where batches come from: the host's memory; or the device's, where all samples of a "
     "synthetic training set are kept, so that feeding costs next to nothing"},
    {0},
};

static const struct dpb_option device_rows[] = {
    {"name", DPB_OPT_STRING, NULL, "cpu", 0, 0, NULL, AT(device.name),
     "plugin: the device that computes"},
    {"threads", DPB_OPT_INT, NULL, "0", 0, 4096, NULL, AT(device.threads),
     "compute threads of a place, shared out among its learners; 0: an even share of the cores"},
    {0},
};

static const struct dpb_option comm_rows[] = {
    {"name", DPB_OPT_STRING, NULL, "independent", 0, 0, NULL, AT(comm.name),
     "plugin: the variable-update strategy"},
    {"bucket", DPB_OPT_SIZE, "bytes", "4 MiB", 1, MANY, NULL, AT(comm.bucket),
     "gradients are exchanged in buckets of this size"},
    {"gradient", DPB_OPT_CHOICE, NULL, "auto", 0, 0, gradients, AT(comm.gradient),
     "element type of the exchange; auto: fp64 under fp64, else fp32"},
    {"codec", DPB_OPT_STRING, NULL, "none", 0, 0, NULL, AT(comm.codec),
     "plugin: encodes the gradients of each bucket in fewer bytes; none: they travel as they are"},
    {"late", DPB_OPT_INT, "steps", "0", 0, 1, NULL, AT(comm.late),
     "1: forward uses the weights of one step before, and an exchange has the whole next step; of "
     "synchronous strategies"},
    {"hosts", DPB_OPT_STRING, NULL, "", 0, 0, NULL, AT(comm.hosts),
     "which ranks are on one machine, for tests and `dpbench hosts`: 2x2 is two machines of two "
     "ranks each, 1+3, or the machine of each as in 0,1,0,1; default: as the launcher has started "
     "them"},
    {0},
};

static const struct dpb_option optimizer_rows[] = {
    {"name", DPB_OPT_CHOICE, NULL, "sgd", 0, 0, dpb_optimizer_names, AT(optimizer.kind),
     "update rule"},
    {"learning_rate", DPB_OPT_REAL, NULL, "0.01", 0, 1e6, NULL, AT(optimizer.learning_rate),
     "at the schedule's start (after warm-up)"},
    {"momentum", DPB_OPT_REAL, NULL, "0.9", 0, 1, NULL, AT(optimizer.momentum),
     "of the update's velocity", "optimizer.name = sgd, rmsprop, lars"},
    {"nesterov", DPB_OPT_BOOL, NULL, "no", 0, 0, NULL, AT(optimizer.nesterov),
     "Nesterov's momentum", "optimizer.name = sgd"},
    {"weight_decay", DPB_OPT_REAL, NULL, "0", 0, 1, NULL, AT(optimizer.weight_decay),
     "added to the gradient of convolution and dense weights, times the weight"},
    {"decoupled_decay", DPB_OPT_BOOL, NULL, "no", 0, 0, NULL, AT(optimizer.decoupled_decay),
     "the decay is no part of the gradient, but of the update; adamw and lamb imply it",
     "optimizer.name = adam, adamw, lamb"},
    {"beta1", DPB_OPT_REAL, NULL, "0.9", 0, 0.999999, NULL, AT(optimizer.beta1),
     "the share of the old mean of the gradients in the new mean",
     "optimizer.name = adam, adamw, lamb"},
    {"beta2", DPB_OPT_REAL, NULL, "0.999", 0, 0.999999, NULL, AT(optimizer.beta2),
     "the share of the old mean of the squared gradients in the new mean",
     "optimizer.name = adam, adamw, lamb"},
    {"epsilon", DPB_OPT_REAL, NULL, "1e-8", 1e-30, 1, NULL, AT(optimizer.epsilon),
     "of rmsprop 1 by default, of lamb 1e-6; not 0: it divides where no gradient has been",
     "optimizer.name = adagrad, adam, adamw, rmsprop, lamb"},
    {"rms_decay", DPB_OPT_REAL, NULL, "0.9", 0, 0.999999, NULL, AT(optimizer.rms_decay),
     "the share of the old mean square of the gradients in the new one",
     "optimizer.name = rmsprop"},
    {"trust", DPB_OPT_REAL, NULL, "0.001", 1e-9, 1e6, NULL, AT(optimizer.trust),
     "the learning rate of a tensor is in proportion to this", "optimizer.name = lars"},
    {"clip_norm", DPB_OPT_REAL, NULL, "0", 0, 1e30, NULL, AT(optimizer.clip_norm),
     "a mean gradient of a larger 2-norm over all weights is scaled down to this one; 0: never"},
    {"schedule", DPB_OPT_CHOICE, NULL, "constant", 0, 0, schedules, AT(optimizer.schedule),
     "of the learning rate"},
    {"decay_at", DPB_OPT_STRING, "epochs", "30,60,80", 0, 0, NULL, AT(optimizer.decay_at),
     "where the rate changes", "optimizer.schedule = step, piecewise"},
    {"rates", DPB_OPT_STRING, NULL, "", 0, 0, NULL, AT(optimizer.rates),
     "the rates from each of decay_at on, as in 0.05,0.01,0.001", "optimizer.schedule = piecewise"},
    {"decay_factor", DPB_OPT_REAL, NULL, "0.1", 0, 1, NULL, AT(optimizer.decay_factor),
     "the factor of each fall of the rate", "optimizer.schedule = step"},
    {"decay_power", DPB_OPT_REAL, NULL, "2", 0, 100, NULL, AT(optimizer.decay_power),
     "the power of the share of the run that is left", "optimizer.schedule = polynomial"},
    {"end_rate", DPB_OPT_REAL, NULL, "0", 0, 1e6, NULL, AT(optimizer.end_rate),
     "the rate at the end of the run; of schedule = step the least rate",
     "optimizer.schedule = step, cosine, polynomial"},
    {"warmup_epochs", DPB_OPT_REAL, "epochs", "0", 0, 1e6, NULL, AT(optimizer.warmup_epochs),
     "the rate rises linearly: with linear_scaling from the unscaled rate, else from 0"},
    {"linear_scaling", DPB_OPT_BOOL, NULL, "no", 0, 0, NULL, AT(optimizer.linear_scaling),
     "rate times global batch / linear_base (Goyal et al. 2017)"},
    {"linear_base", DPB_OPT_INT, "samples", "256", 1, 1 << 30, NULL, AT(optimizer.linear_base),
     "batch for which learning_rate is meant", "optimizer.linear_scaling"},
    {0},
};

static const struct dpb_option eval_rows[] = {
    {"every", DPB_OPT_INT, "steps", "0", 0, 1e9, NULL, AT(eval.every),
     "evaluate on the test set every so many steps; 0: never"},
    {"every_epochs", DPB_OPT_REAL, "epochs", "0", 0, 1e6, NULL, AT(eval.every_epochs),
     "instead of eval.every: evaluate each time so much of the training set has passed; 0: never"},
    {"batches", DPB_OPT_INT, NULL, "0", 0, 1e9, NULL, AT(eval.batches),
     "evaluate on the test set's first so many batches (run.batch) alone; 0: on all of it",
     "eval.every or eval.every_epochs or eval.final"},
    {"final", DPB_OPT_BOOL, NULL, "no", 0, 0, NULL, AT(eval.final), "evaluate after the last step"},
    {"target", DPB_OPT_REAL, NULL, "0", 0, 1, NULL, AT(eval.target),
     "accuracy, as a share, at which the run ends; 0: none"},
    {"target_loss", DPB_OPT_REAL, NULL, "0", 0, 1e6, NULL, AT(eval.target_loss),
     "instead of eval.target: loss of the test set at which the run ends; 0: none"},
    {"criterion", DPB_OPT_CHOICE, NULL, "last", 0, 0, criteria, AT(eval.criterion),
     "compared with the target: the last evaluation, or the median of the last 5",
     "eval.target or eval.target_loss"},
    {"require_target", DPB_OPT_BOOL, NULL, "no", 0, 0, NULL, AT(eval.require_target),
     "a run that ends without the target exits with 4", "eval.target or eval.target_loss"},
    {0},
};

static const struct dpb_option checkpoint_rows[] = {
    {"load", DPB_OPT_STRING, "file", "", 0, 0, NULL, AT(checkpoint.load),
     "safetensors file to begin with"},
    {"resume", DPB_OPT_BOOL, NULL, "yes", 0, 0, NULL, AT(checkpoint.resume),
     "continue the training of the loaded file (optimizer's state, step, position in the data); "
     "no: take its weights and statistics, and begin anew",
     "checkpoint.load"},
    {"partial", DPB_OPT_BOOL, NULL, "no", 0, 0, NULL, AT(checkpoint.partial),
     "continue without the strategy's state that this run cannot keep, as with another number of "
     "workers, and say which it is",
     "checkpoint.load"},
    {"save", DPB_OPT_STRING, "file", "", 0, 0, NULL, AT(checkpoint.save),
     "safetensors file for the training after the last step"},
    {"layout", DPB_OPT_STRING, NULL, "dpbench", 0, 0, NULL, AT(checkpoint.layout),
     "names and dimensions of tensors in saved files: dpbench, or as others publish the model "
     "(gpt2 of the gpt models)",
     "checkpoint.save"},
    {"at", DPB_OPT_STRING, "steps", "", 0, 0, NULL, AT(checkpoint.at),
     "save after these steps, too, as in 100,200; the file's name gets the step",
     "checkpoint.save or checkpoint.place = peer"},
    {"every", DPB_OPT_INT, "steps", "0", 0, 1e9, NULL, AT(checkpoint.every),
     "save every so many steps, too; 0: never", "checkpoint.save or checkpoint.place = peer"},
    {"place", DPB_OPT_CHOICE, NULL, "file", 0, 0, keepers, AT(checkpoint.place),
     "where checkpoints of checkpoint.at and checkpoint.every are: files, or memory of the "
     "launcher for run.restart"},
    {0},
};

static const struct dpb_option comm_test_rows[] = {
    {"sizes", DPB_OPT_STRING, "bytes", "", 0, 0, NULL, AT(comm_test.sizes),
     "as in 4 KiB,1 MiB, instead of a range; none: only the layout of model.name"},
    {"min_bytes", DPB_OPT_SIZE, "bytes", "8 B", 1, MANY, NULL, AT(comm_test.min_bytes),
     "smallest size; sizes are in whole elements, at least one"},
    {"max_bytes", DPB_OPT_SIZE, "bytes", "256 MiB", 1, MANY, NULL, AT(comm_test.max_bytes),
     "largest size"},
    {"step_factor", DPB_OPT_INT, NULL, "2", 2, 1e9, NULL, AT(comm_test.step_factor),
     "from one size to the next"},
    {"iterations", DPB_OPT_INT, "exchanges", NULL, 1, 131072, NULL, AT(comm_test.iterations),
     "timed exchanges of a size; instead of seconds"},
    {"seconds", DPB_OPT_TIME, "s", "0.2", 1e6, 1e15, NULL, AT(comm_test.seconds_ns),
     "of the wall clock for a size, checks included; at least 5 exchanges are timed"},
    {"warmup_iterations", DPB_OPT_INT, "exchanges", "5", 0, 1e6, NULL,
     AT(comm_test.warmup_iterations), "first exchanges of a size, checked but not timed"},
    {"barrier", DPB_OPT_CHOICE, NULL, "auto", 0, 0, barriers, AT(comm_test.barrier),
     "before a timed exchange: flags in shared memory, or an exchange; auto: memory within a "
     "machine"},
    {"operation", DPB_OPT_CHOICE, NULL, "all_reduce", 0, 0, dpb_collective_names,
     AT(comm_test.operation),
     "another collective than that of training, where the strategy has it"},
    {"codecs", DPB_OPT_BOOL, NULL, "yes", 0, 0, NULL, AT(comm_test.codecs),
     "of a strategy that carries codecs: their rates on this machine, and where they pay"},
    {0},
};

const struct dpb_settings_section dpb_settings_sections[] = {
    {"run", "the job: processes, batch, length, warm-up", run_rows},
    {"model", "the network", model_rows},
    {"data", "where samples come from", data_rows},
    {"device", "the device that computes", device_rows},
    {"comm", "the variable-update strategy", comm_rows},
    {"optimizer", "the update rule and the learning rate", optimizer_rows},
    {"eval", "evaluation on the test set", eval_rows},
    {"checkpoint", "the training from and to files", checkpoint_rows},
    {"comm_test", "`dpbench comm`: a communicator alone, over sizes", comm_test_rows},
};
const size_t dpb_settings_n_sections =
    sizeof dpb_settings_sections / sizeof dpb_settings_sections[0];

const char *const dpb_run_lengths[] = {"steps", "seconds", "epochs", NULL};

bool dpb_is_run_length(const char *section, const char *key)
{
    bool found = false;
    for (size_t i = 0; dpb_run_lengths[i]; i++)
        found |= strcmp(section, "run") == 0 && strcmp(key, dpb_run_lengths[i]) == 0;
    return found;
}

const struct dpb_option *dpb_settings_rows(const char *section)
{
    for (size_t i = 0; i < dpb_settings_n_sections; i++)
        if (strcmp(dpb_settings_sections[i].name, section) == 0)
            return dpb_settings_sections[i].rows;
    return NULL;
}

bool dpb_optimizer_has(const char *name, const char *key)
{
    static const char mark[] = "optimizer.name = ";
    const struct dpb_option *row = dpb_options_find(optimizer_rows, key);
    return !row || !row->needs || !dpb_begins_with(row->needs, mark) ||
           dpb_text_lists(row->needs + sizeof mark - 1, ", ", name, strlen(name));
}

dpb_status dpb_settings_derive(const struct dpb_settings *settings, struct dpb_config *config)
{
    static const struct {
        dpb_optimizer_kind of;
        const char *key, *value;
    } implied[] = {{DPB_ADAMW, "decoupled_decay", "yes"},
                   {DPB_RMSPROP, "epsilon", "1"},
                   {DPB_LAMB, "decoupled_decay", "yes"},
                   {DPB_LAMB, "epsilon", "1e-6"}};
    for (size_t i = 0; i < sizeof implied / sizeof implied[0]; i++)
        if (settings->optimizer.kind == (int)implied[i].of &&
            !dpb_config_get(config, "optimizer", implied[i].key))
            DPB_TRY(
                dpb_config_set(config, "optimizer", implied[i].key, implied[i].value, "derived"));
    return DPB_OK;
}
