/* coded_stages.c - see coded.h: a bucket's way through a strategy that carries a codec. */
#include <string.h>

#include "lib/coded/coded.h"

/* ---- stages: encode, for each round gather and decode, update ------------------------------- */

static void encode_round(struct strategy *comm, uint64_t bucket, uint32_t round)
{
    coded_encode(comm, bucket, round);
    comm->carrier->post(comm, bucket, round);
}

static void encode(void *strategy, uint64_t bucket, struct stage_turn *turn)
{
    encode_round(strategy, bucket, 0);
    turn->at = turn->length;
}

static bool decode_due(void *strategy, uint64_t bucket)
{
    return ((const struct strategy *)strategy)->carrier->here(strategy, bucket, 0);
}

static dpb_status decode_wait(void *strategy, uint64_t bucket)
{
    return ((const struct strategy *)strategy)->carrier->wait(strategy, bucket, 0);
}

static void decode(void *strategy, uint64_t bucket, struct stage_turn *turn)
{
    ((const struct strategy *)strategy)->carrier->take(strategy, bucket, 0);
    turn->at = turn->length;
}

/* The second round: decode_again ends it. */
static void answer(void *strategy, uint64_t bucket, struct stage_turn *turn)
{
    decode(strategy, bucket, turn);
    encode_round(strategy, bucket, 1);
}

static bool again_due(void *strategy, uint64_t bucket)
{
    return ((const struct strategy *)strategy)->carrier->here(strategy, bucket, 1);
}

static dpb_status again_wait(void *strategy, uint64_t bucket)
{
    return ((const struct strategy *)strategy)->carrier->wait(strategy, bucket, 1);
}

static void decode_again(void *strategy, uint64_t bucket, struct stage_turn *turn)
{
    ((const struct strategy *)strategy)->carrier->take(strategy, bucket, 1);
    turn->at = turn->length;
}

static bool update_due(void *strategy, uint64_t bucket)
{
    (void)bucket;
    return coded_status(strategy) == DPB_OK;
}

static dpb_status update_wait(void *strategy, uint64_t bucket)
{
    (void)bucket;
    return coded_status(strategy);
}

/* No device writes the gradients between tensors, and a codec may decode 0 to another number. That
 * number would be encoded with the next step's gradients, so the update clears the gradients. */
void coded_update(void *strategy_, uint64_t bucket, struct stage_turn *turn)
{
    const struct strategy *strategy = strategy_;
    const uint64_t begin = turn->at;
    strategy_update_bucket(strategy_, bucket, turn);
    memset(strategy_gradients(strategy, strategy->args.rank,
                              bucket * strategy->arenas.bucket_elements + begin),
           0, (turn->at - begin) * sizeof(float));
}

dpb_status coded_bind_stages(struct strategy *strategy, const struct dpb_arenas *arenas,
                             const struct coded_carrier *carrier)
{
    static const struct stage one[] = {{strategy_own_ready, encode, strategy_own_wait},
                                       {decode_due, decode, decode_wait},
                                       {update_due, coded_update, update_wait}};
    static const struct stage two[] = {{strategy_own_ready, encode, strategy_own_wait},
                                       {decode_due, answer, decode_wait},
                                       {again_due, decode_again, again_wait},
                                       {update_due, coded_update, update_wait}};
    const bool twice = coded_rounds(strategy->args.codec) > 1;
    strategy->carrier = carrier;
    DPB_TRY(strategy_bind(strategy, arenas, twice ? two : one,
                          twice ? sizeof two / sizeof *two : sizeof one / sizeof *one));
    return coded_bind(strategy);
}

/* ---- messages in memory that all workers share --------------------------------------------- */

static const enum signal_kind there[DPB_CODEC_ROUNDS] = {SIGNAL_PUSHED, SIGNAL_ANSWERED};

static void raise_message(struct strategy *comm, uint64_t bucket, uint32_t round)
{
    signals_raise(&comm->signals, there[round], bucket);
}

static bool messages_raised(const struct strategy *comm, uint64_t bucket, uint32_t round)
{
    return signals_reached(&comm->signals, there[round], strategy_workers(comm), bucket);
}

static dpb_status wait_messages(const struct strategy *comm, uint64_t bucket, uint32_t round)
{
    return strategy_wait(comm, there[round], strategy_workers(comm), bucket, DPB_FP32,
                         "the peer's encoded gradients");
}

const struct coded_carrier coded_shared = {raise_message, messages_raised, wait_messages,
                                           coded_decode};
