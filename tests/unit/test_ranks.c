/* needs: native */
/*
 * test_ranks.c - every strategy with its ranks as threads of one process: their fences are what a
 * thread sanitizer can see here, and between processes could not (`make tsan`). Right after `done`
 * each rank writes its gradients again, and reads its weights. Those that leave a machine also do
 * it between ranks that see each other's memory on their own machine only. Those on arenas of a
 * device do it on one that puts its work off (tests/lib/lazy_device.h). Strategies that average, in
 * fp64 and with momentum or AdamW, reach the weights of a serial oracle, on the host and on that
 * device; with a codec, in fp32 on the host.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/ps_cpu/ps.h" /* before cmocka's macro `fail` */

#include "averaging_oracle.h"
#include "base/log.h"
#include "base/options.h"
#include "base/vec.h"
#include "lib/lazy_device.h"
#include "lib/plugin.h"
#include "lib/test.h"
#include "plan/experiment.h"
#include "world/host_device.h"
#include "world/world.h"

enum { MAX_RANKS = 5, STEPS = 50, DROP_AT = 25, ELEMENTS = 1003, BUCKET = 100 };
enum { WEIGHTS, GRADIENTS, SCRATCH, INBOX, ARENAS };

struct trial {
    const char *strategy;
    uint32_t n_workers, n_servers;
    bool pumped;              /* progress on a thread of its own, as with run.comm_cores */
    const uint32_t *machines; /* by rank */
    uint32_t n_machines;
    bool on_device;
    const void *options;
    const struct oracle_args *oracle; /* what it must come to; NULL: sums, in fp32 */
    const struct dpb_codec *codec;    /* that is carried */
    const struct dpb_host *host;
    const struct dpb_comm_ops *ops;
    void *arenas[ARENAS][MAX_RANKS];
    pthread_barrier_t barrier, loaded; /* of all; of the workers */
};

struct rank {
    struct trial *trial;
    uint32_t rank;
    pthread_t thread;
    void *comm;
    const struct dpb_comm_ops *ops; /* that the plan chose */
    struct dpb_comm_plan plan;
    struct dpb_arenas bound;
    void *peers[ARENAS][MAX_RANKS]; /* those of its machine */
    void *device;
    struct dpb_device_arenas on_device;
    struct dpb_event *done; /* for the pump; atomically */
    float expected[ELEMENTS];
    struct oracle *oracle;
    vector state[2]; /* momentum; or AdamW's moments */
    uint32_t wrong;
    dpb_status status;
};

/* ---- what strategies get ------------------------------------------------------------------- */

static dpb_status update_here(struct dpb_optimizer *optimizer, struct dpb_queue *queue,
                              struct dpb_range range, void *weights, const void *gradients,
                              uint64_t bucket, const struct dpb_step *step)
{
    (void)queue;
    return lazy_device_update(optimizer, NULL, range, weights, gradients, bucket, step);
}

static dpb_dtype type_of(const struct trial *trial)
{
    const struct oracle_args *oracle = trial->oracle;
    return oracle && !oracle->codec && !oracle->late ? DPB_FP64 : DPB_FP32;
}

/* Of a rank's own; `optimizer` is the rank. */
static dpb_status update_as_oracle(struct dpb_optimizer *optimizer, struct dpb_queue *queue,
                                   struct dpb_range range, void *weights, const void *gradients,
                                   uint64_t bucket, const struct dpb_step *step)
{
    static const struct dpb_range all = {0, ELEMENTS};
    struct rank *self = (struct rank *)(void *)optimizer;
    const struct oracle_args *args = self->trial->oracle;
    const dpb_dtype type = type_of(self->trial);
    const uint64_t at = range.begin * dpb_dtype_size(type);
    const double number = (double)step->step + 1;
    const struct dpb_update update = {.kind = args->adam ? DPB_UPDATE_ADAM : DPB_UPDATE_MOMENTUM,
                                      .rate = step->learning_rate,
                                      .scale = step->scale,
                                      .decay = args->decay,
                                      .momentum = args->momentum,
                                      .epsilon = oracle_epsilon,
                                      .beta2 = oracle_beta2,
                                      .correction = 1 - pow(args->momentum, number),
                                      .second_correction = 1 - pow(oracle_beta2, number),
                                      .decoupled = true,
                                      .n = range.end - range.begin,
                                      .first = range.begin,
                                      .decays = &all,
                                      .n_decays = 1,
                                      .weight_type = type,
                                      .gradient_type = type,
                                      .weights = weights,
                                      .state = (char *)self->state[0] + at,
                                      .second = (char *)self->state[1] + at,
                                      .gradients = gradients};
    (void)bucket;
    return (self->trial->on_device ? &lazy_device_ops : dpb_host_device.ops)
        ->update(queue, &update);
}

static void *state_of(struct dpb_optimizer *optimizer, uint64_t element, uint32_t array)
{
    const struct rank *self = (const struct rank *)(void *)optimizer;
    return (char *)self->state[array] + element * dpb_dtype_size(type_of(self->trial));
}

static void span(uint64_t bucket, dpb_phase phase, int64_t begin_ns, int64_t end_ns)
{
    (void)bucket, (void)phase, (void)begin_ns, (void)end_ns;
}

static void count_bytes(uint64_t bytes)
{
    (void)bytes;
}

static void coding(const struct dpb_coding *done)
{
    (void)done;
}

static void report(const char *name, const char *format, ...)
{
    (void)name, (void)format;
}

static void note(const char *phase, uint64_t bucket, uint32_t peer)
{
    (void)phase, (void)bucket, (void)peer;
}

/* ---- a store that threads share ------------------------------------------------------------- */

enum { MOST_KEYS = 64, VALUE_BYTES = 256 };

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t came;
    size_t n, bytes[MOST_KEYS];
    char keys[MOST_KEYS][64], values[MOST_KEYS][VALUE_BYTES];
} store = {.mutex = PTHREAD_MUTEX_INITIALIZER, .came = PTHREAD_COND_INITIALIZER};

static dpb_status store_put(const char *key, const void *value, size_t bytes)
{
    pthread_mutex_lock(&store.mutex);
    bool fits = store.n < MOST_KEYS && bytes <= VALUE_BYTES;
    if (fits) {
        snprintf(store.keys[store.n], sizeof store.keys[0], "%s", key);
        memcpy(store.values[store.n], value, bytes);
        store.bytes[store.n++] = bytes;
    }
    pthread_cond_broadcast(&store.came);
    pthread_mutex_unlock(&store.mutex);
    return fits ? DPB_OK : DPB_FAILED;
}

static dpb_status store_get(const char *key, void *value, size_t *bytes, int64_t timeout_ns)
{
    size_t i = 0;
    (void)timeout_ns; /* the test has a deadline */
    pthread_mutex_lock(&store.mutex);
    while (i == store.n || strcmp(store.keys[i], key) != 0)
        if (i++ == store.n) {
            pthread_cond_wait(&store.came, &store.mutex);
            i = 0;
        }
    bool fits = store.bytes[i] <= *bytes;
    if (fits)
        memcpy(value, store.values[i], store.bytes[i]);
    *bytes = store.bytes[i];
    pthread_mutex_unlock(&store.mutex);
    return fits ? DPB_OK : DPB_FAILED;
}

static const struct dpb_store_ops shared_store = {.put = store_put, .get = store_get};

static const struct dpb_optimizer_ops *optimizer_of(const struct trial *trial)
{
    static const struct dpb_optimizer_ops here = {.update = update_here},
                                          there = {.update = lazy_device_update},
                                          as_oracle = {.update = update_as_oracle,
                                                       .state = state_of};
    return trial->oracle ? &as_oracle : trial->on_device ? &there : &here;
}

/* ---- flags ---------------------------------------------------------------------------------- */

/* A flag that falls would take back what peers may have read already. */
static void set_rising(struct dpb_flag *flag, uint32_t value)
{
    const uint32_t was = dpb_flags.get(flag);
    if ((int32_t)(value - was) < 0) {
        fprintf(stderr, "a flag falls from %u to %u\n", was, value);
        abort();
    }
    dpb_flags.set(flag, value);
}

/* Between two looks at once much may come: after one in vain in three, a peer has time for it. */
static bool reached_slowly(const struct dpb_flag *flag, uint32_t value)
{
    static _Thread_local uint32_t in_vain;
    const bool is_there = dpb_flags.reached(flag, value);
    if (!is_there && ++in_vain % 3 == 0)
        usleep(50);
    return is_there;
}

/* Without what there is one of in a process: accounts and status pages. */
static const struct dpb_host *rank_host(const struct trial *trial)
{
    static struct dpb_flag_ops flags;
    static struct dpb_host host;
    flags = dpb_flags;
    flags.set = set_rising;
    if (trial->oracle && trial->oracle->late)
        flags.reached = reached_slowly;
    host = plugin_host;
    host.span = span;
    host.count_bytes = count_bytes;
    host.coding = coding;
    host.note = note;
    host.optimizer = optimizer_of(trial);
    host.flag = &flags;
    host.event = &dpb_events;
    host.store = &shared_store;
    host.connect = dpb_host.connect;
    host.poll = dpb_world_poll;
    host.patience = dpb_world_patience;
    host.report = report;
    return &host;
}

/* ---- a rank -------------------------------------------------------------------------------- */

static float gradient(uint32_t rank, uint64_t step, uint64_t i)
{
    return (float)((i * 7 + rank * 3 + step) % 101);
}

static double noise(uint32_t rank, uint64_t step, uint64_t i)
{
    return sin((double)(rank * 1000003 + step * 7919 + i));
}

static size_t arena_bytes(const struct rank *self, int kind)
{
    const size_t element = dpb_dtype_size(type_of(self->trial));
    const size_t bytes[ARENAS] = {ELEMENTS * element, ELEMENTS * element, self->plan.scratch_bytes,
                                  self->plan.inbox_bytes};
    return bytes[kind];
}

/* Inboxes begin as no numbers at all. */
static void make_arenas(struct rank *self)
{
    const dpb_memory memory[ARENAS] = {self->plan.weights, self->plan.gradients, self->plan.scratch,
                                       self->plan.inbox};
    void **made[ARENAS] = {&self->bound.weights, &self->bound.gradients, &self->bound.scratch,
                           &self->bound.inbox};
    for (int kind = 0; kind < ARENAS; kind++) {
        if (memory[kind] != DPB_MEMORY_NONE)
            *made[kind] = dpb_alloc(arena_bytes(self, kind));
        self->trial->arenas[kind][self->rank] = *made[kind];
    }
    if (self->bound.inbox)
        memset(self->bound.inbox, 0xff, self->plan.inbox_bytes);
}

static void release_arenas(struct rank *self)
{
    for (int kind = 0; kind < ARENAS; kind++)
        dpb_release(self->trial->arenas[kind][self->rank], arena_bytes(self, kind));
    dpb_release(self->plan.owned, self->plan.n_owned * sizeof *self->plan.owned);
}

static dpb_status open_rank(struct rank *self)
{
    struct trial *trial = self->trial;
    struct dpb_arenas *bound = &self->bound;
    const dpb_dtype type = type_of(trial);
    const struct dpb_comm_args args = {
        .rank = self->rank,
        .n_workers = trial->n_workers,
        .n_servers = trial->n_servers,
        .learners = trial->oracle ? trial->oracle->learners : 1,
        .role = self->rank < trial->n_workers ? DPB_WORKER : DPB_SERVER,
        .bucket_bytes = BUCKET * dpb_dtype_size(type),
        .comm_cores = trial->pumped,
        .optimizer_states = !trial->oracle        ? 0
                            : trial->oracle->adam ? 2
                                                  : 1,
        .machines = trial->machines,
        .n_machines = trial->n_machines,
        .codec = trial->codec,
        .device = trial->on_device ? &self->on_device : &dpb_host_device};
    static const bool direct[MAX_RANKS] = {true, true, true, true, true};
    self->plan.bucket_elements = BUCKET;
    bound->layout =
        (struct dpb_layout){.n_elements = ELEMENTS, .weight_type = type, .gradient_type = type};
    DPB_TRY(trial->ops->open(trial->options, &args, &self->comm));
    self->plan.ops = trial->ops;
    DPB_TRY(trial->ops->plan(self->comm, &bound->layout, &self->plan));
    self->ops = self->plan.ops;
    make_arenas(self);
    pthread_barrier_wait(&trial->barrier);
    for (uint32_t r = 0; r < MAX_RANKS; r++)
        for (int kind = 0; kind < ARENAS && trial->machines[r] == trial->machines[self->rank];
             kind++)
            self->peers[kind][r] = trial->arenas[kind][r];
    bound->peer_weights = self->peers[WEIGHTS];
    bound->peer_gradients = self->peers[GRADIENTS];
    bound->peer_scratch = self->peers[SCRATCH];
    bound->peer_inbox = self->peers[INBOX];
    bound->direct = direct;
    bound->optimizer = trial->oracle ? (struct dpb_optimizer *)(void *)self : NULL;
    bound->bucket_elements = self->plan.bucket_elements;
    bound->n_buckets = (ELEMENTS + bound->bucket_elements - 1) / bound->bucket_elements;
    DPB_TRY(self->ops->bind(self->comm, bound));
    pthread_barrier_wait(&trial->barrier);
    if (self->rank >= trial->n_workers) /* it serves while they load */
        return DPB_OK;
    DPB_TRY(self->ops->load(self->comm));
    pthread_barrier_wait(&trial->loaded);
    return DPB_OK;
}

/* As pump.c does it. */
static void *pump(void *argument)
{
    struct rank *self = argument;
    for (;;) {
        self->status = self->ops->progress(self->comm, DPB_FOREVER);
        struct dpb_event *done = __atomic_load_n(&self->done, __ATOMIC_ACQUIRE);
        if (self->status != DPB_OK || (done && dpb_events.poll(done)))
            return NULL;
        if (!done)
            usleep(20);
    }
}

static dpb_status exchange(struct rank *self, uint64_t number)
{
    const struct dpb_comm_ops *ops = self->ops;
    const double rate = self->trial->oracle ? oracle_rate(self->trial->oracle, number) : 1.0;
    const struct dpb_step step = {.step = number, .learning_rate = rate, .scale = 1.0};
    struct dpb_event *done;
    self->done = NULL;
    DPB_TRY(ops->begin(self->comm, &step));
    if (self->trial->pumped && pthread_create(&self->thread, NULL, pump, self) != 0)
        return DPB_FAILED;
    for (uint64_t bucket = 0; bucket < self->bound.n_buckets; bucket++) {
        for (uint64_t i = bucket * BUCKET; i < (bucket + 1) * BUCKET && i < ELEMENTS; i++)
            if (type_of(self->trial) == DPB_FP64)
                ((double *)self->bound.gradients)[i] = noise(self->rank, number, i);
            else
                ((float *)self->bound.gradients)[i] = self->trial->oracle
                                                          ? (float)noise(self->rank, number, i)
                                                          : gradient(self->rank, number, i);
        DPB_TRY(ops->ready(self->comm, bucket, NULL));
        if (!self->trial->pumped)
            DPB_TRY(ops->progress(self->comm, 1000));
    }
    DPB_TRY(ops->end(self->comm, &done));
    if (self->trial->pumped) {
        __atomic_store_n(&self->done, done, __ATOMIC_RELEASE);
        pthread_join(self->thread, NULL);
        return self->status;
    }
    while (!dpb_events.poll(done))
        DPB_TRY(ops->progress(self->comm, DPB_FOREVER));
    return DPB_OK;
}

static void compare(struct rank *self, uint64_t step, const float *weights)
{
    bool alone = strcmp(self->trial->strategy, "independent") == 0;
    for (uint64_t i = 0; i < ELEMENTS; i++) {
        for (uint32_t r = 0; r < self->trial->n_workers; r++)
            if (!alone || r == self->rank)
                self->expected[i] -= gradient(r, step, i);
        self->wrong += weights[i] != self->expected[i];
    }
}

static void compare_with_oracle(struct rank *self, const void *weights, const double *expected)
{
    const dpb_dtype type = type_of(self->trial);
    const double bound = type == DPB_FP64 ? 1e-12 : 2e-5;
    vector is;
    dpb_vec.cast(DPB_FP64, is, type, weights, ELEMENTS);
    for (int i = 0; i < ELEMENTS; i++)
        self->wrong += !(fabs(is[i] - expected[i]) <= bound * fmax(1.0, fabs(expected[i])));
}

/* Now and then a rank sleeps, so that others are steps ahead. */
static void fall_behind(const struct rank *self, uint64_t step)
{
    if ((self->rank * 7 + step * 5) % 11 == 0)
        usleep(500);
}

/* The model is looked at in every tenth step, as an evaluation does. */
static dpb_status work_beside_oracle(struct rank *self)
{
    struct dpb_view view;
    vector model;
    self->oracle = calloc(1, sizeof *self->oracle);
    self->oracle->args = *self->trial->oracle;
    for (uint64_t step = 0; step < STEPS; step++) {
        fall_behind(self, step);
        DPB_TRY(exchange(self, step));
        oracle_step(self->oracle, noise);
        compare_with_oracle(self, self->bound.weights, self->oracle->w[self->rank]);
        if (step % 10 != 1)
            continue;
        DPB_TRY(self->ops->publish(self->comm, &view));
        oracle_model(self->oracle, model);
        compare_with_oracle(self, view.weights, model);
    }
    free(self->oracle);
    return DPB_OK;
}

static dpb_status work(struct rank *self)
{
    struct dpb_view view;
    if (self->trial->oracle)
        return work_beside_oracle(self);
    for (uint64_t step = 0; step < STEPS; step++) {
        DPB_TRY(exchange(self, step));
        compare(self, step, self->bound.weights);
    }
    DPB_TRY(self->ops->publish(self->comm, &view));
    self->wrong += memcmp(view.weights, self->expected, sizeof self->expected) != 0;
    return DPB_OK;
}

static void *run_rank(void *argument)
{
    struct rank *self = argument;
    struct trial *trial = self->trial;
    self->device = lazy_device_create(trial->host, self->rank + 1);
    self->on_device = (struct dpb_device_arenas){.ops = &lazy_device_ops, .device = self->device};
    dpb_status status = open_rank(self);
    if (status == DPB_OK)
        status = self->rank < trial->n_workers ? work(self) : self->ops->serve(self->comm);
    (self->ops ? self->ops : trial->ops)->close(self->comm);
    pthread_barrier_wait(&trial->barrier); /* nobody's arena goes before */
    release_arenas(self);
    lazy_device_destroy(self->device);
    self->status = status;
    return NULL;
}

/* ---- trials -------------------------------------------------------------------------------- */

static void run_trial(struct trial *trial)
{
    struct rank *ranks = calloc(MAX_RANKS, sizeof *ranks);
    pthread_t threads[MAX_RANKS];
    uint32_t n = trial->n_workers + trial->n_servers;
    static const uint32_t one_machine[MAX_RANKS];
    assert_non_null(ranks);
    if (!trial->machines) {
        trial->machines = one_machine;
        trial->n_machines = 1;
    }
    store.n = 0;
    trial->host = rank_host(trial);
    trial->ops = plugin_load(DPB_PLUGIN_COMM, trial->strategy, trial->host)->ops;
    assert_int_equal(pthread_barrier_init(&trial->barrier, NULL, n), 0);
    assert_int_equal(pthread_barrier_init(&trial->loaded, NULL, trial->n_workers), 0);
    for (uint32_t r = 0; r < n; r++) {
        ranks[r].trial = trial;
        ranks[r].rank = r;
        assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &ranks[r]), 0);
    }
    for (uint32_t r = 0; r < n; r++)
        pthread_join(threads[r], NULL);
    for (uint32_t r = 0; r < n; r++)
        if (ranks[r].status != DPB_OK ||
            ranks[r].wrong > (trial->oracle ? trial->oracle->may_differ : 0))
            fail_msg("%s, %u workers, %u servers%s: rank %u: status %d, %u elements are wrong",
                     trial->strategy, trial->n_workers, trial->n_servers,
                     trial->pumped ? ", pumped" : "", r, ranks[r].status, ranks[r].wrong);
    pthread_barrier_destroy(&trial->barrier);
    pthread_barrier_destroy(&trial->loaded);
    free(ranks);
}

static const struct ps_cpu_options ps_options = {
    .ps = {.tcp = {.streams = 2, .interface = "127.0.0.1"}}};

static void run_strategy(const char *strategy, uint32_t n_servers)
{
    static const uint32_t workers[] = {1, 2, 3};
    for (size_t i = 0; i < sizeof workers / sizeof workers[0]; i++)
        for (int pumped = 0; pumped < 2; pumped++) {
            struct trial trial = {.strategy = strategy,
                                  .n_workers = workers[i],
                                  .n_servers = n_servers,
                                  .options = &ps_options,
                                  .pumped = pumped == 1};
            run_trial(&trial);
        }
}

TEST(test_independent)
{
    run_strategy("independent", 0);
}

TEST(test_shm)
{
    run_strategy("shm", 0);
}

TEST(test_replicated)
{
    run_strategy("replicated", 0);
}

TEST(test_ps_cpu_in_workers)
{
    run_strategy("ps_cpu", 0);
}

TEST(test_ps_cpu_with_servers)
{
    run_strategy("ps_cpu", 1);
    run_strategy("ps_cpu", 2);
}

/* Two ranks of a machine and those of another, which has server and worker, or one alone. */
TEST(test_ps_cpu_on_machines)
{
    static const struct {
        uint32_t n_workers, n_servers, machines[MAX_RANKS], n_machines;
    } rows[] = {
        {2, 0, {0, 1}, 2},          {3, 0, {0, 1, 0}, 2},       {4, 0, {0, 0, 1, 2}, 3},
        {2, 1, {0, 1, 0}, 2},       {3, 1, {0, 0, 1, 1}, 2},    {2, 1, {0, 0, 1}, 2},
        {3, 2, {0, 1, 1, 1, 0}, 2}, {2, 3, {0, 1, 2, 1, 3}, 4},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int pumped = 0; pumped < 2; pumped++) {
            struct trial trial = {.strategy = "ps_cpu",
                                  .options = &ps_options,
                                  .n_workers = rows[i].n_workers,
                                  .n_servers = rows[i].n_servers,
                                  .pumped = pumped == 1,
                                  .machines = rows[i].machines,
                                  .n_machines = rows[i].n_machines};
            run_trial(&trial);
        }
}

static void run_on_devices(const char *strategy, int shards)
{
    for (uint32_t workers = 1; workers <= 4; workers++)
        for (int pumped = 0; pumped < 2; pumped++) {
            struct trial trial = {.strategy = strategy,
                                  .n_workers = workers,
                                  .pumped = pumped == 1,
                                  .on_device = true,
                                  .options = &shards};
            run_trial(&trial);
        }
}

TEST(test_ps_gpu)
{
    run_on_devices("ps_gpu", 0);
    run_on_devices("ps_gpu", 1);
}

TEST(test_replicated_on_devices)
{
    run_on_devices("replicated", 0);
    run_on_devices("replicated", 1); /* comm.shard = optimizer */
}

/* ---- averaging ----------------------------------------------------------------------------- */

/* oracle_args.alpha: times the number of workers; below 0: - alpha. */
static const struct averaging {
    const char *strategy, *settings[3];
    struct oracle_args args;
} averaging[] = {
    {"local_sgd", {"comm.period=1"}, {.rule = LOCAL_SGD, .period = 1}},
    {"local_sgd", {"comm.period=5"}, {.rule = LOCAL_SGD, .period = 5}},
    {"local_sgd",
     {"comm.period=3", "comm.average_state=yes"},
     {.rule = LOCAL_SGD, .period = 3, .average_state = true}},
    {"diloco", {"comm.period=3"}, {.rule = OUTER, .period = 3}},
    {"diloco",
     {"comm.period=2", "comm.average_state=yes"},
     {.rule = OUTER, .period = 2, .average_state = true}},
    {"gossip", {NULL}, {.rule = GOSSIP, .period = 1}},
    {"gossip", {"comm.period=2"}, {.rule = GOSSIP, .period = 2}},
    {"gossip",
     {"comm.period=3", "comm.average_state=yes"},
     {.rule = GOSSIP, .period = 3, .average_state = true}},
    {"easgd", {"comm.period=1"}, {.rule = EASGD, .period = 1, .alpha = 0.9}},
    {"easgd", {"comm.period=4", "comm.alpha=0.1"}, {.rule = EASGD, .period = 4, .alpha = -0.1}},
    {"sma",
     {NULL},
     {.rule = SMA, .period = 1, .alpha = 1.0, .centre_momentum = 0.9, .restarts = true}},
    {"sma",
     {"comm.restart=0.05"}, /* less than the drop */
     {.rule = SMA, .period = 1, .alpha = 1.0, .centre_momentum = 0.9}},
    {"sma",
     {"comm.period=3", "comm.alpha=0.2", "comm.center_momentum=0.5"},
     {.rule = SMA, .period = 3, .alpha = -0.2, .centre_momentum = 0.5, .restarts = true}},
    {"sma",
     {"comm.momentum_on_center=no"},
     {.rule = SMA, .period = 1, .alpha = 1.0, .centre_momentum = 0, .restarts = true}},
};

/* Which machine each rank is on; NULL: one machine. */
struct machines {
    uint32_t n_workers, n_machines, of[MAX_RANKS];
};

static void run_beside_oracle(const struct averaging *row, bool adam, uint32_t n_workers,
                              uint32_t learners, bool pumped, bool on_device,
                              const struct machines *machines, const struct dpb_codec *codec)
{
    const struct dpb_plugin *plugin = plugin_load(DPB_PLUGIN_COMM, row->strategy, &plugin_host);
    _Alignas(16) char options[128];
    const struct dpb_option_table table = {"comm", row->strategy, plugin->options, options};
    struct dpb_config *config = dpb_config_create();
    struct oracle_args args = row->args;
    assert_true(plugin->options_size <= sizeof options);
    for (int i = 0; i < 3 && row->settings[i]; i++)
        assert_int_equal(dpb_config_assign(config, row->settings[i], "test"), DPB_OK);
    if (machines)
        assert_int_equal(dpb_config_assign(config, "comm.interface=127.0.0.1", "test"), DPB_OK);
    assert_int_equal(dpb_options_parse(&table, 1, config), DPB_OK);
    args.adam = adam;
    args.n_workers = n_workers;
    args.learners = learners;
    args.alpha = args.alpha < 0 ? -args.alpha : args.alpha / (learners > 0 ? learners : n_workers);
    args.rate = 0.01;
    args.drop_at = DROP_AT;
    args.momentum = 0.9;
    args.decay = 0.05;
    args.bucket = BUCKET;
    struct trial trial = {.strategy = row->strategy,
                          .n_workers = n_workers,
                          .options = options,
                          .oracle = &args,
                          .codec = codec,
                          .on_device = on_device,
                          .pumped = pumped,
                          .machines = machines ? machines->of : NULL,
                          .n_machines = machines ? machines->n_machines : 1};
    run_trial(&trial);
    dpb_config_destroy(config);
}

TEST(test_averaging)
{
    for (size_t i = 0; i < sizeof averaging / sizeof *averaging; i++)
        for (uint32_t n_workers = 1; n_workers <= MAX_RANKS; n_workers++)
            for (int form = 0; form < 4; form++) /* AdamW: on the host and on a device, by turns */
                run_beside_oracle(&averaging[i], form == 3, n_workers, 0,
                                  (form + n_workers) % 2 == 1,
                                  form == 2 || (form == 3 && n_workers % 2 == i % 2), NULL, NULL);
}

static void make_codec(struct dpb_codec *codec, const char *name, const char *setting,
                       void *options, size_t bytes)
{
    const struct dpb_plugin *plugin = plugin_load(DPB_PLUGIN_CODEC, name, &plugin_host);
    const struct dpb_option_table table = {"comm", name, plugin->options, options};
    struct dpb_config *config = dpb_config_create();
    assert_true(plugin->options_size <= bytes);
    if (setting)
        assert_int_equal(dpb_config_assign(config, setting, "test"), DPB_OK);
    assert_int_equal(dpb_options_parse(&table, 1, config), DPB_OK);
    *codec = (struct dpb_codec){.name = name, .ops = plugin->ops, .options = options, .seed = 1};
    dpb_config_destroy(config);
}

/* A codec of two rounds, without loss: the first element, then all less the mean of these. */

static uint64_t offset_state(const void *options, const struct dpb_codec_part *part)
{
    (void)options, (void)part;
    return 1;
}

static uint64_t offset_bytes(const void *options, const struct dpb_codec_part *part)
{
    (void)options;
    return (part->round == 0 ? 1 : part->n) * sizeof(float);
}

static uint64_t offset_bound(const void *options, uint64_t n)
{
    (void)options;
    return n * sizeof(float);
}

static uint64_t offset_encode(const void *options, const struct dpb_codec_part *part,
                              const float *gradients, float *residual, void *message)
{
    const uint64_t bytes = offset_bytes(options, part);
    const float offset = part->round == 0 ? 0 : *part->state;
    (void)residual;
    for (uint64_t i = 0; i < bytes / sizeof(float); i++)
        ((float *)message)[i] = gradients[i] - offset;
    return bytes;
}

static dpb_status offset_decode(const void *options, const struct dpb_codec_part *part,
                                const void *message, uint64_t bytes, float *sum)
{
    (void)options, (void)part;
    for (uint64_t i = 0; i < bytes / sizeof(float); i++)
        sum[i] += ((const float *)message)[i];
    return DPB_OK;
}

static void offset_finish(const void *options, const struct dpb_codec_part *part, const float *sum,
                          float *gradients, float *residual)
{
    (void)options, (void)residual;
    if (part->round == 0)
        *part->state = *sum / (float)part->n_workers;
    for (uint64_t i = 0; part->round == 1 && i < part->n; i++)
        gradients[i] = sum[i] + (float)part->n_workers * *part->state;
}

static const struct dpb_codec_ops offset_ops = {.bound = offset_bound,
                                                .encode = offset_encode,
                                                .decode = offset_decode,
                                                .state = offset_state,
                                                .bytes = offset_bytes,
                                                .finish = offset_finish};
static const struct dpb_codec_options with_feedback = {.feedback = true};
static const struct dpb_codec offset = {
    .name = "offset", .ops = &offset_ops, .options = &with_feedback};

TEST(test_late_rounds)
{
    static const struct averaging rows[] = {
        {"diloco",
         {"comm.period=3", "comm.outer_late=1"},
         {.rule = OUTER, .period = 3, .late = true}},
        {"diloco",
         {"comm.period=7", "comm.outer_late=1"},
         {.rule = OUTER, .period = 7, .late = true}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (uint32_t n_workers = 1; n_workers <= MAX_RANKS; n_workers++)
            for (int pumped = 0; pumped < 2; pumped++)
                run_beside_oracle(&rows[i], n_workers % 2 == 1, n_workers, 0, pumped == 1, false,
                                  NULL, &offset);
}

/* A rounding of fp32 may tip a number between two steps of int8: by then 1 % may differ. */
TEST(test_differences)
{
    static const struct {
        const char *name, *settings;
        struct averaging averaging;
    } rows[] = {
        {"topk",
         "comm.codec_ratio=0.1",
         {"local_sgd", {"comm.period=3"}, {.rule = LOCAL_SGD, .period = 3}}},
        {"topk",
         "comm.codec_ratio=0.3",
         {"diloco", {"comm.period=4"}, {.rule = OUTER, .period = 4}}},
        {"int8",
         NULL,
         {"diloco",
          {"comm.period=3"},
          {.rule = OUTER, .period = 3, .may_differ = STEPS * ELEMENTS / 100}}},
        {NULL,
         NULL,
         {"diloco",
          {"comm.period=3", "comm.outer_late=1"},
          {.rule = OUTER, .period = 3, .late = true}}},
        {"topk",
         "comm.codec_ratio=0.3",
         {"diloco",
          {"comm.period=2", "comm.outer_late=1"},
          {.rule = OUTER, .period = 2, .late = true}}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (uint32_t n_workers = 1; n_workers <= MAX_RANKS; n_workers++) {
            struct averaging row = rows[i].averaging;
            _Alignas(16) char options[128];
            struct dpb_codec codec;
            if (rows[i].name) {
                make_codec(&codec, rows[i].name, rows[i].settings, options, sizeof options);
                row.args.codec = &codec;
            }
            run_beside_oracle(&row, n_workers % 2 == 0, n_workers, 0, n_workers % 2 == 1, false,
                              NULL, row.args.codec);
        }
}

/* With a centre in each place. */
static const struct averaging places[] = {
    {"sma",
     {"comm.local_centers=yes"},
     {.rule = SMA, .period = 1, .alpha = 1.0, .centre_momentum = 0.9, .restarts = true}},
    {"sma",
     {"comm.local_centers=yes", "comm.period=3", "comm.alpha=0.3"},
     {.rule = SMA, .period = 3, .alpha = -0.3, .centre_momentum = 0.9, .restarts = true}},
    {"sma",
     {"comm.local_centers=yes", "comm.momentum_on_center=no", "comm.restart=0"},
     {.rule = SMA, .period = 1, .alpha = 1.0}},
};
enum { PLACES = sizeof places / sizeof *places };

/* Of 1 or 2 learners. */
TEST(test_places)
{
    static const uint32_t worlds[][2] = {{2, 1}, {4, 2}, {5, 1}};
    for (size_t i = 0; i < PLACES; i++)
        for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++)
            for (int form = 0; form < 3; form++)
                run_beside_oracle(&places[i], form == 1, worlds[w][0], worlds[w][1],
                                  (form + w) % 2 == 1, form == 2, NULL, NULL);
}

/* Means of a machine first; machines of different sizes; partners here and there. Rules take turns
 * with the worlds; with DPB_ALL_CELLS each has all. */
TEST(test_averaging_on_machines)
{
    static const struct machines worlds[] = {
        {2, 2, {0, 1}},       {3, 2, {0, 1, 0}},       {3, 3, {0, 1, 2}},
        {4, 2, {0, 0, 1, 1}}, {5, 2, {0, 0, 1, 1, 1}}, {5, 3, {0, 1, 0, 2, 1}},
    };
    const size_t n = sizeof worlds / sizeof *worlds;
    for (size_t i = 0; i < sizeof averaging / sizeof *averaging; i++)
        for (size_t w = i % 2; w < n; w += getenv("DPB_ALL_CELLS") ? 1 : 2)
            run_beside_oracle(&averaging[i], (i + w) % 3 == 0, worlds[w].n_workers, 0,
                              (i + w / 2) % 2 == 1, false, &worlds[w], NULL);
}

TEST(test_places_on_machines)
{
    static const struct machines pairs = {4, 2, {0, 0, 1, 1}}, mixed = {5, 3, {0, 1, 0, 2, 1}};
    for (size_t i = 0; i < PLACES; i++) {
        run_beside_oracle(&places[i], i == 1, 4, 2, i % 2 == 1, false, &pairs, NULL);
        run_beside_oracle(&places[i], i == 2, 5, 1, i % 2 == 0, false, &mixed, NULL);
    }
}

TEST_MAIN(NULL, NULL)
