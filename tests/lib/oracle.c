/* oracle.c - see oracle.h. */
#include "lib/oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "graph/graph.h"
#include "lib/test.h"

static dpb_status on_final(void *context, uint64_t frontier, struct dpb_event *event)
{
    (void)context, (void)frontier, (void)event;
    return DPB_OK;
}

static dpb_status on_progress(void *context)
{
    (void)context;
    return DPB_OK;
}

static const struct dpb_hooks hooks = {.final = on_final, .progress = on_progress};

static void open_experiment(struct oracle *oracle, const char *settings)
{
    char line[2048];
    struct dpb_config *config = dpb_config_create();
    assert_true(snprintf(line, sizeof line, "%s", settings) < (int)sizeof line);
    for (char *word = strtok(line, " "); word; word = strtok(NULL, " "))
        assert_int_equal(dpb_config_assign(config, word, "test"), DPB_OK);
    assert_int_equal(dpb_experiment_create(config, &oracle->experiment), DPB_OK);
    assert_int_equal(dpb_experiment_build(oracle->experiment, 0), DPB_OK);
    dpb_config_destroy(config);
    oracle->graph = oracle->experiment->graph;
}

double *oracle_arena(const struct oracle *oracle)
{
    const struct dpb_graph *graph = oracle->graph;
    double *made = calloc(graph->n_elements + graph->n_state_elements + 1, sizeof *made);
    assert_non_null(made);
    return made;
}

void oracle_open(struct oracle *oracle, const char *settings)
{
    memset(oracle, 0, sizeof *oracle);
    open_experiment(oracle, settings);
    const struct dpb_experiment *x = oracle->experiment;
    const struct dpb_device_ops *ops = x->plugins[DPB_PLUGIN_DEVICE]->ops;
    double **const arenas[] = {&oracle->weights, &oracle->gradients, &oracle->state,
                               &oracle->statistics};
    for (int i = 0; i < 4; i++)
        *arenas[i] = oracle_arena(oracle);
    dpb_graph_initialise(x->graph, (uint64_t)x->settings.run.seed, DPB_FP64, oracle->weights);
    dpb_graph_initialise_state(x->graph, DPB_FP64, oracle->state);
    const struct dpb_device_args args = {.threads = 1, .seed = (uint64_t)x->settings.run.seed};
    const struct dpb_compile_args compile = {.graph = x->graph,
                                             .batch = x->batch,
                                             .precision = DPB_PRECISION_FP64,
                                             .training = true,
                                             .format = &x->data_info.format};
    const struct dpb_device_memory memory = {.weights = oracle->weights,
                                             .gradients = oracle->gradients,
                                             .state = oracle->state,
                                             .statistics = oracle->statistics};
    assert_int_equal(ops->open(x->options[DPB_PLUGIN_DEVICE], &args, &oracle->device), DPB_OK);
    assert_int_equal(ops->compile(oracle->device, &compile, &memory, &oracle->program), DPB_OK);
    assert_true(x->n_workers <= ORACLE_WORKERS);
    for (uint32_t w = 0; w < x->n_workers; w++) {
        struct dpb_feed_args feed = dpb_experiment_feed(x);
        feed.rank = w;
        feed.threads = 0;
        assert_int_equal(dpb_feed_create(&feed, &oracle->feeds[w]), DPB_OK);
    }
}

void oracle_close(struct oracle *oracle)
{
    const struct dpb_device_ops *ops = oracle->experiment->plugins[DPB_PLUGIN_DEVICE]->ops;
    ops->release(oracle->program);
    ops->close(oracle->device);
    for (uint32_t w = 0; w < oracle->experiment->n_workers; w++)
        dpb_feed_destroy(oracle->feeds[w]);
    free(oracle->weights);
    free(oracle->gradients);
    free(oracle->state);
    free(oracle->statistics);
    dpb_experiment_destroy(oracle->experiment);
}

void oracle_pass(struct oracle *oracle, uint32_t worker, uint64_t step, uint32_t micro_batch)
{
    const struct dpb_experiment *x = oracle->experiment;
    const struct dpb_device_ops *ops = x->plugins[DPB_PLUGIN_DEVICE]->ops;
    const struct dpb_pass pass = {.training = true,
                                  .weights_changed = true,
                                  .step = step,
                                  .first_sample = (worker * x->accumulate + micro_batch) * x->batch,
                                  .valid = x->batch,
                                  .loss_scale = 1.0};
    struct dpb_feed_batch input;
    struct dpb_outcome outcome;
    assert_int_equal(dpb_feed_next(oracle->feeds[worker], &input), DPB_OK);
    assert_int_equal(ops->forward(oracle->program, &pass, &input.batch, &hooks, &outcome), DPB_OK);
    assert_int_equal(ops->backward(oracle->program, &pass, &hooks), DPB_OK);
}

const struct weight_tensor *oracle_tensor(const struct weights *weights, const char *prefix,
                                          const struct dpb_tensor *tensor)
{
    char name[256];
    snprintf(name, sizeof name, "%s%s", prefix, tensor->name);
    for (size_t i = 0; i < weights->n_tensors; i++)
        if (strcmp(weights->tensors[i].name, name) == 0)
            return &weights->tensors[i];
    fail_msg("no tensor %s", name);
    return NULL;
}
