/*
 * reduce.c - see reduce.h.
 *
 * A worker's scratch: its signal page; by bucket a flag, which counts the messages of this bucket;
 * slots for messages (gather.h), two banks of one for each bucket. Message k of a bucket, from 0,
 * lies in bank k mod 2. A worker writes message k + 2 when it has all messages k + 1. Each of these
 * was sent by a worker that had read all messages k.
 *
 * On one machine all workers read these slots. On several each has slots for the messages of all
 * workers, which go round a ring over TCP.
 */
#include "lib/reduce/reduce.h"

#include <stdlib.h>
#include <string.h>

#include "lib/coded/coded.h"
#include "lib/mesh/mesh_tcp.h"
#include "lib/ring/gather.h"

static const struct dpb_host *host;
static const struct dpb_plugin *plugin;
static const struct dpb_reduce_strategy *strategy;

/* A bucket and its exchange. */
struct exchange {
    struct dpb_reduce_bucket bucket;
    struct reduce *owner;
    uint32_t n_sent;          /* messages so far, modulo 2^32 */
    bool again;               /* it is not the bucket's first exchange of this step */
    dpb_reduce_function then; /* NULL: no message is under way */
    uint64_t n_summed;        /* of dpb_reduce_sum; 0: the messages go to `then` */
};

struct reduce {
    struct dpb_strategy base;
    void *options;                        /* a copy: core frees its own after `open` */
    struct dpb_mesh_transport *transport; /* NULL once the gather owns the transport */
    struct dpb_gather *gather;            /* on several machines */
    uint32_t *order, position;            /* its members */
    uint64_t flags_at, slots_at, slot_bytes, n_state;
    struct exchange *exchanges;
    struct dpb_reduce_message messages[DPB_STRATEGY_WORKERS];
    float *residual, *state;
    double steps, scale; /* steps since `load`; the scale of all steps, 0 before the first */
    struct dpb_coded_share share; /* of the state */
    dpb_status status;
};

/* Whether messages go by the network. */
static bool goes_across(const struct dpb_comm_args *args)
{
    return args->n_machines > 1;
}

/* ---- messages ------------------------------------------------------------------------------ */

static struct dpb_flag *flag_of(const struct reduce *comm, uint32_t rank, uint64_t bucket)
{
    char *scratch = comm->base.arenas.peer_scratch[rank];
    return (struct dpb_flag *)(void *)(scratch + comm->flags_at) + bucket;
}

static struct dpb_coded_message *slot_of(const struct reduce *comm, uint32_t rank, uint64_t bucket,
                                         uint32_t k)
{
    const struct dpb_arenas *arenas = &comm->base.arenas;
    const bool across = goes_across(&comm->base.args);
    const uint64_t slot = dpb_gather_slot(arenas->n_buckets, across ? rank : 0, k, bucket);
    char *scratch = across ? arenas->scratch : arenas->peer_scratch[rank];
    return (struct dpb_coded_message *)(void *)(scratch + comm->slots_at + slot * comm->slot_bytes);
}

static uint64_t content_bytes(const struct reduce *comm)
{
    return comm->slot_bytes - sizeof(struct dpb_coded_message);
}

/* Makes bucket.message room for the next message. */
static void make_room(struct exchange *x)
{
    x->bucket.message = slot_of(x->owner, x->bucket.rank, x->bucket.number, x->n_sent)->content;
}

static dpb_status post(struct dpb_reduce_bucket *bucket, uint64_t bytes, uint64_t n_summed,
                       dpb_reduce_function then)
{
    struct exchange *x = (struct exchange *)bucket;
    const uint64_t room = content_bytes(x->owner);
    if (bytes > room)
        return host->fail(DPB_FAILED,
                          "comm '%s': a message of %llu bytes for the %llu elements of "
                          "bucket %llu, and there is room for %llu: set message_bytes",
                          plugin->name, (unsigned long long)bytes, (unsigned long long)bucket->n,
                          (unsigned long long)bucket->number, (unsigned long long)room);
    if (x->then)
        return host->fail(
            DPB_FAILED,
            "comm '%s': bucket %llu has a message under way; return the "
            "status of dpb_reduce_gather or dpb_reduce_sum, and send the next message "
            "from its function",
            plugin->name, (unsigned long long)bucket->number);
    slot_of(x->owner, bucket->rank, bucket->number, x->n_sent++)->bytes = bytes;
    x->n_summed = n_summed;
    x->then = then;
    if (x->owner->gather)
        dpb_gather_post(x->owner->gather, bucket->number);
    else
        host->flag->set(flag_of(x->owner, bucket->rank, bucket->number), x->n_sent);
    return DPB_OK;
}

dpb_status dpb_reduce_gather(struct dpb_reduce_bucket *bucket, uint64_t bytes,
                             dpb_reduce_function then)
{
    return post(bucket, bytes, 0, then);
}

dpb_status dpb_reduce_sum(struct dpb_reduce_bucket *bucket, uint64_t n, dpb_reduce_function then)
{
    return post(bucket, n * sizeof(float), n, then);
}

/* All are here. */
static dpb_status take_messages(struct reduce *comm, const struct exchange *x)
{
    const struct dpb_reduce_bucket *bucket = &x->bucket;
    for (uint32_t rank = 0; rank < bucket->n_workers; rank++) {
        const struct dpb_coded_message *slot = slot_of(comm, rank, bucket->number, x->n_sent - 1);
        const uint64_t bytes = __atomic_load_n(&slot->bytes, __ATOMIC_RELAXED);
        if (bytes > content_bytes(comm) ||
            (x->n_summed > 0 && bytes != x->n_summed * sizeof(float)))
            return host->fail(
                DPB_FAILED,
                "comm '%s': rank %u left a message of %llu bytes for bucket %llu, where rank "
                "%u expects another length: do all workers exchange the same?",
                plugin->name, rank, (unsigned long long)bytes, (unsigned long long)bucket->number,
                bucket->rank);
        comm->messages[rank] = (struct dpb_reduce_message){slot->content, bytes};
        if (rank != bucket->rank && !comm->gather)
            host->count_bytes(bytes);
    }
    return DPB_OK;
}

static void sum_messages(const struct reduce *comm, const struct exchange *x)
{
    const void *sources[DPB_STRATEGY_WORKERS];
    for (uint32_t rank = 0; rank < x->bucket.n_workers; rank++)
        sources[rank] = comm->messages[rank].content;
    host->vec->sum(DPB_FP32, &x->bucket.message, 1, sources, x->bucket.n_workers, x->n_summed);
}

/* ---- stages: the own message; all messages; update ------------------------------------------ */

static bool start_due(void *comm_, uint64_t bucket)
{
    const struct reduce *comm = comm_;
    return comm->status == DPB_OK && dpb_strategy_own_ready(comm_, bucket);
}

static dpb_status start_wait(void *comm_, uint64_t bucket)
{
    const struct reduce *comm = comm_;
    DPB_TRY(comm->status);
    return dpb_strategy_own_wait(comm_, bucket);
}

static void start(void *comm_, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct reduce *comm = comm_;
    struct exchange *x = &comm->exchanges[bucket];
    const int64_t began_ns = host->now_ns();
    x->again = false;
    x->bucket.step = (uint64_t)comm->steps;
    comm->status = strategy->reduce(&x->bucket);
    host->span(bucket, DPB_PHASE_REDUCE, began_ns, host->now_ns());
    if (comm->status == DPB_OK && !x->then)
        comm->status = host->fail(DPB_FAILED,
                                  "comm '%s': nothing was exchanged for bucket %llu; a bucket has "
                                  "at least one message a step, which may be empty",
                                  plugin->name, (unsigned long long)bucket);
    turn->at = turn->length;
}

static bool all_sent(const struct reduce *comm, uint64_t bucket, uint32_t *missing)
{
    if (comm->gather)
        return dpb_gather_finished(comm->gather, bucket);
    for (*missing = 0; *missing < comm->base.args.n_workers; ++*missing)
        if (!host->flag->reached(flag_of(comm, *missing, bucket), comm->exchanges[bucket].n_sent))
            return false;
    return true;
}

static bool go_on_due(void *comm_, uint64_t bucket)
{
    const struct reduce *comm = comm_;
    uint32_t missing;
    return comm->status == DPB_OK && all_sent(comm, bucket, &missing);
}

static dpb_status go_on_wait(void *comm_, uint64_t bucket)
{
    const struct reduce *comm = comm_;
    struct dpb_wait what = {
        .step = comm->base.step.step, .bucket = bucket, .purpose = "the peer's message"};
    DPB_TRY(comm->status);
    if (all_sent(comm, bucket, &what.peer))
        return DPB_OK;
    if (comm->gather)
        return dpb_gather_wait(comm->gather, bucket);
    host->note("wait_peer", bucket, what.peer);
    return host->flag->wait(flag_of(comm, what.peer, bucket), comm->exchanges[bucket].n_sent,
                            &what);
}

/* The bucket stays in this stage while its functions send further messages. */
static void go_on(void *comm_, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct reduce *comm = comm_;
    struct exchange *x = &comm->exchanges[bucket];
    const dpb_reduce_function then = x->then;
    if (!x->again && !comm->gather)
        dpb_signals_span_late_peer(&comm->base.signals, dpb_strategy_workers(&comm->base), bucket);
    const int64_t began_ns = host->now_ns();
    x->again = true;
    x->then = NULL;
    comm->status = take_messages(comm, x);
    if (comm->status != DPB_OK)
        return;
    make_room(x);
    if (x->n_summed > 0)
        sum_messages(comm, x);
    comm->status = then(&x->bucket);
    host->span(bucket, DPB_PHASE_REDUCE, began_ns, host->now_ns());
    if (comm->status == DPB_OK && !x->then)
        turn->at = turn->length;
}

/* A late strategy's first steps have no gradients yet: an update by zeros would decay weights. */
static void update(void *comm_, uint64_t bucket, struct dpb_stage_turn *turn)
{
    const struct reduce *comm = comm_;
    const struct dpb_reduce_bucket *own = &comm->exchanges[bucket].bucket;
    if (comm->steps > strategy->late) {
        dpb_coded_update(comm_, bucket, turn);
        return;
    }
    memset(own->gradients, 0, own->n * sizeof(float));
    turn->at = turn->length;
}

static const struct dpb_stage stages[] = {
    {start_due, start, start_wait}, {go_on_due, go_on, go_on_wait}, {.work = update}};

/* ---- sizes --------------------------------------------------------------------------------- */

static uint64_t slot_bytes_of(const void *options, const struct dpb_layout *layout,
                              uint64_t bucket_elements)
{
    const uint64_t n = dpb_strategy_longest_bucket(layout, bucket_elements);
    return sizeof(struct dpb_coded_message) +
           dpb_strategy_lines(strategy->message_bytes ? strategy->message_bytes(options, n)
                                                      : n * sizeof(float) + DPB_CACHE_LINE);
}

static uint64_t count_state(const void *options, const struct dpb_layout *layout,
                            uint64_t bucket_elements)
{
    uint64_t n = 0;
    for (uint64_t b = 0;
         strategy->state_elements && b < dpb_strategy_count_buckets(layout, bucket_elements); b++)
        n += strategy->state_elements(options,
                                      dpb_strategy_bucket_length(layout, bucket_elements, b));
    return n;
}

static uint64_t count_slots(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                            uint64_t bucket_elements)
{
    return dpb_gather_slot(dpb_strategy_count_buckets(layout, bucket_elements),
                           goes_across(args) ? args->n_workers : 1, 0, 0);
}

static void reduce_memory(const void *options, const struct dpb_comm_args *args,
                          const struct dpb_layout *layout, uint64_t bucket_elements,
                          struct dpb_comm_memory *memory)
{
    memory->beside_bytes += count_slots(args, layout, bucket_elements) *
                            slot_bytes_of(options, layout, bucket_elements);
    memory->beside_bytes += ((strategy->residual ? layout->n_elements : 0) +
                             count_state(options, layout, bucket_elements)) *
                            sizeof(float);
}

/* ---- contract ------------------------------------------------------------------------------ */

/* `contract` is preset. */
static dpb_status make_contract(const struct dpb_comm_args *args, struct dpb_contract *contract)
{
    contract->roundings = strategy->roundings;
    if (strategy->late > 0) {
        contract->consistency = DPB_LATE;
        contract->parameter = contract->settle_steps = strategy->late;
    }
    if (!strategy->residual)
        return DPB_OK;
    if (strategy->late > 0)
        return host->fail(DPB_UNSUPPORTED,
                          "comm '%s': struct dpb_reduce_strategy has `late` and `residual`, which "
                          "exclude each other: the books would lack the late sums",
                          plugin->name);
    contract->consistency = DPB_LOSSY;
    contract->proof = DPB_PROOF_BOOKS;
    /* Residual and gradient are added; the message is taken off, and summed over the workers. */
    contract->roundings += 2 + args->n_workers;
    return DPB_OK;
}

static dpb_status reduce_contract(const void *options, const struct dpb_comm_args *args,
                                  struct dpb_contract *contract)
{
    DPB_TRY(make_contract(args, contract));
    return goes_across(args)
               ? dpb_tcp_check_port(host, dpb_tcp_options_of(plugin, options), args->n_workers - 1)
               : DPB_OK;
}

/* ---- hooks --------------------------------------------------------------------------------- */

static void reduce_close(void *comm_)
{
    struct reduce *comm = comm_;
    if (!comm)
        return;
    if (comm->transport)
        comm->transport->ops->close(comm->transport, false);
    dpb_gather_destroy(comm->gather);
    free(comm->order);
    host->release(comm->exchanges, comm->base.arenas.n_buckets * sizeof *comm->exchanges);
    host->release(comm->residual, comm->base.arenas.layout.n_elements * sizeof(float));
    host->release(comm->state, comm->n_state * sizeof(float));
    host->release(comm->options, plugin->options_size);
    dpb_strategy_close(comm);
}

static dpb_status open_across(struct reduce *comm)
{
    if (!goes_across(&comm->base.args))
        return DPB_OK;
    DPB_TRY(dpb_strategy_order(&comm->base, &comm->order, &comm->position));
    return dpb_mesh_tcp_create(host, dpb_tcp_options_of(plugin, comm->options), &comm->transport);
}

static dpb_status reduce_open(const void *options, const struct dpb_comm_args *args, void **made)
{
    struct reduce *comm;
    void *opened;
    DPB_TRY(dpb_strategy_open(host, args, sizeof *comm, &opened));
    comm = opened;
    comm->options = host->alloc(plugin->options_size);
    dpb_status status = comm->options ? DPB_OK : DPB_NO_MEMORY;
    if (status == DPB_OK) {
        memcpy(comm->options, options, plugin->options_size);
        status = open_across(comm);
    }
    if (status == DPB_OK)
        *made = comm;
    else
        reduce_close(comm);
    return status;
}

static dpb_status reduce_plan(void *comm_, const struct dpb_layout *layout,
                              struct dpb_comm_plan *want)
{
    struct reduce *comm = comm_;
    if (layout->gradient_type != DPB_FP32)
        return host->fail(DPB_UNSUPPORTED,
                          "comm '%s' reduces gradients in fp32 alone; leave comm.gradient out, and "
                          "take another run.precision than fp64",
                          plugin->name);
    const struct dpb_comm_args *args = &comm->base.args;
    DPB_TRY(dpb_strategy_plan_replica(
        &comm->base, layout, goes_across(args) ? DPB_MEMORY_PRIVATE : DPB_MEMORY_SHARED, want));
    want->gradients = DPB_MEMORY_PRIVATE;
    const uint64_t n_buckets = dpb_strategy_count_buckets(layout, want->bucket_elements);
    comm->flags_at = dpb_strategy_lines(want->scratch_bytes);
    comm->slots_at = comm->flags_at + n_buckets * sizeof(struct dpb_flag);
    comm->slot_bytes = slot_bytes_of(comm->options, layout, want->bucket_elements);
    want->scratch_bytes =
        comm->slots_at + count_slots(args, layout, want->bucket_elements) * comm->slot_bytes;
    return make_contract(args, &want->contract);
}

static dpb_status allocate(struct reduce *comm)
{
    const struct dpb_arenas *arenas = &comm->base.arenas;
    comm->exchanges = host->alloc(arenas->n_buckets * sizeof *comm->exchanges);
    if (strategy->residual)
        comm->residual = host->alloc(arenas->layout.n_elements * sizeof(float));
    comm->n_state = count_state(comm->options, &arenas->layout, arenas->bucket_elements);
    if (comm->n_state > 0)
        comm->state = host->alloc(comm->n_state * sizeof(float));
    return comm->exchanges && (comm->residual || !strategy->residual) &&
                   (comm->state || comm->n_state == 0)
               ? DPB_OK
               : DPB_NO_MEMORY;
}

static dpb_status move(void *comm, int64_t until_ns, bool *moved)
{
    return dpb_gather_move(((struct reduce *)comm)->gather, until_ns, moved);
}

static dpb_status connect_all(struct reduce *comm)
{
    if (!comm->transport)
        return DPB_OK;
    DPB_TRY(dpb_strategy_open_doorbell(&comm->base, "reduce"));
    const struct dpb_gather_args args = {
        .strategy = &comm->base,
        .slots = {(char *)comm->base.arenas.scratch + comm->slots_at, comm->slot_bytes},
        .transport = comm->transport,
        .members = {.name = "reduce",
                    .members = comm->order,
                    .n_members = comm->base.args.n_workers,
                    .position = comm->position,
                    .doorbell = comm->base.signals.doorbell}};
    comm->transport = NULL; /* the gather's from here on */
    comm->base.pipeline.move = move;
    return dpb_gather_create(&args, &comm->gather);
}

static dpb_status reduce_bind(void *comm_, const struct dpb_arenas *arenas)
{
    struct reduce *comm = comm_;
    float *state;
    DPB_TRY(dpb_strategy_bind(&comm->base, arenas, DPB_STRATEGY_STAGES(stages)));
    DPB_TRY(allocate(comm));
    comm->share = (struct dpb_coded_share){.bucket_elements = (double)arenas->bucket_elements};
    state = comm->state;
    for (uint64_t b = 0; b < arenas->n_buckets; b++) {
        const uint64_t first = b * arenas->bucket_elements;
        struct exchange *x = &comm->exchanges[b];
        x->owner = comm;
        x->bucket =
            (struct dpb_reduce_bucket){.host = host,
                                       .options = comm->options,
                                       .number = b,
                                       .first = first,
                                       .n = dpb_pipeline_bucket_length(&comm->base.pipeline, b),
                                       .rank = comm->base.args.rank,
                                       .n_workers = comm->base.args.n_workers,
                                       .gradients = (float *)arenas->gradients + first,
                                       .residual = comm->residual ? comm->residual + first : NULL,
                                       .state = state,
                                       .messages = comm->messages};
        make_room(x);
        if (state)
            state += strategy->state_elements(comm->options, x->bucket.n);
    }
    return connect_all(comm);
}

static dpb_status reduce_load(void *comm_)
{
    struct reduce *comm = comm_;
    comm->steps = 0;
    if (comm->residual)
        memset(comm->residual, 0, comm->base.arenas.layout.n_elements * sizeof(float));
    if (comm->state)
        memset(comm->state, 0, comm->n_state * sizeof(float));
    return dpb_strategy_load(comm_);
}

/* Books and checkpoints have residuals in units of gradients. */
static dpb_status reduce_begin(void *comm_, const struct dpb_step *step)
{
    struct reduce *comm = comm_;
    const struct dpb_coded_share own = {.bucket_elements =
                                            (double)comm->base.arenas.bucket_elements};
    if ((comm->residual || strategy->late > 0) && comm->scale > 0 && comm->scale != step->scale)
        return host->fail(DPB_UNSUPPORTED,
                          "comm '%s' keeps residuals or late sums, which a changing loss scale "
                          "would change; take another run.precision than fp16",
                          plugin->name);
    if (comm->state)
        DPB_TRY(dpb_coded_check_share(host, own, comm->share));
    comm->scale = step->scale;
    comm->steps += 1;
    DPB_TRY(comm->status);
    return dpb_strategy_begin(comm_, step);
}

static dpb_status reduce_books(void *comm_, struct dpb_books *books)
{
    const struct reduce *comm = comm_;
    const double share = 1.0 / comm->base.args.n_workers;
    books->entries[books->n++] = (struct dpb_book){
        comm->base.arenas.weights, comm->base.arenas.layout.weight_type, share, false};
    if (comm->residual)
        books->entries[books->n++] = (struct dpb_book){comm->residual, DPB_FP32, share, true};
    return DPB_OK;
}

static dpb_status reduce_state(void *comm_, struct dpb_saved *saved)
{
    struct reduce *comm = comm_;
    const uint64_t n = comm->base.arenas.layout.n_elements;
    saved->arrays[saved->n++] = (struct dpb_saved_array){"steps", DPB_FP64, true, 1, &comm->steps};
    if (comm->residual)
        saved->arrays[saved->n++] =
            (struct dpb_saved_array){"residual", DPB_FP32, false, n, comm->residual};
    if (!comm->state)
        return DPB_OK;
    saved->arrays[saved->n++] =
        (struct dpb_saved_array){"state", DPB_FP32, false, comm->n_state, comm->state};
    saved->arrays[saved->n++] = dpb_coded_saved_share(&comm->share);
    return DPB_OK;
}

const struct dpb_comm_ops dpb_reduce_ops = {.open = reduce_open,
                                            .plan = reduce_plan,
                                            .bind = reduce_bind,
                                            .load = reduce_load,
                                            .begin = reduce_begin,
                                            DPB_STRATEGY_HOOKS,
                                            .memory = reduce_memory,
                                            .contract = reduce_contract,
                                            .books = reduce_books,
                                            .state = reduce_state,
                                            .close = reduce_close};

const struct dpb_plugin *dpb_reduce_entry(const struct dpb_host *given,
                                          const struct dpb_plugin *own_plugin,
                                          const struct dpb_reduce_strategy *own)
{
    host = given;
    plugin = dpb_tcp_add_options(given, own_plugin);
    strategy = own;
    return plugin;
}
