/* made_result.c - a profile from the result of a run: see makers.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/stats.h"
#include "emulate/makers.h"
#include "study/document/read.h"

struct reading {
    const char *path;
    const json_t *result;
    struct dpb_made *made;
};

static dpb_status refuse(const struct reading *r, const char *what)
{
    return dpb_fail(DPB_USAGE, "%s: %s", r->path, what);
}

static dpb_status check(const struct reading *r)
{
    const json_t *result = r->result;
    if (dpb_json_is(result, "config.device.name.value", "emulated"))
        return refuse(r, "the run's device was emulated, and an emulation is no measurement: "
                         "`dpbench profile show` shows the profile that it was made from");
    DPB_TRY(dpb_result_of_one_worker(result, r->path, "a profile needs"));
    if (dpb_json_number(result, "batch.accumulate") != 1)
        return refuse(r, "the run has micro-batches, whose backward passes are not told apart: "
                         "measure with run.accumulate=1");
    if (dpb_json_number(result, "timing.breakdown_ns.delay") > 0)
        return refuse(r, "the run was delayed on purpose: measure without run.delay");
    if (!dpb_json_at(result, "timing.ready.elements"))
        return refuse(r, "timing.ready is missing: the device does not tell when gradients are "
                         "final; profile a PyTorch step by --torch, or give the rate by --rate");
    return DPB_OK;
}

/* The first steps over the mean, while they are far above it. */
static void take_warmup(struct reading *r, double mean_ns)
{
    static const double far = 1.2;
    const json_t *list = dpb_json_at(r->result, "timing.warmup_step_ns");
    for (size_t i = 0; i < DPB_MADE_WARMUP && dpb_json_item(list, i) > far * mean_ns; i++)
        r->made->warmup[r->made->n_warmup++] = dpb_json_item(list, i) / mean_ns;
}

static dpb_status take_steps(struct reading *r)
{
    const json_t *result = r->result;
    struct dpb_made *made = r->made;
    struct dpb_stats stats;
    size_t n;
    double *steps = dpb_json_numbers(dpb_json_at(result, "timing.step_ns"), "", &n);
    DPB_TRY(dpb_allocated(steps));
    dpb_stats_of(steps, n, &stats);
    free(steps);
    const double backward_ns = dpb_json_number(result, "timing.breakdown_ns.backward");
    const double compute_ns = stats.mean -
                              dpb_json_number(result, "timing.breakdown_ns.optimizer") -
                              dpb_json_number(result, "timing.breakdown_ns.comm_exposed");
    const double batch = dpb_json_number(result, "batch.per_worker");
    if (!(backward_ns > 0) || !(compute_ns >= backward_ns))
        return refuse(r, "timing.step_ns or timing.breakdown_ns has no times of a step");
    if (!(batch >= 1) || batch > UINT32_MAX)
        return refuse(r, "batch.per_worker is no number of samples");
    made->batch = (uint32_t)batch;
    made->forward_ns = compute_ns - backward_ns;
    made->backward_ns = backward_ns;
    made->spread = n > 1 ? fmin(stats.jitter / stats.mean, 1) : 0;
    take_warmup(r, stats.mean);
    const double wait_ns = dpb_json_number(result, "timing.breakdown_ns.data_wait");
    const size_t used = strlen(made->assumed);
    if (wait_ns > compute_ns / 100)
        snprintf(made->assumed + used, sizeof made->assumed - used,
                 "; forward has %.2f ms of waiting for data", wait_ns / 1e6);
    return DPB_OK;
}

/* The nodes' multiply-accumulates count once, with the node's first tensor; in a group without any,
 * its elements. */
static double work_of(const struct dpb_graph *graph, uint32_t i, bool by_macs)
{
    const struct dpb_tensor *tensor = &graph->tensors[i];
    const bool first = i == 0 || graph->tensors[i - 1].node != tensor->node;
    return !by_macs ? (double)tensor->n_elements
           : first  ? (double)graph->nodes[tensor->node].macs
                    : 0;
}

/* Tensors [from, to) become final after begin_ns, the last one at end_ns. */
static dpb_status add_group(struct dpb_made *made, const struct dpb_graph *graph, uint32_t from,
                            uint32_t to, double begin_ns, double end_ns)
{
    double all = 0, done = 0;
    for (uint32_t i = from; i < to; i++)
        all += work_of(graph, i, true);
    const bool by_macs = all > 0;
    for (uint32_t i = from; i < to && !by_macs; i++)
        all += work_of(graph, i, false);
    for (uint32_t i = from; i < to; i++) {
        done += work_of(graph, i, by_macs);
        DPB_TRY(dpb_made_add(made, graph->tensors[i].name, graph->tensors[i].n_elements,
                             i + 1 == to ? end_ns : begin_ns + (end_ns - begin_ns) * done / all));
    }
    return DPB_OK;
}

/* timing.ready counts from the begin of the step, a profile from that of backward. */
static dpb_status take_ready(struct reading *r, const struct dpb_graph *graph)
{
    const json_t *elements = dpb_json_at(r->result, "timing.ready.elements");
    const json_t *ns = dpb_json_at(r->result, "timing.ready.ns");
    double before_ns = 0;
    uint32_t from = 0, to = 0;
    for (size_t k = 0; k < json_array_size(elements); k++) {
        const double frontier = dpb_json_item(elements, k);
        const double ns_of_step = dpb_json_item(ns, k);
        const double ready_ns =
            fmin(fmax(ns_of_step - r->made->forward_ns, 0), r->made->backward_ns);
        while (to < graph->n_tensors &&
               (double)(graph->tensors[to].offset + graph->tensors[to].n_elements) <= frontier)
            to++;
        if (!(ns_of_step >= 0) || ready_ns < before_ns)
            return refuse(r, "timing.ready has no rising times");
        if (to > from)
            DPB_TRY(add_group(r->made, graph, from, to, before_ns, ready_ns));
        before_ns = ready_ns;
        from = to;
    }
    return to == graph->n_tensors
               ? DPB_OK
               : refuse(r, "timing.ready ends before the last tensor of the model");
}

/* The settings of the run that make its network. */
static dpb_status take_network(struct reading *r, struct dpb_experiment **experiment)
{
    struct dpb_config *config = dpb_config_create();
    json_t *settings = json_object();
    dpb_status status = dpb_allocated(config && settings);
    if (status == DPB_OK) {
        const json_t *all = json_object_get(r->result, "config");
        json_object_set(settings, "model", json_object_get(all, "model"));
        json_object_set(settings, "data", json_object_get(all, "data"));
        status = dpb_config_from_json(config, settings, r->path);
    }
    DPB_THEN(status, dpb_config_set(config, "model", "name", r->made->model, r->path));
    DPB_THEN(status, dpb_made_network(config, experiment));
    json_decref(settings);
    dpb_config_destroy(config);
    return status;
}

static dpb_status take_all(struct reading *r)
{
    struct dpb_made *made = r->made;
    struct dpb_experiment *experiment = NULL;
    DPB_TRY(take_steps(r));
    DPB_TRY(take_network(r, &experiment));
    made->macs = (double)experiment->graph->macs;
    dpb_status status =
        (double)experiment->graph->n_parameters == dpb_json_number(r->result, "model.parameters")
            ? take_ready(r, experiment->graph)
            : refuse(r, "model.parameters is not that of the network of its settings");
    dpb_experiment_destroy(experiment);
    return status;
}

dpb_status dpb_made_of_result(const char *path, struct dpb_made *made)
{
    DPB_TRY(dpb_result_read(path, &made->from));
    struct reading r = {.path = path, .result = made->from, .made = made};
    DPB_TRY(check(&r));
    const json_t *gpu = json_object_get(json_array_get(dpb_json_at(r.result, "ranks"), 0), "gpu");
    const char *processor = dpb_json_text(r.result, "machine.processor", "");
    const char *slash = strrchr(path, '/');
    made->model = dpb_json_text(r.result, "model.name", "");
    made->precision = dpb_json_text(r.result, "config.run.precision.value", "");
    made->kind = "measured";
    if (!made->accelerator)
        made->accelerator = dpb_json_text(gpu, "name", processor);
    if (made->source[0] == '\0')
        snprintf(made->source, sizeof made->source, "dpbench, %.200s of %.20s on %.100s",
                 slash ? slash + 1 : path, dpb_json_text(r.result, "started", "?"),
                 dpb_json_text(r.result, "config.device.name.value", "?"));
    snprintf(made->assumed, sizeof made->assumed,
             "between the times that the device told, tensors take times by their work");
    return take_all(&r);
}
