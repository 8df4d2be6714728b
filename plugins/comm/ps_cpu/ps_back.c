/* ps_back.c - see ps_back.h. */
#include "comm/ps_cpu/ps_back.h"

#include <string.h>

/* ---- life ---------------------------------------------------------------------------------- */

static uint64_t answers_bytes(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                              uint64_t bucket_elements)
{
    return strategy_count_buckets(layout, bucket_elements) *
           coded_slot_bytes(args->codec, layout, bucket_elements, 0);
}

static uint64_t residual_bytes(const struct dpb_layout *layout)
{
    return layout->n_elements * sizeof(float);
}

uint64_t ps_back_bytes(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                       uint64_t bucket_elements)
{
    return answers_bytes(args, layout, bucket_elements) + residual_bytes(layout);
}

/* The worker that has the residual of a shard. */
static uint32_t keeper_of(const struct dpb_comm_args *args, uint32_t shard)
{
    uint32_t worker = 0;
    if (shard < args->n_workers)
        return shard;
    while (args->machines[worker] != args->machines[shard])
        worker++;
    return worker;
}

void ps_back_bind(struct ps *ps, const struct dpb_arenas *arenas)
{
    const struct dpb_comm_args *args = &ps->base.args;
    char *kept = (char *)arenas->peer_scratch[keeper_of(args, args->rank)] + ps->back_at;
    ps->back_residual =
        (float *)(void *)(kept + answers_bytes(args, &arenas->layout, arenas->bucket_elements));
    ps->memory.answers = (char *)arenas->scratch + ps->back_at;
    ps->memory.answer_slot =
        coded_slot_bytes(args->codec, &arenas->layout, arenas->bucket_elements, 0);
}

/* The shards whose residuals this worker has, as one number. */
static struct coded_share own_share(const struct ps *ps)
{
    const struct dpb_comm_args *args = &ps->base.args;
    const struct rank_set all = ps_shards(args);
    uint64_t kept = 0;
    for (uint32_t shard = all.first; shard < all.first + all.n; shard++)
        if (keeper_of(args, shard) == args->rank)
            kept = (kept * 1021 + shard - all.first + 1) % (UINT64_C(1) << 40);
    return (struct coded_share){(double)ps->base.arenas.bucket_elements, (double)kept, all.n};
}

void ps_back_load(struct ps *ps)
{
    memset(ps->back_residual, 0, residual_bytes(&ps->base.arenas.layout));
    ps->back_share = own_share(ps);
}

dpb_status ps_back_begin(struct ps *ps)
{
    return coded_check_share(ps_host, own_share(ps), ps->back_share);
}

/* ---- a bucket ------------------------------------------------------------------------------ */

/* The shard that answers. */
static uint32_t owner_of(const struct ps *ps, uint64_t bucket)
{
    const struct rank_set all = ps_shards(&ps->base.args);
    return all.first + (uint32_t)((all.n - bucket % all.n) % all.n);
}

/* A shard draws other random numbers than the worker that it is. */
static struct dpb_codec_part part_of(const struct ps *ps, uint32_t shard, uint64_t bucket,
                                     const struct coded_message *message)
{
    const struct strategy *base = &ps->base;
    struct dpb_codec_part part =
        coded_part(&base->arenas.layout, base->arenas.bucket_elements, bucket);
    part.seed = ~base->args.codec->seed;
    part.step = message->step;
    part.rank = shard;
    part.n_workers = base->args.n_workers;
    return part;
}

/* Where this rank reads the answer of a shard. */
static struct coded_message *answer_of(const struct ps *ps, uint32_t shard, uint64_t bucket)
{
    const struct strategy *base = &ps->base;
    char *answers = ps_is_here(&base->args, shard)
                        ? (char *)base->arenas.peer_scratch[shard] + ps->back_at
                        : ps->memory.answers;
    return (struct coded_message *)(void *)(answers + bucket * ps->memory.answer_slot);
}

void ps_back_encode(struct ps *ps, uint64_t bucket)
{
    const struct coded_message *message = ps->sources[0];
    /* One shard draws for each element, wherever it is. */
    const struct dpb_codec_part part = part_of(ps, 0, bucket, message);
    struct coded_message *answer = answer_of(ps, ps->base.args.rank, bucket);
    const int64_t began_ns = ps_host->now_ns();
    answer->step = part.step;
    answer->bytes =
        coded_fill(&ps->base, &part, ps->sum, ps->back_residual + part.first, answer->content);
    const int64_t ended_ns = ps_host->now_ns();
    ps_host->coding(&(struct dpb_coding){.encode_ns = ended_ns - began_ns});
    ps_host->span(bucket, DPB_PHASE_REDUCE, began_ns, ended_ns);
}

static dpb_status take(const struct ps *ps, const struct dpb_codec_part *part,
                       const struct coded_message *answer, float *gradients)
{
    const struct dpb_codec *codec = ps->base.args.codec;
    const uint64_t bytes = answer->bytes; /* once: it may be a peer's memory */
    const uint64_t room = ps->memory.answer_slot - sizeof *answer;
    const bool plain = coded_is_plain(&ps->base, part->step);
    if (ps_is_here(&ps->base.args, part->rank) && answer->step != part->step)
        return ps_host->fail(DPB_FAILED, "rank %u's answer is of step %llu, not of step %llu",
                             part->rank, (unsigned long long)answer->step,
                             (unsigned long long)part->step);
    if (bytes > room || (plain && bytes != part->n * sizeof *gradients))
        return ps_host->fail(DPB_FAILED,
                             "rank %u answered with %llu bytes for %llu elements of step %llu: do "
                             "all ranks run the same training?",
                             part->rank, (unsigned long long)bytes, (unsigned long long)part->n,
                             (unsigned long long)part->step);
    if (plain) {
        memcpy(gradients, answer->content, bytes);
        return DPB_OK;
    }
    memset(gradients, 0, part->n * sizeof *gradients);
    return codec->ops->decode(codec->options, part, answer->content, bytes, gradients);
}

void ps_back_decode(struct ps *ps, uint64_t bucket, uint64_t length)
{
    const struct strategy *base = &ps->base;
    const uint32_t shard = owner_of(ps, bucket);
    const struct coded_message *own = coded_message(base, base->args.rank, bucket);
    const struct dpb_codec_part part = part_of(ps, shard, bucket, own);
    const struct coded_message *answer = answer_of(ps, shard, bucket);
    const int64_t began_ns = ps_host->now_ns();
    (void)length;
    if (ps->back_status == DPB_OK) /* the first that is refused ends the exchange */
        ps->back_status =
            take(ps, &part, answer, strategy_gradients(base, base->args.rank, part.first));
    if (shard != base->args.rank && ps_is_here(&base->args, shard)) /* a server counts nothing */
        ps_host->count_bytes(answer->bytes + (base->args.n_servers > 0 ? own->bytes : 0));
    ps_host->coding(&(struct dpb_coding){.decode_ns = ps_host->now_ns() - began_ns});
}

bool ps_back_update_due(void *strategy, uint64_t bucket)
{
    (void)bucket;
    return ((const struct ps *)strategy)->back_status == DPB_OK;
}

dpb_status ps_back_update_wait(void *strategy, uint64_t bucket)
{
    (void)bucket;
    return ((const struct ps *)strategy)->back_status;
}

/* ---- hooks --------------------------------------------------------------------------------- */

dpb_status ps_back_books(void *comm, struct dpb_books *books)
{
    const struct ps *ps = comm;
    DPB_TRY(coded_books(comm, books));
    if (ps->codes_back)
        books->entries[books->n++] =
            (struct dpb_book){ps->back_residual, DPB_FP32, 1.0 / ps->base.args.n_workers, true};
    return DPB_OK;
}

dpb_status ps_back_state(void *comm, struct dpb_saved *saved)
{
    struct ps *ps = comm;
    DPB_TRY(coded_state(comm, saved));
    if (!ps->codes_back)
        return DPB_OK;
    saved->arrays[saved->n++] = (struct dpb_saved_array){
        "back", DPB_FP32, false, ps->base.arenas.layout.n_elements, ps->back_residual};
    saved->arrays[saved->n++] = coded_saved_share(&ps->back_share);
    return DPB_OK;
}
