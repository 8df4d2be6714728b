/* predict_report.c - see predict_report.h. */
#include "study/predict_report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/comparison.h"
#include "base/log.h"
#include "base/stats.h"
#include "base/options.h"
#include "study/json.h"

/* What TCP leaves of a link: 1448 of the 1538 bytes that a full Ethernet frame takes. */
static const double tcp_share = 1448.0 / 1538;
/* Steps that differ by less are equally fast. */
static const double equal_within = 0.01;
static const double hidden_share = 0.05;

static const struct strategy {
    const char *name;
    enum dpb_way way;
    bool tcp;
} strategies[] = {
    {"independent", DPB_WAY_ALONE, false}, {"shm", DPB_WAY_MEMORY, false},
    {"ring_tcp", DPB_WAY_RING, true},      {"ring_verbs", DPB_WAY_RING, false},
    {"ps_cpu", DPB_WAY_SERVERS, true},     {"hierarchical", DPB_WAY_HIERARCHICAL, true},
};
enum { N_STRATEGIES = sizeof strategies / sizeof *strategies };

/* A document being made. */
struct maker {
    const struct dpb_predict_request *request;
    struct dpb_measured measured;
    double *ready_s, *ready_bytes, *factors;    /* @owned */
    double step_s, batch, bucket_bytes, spread; /* spread: half the 95 % interval's logarithm */
    bool helper, even;
    const struct strategy *chosen[DPB_PREDICT_LIST];
    size_t n_chosen;
    json_t *rows;
};

/* ---- the measured worker ------------------------------------------------------------------- */

static dpb_status refuse(const struct maker *maker, const char *what)
{
    return dpb_fail(DPB_USAGE, "%s: %s", maker->request->path, what);
}

static dpb_status check_result(const struct maker *maker)
{
    const json_t *result = maker->request->result;
    const char *consistency = dpb_json_text(result, "strategy.consistency", "");
    const double workers = dpb_json_number(result, "world.workers");
    if (strcmp(dpb_json_text(result, "schema", ""), "dpbench.result/1") != 0)
        return refuse(maker, "predict needs the result of one run, schema dpbench.result/1");
    if (strcmp(dpb_json_text(result, "status", ""), "ok") != 0)
        return refuse(maker, "the run did not end well");
    if (workers != 1)
        return dpb_fail(DPB_USAGE,
                        "%s: predict needs a run of one worker, and this has %.0f: measure with "
                        "run.workers=1 comm.name=independent",
                        maker->request->path, workers);
    if (strcmp(consistency, "none") != 0 && strcmp(consistency, "synchronous") != 0)
        return dpb_fail(DPB_USAGE,
                        "%s: the strategy was %s (%s), whose worker's step is not that of a "
                        "synchronous one: measure with comm.name=independent",
                        maker->request->path, dpb_json_text(result, "strategy.name", "?"),
                        consistency);
    if (!(dpb_json_number(result, "timing.steps") >= 1))
        return refuse(maker, "the run has no timed step");
    return DPB_OK;
}

/* Step times over their mean, rising, and the uncertainty of that mean. */
static dpb_status read_steps(struct maker *maker)
{
    const json_t *steps = dpb_json_at(maker->request->result, "timing.step_ns");
    const size_t n = json_array_size(steps);
    struct dpb_estimate estimate;
    double mean_ns = 0;
    maker->factors = calloc(n, sizeof *maker->factors);
    if (!maker->factors)
        return dpb_fail(DPB_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++) {
        maker->factors[i] = json_number_value(json_array_get(steps, i));
        mean_ns += maker->factors[i] / (double)n;
    }
    if (!(mean_ns > 0))
        return refuse(maker, "timing.step_ns has no times");
    dpb_estimate_of_steps(maker->factors, n, 1, &estimate);
    maker->spread = isfinite(estimate.error) ? 1.96 * estimate.error : NAN;
    for (size_t i = 0; i < n; i++)
        maker->factors[i] /= mean_ns;
    dpb_sort(maker->factors, n);
    maker->step_s = mean_ns / 1e9;
    maker->measured.factors = maker->factors;
    maker->measured.n_factors = n;
    return DPB_OK;
}

static const char *type_of(const json_t *result)
{
    const char *type = dpb_json_text(result, "config.comm.gradient.value", "auto");
    if (strcmp(type, "auto") != 0)
        return type;
    return strcmp(dpb_json_text(result, "config.run.precision.value", ""), "fp64") == 0 ? "fp64"
                                                                                        : "fp32";
}

/* When gradients are final. Of a device that did not tell, evenly over backward: said in the
 * document and above the table. */
static dpb_status read_ready(struct maker *maker)
{
    enum { EVEN = 64 };
    const json_t *result = maker->request->result;
    const json_t *elements = dpb_json_at(result, "timing.ready.elements");
    const json_t *ns = dpb_json_at(result, "timing.ready.ns");
    const char *type = type_of(result);
    const double bytes = strcmp(type, "fp64") == 0 ? 8 : strcmp(type, "bf16") == 0 ? 2 : 4;
    const double backward_s = dpb_json_number(result, "timing.breakdown_ns.backward") / 1e9;
    const double parameters = dpb_json_number(result, "model.parameters");
    size_t n = json_array_size(elements);
    maker->even = n == 0;
    n = maker->even ? EVEN : n;
    maker->ready_s = calloc(n, sizeof(double));
    maker->ready_bytes = calloc(n, sizeof(double));
    if (!maker->ready_s || !maker->ready_bytes)
        return dpb_fail(DPB_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++) {
        const double part = (double)(i + 1) / EVEN;
        maker->ready_s[i] = maker->even ? maker->measured.compute_s - (1 - part) * backward_s
                                        : json_number_value(json_array_get(ns, i)) / 1e9;
        maker->ready_bytes[i] =
            bytes *
            (maker->even ? part * parameters : json_number_value(json_array_get(elements, i)));
        bool rises = i == 0 || (maker->ready_bytes[i] > maker->ready_bytes[i - 1] &&
                                maker->ready_s[i] >= maker->ready_s[i - 1]);
        if (!rises || !(maker->ready_bytes[i] > 0) || !(maker->ready_s[i] >= 0))
            return refuse(maker, "timing.ready has no rising times and elements");
    }
    maker->measured.ready_s = maker->ready_s;
    maker->measured.ready_bytes = maker->ready_bytes;
    maker->measured.n_ready = n;
    /* Both are means of the same steps, by two sums. */
    maker->measured.compute_s = fmax(maker->measured.compute_s, maker->ready_s[n - 1]);
    return DPB_OK;
}

static dpb_status read_result(struct maker *maker)
{
    const json_t *result = maker->request->result;
    DPB_TRY(check_result(maker));
    DPB_TRY(read_steps(maker));
    maker->batch =
        dpb_json_number(result, "batch.per_worker") * dpb_json_number(result, "batch.accumulate");
    maker->bucket_bytes = dpb_json_number(result, "config.comm.bucket.value");
    maker->helper = dpb_json_number(result, "config.run.comm_cores.value") > 0;
    maker->measured.update_s = dpb_json_number(result, "timing.breakdown_ns.optimizer") / 1e9;
    maker->measured.compute_s = maker->step_s - maker->measured.update_s -
                                dpb_json_number(result, "timing.breakdown_ns.comm_exposed") / 1e9;
    if (!(maker->batch > 0) || !(maker->bucket_bytes > 0) || !(maker->measured.update_s >= 0) ||
        !(maker->measured.compute_s > 0))
        return refuse(maker, "batch, comm.bucket or timing.breakdown_ns is missing");
    return read_ready(maker);
}

/* ---- what is asked ------------------------------------------------------------------------- */

static const struct strategy *find_strategy(const char *name)
{
    for (size_t i = 0; i < N_STRATEGIES; i++)
        if (strcmp(strategies[i].name, name) == 0)
            return &strategies[i];
    return NULL;
}

static dpb_status refuse_strategy(const char *name)
{
    const char *names[N_STRATEGIES + 1] = {NULL};
    for (size_t i = 0; i < N_STRATEGIES; i++)
        names[i] = strategies[i].name;
    const char *near = dpb_did_you_mean(name, names);
    return dpb_fail(DPB_USAGE,
                    "predict has no model of strategy '%s'%s%s%s: it has independent, shm, "
                    "ring_tcp, ring_verbs, hierarchical, ps_cpu. Asynchronous and averaging "
                    "strategies, and those whose library chooses how to exchange, can only be "
                    "measured",
                    name, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

/* All: but the one over RDMA, whose links are others than those of TCP. */
static dpb_status choose_strategies(struct maker *maker)
{
    const struct dpb_predict_request *request = maker->request;
    for (size_t i = 0; i < N_STRATEGIES && request->n_strategies == 0; i++)
        if (strcmp(strategies[i].name, "ring_verbs") != 0)
            maker->chosen[maker->n_chosen++] = &strategies[i];
    for (size_t i = 0; i < request->n_strategies; i++) {
        const struct strategy *strategy = find_strategy(request->strategies[i]);
        if (!strategy)
            return refuse_strategy(request->strategies[i]);
        maker->chosen[maker->n_chosen++] = strategy;
    }
    return DPB_OK;
}

/* Whether the strategy can run so, and is not the same as another of the table. */
/* A link that was measured within a machine says nothing of those between machines. */
static bool applies(const struct strategy *strategy, const struct dpb_prediction_case *c)
{
    if (strategy->way != DPB_WAY_ALONE && c->workers > c->per_machine &&
        !isfinite(c->outside.bytes_per_s))
        return false;
    if (strategy->way == DPB_WAY_MEMORY)
        return c->workers <= c->per_machine;
    return strategy->way != DPB_WAY_HIERARCHICAL ||
           (c->per_machine > 1 && c->workers > c->per_machine);
}

/* ---- links --------------------------------------------------------------------------------- */

struct link {
    struct dpb_cost outside, inside;
    double error;                      /* relative, of the fit; 0: given */
    const struct strategy *fitted;     /* NULL: given */
    double workers, smallest, largest; /* of the fit */
};

/* Points of one bucket: the fit's. */
static size_t read_points(const json_t *comm, double *bytes, double *time_s, size_t capacity)
{
    const json_t *point;
    size_t i, n = 0;
    json_array_foreach(json_object_get(comm, "points"), i, point)
    {
        const double p50 = dpb_json_number(point, "time_us.p50");
        if (dpb_json_number(point, "buckets") != 1 || !(p50 > 0) || n == capacity)
            continue;
        bytes[n] = dpb_json_number(point, "bytes");
        time_s[n++] = p50 / 1e6;
    }
    return n;
}

static dpb_status fit_link(const struct dpb_predict_request *request,
                           const struct dpb_predict_link *given, struct link *link)
{
    enum { MOST = 128 };
    double bytes[MOST], time_s[MOST];
    struct dpb_cost cost;
    const char *name = dpb_json_text(given->comm, "strategy.name", "?");
    link->fitted = find_strategy(name);
    if (!link->fitted)
        return refuse_strategy(name);
    if (strcmp(dpb_json_text(given->comm, "status", ""), "ok") != 0)
        return dpb_fail(DPB_USAGE, "%s: the measurement did not end well", given->name);
    link->workers = dpb_json_number(given->comm, "world.workers");
    if (link->fitted->way == DPB_WAY_ALONE || link->fitted->way == DPB_WAY_HIERARCHICAL ||
        !(link->workers >= 2))
        return dpb_fail(DPB_USAGE,
                        "%s: no link can be found in an exchange by %s of %.0f: measure ring_tcp "
                        "or ps_cpu with 2 workers or more",
                        given->name, name, link->workers);
    const bool memory = link->fitted->way == DPB_WAY_MEMORY;
    if (memory && isfinite(request->inside.bytes_per_s))
        return dpb_fail(DPB_USAGE,
                        "%s: %s measures how fast a worker copies within its machine, and --inside "
                        "says it, too: leave one of them out",
                        given->name, name);
    const double servers = dpb_json_number(given->comm, "world.servers");
    const double machines = dpb_json_number(given->comm, "world.machines");
    /* On one machine a ring runs over the loopback; ps_cpu exchanges through shared memory. */
    const bool ring_inside = link->fitted->way == DPB_WAY_RING && machines == 1;
    if (!memory && !ring_inside && machines != link->workers + servers)
        return dpb_fail(DPB_USAGE,
                        "%s: %.0f ranks of %s were measured on %.0f machines; measure with each "
                        "rank on a machine of its own, as by comm.hosts = 1+1",
                        given->name, link->workers + servers, name, machines);
    const struct dpb_prediction_case c = {.way = link->fitted->way,
                                          .workers = (uint32_t)link->workers,
                                          .per_machine = memory ? (uint32_t)link->workers : 1,
                                          .servers = (uint32_t)servers,
                                          .bucket_bytes =
                                              dpb_json_number(given->comm, "bucket_bytes"),
                                          .host = {.bytes_per_s = INFINITY},
                                          .compute_scale = 1};
    const size_t n = read_points(given->comm, bytes, time_s, MOST);
    DPB_TRY(dpb_predict_fit(&c, bytes, time_s, n, &cost, &link->error));
    link->smallest = bytes[0], link->largest = bytes[n - 1];
    *(memory ? &link->inside : &link->outside) = cost;
    if (memory && request->per_machine == 1)
        return dpb_fail(DPB_USAGE,
                        "%s: measured within a machine; say how many workers a machine "
                        "has, by --per-machine",
                        given->name);
    return DPB_OK;
}

static dpb_status make_link(const struct dpb_predict_request *request,
                            const struct dpb_predict_link *given, struct link *link)
{
    *link = (struct link){.outside = given->cost, .inside = request->inside};
    if (given->comm)
        DPB_TRY(fit_link(request, given, link));
    if (request->per_machine > 1 && !isfinite(link->inside.bytes_per_s))
        return dpb_fail(
            DPB_USAGE,
            "%s: --per-machine %u needs --inside RATE,LATENCY: how fast a worker copies "
            "within a machine",
            given->name, request->per_machine);
    return DPB_OK;
}

static json_t *link_to_json(const struct dpb_predict_link *given, const struct link *link)
{
    return json_pack("{s:o, s:s, s:o, s:o, s:o, s:o, s:o}", "name", dpb_json_string(given->name),
                     "source", link->fitted ? "measured" : "given",                            //
                     "bytes_per_s", dpb_json_real(link->outside.bytes_per_s),                  //
                     "latency_s", dpb_json_real(link->outside.latency_s),                      //
                     "strategy", link->fitted ? json_string(link->fitted->name) : json_null(), //
                     "workers", link->fitted ? json_real(link->workers) : json_null(),         //
                     "error", link->fitted ? dpb_json_real(link->error) : json_null());
}

/* ---- rows ---------------------------------------------------------------------------------- */

/* Why a row goes beyond what was measured. */
static json_t *beyond_of(const struct maker *maker, const struct strategy *strategy,
                         const struct dpb_prediction_case *c, double batch, const struct link *link)
{
    json_t *list = json_array();
    if (batch != maker->batch)
        json_array_append_new(list, json_string("batch"));
    if (c->workers > maker->measured.n_factors && strategy->way != DPB_WAY_ALONE)
        json_array_append_new(list, json_string("steps"));
    if (!link->fitted || strategy->way == DPB_WAY_ALONE)
        return list;
    if (c->workers != link->workers)
        json_array_append_new(list, json_string("workers"));
    if (strategy != link->fitted)
        json_array_append_new(list, json_string("strategy"));
    if (c->bucket_bytes < link->smallest || c->bucket_bytes > link->largest)
        json_array_append_new(list, json_string("bucket"));
    return list;
}

/* The interval: the worker's mean step and the fitted link, each at its better and its worse end.
 * At the low end all workers' slow steps coincide. */
static dpb_status predict_interval(const struct maker *maker, const struct dpb_prediction_case *c,
                                   double error, double *low_s, double *high_s)
{
    struct dpb_predicted low, high;
    struct dpb_prediction_case better = *c, worse = *c;
    if (isnan(maker->spread)) {
        *low_s = *high_s = NAN;
        return DPB_OK;
    }
    better.compute_scale *= exp(-maker->spread);
    worse.compute_scale *= exp(maker->spread);
    better.outside.bytes_per_s *= 1 + error;
    better.inside.bytes_per_s *= 1 + error;
    worse.outside.bytes_per_s /= 1 + error;
    worse.inside.bytes_per_s /= 1 + error;
    DPB_TRY(dpb_predict_mean(&maker->measured, &better, true, &low));
    DPB_TRY(dpb_predict_mean(&maker->measured, &worse, false, &high));
    *low_s = low.step_s;
    *high_s = high.step_s;
    return DPB_OK;
}

static dpb_status add_row(struct maker *maker, const struct strategy *strategy,
                          const struct dpb_prediction_case *c, double batch, size_t link_number,
                          const struct link *link)
{
    struct dpb_predicted step;
    double low_s, high_s, least = 0;
    const double alone = maker->batch / maker->step_s * c->workers;
    DPB_TRY(dpb_predict_mean(&maker->measured, c, false, &step));
    DPB_TRY(predict_interval(maker, c, link->error, &low_s, &high_s));
    if (strategy->way != DPB_WAY_ALONE)
        DPB_TRY(dpb_predict_least_bandwidth(&maker->measured, c, hidden_share, &least));
    const bool framed = strategy->tcp && !link->fitted && c->workers > c->per_machine;
    const double wire = framed ? tcp_share : 1;
    const double rate = batch * c->workers / step.step_s;
    const double own_alone =
        batch == maker->batch
            ? alone
            : batch * c->workers /
                  (maker->measured.compute_s * c->compute_scale + maker->measured.update_s);
    json_array_append_new(
        maker->rows,
        json_pack("{s:I, s:f, s:f, s:I, s:s, s:f, s:o, s:o, s:f, s:f, s:f, s:f, s:o, s:b, s:o}",
                  "link", (json_int_t)link_number, "batch", batch, "bucket_bytes", c->bucket_bytes,
                  "workers", (json_int_t)c->workers, "strategy", strategy->name, //
                  "step_ns", step.step_s * 1e9,                                  //
                  "low_ns", dpb_json_real(low_s * 1e9),                          //
                  "high_ns", dpb_json_real(high_s * 1e9),                        //
                  "samples_per_s", rate,                                         //
                  "efficiency", rate / own_alone,                                //
                  "exposed_ns", step.exposed_s * 1e9,                            //
                  "exposed_share", step.exposed_s / step.step_s,                 //
                  "least_bytes_per_s", dpb_json_real(least / wire),              //
                  "fastest", 0,                                                  //
                  "beyond", beyond_of(maker, strategy, c, batch, link)));
    return DPB_OK;
}

/* Marks those of the rows from `first` on that are fastest: all that exchange, within 1 %. */
static void mark_fastest(const struct maker *maker, size_t first)
{
    const size_t n = json_array_size(maker->rows);
    double least = INFINITY;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = first; i < n; i++) {
            json_t *row = json_array_get(maker->rows, i);
            const double step_ns = dpb_json_number(row, "step_ns");
            if (strcmp(dpb_json_text(row, "strategy", ""), "independent") == 0)
                continue;
            if (pass == 0)
                least = fmin(least, step_ns);
            else if (step_ns <= least * (1 + equal_within))
                json_object_set_new(row, "fastest", json_true());
        }
}

static dpb_status add_rows(struct maker *maker, double workers, double bucket, double batch,
                           size_t link_number, const struct link *link)
{
    const struct dpb_predict_request *request = maker->request;
    const size_t first = json_array_size(maker->rows);
    for (size_t i = 0; i < maker->n_chosen; i++) {
        const struct strategy *strategy = maker->chosen[i];
        struct dpb_prediction_case c = {.way = strategy->way,
                                        .workers = (uint32_t)workers,
                                        .per_machine = request->per_machine,
                                        .servers = request->servers,
                                        .bucket_bytes = bucket,
                                        .outside = link->outside,
                                        .inside = link->inside,
                                        .host = request->host,
                                        .helper = maker->helper,
                                        .compute_scale = batch / maker->batch};
        if (strategy->tcp && !link->fitted)
            c.outside.bytes_per_s *= tcp_share;
        if (applies(strategy, &c))
            DPB_TRY(add_row(maker, strategy, &c, batch, link_number, link));
    }
    mark_fastest(maker, first);
    return DPB_OK;
}

static dpb_status add_all(struct maker *maker, json_t *links)
{
    static const double doubling[] = {2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
    const struct dpb_predict_request *r = maker->request;
    const double *workers = r->n_workers > 0 ? r->workers : doubling;
    const size_t n_workers = r->n_workers > 0 ? r->n_workers : sizeof doubling / sizeof *doubling;
    const double *buckets = r->n_buckets > 0 ? r->buckets : &maker->bucket_bytes;
    const double *batches = r->n_batches > 0 ? r->batches : &maker->batch;
    for (size_t l = 0; l < r->n_links; l++) {
        struct link link;
        DPB_TRY(make_link(r, &r->links[l], &link));
        json_array_append_new(links, link_to_json(&r->links[l], &link));
        for (size_t k = 0; k < (r->n_batches > 0 ? r->n_batches : 1); k++)
            for (size_t b = 0; b < (r->n_buckets > 0 ? r->n_buckets : 1); b++)
                for (size_t w = 0; w < n_workers; w++)
                    DPB_TRY(add_rows(maker, workers[w], buckets[b], batches[k], l, &link));
    }
    return DPB_OK;
}

static json_t *measured_to_json(const struct maker *maker)
{
    const struct dpb_measured *m = &maker->measured;
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:o, s:s}", "batch", maker->batch,
                     "step_ns", maker->step_s * 1e9, "compute_ns", m->compute_s * 1e9, "update_ns",
                     m->update_s * 1e9, "samples_per_s", maker->batch / maker->step_s,
                     "gradient_bytes", m->ready_bytes[m->n_ready - 1], "steps",
                     (json_int_t)m->n_factors, "uncertainty", dpb_json_real(maker->spread), "ready",
                     maker->even ? "even" : "measured");
}

dpb_status dpb_predict_report_make(const struct dpb_predict_request *request, json_t **document)
{
    struct maker maker = {.request = request, .rows = json_array()};
    json_t *links = json_array();
    dpb_status status = read_result(&maker);
    if (status == DPB_OK)
        status = choose_strategies(&maker);
    if (status == DPB_OK)
        status = add_all(&maker, links);
    if (status == DPB_OK)
        *document =
            json_pack("{s:s, s:o, s:o, s:o, s:I, s:I, s:b, s:O, s:O}", "schema",
                      "dpbench.predict/1", "result", dpb_json_string(request->path), "model",
                      dpb_json_string(dpb_json_text(request->result, "model.name", "?")),
                      "measured", measured_to_json(&maker), "per_machine",
                      (json_int_t)request->per_machine, "servers", (json_int_t)request->servers,
                      "comm_cores", maker.helper, "links", links, "rows", maker.rows);
    json_decref(links);
    json_decref(maker.rows);
    free(maker.ready_s);
    free(maker.ready_bytes);
    free(maker.factors);
    return status;
}

/* ---- the table ----------------------------------------------------------------------------- */

static void print_bandwidth(double bytes_per_s, FILE *out)
{
    if (isnan(bytes_per_s))
        fprintf(out, " %12s", "none");
    else if (bytes_per_s == 0)
        fprintf(out, " %12s", "any");
    else
        fprintf(out, " %12.3g", bytes_per_s * 8 / 1e9);
}

static void print_row(const json_t *row, FILE *out)
{
    const json_t *beyond = json_object_get(row, "beyond"), *word;
    char interval[40] = "-";
    size_t i;
    if (!isnan(dpb_json_number(row, "low_ns")))
        snprintf(interval, sizeof interval, "%.4g..%.4g", dpb_json_number(row, "low_ns") / 1e6,
                 dpb_json_number(row, "high_ns") / 1e6);
    fprintf(out, "%7.0f %-12s%c %9.4g %17s %11.4g %5.0f %% %6.1f %%",
            dpb_json_number(row, "workers"), dpb_json_text(row, "strategy", "?"),
            json_is_true(json_object_get(row, "fastest")) ? '*' : ' ',
            dpb_json_number(row, "step_ns") / 1e6, interval, dpb_json_number(row, "samples_per_s"),
            100 * dpb_json_number(row, "efficiency"), 100 * dpb_json_number(row, "exposed_share"));
    print_bandwidth(dpb_json_number(row, "least_bytes_per_s"), out);
    json_array_foreach(beyond, i, word)
        fprintf(out, "%s%s", i == 0 ? "  " : ",", json_string_value(word));
    fputc('\n', out);
}

static void print_head(const json_t *document, const json_t *row, FILE *out)
{
    const json_t *link =
        json_array_get(json_object_get(document, "links"), (size_t)dpb_json_number(row, "link"));
    const double bytes_per_s = dpb_json_number(link, "bytes_per_s");
    fprintf(out, "\nlink %s", dpb_json_text(link, "name", "?"));
    if (strcmp(dpb_json_text(link, "source", ""), "measured") == 0 && !isnan(bytes_per_s))
        fprintf(out, " (by %s, %.0f workers: %.3g MB/s, %.3g us; fits within %.1f %%)",
                dpb_json_text(link, "strategy", "?"), dpb_json_number(link, "workers"),
                bytes_per_s / 1e6, dpb_json_number(link, "latency_s") * 1e6,
                100 * dpb_json_number(link, "error"));
    fprintf(out, ", buckets of %.0f bytes, batch %.0f\n", dpb_json_number(row, "bucket_bytes"),
            dpb_json_number(row, "batch"));
    fprintf(out, "workers strategy        step ms          interval   samples/s effic. exposed "
                 "least Gbit/s  beyond\n");
}

/* Whether rows stand under the same head. */
static bool same_table(const json_t *a, const json_t *b)
{
    static const char *const names[] = {"link", "batch", "bucket_bytes"};
    for (size_t i = 0; i < 3; i++)
        if (dpb_json_number(a, names[i]) != dpb_json_number(b, names[i]))
            return false;
    return true;
}

void dpb_predict_report_print(const json_t *document, FILE *out)
{
    const json_t *rows = json_object_get(document, "rows"), *row, *before = NULL;
    size_t i;
    fprintf(out,
            "%s, batch %.0f, one worker: %.4g samples/s, %.4g ms a step of which %.3g update; "
            "%.4g MB of gradients; %.0f steps\n",
            dpb_json_text(document, "model", "?"), dpb_json_number(document, "measured.batch"),
            dpb_json_number(document, "measured.samples_per_s"),
            dpb_json_number(document, "measured.step_ns") / 1e6,
            dpb_json_number(document, "measured.update_ns") / 1e6,
            dpb_json_number(document, "measured.gradient_bytes") / 1e6,
            dpb_json_number(document, "measured.steps"));
    if (strcmp(dpb_json_text(document, "measured.ready", ""), "even") == 0)
        fprintf(out, "assumed: gradients become final evenly over backward, since the result's "
                     "device did not tell\n");
    json_array_foreach(rows, i, row)
    {
        if (!before || !same_table(before, row))
            print_head(document, row, out);
        print_row(row, out);
        before = row;
    }
    fprintf(out,
            "\n* fastest, within 1 %%, of those that exchange. least Gbit/s: the slowest link at "
            "which at most 5 %% of the step is exposed.\nbeyond: what was not measured: "
            "batch, workers, bucket, strategy; steps: fewer steps were timed than there are "
            "workers.\n");
}
