/*
 * feed.c - see feed.h.
 *
 * Batches are numbered. Slot i of the ring holds, one after the other, the batches of number
 * i modulo n_slots. Three numbers describe it all, and only rise:
 *
 *     released <= next <= claimed <= released + n_slots, claimed <= end
 *
 * Those below `released` are over, below `next` handed out, below `claimed` filled or being filled.
 */
#include "feed/feed.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/deadline.h"
#include "base/log.h"
#include "base/threads.h"
#include "measure/trace.h"
#include "world/world.h"

/* How soon a wait sees that the job has ended. */
enum { LOOK_NS = 100 * 1000 * 1000, SECOND_NS = 1000 * 1000 * 1000 };

struct slot {
    uint64_t *indices;
    int32_t *labels;
    void *samples; /* of a pool: their numbers */
    bool filled;
    dpb_status status; /* of the fetch */
    uint32_t valid;
    struct dpb_place place;
};

struct helper {
    struct dpb_feed *feed;
    uint32_t index;
    pthread_t thread;
};

struct dpb_feed {
    struct dpb_feed_args args;
    bool evaluates;
    struct dpb_shards shards; /* training */
    struct dpb_order order;   /* training */
    uint32_t dealt_to;        /* training: ranks that have samples of their own; else 1 */
    struct dpb_range share;   /* evaluation */
    uint64_t pass_begin;      /* evaluation: number of the pass's first batch */

    void *ring;
    uint64_t ring_bytes;
    struct slot *slots;
    struct helper *helpers;
    uint32_t n_slots, n_helpers; /* n_helpers: those that were started */

    pthread_mutex_t lock; /* of all below, and of `filled` and `status` of the slots */
    pthread_cond_t room;  /* a helper may claim a batch, or shall end */
    pthread_cond_t ready; /* batch `next` is filled */
    uint64_t released, next, claimed;
    uint64_t end; /* evaluation: of the pass; training: never */
    bool failed, stop;
};

/* ---- memory -------------------------------------------------------------------------------- */

static uint32_t slots_of(const struct dpb_feed_args *args)
{
    /* One is in use, each helper fills one, and one waits ready. */
    return args->threads ? args->threads + 2 : 1;
}

/* Bytes of one slot: samples, indices, labels, each rounded up to whole cache lines. False: more
 * than there are numbers for. */
static bool slot_layout(const struct dpb_feed_args *args, uint64_t part[3], uint64_t *ring_bytes)
{
    uint64_t unit[3] = {dpb_sample_bytes(&args->info.format), sizeof(uint64_t),
                        dpb_sample_labels(&args->info.format) * sizeof(int32_t)};
    if (args->pool.samples)
        unit[0] = sizeof(uint32_t);
    uint64_t sum = 0;
    for (int i = 0; i < 3; i++) {
        if (__builtin_mul_overflow(unit[i], (uint64_t)args->batch, &part[i]) ||
            __builtin_add_overflow(part[i], (uint64_t)DPB_CACHE_LINE - 1, &part[i]))
            return false;
        part[i] -= part[i] % DPB_CACHE_LINE;
        if (__builtin_add_overflow(sum, part[i], &sum))
            return false;
    }
    return !__builtin_mul_overflow(sum, (uint64_t)slots_of(args), ring_bytes);
}

static dpb_status create_ring(struct dpb_feed *feed)
{
    uint64_t part[3];
    if (!slot_layout(&feed->args, part, &feed->ring_bytes) || feed->ring_bytes > SIZE_MAX)
        return dpb_fail(DPB_USAGE,
                        "batches of %" PRIu32 " samples of %zu bytes are too large to stage: make "
                        "run.batch smaller",
                        feed->args.batch, dpb_sample_bytes(&feed->args.info.format));
    feed->ring = dpb_alloc(feed->ring_bytes);
    feed->slots = dpb_alloc(feed->n_slots * sizeof *feed->slots);
    if (!feed->ring || !feed->slots)
        return DPB_NO_MEMORY;
    char *memory = feed->ring;
    for (uint32_t i = 0; i < feed->n_slots; i++) {
        struct slot *slot = &feed->slots[i];
        slot->samples = memory;
        slot->indices = (void *)(memory + part[0]);
        slot->labels = (void *)(memory + part[0] + part[1]);
        memory += part[0] + part[1] + part[2];
    }
    return DPB_OK;
}

/* ---- filling ------------------------------------------------------------------------------- */

/* Which samples batch `number` is made of. */
static void choose(const struct dpb_feed *feed, uint64_t number, struct slot *slot)
{
    uint32_t batch = feed->args.batch;
    if (!feed->evaluates) {
        slot->place = dpb_shards_place(&feed->shards, feed->args.rank, number);
        slot->valid = batch;
        for (uint32_t i = 0; i < batch; i++)
            slot->indices[i] =
                dpb_order_at(&feed->order, slot->place.epoch, slot->place.position + i);
        return;
    }
    uint64_t first = feed->share.begin + (number - feed->pass_begin) * batch;
    uint64_t left = feed->share.end - first;
    slot->place = (struct dpb_place){.position = first};
    slot->valid = left < batch ? (uint32_t)left : batch;
    for (uint32_t i = 0; i < slot->valid; i++)
        slot->indices[i] = first + i;
}

/* The samples, or which of the pool they are; and their labels. */
static dpb_status get_samples(const struct dpb_feed *feed, struct slot *slot)
{
    const struct dpb_feed_args *args = &feed->args;
    const uint32_t each = dpb_sample_labels(&args->info.format);
    uint32_t *numbers = slot->samples;
    if (!args->pool.samples)
        return args->ops->fetch(args->source, args->split, slot->place.epoch, slot->indices,
                                slot->valid, slot->samples, slot->labels);
    for (uint32_t i = 0; i < slot->valid; i++) {
        numbers[i] = (uint32_t)(slot->indices[i] % args->pool.n);
        memcpy(slot->labels + (size_t)i * each, args->pool.labels + (size_t)numbers[i] * each,
               each * sizeof *slot->labels);
    }
    return DPB_OK;
}

/* A device uses labels and ids as indices. Negative ones are large here. */
static dpb_status check_numbers(const struct dpb_feed *feed, uint64_t index, const int32_t *numbers,
                                uint64_t n, const char *what)
{
    const struct dpb_feed_args *args = &feed->args;
    for (uint64_t i = 0; i < n; i++)
        if ((uint32_t)numbers[i] >= args->info.nclass)
            return dpb_fail(DPB_DATA,
                            "data '%s': sample %" PRIu64 " has %s %" PRId32
                            ", but the classes are 0 to %" PRIu32,
                            args->name, index, what, numbers[i], args->info.nclass - 1);
    return DPB_OK;
}

/* The ids of sample `i` of the slot; NULL: the samples are images. */
static const int32_t *ids_of(const struct dpb_feed *feed, const struct slot *slot, uint32_t i)
{
    const struct dpb_feed_args *args = &feed->args;
    const uint64_t n = dpb_shape_elements(args->info.format.shape);
    if (args->info.format.type != DPB_INT32)
        return NULL;
    return args->pool.samples
               ? (const int32_t *)args->pool.samples + n * ((const uint32_t *)slot->samples)[i]
               : (const int32_t *)slot->samples + n * i;
}

/* What is not valid may be computed, too: it gets the labels and the ids of class 0. */
static void clear_rest(const struct dpb_feed *feed, const struct slot *slot)
{
    const struct dpb_feed_args *args = &feed->args;
    const size_t n = args->batch - slot->valid, bytes = dpb_sample_bytes(&args->info.format);
    const uint32_t each = dpb_sample_labels(&args->info.format);
    memset(slot->labels + (size_t)slot->valid * each, 0, n * each * sizeof *slot->labels);
    if (args->info.format.type == DPB_INT32 && !args->pool.samples)
        memset((char *)slot->samples + slot->valid * bytes, 0, n * bytes);
}

/* Without the lock: the slot is this thread's until it is said to be filled. */
static dpb_status fill(const struct dpb_feed *feed, uint64_t number, struct slot *slot)
{
    const struct dpb_feed_args *args = &feed->args;
    const uint32_t each = dpb_sample_labels(&args->info.format);
    choose(feed, number, slot);
    DPB_TRY(get_samples(feed, slot));
    for (uint32_t i = 0; i < slot->valid; i++) {
        const int32_t *ids = ids_of(feed, slot, i), *labels = slot->labels + (size_t)i * each;
        DPB_TRY(check_numbers(feed, slot->indices[i], labels, each, "label"));
        if (ids)
            DPB_TRY(check_numbers(feed, slot->indices[i], ids,
                                  dpb_shape_elements(args->info.format.shape), "id"));
    }
    clear_rest(feed, slot);
    return DPB_OK;
}

static struct slot *slot_of(const struct dpb_feed *feed, uint64_t number)
{
    return &feed->slots[number % feed->n_slots];
}

/* With the lock. After a failure nothing more is begun. */
static void put_filled(struct dpb_feed *feed, uint64_t number, dpb_status status)
{
    struct slot *slot = slot_of(feed, number);
    slot->status = status;
    slot->filled = true;
    if (status != DPB_OK)
        feed->failed = true;
    if (number == feed->next)
        pthread_cond_signal(&feed->ready);
}

static bool may_claim(const struct dpb_feed *feed)
{
    return !feed->failed && feed->claimed < feed->end &&
           feed->claimed < feed->released + feed->n_slots;
}

static void *help(void *argument)
{
    struct helper *helper = argument;
    struct dpb_feed *feed = helper->feed;
    char name[16]; /* the kernel's limit */
    snprintf(name, sizeof name, "dpb-feed%" PRIu32, helper->index);
    pthread_setname_np(pthread_self(), name);
    dpb_thread_enter();

    pthread_mutex_lock(&feed->lock);
    for (;;) {
        while (!feed->stop && !may_claim(feed))
            pthread_cond_wait(&feed->room, &feed->lock);
        if (feed->stop)
            break;
        uint64_t number = feed->claimed++;
        pthread_mutex_unlock(&feed->lock);
        const int64_t begun_ns = dpb_trace_begin();
        dpb_status status = fill(feed, number, slot_of(feed, number));
        dpb_trace_end(feed->evaluates ? DPB_TRACE_LOAD_TEST : DPB_TRACE_LOAD, helper->index, number,
                      begun_ns);
        pthread_mutex_lock(&feed->lock);
        put_filled(feed, number, status);
    }
    pthread_mutex_unlock(&feed->lock);
    dpb_thread_leave();
    return NULL;
}

static dpb_status start_helpers(struct dpb_feed *feed)
{
    feed->helpers = dpb_alloc(feed->args.threads * sizeof *feed->helpers);
    if (!feed->helpers)
        return DPB_NO_MEMORY;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before); /* signals are the main thread's */
    int error = 0;
    while (feed->n_helpers < feed->args.threads) {
        struct helper *helper = &feed->helpers[feed->n_helpers];
        *helper = (struct helper){.feed = feed, .index = feed->n_helpers};
        error = pthread_create(&helper->thread, NULL, help, helper);
        if (error)
            break;
        feed->n_helpers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return dpb_fail(DPB_FAILED, "cannot start %" PRIu32 " threads for data (data.threads): %s",
                        feed->args.threads, strerror(error));
    return DPB_OK;
}

/* ---- handing out --------------------------------------------------------------------------- */

static dpb_status report_late(const struct dpb_feed *feed)
{
    const struct dpb_feed_args *args = &feed->args;
    char where[80] = "evaluation";
    uint64_t position = feed->share.begin + (feed->next - feed->pass_begin) * args->batch;
    if (!feed->evaluates) {
        struct dpb_place place = dpb_shards_place(&feed->shards, args->rank, feed->next);
        snprintf(where, sizeof where, "step %" PRIu64 ", micro-batch %" PRIu32 ", epoch %" PRIu64,
                 place.step, place.micro, place.epoch);
        position = place.position;
    }
    return dpb_fail(DPB_TIMEOUT,
                    "%s: the batch from position %" PRIu64 " of data '%s' did not come within %g s "
                    "from %" PRIu32 " threads: is the source stuck? If it is only slow, raise "
                    "data.threads or run.timeout_s",
                    where, position, args->name, (double)args->timeout_ns * 1e-9, args->threads);
}

/* With the lock: sleeps until batch `next` is filled. */
static dpb_status wait_filled(struct dpb_feed *feed, const struct slot *slot)
{
    int64_t timeout_ns = feed->args.timeout_ns, begin_ns = dpb_ran_ns();
    while (!slot->filled) {
        if (feed->args.board && dpb_board_job_ended(feed->args.board))
            return dpb_fail(DPB_PEER, "the job ended while this rank waited for data '%s'",
                            feed->args.name);
        int64_t now_ns = dpb_now_ns(), look_ns = now_ns + LOOK_NS;
        if (timeout_ns != DPB_FOREVER) {
            int64_t left_ns = timeout_ns - (dpb_ran_ns() - begin_ns);
            if (left_ns <= 0)
                return report_late(feed);
            if (left_ns < LOOK_NS)
                look_ns = now_ns + left_ns;
        }
        struct timespec until = {.tv_sec = look_ns / SECOND_NS, .tv_nsec = look_ns % SECOND_NS};
        pthread_cond_clockwait(&feed->ready, &feed->lock, CLOCK_MONOTONIC, &until);
    }
    return DPB_OK;
}

/* With the lock: the batch handed out last goes back to the helpers. */
static void release_last(struct dpb_feed *feed)
{
    if (feed->released == feed->next)
        return;
    slot_of(feed, feed->released)->filled = false;
    feed->released++;
    pthread_cond_signal(&feed->room);
}

/* With the lock: batch `next` gets into its slot, by the helpers or here. */
static dpb_status make_ready(struct dpb_feed *feed, struct slot *slot)
{
    if (feed->n_helpers == 0 && !slot->filled) {
        feed->claimed = feed->next + 1;
        put_filled(feed, feed->next, fill(feed, feed->next, slot));
    }
    DPB_TRY(wait_filled(feed, slot));
    return slot->status;
}

dpb_status dpb_feed_next(struct dpb_feed *feed, struct dpb_feed_batch *batch)
{
    pthread_mutex_lock(&feed->lock);
    release_last(feed);
    bool over = feed->next == feed->end;
    struct slot *slot = slot_of(feed, feed->next);
    dpb_status status = over ? DPB_OK : make_ready(feed, slot);
    if (status == DPB_OK) {
        const bool pool = feed->args.pool.samples != NULL;
        *batch = (struct dpb_feed_batch){.batch = {.format = &feed->args.info.format,
                                                   .samples = pool ? NULL : slot->samples,
                                                   .labels = slot->labels,
                                                   .n = feed->args.batch,
                                                   .numbers = pool ? slot->samples : NULL},
                                         .valid = over ? 0 : slot->valid,
                                         .place = slot->place};
        feed->next += over ? 0 : 1;
    }
    pthread_mutex_unlock(&feed->lock);
    return status;
}

void dpb_feed_eval_begin(struct dpb_feed *feed, uint32_t index, uint32_t n)
{
    const struct dpb_feed_args *args = &feed->args;
    assert(feed->evaluates);
    pthread_mutex_lock(&feed->lock);
    assert(feed->next == feed->end);
    release_last(feed);
    feed->share = dpb_shards_evaluate(args->info.n_samples[args->split], index, n);
    const uint64_t samples = feed->share.end - feed->share.begin, batch = args->batch;
    feed->pass_begin = feed->end;
    feed->end += samples / batch + (samples % batch != 0);
    pthread_cond_broadcast(&feed->room);
    pthread_mutex_unlock(&feed->lock);
}

const struct dpb_shards *dpb_feed_shards(const struct dpb_feed *feed)
{
    assert(!feed->evaluates);
    return &feed->shards;
}

struct dpb_progress dpb_feed_progress(const struct dpb_feed *feed, uint64_t step)
{
    assert(!feed->evaluates);
    struct dpb_progress progress = dpb_shards_progress(&feed->shards, step);
    uint64_t own = progress.samples - feed->shards.start.samples;
    progress.samples += own * (feed->dealt_to - 1);
    progress.position *= feed->dealt_to;
    return progress;
}

/* ---- create and destroy -------------------------------------------------------------------- */

/* Takes over `prepared`, a feed without memory of its own. */
static dpb_status create(const struct dpb_feed *prepared, struct dpb_feed **result)
{
    struct dpb_feed *feed = dpb_alloc(sizeof *feed);
    if (!feed)
        return DPB_NO_MEMORY;
    *feed = *prepared;
    feed->n_slots = slots_of(&feed->args);
    pthread_mutex_init(&feed->lock, NULL);
    pthread_cond_init(&feed->room, NULL);
    pthread_cond_init(&feed->ready, NULL);
    dpb_status status = create_ring(feed);
    if (status == DPB_OK && feed->args.threads > 0)
        status = start_helpers(feed);
    if (status != DPB_OK) {
        dpb_feed_destroy(feed);
        return status;
    }
    *result = feed;
    return DPB_OK;
}

dpb_status dpb_feed_create(const struct dpb_feed_args *args, struct dpb_feed **feed)
{
    uint64_t n_samples = args->info.n_samples[args->split];
    struct dpb_feed prepared = {
        .args = *args,
        .order = {.n = n_samples, .seed = args->seed, .shuffle = args->shuffle},
        .dealt_to = 1,
        .end = UINT64_MAX};
    if (args->sharded) { /* each rank goes through its own samples as one worker does through all */
        prepared.order.n = n_samples / args->n_workers;
        prepared.order.shard = args->rank;
        prepared.order.n_shards = args->n_workers;
        prepared.dealt_to = args->n_workers;
        prepared.args.rank = 0;
        prepared.args.n_workers = 1;
        prepared.args.start.position /= args->n_workers;
    }
    DPB_TRY(dpb_shards_init(args->name, prepared.order.n, args->batch, prepared.args.n_workers,
                            args->accumulate, &prepared.args.start, &prepared.shards));
    return create(&prepared, feed);
}

dpb_status dpb_feed_eval_create(const struct dpb_feed_args *args, struct dpb_feed **feed)
{
    uint64_t n_samples = args->info.n_samples[args->split];
    if (n_samples == 0)
        return dpb_fail(DPB_USAGE,
                        "data '%s' has no %s samples: evaluation needs some; take other data, or "
                        "leave eval.every and eval.final out",
                        args->name, args->split == DPB_TEST ? "test" : "training");
    const struct dpb_feed prepared = {.args = *args, .evaluates = true};
    return create(&prepared, feed);
}

void dpb_feed_destroy(struct dpb_feed *feed)
{
    if (!feed)
        return;
    pthread_mutex_lock(&feed->lock);
    feed->stop = true;
    pthread_cond_broadcast(&feed->room);
    pthread_mutex_unlock(&feed->lock);
    for (uint32_t i = 0; i < feed->n_helpers; i++)
        pthread_join(feed->helpers[i].thread, NULL);
    pthread_cond_destroy(&feed->ready);
    pthread_cond_destroy(&feed->room);
    pthread_mutex_destroy(&feed->lock);
    dpb_release(feed->helpers, feed->args.threads * sizeof *feed->helpers);
    dpb_release(feed->slots, feed->n_slots * sizeof *feed->slots);
    dpb_release(feed->ring, feed->ring_bytes);
    dpb_release(feed, sizeof *feed);
}
