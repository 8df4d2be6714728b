/* needs: threads */
/*
 * test_ps_async_order.c - the oracle of ps_async: the order that the servers logged, replayed one
 * update after the other in float64 by a second implementation of Downpour SGD, gives the weights
 * that the training ended with. With comm.push_every a push is the sum of its steps' gradients;
 * with comm.fetch_every a worker takes steps of its own between fetches. Forward and backward are
 * the reference device's, at the weights that the log says each gradient was computed from. Mutants
 * (tests/plugins/comm_mutant_async.c) are found by the replay, or by core.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/oracle.h"
#include "lib/test.h"
#include "lib/training.h"

enum {
    WORKERS = 3,
    MOST_SERVERS = 3,
    STEPS = 15,
    MOST_PUSHES = 256,
    PROOF_STEPS = 8,
    LOAD_STEPS = 2
};

#define RATE 0.02
#define MOMENTUM 0.9

/* A line of a server's log. */
struct push {
    unsigned worker;
    unsigned long long step, pulled, applied;
};

struct shard {
    struct push pushes[MOST_PUSHES]; /* of training: its steps and versions count from 0 */
    size_t n, next;
    unsigned long long n_versions, version;
    double *versions[MOST_PUSHES + 1], *velocity; /* whole arenas; its slices are valid */
    unsigned long long fetched[WORKERS][STEPS];   /* by the step after which it came */
};

struct replay {
    struct oracle oracle;
    double *of[WORKERS][STEPS]; /* gradients */
    double *own[WORKERS];       /* weights */
    struct shard shards[MOST_SERVERS];
    unsigned n_servers;
    uint64_t bucket; /* elements */
    bool staleness;
    unsigned softsync; /* pushes of an update */
    bool drops;        /* what is not of the newest weights */
    bool distinct;     /* k_async: an update takes one push of each of softsync workers */
    bool breaks;       /* some update does not */
    bool loses;        /* a worker dies: fewer pushes */
    unsigned push_every, fetch_every;
};

static char log_path[128];

/* ---- the log ------------------------------------------------------------------------------- */

static bool has_fetches(const struct replay *r)
{
    return r->push_every > 1 || r->fetch_every > 1 || r->drops;
}

static const struct push *push_before(const struct shard *shard, const struct push *push)
{
    const struct push *before = NULL;
    for (const struct push *p = shard->pushes; p < push; p++)
        if (p->worker == push->worker)
            before = p;
    return before;
}

/* The first step whose gradients are in a push. */
static unsigned long long first_step(const struct replay *r, const struct shard *shard,
                                     const struct push *push)
{
    const struct push *before = push_before(shard, push);
    if (r->push_every == 1)
        return push->step;
    return before ? before->step + 1 : 0;
}

/* Version of the weights with which a step begins, but for the worker's own steps. */
static unsigned long long version_at(const struct replay *r, const struct shard *shard,
                                     unsigned worker, unsigned long long step)
{
    const unsigned long long fetches = step / r->fetch_every;
    return fetches > 0 ? shard->fetched[worker][fetches * r->fetch_every - 1] : 0;
}

/* Where each push fetches, too, its line says what was fetched before; else fetches have lines, and
 * a push says what its first gradients were computed from. */
static void check_versions(const struct replay *r, struct shard *shard)
{
    for (size_t i = 0; i < shard->n; i++) {
        const struct push *p = &shard->pushes[i];
        if (!has_fetches(r) && p->step > 0)
            shard->fetched[p->worker][p->step - 1] = p->pulled;
        assert_int_equal(p->pulled, version_at(r, shard, p->worker, first_step(r, shard, p)));
    }
}

/* How many workers have a push among these. */
static unsigned count_workers(const struct push *pushes, size_t n)
{
    bool seen[WORKERS] = {false};
    unsigned workers = 0;
    for (size_t i = 0; i < n; i++) {
        workers += !seen[pushes[i].worker];
        seen[pushes[i].worker] = true;
    }
    return workers;
}

/* Each update of k_async takes pushes of K workers, one of each; of fewer only once no more train.
 * With several servers also where the others wait for another server, which is seldom: a worker
 * that no longer waits says so. */
static bool takes_distinct(const struct replay *r, const struct shard *shard)
{
    if ((double)shard->n < 0.8 * r->softsync * (double)shard->n_versions)
        return false;
    for (size_t first = 0, end; first < shard->n; first = end) {
        const struct push *pushes = &shard->pushes[first];
        for (end = first; end < shard->n && shard->pushes[end].applied == pushes->applied;)
            end++;
        const size_t n = end - first;
        const unsigned left = count_workers(pushes, shard->n - first);
        if (n > r->softsync || count_workers(pushes, n) != n ||
            (n < r->softsync && n < left && r->n_servers == 1))
            return false;
    }
    return true;
}

static void read_log(struct replay *r, unsigned server, unsigned long long proofs)
{
    struct shard *shard = &r->shards[server];
    const unsigned long long from = proofs * PROOF_STEPS + LOAD_STEPS;
    char path[160], line[128];
    unsigned long long first = 0;
    struct push p;
    snprintf(path, sizeof path, "%s.%u", log_path, WORKERS + server);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        const int n = sscanf(line, "%u %llu %llu %llu", &p.worker, &p.step, &p.pulled, &p.applied);
        if (p.step < from || p.step >= from + STEPS)
            continue; /* of a proof */
        if (n == 3) {
            assert_true(has_fetches(r) && strstr(line, " fetch\n"));
            shard->fetched[p.worker][p.step - from] = p.pulled;
            continue;
        }
        assert_int_equal(n, 4);
        assert_true(shard->n < MOST_PUSHES && p.worker < WORKERS);
        if (shard->n == 0)
            first = p.applied; /* before it all have met, and nothing was on its way */
        assert_true(p.pulled >= first && p.pulled <= p.applied);
        p.step -= from;
        p.pulled -= first;
        p.applied -= first;
        assert_true(r->distinct || p.applied == shard->n / r->softsync);
        assert_in_range(p.applied + 1, shard->n_versions, shard->n_versions + 1);
        assert_true(!r->drops || p.applied == p.pulled);
        shard->pushes[shard->n++] = p;
        shard->n_versions = p.applied + 1;
    }
    fclose(file);
    unlink(path);
    if (r->loses)
        assert_in_range(shard->n, (WORKERS - 1) * STEPS + 1, WORKERS * STEPS - 1);
    else if (!r->drops)
        assert_int_equal(shard->n, WORKERS * ((STEPS + r->push_every - 1) / r->push_every));
    for (int i = 0; i < WORKERS * STEPS && has_fetches(r); i++)
        if (shard->fetched[i / STEPS][i % STEPS] > 0)
            shard->fetched[i / STEPS][i % STEPS] -= first;
    check_versions(r, shard);
    r->breaks = r->breaks || (r->distinct && !takes_distinct(r, shard));
}

/* ---- the model ----------------------------------------------------------------------------- */

static void open_replay(struct replay *r, const char *settings)
{
    char line[2048];
    snprintf(line, sizeof line, "comm.name=ps_async %s", settings);
    oracle_open(&r->oracle, line);
    for (uint32_t w = 0; w < WORKERS; w++)
        r->own[w] = oracle_arena(&r->oracle);
    for (unsigned s = 0; s < r->n_servers; s++) {
        r->shards[s].velocity = oracle_arena(&r->oracle);
        r->shards[s].versions[0] = oracle_arena(&r->oracle);
        memcpy(r->shards[s].versions[0], r->oracle.weights,
               r->oracle.graph->n_elements * sizeof(double));
    }
}

static void close_replay(struct replay *r)
{
    for (unsigned w = 0; w < WORKERS; w++) {
        free(r->own[w]);
        for (int k = 0; k < STEPS; k++)
            free(r->of[w][k]);
    }
    for (unsigned s = 0; s < r->n_servers; s++) {
        free(r->shards[s].velocity);
        for (size_t v = 0; v <= r->shards[s].n_versions; v++)
            free(r->shards[s].versions[v]);
    }
    oracle_close(&r->oracle);
}

/* The server of an element: slice (s + bucket) mod S of the bucket's S. */
static unsigned server_of(const struct replay *r, uint64_t element)
{
    const uint64_t bucket = element / r->bucket, at = element % r->bucket;
    const uint64_t rest = r->oracle.graph->n_elements - bucket * r->bucket;
    const uint64_t length = rest < r->bucket ? rest : r->bucket;
    for (unsigned s = 0; s < r->n_servers; s++) {
        const uint64_t turn = (s + bucket) % r->n_servers;
        if (at >= length * turn / r->n_servers && at < length * (turn + 1) / r->n_servers)
            return s;
    }
    fail_msg("no server for element %llu", (unsigned long long)element);
    return 0;
}

/* ---- the replay ---------------------------------------------------------------------------- */

/* Whether the gradients of a worker's step are known, or can be made: all that it pulled is. */
static bool has_gradients(struct replay *r, unsigned worker, unsigned long long step)
{
    if (r->of[worker][step])
        return true;
    if (step > 0 && !has_gradients(r, worker, step - 1)) /* it may have been dropped */
        return false;
    for (unsigned s = 0; s < r->n_servers; s++)
        if (version_at(r, &r->shards[s], worker, step) > r->shards[s].version)
            return false;
    for (uint64_t i = 0; i < r->oracle.graph->n_elements; i++) {
        const struct shard *shard = &r->shards[server_of(r, i)];
        if (step % r->fetch_every == 0)
            r->own[worker][i] = shard->versions[version_at(r, shard, worker, step)][i];
        r->oracle.weights[i] = r->own[worker][i];
    }
    oracle_pass(&r->oracle, worker, step, 0);
    r->of[worker][step] = oracle_arena(&r->oracle);
    memcpy(r->of[worker][step], r->oracle.gradients, r->oracle.graph->n_elements * sizeof(double));
    for (uint64_t i = 0; i < r->oracle.graph->n_elements; i++)
        r->own[worker][i] -= RATE * r->oracle.gradients[i];
    return true;
}

static bool has_all_gradients(struct replay *r, const struct shard *shard, const struct push *push)
{
    for (unsigned long long step = first_step(r, shard, push); step <= push->step; step++)
        if (!has_gradients(r, push->worker, step))
            return false;
    return true;
}

/* The next update in the log of a server; false: not yet. */
static bool apply_next(struct replay *r, unsigned server)
{
    struct shard *shard = &r->shards[server];
    const size_t first = shard->next;
    size_t end = first;
    double rate = RATE;
    for (; end < shard->n && shard->pushes[end].applied == shard->version; end++)
        if (!has_all_gradients(r, shard, &shard->pushes[end]))
            return false;
    if (end == first)
        return false;
    double *sum = own_memory(oracle_arena(&r->oracle), free),
           *to = shard->versions[shard->version + 1] = oracle_arena(&r->oracle);
    for (; shard->next < end; shard->next++) {
        const struct push *p = &shard->pushes[shard->next];
        const double age = r->staleness ? fmax(1.0, (double)(p->applied - p->pulled)) : 1.0;
        const double part = r->softsync > 1 ? 1.0 / (age * r->softsync) : 1.0;
        if (r->softsync == 1)
            rate /= age;
        for (unsigned long long step = first_step(r, shard, p); step <= p->step; step++)
            for (uint64_t i = 0; i < r->oracle.graph->n_elements; i++)
                sum[i] += part * r->of[p->worker][step][i];
    }
    for (uint64_t i = 0; i < r->oracle.graph->n_elements; i++) {
        if (server_of(r, i) != server)
            continue;
        shard->velocity[i] = MOMENTUM * shard->velocity[i] + sum[i];
        to[i] = shard->versions[shard->version][i] - rate * shard->velocity[i];
    }
    shard->version++;
    return true;
}

static double largest_difference(const struct replay *r, const struct weights *weights)
{
    double worst = 0.0, scale = 0.0;
    for (uint32_t t = 0; t < r->oracle.graph->n_tensors; t++) {
        const struct dpb_tensor *tensor = &r->oracle.graph->tensors[t];
        const struct weight_tensor *is = oracle_tensor(weights, "", tensor);
        for (uint64_t i = 0; i < tensor->n_elements; i++) {
            const struct shard *shard = &r->shards[server_of(r, tensor->offset + i)];
            const double value = weights_value(is, i);
            scale = fmax(scale, fabs(value));
            worst =
                fmax(worst, fabs(value - shard->versions[shard->n_versions][tensor->offset + i]));
        }
    }
    return worst / scale;
}

static double replay(struct replay *r, const struct weights *weights)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (unsigned s = 0; s < r->n_servers; s++)
            while (apply_next(r, s))
                moved = true;
    }
    for (unsigned s = 0; s < r->n_servers; s++)
        if (r->shards[s].next != r->shards[s].n)
            fail_msg("server %u: push %zu was computed from weights that were not there yet", s,
                     r->shards[s].next);
    return largest_difference(r, weights);
}

/* ---- tests --------------------------------------------------------------------------------- */

/* Forms of two servers: all gradients and weights in messages, or some. */
#define APART " comm.interface=lo comm.hosts=1+1+1+1+1"
#define MIXED " comm.interface=lo comm.hosts=2+3"
#define K_ASYNC "run.delay=exponential(4ms) comm.policy=k_async "

static const struct form {
    const char *settings;
    unsigned servers, bucket_bytes;
    bool staleness;
    unsigned softsync, push_every, fetch_every;
    bool drops;
} forms[] = {
    {"run.delay=exponential(1ms)", 1, 1 << 20, false, 1, 1, 1, false},
    {"run.delay=exponential(1ms) comm.rate=staleness" APART, 2, 776, true, 1, 1, 1, false},
    {"run.delay=pareto(0.3ms,1.5) comm.bound=1 model.name=tiny_dense", 3, 2000, false, 1, 1, 1,
     false},
    {"run.delay=exponential(1ms) comm.rate=staleness comm.softsync=3" MIXED, 2, 776, true, 3, 1, 1,
     false},
    {"run.delay=exponential(1ms)", 1, 1 << 20, false, 1, 4, 3, false},
    {"run.delay=exponential(1ms) comm.rate=staleness run.accumulate=1", 2, 776, true, 1, 3, 1,
     false},
    {"run.delay=pareto(0.3ms,1.5) model.name=tiny_dense run.comm_cores=1", 3, 2000, false, 1, 1, 4,
     false},
    {"run.delay=exponential(1ms) comm.softsync=3" APART, 2, 776, false, 3, 2, 2, false},
    {"run.delay=exponential(4ms) comm.policy=k_batch_sync comm.k=2" MIXED, 2, 776, false, 2, 1, 1,
     true},
    {"run.delay=exponential(4ms) comm.policy=k_batch_sync comm.k=5", 1, 1 << 20, false, 5, 1, 1,
     true},
    {"run.delay=exponential(4ms) comm.policy=k_batch_sync comm.k=1 model.name=tiny_dense", 3, 2000,
     false, 1, 1, 1, true},
    {K_ASYNC "comm.k=2", 1, 1 << 20, false, 2, 1, 1, false},
    {K_ASYNC "comm.k=2 comm.rate=staleness run.comm_cores=1", 1, 776, true, 2, 1, 1, false},
    {K_ASYNC "comm.k=2 comm.rate=staleness", 3, 776, true, 2, 1, 1, false},
    {K_ASYNC "comm.k=2 model.name=tiny_dense" APART, 2, 2000, false, 2, 1, 1, false},
    {"run.delay=exponential(1ms) comm.rate=staleness comm.softsync=3", 2, 776, true, 3, 1, 4,
     false},
};

/* By how much the replay differs, as a share of the largest weight. */
static double difference_of(const struct form *form, const char *comm)
{
    struct replay r = {.n_servers = form->servers,
                       .bucket = form->bucket_bytes / sizeof(double),
                       .staleness = form->staleness,
                       .softsync = form->softsync,
                       .drops = form->drops,
                       .loses = strstr(comm, "comm.fault=kill") != NULL,
                       .distinct = strstr(form->settings, "policy=k_async") != NULL,
                       .push_every = form->push_every,
                       .fetch_every = form->fetch_every};
    struct training training;
    char settings[1024];
    snprintf(settings, sizeof settings,
             "run.workers=%d run.servers=%u run.steps=%d comm.bucket=%u "
             "comm.log=%s model.name=tiny optimizer.learning_rate=%g optimizer.momentum=%g "
             "run.batch=2 run.precision=fp64 device.name=reference data.name=synthetic "
             "data.samples=640 run.prove=no comm.push_every=%u comm.fetch_every=%u %s",
             WORKERS, form->servers, STEPS, form->bucket_bytes, log_path, RATE, MOMENTUM,
             form->push_every, form->fetch_every, form->settings);
    train(&training, "%s %s", comm, settings);
    for (unsigned s = 0; s < form->servers; s++)
        read_log(&r, s, 1);
    open_replay(&r, settings);
    const double difference = r.breaks ? INFINITY : replay(&r, &training.weights);
    const json_t *age = json_at(training.command.json, "strategy.age");
    /* There was an order to get wrong. */
    assert_true(json_number_at(age, form->drops ? "dropped_share" : "mean") > 0.0);
    close_replay(&r);
    return difference;
}

static void test_order(void **state)
{
    const double difference = difference_of(*state, "comm.name=ps_async");
    if (!(difference <= 1e-12))
        fail_msg("the replay differs by %.3g of the largest weight", difference);
}

/* ---- a death ------------------------------------------------------------------------------- */

/* Worker 1, in its fourth or fifth step: the proofs have ten. */
#define DIES " run.survive=yes comm.fault=kill comm.rank=1 comm.call=15 comm.hook="

/* All that it gave before counts, once, and nothing else does. */
static void test_order_after_death(void **state)
{
    static const char *const hooks[] = {"begin", "end"};
    for (size_t i = 0; i < 2; i++) {
        char comm[256];
        snprintf(comm, sizeof comm, "comm.name=mutant_async" DIES "%s", hooks[i]);
        const double difference = difference_of(*state, comm);
        if (!(difference <= 1e-12))
            fail_msg("%s: the replay differs by %.3g of the largest weight", hooks[i], difference);
    }
    const double difference =
        difference_of(*state, "comm.name=mutant_async comm.mutation=twice comm.from=55" DIES "end");
    if (!(difference > 1e-6))
        fail_msg("a push applied twice: the replay differs by no more than %.3g", difference);
}

/* ---- mutants ------------------------------------------------------------------------------- */

/* With forms[0] (one server, one bucket) training begins with push 31 and about pull 47. */
#define IN_TRAINING "comm.name=mutant_async comm.from=55 comm.mutation="

static void expect_found(const struct form *form, const char *mutant)
{
    const double none = difference_of(form, IN_TRAINING "none");
    const double difference = difference_of(form, mutant);
    assert_true(none <= 1e-12);
    if (!(difference > 1e-6))
        fail_msg("%s: the replay differs by no more than %.3g", mutant, difference);
}

static void test_replay_finds(void **state)
{
    expect_found(&forms[0], *state);
}

/* With a step of its own between fetches. */
static void test_own_steps(void **state)
{
    expect_found(&forms[4], *state);
}

/* With updates of two pushes, of different workers, of which one is so much the fastest that two of
 * its own would come first. */
static void test_same_worker(void **state)
{
    struct form form = forms[11];
    form.settings = "comm.policy=k_async comm.k=2 run.delay=constant(50ms) run.delay_ranks=1,2";
    expect_found(&form, *state);
}

/* Core's own checks end these runs. */
TEST(test_core_finds)
{
    static const struct {
        const char *settings, *words;
    } rows[] = {
        {"comm.mutation=lost comm.from=7", "pattern check of comm 'mutant_async'"},
        {"comm.mutation=twice comm.from=7", "pattern check of comm 'mutant_async'"},
        {"comm.mutation=banked comm.from=9 comm.softsync=3",
         "pattern check of comm 'mutant_async': the books"},
        {"comm.mutation=accrued comm.from=2 comm.push_every=3",
         "pattern check of comm 'mutant_async': the books"},
        {"comm.mutation=late comm.policy=k_sync comm.k=2", "count, not of 2"},
        /* Worker 0 is among the first three. */
        {"comm.mutation=denied comm.policy=k_sync comm.k=3",
         "pattern check of comm 'mutant_async': the books"},
        {"comm.mutation=scale comm.policy=k_sync comm.k=2",
         "pattern check of comm 'mutant_async': the books"},
        {"comm.mutation=banked comm.from=9 comm.policy=k_batch_sync comm.k=3",
         "pattern check of comm 'mutant_async': the books"},
        {"comm.mutation=late comm.policy=k_batch_sync comm.k=2 run.delay=exponential(4ms)",
         "comm 'mutant_async' promises batches(2)"},
        {"comm.mutation=denied comm.policy=k_batch_sync comm.k=1 run.workers=1",
         "pattern check of comm 'mutant_async': the books"},
        {"comm.mutation=scale comm.policy=k_batch_sync comm.k=2",
         "pattern check of comm 'mutant_async': the books"},
        {"comm.mutation=lost comm.from=7 comm.policy=k_async comm.k=2",
         "pattern check of comm 'mutant_async'"},
        {"comm.mutation=scale comm.policy=k_async comm.k=2",
         "pattern check of comm 'mutant_async': the books"},
        {"comm.mutation=bound comm.bound=1 run.delay=constant(200ms) run.delay_ranks=1",
         "comm 'mutant_async' promises stale(1)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct training training;
        train_anyway(&training,
                     "comm.name=mutant_async run.workers=3 run.servers=1 run.steps=15 "
                     "model.name=tiny %s",
                     rows[i].settings);
        if (training.command.exit_code != 3 || !strstr(training.command.err, rows[i].words))
            fail_msg("%s: exit code %d: %s", rows[i].settings, training.command.exit_code,
                     training.command.err);
    }
}

/* All that workers say before `load`, and the weights of worker 0, come to it at once. */
TEST(test_slow_server)
{
    struct training training;
    train(&training, "comm.name=mutant_async comm.mutation=slow comm.softsync=2 run.workers=3 "
                     "run.servers=1 run.steps=2 model.name=tiny");
}

static int setup(void **state)
{
    snprintf(log_path, sizeof log_path, "/tmp/dpb_async_order.%d", (int)getpid());
    return training_setup_mutants(state);
}

int main(void)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        add_case(test_order, &forms[i], "%u servers, push every %u, fetch every %u, %s",
                 forms[i].servers, forms[i].push_every, forms[i].fetch_every, forms[i].settings);
    for (size_t i = 0; i < 3; i++)
        add_case(test_order_after_death, &forms[i], "%u servers, a worker dies, %s",
                 forms[i].servers, forms[i].settings);
    add_case(test_replay_finds, IN_TRAINING "lost", "a lost push");
    add_case(test_replay_finds, IN_TRAINING "twice", "a push applied twice");
    add_case(test_replay_finds, IN_TRAINING "version", "a wrong version pulled");
    add_case(test_own_steps, IN_TRAINING "alone", "a step of a worker's own left out");
    add_case(test_same_worker, IN_TRAINING "again", "a worker twice in an update of k_async");
    return test_main(setup, training_teardown);
}
