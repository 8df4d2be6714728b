/*
 * emulated - a device that computes nothing: it sleeps as long as an accelerator would compute, by
 * a profile (lib/accelerator/accelerator.h), and all else is real: arenas, buckets, strategy,
 * network.
 *
 * Each pass sleeps to absolute deadlines counted from its begin, so errors do not add up. It sleeps
 * where a host that waits for an accelerator would look: until the gradients of a tensor are ready
 * and copied. So neither writing gradients nor what the strategy does in `progress` moves a
 * deadline, as long as it fits in between.
 *
 *     forward        upload of new weights, then the profile's forward time
 *     tensor t       ready when the profile says, then a ring of `inside` accelerators (2 (N-1)/N
 *                    of its bytes over inside_link), then the copy to the host over host_link; ring
 *                    and copies each serve one tensor at a time
 *
 * Where the strategy exchanges nothing, nothing is copied over host_link.
 *
 * Times vary by the profile's spread, drawn by seed, rank and step: part of the variance is common
 * to all of a step, the rest each part's own. Gradients are windows of a pool of Gaussians, other
 * ones in each step, with a scale of the tensor's own, written by a real copy.
 *
 * With run.dilation D everything that it sleeps takes D times as long.
 *
 * Ancestors: Wang et al.: GENIE. arXiv 2504.20854; Gupta et al.: To infinity and beyond:
 * time-warped network emulation. NSDI 2006.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "dpbench/plugin.h"
#include "dpbench/random.h"
#include "lib/accelerator/accelerator.h"
#include "lib/device/refuse.h"

enum {
    POOL = 1 << 17,
    PIECE = 1 << 14,
    BURNERS = 64
}; /* elements: of the pool, and of a window in it */

static const double least_factor = 0.1; /* of a duration: a normal spread has no lower end */
static const double poll_ns = 200000;   /* between two looks at the strategy; times the dilation */
static const double most_poll_ns = 1e6; /* hooks are to be called every millisecond or so */
static const double gradient_size = 1e-3;

static const struct dpb_host *host;

/* ---- options ------------------------------------------------------------------------------- */

struct options {
    const char *profile;
    uint64_t host_link, inside_link;
    int64_t host_link_workers, inside;
    bool gpu_direct;
    int update;
    double overlap_slowdown, host_cores;
};

enum { HOST, ACCELERATOR };
static const char *const places[] = {"host", "accelerator", NULL};

#define ROW(NAME, TYPE, UNIT, DEFAULT, MIN, MAX, HELP, NEEDS) \
    DPB_OPTION_ROW(#NAME, TYPE, UNIT, DEFAULT, MIN, MAX, NULL, struct options, NAME, HELP, NEEDS)

static const struct dpb_option option_table[] = {
    ROW(profile, STRING, "file", "", 0, 0,
        "The accelerator's times: a file of `dpbench profile`, or the name of one that came with "
        "dpbench. Default: that of model 'profile', if it is the model.",
        NULL),
    ROW(host_link, SIZE, "bytes/s", "55 GB/s", 1, 1e15,
        "Of copies between accelerator and host: gradients one way, new weights the other. Nothing "
        "is copied where a strategy exchanges nothing (independent).",
        "device.gpu_direct = no"),
    ROW(host_link_workers, INT, NULL, "1", 1, 4096,
        "How many workers of a machine share host_link; they copy at the same time.",
        "device.gpu_direct = no"),
    ROW(gpu_direct, BOOL, NULL, "no", 0, 0,
        "The network reads the accelerator's memory: nothing is copied over host_link.", NULL),
    DPB_OPTION_ROW("update", CHOICE, NULL, "host", 0, 0, places, struct options, update,
                   "Where a worker's updates are made: by the host, as dpbench does for strategies "
                   "on host memory; or in the accelerator's time.",
                   NULL),
    ROW(host_cores, REAL, NULL, "0", 0, 64,
        "Cores of the host that are busy for each accelerator while it computes, as with loading "
        "data: so much processor time is burnt.",
        NULL),
    ROW(inside, INT, NULL, "1", 1, 1024,
        "Accelerators of a machine that are one worker: they sum by a ring before it hands "
        "gradients over, and run.batch is that of all.",
        NULL),
    ROW(inside_link, SIZE, "bytes/s", "300 GB/s", 1, 1e15,
        "Of the ring within `inside`, from one accelerator to the next.", "device.inside"),
    ROW(overlap_slowdown, REAL, NULL, "1", 1, 10,
        "How many times as long backward takes once there is something to exchange, as where "
        "collectives take processors of the accelerator.",
        NULL),
    {0}};

/* ---- state --------------------------------------------------------------------------------- */

struct device {
    struct options options;
    struct dpb_accelerator profile;
    uint32_t rank;
    uint64_t seed;
    double dilation;
    double link_ns, ring_ns; /* a byte, dilated: over host_link; within */
};

struct program {
    struct device *device;
    const struct dpb_graph *graph;
    struct dpb_compile_args args;
    float *gradients; /* @borrowed; NULL: forward only */
    double own;       /* standard deviation of a part's own factor */
    float pool[POOL];
    uint64_t step; /* of the last pass */
    uint32_t micro_batch;
    int64_t looked_ns; /* when the strategy was last at work */
    int64_t late_ns, pass_late_ns;
    pthread_t burners[BURNERS]; /* of host_cores */
    uint32_t n_burners;
    double busy; /* share of a core that each takes */
    atomic_bool ended;
};

/* ---- chance -------------------------------------------------------------------------------- */

/* Of the first two words. */
static double normal_of(struct dpb_random4 r)
{
    double two[2];
    dpb_random_normal(r.v[0], r.v[1], two);
    return two[0];
}

static struct dpb_random4 draw(const struct program *program, uint32_t what)
{
    return dpb_random(program->device->seed, DPB_STREAM_EMULATED, program->device->rank,
                      (uint32_t)program->step,
                      (uint32_t)(program->step >> 32) + (program->micro_batch << 16), what);
}

/* What is drawn for a pass: the pieces of its gradients come last. */
enum { OF_STEP, OF_FORWARD, OF_TENSORS, OF_PIECES = 1 << 20 };

static double factor(const struct program *program, uint32_t part)
{
    const struct dpb_accelerator *profile = &program->device->profile;
    const struct dpb_random4 step = draw(program, OF_STEP), own = draw(program, part);
    double made = 1 + profile->spread * sqrt(profile->common) * normal_of(step) +
                  program->own * normal_of(own);
    if (program->step < profile->n_warmup)
        made *= profile->warmup[program->step];
    return made > least_factor ? made : least_factor;
}

static void fill_pool(struct program *program)
{
    for (uint32_t i = 0; i < POOL; i += 4) {
        const struct dpb_random4 r =
            dpb_random(program->device->seed, DPB_STREAM_EMULATED, i / 4, 0, 0, UINT32_MAX);
        double normal[4];
        dpb_random_normal(r.v[0], r.v[1], &normal[0]);
        dpb_random_normal(r.v[2], r.v[3], &normal[2]);
        for (uint32_t k = 0; k < 4; k++)
            program->pool[i + k] = (float)normal[k];
    }
}

/* ---- sleeping ------------------------------------------------------------------------------ */

static void nap_until(int64_t at_ns)
{
    const struct timespec at = {.tv_sec = at_ns / INT64_C(1000000000),
                                .tv_nsec = at_ns % INT64_C(1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        ;
}

static dpb_status look(struct program *program, const struct dpb_hooks *hooks)
{
    dpb_status status = hooks->progress(hooks->context);
    program->looked_ns = host->now_ns();
    return status;
}

static dpb_status sleep_until(struct program *program, const struct dpb_hooks *hooks,
                              double deadline_ns)
{
    const double apart_ns = fmin(poll_ns * program->device->dilation, most_poll_ns);
    const int64_t until_ns = llround(deadline_ns);
    while (host->now_ns() < until_ns) {
        DPB_TRY(look(program, hooks));
        const int64_t next_ns = program->looked_ns + (int64_t)apart_ns;
        nap_until(next_ns < until_ns ? next_ns : until_ns);
    }
    const int64_t from_ns = program->looked_ns > until_ns ? program->looked_ns : until_ns;
    const int64_t late_ns = host->now_ns() - from_ns;
    program->pass_late_ns = late_ns > program->pass_late_ns ? late_ns : program->pass_late_ns;
    return DPB_OK;
}

/* ---- the host's own work ------------------------------------------------------------------- */

static int64_t thread_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return used.tv_sec * INT64_C(1000000000) + used.tv_nsec;
}

/* Burns `busy` of each period until the program is released. A period is short beside a step. */
static void *burn(void *program_)
{
    struct program *program = program_;
    const int64_t period_ns = 2000000;
    for (int64_t next_ns = host->now_ns(); !atomic_load(&program->ended); next_ns += period_ns) {
        const int64_t until_ns = thread_ns() + llround(program->busy * (double)period_ns);
        while (thread_ns() < until_ns)
            ;
        nap_until(next_ns + period_ns);
    }
    return NULL;
}

/* Processor time is not dilated: of D times as long a step it takes a D-th. */
static dpb_status start_burning(struct program *program)
{
    const double cores = program->device->options.host_cores / program->device->dilation;
    program->n_burners = (uint32_t)ceil(cores);
    program->busy = program->n_burners > 0 ? cores / program->n_burners : 0;
    for (uint32_t i = 0; i < program->n_burners; i++) {
        const int error = pthread_create(&program->burners[i], NULL, burn, program);
        if (error != 0) {
            program->n_burners = i;
            return host->fail(DPB_FAILED,
                              "device 'emulated': cannot start a thread for device.host_cores: %s",
                              strerror(error));
        }
    }
    return DPB_OK;
}

/* ---- gradients ----------------------------------------------------------------------------- */

/* A factor of a tensor's gradients, the same in all steps and on all ranks: log-normal. */
static double size_of(const struct program *program, uint32_t t)
{
    const struct dpb_random4 r =
        dpb_random(program->device->seed, DPB_STREAM_EMULATED, t, 1, 0, UINT32_MAX);
    return gradient_size * exp(normal_of(r));
}

static dpb_status write_tensor(struct program *program, const struct dpb_hooks *hooks, uint32_t t,
                               double multiplied_by)
{
    const struct dpb_graph *graph = program->graph;
    const struct dpb_tensor *tensor = &graph->tensors[t];
    const uint64_t next =
        t + 1 < graph->n_tensors ? graph->tensors[t + 1].offset : graph->n_elements;
    const float size = (float)(multiplied_by * size_of(program, t));
    float *at = program->gradients + tensor->offset, *end = at + tensor->n_elements;
    for (uint32_t piece = 0; at < end; piece++) {
        const struct dpb_random4 r = draw(program, OF_PIECES + t + (piece << 13));
        const float *from = program->pool + r.v[0] % (POOL - PIECE);
        const ptrdiff_t n = end - at < PIECE ? end - at : PIECE;
        for (ptrdiff_t i = 0; i < n; i++)
            at[i] = size * from[i];
        at += n;
        if (host->now_ns() - program->looked_ns > (int64_t)most_poll_ns)
            DPB_TRY(look(program, hooks));
    }
    memset(end, 0, (size_t)(program->gradients + next - end) * sizeof *end);
    return DPB_OK;
}

/* ---- what it emulates ---------------------------------------------------------------------- */

static dpb_status read_profile(const struct options *options, struct dpb_accelerator *profile)
{
    char why[DPB_ACCELERATOR_WHY];
    if (options->profile[0] == '\0')
        return host->fail(DPB_USAGE,
                          "device 'emulated': which accelerator? give device.profile, a profile of "
                          "`dpbench profile` or the name of one that came with dpbench");
    return dpb_accelerator_read(options->profile, profile, why)
               ? DPB_OK
               : host->fail(DPB_USAGE, "device 'emulated': device.profile: %s", why);
}

static dpb_status emulation(const void *options_, struct dpb_emulation *made)
{
    const struct options *options = options_;
    struct dpb_accelerator profile;
    DPB_TRY(read_profile(options, &profile));
    *made = (struct dpb_emulation){.batch = profile.batch * (uint32_t)options->inside};
    snprintf(made->accelerator, sizeof made->accelerator, "%s", profile.name);
    snprintf(made->model, sizeof made->model, "%s", profile.model);
    snprintf(made->precision, sizeof made->precision, "%s", profile.precision);
    snprintf(made->kind, sizeof made->kind, "%s", profile.kind);
    snprintf(made->source, sizeof made->source, "%s", profile.source);
    if (options->update == ACCELERATOR)
        made->update_elements_per_s = profile.update_elements_per_s;
    dpb_accelerator_release(&profile);
    if (options->update == ACCELERATOR && made->update_elements_per_s == 0)
        return host->fail(DPB_USAGE,
                          "device 'emulated': device.update = accelerator, and the profile has no "
                          "update_elements_per_s; leave device.update out");
    return options->gpu_direct && options->update == HOST
               ? host->fail(DPB_USAGE, "device 'emulated': with device.gpu_direct = yes weights "
                                       "are the accelerator's: set device.update = accelerator")
               : DPB_OK;
}

static dpb_status open_device(const void *options_, const struct dpb_device_args *args,
                              void **device)
{
    const struct options *options = options_;
    struct device *made = host->alloc(sizeof *made);
    if (!made)
        return DPB_NO_MEMORY;
    dpb_status status = read_profile(options, &made->profile);
    if (status != DPB_OK) {
        host->release(made, sizeof *made);
        return status;
    }
    const double n = (double)options->inside;
    made->options = *options;
    made->rank = args->rank;
    made->seed = args->seed;
    made->dilation = args->dilation > 1 ? args->dilation : 1;
    made->link_ns = options->gpu_direct || args->alone
                        ? 0
                        : 1e9 * made->dilation * (double)options->host_link_workers /
                              (double)options->host_link;
    made->ring_ns = 1e9 * made->dilation * 2 * (n - 1) / n / (double)options->inside_link;
    prctl(PR_SET_TIMERSLACK, 1000);
    *device = made;
    return DPB_OK;
}

static void close_device(void *device_)
{
    struct device *device = device_;
    if (!device)
        return;
    dpb_accelerator_release(&device->profile);
    host->release(device, sizeof *device);
}

/* ---- a program ----------------------------------------------------------------------------- */

static uint64_t memory_needed(const void *options, const struct dpb_compile_args *args)
{
    (void)options;
    (void)args;
    return sizeof(struct program);
}

/* The tensors of the model are those of the profile. */
static dpb_status compare(const struct dpb_graph *graph, const struct dpb_accelerator *profile)
{
    for (uint32_t t = 0; t < graph->n_tensors && t < profile->n_tensors; t++) {
        const struct dpb_tensor *tensor = &graph->tensors[t];
        const struct dpb_accelerator_tensor *of_profile = &profile->tensors[t];
        if (tensor->n_elements != of_profile->n_elements)
            return host->fail(DPB_USAGE,
                              "device 'emulated': the profile is of model '%s', and model '%s' "
                              "differs: tensor %" PRIu32 " of backward is '%s' of %" PRIu64
                              " elements, in the profile '%s' of %" PRIu64,
                              profile->model, graph->name, t, tensor->name, tensor->n_elements,
                              of_profile->name, of_profile->n_elements);
    }
    if (graph->n_tensors != profile->n_tensors)
        return host->fail(DPB_USAGE,
                          "device 'emulated': the profile is of model '%s' with %" PRIu32
                          " tensors, and model '%s' has %" PRIu32,
                          profile->model, profile->n_tensors, graph->name, graph->n_tensors);
    return DPB_OK;
}

/* The parts of a step vary each for itself so that their sum has the variance that is not
 * common. */
static double own_spread(const struct dpb_accelerator *profile)
{
    double squares = (double)profile->forward_ns * (double)profile->forward_ns;
    int64_t last_ns = 0;
    for (uint32_t t = 0; t < profile->n_tensors; t++) {
        const double part_ns = (double)(profile->tensors[t].ready_ns - last_ns);
        squares += part_ns * part_ns;
        last_ns = profile->tensors[t].ready_ns;
    }
    return profile->spread * sqrt(1 - profile->common) *
           (double)(profile->forward_ns + profile->backward_ns) / sqrt(squares > 0 ? squares : 1);
}

static void release(void *program_)
{
    struct program *program = program_;
    if (!program)
        return;
    atomic_store(&program->ended, true);
    for (uint32_t i = 0; i < program->n_burners; i++)
        pthread_join(program->burners[i], NULL);
    host->release(program, sizeof *program);
}

static dpb_status compile(void *device_, const struct dpb_compile_args *args,
                          const struct dpb_device_memory *memory, void **program)
{
    struct device *device = device_;
    const struct dpb_accelerator *profile = &device->profile;
    const uint32_t batch = profile->batch * (uint32_t)device->options.inside;
    DPB_TRY(dpb_refuse_compile(host, "emulated", args));
    if (args->batch != batch)
        return host->fail(DPB_USAGE,
                          "device 'emulated': the profile is of a batch of %" PRIu32
                          ", and the run's is %" PRIu32 ": set run.batch=%" PRIu32
                          ", or make a profile of the other",
                          batch, args->batch, batch);
    if (strcmp(dpb_precision_name(args->precision), profile->precision) != 0)
        return host->fail(DPB_USAGE,
                          "device 'emulated': the profile is of %s, and run.precision is %s: set "
                          "run.precision=%s",
                          profile->precision, dpb_precision_name(args->precision),
                          profile->precision);
    DPB_TRY(compare(args->graph, profile));
    struct program *made = host->alloc(sizeof *made);
    if (!made)
        return DPB_NO_MEMORY;
    made->device = device;
    made->graph = args->graph;
    made->args = *args;
    made->gradients = memory->gradients;
    made->own = own_spread(profile);
    made->step = UINT64_MAX;
    fill_pool(made);
    const dpb_status status = start_burning(made);
    if (status == DPB_OK)
        *program = made;
    else
        release(made);
    return status;
}

static dpb_status forward(void *program_, const struct dpb_pass *pass,
                          const struct dpb_batch *batch, const struct dpb_hooks *hooks,
                          struct dpb_outcome *outcome)
{
    struct program *program = program_;
    const struct device *device = program->device;
    double at_ns = (double)host->now_ns();
    DPB_TRY(dpb_refuse_pass(host, "emulated", &program->args, pass, batch));
    program->micro_batch = program->step == pass->step ? program->micro_batch + 1 : 0;
    program->step = pass->step;
    if (pass->weights_changed && device->options.update == HOST)
        at_ns += device->link_ns * (double)program->graph->n_parameters * sizeof(float);
    at_ns += (double)device->profile.forward_ns * factor(program, OF_FORWARD) * device->dilation;
    program->pass_late_ns = 0;
    program->looked_ns = 0;
    DPB_TRY(sleep_until(program, hooks, at_ns));
    *outcome = (struct dpb_outcome){.loss = 0};
    return DPB_OK;
}

static dpb_status backward(void *program_, const struct dpb_pass *pass,
                           const struct dpb_hooks *hooks)
{
    struct program *program = program_;
    const struct device *device = program->device;
    const struct dpb_accelerator *profile = &device->profile;
    const struct dpb_graph *graph = program->graph;
    const double multiplied_by =
        program->args.precision == DPB_PRECISION_FP16 ? pass->loss_scale : 1;
    const double began_ns = (double)host->now_ns();
    double at_ns = began_ns, ring_ns = began_ns, link_ns = began_ns;
    int64_t last_ns = 0;
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        const double bytes = (double)graph->tensors[t].n_elements * sizeof(float);
        const double slower = t > 0 ? device->options.overlap_slowdown : 1;
        at_ns += (double)(profile->tensors[t].ready_ns - last_ns) * device->dilation * slower *
                 factor(program, OF_TENSORS + t);
        ring_ns = fmax(ring_ns, at_ns) + device->ring_ns * bytes;
        link_ns = fmax(link_ns, ring_ns) + device->link_ns * bytes;
        last_ns = profile->tensors[t].ready_ns;
        DPB_TRY(write_tensor(program, hooks, t, multiplied_by));
        DPB_TRY(sleep_until(program, hooks, link_ns));
        DPB_TRY(hooks->final(
            hooks->context,
            t + 1 < graph->n_tensors ? graph->tensors[t + 1].offset : graph->n_elements, NULL));
        program->looked_ns = host->now_ns();
    }
    program->late_ns += program->pass_late_ns;
    at_ns += (double)(profile->backward_ns - last_ns) * device->dilation *
             device->options.overlap_slowdown;
    return sleep_until(program, hooks, at_ns);
}

/* NOLINTNEXTLINE(readability-non-const-parameter): it is dpb_device_ops.inspect */
static dpb_status inspect(void *program, uint32_t node, double *activation, double *gradient)
{
    (void)activation;
    (void)gradient;
    return host->fail(DPB_UNSUPPORTED,
                      "device 'emulated' computes nothing: node '%s' cannot be inspected",
                      ((const struct program *)program)->graph->nodes[node].name);
}

static dpb_status are_finite(void *program, bool *is_finite)
{
    (void)program;
    *is_finite = true;
    return DPB_OK;
}

static int64_t late_ns(void *program_)
{
    struct program *program = program_;
    const int64_t late = program->late_ns;
    program->late_ns = 0;
    return late;
}

static const struct dpb_device_ops ops = {.open = open_device,
                                          .memory_needed = memory_needed,
                                          .compile = compile,
                                          .forward = forward,
                                          .backward = backward,
                                          .inspect = inspect,
                                          .release = release,
                                          .close = close_device,
                                          .finite = are_finite,
                                          .emulation = emulation,
                                          .late_ns = late_ns};

/* ---- entry --------------------------------------------------------------------------------- */

static const struct dpb_plugin plugin = {
    DPB_PLUGIN_HEAD(DEVICE, ops),
    .capabilities = DPB_DEVICE_EMULATED | DPB_DEVICE_POOL | DPB_DEVICE_FP32 | DPB_DEVICE_BF16 |
                    DPB_DEVICE_TF32 | DPB_DEVICE_FP16,
    .name = "emulated",
    .version = DPB_VERSION,
    .summary = "computes nothing: sleeps the time of an accelerator, by a profile",
    .options = option_table,
    .options_size = sizeof(struct options)};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &plugin;
}
