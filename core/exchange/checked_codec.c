/* checked_codec.c - see checked_codec.h. */
#include "exchange/checked_codec.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/log.h"
#include "base/secret.h"
#include "dpbench/random.h"

enum {
    ONE_IN = 64,   /* drawn messages: three times the work of an unchecked one */
    BEHIND = 4096, /* bytes behind the longest message that are not the message's, either */
    POISON = 0xff  /* NaN in a value, out of range in an index */
};

static struct {
    struct dpb_codec codec, plugin;
    struct dpb_codec_ops ops;
    uint64_t key, most_elements;
    bool all;
    pthread_mutex_t lock; /* guards the memory */
    unsigned char *message, *sum;
    size_t message_bytes, sum_bytes;
} checked = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_drawn(const struct dpb_codec_part *part)
{
    const struct dpb_random4 word =
        dpb_random(checked.key, DPB_STREAM_SEAL, (uint32_t)part->step, (uint32_t)part->first,
                   part->rank, (uint32_t)(part->first >> 32));
    return word.v[0] % ONE_IN == 0;
}

static bool are_equal(const float *a, const float *b, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (a[i] != b[i] && !(isnan(a[i]) && isnan(b[i])))
            return false;
    return true;
}

/* Decodes the copy; the codec's own message about it would hide the cause. */
static dpb_status decode_copy(const void *options, const struct dpb_codec_part *part,
                              const void *message, uint64_t bytes, float *sum)
{
    memcpy(checked.message, message, bytes);
    memset(checked.message + bytes, POISON, checked.message_bytes - bytes);
    dpb_fail_mute(true);
    const dpb_status status =
        checked.plugin.ops->decode(options, part, checked.message, bytes, sum);
    dpb_fail_mute(false);
    return status;
}

/* With the lock. */
static dpb_status decode_twice(const void *options, const struct dpb_codec_part *part,
                               const void *message, uint64_t bytes, float *sum)
{
    /* Aligned as `sum`: then the same instructions add the same elements. */
    float *again = (float *)(void *)(checked.sum + (uintptr_t)sum % DPB_CACHE_LINE);
    memcpy(again, sum, part->n * sizeof *sum);
    DPB_TRY(checked.plugin.ops->decode(options, part, message, bytes, sum));
    return decode_copy(options, part, message, bytes, again) == DPB_OK &&
                   are_equal(again, sum, part->n)
               ? DPB_OK
               : dpb_fail(DPB_VERIFICATION,
                          "codec '%s': decode reads more than the %llu bytes that encode reported "
                          "on rank %u: with other bytes behind them the sum is another",
                          checked.plugin.name, (unsigned long long)bytes, part->rank);
}

static dpb_status decode(const void *options, const struct dpb_codec_part *part,
                         const void *message, uint64_t bytes, float *sum)
{
    const uint64_t bound = checked.plugin.ops->bound(options, part->n);
    if (bytes > bound)
        return dpb_fail(DPB_VERIFICATION,
                        "codec '%s': rank %u's message of %llu elements has %llu bytes, and at "
                        "most %llu by the codec's `bound`",
                        checked.plugin.name, part->rank, (unsigned long long)part->n,
                        (unsigned long long)bytes, (unsigned long long)bound);
    if (!__atomic_load_n(&checked.all, __ATOMIC_RELAXED) && !is_drawn(part))
        return checked.plugin.ops->decode(options, part, message, bytes, sum);
    if (part->n > checked.most_elements)
        return dpb_fail(DPB_FAILED,
                        "codec '%s': a message of %llu elements; the longest bucket has %llu",
                        checked.plugin.name, (unsigned long long)part->n,
                        (unsigned long long)checked.most_elements);
    pthread_mutex_lock(&checked.lock);
    const dpb_status status = decode_twice(options, part, message, bytes, sum);
    pthread_mutex_unlock(&checked.lock);
    return status;
}

const struct dpb_codec *dpb_checked_codec(const struct dpb_codec *codec)
{
    if (!codec || codec->ops->finish)
        return codec;
    dpb_random_bytes(&checked.key, sizeof checked.key);
    checked.plugin = checked.codec = *codec;
    checked.ops = *codec->ops;
    checked.ops.decode = decode;
    checked.codec.ops = &checked.ops;
    return &checked.codec;
}

dpb_status dpb_checked_codec_allocate(uint64_t most_elements)
{
    if (!checked.codec.ops)
        return DPB_OK;
    checked.most_elements = most_elements;
    checked.message_bytes =
        checked.plugin.ops->bound(checked.plugin.options, most_elements) + BEHIND;
    checked.sum_bytes = most_elements * sizeof(float) + DPB_CACHE_LINE;
    checked.message = dpb_alloc(checked.message_bytes);
    checked.sum = dpb_alloc(checked.sum_bytes);
    return checked.message && checked.sum ? DPB_OK : DPB_NO_MEMORY;
}

void dpb_checked_codec_all(bool all)
{
    __atomic_store_n(&checked.all, all, __ATOMIC_RELAXED);
}

void dpb_checked_codec_release(void)
{
    dpb_release(checked.message, checked.message ? checked.message_bytes : 0);
    dpb_release(checked.sum, checked.sum ? checked.sum_bytes : 0);
    checked.message = checked.sum = NULL;
    checked.codec.ops = NULL;
}
