/* ps_back.c - see ps_back.h. */
#include "comm/ps_cpu/ps_back.h"

#include <string.h>

/* ---- life ---------------------------------------------------------------------------------- */

uint64_t ps_back_bytes(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                       uint64_t bucket_elements)
{
    return strategy_count_buckets(layout, bucket_elements) *
           coded_slot_bytes(args->codec, layout, bucket_elements, 0);
}

uint64_t ps_back_residual_bytes(const struct dpb_layout *layout)
{
    return layout->n_elements * sizeof(float);
}

dpb_status ps_back_bind(struct ps *ps, const struct dpb_arenas *arenas)
{
    ps->back_residual = ps_host->alloc(ps_back_residual_bytes(&arenas->layout));
    if (!ps->back_residual)
        return DPB_NO_MEMORY;
    ps->memory.answers = (char *)arenas->scratch + ps->back_at;
    ps->memory.answer_slot =
        coded_slot_bytes(ps->base.args.codec, &arenas->layout, arenas->bucket_elements, 0);
    return DPB_OK;
}

void ps_back_load(struct ps *ps)
{
    memset(ps->back_residual, 0, ps_back_residual_bytes(&ps->base.arenas.layout));
}

void ps_back_close(struct ps *ps)
{
    ps_host->release(ps->back_residual, ps_back_residual_bytes(&ps->base.arenas.layout));
}

/* ---- a bucket ------------------------------------------------------------------------------ */

/* The shard that answers. */
static uint32_t owner_of(const struct ps *ps, uint64_t bucket)
{
    const struct rank_set all = ps_shards(&ps->base.args);
    return all.first + (uint32_t)((all.n - bucket % all.n) % all.n);
}

/* A shard draws other random numbers than the worker that it is. */
static struct dpb_codec_part part_of(const struct ps *ps, uint32_t shard, uint64_t bucket)
{
    const struct strategy *base = &ps->base;
    struct dpb_codec_part part =
        coded_part(&base->arenas.layout, base->arenas.bucket_elements, bucket);
    part.seed = ~base->args.codec->seed;
    part.step = coded_message(base, base->args.rank, bucket)->step;
    part.rank = shard;
    part.n_workers = base->args.n_workers;
    return part;
}

static bool is_plain(const struct ps *ps, const struct dpb_codec_part *part)
{
    return part->step <= (uint64_t)ps->base.args.codec->options->start_step;
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
    const struct dpb_codec *codec = ps->base.args.codec;
    const struct dpb_codec_part part = part_of(ps, ps->base.args.rank, bucket);
    struct coded_message *answer = answer_of(ps, part.rank, bucket);
    const int64_t began_ns = ps_host->now_ns();
    answer->step = part.step;
    if (is_plain(ps, &part)) {
        answer->bytes = part.n * sizeof(float);
        memcpy(answer->content, ps->sum, answer->bytes);
    } else {
        answer->bytes = codec->ops->encode(codec->options, &part, ps->sum,
                                           ps->back_residual + part.first, answer->content);
    }
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
    if (ps_is_here(&ps->base.args, part->rank) && answer->step != part->step)
        return ps_host->fail(DPB_FAILED, "rank %u's answer is of step %llu, not of step %llu",
                             part->rank, (unsigned long long)answer->step,
                             (unsigned long long)part->step);
    if (bytes > room || (is_plain(ps, part) && bytes != part->n * sizeof *gradients))
        return ps_host->fail(DPB_FAILED,
                             "rank %u answered with %llu bytes for %llu elements of step %llu: do "
                             "all ranks run the same training?",
                             part->rank, (unsigned long long)bytes, (unsigned long long)part->n,
                             (unsigned long long)part->step);
    if (is_plain(ps, part)) {
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
    const struct dpb_codec_part part = part_of(ps, shard, bucket);
    const struct coded_message *answer = answer_of(ps, shard, bucket);
    const int64_t began_ns = ps_host->now_ns();
    (void)length;
    if (ps->back_status == DPB_OK) /* the first that is refused ends the exchange */
        ps->back_status =
            take(ps, &part, answer, strategy_gradients(base, base->args.rank, part.first));
    if (shard != base->args.rank && ps_is_here(&base->args, shard))
        ps_host->count_bytes(answer->bytes);
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
    const struct ps *ps = comm;
    DPB_TRY(coded_state(comm, saved));
    if (ps->codes_back)
        saved->arrays[saved->n++] = (struct dpb_saved_array){
            "back", DPB_FP32, false, ps->base.arenas.layout.n_elements, ps->back_residual};
    return DPB_OK;
}
