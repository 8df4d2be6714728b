/*
 * comm_mutant.c - strategies with a mistake: mutant_shm, mutant_replicated, mutant_ps_cpu,
 * mutant_ps_gpu, mutant_ring_tcp, mutant_hierarchical and mutant_gloo (and mutant_nccl:
 * comm_mutant_nccl.c) are the real ones, with their options, loaded from DPBENCH_PLUGIN_PATH or
 * beside dpbench, with this plugin between them and core. It changes what core tells them (begin),
 * what the host's functions and, on arenas of a device, its queues do for them (sum, copy, update,
 * encode and so on), and nothing of theirs. Every check of sameness has to catch what it is there
 * for.
 *
 * With shards (comm.shard) a worker's weights are mostly written by others. Mistakes in the last
 * worker's weights are made by who writes them there.
 *
 * Where the ranks share no memory a sum is made piece by piece on its way. Such a strategy's
 * mistakes in sums are made where it begins and ends: in the gradients that a rank gives, and in
 * those by which it updates. Where weights come by themselves from servers of other machines, what
 * is wrong with them is made when the strategy says that they are here.
 *
 * A mutation is at work in the exchanges [from, until): 0 is the pattern's, 1 that of run.prove,
 * training comes after. Servers learn the exchange from worker 0, in the tail of its scratch, those
 * of jobs on several machines from the steps by which they update.
 */
#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dpbench/plugin.h"
#include "wrap.h"

enum mutation {
    NONE,             /* the control: nothing is wrong */
    WRONG_SCALE,      /* the sum instead of the mean */
    BUCKET_LEFT_OUT,  /* the last worker's gradients of one bucket are not summed */
    SLICES_SWAPPED,   /* the halves of what is summed change places */
    ELEMENT_WRONG,    /* 0.5 too much in one element */
    ELEMENT_NAN,      /* one element is no number */
    UPDATED_TWICE,    /* the first elements of each update: a proof's gradients may cancel in one */
    UPDATE_SKIPPED,   /* of one bucket, by every rank */
    STALE_WEIGHTS,    /* the last worker does not take over the new weights of one bucket */
    LATE_WEIGHTS,     /* forward computes one bucket's part with the weights of a step before */
    DECAY_DROPPED,    /* no weight decay */
    REPLICA_DIVERGES, /* the last worker's new weights are off by one part in a million */
    PUBLISHED,        /* what is published as the model is the array of gradients */
    TAKEN_EARLY,      /* slots of gradients are said to be free while others read them */
    NEED_LEFT_OUT,    /* weights on need: the last worker gets another bucket for one */
    MET_EARLY,        /* weights on need are said to be here while they are on their way */
    SUMS_FORGOTTEN,   /* owners lose the sums of a step's earlier micro-batches */
    SLOTS,            /* the plan has slots of gradients that no setting asks for */
    SQUARES_LACK,     /* rank 0 scales its updates without the last owner's sums of squares */
    FORGOTTEN,        /* on a device: what the last worker's messages lack is not kept */
    HALF_BYTES,       /* half of the bytes that are moved is reported */
    OWN_THREAD,       /* a thread of its own computes all the time */
    AUDITED           /* nothing is wrong; what is touched of others' memory is counted */
};

static const char *const mutations[] = {
    "none",           "wrong_scale",  "bucket_left_out", "slices_swapped",
    "element_wrong",  "element_nan",  "updated_twice",   "update_skipped",
    "stale_weights",  "late_weights", "decay_dropped",   "replica_diverges",
    "published",      "taken_early",  "need_left_out",   "met_early",
    "sums_forgotten", "slots",        "squares_lack",    "forgotten",
    "half_bytes",     "own_thread",   "audited",         NULL};

struct options {
    int mutation;
    int64_t from, until, bucket, element;
};

enum { FIRST = 8 };

/* Where the strategy's own options begin. */
enum { INNER_AT = (sizeof(struct options) + 15) / 16 * 16 };

#define AT(member) offsetof(struct options, member)
static const struct dpb_option option_rows[] = {
    {"mutation", DPB_OPT_CHOICE, NULL, "none", 0, 0, mutations, AT(mutation), "the mistake", NULL},
    {"from", DPB_OPT_INT, "exchange", "0", 0, 1e9, NULL, AT(from), "first exchange with it", NULL},
    {"until", DPB_OPT_INT, "exchange", "1000000000", 0, 1e9, NULL, AT(until),
     "first exchange without it", NULL},
    {"mutant_bucket", DPB_OPT_INT, NULL, "1", 0, 1e9, NULL, AT(bucket), "where one is meant", NULL},
    {"element", DPB_OPT_INT, NULL, "0", 0, 1e12, NULL, AT(element), "of the arena, likewise", NULL},
    {0},
};
enum { N_ROWS = sizeof option_rows / sizeof option_rows[0] - 1 };

/* What worker 0 tells the servers. */
struct notice {
    uint64_t exchange;
};

/* A process has one communicator, so there is one mutant. */
static struct {
    const struct dpb_host *host; /* core's */
    struct dpb_host told;        /* what the strategy gets */
    struct dpb_vec_ops vec;
    struct dpb_optimizer_ops optimizer;
    struct dpb_queue_ops queue_ops;     /* the strategy's, of ... */
    struct dpb_device_arenas device;    /* ... this */
    const struct dpb_queue_ops *queues; /* the device's; NULL: arenas are the host's */
    struct dpb_queue *queue;            /* the mutant's own */
    struct dpb_event *done;             /* of the exchange before */
    char *spoilt;                       /* room for a sum */
    uint64_t inbox_bytes;
    const struct dpb_comm_ops *inner;
    bool pulls; /* the strategy's workers copy weights instead of updating them */
    bool gives; /* each worker updates a part of the weights and gives it to the others */
    bool apart; /* its ranks, or some of them, share no memory */
    struct options options;
    struct dpb_comm_args args;
    struct dpb_arenas arenas;
    uint64_t notice_at;
    uint64_t exchange; /* that a worker is in */
    uint64_t n_needs;
    /* The weights of a step before (LATE_WEIGHTS) and of this one (STALE_WEIGHTS, too). */
    char *before, *current;
    bool has_before, swapped;
    /* AUDITED: elements summed here; bytes read from others, written to others, and reported. */
    uint64_t summed, read, wrote, reported;
    pthread_t thread; /* OWN_THREAD */
    bool stops;
} m;

/* ---- where and when ------------------------------------------------------------------------ */

/* Where there are no servers nobody has to be told. */
static struct notice *notice(void)
{
    return (struct notice *)((char *)m.arenas.peer_scratch[0] + m.notice_at);
}

static bool active(enum mutation mutation)
{
    bool told = m.args.role == DPB_SERVER && !m.apart;
    const uint64_t *now = told ? &notice()->exchange : &m.exchange;
    int64_t exchange = (int64_t)__atomic_load_n(now, __ATOMIC_RELAXED);
    return m.options.mutation == (int)mutation && exchange >= m.options.from &&
           exchange < m.options.until;
}

static bool is_last_worker(void)
{
    return m.args.rank + 1 == m.args.n_workers;
}

static size_t weight_size(void)
{
    return dpb_dtype_size(m.arenas.layout.weight_type);
}

/* The one bucket that is meant; the last where there are fewer. */
static struct dpb_range meant_bucket(void)
{
    uint64_t last = m.arenas.n_buckets - 1, length = m.arenas.bucket_elements;
    uint64_t bucket = (uint64_t)m.options.bucket < last ? (uint64_t)m.options.bucket : last;
    uint64_t end = (bucket + 1) * length, all = m.arenas.layout.n_elements;
    return (struct dpb_range){bucket * length, end < all ? end : all};
}

/* Whether `at` points into the arena that begins at `arena`; *element: where. */
static bool within(const void *arena, const void *at, dpb_dtype type, uint64_t *element)
{
    const char *begin = arena, *p = at;
    size_t size = dpb_dtype_size(type);
    if (!begin || p < begin || p >= begin + m.arenas.layout.n_elements * size)
        return false;
    *element = (uint64_t)(p - begin) / size;
    return true;
}

static double value_of(dpb_dtype type, const void *at)
{
    if (type == DPB_FP64)
        return *(const double *)at;
    return type == DPB_FP32 ? (double)*(const float *)at
                            : (double)dpb_bf16_to_fp32(*(const uint16_t *)at);
}

static void set_value(dpb_dtype type, void *at, double value)
{
    if (type == DPB_FP64)
        *(double *)at = value;
    else if (type == DPB_FP32)
        *(float *)at = (float)value;
    else
        *(uint16_t *)at = dpb_bf16_from_fp32((float)value);
}

/* Whether `at` points into an arena of another rank. */
static bool is_foreign(const void *at)
{
    const struct dpb_layout *layout = &m.arenas.layout;
    uint64_t element;
    for (uint32_t rank = 0; rank < m.args.n_workers + m.args.n_servers; rank++)
        if (rank != m.args.rank &&
            (within(m.arenas.peer_gradients[rank], at, layout->gradient_type, &element) ||
             within(m.arenas.peer_weights[rank], at, layout->weight_type, &element)))
            return true;
    return false;
}

static void audit(void *const *dst, uint32_t n_dst, const void *const *sources, uint32_t k,
                  uint64_t bytes)
{
    if (!active(AUDITED))
        return;
    for (uint32_t i = 0; i < k; i++)
        m.read += is_foreign(sources[i]) ? bytes : 0;
    for (uint32_t i = 0; i < n_dst; i++)
        m.wrote += is_foreign(dst[i]) ? bytes : 0;
}

static void mutant_count_bytes(uint64_t bytes)
{
    if (active(AUDITED))
        m.reported += bytes;
    m.host->count_bytes(active(HALF_BYTES) ? bytes / 2 : bytes);
}

static void *compute(void *argument)
{
    while (!__atomic_load_n(&m.stops, __ATOMIC_RELAXED))
        ;
    return argument;
}

/* ---- the host's functions, as the strategy gets them --------------------------------------- */

static void swap_halves(char *at, size_t size, uint64_t n)
{
    size_t half = (size_t)(n / 2) * size;
    char *second = at + (size_t)((n + 1) / 2) * size;
    for (size_t i = 0; i < half; i++) {
        char byte = at[i];
        at[i] = second[i];
        second[i] = byte;
    }
}

/* What is wrong with the sum of the `n` gradients from element `at` on. */
static void spoil_sum(dpb_dtype type, void *sum, uint64_t at, uint64_t n)
{
    size_t size = dpb_dtype_size(type);
    uint64_t element = (uint64_t)m.options.element;
    if (active(SLICES_SWAPPED))
        swap_halves(sum, size, n);
    if (element < at || element >= at + n)
        return;
    char *wrong = (char *)sum + (element - at) * size;
    if (active(ELEMENT_WRONG))
        set_value(type, wrong, value_of(type, wrong) + 0.5);
    if (active(ELEMENT_NAN))
        set_value(type, wrong, NAN);
}

static void mutant_sum(dpb_dtype type, void *const *dst, uint32_t n_dst, const void *const *sources,
                       uint32_t k, uint64_t n)
{
    struct dpb_range bucket = meant_bucket();
    uint64_t at = UINT64_MAX;
    audit(dst, n_dst, sources, k, n * dpb_dtype_size(type));
    m.summed += active(AUDITED) ? n : 0;
    if (m.apart) {
        m.host->vec->sum(type, dst, n_dst, sources, k, n);
        return;
    }
    within(m.arenas.peer_gradients[0], sources[0], type, &at);
    bool left_out = active(BUCKET_LEFT_OUT) && at >= bucket.begin && at < bucket.end;
    m.host->vec->sum(type, dst, n_dst, sources, left_out ? k - 1 : k, n);
    for (uint32_t d = 0; d < n_dst; d++)
        spoil_sum(type, dst[d], at, n);
}

/* New weights have come to the last worker's arena, at this address. */
static void perturb(void *weights)
{
    dpb_dtype type = m.arenas.layout.weight_type;
    const double is = value_of(type, weights);
    const bool cancelled = is == 0 && !m.queues; /* a proof's gradients, in one element */
    if (active(REPLICA_DIVERGES))
        set_value(type, weights, cancelled ? 1e-6 : is * (1.0 + 1e-6));
}

/* Of the last worker. */
static bool is_stale(uint64_t at)
{
    struct dpb_range bucket = meant_bucket();
    return at >= bucket.begin && at < bucket.end && active(STALE_WEIGHTS);
}

/* Whether the strategy copies new weights to `dst`, element *at of the last worker's arena. */
static bool is_for_last_worker(const void *dst, uint64_t *at)
{
    const dpb_dtype type = m.arenas.layout.weight_type;
    if (m.gives)
        return within(m.arenas.peer_weights[m.args.n_workers - 1], dst, type, at);
    return m.pulls && is_last_worker() && within(m.arenas.weights, dst, type, at);
}

static void mutant_copy(dpb_dtype type, void *dst, const void *src, uint64_t n)
{
    uint64_t at;
    const bool taken = n > 0 && is_for_last_worker(dst, &at);
    if (taken && is_stale(at))
        return;
    audit(&dst, 1, &src, 1, n * dpb_dtype_size(type));
    m.host->vec->copy(type, dst, src, n);
    if (taken)
        perturb(dst);
}

/* ... and the host's queue. */
static dpb_status mutant_host_queue_sum(struct dpb_queue *queue, dpb_dtype type, void *dst,
                                        const void *const *sources, uint32_t k, uint64_t n)
{
    (void)queue;
    mutant_sum(type, &dst, 1, sources, k, n);
    return DPB_OK;
}

static dpb_status mutant_host_queue_copy(struct dpb_queue *queue, void *dst, const void *src,
                                         uint64_t bytes)
{
    (void)queue;
    mutant_copy(DPB_UINT8, dst, src, bytes);
    return DPB_OK;
}

/* SGD is linear in the weights: from zeros, its step is the same but for the decay. */
static void update_without_decay(struct dpb_optimizer *optimizer, struct dpb_range range,
                                 void *weights, const void *gradients, uint64_t bucket,
                                 const struct dpb_step *step)
{
    uint64_t n = range.end - range.begin;
    void *zeros = m.host->alloc(n * weight_size());
    if (!zeros)
        abort();
    m.host->optimizer->update(optimizer, NULL, range, zeros, gradients, bucket, step);
    m.host->vec->axpby(m.arenas.layout.weight_type, 1.0, zeros, 1.0, weights, n);
    m.host->release(zeros, n * weight_size());
}

/* ---- the device's queues, as the strategy gets them ----------------------------------------- */

/* Changes `bytes` of device memory, in the queue's order: a copy to or from the host's waits for
 * it. */
static dpb_status change(struct dpb_queue *queue, void *at, uint64_t bytes, bool up)
{
    DPB_TRY(m.queues->copy(queue, up ? at : m.spoilt, up ? m.spoilt : at, bytes));
    return m.queues->drain(queue);
}

/* Where a library sums on devices, what is no number comes from one rank: mutant_ready. */
static bool spoils_sums(void)
{
    return active(SLICES_SWAPPED) || active(ELEMENT_WRONG) || (!m.apart && active(ELEMENT_NAN));
}

static dpb_status spoil_on_device(struct dpb_queue *queue, dpb_dtype type, void *sum, uint64_t at,
                                  uint64_t n)
{
    if (!spoils_sums())
        return DPB_OK;
    DPB_TRY(change(queue, sum, n * dpb_dtype_size(type), false));
    spoil_sum(type, m.spoilt, at, n);
    return change(queue, sum, n * dpb_dtype_size(type), true);
}

/* The sum is where this rank's own gradients were. */
static dpb_status mutant_queue_sum(struct dpb_queue *queue, dpb_dtype type, void *dst,
                                   const void *const *sources, uint32_t k, uint64_t n)
{
    struct dpb_range bucket = meant_bucket();
    uint64_t at = UINT64_MAX;
    m.summed += active(AUDITED) ? n : 0;
    within(m.arenas.gradients, dst, type, &at);
    bool left_out = active(BUCKET_LEFT_OUT) && at >= bucket.begin && at < bucket.end;
    DPB_TRY(m.queues->sum(queue, type, dst, sources, left_out ? k - 1 : k, n));
    return spoil_on_device(queue, type, dst, at, n);
}

static dpb_status perturb_on_device(struct dpb_queue *queue, void *weights)
{
    if (!is_last_worker() || !active(REPLICA_DIVERGES))
        return DPB_OK;
    DPB_TRY(change(queue, weights, weight_size(), false));
    perturb(m.spoilt);
    return change(queue, weights, weight_size(), true);
}

static bool is_own(const void *at)
{
    const struct dpb_layout *layout = &m.arenas.layout;
    const char *inbox = m.arenas.inbox, *p = at;
    uint64_t element;
    return within(m.arenas.weights, at, layout->weight_type, &element) ||
           within(m.arenas.gradients, at, layout->gradient_type, &element) ||
           (inbox && p >= inbox && p < inbox + m.inbox_bytes);
}

static dpb_status mutant_queue_copy(struct dpb_queue *queue, void *dst, const void *src,
                                    uint64_t bytes)
{
    uint64_t at;
    bool pull = is_for_last_worker(dst, &at);
    if (pull && is_stale(at))
        return DPB_OK;
    if (active(AUDITED)) {
        m.read += is_own(src) ? 0 : bytes;
        m.wrote += is_own(dst) ? 0 : bytes;
    }
    DPB_TRY(m.queues->copy(queue, dst, src, bytes));
    return pull ? perturb_on_device(queue, dst) : DPB_OK;
}

static dpb_status forget(struct dpb_queue *queue, const struct dpb_codec_part *part,
                         float *residual)
{
    return is_last_worker() && active(FORGOTTEN)
               ? m.queues->clear(queue, residual, part->n * sizeof *residual)
               : DPB_OK;
}

static dpb_status mutant_encode(struct dpb_queue *queue, const struct dpb_codec *codec,
                                const struct dpb_codec_part *part, const float *gradients,
                                float *residual, void *message, void *room, uint64_t *bytes)
{
    DPB_TRY(m.queues->encode(queue, codec, part, gradients, residual, message, room, bytes));
    return codec->ops->finish ? DPB_OK : forget(queue, part, residual);
}

static dpb_status mutant_decode(struct dpb_queue *queue, const struct dpb_codec *codec,
                                const struct dpb_codec_part *part, const void *message, float *sum,
                                uint32_t *refused)
{
    const bool left_out = part->rank + 1 == m.args.n_workers && active(BUCKET_LEFT_OUT);
    if (left_out && part->first == meant_bucket().begin)
        return DPB_OK;
    return m.queues->decode(queue, codec, part, message, sum, refused);
}

static dpb_status mutant_finish(struct dpb_queue *queue, const struct dpb_codec *codec,
                                const struct dpb_codec_part *part, const float *sum,
                                float *gradients, float *residual)
{
    DPB_TRY(m.queues->finish(queue, codec, part, sum, gradients, residual));
    return part->round == 0 ? DPB_OK : forget(queue, part, residual);
}

static uint64_t clamp(uint64_t value, struct dpb_range range)
{
    return value < range.begin ? range.begin : value > range.end ? range.end : value;
}

/* Of `range`, which may be several buckets, all but what lies in `left_out`. */
static dpb_status update_but(struct dpb_range left_out, struct dpb_optimizer *optimizer,
                             struct dpb_queue *queue, struct dpb_range range, char *weights,
                             const char *gradients, uint64_t bucket, const struct dpb_step *step)
{
    size_t g_size = dpb_dtype_size(m.arenas.layout.gradient_type);
    const struct dpb_range parts[] = {{range.begin, clamp(left_out.begin, range)},
                                      {clamp(left_out.end, range), range.end}};
    for (int i = 0; i < 2; i++) {
        uint64_t at = parts[i].begin - range.begin;
        if (parts[i].begin < parts[i].end)
            DPB_TRY(m.host->optimizer->update(optimizer, queue, parts[i],
                                              weights + at * weight_size(), gradients + at * g_size,
                                              bucket, step));
    }
    return DPB_OK;
}

/* The sum is in this rank's own arena, and of no use to others any more. */
static dpb_status spoil_own(struct dpb_queue *queue, const void *gradients, struct dpb_range range)
{
    const dpb_dtype type = m.arenas.layout.gradient_type;
    void *sum = (void *)(uintptr_t)gradients;
    if (m.queues)
        return spoil_on_device(queue, type, sum, range.begin, range.end - range.begin);
    spoil_sum(type, sum, range.begin, range.end - range.begin);
    return DPB_OK;
}

static dpb_status mutant_update(struct dpb_optimizer *optimizer, struct dpb_queue *queue,
                                struct dpb_range range, void *weights, const void *gradients,
                                uint64_t bucket, const struct dpb_step *step)
{
    struct dpb_range first = {range.begin, range.begin}, left_out = {0, 0};
    bool stale = !m.pulls && !m.gives && is_last_worker() && active(STALE_WEIGHTS);
    if (m.args.role == DPB_SERVER && m.apart)
        __atomic_store_n(&m.exchange, step->step, __ATOMIC_RELAXED);
    if (range.begin == range.end)
        return DPB_OK;
    first.end = range.end - range.begin < FIRST ? range.end : range.begin + FIRST;
    if (m.queues && active(DECAY_DROPPED))
        return m.host->fail(DPB_UNSUPPORTED, "no mutant of an optimizer on a device");
    if (m.apart)
        DPB_TRY(spoil_own(queue, gradients, range));
    if (stale || active(UPDATE_SKIPPED))
        left_out = meant_bucket();
    if (active(DECAY_DROPPED))
        update_without_decay(optimizer, range, weights, gradients, bucket, step);
    else
        DPB_TRY(update_but(left_out, optimizer, queue, range, weights, gradients, bucket, step));
    if (active(UPDATED_TWICE))
        DPB_TRY(
            m.host->optimizer->update(optimizer, queue, first, weights, gradients, bucket, step));
    if (m.pulls || m.gives)
        return DPB_OK;
    if (m.queues)
        return perturb_on_device(queue, weights);
    if (is_last_worker())
        perturb(weights);
    return DPB_OK;
}

/* `all` is the strategy's memory. */
static dpb_status mutant_squares(struct dpb_optimizer *optimizer, struct dpb_queue *queue,
                                 const struct dpb_step *step, const struct dpb_squares *all,
                                 uint32_t n, struct dpb_squares *own, bool *more)
{
    const uint32_t n_tensors = m.arenas.layout.n_tensors;
    if (all && m.args.rank == 0 && active(SQUARES_LACK))
        memset((void *)(uintptr_t)(all + (uint64_t)(n - 1) * n_tensors), 0,
               n_tensors * sizeof *all);
    return m.host->optimizer->squares(optimizer, queue, step, all, n, own, more);
}

/* Weights come to this worker's arena by themselves, from ranks that share no memory. */
static bool is_given_weights(void)
{
    const bool come = m.pulls ? m.args.n_machines > 1 : m.gives && m.apart;
    return come && m.args.role == DPB_WORKER && is_last_worker();
}

/* The new weights of a bucket are here. */
static void mutant_span(uint64_t bucket, dpb_phase phase, int64_t begin_ns, int64_t end_ns)
{
    struct dpb_range meant = meant_bucket();
    size_t at = meant.begin * weight_size(), n = (meant.end - meant.begin) * weight_size();
    bool pulled = is_given_weights() && phase == DPB_PHASE_TRANSFER &&
                  bucket * m.arenas.bucket_elements == meant.begin;
    if (pulled && is_stale(meant.begin))
        memcpy((char *)m.arenas.weights + at, m.current + at, n);
    if (pulled)
        perturb((char *)m.arenas.weights + at);
    m.host->span(bucket, phase, begin_ns, end_ns);
}

/* ---- hooks: the inner strategy's, with a word before or after ------------------------------ */

static dpb_status mutant_plan(void *comm, const struct dpb_layout *layout,
                              struct dpb_comm_plan *want)
{
    DPB_TRY(wrap_plan(&m.inner, comm, layout, want));
    if (m.options.mutation == (int)SLOTS)
        want->gradient_slots = 1;
    want->captures = false; /* mistakes are made in some exchanges and not in others */
    m.inbox_bytes = want->inbox_bytes;
    m.gives = !m.pulls && want->n_owned > 0 &&
              (want->owned[0].begin > 0 || want->owned[0].end < layout->n_elements);
    m.apart = want->scratch != DPB_MEMORY_SHARED || m.args.n_machines > 1;
    if (m.apart)
        return DPB_OK;
    m.notice_at = (want->scratch_bytes + DPB_CACHE_LINE - 1) / DPB_CACHE_LINE * DPB_CACHE_LINE;
    want->scratch_bytes = m.notice_at + sizeof(struct notice);
    return DPB_OK;
}

static dpb_status mutant_bind(void *comm, const struct dpb_arenas *arenas)
{
    size_t bytes = arenas->layout.n_elements * dpb_dtype_size(arenas->layout.weight_type);
    m.arenas = *arenas;
    m.before = m.host->alloc(bytes);
    m.current = m.host->alloc(bytes);
    m.spoilt = m.host->alloc(bytes);
    if (!m.before || !m.current || !m.spoilt)
        return DPB_NO_MEMORY;
    if (m.queues)
        DPB_TRY(m.queues->open(m.device.device, &m.queue));
    m.stops = false;
    if (m.options.mutation == OWN_THREAD && pthread_create(&m.thread, NULL, compute, NULL) != 0)
        return m.host->fail(DPB_FAILED, "no thread");
    return m.inner->bind(comm, arenas);
}

/* Copies weights between memory of the host and their arena, wherever that is. */
static void move_weights(void *dst, const void *src, size_t bytes)
{
    if (!m.queues)
        memcpy(dst, src, bytes);
    else if (m.queues->copy(m.queue, dst, src, bytes) != DPB_OK ||
             m.queues->drain(m.queue) != DPB_OK)
        abort();
}

/* Forward comes after begin. Until a bucket is ready the strategy leaves its weights alone. */
static void make_late(void)
{
    size_t bytes = m.arenas.layout.n_elements * weight_size();
    struct dpb_range bucket = meant_bucket();
    size_t at = bucket.begin * weight_size(), n = (bucket.end - bucket.begin) * weight_size();
    char *weights = m.arenas.weights;
    if (m.queues && m.done && m.queues->await(m.queue, m.done) != DPB_OK)
        abort();
    move_weights(m.current, weights, bytes);
    m.swapped = m.has_before && is_last_worker();
    if (m.swapped)
        move_weights(weights + at, m.before + at, n);
    memcpy(m.before, m.current, bytes);
    m.has_before = true;
}

static dpb_status mutant_begin(void *comm, const struct dpb_step *step)
{
    struct dpb_step changed = *step;
    __atomic_store_n(&m.exchange, step->step, __ATOMIC_RELAXED);
    if (m.args.rank == 0 && !m.apart)
        __atomic_store_n(&notice()->exchange, step->step, __ATOMIC_RELAXED);
    if (active(WRONG_SCALE))
        changed.scale *= m.args.n_workers;
    if (active(SUMS_FORGOTTEN))
        changed.adds = false;
    if (active(LATE_WEIGHTS))
        make_late();
    if (is_given_weights() && active(STALE_WEIGHTS))
        memcpy(m.current, m.arenas.weights, m.arenas.layout.n_elements * weight_size());
    return m.inner->begin(comm, &changed);
}

/* The last worker's gradients, which are this bucket's, before anybody sums them. */
static dpb_status spoil_given(struct dpb_range bucket)
{
    dpb_dtype type = m.arenas.layout.gradient_type;
    size_t size = dpb_dtype_size(type);
    char *gradients = m.arenas.gradients;
    uint64_t element = (uint64_t)m.options.element, n = bucket.end - bucket.begin;
    bool left_out = active(BUCKET_LEFT_OUT) && bucket.begin == meant_bucket().begin;
    if (left_out && m.queues)
        DPB_TRY(m.queues->clear(m.queue, gradients + bucket.begin * size, n * size));
    else if (left_out)
        memset(gradients + bucket.begin * size, 0, n * size);
    if (m.queues && active(ELEMENT_NAN) && element >= bucket.begin && element < bucket.end) {
        set_value(type, m.spoilt, NAN);
        DPB_TRY(m.queues->copy(m.queue, gradients + element * size, m.spoilt, size));
    }
    return m.queues ? m.queues->drain(m.queue) : DPB_OK;
}

/* Behind the event gradients are final, and forward and backward are through with the weights. */
static dpb_status mutant_ready(void *comm, uint64_t bucket, struct dpb_event *event)
{
    struct dpb_range meant = meant_bucket();
    size_t at = meant.begin * weight_size();
    uint64_t begin = bucket * m.arenas.bucket_elements, end = begin + m.arenas.bucket_elements;
    bool spoils = m.apart && is_last_worker() && (active(BUCKET_LEFT_OUT) || active(ELEMENT_NAN));
    bool restores = m.swapped && begin == meant.begin;
    if (event && (spoils || restores))
        DPB_TRY(m.queues->await(m.queue, event));
    if (restores) {
        move_weights((char *)m.arenas.weights + at, m.current + at,
                     (meant.end - meant.begin) * weight_size());
        m.swapped = false;
    }
    if (spoils)
        DPB_TRY(spoil_given((struct dpb_range){
            begin, end < m.arenas.layout.n_elements ? end : m.arenas.layout.n_elements}));
    return m.inner->ready(comm, bucket, event);
}

static dpb_status mutant_load(void *comm)
{
    m.has_before = false;
    return m.inner->load(comm);
}

static dpb_status mutant_progress(void *comm, int64_t budget_ns)
{
    return m.inner->progress(comm, budget_ns);
}

static dpb_status mutant_end(void *comm, struct dpb_event **done)
{
    DPB_TRY(m.inner->end(comm, done));
    m.done = *done;
    return DPB_OK;
}

static dpb_status mutant_publish(void *comm, struct dpb_view *view)
{
    DPB_TRY(m.inner->publish(comm, view));
    if (active(PUBLISHED))
        view->weights = m.arenas.gradients;
    return DPB_OK;
}

static dpb_status mutant_books(void *comm, struct dpb_books *books)
{
    return m.inner->books(comm, books);
}

static uint64_t mutant_taken(void *comm)
{
    return active(TAKEN_EARLY) ? m.arenas.n_buckets : m.inner->taken(comm);
}

static void mutant_need(void *comm, uint64_t bucket)
{
    const bool left_out = active(NEED_LEFT_OUT) && is_last_worker() &&
                          bucket * m.arenas.bucket_elements == meant_bucket().begin;
    m.n_needs++;
    m.inner->need(comm, left_out ? 0 : bucket);
}

static uint64_t mutant_met(void *comm)
{
    return active(MET_EARLY) ? m.n_needs : m.inner->met(comm);
}

static dpb_status mutant_serve(void *comm)
{
    return m.inner->serve(comm);
}

static void mutant_close(void *comm)
{
    size_t bytes = m.arenas.layout.n_elements * weight_size();
    if (!comm)
        return;
    if (m.options.mutation == AUDITED)
        m.host->log(DPB_LOG_INFO,
                    "audit of rank %u: summed %llu, read %llu, wrote %llu, reported %llu",
                    m.args.rank, (unsigned long long)m.summed, (unsigned long long)m.read,
                    (unsigned long long)m.wrote, (unsigned long long)m.reported);
    __atomic_store_n(&m.stops, true, __ATOMIC_RELAXED);
    if (m.thread)
        pthread_join(m.thread, NULL);
    m.thread = 0;
    m.inner->close(comm);
    if (m.queues)
        m.queues->close(m.queue);
    m.host->release(m.before, bytes);
    m.host->release(m.current, bytes);
    m.host->release(m.spoilt, bytes);
    m.before = m.current = m.spoilt = NULL;
    m.queue = NULL;
    m.done = NULL;
}

/* ---- the mutants --------------------------------------------------------------------------- */

/* Where core looks: first the directories that the environment names. False: was not built. */
static bool find_inner(const char *name, char path[PATH_MAX])
{
    const char *at = getenv("DPBENCH_PLUGIN_PATH");
    while (at && *at) {
        int length = (int)strcspn(at, ":");
        snprintf(path, PATH_MAX, "%.*s/comm_%s.so", length, at, name);
        if (access(path, F_OK) == 0)
            return true;
        at += length + (at[length] == ':');
    }
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 64);
    if (length <= 0)
        return false;
    path[length] = '\0';
    snprintf(strrchr(path, '/'), 64, "/plugins/comm_%s.so", name);
    return access(path, F_OK) == 0;
}

/* The strategy as its shared object gives it, with our table for core's. NULL: was not built. */
static const struct dpb_plugin *load_inner(const char *name)
{
    char path[PATH_MAX];
    const struct dpb_plugin *(*entry)(const struct dpb_host *) = NULL;
    if (!find_inner(name, path))
        return NULL;
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (object)
        *(void **)&entry = dlsym(object, "dpb_plugin_entry");
    const struct dpb_plugin *plugin = entry ? entry(&m.told) : NULL;
    if (!plugin)
        m.host->fail(DPB_FAILED, "%s: cannot be mutated: %s", path, dlerror());
    return plugin;
}

static dpb_status mutant_open(const struct dpb_plugin *inner, const void *options,
                              const struct dpb_comm_args *args, void **comm)
{
    m.options = *(const struct options *)options;
    m.inner = inner->ops;
    m.pulls = strncmp(inner->name, "ps_", 3) == 0;
    m.args = *args;
    const bool on_device = strcmp(args->device->ops->runtime, "host") != 0;
    m.queues = on_device ? args->device->ops : NULL;
    m.queue_ops = *args->device->ops;
    m.queue_ops.sum = on_device ? mutant_queue_sum : mutant_host_queue_sum;
    m.queue_ops.copy = on_device ? mutant_queue_copy : mutant_host_queue_copy;
    if (m.queue_ops.coding_bytes) {
        m.queue_ops.encode = mutant_encode;
        m.queue_ops.decode = mutant_decode;
        m.queue_ops.finish = mutant_finish;
    }
    m.device = *args->device;
    m.device.ops = &m.queue_ops;
    m.args.device = &m.device;
    return m.inner->open((const char *)options + INNER_AT, &m.args, comm);
}

static dpb_status mutant_needs(const struct dpb_plugin *inner, const void *options,
                               struct dpb_comm_needs *needs)
{
    const struct dpb_comm_ops *ops = inner->ops;
    return ops->needs ? ops->needs((const char *)options + INNER_AT, needs) : DPB_OK;
}

#ifndef MUTANTS
#define MUTANTS(X) X(shm) X(replicated) X(ps_cpu) X(ps_gpu) X(ring_tcp) X(hierarchical) X(gloo)
#endif

#define MUTANT_OPS(NAME)                                                                 \
    static const struct dpb_plugin *inner_##NAME;                                        \
    static dpb_status open_##NAME(const void *options, const struct dpb_comm_args *args, \
                                  void **comm)                                           \
    {                                                                                    \
        return mutant_open(inner_##NAME, options, args, comm);                           \
    }                                                                                    \
    static dpb_status needs_##NAME(const void *options, struct dpb_comm_needs *needs)    \
    {                                                                                    \
        return mutant_needs(inner_##NAME, options, needs);                               \
    }                                                                                    \
    static const struct dpb_comm_ops ops_##NAME = {.open = open_##NAME,                  \
                                                   .plan = mutant_plan,                  \
                                                   .bind = mutant_bind,                  \
                                                   .load = mutant_load,                  \
                                                   .begin = mutant_begin,                \
                                                   .ready = mutant_ready,                \
                                                   .progress = mutant_progress,          \
                                                   .end = mutant_end,                    \
                                                   .publish = mutant_publish,            \
                                                   .books = mutant_books,                \
                                                   .serve = mutant_serve,                \
                                                   .taken = mutant_taken,                \
                                                   .need = mutant_need,                  \
                                                   .met = mutant_met,                    \
                                                   .close = mutant_close,                \
                                                   .needs = needs_##NAME};               \
    static struct dpb_plugin plugin_##NAME = {DPB_PLUGIN_HEAD(COMM, ops_##NAME),         \
                                              .name = "mutant_" #NAME, .version = "1",   \
                                              .summary = "a test's: " #NAME " with a mistake"};
MUTANTS(MUTANT_OPS)

#define MUTANT_LOAD(NAME)                                                                        \
    inner_##NAME = load_inner(#NAME);                                                            \
    if (inner_##NAME) {                                                                          \
        plugin_##NAME.capabilities = inner_##NAME->capabilities;                                 \
        plugin_##NAME.missing = inner_##NAME->missing;                                           \
        plugin_##NAME.options = wrap_rows(option_rows, N_ROWS, inner_##NAME->options, INNER_AT); \
        plugin_##NAME.options_size = INNER_AT + inner_##NAME->options_size;                      \
        plugin_##NAME.next = first;                                                              \
        first = &plugin_##NAME;                                                                  \
    }

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *host)
{
    const struct dpb_plugin *first = NULL;
    m.host = host;
    m.vec = *host->vec;
    m.vec.sum = mutant_sum;
    m.vec.copy = mutant_copy;
    m.optimizer = *host->optimizer;
    m.optimizer.update = mutant_update;
    m.optimizer.squares = mutant_squares;
    m.told = *host;
    m.told.vec = &m.vec;
    m.told.count_bytes = mutant_count_bytes;
    m.told.span = mutant_span;
    m.told.optimizer = &m.optimizer;
    MUTANTS(MUTANT_LOAD)
    return first;
}
