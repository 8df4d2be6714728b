/* made_torch.c - a profile from a trace of PyTorch's profiler: see makers.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/text.h"
#include "emulate/makers.h"
#include "lib/accelerator/accelerator.h"

enum kind { FORWARD, BACKWARD, UPDATE, READY, KINDS };
static const char *const words[KINDS] = {"dpbench.forward", "dpbench.backward", "dpbench.update",
                                         "dpbench.ready "};

struct range {
    enum kind kind;
    double begin_us, us;
    const char *rest; /* of READY: "NAME ELEMENTS"; @borrowed of the trace */
    size_t number;    /* of the range in the trace: equal times keep its order */
};

struct trace {
    const char *path;
    struct dpb_made *made;
    struct range *ranges; /* @owned */
    size_t n_ranges;
    size_t *seen; /* @owned; steps of each tensor of `made`; [DPB_ACCELERATOR_TENSORS] */
    size_t next;  /* the tensor that is expected: that behind the last one */
    /* Sums over the steps whose backward has begun, in microseconds. */
    size_t n_steps, n_updates;
    double backward_begin_us; /* of this step */
    double forward_us, backward_us, update_us, step_us, square_us;
    double waiting_forward_us; /* of a forward whose backward has not begun; < 0: none */
};

static dpb_status refuse(const struct trace *trace, const char *what)
{
    return dpb_fail(DPB_USAGE, "%s: %s", trace->path, what);
}

/* ---- the ranges ---------------------------------------------------------------------------- */

static bool is_on(const json_t *event, const char *category)
{
    return dpb_json_is(event, "cat", category) &&
           (dpb_json_is(event, "ph", "X") || dpb_json_is(event, "ph", "i"));
}

static bool take_range(const json_t *event, size_t number, struct range *range)
{
    const char *name = dpb_json_text(event, "name", "");
    for (int kind = 0; kind < KINDS; kind++) {
        const size_t length = strlen(words[kind]);
        if (kind == READY ? !dpb_begins_with(name, words[kind]) : strcmp(name, words[kind]) != 0)
            continue;
        *range = (struct range){.kind = (enum kind)kind,
                                .begin_us = dpb_json_number(event, "ts"),
                                .us = dpb_json_number(event, "dur"),
                                .rest = name + length,
                                .number = number};
        if (kind == READY && dpb_json_is(event, "ph", "i"))
            range->us = 0;
        return true;
    }
    return false;
}

static int by_begin(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    return x->begin_us != y->begin_us ? (x->begin_us > y->begin_us ? 1 : -1)
                                      : (x->number > y->number) - (x->number < y->number);
}

/* Those of the GPU if there are any, else those of the processor. */
static dpb_status take_ranges(struct trace *trace, const json_t *document)
{
    static const char *const categories[] = {"gpu_user_annotation", "user_annotation"};
    const json_t *events =
        json_is_array(document) ? document : json_object_get(document, "traceEvents");
    trace->ranges = calloc(json_array_size(events) + 1, sizeof *trace->ranges);
    trace->seen = calloc(DPB_ACCELERATOR_TENSORS, sizeof *trace->seen);
    DPB_TRY(dpb_allocated(trace->ranges && trace->seen));
    for (int c = 0; c < 2 && trace->n_ranges == 0; c++)
        dpb_each_item(events, i, event)
            if (is_on(event, categories[c]) &&
                take_range(event, i, &trace->ranges[trace->n_ranges]))
                trace->n_ranges++;
    for (size_t i = 0; i < trace->n_ranges; i++)
        if (!isfinite(trace->ranges[i].begin_us) || !(trace->ranges[i].us >= 0))
            return refuse(trace, "a range dpbench.* has no times ts and dur");
    if (trace->n_ranges == 0)
        return refuse(trace, "no range dpbench.forward, dpbench.backward or dpbench.ready is in "
                             "the trace: docs/emulating.md has the script that makes them");
    qsort(trace->ranges, trace->n_ranges, sizeof *trace->ranges, by_begin);
    return DPB_OK;
}

/* ---- the steps ----------------------------------------------------------------------------- */

/* The tensor of this name, made if it is new: of steps alike, the one behind the last. */
static dpb_status find_tensor(struct trace *trace, const char *name, uint64_t n, size_t *found)
{
    struct dpb_made *made = trace->made;
    for (size_t k = 0; k < made->n_tensors; k++) {
        *found = (trace->next + k) % made->n_tensors;
        if (strcmp(made->tensors[*found].name, name) == 0) {
            trace->next = *found + 1;
            return made->tensors[*found].n_elements == n
                       ? DPB_OK
                       : dpb_fail(DPB_USAGE, "%s: tensor '%s' has two sizes", trace->path, name);
        }
    }
    *found = made->n_tensors;
    trace->next = *found + 1;
    if (*found == DPB_ACCELERATOR_TENSORS || trace->n_steps > 1)
        return dpb_fail(DPB_USAGE, "%s: tensor '%s' was not ready in the first step", trace->path,
                        name);
    return dpb_made_add(made, name, n, 0);
}

/* "NAME ELEMENTS" */
static dpb_status add_ready(struct trace *trace, const struct range *range)
{
    char name[256];
    int64_t n = 0;
    size_t i;
    const char *blank = strrchr(range->rest, ' ');
    if (!blank || blank == range->rest || (size_t)(blank - range->rest) >= sizeof name ||
        dpb_parse_int(blank + 1, &n) != DPB_PARSED || n < 1)
        return dpb_fail(DPB_USAGE, "%s: a range is dpbench.ready NAME ELEMENTS, not '%.100s'",
                        trace->path, range->rest);
    if (trace->n_steps == 0)
        return refuse(trace, "a tensor is ready before the first dpbench.backward");
    snprintf(name, sizeof name, "%.*s", (int)(blank - range->rest), range->rest);
    DPB_TRY(find_tensor(trace, name, (uint64_t)n, &i));
    if (++trace->seen[i] != trace->n_steps)
        return dpb_fail(DPB_USAGE,
                        "%s: tensor '%s' is not ready once a step: a profile needs steps alike",
                        trace->path, name);
    trace->made->tensors[i].ready_ns += (range->begin_us - trace->backward_begin_us) * 1e3;
    return DPB_OK;
}

static dpb_status add_range(struct trace *trace, const struct range *range)
{
    switch (range->kind) {
    case FORWARD:
        trace->waiting_forward_us = range->us;
        return DPB_OK;
    case BACKWARD:
        if (trace->waiting_forward_us < 0)
            return refuse(trace, "a dpbench.backward has no dpbench.forward before it");
        const double step_us = trace->waiting_forward_us + range->us;
        trace->forward_us += trace->waiting_forward_us;
        trace->backward_us += range->us;
        trace->step_us += step_us;
        trace->square_us += step_us * step_us;
        trace->backward_begin_us = range->begin_us;
        trace->waiting_forward_us = -1;
        trace->n_steps++;
        return DPB_OK;
    case UPDATE:
        trace->update_us += range->us;
        trace->n_updates++;
        return DPB_OK;
    default:
        return add_ready(trace, range);
    }
}

static int by_ready(const void *a, const void *b)
{
    const struct dpb_made_tensor *x = a, *y = b;
    return (x->ready_ns > y->ready_ns) - (x->ready_ns < y->ready_ns);
}

static dpb_status finish(struct trace *trace)
{
    struct dpb_made *made = trace->made;
    const double n = (double)trace->n_steps;
    double elements = 0;
    for (size_t i = 0; i < made->n_tensors; i++) {
        if (trace->seen[i] != trace->n_steps)
            return dpb_fail(DPB_USAGE, "%s: tensor '%s' was ready in %zu of %zu steps", trace->path,
                            made->tensors[i].name, trace->seen[i], trace->n_steps);
        elements += (double)made->tensors[i].n_elements;
    }
    if (made->n_tensors == 0)
        return refuse(trace, "no tensor is ready in a dpbench.backward");
    dpb_made_scale(made, 1 / n);
    qsort(made->tensors, made->n_tensors, sizeof *made->tensors, by_ready);
    made->forward_ns = trace->forward_us / n * 1e3;
    made->backward_ns = trace->backward_us / n * 1e3;
    const double mean_us = trace->step_us / n;
    if (trace->n_steps > 1 && mean_us > 0)
        made->spread =
            fmin(sqrt(fmax(trace->square_us - n * mean_us * mean_us, 0) / (n - 1)) / mean_us, 1);
    if (trace->n_updates > 0 && trace->update_us > 0)
        made->update_elements_per_s =
            elements / (trace->update_us / (double)trace->n_updates / 1e6);
    return DPB_OK;
}

dpb_status dpb_made_of_torch(const char *path, struct dpb_made *made)
{
    json_error_t error;
    struct trace trace = {.path = path, .made = made, .waiting_forward_us = -1};
    json_t *document = json_load_file(path, 0, &error);
    if (!document)
        return dpb_fail(DPB_USAGE, "%s: %s", path, error.text);
    dpb_status status = take_ranges(&trace, document);
    for (size_t i = 0; i < trace.n_ranges && status == DPB_OK; i++)
        status = add_range(&trace, &trace.ranges[i]);
    DPB_THEN(status, finish(&trace));
    snprintf(made->assumed, sizeof made->assumed, "means of %zu steps, with the profiler's cost",
             trace.n_steps);
    free(trace.ranges);
    free(trace.seen);
    json_decref(document);
    return status;
}
