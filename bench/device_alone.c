/*
 * device_alone.c - a device's programs called back to back, without dpbench's loop: forward,
 * backward, and the update of what backward has made final. The least that a training step can
 * take, to set the loop beside (`independent`, one worker).
 *
 *     device_alone FILE.ini [SECTION.KEY=VALUE...]
 *
 * The experiment is dpbench's: model, precision, batch, threads, optimizer, run.warmup_steps and
 * run.seconds. The same batch again and again; no communicator, no feed, no account, no control.
 * Prints one JSON object: the rate of the median step.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/stats.h"
#include "feed/feed.h"
#include "graph/graph.h"
#include "machine/cores.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "plan/experiment.h"
#include "world/world.h"

enum { MIN_STEPS = 3, MAX_STEPS = 1 << 20 };

static const char has_environment[] = "DEVICE_ALONE_ENVIRONMENT";

struct alone {
    struct dpb_experiment *x;
    uint32_t threads;
    const struct dpb_device_ops *ops;
    void *device, *program;
    struct dpb_mapping weights, gradients;
    void *state, *statistics;
    struct dpb_optimizer *optimizer;
    struct dpb_schedule schedule;
    struct dpb_feed *feed;
    struct dpb_batch batch;
    struct dpb_step step;
    uint64_t updated; /* elements of this step */
};

static dpb_status read_experiment(char **arguments, struct dpb_experiment **x)
{
    struct dpb_config *config = dpb_config_create();
    dpb_status status = config ? dpb_config_read(config, arguments[0]) : DPB_NO_MEMORY;
    for (char **setting = arguments + 1; status == DPB_OK && *setting; setting++)
        status = dpb_config_assign(config, *setting, "command line");
    if (status == DPB_OK)
        status = dpb_experiment_create(config, x);
    dpb_config_destroy(config);
    return status;
}

/* Libraries read the variables that plugins ask for before main: so it starts itself once more. */
static dpb_status start_with_environment(const struct alone *a, char **argv)
{
    const char *const *environment = dpb_experiment_environment(a->x, a->threads);
    if (!environment)
        return DPB_NO_MEMORY;
    for (const char *const *variable = environment; *variable; variable++)
        putenv((char *)(uintptr_t)*variable);
    setenv(has_environment, "1", 1);
    execv("/proc/self/exe", argv);
    return dpb_fail(DPB_FAILED, "device_alone cannot start itself");
}

static dpb_status open_memory(struct alone *a)
{
    const struct dpb_graph *graph = a->x->graph;
    size_t element = dpb_dtype_size(a->x->weight_type);
    const struct dpb_range all = {0, graph->n_elements};
    const struct dpb_optimizer_args args = {.graph = graph,
                                            .settings = &a->x->settings.optimizer,
                                            .weight_type = a->x->weight_type,
                                            .gradient_type = a->x->weight_type,
                                            .owned = &all,
                                            .n_owned = 1};
    DPB_TRY(dpb_mapping_create("weights", graph->n_elements * element, &a->weights));
    DPB_TRY(dpb_mapping_create("gradients", graph->n_elements * element, &a->gradients));
    a->state = dpb_alloc(graph->n_state_elements * element);
    a->statistics = dpb_alloc(graph->n_state_elements * element);
    if (!a->state || !a->statistics)
        return DPB_NO_MEMORY;
    dpb_graph_initialise(graph, (uint64_t)a->x->settings.run.seed, a->x->weight_type,
                         a->weights.memory);
    dpb_graph_initialise_state(graph, a->x->weight_type, a->state);
    return dpb_optimizer_create(&args, &a->optimizer);
}

static dpb_status open_device(struct alone *a)
{
    const struct dpb_experiment *x = a->x;
    const struct dpb_run_settings *run = &x->settings.run;
    const struct dpb_device_args args = {.threads = a->threads, .seed = (uint64_t)run->seed};
    const struct dpb_compile_args compile = {.graph = x->graph,
                                             .batch = x->batch,
                                             .precision = (dpb_precision)run->precision,
                                             .training = true,
                                             .format = &x->data_info.format};
    const struct dpb_device_memory memory = {.weights = a->weights.memory,
                                             .gradients = a->gradients.memory,
                                             .state = a->state,
                                             .statistics = a->statistics};
    a->ops = x->plugins[DPB_PLUGIN_DEVICE]->ops;
    DPB_TRY(a->ops->open(x->options[DPB_PLUGIN_DEVICE], &args, &a->device));
    return a->ops->compile(a->device, &compile, &memory, &a->program);
}

static dpb_status open_batch(struct alone *a)
{
    const struct dpb_experiment *x = a->x;
    struct dpb_feed_args args = dpb_experiment_feed(x);
    args.n_workers = args.accumulate = 1;
    args.threads = 0;
    struct dpb_feed_batch input;
    DPB_TRY(dpb_feed_create(&args, &a->feed));
    DPB_TRY(dpb_feed_next(a->feed, &input));
    a->batch = input.batch;
    return dpb_schedule_make(&x->settings.optimizer, x->global_batch, x->steps_per_epoch, 0,
                             &a->schedule);
}

static dpb_status update_final(void *context, uint64_t frontier, struct dpb_event *event)
{
    struct alone *a = context;
    size_t element = dpb_dtype_size(a->x->weight_type);
    const struct dpb_range range = {a->updated, frontier};
    (void)event; /* a device on the host has none */
    if (range.end > range.begin)
        DPB_TRY(dpb_optimizers.update(
            a->optimizer, NULL, range, (char *)a->weights.memory + range.begin * element,
            (char *)a->gradients.memory + range.begin * element, 0, &a->step));
    a->updated = frontier;
    return DPB_OK;
}

static dpb_status no_progress(void *context)
{
    (void)context;
    return DPB_OK;
}

static dpb_status train_step(struct alone *a, uint64_t number)
{
    const struct dpb_hooks hooks = {.context = a, .final = update_final, .progress = no_progress};
    const struct dpb_pass pass = {
        .training = true, .weights_changed = true, .step = number, .valid = a->x->batch};
    struct dpb_outcome outcome;
    a->step = (struct dpb_step){
        .step = number, .learning_rate = dpb_schedule_rate(&a->schedule, number), .scale = 1.0};
    a->updated = 0;
    DPB_TRY(a->ops->forward(a->program, &pass, &a->batch, &hooks, &outcome));
    return a->ops->backward(a->program, &pass, &hooks);
}

static dpb_status measure(struct alone *a)
{
    const struct dpb_run_settings *run = &a->x->settings.run;
    uint64_t n = 0, warm = (uint64_t)run->warmup_steps;
    int64_t *step_ns = malloc(MAX_STEPS * sizeof *step_ns);
    if (!step_ns)
        return dpb_fail(DPB_NO_MEMORY, "no memory for %d times", MAX_STEPS);
    for (uint64_t i = 0; i < warm; i++)
        DPB_TRY(train_step(a, i));
    int64_t began_ns = dpb_now_ns(), last_ns = began_ns;
    while (n < MAX_STEPS && (n < MIN_STEPS || last_ns - began_ns < run->seconds_ns)) {
        DPB_TRY(train_step(a, warm + n));
        int64_t now_ns = dpb_now_ns();
        step_ns[n++] = now_ns - last_ns;
        last_ns = now_ns;
    }
    struct dpb_stats rate;
    dpb_rate_of(step_ns, n, a->x->batch, &rate);
    printf("{\"samples_per_s\": %.6f, \"p10\": %.6f, \"p90\": %.6f, \"steps\": %llu, "
           "\"parameters\": %llu, \"threads\": %u}\n",
           rate.median, rate.p10, rate.p90, (unsigned long long)n,
           (unsigned long long)a->x->graph->n_parameters, a->threads);
    free(step_ns);
    return DPB_OK;
}

static dpb_status run(char **argv)
{
    struct alone a = {0};
    struct dpb_cores_share share;
    DPB_TRY(read_experiment(argv + 1, &a.x));
    const struct dpb_cores_job job = {
        .n_workers = 1, .learners = 1, .threads = (uint32_t)a.x->settings.device.threads};
    dpb_world.n_workers = dpb_world.n_ranks = 1;
    DPB_TRY(dpb_cores_bind(&job, 0, &share));
    a.threads = share.threads;
    if (a.x->n_workers != 1 || a.x->accumulate != 1 || share.n == 0)
        return dpb_fail(DPB_USAGE, "device_alone is one worker, without accumulation, on cores of "
                                   "its own");
    if (!getenv(has_environment))
        return start_with_environment(&a, argv);
    DPB_TRY(dpb_experiment_build(a.x, 0));
    DPB_TRY(open_memory(&a));
    DPB_TRY(open_device(&a));
    DPB_TRY(open_batch(&a));
    return measure(&a); /* the process ends: what it holds goes with it */
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: device_alone FILE.ini [SECTION.KEY=VALUE...]\n");
        return 2;
    }
    return dpb_status_exit_code(run(argv));
}
