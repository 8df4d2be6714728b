/* coded.c - see coded.h: a bucket's messages, encoded and decoded. */
#include <string.h>

#include "lib/coded/coded_state.h"

/* ---- a bucket ------------------------------------------------------------------------------ */

struct dpb_codec_part coded_part_of(const struct strategy *strategy, uint32_t rank, uint64_t bucket,
                                    uint32_t round, uint64_t step)
{
    const struct coded *coded = strategy->coded;
    struct dpb_codec_part part =
        coded_part(&strategy->arenas.layout, strategy->arenas.bucket_elements, bucket);
    part.seed = strategy->args.codec->seed;
    part.step = step;
    part.rank = signals_rank(&strategy->signals, rank);
    part.round = round;
    part.n_workers = strategy->args.n_workers;
    part.state = coded->state ? coded->state + coded->state_at[bucket] : NULL;
    part.velocity = coded->velocity ? coded->velocity + part.first : NULL;
    part.added = coded->velocity ? part.velocity + strategy->arenas.layout.n_elements : NULL;
    return part;
}

uint64_t coded_content_bytes(const struct strategy *strategy, uint64_t slot)
{
    return strategy->coded->slot_bytes[slot / strategy->arenas.n_buckets] -
           sizeof(struct coded_message);
}

void *coded_memory_of(const struct strategy *strategy, uint64_t *bytes)
{
    const struct coded *coded = strategy->coded;
    *bytes = coded_messages_bytes(&strategy->args, &strategy->arenas.layout,
                                  strategy->arenas.bucket_elements, coded->way);
    return (char *)strategy->arenas.scratch + coded->at;
}

uint64_t coded_slot(const struct strategy *strategy, uint64_t bucket, uint32_t round)
{
    return round * strategy->arenas.n_buckets + bucket;
}

struct coded_message *coded_message(const struct strategy *strategy, uint32_t rank, uint64_t slot)
{
    const struct coded *coded = strategy->coded;
    const uint64_t worker = coded->way == CODED_GATHERED ? rank : 0;
    const uint32_t n_banks = coded_banks(coded->way);
    const uint64_t bank = worker * n_banks + strategy->signals.exchange % n_banks;
    const uint64_t *bytes = coded->slot_bytes, n = strategy->arenas.n_buckets;
    const uint64_t first = slot < n ? slot : n, second = slot - first;
    char *memory = coded->place                 ? strategy->arenas.peer_inbox[rank]
                   : coded->way == CODED_SHARED ? strategy->arenas.peer_scratch[rank]
                                                : strategy->arenas.scratch;
    memory += coded->at + (bank * n + first) * bytes[0] + (bank * n + second) * bytes[1];
    return (struct coded_message *)(void *)memory;
}

/* Several sums at a time: one alone would wait for itself. */
double coded_sum_squares(const float *values, uint64_t n)
{
    double sums[8] = {0}, sum = 0;
    for (uint64_t i = 0; i + 8 <= n; i += 8)
        for (uint64_t k = 0; k < 8; k++)
            sums[k] += (double)values[i + k] * (double)values[i + k];
    for (uint64_t i = n / 8 * 8; i < n; i++)
        sum += (double)values[i] * (double)values[i];
    for (uint64_t k = 0; k < 8; k++)
        sum += sums[k];
    return sum;
}

/* ---- the steps before the codec begins ----------------------------------------------------- */

/* Steps count from 1 where weights were loaded; a resumed training continues the count. */
bool coded_is_plain(const struct strategy *strategy, uint64_t step)
{
    return step <= (uint64_t)strategy->args.codec->options->start_step;
}

bool coded_finishes(const struct strategy *strategy, const struct dpb_codec_part *part)
{
    return strategy->args.codec->ops->finish && !coded_is_plain(strategy, part->step);
}

uint64_t coded_elements_of_round(const struct strategy *strategy, const struct dpb_codec_part *part)
{
    return part->round + 1 == coded_rounds(strategy->args.codec) ? part->n : 0;
}

static dpb_status add_plain(const struct strategy *strategy, const struct dpb_codec_part *part,
                            const struct coded_message *message, uint64_t bytes, float *sum)
{
    const float *gradients = (const void *)message->content;
    const uint64_t n = coded_elements_of_round(strategy, part);
    if (bytes != n * sizeof *gradients)
        return strategy->host->fail(DPB_FAILED,
                                    "rank %u sent %llu bytes for %llu elements of step %llu, which "
                                    "comm.codec_start_step = %lld leaves as they are: do all ranks "
                                    "run the same training?",
                                    part->rank, (unsigned long long)bytes, (unsigned long long)n,
                                    (unsigned long long)part->step,
                                    (long long)strategy->args.codec->options->start_step);
    for (uint64_t i = 0; i < n; i++)
        sum[i] += gradients[i];
    return DPB_OK;
}

/* ---- encoding and decoding ----------------------------------------------------------------- */

/* The residual that the codec works on: zeros without feedback, where there is none. */
static float *begin_residual(const struct strategy *strategy, const struct dpb_codec_part *part)
{
    const struct coded *coded = strategy->coded;
    if (!coded->dropped)
        return coded->residual + part->first;
    memset(coded->dropped, 0, part->n * sizeof(float));
    return coded->dropped;
}

struct dpb_range coded_sample(const struct dpb_codec_part *part)
{
    const uint64_t n = part->n < CODED_SAMPLE ? part->n : CODED_SAMPLE;
    const uint64_t begin = part->step * CODED_SAMPLE % (part->n - n + 1);
    return (struct dpb_range){begin, begin + n};
}

static double sample_squares(const float *values, const struct dpb_codec_part *part)
{
    const struct dpb_range sample = coded_sample(part);
    return coded_sum_squares(values + sample.begin, sample.end - sample.begin);
}

/* The codec has written the residual of begin_residual. */
static void end_residual(const struct strategy *strategy, const struct dpb_codec_part *part,
                         struct dpb_coding *coding)
{
    const struct coded *coded = strategy->coded;
    float *residual = coded->residual + part->first;
    if (coded->dropped)
        strategy->host->vec->axpby(DPB_FP32, 1.0, coded->dropped, 1.0, residual, part->n);
    coding->residual = sample_squares(coded->dropped ? coded->dropped : residual, part);
}

uint64_t coded_fill(const struct strategy *strategy, const struct dpb_codec_part *part,
                    const float *gradients, float *residual, void *content)
{
    const struct dpb_codec *codec = strategy->args.codec;
    if (!coded_is_plain(strategy, part->step))
        return codec->ops->encode(codec->options, part, gradients, residual, content);
    const uint64_t bytes = coded_elements_of_round(strategy, part) * sizeof *gradients;
    memcpy(content, gradients, bytes);
    return bytes;
}

void coded_encode(struct strategy *strategy, uint64_t bucket, uint32_t round)
{
    const struct dpb_host *host = strategy->host;
    const struct dpb_codec_part part = coded_part_of(strategy, strategy->args.rank, bucket, round,
                                                     (uint64_t)strategy->coded->steps);
    struct coded_message *message =
        coded_message(strategy, strategy->args.rank, coded_slot(strategy, bucket, round));
    const float *gradients = strategy_gradients(strategy, strategy->args.rank, part.first);
    struct dpb_coding coding = {.elements = round == 0 ? part.n : 0};
    const int64_t began_ns = host->now_ns();
    message->step = part.step;
    message->bytes = coding.message_bytes =
        coded_fill(strategy, &part, gradients, begin_residual(strategy, &part), message->content);
    const int64_t ended_ns = host->now_ns();
    coding.encode_ns = ended_ns - began_ns;
    if (round == 0)
        coding.gradients = sample_squares(gradients, &part);
    if (!coded_finishes(strategy, &part))
        end_residual(strategy, &part, &coding);
    host->coding(&coding);
    host->span(bucket, DPB_PHASE_REDUCE, began_ns, ended_ns);
}

static dpb_status add_message(const struct strategy *strategy, const struct dpb_codec_part *part,
                              const struct coded_message *message, uint64_t bucket, float *sum)
{
    const struct dpb_codec *codec = strategy->args.codec;
    const uint64_t bytes = message->bytes; /* once: it may be a peer's memory */
    if (bytes > coded_content_bytes(strategy, coded_slot(strategy, bucket, part->round)))
        return strategy->host->fail(
            DPB_FAILED, "rank %u left a message of %llu bytes for bucket %llu", part->rank,
            (unsigned long long)bytes, (unsigned long long)bucket);
    if (coded_is_plain(strategy, part->step))
        return add_plain(strategy, part, message, bytes, sum);
    return codec->ops->decode(codec->options, part, message->content, bytes, sum);
}

static void sum_messages(struct strategy *strategy, uint64_t bucket, uint32_t round,
                         const struct coded_message *const *messages, float *sum, uint64_t bytes)
{
    struct coded *coded = strategy->coded;
    const struct dpb_host *host = strategy->host;
    const int64_t began_ns = host->now_ns();
    memset(sum, 0, bytes);
    for (uint32_t rank = 0; rank < strategy->args.n_workers && coded->status == DPB_OK; rank++) {
        const uint64_t step =
            strategy->args.role == DPB_SERVER ? messages[rank]->step : (uint64_t)coded->steps;
        const struct dpb_codec_part part = coded_part_of(strategy, rank, bucket, round, step);
        coded->status = add_message(strategy, &part, messages[rank], bucket, sum);
    }
    const int64_t ended_ns = host->now_ns();
    host->coding(&(struct dpb_coding){.decode_ns = ended_ns - began_ns});
    host->span(bucket, DPB_PHASE_REDUCE, began_ns, ended_ns);
}

void coded_sum(struct strategy *strategy, uint64_t bucket,
               const struct coded_message *const *messages, float *sum)
{
    sum_messages(strategy, bucket, 0, messages, sum,
                 pipeline_bucket_length(&strategy->pipeline, bucket) * sizeof *sum);
}

/* Once a bucket, whatever the number of workers: it counts to encoding. */
static void finish(struct strategy *strategy, const struct dpb_codec_part *part, uint64_t bucket,
                   const float *sum, float *gradients)
{
    const struct dpb_host *host = strategy->host;
    const struct dpb_codec *codec = strategy->args.codec;
    struct dpb_coding coding = {0};
    const int64_t began_ns = host->now_ns();
    codec->ops->finish(codec->options, part, sum, gradients, begin_residual(strategy, part));
    const int64_t ended_ns = host->now_ns();
    coding.encode_ns = ended_ns - began_ns;
    if (part->round + 1 == DPB_CODEC_ROUNDS)
        end_residual(strategy, part, &coding);
    host->coding(&coding);
    host->span(bucket, DPB_PHASE_REDUCE, began_ns, ended_ns);
}

void coded_decode(struct strategy *strategy, uint64_t bucket, uint32_t round)
{
    struct coded *coded = strategy->coded;
    const struct coded_message *messages[STRATEGY_WORKERS];
    if (coded->way == CODED_SHARED && round == 0)
        signals_span_late_peer(&strategy->signals, strategy_workers(strategy), bucket);
    for (uint32_t rank = 0; rank < strategy->args.n_workers; rank++) {
        messages[rank] = coded_message(strategy, rank, coded_slot(strategy, bucket, round));
        if (coded->way == CODED_SHARED && rank != strategy->args.rank)
            strategy->host->count_bytes(messages[rank]->bytes);
    }
    const struct dpb_codec_part part =
        coded_part_of(strategy, strategy->args.rank, bucket, round, (uint64_t)coded->steps);
    const struct dpb_codec *codec = strategy->args.codec;
    float *gradients = strategy_gradients(strategy, strategy->args.rank, part.first);
    if (!coded_finishes(strategy, &part)) {
        const uint64_t n = coded_elements_of_round(strategy, &part);
        sum_messages(strategy, bucket, round, messages, n > 0 ? gradients : coded->sum,
                     n * sizeof *gradients);
        return;
    }
    sum_messages(strategy, bucket, round, messages, coded->sum,
                 codec->ops->bytes(codec->options, &part));
    if (coded->status == DPB_OK)
        finish(strategy, &part, bucket, coded->sum, gradients);
}

void coded_take_sum(struct strategy *strategy, uint64_t bucket, uint32_t round)
{
    const struct dpb_codec_part part = coded_part_of(strategy, strategy->args.rank, bucket, round,
                                                     (uint64_t)strategy->coded->steps);
    const struct coded_message *message =
        coded_message(strategy, strategy->args.rank, coded_slot(strategy, bucket, round));
    const float *sum = (const void *)message->content;
    float *gradients = strategy_gradients(strategy, strategy->args.rank, part.first);
    if (coded_finishes(strategy, &part))
        finish(strategy, &part, bucket, sum, gradients);
    else
        memcpy(gradients, sum, coded_elements_of_round(strategy, &part) * sizeof *gradients);
}

dpb_status coded_status(const struct strategy *strategy)
{
    return strategy->coded ? strategy->coded->status : DPB_OK;
}

dpb_status coded_begin(struct strategy *strategy)
{
    strategy->coded->steps += 1;
    memset(strategy->sums.encoded, 0, sizeof strategy->sums.encoded);
    memset(strategy->sums.posted, 0, sizeof strategy->sums.posted);
    return coded_status(strategy);
}
