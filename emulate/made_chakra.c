/* made_chakra.c - a profile from a Chakra execution trace: see makers.h. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/parse.h"
#include "emulate/makers.h"

struct node {
    int64_t id;
    const json_t *json;      /* @borrowed of the list */
    double begin_us, end_us; /* begin: the latest end of the nodes that it depends on */
    bool computes, backward, all_reduce;
    bool after; /* it depends on an all-reduce */
};

struct trace {
    const char *path;
    struct dpb_made *made;
    json_t *list;       /* @owned */
    struct node *nodes; /* @owned; by id; [n_nodes] */
    size_t n_nodes;
};

/* A field by the name of et_def.proto, or as JSON of protobuf writes it. NULL: none. */
static const json_t *field(const json_t *node, const char *name, const char *camel)
{
    const json_t *value = json_object_get(node, name);
    return value ? value : json_object_get(node, camel);
}

/* An integer, which JSON of protobuf writes as text from 64 bits on; -1: none. */
static int64_t integer(const json_t *value)
{
    int64_t number = -1;
    if (json_is_integer(value))
        return json_integer_value(value);
    return json_is_string(value) && dpb_parse_int(json_string_value(value), &number) == DPB_PARSED
               ? number
               : -1;
}

/* The integer of an attribute; -1: none. */
static int64_t attribute(const json_t *node, const char *name)
{
    static const char *const values[][2] = {{"int64_val", "int64Val"},
                                            {"uint64_val", "uint64Val"},
                                            {"int32_val", "int32Val"},
                                            {"uint32_val", "uint32Val"}};
    dpb_each_item(json_object_get(node, "attr"), i, item)
        for (size_t k = 0; dpb_json_is(item, "name", name) && k < 4; k++)
            if (field(item, values[k][0], values[k][1]))
                return integer(field(item, values[k][0], values[k][1]));
    return -1;
}

static bool has_type(const json_t *node, const char *name, int number)
{
    const json_t *type = json_object_get(node, "type");
    return json_is_integer(type) ? json_integer_value(type) == number
                                 : dpb_json_is(node, "type", name);
}

static bool is_backward(const json_t *node)
{
    static const char *const marks[] = {"backward", "bwd", "_ig", "_wg"};
    const char *name = dpb_json_text(node, "name", "");
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        if (strcasestr(name, marks[i]))
            return true;
    return false;
}

/* ---- the nodes ----------------------------------------------------------------------------- */

/* The first character that is no blank; EOF: none. */
static int next_of(FILE *file)
{
    int next = getc(file);
    while (next == ' ' || next == '\n' || next == '\r' || next == '\t')
        next = getc(file);
    return next;
}

/* One object after the other, or lists of them. */
static dpb_status read_list(struct trace *trace)
{
    json_error_t error;
    FILE *file = fopen(trace->path, "re");
    trace->list = json_array();
    if (!file || !trace->list)
        return dpb_fail(DPB_USAGE, "%s: %s", trace->path, strerror(errno));
    dpb_status status = DPB_OK;
    for (int next; status == DPB_OK && (next = next_of(file)) != EOF;) {
        ungetc(next, file);
        json_t *part = json_loadf(file, JSON_DISABLE_EOF_CHECK, &error);
        if (!part)
            status = dpb_fail(DPB_USAGE, "%s: %s", trace->path, error.text);
        else if (json_is_array(part))
            json_array_extend(trace->list, part);
        else
            json_array_append(trace->list, part);
        json_decref(part);
    }
    fclose(file);
    return status;
}

static int by_id(const void *a, const void *b)
{
    const struct node *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* Messages without an id of a node (that with the trace's version) are left out. */
static dpb_status take_nodes(struct trace *trace)
{
    trace->nodes = calloc(json_array_size(trace->list) + 1, sizeof *trace->nodes);
    DPB_TRY(dpb_allocated(trace->nodes));
    dpb_each_item(trace->list, i, item) {
        const bool collective = has_type(item, "COMM_COLL_NODE", 7);
        if (!json_object_get(item, "type"))
            continue;
        trace->nodes[trace->n_nodes++] =
            (struct node){.id = json_object_get(item, "id") ? integer(json_object_get(item, "id"))
                                                            : 0, /* as JSON of
                                                                    protobuf leaves zeros out */
                          .json = item,
                          .computes = has_type(item, "COMP_NODE", 4),
                          .backward = is_backward(item),
                          .all_reduce = collective && attribute(item, "comm_type") == 0};
    }
    qsort(trace->nodes, trace->n_nodes, sizeof *trace->nodes, by_id);
    for (size_t i = 1; i < trace->n_nodes; i++)
        if (trace->nodes[i].id == trace->nodes[i - 1].id)
            return dpb_fail(DPB_USAGE, "%s: two nodes have the id %lld", trace->path,
                            (long long)trace->nodes[i].id);
    return DPB_OK;
}

/* Moves a node behind those of the list. *moved: the node ends later than before, or is of
 * another part of the step. `parents`: a node in backward hands that down, as an operator to its
 * kernels. */
static dpb_status follow(struct trace *trace, struct node *node, const json_t *list, bool parents,
                         bool *moved)
{
    const int64_t us = integer(field(node->json, "duration_micros", "durationMicros"));
    dpb_each_item(list, k, item) {
        const struct node key = {.id = integer(item)};
        const struct node *on =
            bsearch(&key, trace->nodes, trace->n_nodes, sizeof *trace->nodes, by_id);
        if (!on)
            return dpb_fail(DPB_USAGE, "%s: node %lld depends on a node that is not there",
                            trace->path, (long long)node->id);
        node->begin_us = fmax(node->begin_us, on->end_us);
        *moved |= !node->after && (on->after || on->all_reduce);
        node->after = node->after || on->after || on->all_reduce;
        *moved |= parents && on->backward && !node->backward;
        node->backward = node->backward || (parents && on->backward);
    }
    const double end_us = node->begin_us + (node->computes && us > 0 ? (double)us : 0);
    *moved |= end_us > node->end_us;
    node->end_us = end_us;
    return DPB_OK;
}

/* Until no node moves: twice where ids rise along dependencies, as they do in most traces. */
static dpb_status run(struct trace *trace)
{
    enum { ROUNDS = 1000 };
    bool moved = true;
    for (int round = 0; moved; round++) {
        if (round == ROUNDS)
            return dpb_fail(DPB_USAGE,
                            "%s: nodes depend on each other in a circle, or along more than %d "
                            "falling ids",
                            trace->path, ROUNDS);
        moved = false;
        for (size_t i = 0; i < trace->n_nodes; i++) {
            struct node *node = &trace->nodes[i];
            DPB_TRY(follow(trace, node, field(node->json, "data_deps", "dataDeps"), false, &moved));
            DPB_TRY(follow(trace, node, field(node->json, "ctrl_deps", "ctrlDeps"), true, &moved));
        }
    }
    return DPB_OK;
}

/* ---- the step ------------------------------------------------------------------------------ */

static dpb_status add_tensor(struct trace *trace, const struct node *node, double forward_us)
{
    char name[32];
    const int64_t bytes = attribute(node->json, "comm_size");
    const double elements = floor((double)bytes / dpb_precision_bytes(trace->made->precision));
    if (elements < 1)
        return dpb_fail(DPB_USAGE,
                        "%s: the all-reduce %lld has no attribute comm_size of an element",
                        trace->path, (long long)node->id);
    if (node->begin_us < forward_us)
        return dpb_fail(DPB_USAGE,
                        "%s: the all-reduce %lld is before the end of forward: a profile is of "
                        "data-parallel training, whose all-reduces follow backward",
                        trace->path, (long long)node->id);
    snprintf(name, sizeof name, "allreduce.%zu", trace->made->n_tensors);
    return dpb_made_add(trace->made, name, (uint64_t)elements, (node->begin_us - forward_us) * 1e3);
}

static int by_begin(const void *a, const void *b)
{
    const struct node *const *x = a, *const *y = b;
    return (*x)->begin_us != (*y)->begin_us ? ((*x)->begin_us > (*y)->begin_us ? 1 : -1)
                                            : by_id(*x, *y);
}

static dpb_status take_step(struct trace *trace)
{
    struct dpb_made *made = trace->made;
    double forward_us = 0, end_us = 0;
    size_t n = 0;
    const struct node **tensors = calloc(trace->n_nodes + 1, sizeof *tensors);
    DPB_TRY(dpb_allocated(tensors));
    for (size_t i = 0; i < trace->n_nodes; i++) {
        const struct node *node = &trace->nodes[i];
        if (node->all_reduce)
            tensors[n++] = node;
        if (!node->computes || node->after)
            continue;
        end_us = fmax(end_us, node->end_us);
        if (!node->backward)
            forward_us = fmax(forward_us, node->end_us);
    }
    dpb_status status = DPB_OK;
    if (n == 0 || !(end_us > forward_us))
        status = dpb_fail(DPB_USAGE,
                          "%s: the trace has no %s: nothing tells when gradients are "
                          "final",
                          trace->path,
                          n == 0 ? "all-reduce (COMM_COLL_NODE, comm_type 0)"
                                 : "node whose name has backward, bwd, _ig or _wg");
    else
        qsort(tensors, n, sizeof *tensors, by_begin);
    for (size_t i = 0; i < n && status == DPB_OK; i++)
        status = add_tensor(trace, tensors[i], forward_us);
    made->forward_ns = forward_us * 1e3;
    made->backward_ns = (end_us - forward_us) * 1e3;
    snprintf(made->assumed, sizeof made->assumed,
             "each of %zu all-reduces is one tensor of %s, and nodes run as soon as they may", n,
             made->precision);
    free(tensors);
    return status;
}

dpb_status dpb_made_of_chakra(const char *path, struct dpb_made *made)
{
    struct trace trace = {.path = path, .made = made};
    dpb_status status = read_list(&trace);
    DPB_THEN(status, take_nodes(&trace));
    DPB_THEN(status, run(&trace));
    DPB_THEN(status, take_step(&trace));
    free(trace.nodes);
    json_decref(trace.list);
    return status;
}
