/* comm_test.c - the ranks of `dpbench comm`: see comm_test.h. */
#include "bench/comm_test.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/vec.h"
#include "exchange/access.h"
#include "exchange/open.h"
#include "exchange/pump.h"
#include "exchange/step.h"
#include "loop/control.h"
#include "loop/engine.h"
#include "plan/binding.h"
#include "plan/host.h"
#include "proof/pattern.h"
#include "world/job_load.h"
#include "world/store.h"

struct comm_test {
    struct dpb_binding binding;
    struct dpb_engine engine; /* zeroed where the strategy needs none */
    struct dpb_exchange exchange;
    struct dpb_control control;
    uint64_t step; /* repetitions, over all points */
    struct dpb_comm_journal *journal;
    struct dpb_comm_point points[DPB_COMM_POINTS];
    uint32_t n_points, point;
    struct dpb_pattern_sum pattern; /* of the exchange under way */
    bool spoilt; /* an exchange leaves neither sums nor the input in the gradients */

    struct dpb_shared flags; /* where the workers meet; flags.of[rank] */
    uint32_t meeting;

    bool stopping; /* rank 0 has proposed to end this point */
    bool interrupted;
    int64_t timed_from_ns; /* rank 0 */
};

/* ---- the workers among themselves ----------------------------------------------------------- */

static uint32_t n_workers_of(const struct comm_test *test)
{
    return test->exchange.experiment->n_workers;
}

/* The sum of a number over the workers. For setting up. */
static dpb_status sum_up(const struct comm_test *test, const char *what, uint64_t mine,
                         uint64_t *sum)
{
    uint64_t all[DPB_JOB_RANKS];
    DPB_TRY(dpb_store_gather(what, &mine, sizeof mine, n_workers_of(test), all));
    *sum = 0;
    for (uint32_t rank = 0; rank < n_workers_of(test); rank++)
        *sum += all[rank];
    return DPB_OK;
}

static struct dpb_flag *flag_of(const struct comm_test *test, uint32_t rank)
{
    return test->flags.of[rank].memory;
}

static dpb_status meet_once(struct comm_test *test)
{
    uint32_t round = ++test->meeting;
    dpb_flags.set(flag_of(test, dpb_world.rank), round);
    for (uint32_t rank = 0; rank < n_workers_of(test); rank++) {
        struct dpb_flag *flag = flag_of(test, rank);
        const struct dpb_wait wait = {.step = test->step,
                                      .bucket = UINT64_MAX,
                                      .peer = rank,
                                      .purpose = "the peer's next exchange"};
        if (dpb_flags.reached(flag, round))
            continue;
        dpb_world_note("wait_peer", UINT64_MAX, rank);
        DPB_TRY(dpb_flags.wait(flag, round, &wait));
    }
    return DPB_OK;
}

/* A worker with a long wait sleeps and wakes up late; after the second meeting all are together. */
static dpb_status meet(struct comm_test *test)
{
    DPB_TRY(meet_once(test));
    return meet_once(test);
}

/* ---- one exchange --------------------------------------------------------------------------- */

static dpb_status exchange_once(struct comm_test *test, struct dpb_comm_sample *sample)
{
    struct dpb_exchange *exchange = &test->exchange;
    /* By the number that the strategy calls it, too: it begins anew with every size. */
    dpb_world_begin_step(exchange->n_begun);
    sample->begin_ns = dpb_now_ns();
    DPB_TRY(dpb_exchange_begin(exchange, 1.0, 1.0 / n_workers_of(test), true));
    DPB_TRY(dpb_exchange_ready(exchange, exchange->layout.n_elements, NULL));
    DPB_TRY(dpb_exchange_finish(exchange));
    sample->end_ns = dpb_now_ns();
    return DPB_OK;
}

static void name_point(const struct comm_test *test, char *text, size_t size)
{
    const struct dpb_comm_point *point = &test->points[test->point];
    if (point->model)
        snprintf(text, size, "the layout of model '%s'",
                 test->exchange.experiment->settings.model.name);
    else
        snprintf(text, size, "%llu bytes", (unsigned long long)point->bytes);
}

/* ---- what an exchange must leave ------------------------------------------------------------ */

static dpb_collective operation_of(const struct comm_test *test)
{
    return (dpb_collective)test->exchange.experiment->settings.comm_test.operation;
}

/* Slice q of the n elements of a bucket that begins at `begin` (collectives.h). */
static struct dpb_range slice_of(const struct comm_test *test, uint64_t begin, uint64_t n,
                                 uint32_t q)
{
    const uint64_t length = n / n_workers_of(test);
    return (struct dpb_range){begin + q * length, begin + (q + 1) * length};
}

/* Adds the wrong elements of a part that lies at element `place` of the result. `first` names the
 * element of the pattern. */
static void add_wrong(const struct comm_test *test, dpb_dtype type, const void *result,
                      uint64_t place, const struct dpb_pattern_part *part, uint64_t *n_wrong,
                      struct dpb_pattern_wrong *first)
{
    struct dpb_pattern_wrong one;
    const char *at = (const char *)result + place * dpb_dtype_size(type);
    const uint64_t n = dpb_pattern_check_part(type, at, part, &test->pattern, &one);
    if (n > 0 && *n_wrong == 0)
        *first = one;
    *n_wrong += n;
}

/* A bucket after an operation that has slices. */
static void check_bucket(const struct comm_test *test, dpb_dtype type, const void *result,
                         uint64_t begin, uint64_t n, uint64_t *n_wrong,
                         struct dpb_pattern_wrong *first)
{
    const dpb_collective operation = operation_of(test);
    const struct dpb_range own = slice_of(test, begin, n, dpb_world.rank);
    for (uint32_t q = 0; q < n_workers_of(test); q++) {
        const struct dpb_range slice = slice_of(test, begin, n, q);
        struct dpb_pattern_part part = {slice.begin, slice.end, q, 1};
        if (operation == DPB_REDUCE_SCATTER && q != dpb_world.rank)
            continue;
        if (operation == DPB_REDUCE_SCATTER)
            part = (struct dpb_pattern_part){own.begin, own.end, 0, n_workers_of(test)};
        if (operation == DPB_BROADCAST)
            part.first_rank = 0;
        if (operation == DPB_ALL_TO_ALL)
            part = (struct dpb_pattern_part){own.begin, own.end, q, 1};
        add_wrong(test, type, result, slice.begin, &part, n_wrong, first);
    }
}

static uint64_t check_result(const struct comm_test *test, dpb_dtype type, const void *result,
                             struct dpb_pattern_wrong *first)
{
    const uint64_t n = test->exchange.layout.n_elements;
    const uint64_t bucket = test->exchange.arenas.bucket_elements;
    uint64_t n_wrong = 0;
    if (operation_of(test) == DPB_ALL_REDUCE)
        return dpb_pattern_check(type, result, n, &test->pattern, first);
    for (uint64_t begin = 0; begin < n; begin += bucket)
        check_bucket(test, type, result, begin, n - begin < bucket ? n - begin : bucket, &n_wrong,
                     first);
    return n_wrong;
}

/* Every element of this worker's result; the first wrong one of all is the message. */
static dpb_status check(struct comm_test *test)
{
    struct dpb_exchange *exchange = &test->exchange;
    struct dpb_comm_record *record = &test->journal->records[test->point];
    struct dpb_pattern_wrong first = {0};
    char what[128], name[DPB_ELEMENT_NAME];
    const void *sums;
    dpb_dtype type =
        record->in_place ? exchange->layout.gradient_type : exchange->layout.weight_type;
    dpb_world_note("check", UINT64_MAX, UINT32_MAX);
    DPB_TRY(dpb_arena_look(exchange,
                           record->in_place ? exchange->arenas.gradients : exchange->arenas.weights,
                           dpb_arena_bytes(exchange, type), &sums));
    uint64_t n_wrong = check_result(test, type, sums, &first);
    record->n_exchanges++;
    if (n_wrong > 0 && record->n_wrong == 0) {
        name_point(test, what, sizeof what);
        dpb_fail(DPB_VERIFICATION,
                 "comm '%s', %s, exchange %llu: %s is %.9g on rank %u, "
                 "wanted %.9g; the strategy does not compute the %s",
                 exchange->experiment->settings.comm.name, what,
                 (unsigned long long)exchange->n_begun - 1,
                 dpb_element_name(exchange, first.element, name), first.got, dpb_world.rank,
                 first.wanted,
                 operation_of(test) == DPB_ALL_REDUCE ? "sum"
                                                      : dpb_collective_names[operation_of(test)]);
    }
    record->n_wrong += n_wrong;
    return DPB_OK;
}

static dpb_status fill(struct comm_test *test)
{
    struct dpb_exchange *exchange = &test->exchange;
    dpb_dtype type = exchange->layout.gradient_type;
    void *gradients;
    dpb_world_note("fill", UINT64_MAX, UINT32_MAX);
    test->pattern.repetition++;
    DPB_TRY(dpb_arena_edit(exchange, exchange->arenas.gradients, &gradients));
    dpb_pattern_fill(type, gradients, 0, exchange->layout.n_elements, dpb_world.rank,
                     &test->pattern);
    return dpb_arena_commit(exchange, exchange->arenas.gradients, dpb_arena_bytes(exchange, type));
}

static dpb_status checksum_of_gradients(struct dpb_exchange *exchange, uint64_t *checksum)
{
    return dpb_arena_checksum(exchange, exchange->arenas.gradients, exchange->layout.gradient_type,
                              checksum);
}

/* Across machines no flag is seen, so the workers meet in an exchange of the strategy; in place,
 * the timed exchange then sums up sums that all have. Where sums come as weights, an exchange may
 * leave anything in the gradients. */
static dpb_status repeat(struct comm_test *test, struct dpb_comm_sample *sample)
{
    const struct dpb_comm_journal *journal = test->journal;
    bool chained = !journal->by_memory && journal->records[test->point].in_place &&
                   operation_of(test) == DPB_ALL_REDUCE;
    DPB_TRY(fill(test));
    test->pattern.factor = chained ? n_workers_of(test) : 1.0;
    DPB_TRY(journal->by_memory ? meet(test) : exchange_once(test, sample));
    if (test->spoilt && !journal->by_memory)
        DPB_TRY(fill(test));
    DPB_TRY(exchange_once(test, sample));
    return check(test);
}

/* The first exchange shows where the sums are: in place only if all of them are, on all workers. */
static dpb_status settle_place(struct comm_test *test)
{
    struct dpb_comm_record *record = &test->journal->records[test->point];
    struct dpb_comm_sample untimed;
    uint64_t n_in_place, n_spoilt, before, after;
    DPB_TRY(fill(test));
    test->pattern.factor = 1.0;
    if (operation_of(test) != DPB_ALL_REDUCE) {
        record->in_place = operation_of(test) != DPB_ALL_TO_ALL;
        test->spoilt = true;
        DPB_TRY(exchange_once(test, &untimed));
        return check(test);
    }
    DPB_TRY(checksum_of_gradients(&test->exchange, &before));
    DPB_TRY(exchange_once(test, &untimed));
    DPB_TRY(checksum_of_gradients(&test->exchange, &after));
    DPB_TRY(check(test));
    bool all = dpb_reduced.n_in_place == test->exchange.layout.n_elements;
    DPB_TRY(sum_up(test, "in_place", all, &n_in_place));
    record->in_place = dpb_reduced.in_place = n_in_place == n_workers_of(test);
    DPB_TRY(sum_up(test, "spoilt", before != after, &n_spoilt));
    test->spoilt = !record->in_place && n_spoilt > 0;
    return DPB_OK;
}

/* ---- one point ------------------------------------------------------------------------------ */

/* Rank 0: whether this point has had its time. */
static void watch(struct comm_test *test)
{
    struct dpb_exchange *exchange = &test->exchange;
    const struct dpb_comm_record *record = &test->journal->records[test->point];
    uint32_t actions = 0;
    if (test->control.rank != 0 || test->stopping)
        return;
    if (record->n_samples == 1)
        test->timed_from_ns = dpb_now_ns();
    bool over =
        record->n_samples >= DPB_COMM_LEAST &&
        dpb_now_ns() - test->timed_from_ns >= exchange->experiment->settings.comm_test.seconds_ns;
    if (!exchange->experiment->settings.comm_test.iterations &&
        (over || record->n_samples + 8 >= test->journal->capacity))
        actions = DPB_ACTION_STOP;
    if (dpb_board_interrupted(dpb_world.board))
        actions = DPB_ACTION_STOP | DPB_ACTION_INTERRUPTED;
    if (actions)
        dpb_control_propose(&test->control, actions);
    test->stopping = actions != 0;
}

static dpb_status measure(struct comm_test *test)
{
    struct dpb_exchange *exchange = &test->exchange;
    struct dpb_comm_journal *journal = test->journal;
    struct dpb_comm_record *record = &journal->records[test->point];
    struct dpb_comm_sample *samples = journal->samples + test->point * journal->capacity;
    uint64_t warm = (uint64_t)exchange->experiment->settings.comm_test.warmup_iterations;
    uint64_t most = (uint64_t)exchange->experiment->settings.comm_test.iterations;
    for (uint64_t n = 0;; n++, test->step++) {
        struct dpb_comm_sample sample;
        uint32_t actions;
        DPB_TRY(dpb_control_look(&test->control, test->step, &actions));
        test->interrupted = actions & DPB_ACTION_INTERRUPTED;
        if ((actions & DPB_ACTION_STOP) || (most && n == warm + most))
            return DPB_OK;
        DPB_TRY(repeat(test, &sample));
        if (n >= warm && record->n_samples < journal->capacity) {
            samples[record->n_samples] = sample;
            __atomic_store_n(&record->n_samples, record->n_samples + 1, __ATOMIC_RELEASE);
        }
        watch(test);
    }
}

/* From the communicator's opening on. Either the sums of all workers are right; or a worker with
 * wrong sums fails for that, and the others fail as its victims. */
static dpb_status work(struct comm_test *test)
{
    struct dpb_exchange *exchange = &test->exchange;
    struct dpb_comm_record *record = &test->journal->records[test->point];
    uint64_t n_wrong;
    record->n_buckets = exchange->arenas.n_buckets;
    test->stopping = false;
    DPB_TRY(exchange->ops->load(exchange->comm));
    DPB_TRY(settle_place(test));
    DPB_TRY(measure(test));
    DPB_TRY(sum_up(test, "wrong", record->n_wrong, &n_wrong));
    if (record->n_wrong > 0)
        return DPB_VERIFICATION;
    return n_wrong == 0 ? DPB_OK : dpb_fail(DPB_PEER, "another rank found wrong sums");
}

/* Rank 0 says whether another point follows; servers know it by this alone. */
static dpb_status goes_on(const struct comm_test *test, bool *more)
{
    uint8_t answer = test->point + 1 < test->n_points && !test->interrupted;
    DPB_TRY(dpb_store_barrier("end", 0)); /* nobody uses the arenas any more */
    DPB_TRY(dpb_store_from_0("more", &answer, sizeof answer));
    *more = answer != 0;
    return DPB_OK;
}

static dpb_status run_point(struct comm_test *test, bool *more)
{
    struct dpb_exchange *exchange = &test->exchange;
    const struct dpb_comm_point *point = &test->points[test->point];
    struct dpb_graph bare = {.name = "bytes alone", .n_elements = point->n_elements};
    char scope[16];
    snprintf(scope, sizeof scope, "point %u", test->point);
    dpb_store_scope(scope);
    exchange->n_begun = exchange->staging.next_bucket = 0;
    DPB_TRY(dpb_exchange_open(exchange, point->model ? exchange->experiment->graph : &bare));
    dpb_reduced =
        (struct dpb_reduced){.arenas = &exchange->arenas, .ops = exchange->memory.place->ops};
    if (dpb_world.role == DPB_WORKER)
        DPB_TRY(dpb_pump_start(exchange));
    if (dpb_world.role == DPB_SERVER)
        dpb_world_note("serve", UINT64_MAX, UINT32_MAX);
    DPB_TRY(dpb_store_barrier("bound", 0));
    DPB_TRY(dpb_world.role == DPB_SERVER ? exchange->ops->serve(exchange->comm) : work(test));
    dpb_world_note("close", UINT64_MAX, UINT32_MAX);
    dpb_exchange_leave(exchange);
    DPB_TRY(goes_on(test, more));
    exchange->memory.all_let_go = true;
    dpb_exchange_close(exchange);
    dpb_store_scope("");
    return DPB_OK;
}

dpb_status dpb_comm_largest(const struct dpb_experiment *experiment, bool by_memory,
                            uint32_t *largest)
{
    uint64_t n = experiment->n_workers, terms = by_memory ? n : n * n;
    *largest = dpb_pattern_largest(experiment->gradient_type, terms);
    if (*largest == 0)
        return dpb_fail(
            DPB_UNSUPPORTED,
            "comm.gradient = %s: sums of %u workers are not exact in it, so they cannot "
            "be checked; take fp32",
            dpb_dtype_name(experiment->gradient_type), experiment->n_workers);
    return DPB_OK;
}

/* ---- the rank ------------------------------------------------------------------------------- */

/* The flags of all workers, if all of them can be seen here. */
static dpb_status share_flags(struct comm_test *test)
{
    const struct dpb_experiment *experiment = test->exchange.experiment;
    bool worker = dpb_world.role == DPB_WORKER, seen = true;
    const struct dpb_offer mine = {.name = "meeting",
                                   .bytes = worker ? sizeof(struct dpb_flag) : 0};
    DPB_TRY(dpb_world_share("meeting", &mine, 1, &test->flags));
    for (uint32_t rank = 0; rank < experiment->n_workers; rank++)
        seen = seen && test->flags.of[rank].memory;
    if (!seen && experiment->settings.comm_test.barrier == DPB_BARRIER_MEMORY)
        return dpb_fail(DPB_UNSUPPORTED,
                        "comm_test.barrier = memory: the workers are on several machines; leave it "
                        "out");
    test->journal->by_memory =
        seen && experiment->settings.comm_test.barrier != DPB_BARRIER_EXCHANGE;
    return DPB_OK;
}

static dpb_status open_test(struct dpb_experiment *experiment, struct comm_test *test)
{
    size_t bytes;
    DPB_TRY(dpb_bind(experiment, &test->binding));
    dpb_world_note("open", UINT64_MAX, UINT32_MAX);
    DPB_TRY(dpb_experiment_build(experiment, dpb_world.rank));
    DPB_TRY(dpb_comm_points(experiment, test->points, &test->n_points));
    DPB_TRY(dpb_bind_memory(experiment));
    test->journal = dpb_board_journal(dpb_world.board, dpb_world.rank, &bytes);
    test->journal->capacity =
        (bytes - sizeof *test->journal) / (DPB_COMM_POINTS * sizeof(struct dpb_comm_sample));
    test->journal->oversubscribed = test->binding.oversubscribed;
    test->journal->threads = test->binding.threads;
    DPB_TRY(share_flags(test));
    test->journal->opened = true;
    if (dpb_world.role == DPB_SERVER)
        return DPB_OK;
    if (experiment->comm_needs.runtime)
        DPB_TRY(dpb_engine_open(experiment, test->binding.threads, &test->engine,
                                &test->exchange.memory.device));
    dpb_control_join(&test->control, experiment->n_workers, false, 0);
    test->pattern.n_ranks = experiment->n_workers;
    return dpb_comm_largest(experiment, test->journal->by_memory, &test->pattern.largest);
}

static void close_test(struct comm_test *test)
{
    dpb_exchange_close(&test->exchange);
    dpb_engine_close(&test->engine);
    dpb_shared_destroy(&test->flags);
}

static dpb_status run_points(struct comm_test *test)
{
    bool more = true;
    if (dpb_world.rank == 0)
        dpb_load_begin(test->binding.n_cores);
    for (; more; test->point++)
        DPB_TRY(run_point(test, &more));
    if (dpb_world.rank == 0)
        dpb_load_end(&test->journal->load);
    return DPB_OK;
}

dpb_status dpb_comm_test_run(struct dpb_experiment *experiment)
{
    struct comm_test *test = calloc(1, sizeof *test);
    DPB_TRY(dpb_allocated(test));
    dpb_world.timeout_ns = experiment->settings.run.timeout_ns;
    dpb_exchange_init(&test->exchange, experiment);
    dpb_status status = open_test(experiment, test);
    DPB_THEN(status, run_points(test));
    if (status == DPB_OK) { /* else the page keeps where it failed */
        dpb_world_note("teardown", UINT64_MAX, UINT32_MAX);
        status = dpb_store_barrier("end", 0);
        if (status == DPB_OK && test->interrupted)
            status = DPB_INTERRUPTED;
    }
    close_test(test);
    free(test);
    return status;
}
