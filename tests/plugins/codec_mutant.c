/*
 * mutant - sends every other element as it is, with mistakes that a proof must find.
 *
 *   forgotten  what the message lacks is not kept
 *   lost       the last rank's messages of bucket 0 decode to nothing
 *   doubled    ... to twice their elements
 *   length     a message is longer than it says: decoding refuses it
 *   unsaid     ... by all but 8 bytes, and decoding reads all of it
 *   beyond     a message says one byte more than `bound`
 *   silent     nobody ever sends anything, and all is kept
 *   integers   gradients that are no multiples of 1/64 are thrown away
 */
#include <math.h>
#include <string.h>

#include "dpbench/plugin.h"

enum mistake { NONE, FORGOTTEN, LOST, DOUBLED, LENGTH, UNSAID, BEYOND, SILENT, INTEGERS };
static const char *const mistakes[] = {"none",   "forgotten", "lost",   "doubled",  "length",
                                       "unsaid", "beyond",    "silent", "integers", NULL};
enum { SAID = 8 /* bytes */ };

struct options {
    struct dpb_codec_options base;
    int mistake;
    int64_t from, until, rank;
};

static const struct dpb_option option_rows[] = {
    DPB_CODEC_OPTION_ROWS,
    {"codec_mistake", DPB_OPT_CHOICE, NULL, "none", 0, 0, mistakes,
     offsetof(struct options, mistake), "which", NULL},
    {"codec_from", DPB_OPT_INT, "step", "0", 0, 1e9, NULL, offsetof(struct options, from),
     "first step since the weights were loaded", NULL},
    {"codec_until", DPB_OPT_INT, "step", "1000000000", 0, 1e9, NULL,
     offsetof(struct options, until), "first step without it", NULL},
    {"codec_rank", DPB_OPT_INT, NULL, "0", 0, 1e9, NULL, offsetof(struct options, rank), "whose",
     NULL},
    {0}};

static const struct dpb_host *host;

static bool wrong(const struct options *options, const struct dpb_codec_part *part,
                  enum mistake mistake)
{
    const bool all = mistake != LOST && mistake != DOUBLED; /* buckets */
    return (enum mistake)options->mistake == mistake && part->step >= (uint64_t)options->from &&
           part->step < (uint64_t)options->until && (part->first == 0 || all) &&
           (part->rank == (uint32_t)options->rank || mistake == SILENT);
}

static uint64_t mutant_bound(const void *options, uint64_t n)
{
    (void)options;
    return n * sizeof(float);
}

static uint64_t mutant_encode(const void *options, const struct dpb_codec_part *part,
                              const float *gradients, float *residual, void *message)
{
    float *values = message;
    for (uint64_t i = 0; i < part->n; i++) {
        const bool sent = (i + part->step) % 2 == 0 && !wrong(options, part, SILENT);
        const bool kept = !wrong(options, part, INTEGERS) || fmodf(gradients[i], 1.0F / 64) == 0;
        const float value = (kept ? gradients[i] : 0.0F) + residual[i];
        values[i] = sent ? value : 0.0F;
        residual[i] = sent || wrong(options, part, FORGOTTEN) ? 0.0F : value;
    }
    if (wrong(options, part, UNSAID))
        return SAID;
    return mutant_bound(options, part->n) - (wrong(options, part, LENGTH) ? 1 : 0) +
           (wrong(options, part, BEYOND) ? 1 : 0);
}

static dpb_status mutant_decode(const void *options, const struct dpb_codec_part *part,
                                const void *message, uint64_t bytes, float *sum)
{
    const float *values = message;
    const float factor = wrong(options, part, LOST)      ? 0.0F
                         : wrong(options, part, DOUBLED) ? 2.0F
                                                         : 1.0F;
    const bool unsaid = bytes == SAID && wrong(options, part, UNSAID);
    if (bytes != mutant_bound(options, part->n) && !unsaid)
        return host->fail(DPB_FAILED, "codec mutant: rank %u sent %llu bytes for %llu elements",
                          part->rank, (unsigned long long)bytes, (unsigned long long)part->n);
    for (uint64_t i = 0; i < part->n; i++)
        sum[i] += factor * values[i];
    return DPB_OK;
}

static const struct dpb_codec_ops mutant_ops = {
    .bound = mutant_bound, .encode = mutant_encode, .decode = mutant_decode};

static const struct dpb_plugin mutant = {
    DPB_PLUGIN_HEAD(CODEC, mutant_ops),
    .name = "mutant",
    .version = DPB_VERSION,
    .summary = "every other element, with mistakes",
    .options = option_rows,
    .options_size = sizeof(struct options),
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &mutant;
}
