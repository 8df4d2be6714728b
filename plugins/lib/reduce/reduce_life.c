/* reduce_life.c - see reduce.h: memory, contract, books and state, from open to close. */
#include <stdlib.h>
#include <string.h>

#include "lib/mesh/mesh_tcp.h"
#include "lib/reduce/reduce_state.h"

static const struct dpb_host *host;
static const struct dpb_plugin *plugin;
static const struct reduce_strategy *strategy;

/* ---- sizes --------------------------------------------------------------------------------- */

static uint64_t slot_bytes_of(const void *options, const struct dpb_layout *layout,
                              uint64_t bucket_elements)
{
    const uint64_t n = strategy_longest_bucket(layout, bucket_elements);
    return sizeof(struct coded_message) + strategy_lines(strategy->message_bytes
                                                             ? strategy->message_bytes(options, n)
                                                             : n * sizeof(float) + DPB_CACHE_LINE);
}

static uint64_t count_state(const void *options, const struct dpb_layout *layout,
                            uint64_t bucket_elements)
{
    uint64_t n = 0;
    for (uint64_t b = 0;
         strategy->state_elements && b < strategy_count_buckets(layout, bucket_elements); b++)
        n += strategy->state_elements(options, strategy_bucket_length(layout, bucket_elements, b));
    return n;
}

static uint64_t count_slots(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                            uint64_t bucket_elements)
{
    return gather_slot(strategy_count_buckets(layout, bucket_elements),
                       reduce_goes_across(args) ? args->n_workers : 1, 0, 0);
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
                          "comm '%s': struct reduce_strategy has `late` and `residual`, which "
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
    return reduce_goes_across(args)
               ? tcp_check_port(host, tcp_options_of(plugin, options), args->n_workers - 1)
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
    gather_destroy(comm->gather);
    free(comm->order);
    host->release(comm->exchanges, comm->base.arenas.n_buckets * sizeof *comm->exchanges);
    host->release(comm->residual, comm->base.arenas.layout.n_elements * sizeof(float));
    host->release(comm->state, comm->n_state * sizeof(float));
    host->release(comm->options, plugin->options_size);
    strategy_close(comm);
}

static dpb_status open_across(struct reduce *comm)
{
    if (!reduce_goes_across(&comm->base.args))
        return DPB_OK;
    DPB_TRY(strategy_order(&comm->base, &comm->order, &comm->position));
    return mesh_tcp_create(host, tcp_options_of(plugin, comm->options), false, &comm->transport);
}

static dpb_status reduce_open(const void *options, const struct dpb_comm_args *args, void **made)
{
    struct reduce *comm;
    void *opened;
    DPB_TRY(strategy_open(host, args, sizeof *comm, &opened));
    comm = opened;
    comm->strategy = strategy;
    comm->name = plugin->name;
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
    DPB_TRY(strategy_plan_replica(&comm->base, layout,
                                  reduce_goes_across(args) ? DPB_MEMORY_PRIVATE : DPB_MEMORY_SHARED,
                                  want));
    want->gradients = DPB_MEMORY_PRIVATE;
    const uint64_t n_buckets = strategy_count_buckets(layout, want->bucket_elements);
    comm->flags_at = strategy_lines(want->scratch_bytes);
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
    return gather_move(((struct reduce *)comm)->gather, until_ns, moved);
}

static dpb_status connect_all(struct reduce *comm)
{
    if (!comm->transport)
        return DPB_OK;
    DPB_TRY(strategy_open_doorbell(&comm->base, "reduce"));
    const struct gather_args args = {
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
    return gather_create(&args, &comm->gather);
}

static dpb_status reduce_bind(void *comm_, const struct dpb_arenas *arenas)
{
    struct reduce *comm = comm_;
    float *state;
    DPB_TRY(strategy_bind(&comm->base, arenas, reduce_stages, REDUCE_STAGES));
    DPB_TRY(allocate(comm));
    comm->share = (struct coded_share){.bucket_elements = (double)arenas->bucket_elements};
    state = comm->state;
    for (uint64_t b = 0; b < arenas->n_buckets; b++) {
        const uint64_t first = b * arenas->bucket_elements;
        struct exchange *x = &comm->exchanges[b];
        x->owner = comm;
        x->bucket =
            (struct reduce_bucket){.host = host,
                                   .options = comm->options,
                                   .number = b,
                                   .first = first,
                                   .n = pipeline_bucket_length(&comm->base.pipeline, b),
                                   .rank = comm->base.args.rank,
                                   .n_workers = comm->base.args.n_workers,
                                   .gradients = (float *)arenas->gradients + first,
                                   .residual = comm->residual ? comm->residual + first : NULL,
                                   .state = state,
                                   .messages = comm->messages};
        reduce_make_room(x);
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
    return strategy_load(comm_);
}

/* Books and checkpoints have residuals in units of gradients. */
static dpb_status reduce_begin(void *comm_, const struct dpb_step *step)
{
    struct reduce *comm = comm_;
    const struct coded_share own = {.bucket_elements = (double)comm->base.arenas.bucket_elements};
    if ((comm->residual || strategy->late > 0) && comm->scale > 0 && comm->scale != step->scale)
        return host->fail(DPB_UNSUPPORTED,
                          "comm '%s' keeps residuals or late sums, which a changing loss scale "
                          "would change; take another run.precision than fp16",
                          plugin->name);
    if (comm->state)
        DPB_TRY(coded_check_share(host, own, comm->share));
    comm->scale = step->scale;
    comm->steps += 1;
    DPB_TRY(comm->status);
    return strategy_begin(comm_, step);
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
    saved->arrays[saved->n++] = coded_saved_share(&comm->share);
    return DPB_OK;
}

const struct dpb_comm_ops reduce_ops = {.open = reduce_open,
                                        .plan = reduce_plan,
                                        .bind = reduce_bind,
                                        .load = reduce_load,
                                        .begin = reduce_begin,
                                        STRATEGY_HOOKS,
                                        .memory = reduce_memory,
                                        .contract = reduce_contract,
                                        .books = reduce_books,
                                        .state = reduce_state,
                                        .close = reduce_close};

const struct dpb_plugin *reduce_entry(const struct dpb_host *given,
                                      const struct dpb_plugin *own_plugin,
                                      const struct reduce_strategy *own)
{
    host = given;
    plugin = tcp_add_options(given, own_plugin);
    strategy = own;
    return plugin;
}
