/* made_work.c - a profile from an accelerator's rate or figures, and a network's work: see
 * makers.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/lines.h"
#include "base/log.h"
#include "base/parse.h"
#include "emulate/makers.h"

double dpb_precision_bytes(const char *precision)
{
    static const struct {
        const char *name;
        double bytes;
    } known[] = {{"fp64", 8}, {"fp32", 4}, {"tf32", 4}, {"bf16", 2}, {"fp16", 2}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].name, precision) == 0)
            return known[i].bytes;
    return 0;
}

/* ---- networks ------------------------------------------------------------------------------ */

dpb_status dpb_made_network(const struct dpb_config *settings, struct dpb_experiment **experiment)
{
    static const char *const own[][3] = {{"run", "workers", "1"},
                                         {"run", "batch", "1"},
                                         {"run", "steps", "1"},
                                         {"comm", "name", "independent"},
                                         {"device", "name", "reference"}};
    struct dpb_config *config = dpb_config_copy(settings);
    struct dpb_experiment *made = NULL;
    DPB_TRY(dpb_allocated(config));
    dpb_status status = DPB_OK;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        DPB_THEN(status,
                 dpb_config_set(config, own[i][0], own[i][1], own[i][2], "dpbench profile"));
    if (!dpb_config_get(config, "data", "name"))
        DPB_THEN(status, dpb_config_set(config, "data", "name", "synthetic", "dpbench profile"));
    DPB_THEN(status, dpb_experiment_create(config, &made));
    dpb_config_destroy(config);
    /* As a server, which opens data for their shape alone. */
    DPB_THEN(status, dpb_experiment_build(made, made->n_workers));
    if (status == DPB_OK)
        *experiment = made;
    else
        dpb_experiment_destroy(made);
    return status;
}

/* ---- the roofline -------------------------------------------------------------------------- */

struct roof {
    const struct dpb_work *work;
    double flops, bandwidth, element_bytes;
    double forward_ns; /* of all nodes so far, from the last one on */
    struct dpb_made *made;
};

/* Adds the time of a node: multiply-accumulates of one sample, elements of a batch. */
static void add_time(struct roof *roof, double macs, double elements)
{
    const double by_macs = 2 * macs * roof->made->batch / roof->flops;
    const double by_bytes = elements * roof->element_bytes / roof->bandwidth;
    roof->forward_ns += fmax(by_macs, by_bytes) * 1e9;
    roof->made->macs += macs;
}

static double n_elements(struct dpb_shape shape)
{
    return (double)shape.c * shape.h * shape.w;
}

static dpb_status add_tensor(struct roof *roof, const struct dpb_tensor *tensor)
{
    return dpb_made_add(roof->made, tensor->name, tensor->n_elements, roof->forward_ns);
}

static dpb_status walk_graph(struct roof *roof, const struct dpb_graph *graph)
{
    for (uint32_t i = graph->n_nodes; i-- > 1;) { /* [0] is the input */
        const struct dpb_node *node = &graph->nodes[i];
        const struct dpb_tensor *weight =
            node->weight != DPB_NONE ? &graph->tensors[node->weight] : NULL;
        const struct dpb_tensor *bias = node->bias != DPB_NONE ? &graph->tensors[node->bias] : NULL;
        double elements = n_elements(node->shape);
        for (uint32_t k = 0; k < node->n_inputs; k++)
            elements += n_elements(graph->nodes[node->inputs[k]].shape);
        add_time(roof, (double)node->macs,
                 elements * roof->made->batch + (weight ? (double)weight->n_elements : 0) +
                     (bias ? (double)bias->n_elements : 0));
        if (weight && weight->node == i) /* or an embedding's, added at its turn */
            DPB_TRY(add_tensor(roof, weight));
        if (bias)
            DPB_TRY(add_tensor(roof, bias));
    }
    return DPB_OK;
}

/* ---- a file of tensors --------------------------------------------------------------------- */

/* Of "NAME ELEMENTS MACS"; the name "-": work without a tensor. */
static dpb_status take_line(struct roof *roof, const char *place, char *line)
{
    char *rest = NULL, *name = strtok_r(line, " \t", &rest);
    const char *elements = strtok_r(NULL, " \t", &rest);
    const char *macs = strtok_r(NULL, " \t", &rest);
    int64_t n = 0;
    double work = 0;
    const bool none = name && strcmp(name, "-") == 0;
    if (!name || !elements || !macs || strtok_r(NULL, " \t", &rest) ||
        dpb_parse_int(elements, &n) != DPB_PARSED || n < (none ? 0 : 1) ||
        dpb_parse_real(macs, &work) != DPB_PARSED || work < 0)
        return dpb_fail(DPB_USAGE,
                        "%s: a line is NAME ELEMENTS MACS: a tensor (- for none), its elements, "
                        "and the forward multiply-accumulates of one sample with it",
                        place);
    add_time(roof, work, (double)n);
    return none ? DPB_OK : dpb_made_add(roof->made, name, (uint64_t)n, roof->forward_ns);
}

static dpb_status walk_file(struct roof *roof, const char *path)
{
    char line[1024], place[300];
    struct dpb_lines lines = dpb_lines_open(path);
    while (dpb_lines_next(&lines, line, sizeof line)) {
        snprintf(place, sizeof place, "%.250s:%d", path, lines.number);
        lines.status = take_line(roof, place, line);
    }
    dpb_lines_close(&lines);
    return lines.status;
}

/* ---- the step ------------------------------------------------------------------------------ */

/* A third of a step is forward. */
static void set_step(struct roof *roof)
{
    const struct dpb_work *work = roof->work;
    struct dpb_made *made = roof->made;
    const double step_ns =
        work->rate > 0 ? made->batch / work->rate * 1e9 : 3 * roof->forward_ns / work->share;
    made->forward_ns = step_ns / 3;
    made->backward_ns = step_ns - made->forward_ns;
    dpb_made_scale(made, roof->forward_ns > 0 ? made->backward_ns / roof->forward_ns : 0);
    if (work->rate > 0)
        snprintf(made->assumed, sizeof made->assumed,
                 "backward is two thirds of a step, and nodes divide it by a roofline of %.3g FLOP "
                 "a byte",
                 roof->flops / roof->bandwidth);
    else
        snprintf(made->assumed, sizeof made->assumed,
                 "%.3g %% of %.3g TFLOP/s and %.3g TB/s is reached, and backward is two thirds of "
                 "a step",
                 100 * work->share, work->flops / 1e12, work->bandwidth / 1e12);
    if (made->source[0] == '\0')
        snprintf(made->source, sizeof made->source, "%.500s", made->assumed);
}

dpb_status dpb_made_of_work(const struct dpb_work *work, struct dpb_made *made)
{
    struct roof roof = {.work = work,
                        .flops = work->flops > 0 ? work->flops : DPB_WORK_RATIO,
                        .bandwidth = work->bandwidth > 0 ? work->bandwidth : 1,
                        .element_bytes = dpb_precision_bytes(made->precision),
                        .made = made};
    struct dpb_experiment *experiment = NULL;
    dpb_status status = DPB_OK;
    if (work->settings) {
        DPB_TRY(dpb_made_network(work->settings, &experiment));
        status = walk_graph(&roof, experiment->graph);
    } else {
        status = walk_file(&roof, work->tensors);
    }
    if (status == DPB_OK)
        set_step(&roof);
    dpb_experiment_destroy(experiment);
    return status;
}
