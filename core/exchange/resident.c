/* resident.c - see resident.h. */
#include "exchange/resident.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "measure/account.h"

/* ---- buckets and pages ---------------------------------------------------------------------- */

static struct dpb_range elements_of(const struct dpb_exchange *exchange, uint64_t bucket)
{
    const uint64_t begin = bucket * exchange->arenas.bucket_elements,
                   rest = exchange->layout.n_elements - begin;
    return (struct dpb_range){begin, begin + (rest < exchange->arenas.bucket_elements
                                                  ? rest
                                                  : exchange->arenas.bucket_elements)};
}

/* The whole pages between two elements; a page with owned weights, or of two buckets, stays. */
static dpb_status give_back(const struct dpb_exchange *exchange, uint64_t begin, uint64_t end)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const size_t size = dpb_dtype_size(exchange->layout.weight_type);
    const uint64_t from = (begin * size + page - 1) / page * page, to = end * size / page * page;
    if (from < to && madvise((char *)exchange->arenas.weights + from, to - from, MADV_REMOVE) != 0)
        return dpb_fail(DPB_FAILED, "cannot give back %llu bytes of weights",
                        (unsigned long long)(to - from));
    return DPB_OK;
}

/* The memory behind the arena, as the system counts it, where it may be the most. */
static void measure(struct dpb_exchange *exchange)
{
    enum { PAGES = 4096 };
    unsigned char there[PAGES];
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t bytes = dpb_arena_bytes(exchange, exchange->layout.weight_type);
    struct dpb_resident *resident = &exchange->resident;
    uint64_t n = 0;
    if (resident->n_held < resident->most_held)
        return;
    resident->most_held = resident->n_held;
    for (size_t at = 0; at < bytes; at += PAGES * page) {
        const size_t rest = bytes - at < PAGES * page ? bytes - at : PAGES * page;
        if (mincore((char *)exchange->arenas.weights + at, rest, there) != 0)
            return;
        for (size_t i = 0; i < (rest + page - 1) / page; i++)
            n += there[i] & 1;
    }
    if (n * page > resident->most_bytes)
        resident->most_bytes = n * page;
}

/* ---- needs ---------------------------------------------------------------------------------- */

static dpb_status need(struct dpb_exchange *exchange, uint64_t bucket)
{
    struct dpb_resident *resident = &exchange->resident;
    struct dpb_resident_bucket *b = &resident->buckets[bucket];
    if (b->held)
        return DPB_OK;
    if (resident->in_step && bucket < exchange->staging.next_bucket)
        return dpb_fail(DPB_FAILED,
                        "step %llu: device '%s' enters a node that reads weights of bucket %llu, "
                        "whose gradients it has called final",
                        (unsigned long long)dpb_world_step(),
                        exchange->experiment->settings.device.name, (unsigned long long)bucket);
    b->held = true;
    b->number = ++resident->n_needs;
    resident->held[resident->n_held++] = bucket;
    exchange->ops->need(exchange->comm, bucket);
    return DPB_OK;
}

/* Until as many needs are met. */
static dpb_status await(struct dpb_exchange *exchange, uint64_t number)
{
    const int64_t entered_ns = dpb_account_enter();
    dpb_status status = DPB_OK;
    while (status == DPB_OK && exchange->ops->met(exchange->comm) < number)
        status = exchange->ops->progress(exchange->comm, DPB_FOREVER);
    return dpb_account_leave(entered_ns, status);
}

/* What was needed in vain has come before its pages go: needs never depend on when they are met. */
static dpb_status drop(struct dpb_exchange *exchange, uint64_t bucket)
{
    struct dpb_resident_bucket *b = &exchange->resident.buckets[bucket];
    const struct dpb_range all = elements_of(exchange, bucket), own = exchange->plan.owned[bucket];
    DPB_TRY(await(exchange, b->number));
    b->held = false;
    DPB_TRY(give_back(exchange, all.begin, own.begin));
    return give_back(exchange, own.end, all.end);
}

static dpb_status drop_unless(struct dpb_exchange *exchange,
                              bool (*stays)(const struct dpb_exchange *exchange, uint64_t bucket))
{
    struct dpb_resident *resident = &exchange->resident;
    const uint64_t n = resident->n_held;
    resident->n_held = 0;
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t bucket = resident->held[i];
        if (stays(exchange, bucket))
            resident->held[resident->n_held++] = bucket;
        else
            DPB_TRY(drop(exchange, bucket));
    }
    return DPB_OK;
}

static bool is_read(const struct dpb_exchange *exchange, uint64_t bucket)
{
    return exchange->resident.buckets[bucket].turn == exchange->resident.turn;
}

static bool is_not_handed_over(const struct dpb_exchange *exchange, uint64_t bucket)
{
    return bucket >= exchange->staging.next_bucket;
}

/* ---- nodes ---------------------------------------------------------------------------------- */

typedef dpb_status (*bucket_work)(struct dpb_exchange *exchange, uint64_t bucket);

/* The buckets of a node's weights; some twice. */
static dpb_status each_bucket(struct dpb_exchange *exchange, uint32_t node, bucket_work work)
{
    const uint32_t tensors[] = {exchange->graph->nodes[node].weight,
                                exchange->graph->nodes[node].bias};
    for (int i = 0; i < 2; i++) {
        if (tensors[i] == DPB_NONE)
            continue;
        const struct dpb_tensor *tensor = &exchange->graph->tensors[tensors[i]];
        const uint64_t elements = exchange->arenas.bucket_elements;
        const uint64_t last = (tensor->offset + tensor->n_elements - 1) / elements;
        for (uint64_t bucket = tensor->offset / elements; bucket <= last; bucket++)
            DPB_TRY(work(exchange, bucket));
    }
    return DPB_OK;
}

static bool has_weights(const struct dpb_exchange *exchange, uint32_t node)
{
    return exchange->graph->nodes[node].weight != DPB_NONE ||
           exchange->graph->nodes[node].bias != DPB_NONE;
}

static dpb_status keep(struct dpb_exchange *exchange, uint64_t bucket)
{
    exchange->resident.buckets[bucket].turn = exchange->resident.turn;
    return DPB_OK;
}

/* One bucket alone: the first that is not here. */
static dpb_status prefetch(struct dpb_exchange *exchange, uint64_t bucket)
{
    if (exchange->resident.prefetches && !exchange->resident.buckets[bucket].held) {
        exchange->resident.prefetches = false;
        return need(exchange, bucket);
    }
    return DPB_OK;
}

/* Of the node behind this one in forward, of the one before it in backward. */
static dpb_status prefetch_next(struct dpb_exchange *exchange, uint32_t node, bool back)
{
    const uint32_t n = exchange->graph->n_nodes;
    do
        node = back ? node - 1 : node + 1;
    while (node < n && !has_weights(exchange, node)); /* node - 1 of the first is no node */
    exchange->resident.prefetches = true;
    return node < n ? each_bucket(exchange, node, prefetch) : DPB_OK;
}

static dpb_status show(struct dpb_exchange *exchange, uint64_t bucket)
{
    struct dpb_resident_bucket *b = &exchange->resident.buckets[bucket];
    const struct dpb_range elements = elements_of(exchange, bucket);
    if (exchange->onlooker.owner && b->number > exchange->resident.n_shown)
        exchange->onlooker.weights(exchange->onlooker.owner, elements.begin, elements.end);
    return DPB_OK;
}

dpb_status dpb_resident_enter(struct dpb_exchange *exchange, uint32_t node)
{
    struct dpb_resident *resident = &exchange->resident;
    const bool back = node < resident->node;
    if (!resident->buckets || !resident->in_step || !has_weights(exchange, node))
        return DPB_OK;
    resident->node = node;
    resident->turn++;
    DPB_TRY(each_bucket(exchange, node, keep));
    DPB_TRY(drop_unless(exchange, is_read));
    DPB_TRY(each_bucket(exchange, node, need));
    const uint64_t n_needs = resident->n_needs;
    DPB_TRY(prefetch_next(exchange, node, back));
    DPB_TRY(await(exchange, n_needs));
    DPB_TRY(each_bucket(exchange, node, show));
    resident->n_shown = n_needs;
    measure(exchange);
    return DPB_OK;
}

dpb_status dpb_resident_leave(struct dpb_exchange *exchange)
{
    return drop_unless(exchange, is_not_handed_over);
}

/* ---- between steps -------------------------------------------------------------------------- */

dpb_status dpb_resident_all(struct dpb_exchange *exchange)
{
    struct dpb_resident *resident = &exchange->resident;
    if (!resident->buckets)
        return DPB_OK;
    resident->in_step = false;
    for (uint64_t bucket = 0; bucket < exchange->arenas.n_buckets; bucket++)
        DPB_TRY(need(exchange, bucket));
    return await(exchange, resident->n_needs);
}

void dpb_resident_loaded(struct dpb_exchange *exchange)
{
    struct dpb_resident *resident = &exchange->resident;
    resident->n_held = resident->buckets ? exchange->arenas.n_buckets : 0;
    for (uint64_t bucket = 0; bucket < resident->n_held; bucket++) {
        resident->held[bucket] = bucket;
        resident->buckets[bucket].held = true;
    }
}

bool dpb_resident_has(const struct dpb_exchange *exchange, uint64_t element)
{
    const struct dpb_resident *resident = &exchange->resident;
    if (!resident->buckets)
        return true;
    const uint64_t bucket = element / exchange->arenas.bucket_elements;
    const struct dpb_range own = exchange->plan.owned[bucket];
    return (element >= own.begin && element < own.end) ||
           (resident->buckets[bucket].held &&
            resident->buckets[bucket].number <= exchange->ops->met(exchange->comm));
}

bool dpb_resident_awaits(const struct dpb_exchange *exchange)
{
    return exchange->resident.buckets &&
           exchange->ops->met(exchange->comm) < exchange->resident.n_needs;
}

/* ---- making and ending ---------------------------------------------------------------------- */

static bool owns_a_range_of_each(const struct dpb_exchange *exchange)
{
    const struct dpb_comm_plan *plan = &exchange->plan;
    bool each = plan->n_owned == exchange->arenas.n_buckets;
    for (uint64_t bucket = 0; each && bucket < plan->n_owned; bucket++) {
        const struct dpb_range all = elements_of(exchange, bucket), own = plan->owned[bucket];
        each = own.begin >= all.begin && own.end <= all.end && own.begin <= own.end;
    }
    return each;
}

dpb_status dpb_resident_plan(const struct dpb_exchange *exchange)
{
    const struct dpb_experiment *experiment = exchange->experiment;
    const struct dpb_settings *settings = &experiment->settings;
    if (!exchange->plan.weights_on_need)
        return DPB_OK;
    if (!exchange->ops->need || !exchange->ops->met || !owns_a_range_of_each(exchange))
        return dpb_fail(DPB_FAILED,
                        "comm '%s': its plan has weights_on_need; it needs the hooks need and met, "
                        "and an owned range in each bucket",
                        settings->comm.name);
    if (dpb_experiment_arenas_on_device(experiment) || settings->run.comm_cores > 0 ||
        settings->comm.late > 0 || experiment->accumulate > 1 ||
        settings->run.precision == DPB_PRECISION_FP16)
        return dpb_fail(DPB_UNSUPPORTED,
                        "comm '%s': weights on need lie on the host, without run.comm_cores, "
                        "run.accumulate, comm.late and fp16",
                        settings->comm.name);
    return DPB_OK;
}

dpb_status dpb_resident_open(struct dpb_exchange *exchange)
{
    struct dpb_resident *resident = &exchange->resident;
    const uint64_t n = exchange->arenas.n_buckets;
    if (!exchange->plan.weights_on_need)
        return DPB_OK;
    resident->buckets = calloc(n, sizeof *resident->buckets);
    resident->held = calloc(n, sizeof *resident->held);
    DPB_TRY(dpb_allocated(resident->buckets && resident->held));
    /* Pages of a bucket go one by one; where the kernel has no huge pages the advice fails. */
    (void)madvise(exchange->arenas.weights, dpb_arena_bytes(exchange, exchange->layout.weight_type),
                  MADV_NOHUGEPAGE);
    return DPB_OK;
}

void dpb_resident_close(struct dpb_exchange *exchange)
{
    free(exchange->resident.buckets);
    free(exchange->resident.held);
    exchange->resident = (struct dpb_resident){.buckets = NULL};
}
