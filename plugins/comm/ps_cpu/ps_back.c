/* ps_back.c - see ps_back.h. */
#include "comm/ps_cpu/ps_back.h"

#include <string.h>

/* ---- life ---------------------------------------------------------------------------------- */

static uint64_t answers_bytes(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                              uint64_t bucket_elements)
{
    return dpb_strategy_count_buckets(layout, bucket_elements) *
           dpb_coded_slot_bytes(args->codec, layout, bucket_elements, 0);
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

void ps_back_bind(struct ps_back *back, const struct dpb_strategy *base)
{
    const struct dpb_comm_args *args = &base->args;
    const struct dpb_arenas *arenas = &base->arenas;
    char *kept = (char *)arenas->peer_scratch[keeper_of(args, args->rank)] + back->at;
    back->residual =
        (float *)(void *)(kept + answers_bytes(args, &arenas->layout, arenas->bucket_elements));
    back->answers = (char *)arenas->scratch + back->at;
    back->answer_slot =
        dpb_coded_slot_bytes(args->codec, &arenas->layout, arenas->bucket_elements, 0);
}

/* The shards whose residuals this worker has, as one number. */
static struct dpb_coded_share own_share(const struct dpb_strategy *base)
{
    const struct dpb_comm_args *args = &base->args;
    const struct dpb_rank_set all = ps_shards(args);
    uint64_t kept = 0;
    for (uint32_t shard = all.first; shard < all.first + all.n; shard++)
        if (keeper_of(args, shard) == args->rank)
            kept = (kept * 1021 + shard - all.first + 1) % (UINT64_C(1) << 40);
    return (struct dpb_coded_share){(double)base->arenas.bucket_elements, (double)kept, all.n};
}

void ps_back_load(struct ps_back *back, const struct dpb_strategy *base)
{
    memset(back->residual, 0, residual_bytes(&base->arenas.layout));
    back->share = own_share(base);
}

dpb_status ps_back_begin(const struct ps_back *back, const struct dpb_strategy *base)
{
    return dpb_coded_check_share(base->host, own_share(base), back->share);
}

/* ---- a bucket ------------------------------------------------------------------------------ */

/* The shard that answers. */
static uint32_t owner_of(const struct dpb_strategy *base, uint64_t bucket)
{
    const struct dpb_rank_set all = ps_shards(&base->args);
    return all.first + (uint32_t)((all.n - bucket % all.n) % all.n);
}

/* A shard draws other random numbers than the worker that it is. */
static struct dpb_codec_part part_of(const struct dpb_strategy *base, uint32_t shard,
                                     uint64_t bucket, const struct dpb_coded_message *message)
{
    struct dpb_codec_part part =
        dpb_coded_part(&base->arenas.layout, base->arenas.bucket_elements, bucket);
    part.seed = ~base->args.codec->seed;
    part.step = message->step;
    part.rank = shard;
    part.n_workers = base->args.n_workers;
    return part;
}

/* Where this rank reads the answer of a shard. */
static struct dpb_coded_message *answer_of(const struct ps_back *back,
                                           const struct dpb_strategy *base, uint32_t shard,
                                           uint64_t bucket)
{
    char *answers = ps_is_here(&base->args, shard)
                        ? (char *)base->arenas.peer_scratch[shard] + back->at
                        : back->answers;
    return (struct dpb_coded_message *)(void *)(answers + bucket * back->answer_slot);
}

void ps_back_encode(struct ps_back *back, const struct dpb_strategy *base, uint64_t bucket,
                    const struct dpb_coded_message *message, const float *sum)
{
    const struct dpb_host *host = base->host;
    /* One shard draws for each element, wherever it is. */
    const struct dpb_codec_part part = part_of(base, 0, bucket, message);
    struct dpb_coded_message *answer = answer_of(back, base, base->args.rank, bucket);
    const int64_t began_ns = host->now_ns();
    answer->step = part.step;
    answer->bytes = dpb_coded_fill(base, &part, sum, back->residual + part.first, answer->content);
    const int64_t ended_ns = host->now_ns();
    host->coding(&(struct dpb_coding){.encode_ns = ended_ns - began_ns});
    host->span(bucket, DPB_PHASE_REDUCE, began_ns, ended_ns);
}

static dpb_status take(const struct ps_back *back, const struct dpb_strategy *base,
                       const struct dpb_codec_part *part, const struct dpb_coded_message *answer,
                       float *gradients)
{
    const struct dpb_codec *codec = base->args.codec;
    const uint64_t bytes = answer->bytes; /* once: it may be a peer's memory */
    const uint64_t room = back->answer_slot - sizeof *answer;
    const bool plain = dpb_coded_is_plain(base, part->step);
    if (ps_is_here(&base->args, part->rank) && answer->step != part->step)
        return base->host->fail(DPB_FAILED, "rank %u's answer is of step %llu, not of step %llu",
                                part->rank, (unsigned long long)answer->step,
                                (unsigned long long)part->step);
    if (bytes > room || (plain && bytes != part->n * sizeof *gradients))
        return base->host->fail(
            DPB_FAILED,
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

void ps_back_decode(struct ps_back *back, const struct dpb_strategy *base, uint64_t bucket)
{
    const uint32_t shard = owner_of(base, bucket);
    const struct dpb_coded_message *own = dpb_coded_message(base, base->args.rank, bucket);
    const struct dpb_codec_part part = part_of(base, shard, bucket, own);
    const struct dpb_coded_message *answer = answer_of(back, base, shard, bucket);
    const int64_t began_ns = base->host->now_ns();
    if (back->status == DPB_OK) /* the first that is refused ends the exchange */
        back->status =
            take(back, base, &part, answer, dpb_strategy_own_gradients(base, part.first));
    if (shard != base->args.rank && ps_is_here(&base->args, shard)) /* a server counts nothing */
        base->host->count_bytes(answer->bytes + (base->args.n_servers > 0 ? own->bytes : 0));
    base->host->coding(&(struct dpb_coding){.decode_ns = base->host->now_ns() - began_ns});
}

void ps_back_books(const struct ps_back *back, const struct dpb_strategy *base,
                   struct dpb_books *books)
{
    books->entries[books->n++] =
        (struct dpb_book){back->residual, DPB_FP32, 1.0 / base->args.n_workers, true};
}

void ps_back_state(struct ps_back *back, const struct dpb_strategy *base, struct dpb_saved *saved)
{
    saved->arrays[saved->n++] = (struct dpb_saved_array){
        "back", DPB_FP32, false, base->arenas.layout.n_elements, back->residual};
    saved->arrays[saved->n++] = dpb_coded_saved_share(&back->share);
}
