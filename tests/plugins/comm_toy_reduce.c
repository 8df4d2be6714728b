/*
 * toy_reduce - a reduction on reduce.h for tests of contracts, in two rounds. By a sum the
 * workers assure themselves that all send the same half of the bucket, which their state names.
 * Then they gather this half; the other one stays in the residual. comm_toy_reduce_exact.c has it
 * without a residual: all is sent. comm_toy_reduce_rounded.c sends the upper half of each number.
 *
 * `mistake`, from exchange `from` on, is what a proof must find.
 */
#include <stddef.h>
#include <string.h>

#include "lib/reduce/reduce.h"

#ifndef TOY
#define TOY "toy_reduce"
#define RESIDUAL true
#define ROUNDINGS 0
#endif

enum mistake { NONE, LOST, DOUBLED, COEFFICIENT, FORGOTTEN, SILENT, LONG, TWICE, OTHER };
static const char *const mistakes[] = {"none",   "lost", "doubled", "coefficient", "forgotten",
                                       "silent", "long", "twice",   "other",       NULL};

struct options {
    int mistake;
    int64_t from;
};

static const struct dpb_option option_table[] = {
    {"mistake", DPB_OPT_CHOICE, NULL, "none", 0, 0, mistakes, offsetof(struct options, mistake),
     "lost: the last worker's gradients of bucket 0; doubled: the same; coefficient: times 1.001; "
     "forgotten: the residual; silent: no message; long, twice: a message that is too long, or one "
     "beside another; other: of another length than the first worker's",
     NULL},
    {"from", DPB_OPT_INT, "exchange", "0", 0, 1e9, NULL, offsetof(struct options, from),
     "first exchange with it", NULL},
    {0}};

static int64_t n_exchanges; /* of bucket 0 in this process */

static bool wrong(const struct dpb_reduce_bucket *bucket, enum mistake mistake)
{
    const struct options *options = bucket->options;
    return (enum mistake)options->mistake == mistake && n_exchanges > options->from;
}

static float *values_of(const struct dpb_reduce_bucket *bucket)
{
    return bucket->residual ? bucket->residual : bucket->gradients;
}

static bool is_sent(const struct dpb_reduce_bucket *bucket, uint64_t i)
{
    return !bucket->residual || i % 2 == (uint64_t)bucket->state[0] % 2;
}

static dpb_status add(struct dpb_reduce_bucket *bucket)
{
    memset(bucket->gradients, 0, bucket->n * sizeof(float));
    for (uint32_t rank = 0; rank < bucket->n_workers; rank++) {
        const float *sent = bucket->messages[rank].content;
        for (uint64_t i = 0; i < bucket->n; i++)
            if (is_sent(bucket, i))
                bucket->gradients[i] += wrong(bucket, COEFFICIENT) ? 1.001F * *sent++ : *sent++;
    }
    return DPB_OK;
}

static dpb_status send_values(struct dpb_reduce_bucket *bucket)
{
    const bool last = bucket->number == 0 && bucket->rank + 1 == bucket->n_workers;
    float *values = values_of(bucket), *message = bucket->message;
    uint64_t n = 0;
    if (message[0] != bucket->state[0] * (float)(bucket->n_workers * (bucket->n_workers + 1) / 2))
        return bucket->host->fail(DPB_FAILED, "comm '" TOY "': the workers send other halves");
    for (uint64_t i = 0; i < bucket->n; i++) {
        if (!is_sent(bucket, i))
            continue;
        message[n] = values[i] * (last && wrong(bucket, DOUBLED) ? 2.0F : 1.0F);
        if (last && wrong(bucket, LOST))
            message[n] = 0.0F;
        if (ROUNDINGS > 0)
            memset(&message[n], 0, sizeof *message / 2);
        values[i] = 0.0F;
        n++;
    }
    return dpb_reduce_gather(bucket, n * sizeof *message, add);
}

static dpb_status agree(struct dpb_reduce_bucket *bucket)
{
    n_exchanges += bucket->number == 0;
    bucket->state[0] += 1.0F;
    for (uint64_t i = 0; i < bucket->n && bucket->residual; i++)
        bucket->residual[i] =
            (wrong(bucket, FORGOTTEN) ? 0.0F : bucket->residual[i]) + bucket->gradients[i];
    if (wrong(bucket, SILENT))
        return DPB_OK;
    *(float *)bucket->message = bucket->state[0] * (float)(bucket->rank + 1);
    if (wrong(bucket, TWICE))
        DPB_TRY(dpb_reduce_sum(bucket, 1, send_values));
    const uint64_t n = wrong(bucket, OTHER) && bucket->rank > 0 ? 2 : 1;
    return dpb_reduce_sum(bucket, wrong(bucket, LONG) ? bucket->n + 100 : n, send_values);
}

static uint64_t one(const void *options, uint64_t n)
{
    (void)options, (void)n;
    return 1;
}

static const struct dpb_reduce_strategy toy = {
    .reduce = agree, .residual = RESIDUAL, .state_elements = one, .roundings = ROUNDINGS};
DPB_REDUCE_PLUGIN(toy, .name = TOY, .version = "1", .summary = "for tests of contracts",
                  .options = option_table, .options_size = sizeof(struct options));
