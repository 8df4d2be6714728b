/* predict.c - see predict.h. */
#include "study/predict/predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* Up to MOST_STAGES equal rounds of a ring are simulated one by one, more as fewer and longer ones:
 * a link's bytes and the time when a bucket is through stay the same. */
enum { MOST_STAGES = 64, MOST_MESSAGES = 16384, GRID = 16, STEPS_OF_SEARCH = 14 };
enum { LINK, SERVER, LINK_BACK, RESOURCES };

struct stage {
    double work_s;    /* the thread's, before */
    double service_s; /* the resource's */
    double latency_s;
    int resource;
};

struct plan {
    struct stage stages[MOST_STAGES];
    uint32_t n_stages;
    double update_s; /* the thread's, when the bucket is through */
};

/* ---- what a bucket goes through ------------------------------------------------------------ */

static uint32_t machines_of(const struct dpb_prediction_case *c)
{
    return (c->workers + c->per_machine - 1) / c->per_machine;
}

static bool has_servers(const struct dpb_prediction_case *c)
{
    return c->way == DPB_WAY_SERVERS || c->way == DPB_WAY_LOCAL_SERVERS;
}

/* The devices exchange by themselves. */
static bool on_devices(const struct dpb_prediction_case *c)
{
    return c->way == DPB_WAY_DEVICES || c->way == DPB_WAY_REPLICATED;
}

bool dpb_predict_crosses(const struct dpb_prediction_case *c)
{
    return machines_of(c) > 1 || (has_servers(c) && c->servers > 0 && c->workers > 1);
}

static double seconds_of(double bytes, const struct dpb_cost *cost)
{
    return bytes / cost->bytes_per_s;
}

/* From this stage on a worker gives new weights: it has updated 1/W of the bucket before. */
static void update_shard(const struct dpb_prediction_case *c, uint32_t stage, struct plan *plan)
{
    plan->stages[stage].work_s += plan->update_s / c->workers;
    plan->update_s = 0;
}

/* `n` equal rounds. */
static void add_rounds(struct plan *plan, uint32_t n, uint32_t most, const struct stage *round)
{
    const uint32_t n_stages = n < most ? n : most;
    for (uint32_t i = 0; i < n_stages; i++) {
        const double share = (double)n / n_stages;
        struct stage stage = *round;
        stage.work_s *= share;
        stage.service_s *= share;
        stage.latency_s *= share;
        plan->stages[plan->n_stages++] = stage;
    }
}

/* Through memory of the same machine: the thread copies or sums. */
static struct stage by_memory(const struct dpb_prediction_case *c, double bytes)
{
    return (struct stage){.work_s = seconds_of(bytes, &c->inside),
                          .latency_s = c->inside.latency_s};
}

/* Over the machine's link: the link carries `link_bytes`. This worker sends `own_bytes` of them, in
 * `n_messages`. */
static struct stage by_link(const struct dpb_prediction_case *c, double own_bytes,
                            double n_messages, double link_bytes, int resource)
{
    return (struct stage){.work_s =
                              seconds_of(own_bytes, &c->host) + n_messages * c->host.latency_s,
                          .service_s = seconds_of(link_bytes, &c->outside),
                          .latency_s = c->outside.latency_s,
                          .resource = resource};
}

/* The stage's service takes no less than the cable between the halves for what crosses each way. */
static void cross(const struct dpb_prediction_case *c, double n_hosts, double bytes,
                  struct stage *stage)
{
    if (c->uplink > 0)
        stage->service_s =
            fmax(stage->service_s, bytes * c->uplink / (n_hosts / 2 * c->outside.bytes_per_s));
}

/* A round of a ring whose workers exchange `bytes`. */
static struct stage ring_round(const struct dpb_prediction_case *c, double bytes)
{
    const double share = bytes / c->workers;
    if (machines_of(c) == 1)
        return by_memory(c, share);
    struct stage round = by_link(c, share, 1, share, LINK);
    cross(c, machines_of(c), share, &round);
    if (c->per_machine > 1) {
        /* A part on its way round meets both kinds of hops, and none overtakes the slower kind. */
        const double across = (double)machines_of(c) / c->workers;
        const double inside_s = seconds_of(share, &c->inside);
        const double hop_s = across * (round.service_s + round.latency_s) +
                             (1 - across) * (inside_s + c->inside.latency_s);
        round.service_s = fmax(round.service_s, inside_s);
        round.latency_s = fmax(0, hop_s - round.service_s);
    }
    return round;
}

/* Whole messages go to all workers, each of which decodes all; or they are summed as gradients. */
static void plan_coded_ring(const struct dpb_prediction_case *c, double bytes, uint32_t most,
                            struct plan *plan)
{
    const bool sums = isnan(c->codec.decode_bytes_per_s);
    const double message = bytes * c->codec.ratio;
    const struct stage round = ring_round(c, sums ? message : message * c->workers);
    add_rounds(plan, (sums ? 2 : 1) * (c->workers - 1), most, &round);
    plan->stages[0].work_s += bytes / c->codec.encode_bytes_per_s;
    if (!sums)
        plan->update_s += c->workers * bytes / c->codec.decode_bytes_per_s;
}

static void plan_ring(const struct dpb_prediction_case *c, double bytes, uint32_t most,
                      struct plan *plan)
{
    const uint32_t n_rounds = c->workers - 1;
    if (c->codec.ratio > 0) {
        plan_coded_ring(c, bytes, most, plan);
        return;
    }
    const struct stage round = ring_round(c, bytes);
    if (c->shard == 0) {
        add_rounds(plan, 2 * n_rounds, most, &round);
        return;
    }
    const struct stage back = ring_round(c, bytes * c->shard);
    add_rounds(plan, n_rounds, most / 2, &round);
    const uint32_t first = plan->n_stages;
    add_rounds(plan, n_rounds, most / 2, &back);
    update_shard(c, first, plan);
}

static void plan_hierarchical(const struct dpb_prediction_case *c, double bytes, uint32_t most,
                              struct plan *plan)
{
    const uint32_t h = machines_of(c),
                   l = c->workers < c->per_machine ? c->workers : c->per_machine;
    const struct stage inside = by_memory(c, bytes * (l - 1) / l);
    struct stage round = by_link(c, bytes / h / l, 1, bytes / h, LINK);
    cross(c, h, bytes / h, &round);
    if (l > 1)
        add_rounds(plan, 1, 1, &inside);
    if (h > 1)
        add_rounds(plan, 2 * (h - 1), most - 2, &round);
    if (l > 1)
        add_rounds(plan, 1, 1, &inside);
}

/* Pushed gradients become messages. */
static void encode(const struct dpb_prediction_case *c, double bytes, struct stage *push)
{
    if (c->codec.ratio == 0)
        return;
    push->work_s += bytes / c->codec.encode_bytes_per_s;
    push->service_s *= c->codec.ratio;
}

static double decode_s(const struct dpb_prediction_case *c, double bytes)
{
    return c->codec.ratio > 0 ? bytes / c->codec.decode_bytes_per_s : 0;
}

/* Shards: each worker is a server of 1/W of every bucket; pushes and pulls share its link. */
static void plan_shards(const struct dpb_prediction_case *c, double bytes, double update_s,
                        struct plan *plan)
{
    const uint32_t w = c->workers, l = w < c->per_machine ? w : c->per_machine;
    const double own = bytes * (w - l) / w, near = bytes * (l - 1) / w;
    const double h = machines_of(c), a = floor(h / 2), b = h - a;
    struct stage push = by_link(c, own, w - l, l * own, LINK);
    cross(c, h, a * b * l * l * bytes / w, &push);
    if (w == l) /* none is elsewhere */
        push = (struct stage){.latency_s = c->inside.latency_s};
    push.work_s += seconds_of(near, &c->inside);
    struct stage pull = push;
    pull.work_s += update_s / w;
    encode(c, bytes, &push);
    pull.work_s += decode_s(c, bytes);
    add_rounds(plan, 1, 1, &push);
    add_rounds(plan, 1, 1, &pull);
    plan->update_s = 0;
}

/* Processes on k machines of their own: all workers' slices meet on a server's link. */
static void plan_servers(const struct dpb_prediction_case *c, double bytes, double update_s,
                         struct plan *plan)
{
    const uint32_t w = c->workers, l = w < c->per_machine ? w : c->per_machine;
    const double k = c->servers;
    const double incast = fmax(l * bytes, w * bytes / k);
    const double h = machines_of(c), n = h + k, half = floor(n / 2);
    const double a = fmin(h, half), k_a = half - a; /* in the first half: machines, servers */
    const double crossing = l * bytes * fmax(a * (k - k_a), (h - a) * k_a) / k;
    struct stage push = by_link(c, bytes, k, incast, LINK);
    encode(c, bytes, &push);
    const struct stage serve = {.service_s = update_s / k + decode_s(c, w * bytes / k) +
                                             seconds_of(w * bytes / k, &c->host) +
                                             w * c->host.latency_s,
                                .resource = SERVER};
    struct stage pull = by_link(c, 0, 0, incast, LINK_BACK);
    cross(c, n, crossing * (c->codec.ratio > 0 ? c->codec.ratio : 1), &push);
    cross(c, n, crossing, &pull);
    add_rounds(plan, 1, 1, &push);
    add_rounds(plan, 1, 1, &serve);
    add_rounds(plan, 1, 1, &pull);
    plan->update_s = 0;
}

/* A machine is one worker of the servers', between two passes over its memory. */
static void plan_local_servers(const struct dpb_prediction_case *c, double bytes, double update_s,
                               struct plan *plan)
{
    const uint32_t l = c->workers < c->per_machine ? c->workers : c->per_machine;
    const struct stage inside = by_memory(c, bytes * (l - 1) / l);
    struct dpb_prediction_case machines = *c;
    machines.workers = machines_of(c);
    machines.per_machine = 1;
    add_rounds(plan, 1, 1, &inside);
    if (c->servers > 0)
        plan_servers(&machines, bytes, update_s, plan);
    else if (machines.workers > 1)
        plan_shards(&machines, bytes, update_s, plan);
    add_rounds(plan, 1, 1, &inside);
}

/* Up and back: each half of the bytes and of the latencies. The slowest link sets the pace. */
static void plan_devices(const struct dpb_prediction_case *c, double bytes, struct plan *plan)
{
    const uint32_t w = c->workers, h = machines_of(c), l = w < c->per_machine ? w : c->per_machine;
    struct stage pace = {.service_s = l > 1 ? seconds_of(bytes, &c->inside) : 0, .resource = LINK};
    if (h > 1) {
        pace.service_s = fmax(pace.service_s, seconds_of(bytes, &c->outside));
        cross(c, h, bytes, &pace);
    }
    const double across = h > 1 ? h : 0;
    struct stage ring = pace, tree = pace;
    ring.service_s *= (w - 1.0) / w;
    ring.latency_s =
        fmax(0, w - 1 - across) * c->inside.latency_s + fmin(w - 1, across) * c->outside.latency_s;
    tree.latency_s = (l - 1) * c->inside.latency_s + ceil(log2(h)) * c->outside.latency_s;
    add_rounds(plan, 2, 2,
               ring.service_s + ring.latency_s <= tree.service_s + tree.latency_s ? &ring : &tree);
}

/* An owner receives all of a bucket's copies over its link, and the others then read the sum. Its
 * link is busy with 1 of W buckets. */
static void plan_replicated(const struct dpb_prediction_case *c, double bytes, struct plan *plan)
{
    const double w = c->workers, bucket_s = seconds_of((w - 1) * bytes, &c->inside);
    struct stage way = {.service_s = bucket_s / w,
                        .latency_s = bucket_s * (w - 1) / w + c->inside.latency_s,
                        .resource = LINK};
    add_rounds(plan, 1, 1, &way);
    way.resource = LINK_BACK;
    add_rounds(plan, 1, 1, &way);
}

static void plan_memory(const struct dpb_prediction_case *c, double bytes, struct plan *plan)
{
    const uint32_t w = c->workers;
    const struct stage round = by_memory(c, bytes * (w - 1) / w);
    const struct stage back = by_memory(c, bytes * c->shard * (w - 1) / w);
    add_rounds(plan, 1, 1, &round);
    add_rounds(plan, 1, 1, c->shard > 0 ? &back : &round);
    if (c->shard > 0)
        update_shard(c, 1, plan);
}

static struct plan plan_of(const struct dpb_measured *measured, const struct dpb_prediction_case *c,
                           double bytes, size_t n_buckets)
{
    const double model_bytes = measured->ready_bytes[measured->n_ready - 1];
    const double update_s = measured->update_s * bytes / model_bytes;
    const size_t most = MOST_MESSAGES / n_buckets;
    const uint32_t most_stages = most > MOST_STAGES ? MOST_STAGES : most < 4 ? 4 : (uint32_t)most;
    struct plan plan = {.update_s = update_s};
    if (c->workers == 1 || c->way == DPB_WAY_ALONE)
        return plan;
    if (c->way == DPB_WAY_RING)
        plan_ring(c, bytes, most_stages, &plan);
    else if (c->way == DPB_WAY_HIERARCHICAL)
        plan_hierarchical(c, bytes, most_stages, &plan);
    else if (c->way == DPB_WAY_SERVERS && c->servers == 0)
        plan_shards(c, bytes, update_s, &plan);
    else if (c->way == DPB_WAY_SERVERS)
        plan_servers(c, bytes, update_s, &plan);
    else if (c->way == DPB_WAY_LOCAL_SERVERS)
        plan_local_servers(c, bytes, update_s, &plan);
    else if (c->way == DPB_WAY_DEVICES)
        plan_devices(c, bytes, &plan);
    else if (c->way == DPB_WAY_REPLICATED)
        plan_replicated(c, bytes, &plan);
    else
        plan_memory(c, bytes, &plan);
    return plan;
}

/* ---- one step ------------------------------------------------------------------------------ */

/* A bucket that has been handed over: its next stage may begin at `at_s`. */
struct flight {
    double at_s;
    size_t bucket;
    uint32_t stage;
};

struct simulation {
    const struct dpb_prediction_case *c;
    struct plan whole, last; /* of a full bucket, and of the last one, which may be shorter */
    size_t n_buckets;
    struct flight *heap; /* by at_s, then bucket */
    size_t n_heap;
    double now_s;    /* the loop's thread */
    double helper_s; /* the core for communication is free */
    double done_s;   /* the last update was done */
    double free_s[RESOURCES];
};

static bool before(const struct flight *a, const struct flight *b)
{
    return a->at_s < b->at_s || (a->at_s == b->at_s && a->bucket < b->bucket);
}

static void push(struct simulation *s, struct flight flight)
{
    size_t i = s->n_heap++;
    for (; i > 0 && before(&flight, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = flight;
}

static struct flight pop(struct simulation *s)
{
    const struct flight first = s->heap[0], moving = s->heap[--s->n_heap];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child + 1 < s->n_heap && before(&s->heap[child + 1], &s->heap[child]))
            child++;
        if (child >= s->n_heap || !before(&s->heap[child], &moving))
            break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = moving;
    return first;
}

/* When the thread that communicates is free. Where nothing is exchanged, the loop's updates. */
static double *thread_of(struct simulation *s, const struct plan *plan)
{
    return (s->c->helper || on_devices(s->c)) && plan->n_stages > 0 ? &s->helper_s : &s->now_s;
}

/* A bucket's next stage, or its end. */
static void serve(struct simulation *s, struct flight flight)
{
    const struct plan *plan = flight.bucket + 1 == s->n_buckets ? &s->last : &s->whole;
    double *thread_s = thread_of(s, plan), begin_s = fmax(flight.at_s, *thread_s);
    if (flight.stage == plan->n_stages) {
        *thread_s = s->done_s = begin_s + plan->update_s;
        return;
    }
    const struct stage *stage = &plan->stages[flight.stage];
    begin_s += stage->work_s;
    if (stage->work_s > 0)
        *thread_s = begin_s;
    double *free_s = &s->free_s[stage->resource];
    begin_s = stage->service_s > 0 ? fmax(begin_s, *free_s) : begin_s;
    if (stage->service_s > 0)
        *free_s = begin_s + stage->service_s;
    push(s, (struct flight){.at_s = begin_s + stage->service_s + stage->latency_s,
                            .bucket = flight.bucket,
                            .stage = flight.stage + 1});
}

/* Between two layers. */
static void look_after(struct simulation *s)
{
    while (s->n_heap > 0 && s->heap[0].at_s <= s->now_s)
        serve(s, pop(s));
}

static void run(struct simulation *s, const struct dpb_measured *measured, double scale)
{
    size_t next = 0;
    double at_s = 0;
    for (size_t i = 0; i < measured->n_ready; i++) {
        const bool last = i + 1 == measured->n_ready;
        s->now_s += scale * (measured->ready_s[i] - at_s);
        at_s = measured->ready_s[i];
        for (; next < s->n_buckets &&
               (last || (double)(next + 1) * s->c->bucket_bytes <= measured->ready_bytes[i]);
             next++)
            push(s, (struct flight){.at_s = s->now_s, .bucket = next});
        look_after(s);
    }
    s->now_s += scale * (measured->compute_s - at_s);
    while (s->n_heap > 0) {
        if (!s->c->helper)
            s->now_s = fmax(s->now_s, s->heap[0].at_s);
        serve(s, pop(s));
    }
}

dpb_status dpb_predict_step(const struct dpb_measured *measured,
                            const struct dpb_prediction_case *c, double factor, double delay_s,
                            struct dpb_predicted *predicted)
{
    const double bytes = measured->ready_bytes[measured->n_ready - 1];
    const double n = ceil(bytes / c->bucket_bytes), scale = factor * c->compute_scale;
    if (n > DPB_PREDICT_BUCKETS)
        return dpb_fail(DPB_USAGE,
                        "%.0f buckets of %.0f bytes are more than the %d that predict simulates: "
                        "give larger --buckets",
                        n, c->bucket_bytes, DPB_PREDICT_BUCKETS);
    struct simulation s = {.c = c, .now_s = delay_s, .n_buckets = n < 1 ? 1 : (size_t)n};
    const double last_bytes = bytes - (double)(s.n_buckets - 1) * c->bucket_bytes;
    s.whole = plan_of(measured, c, fmin(c->bucket_bytes, bytes), s.n_buckets);
    s.last = plan_of(measured, c, last_bytes, s.n_buckets);
    s.heap = calloc(s.n_buckets, sizeof *s.heap);
    DPB_TRY(dpb_allocated(s.heap));
    run(&s, measured, scale);
    free(s.heap);
    const bool updates = !has_servers(c) || c->servers == 0 || c->workers == 1;
    const double sharers = c->way == DPB_WAY_LOCAL_SERVERS             ? machines_of(c)
                           : c->way == DPB_WAY_SERVERS || c->shard > 0 ? c->workers
                                                                       : 1;
    const double share = updates ? 1 / sharers : 0;
    predicted->step_s = fmax(s.now_s, s.done_s);
    predicted->own_s =
        fmin(delay_s + scale * measured->compute_s + share * measured->update_s, predicted->step_s);
    predicted->exposed_s = predicted->step_s - predicted->own_s;
    return DPB_OK;
}

/* ---- over steps, over links ---------------------------------------------------------------- */

static struct dpb_predicted between(const struct dpb_predicted *a, const struct dpb_predicted *b,
                                    double share)
{
    return (struct dpb_predicted){.step_s = a->step_s + share * (b->step_s - a->step_s),
                                  .own_s = a->own_s + share * (b->own_s - a->own_s),
                                  .exposed_s =
                                      a->exposed_s + share * (b->exposed_s - a->exposed_s)};
}

/* The own time of the i-th step, without its update. */
static double length_of(const struct dpb_measured *measured, const struct dpb_prediction_case *c,
                        size_t i)
{
    return measured->factors[i] * c->compute_scale * measured->compute_s +
           (measured->delays_s ? measured->delays_s[i] : 0);
}

/* The simulated steps at `n` of the factors; those between are interpolated. */
static struct dpb_predicted at_factor(const struct dpb_measured *measured,
                                      const struct dpb_prediction_case *c,
                                      const struct dpb_predicted *grid, const size_t *index,
                                      size_t n, size_t i)
{
    size_t g = 0;
    while (g + 1 < n && index[g + 1] < i)
        g++;
    if (g + 1 == n || i == index[g])
        return grid[g];
    const double low = length_of(measured, c, index[g]),
                 high = length_of(measured, c, index[g + 1]);
    return between(&grid[g], &grid[g + 1],
                   high > low ? (length_of(measured, c, i) - low) / (high - low) : 0);
}

dpb_status dpb_predict_mean(const struct dpb_measured *measured,
                            const struct dpb_prediction_case *c, bool together,
                            struct dpb_predicted *predicted)
{
    struct dpb_predicted grid[GRID], sum = {0};
    size_t index[GRID];
    const size_t n = measured->n_factors, n_grid = n < GRID ? n : GRID;
    const bool draws_one = together || c->way == DPB_WAY_ALONE;
    for (size_t g = 0; g < n_grid; g++) {
        index[g] = n_grid == 1 ? 0 : g * (n - 1) / (n_grid - 1);
        DPB_TRY(dpb_predict_step(measured, c, measured->factors[index[g]],
                                 measured->delays_s ? measured->delays_s[index[g]] : 0, &grid[g]));
    }
    const double power = draws_one ? 1 : c->workers;
    for (size_t i = 0; i < n; i++) {
        const double weight =
            pow((double)(i + 1) / (double)n, power) - pow((double)i / (double)n, power);
        const struct dpb_predicted one = at_factor(measured, c, grid, index, n_grid, i);
        sum.step_s += weight * one.step_s;
        sum.own_s += weight * one.own_s;
        sum.exposed_s += weight * one.exposed_s;
    }
    *predicted = sum;
    return DPB_OK;
}

/* Whether this bandwidth keeps exposed communication within the share. */
static dpb_status is_enough(const struct dpb_measured *measured,
                            const struct dpb_prediction_case *given, double bytes_per_s,
                            double share, bool *enough)
{
    struct dpb_prediction_case c = *given;
    struct dpb_predicted predicted;
    if (dpb_predict_crosses(&c))
        c.outside.bytes_per_s = bytes_per_s;
    else
        c.inside.bytes_per_s = bytes_per_s;
    DPB_TRY(dpb_predict_mean(measured, &c, false, &predicted));
    *enough = predicted.exposed_s <= share * predicted.step_s;
    return DPB_OK;
}

dpb_status dpb_predict_least_bandwidth(const struct dpb_measured *measured,
                                       const struct dpb_prediction_case *c, double share,
                                       double *bytes_per_s)
{
    double low = log(1e5), high = log(1e13);
    bool enough;
    DPB_TRY(is_enough(measured, c, INFINITY, share, &enough));
    *bytes_per_s = enough ? 0 : INFINITY;
    if (!enough)
        return DPB_OK;
    DPB_TRY(is_enough(measured, c, exp(low), share, &enough));
    for (int i = 0; i < STEPS_OF_SEARCH && !enough; i++) {
        bool here;
        DPB_TRY(is_enough(measured, c, exp((low + high) / 2), share, &here));
        *(here ? &high : &low) = (low + high) / 2;
        *bytes_per_s = exp(high);
    }
    return DPB_OK;
}

/* ---- controls ------------------------------------------------------------------------------- */

double dpb_predict_link_s(const struct dpb_measured *measured, const struct dpb_prediction_case *c)
{
    struct dpb_measured idle = *measured;
    struct dpb_prediction_case bare = *c;
    double work_s = 0, busiest_s = 0, busy_s[RESOURCES] = {0};
    idle.update_s = 0;
    bare.host = (struct dpb_cost){.bytes_per_s = INFINITY};
    bare.codec.encode_bytes_per_s = INFINITY;
    if (!isnan(bare.codec.decode_bytes_per_s))
        bare.codec.decode_bytes_per_s = INFINITY;
    const struct plan plan = plan_of(&idle, &bare, measured->ready_bytes[measured->n_ready - 1], 1);
    for (uint32_t i = 0; i < plan.n_stages; i++) {
        work_s += plan.stages[i].work_s;
        busy_s[plan.stages[i].resource] += plan.stages[i].service_s;
    }
    for (int i = 0; i < RESOURCES; i++)
        busiest_s = fmax(busiest_s, busy_s[i]);
    return fmax(work_s, busiest_s);
}

double dpb_predict_simple_s(const struct dpb_measured *measured,
                            const struct dpb_prediction_case *c)
{
    const double bytes = measured->ready_bytes[measured->n_ready - 1];
    const double link_s = dpb_predict_link_s(measured, c);
    const double before_last = (ceil(bytes / c->bucket_bytes) - 1) * c->bucket_bytes;
    const double backward_s = c->compute_scale * measured->backward_s;
    /* fmax drops a NAN, the difference keeps it. */
    return c->compute_scale * measured->compute_s - backward_s + fmax(backward_s, link_s) +
           link_s * (bytes - before_last) / bytes + measured->update_s;
}

/* ---- from measured exchanges --------------------------------------------------------------- */

/* The time of one bucket, as a number of latencies and a multiple of its bytes. */
static void count(const struct dpb_prediction_case *given, double bytes, double *latencies,
                  double *times_bytes)
{
    const double one = 1, ready_s = 0;
    const struct dpb_measured measured = {
        .ready_s = &ready_s, .ready_bytes = &bytes, .n_ready = 1, .factors = &one, .n_factors = 1};
    struct dpb_prediction_case c = *given;
    c.outside = c.inside = (struct dpb_cost){.bytes_per_s = 1, .latency_s = 0};
    c.host = (struct dpb_cost){.bytes_per_s = INFINITY};
    const struct plan carried = plan_of(&measured, &c, bytes, 1);
    c.outside = c.inside = (struct dpb_cost){.bytes_per_s = INFINITY, .latency_s = 1};
    const struct plan waited = plan_of(&measured, &c, bytes, 1);
    *latencies = *times_bytes = 0;
    for (uint32_t i = 0; i < carried.n_stages; i++) {
        *times_bytes += carried.stages[i].service_s + carried.stages[i].work_s;
        *latencies += waited.stages[i].latency_s;
    }
}

dpb_status dpb_predict_fit(const struct dpb_prediction_case *c, const double *bytes,
                           const double *time_s, size_t n, struct dpb_cost *cost, double *error)
{
    /* Normal equations of latencies a + bytes b = time, each row divided by its time. */
    double aa = 0, ab = 0, bb = 0, at = 0, bt = 0, squares = 0, a, b;
    for (size_t i = 0; i < n; i++) {
        count(c, bytes[i], &a, &b);
        a /= time_s[i], b /= time_s[i];
        aa += a * a, ab += a * b, bb += b * b, at += a, bt += b;
    }
    const double determinant = aa * bb - ab * ab;
    double latency_s = (at * bb - bt * ab) / determinant;
    double s_per_byte = (bt * aa - at * ab) / determinant;
    if (latency_s < 0) { /* too small to be seen beside the bytes */
        latency_s = 0;
        s_per_byte = bt / bb;
    }
    if (n < 2 || !(determinant > 0) || !(s_per_byte > 0))
        return dpb_fail(DPB_USAGE, "no bandwidth fits the measured exchanges: measure more sizes, "
                                   "up to a bucket, by `dpbench comm`");
    for (size_t i = 0; i < n; i++) {
        count(c, bytes[i], &a, &b);
        squares += pow((a * latency_s + b * s_per_byte) / time_s[i] - 1, 2);
    }
    *cost = (struct dpb_cost){.bytes_per_s = 1 / s_per_byte, .latency_s = latency_s};
    *error = sqrt(squares / (double)n);
    return DPB_OK;
}
