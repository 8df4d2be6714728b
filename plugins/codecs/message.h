/*
 * message.h - for all codecs: the check of a message's length, and codes of few bits in bytes.
 *
 * Codes of `bits` bits: byte j of a block of q bytes has the codes of elements j, q + j, 2q + j and
 * so on, lowest bits first. Neighbours lie in neighbouring bytes, so all loops vectorise.
 */
#ifndef DPB_PLUGINS_CODECS_MESSAGE_H
#define DPB_PLUGINS_CODECS_MESSAGE_H

#include "dpbench/plugin.h"

static inline uint64_t message_blocks(uint64_t n, uint64_t block)
{
    return (n + block - 1) / block;
}

/* For `decode`: refuses a message without exactly `wanted` bytes. */
static inline dpb_status message_check_length(const struct dpb_host *host, const char *codec,
                                              const struct dpb_codec_part *part, uint64_t bytes,
                                              uint64_t wanted)
{
    if (bytes == wanted)
        return DPB_OK;
    return host->fail(DPB_FAILED,
                      "codec %s: rank %u sent %llu bytes for %llu elements, not %llu: do all ranks "
                      "run the same training, with the same options of the codec?",
                      codec, part->rank, (unsigned long long)bytes, (unsigned long long)part->n,
                      (unsigned long long)wanted);
}

/* `codes` has 8 / bits elements for each of the bytes. */
static inline __attribute__((always_inline)) void message_pack(const uint8_t *restrict codes,
                                                               uint8_t *restrict bytes,
                                                               uint64_t n_bytes, uint32_t bits)
{
    for (uint64_t j = 0; j < n_bytes; j++) {
        uint8_t byte = codes[j];
        for (uint32_t c = 1; c < 8 / bits; c++)
            byte = (uint8_t)(byte | codes[c * n_bytes + j] << c * bits);
        bytes[j] = byte;
    }
}

static inline __attribute__((always_inline)) void message_unpack(const uint8_t *restrict bytes,
                                                                 uint8_t *restrict codes,
                                                                 uint64_t n_bytes, uint32_t bits)
{
    for (uint32_t c = 0; c < 8 / bits; c++)
        for (uint64_t j = 0; j < n_bytes; j++)
            codes[c * n_bytes + j] = bytes[j] >> c * bits & ((1u << bits) - 1);
}

#endif
