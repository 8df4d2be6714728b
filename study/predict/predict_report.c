/* predict_report.c - the document: see predict_report.h. */
#include "study/predict/predict_report.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/options.h"
#include "base/parse.h"
#include "study/predict/emulated_run.h"
#include "study/predict/network_cost.h"
#include "study/predict/predict_worker.h"

/* TCP's share of a link: 1448 of the 1538 bytes that a full Ethernet frame takes. */
static const double tcp_share = 1448.0 / 1538;
/* Steps that differ by less are equally fast. */
static const double equal_within = 0.01;
static const double hidden_share = 0.05;
/* What a link may carry of its data sheet's rate. */
static const double sheet_least = 0.2;

static const struct strategy {
    const char *name;
    enum dpb_way way;
    bool tcp, sharded; /* sharded: with comm.shard = optimizer */
    bool model;        /* predicted by a published algorithm, never compared with our runs */
} strategies[] = {
    {"independent", DPB_WAY_ALONE, false, false, false},
    {"shm", DPB_WAY_MEMORY, false, false, false},
    {"ring_tcp", DPB_WAY_RING, true, false, false},
    {"ring_verbs", DPB_WAY_RING, false, false, false},
    {"ps_cpu", DPB_WAY_SERVERS, true, false, false},
    {"hierarchical", DPB_WAY_HIERARCHICAL, true, false, false},
    {"shm/shard", DPB_WAY_MEMORY, false, true, false},
    {"ring_tcp/shard", DPB_WAY_RING, true, true, false},
    {"ring_verbs/shard", DPB_WAY_RING, false, true, false},
    {"ps_cpu/local", DPB_WAY_LOCAL_SERVERS, true, false, true},
    {"nccl", DPB_WAY_DEVICES, false, false, true},
    {"replicated", DPB_WAY_REPLICATED, false, false, true},
};
enum { N_STRATEGIES = sizeof strategies / sizeof *strategies };

/* A document being made. */
struct maker {
    const struct dpb_predict_request *request;
    struct dpb_predict_worker worker;
    struct dpb_codec_cost codec;
    const struct strategy *chosen[DPB_PREDICT_LIST];
    size_t n_chosen;
    json_t *rows;
};

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
    char list[32 * N_STRATEGIES] = "";
    for (size_t i = 0; i < N_STRATEGIES; i++) {
        names[i] = strategies[i].name;
        strcat(strcat(list, i == 0 ? "" : ", "), names[i]);
    }
    const char *near = dpb_did_you_mean(name, names);
    return dpb_fail(DPB_USAGE,
                    "predict has no model of strategy '%s'%s%s%s: it has %s (/shard: with "
                    "comm.shard = optimizer; /local: a machine sums first). Asynchronous and "
                    "averaging strategies have no step of all workers to predict; they can only be "
                    "measured, as those whose library chooses how to exchange",
                    name, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "",
                    list);
}

/* All but strategies over RDMA, whose links differ from TCP's, with shards, and models. */
static dpb_status choose_strategies(struct maker *maker)
{
    const struct dpb_predict_request *request = maker->request;
    for (size_t i = 0; i < N_STRATEGIES && request->n_strategies == 0; i++)
        if (strcmp(strategies[i].name, "ring_verbs") != 0 && !strategies[i].sharded &&
            !strategies[i].model)
            maker->chosen[maker->n_chosen++] = &strategies[i];
    for (size_t i = 0; i < request->n_strategies; i++) {
        const struct strategy *strategy = find_strategy(request->strategies[i]);
        if (!strategy)
            return refuse_strategy(request->strategies[i]);
        maker->chosen[maker->n_chosen++] = strategy;
    }
    return DPB_OK;
}

/* By the speed of one core, as `dpbench comm` measured it. */
static dpb_status read_codec(struct maker *maker)
{
    const struct dpb_predict_request *request = maker->request;
    dpb_each_item(json_object_get(request->codec_comm, "codecs"), i, codec) {
        if (!dpb_json_is(codec, "name", request->codec))
            continue;
        maker->codec = (struct dpb_codec_cost){
            .ratio = dpb_json_number(codec, "ratio"),
            .encode_bytes_per_s = 1e9 * dpb_json_number(codec, "encode_gb_per_s"),
            .decode_bytes_per_s = 1e9 * dpb_json_number(codec, "decode_gb_per_s")};
        if (maker->codec.ratio > 0 && maker->codec.encode_bytes_per_s > 0)
            return DPB_OK;
    }
    return dpb_fail(DPB_USAGE,
                    "--codec: the document has no speed of codec '%s': measure it by `dpbench comm "
                    "comm.name=ring_tcp --output COMM.json`, with comm_test.codecs = yes",
                    request->codec);
}

/* Only these have a model of messages. A codec that sums its messages has no servers. */
static bool carries(const struct strategy *strategy, const struct dpb_prediction_case *c)
{
    return c->codec.ratio == 0 || strategy->way == DPB_WAY_ALONE ||
           (strategy->way == DPB_WAY_RING && !strategy->sharded) ||
           (strategy->way == DPB_WAY_SERVERS && !isnan(c->codec.decode_bytes_per_s));
}

/* Whether the strategy can run so, and is not the same as another of the table. A link measured
 * within a machine says nothing of links between machines. */
static bool applies(const struct strategy *strategy, const struct dpb_prediction_case *c)
{
    if (!carries(strategy, c) || (strategy->way != DPB_WAY_ALONE && dpb_predict_crosses(c) &&
                                  !isfinite(c->outside.bytes_per_s)))
        return false;
    if (strategy->way == DPB_WAY_MEMORY || strategy->way == DPB_WAY_REPLICATED)
        return c->workers <= c->per_machine;
    if (strategy->way == DPB_WAY_LOCAL_SERVERS)
        return c->per_machine > 1 && dpb_predict_crosses(c);
    return strategy->way != DPB_WAY_HIERARCHICAL ||
           (c->per_machine > 1 && c->workers > c->per_machine);
}

/* ---- links --------------------------------------------------------------------------------- */

struct link {
    struct dpb_cost outside, inside;
    bool measured; /* TCP's rate; else the link's, by its data sheet */
    bool inside_measured, exact;
    double error, inside_error;        /* relative, of the measurements; 0: given */
    const struct strategy *fitted;     /* NULL: given */
    double workers, smallest, largest; /* of the fit */
};

/* Points of one bucket: the fit's. */
static size_t read_points(const json_t *comm, double *bytes, double *time_s, size_t capacity)
{
    size_t n = 0;
    dpb_each_item(json_object_get(comm, "points"), i, point) {
        const double p50 = dpb_json_number(point, "time_us.p50");
        if (dpb_json_number(point, "buckets") != 1 || !(p50 > 0) || n == capacity)
            continue;
        bytes[n] = dpb_json_number(point, "bytes");
        time_s[n++] = p50 / 1e6;
    }
    return n;
}

static dpb_status fit_comm(const struct dpb_predict_request *request,
                           const struct dpb_predict_link *given, struct link *link)
{
    enum { MOST = 128 };
    double bytes[MOST], time_s[MOST];
    struct dpb_cost cost;
    const char *name = dpb_json_text(given->comm, "strategy.name", "?");
    link->fitted = find_strategy(name);
    if (!link->fitted)
        return refuse_strategy(name);
    if (!dpb_json_is(given->comm, "status", "ok"))
        return dpb_fail(DPB_USAGE, "the measurement did not end well");
    if (strcmp(dpb_json_text(given->comm, "config.comm.shard.value", "none"), "none") != 0)
        return dpb_fail(
            DPB_USAGE,
            "an exchange with comm.shard contains updates, whose time is no link's: measure "
            "without comm.shard, and predict by --strategies shm/shard or ring_tcp/shard");
    link->workers = dpb_json_number(given->comm, "world.workers");
    const double servers = dpb_json_number(given->comm, "world.servers");
    if (link->fitted->way == DPB_WAY_ALONE || link->fitted->model ||
        link->fitted->way == DPB_WAY_HIERARCHICAL ||
        !(link->workers >= 2 && link->workers <= DPB_PREDICT_WORKERS) ||
        !(servers >= 0 && servers <= DPB_PREDICT_WORKERS))
        return dpb_fail(DPB_USAGE,
                        "no link can be found in an exchange by %s of %.0f workers and %.0f "
                        "servers: measure ring_tcp or ps_cpu with 2 workers or more",
                        name, link->workers, servers);
    const bool memory = link->fitted->way == DPB_WAY_MEMORY;
    if (memory && given != &request->inside &&
        (request->inside.comm || isfinite(request->inside.cost.bytes_per_s)))
        return dpb_fail(DPB_USAGE,
                        "%s measures how fast a worker copies within its machine, and --inside "
                        "says it, too: leave one of them out",
                        name);
    const double machines = dpb_json_number(given->comm, "world.machines");
    /* On one machine a ring runs over the loopback; ps_cpu exchanges through shared memory. */
    const bool ring_inside = link->fitted->way == DPB_WAY_RING && machines == 1;
    if (!memory && !ring_inside && machines != link->workers + servers)
        return dpb_fail(DPB_USAGE,
                        "%.0f ranks of %s were measured on %.0f machines; measure with each "
                        "rank on a machine of its own, as by comm.hosts = 1+1",
                        link->workers + servers, name, machines);
    const struct dpb_prediction_case c = {.way = link->fitted->way,
                                          .workers = (uint32_t)link->workers,
                                          .per_machine = memory ? (uint32_t)link->workers : 1,
                                          .servers = (uint32_t)servers,
                                          .bucket_bytes =
                                              dpb_json_number(given->comm, "bucket_bytes"),
                                          .host = {.bytes_per_s = INFINITY},
                                          .compute_scale = 1};
    const size_t n = read_points(given->comm, bytes, time_s, MOST);
    DPB_TRY(
        dpb_predict_fit(&c, bytes, time_s, n, &cost, memory ? &link->inside_error : &link->error));
    *(memory ? &link->inside_measured : &link->measured) = true;
    link->smallest = link->largest = bytes[0];
    for (size_t i = 1; i < n; i++) { /* a list, and the model's layout, have any order */
        link->smallest = fmin(link->smallest, bytes[i]);
        link->largest = fmax(link->largest, bytes[i]);
    }
    *(memory ? &link->inside : &link->outside) = cost;
    if (memory && request->per_machine == 1)
        return dpb_fail(DPB_USAGE, "measured within a machine; say how many workers a machine "
                                   "has, by --per-machine");
    return DPB_OK;
}

static dpb_status fit_link(const struct dpb_predict_request *request,
                           const struct dpb_predict_link *given, struct link *link)
{
    dpb_fail_at(given->name);
    const dpb_status status = fit_comm(request, given, link);
    dpb_fail_at(NULL);
    return status;
}

static dpb_status take_network(const struct dpb_predict_link *given, struct link *link)
{
    if (!dpb_json_is(given->network, "status", "ok"))
        return dpb_fail(DPB_USAGE, "%s: the measurement did not end well", given->name);
    if (!dpb_network_slowest(json_object_get(given->network, "network"), &link->outside,
                             &link->error))
        return dpb_fail(DPB_USAGE,
                        "%s: no ways between machines are in it: measure them by `dpbench links "
                        "network --output FILE`",
                        given->name);
    link->measured = true;
    return DPB_OK;
}

/* By --inside; the link keeps the measurement of it. */
static dpb_status fit_inside(const struct dpb_predict_request *request, struct link *link)
{
    struct link within = {.outside = {.bytes_per_s = INFINITY}};
    DPB_TRY(fit_link(request, &request->inside, &within));
    if (within.fitted->way != DPB_WAY_MEMORY)
        return dpb_fail(DPB_USAGE, "%s: --inside takes an exchange by shm, not by %s",
                        request->inside.name, within.fitted->name);
    link->inside = within.inside;
    link->inside_error = within.inside_error;
    link->inside_measured = true;
    return DPB_OK;
}

static dpb_status make_link(const struct dpb_predict_request *request,
                            const struct dpb_predict_link *given, struct link *link)
{
    *link = (struct link){
        .exact = given->exact, .outside = given->cost, .inside = request->inside.cost};
    if (given->comm)
        DPB_TRY(fit_link(request, given, link));
    if (given->network)
        DPB_TRY(take_network(given, link));
    if (request->inside.comm)
        DPB_TRY(fit_inside(request, link));
    if (request->per_machine > 1 && !isfinite(link->inside.bytes_per_s))
        return dpb_fail(DPB_USAGE,
                        "%s: --per-machine %u needs --inside RATE,LATENCY or COMM.json: how fast a "
                        "worker copies "
                        "within a machine",
                        given->name, request->per_machine);
    return DPB_OK;
}

/* A fit of shm is a link of its own. */
static bool is_measured(const struct link *link)
{
    return link->measured || link->fitted;
}

static json_t *link_to_json(const struct dpb_predict_link *given, const struct link *link)
{
    return json_pack(
        "{s:o, s:s, s:o, s:o, s:o, s:o, s:o}", "name", dpb_json_string(given->name), "source",
        is_measured(link) ? "measured"
        : link->exact     ? "hosts"
                          : "data sheet",                                             //
        "bytes_per_s", dpb_json_real(link->outside.bytes_per_s),                  //
        "latency_s", dpb_json_real(link->outside.latency_s),                      //
        "strategy", link->fitted ? json_string(link->fitted->name) : json_null(), //
        "workers", link->fitted ? json_real(link->workers) : json_null(),         //
        "error",
        is_measured(link) ? dpb_json_real(fmax(link->error, link->inside_error)) : json_null());
}

/* ---- rows ---------------------------------------------------------------------------------- */

/* Why a row goes beyond the measurements. */
static json_t *beyond_of(const struct maker *maker, const struct strategy *strategy,
                         const struct dpb_prediction_case *c, double batch, const struct link *link)
{
    json_t *list = json_array();
    if (batch != maker->worker.batch)
        json_array_append_new(list, json_string("batch"));
    if (maker->worker.n_steps > 0 && c->workers > maker->worker.n_steps &&
        strategy->way != DPB_WAY_ALONE)
        json_array_append_new(list, json_string("steps"));
    if (strategy->model)
        json_array_append_new(list, json_string("model"));
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

/* A step of computing and updating. */
static double own_of(const struct dpb_predict_worker *worker, const struct dpb_prediction_case *c)
{
    return worker->measured.compute_s * c->compute_scale + worker->delay_s +
           worker->measured.update_s;
}

/* The better and the worse end of a prediction. */
struct band {
    double low_s, high_s;         /* NAN: unknown */
    double low_share, high_share; /* efficiency at `high_s`, and at `low_s` */
    bool sheet;                   /* of a link by its data sheet; else of measurements, 95 % */
};

/* Whether the exchange depends on a link of which only the data sheet is known. */
static bool by_sheet(const struct dpb_prediction_case *c, const struct link *link)
{
    return c->way != DPB_WAY_ALONE &&
           ((dpb_predict_crosses(c) && !link->measured && !link->exact) ||
            (c->per_machine > 1 && isfinite(c->inside.bytes_per_s) && !link->inside_measured));
}

static void better_link(struct dpb_cost *cost, double by, double latency_by)
{
    cost->bytes_per_s *= by;
    cost->latency_s /= latency_by;
}

/*
 * A link by its data sheet: from all of its rate, and steps of one length, to a fifth of it, and
 * steps that spread by 4 %, or as the worker's where these are wider. Measurements: the worker's
 * mean step and the fitted links, each at its better and its worse end; at the low end all workers'
 * slow steps coincide.
 */
static dpb_status predict_band(const struct maker *maker, const struct dpb_prediction_case *c,
                               const struct link *link, struct band *band)
{
    const struct dpb_predict_worker *worker = &maker->worker;
    const double uncertain = isnan(worker->spread) ? 0 : worker->spread;
    struct dpb_predicted low, high, wide;
    struct dpb_prediction_case better = *c, worse = *c;
    *band = (struct band){NAN, NAN, NAN, NAN, by_sheet(c, link)};
    if (isnan(worker->spread) && !band->sheet)
        return DPB_OK;
    /* A fit's error is one of times: of its latency as of its bandwidth. */
    const double outside = 1 + link->error, inside = 1 + link->inside_error;
    better_link(&better.outside, outside, link->fitted ? outside : 1);
    better_link(&better.inside, inside, inside);
    better_link(&worse.outside, link->measured || link->exact ? 1 / outside : sheet_least,
                link->fitted ? 1 / outside : 1);
    better_link(&worse.inside, link->inside_measured ? 1 / inside : sheet_least, 1 / inside);
    better.compute_scale *= exp(-uncertain);
    worse.compute_scale *= exp(uncertain);
    /* Delays are each worker's own also at the better end. */
    DPB_TRY(dpb_predict_mean(&worker->measured, &better, !worker->measured.delays_s, &low));
    DPB_TRY(dpb_predict_mean(&worker->measured, &worse, false, &high));
    if (band->sheet) {
        DPB_TRY(dpb_predict_mean(&worker->wide, &worse, false, &wide));
        high.step_s = fmax(high.step_s, wide.step_s);
    }
    band->low_s = low.step_s;
    band->high_s = high.step_s;
    band->low_share = own_of(worker, &worse) / high.step_s;
    band->high_share = own_of(worker, &better) / low.step_s;
    return DPB_OK;
}

/* The step of a worker that exchanges nothing. The measured one may have waited for its
 * communicator. */
static double alone_of(const struct maker *maker, const struct dpb_prediction_case *c, double batch)
{
    const double own_s = own_of(&maker->worker, c);
    return batch == maker->worker.batch ? fmin(maker->worker.step_s + maker->worker.delay_s, own_s)
                                        : own_s;
}

/* The step by 100 %, and by times and bytes alone. */
static json_t *controls_of(double alone_s, double simple_s)
{
    return json_pack("{s:{s:o, s:o}, s:{s:f, s:f}}", "simple", "step_ns",
                     dpb_json_real(simple_s * 1e9), "efficiency", dpb_json_real(alone_s / simple_s),
                     "perfect", "step_ns", alone_s * 1e9, "efficiency", 1.0);
}

static dpb_status add_row(struct maker *maker, const struct strategy *strategy,
                          const struct dpb_prediction_case *c, double batch, size_t link_number,
                          const struct link *link)
{
    struct dpb_predicted step;
    struct band band;
    double least = 0;
    DPB_TRY(dpb_predict_mean(&maker->worker.measured, c, false, &step));
    DPB_TRY(predict_band(maker, c, link, &band));
    if (strategy->way != DPB_WAY_ALONE)
        DPB_TRY(dpb_predict_least_bandwidth(&maker->worker.measured, c, hidden_share, &least));
    const bool framed = strategy->tcp && !link->measured && dpb_predict_crosses(c);
    const double wire = framed ? tcp_share : 1;
    const double alone_s = alone_of(maker, c, batch);
    const double simple_s =
        dpb_predict_simple_s(&maker->worker.measured, c) + maker->worker.delay_s;
    json_array_append_new(maker->rows,
                          json_pack("{s:s, s:I, s:f, s:f, s:I, s:s, s:f, s:o, s:o, s:f, s:f, s:o, "
                                    "s:o, s:s, s:o, s:f, s:f, s:o, s:b, s:o}",
                                    "kind", maker->worker.kind, "link", (json_int_t)link_number,
                                    "batch", batch, "bucket_bytes", c->bucket_bytes, "workers",
                                    (json_int_t)c->workers, "strategy",
                                    strategy->name,                                    //
                                    "step_ns", step.step_s * 1e9,                      //
                                    "low_ns", dpb_json_real(band.low_s * 1e9),         //
                                    "high_ns", dpb_json_real(band.high_s * 1e9),       //
                                    "samples_per_s", batch * c->workers / step.step_s, //
                                    "efficiency", alone_s / step.step_s,               //
                                    "low_efficiency", dpb_json_real(band.low_share),   //
                                    "high_efficiency", dpb_json_real(band.high_share), //
                                    "between", band.sheet ? "data sheet" : "measured", //
                                    "controls", controls_of(alone_s, simple_s),        //
                                    "exposed_ns", step.exposed_s * 1e9,                //
                                    "exposed_share", step.exposed_s / step.step_s,     //
                                    "least_bytes_per_s", dpb_json_real(least / wire),  //
                                    "fastest", 0,                                      //
                                    "beyond", beyond_of(maker, strategy, c, batch, link)));
    return DPB_OK;
}

/* Marks the fastest rows from `first` on: all that exchange, within 1 %. */
static void mark_fastest(const struct maker *maker, size_t first)
{
    const size_t n = json_array_size(maker->rows);
    double least = INFINITY;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = first; i < n; i++) {
            json_t *row = json_array_get(maker->rows, i);
            const double step_ns = dpb_json_number(row, "step_ns");
            if (dpb_json_is(row, "strategy", "independent"))
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
                                        .codec = maker->codec,
                                        .uplink = request->uplink,
                                        .bucket_bytes = bucket,
                                        .outside = link->outside,
                                        .inside = link->inside,
                                        .host = request->host,
                                        .helper = maker->worker.helper,
                                        .shard = strategy->sharded ? maker->worker.weights : 0,
                                        .compute_scale = batch / maker->worker.batch};
        if (strategy->tcp && !link->measured)
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
    const double *buckets = r->n_buckets > 0 ? r->buckets : &maker->worker.bucket_bytes;
    const double *batches = r->n_batches > 0 ? r->batches : &maker->worker.batch;
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

static bool has_row(const struct maker *maker, const struct strategy *strategy)
{
    dpb_each_item(maker->rows, i, row) {
        if (dpb_json_is(row, "strategy", strategy->name))
            return true;
    }
    return false;
}

/* A strategy that was asked for and applies nowhere. */
static dpb_status check_used(const struct maker *maker)
{
    for (size_t i = 0; i < maker->n_chosen && maker->request->n_strategies > 0; i++) {
        const struct strategy *strategy = maker->chosen[i];
        if (!has_row(maker, strategy))
            return dpb_fail(
                DPB_USAGE, "--strategies: %s %s", strategy->name,
                maker->codec.ratio > 0
                    ? "does not apply here with --codec, of which predict knows "
                      "ring_tcp and ring_verbs, and ps_cpu unless messages are summed"
                : strategy->way == DPB_WAY_MEMORY || strategy->way == DPB_WAY_REPLICATED
                    ? "works within one machine: give --per-machine N, and --workers up to N"
                : strategy->way == DPB_WAY_HIERARCHICAL || strategy->way == DPB_WAY_LOCAL_SERVERS
                    ? "joins machines of several workers: give --per-machine N, and --workers "
                      "above N"
                    : "goes from machine to machine: give --link, or --workers up to those of "
                      "--per-machine");
    }
    return DPB_OK;
}

static json_t *worker_to_json(const struct maker *maker)
{
    const struct dpb_measured *m = &maker->worker.measured;
    return json_pack(
        "{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:o, s:s, s:s}", "batch", maker->worker.batch,
        "step_ns", maker->worker.step_s * 1e9, "compute_ns", m->compute_s * 1e9, "update_ns",
        m->update_s * 1e9, "delay_ns", maker->worker.delay_s * 1e9, "samples_per_s",
        maker->worker.batch / maker->worker.step_s, "gradient_bytes",
        m->ready_bytes[m->n_ready - 1], "steps", (json_int_t)maker->worker.n_steps, "uncertainty",
        dpb_json_real(maker->worker.n_steps > 0 ? maker->worker.spread : NAN), "ready",
        maker->worker.even        ? "even"
        : maker->request->profile ? "profile"
                                  : "measured",
        "update", maker->worker.update);
}

static json_t *text_or_null(const char *text)
{
    return text ? dpb_json_string(text) : json_null();
}

dpb_status dpb_predict_report_make(const struct dpb_predict_request *request, json_t **document)
{
    struct maker maker = {.request = request, .rows = json_array()};
    json_t *links = json_array();
    dpb_status status =
        request->profile ? dpb_predict_take_profile(request->path, request->profile,
                                                    request->update_elements_per_s, &maker.worker)
                         : dpb_predict_read(request->path, request->result, &maker.worker);
    const bool emulated = request->profile && request->result;
    if (status == DPB_OK && emulated)
        dpb_emulated_shape(request->result, &maker.worker);
    if (status == DPB_OK && request->delay)
        status = dpb_predict_delay(&maker.worker, request->delay);
    if (status == DPB_OK && request->codec)
        status = read_codec(&maker);
    DPB_THEN(status, choose_strategies(&maker));
    DPB_THEN(status, add_all(&maker, links));
    DPB_THEN(status, check_used(&maker));
    if (status == DPB_OK)
        *document = json_pack(
            "{s:s, s:o, s:s, s:o, s:o, s:o, s:o, s:I, s:I, s:o, s:o, s:o, s:b, s:O, s:O, s:o}",
            "schema", "dpbench.predict/1", "file", dpb_json_string(request->path), "kind",
            maker.worker.kind, "model", dpb_json_string(maker.worker.model), "accelerator",
            text_or_null(maker.worker.accelerator), "source", text_or_null(maker.worker.source),
            "worker", worker_to_json(&maker), "per_machine", (json_int_t)request->per_machine,
            "servers", (json_int_t)request->servers, "uplink",
            request->uplink > 0 ? json_real(request->uplink) : json_null(), "delay",
            text_or_null(request->delay_text), "codec", text_or_null(request->codec), "comm_cores",
            maker.worker.helper, "links", links, "rows", maker.rows, "run",
            emulated ? dpb_emulated_verdict(request->result, &maker.worker,
                                            json_array_get(maker.rows, 0))
                     : json_null());
    json_decref(links);
    json_decref(maker.rows);
    dpb_predict_release(&maker.worker);
    return status;
}
