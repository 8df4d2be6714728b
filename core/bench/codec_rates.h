/*
 * codec_rates.h - the speed at which each codec encodes and decodes on one core of this machine,
 * and the links on which the codec pays.
 *
 * A ring of W workers sends 2 (W - 1)/W x 4 bytes an element, or with a codec (W - 1) x 4 r bytes,
 * r being the message's share of fp32. A worker encodes an element once and decodes it W times. So
 * a codec wins on links below
 *
 *     4 (W - 1) (2/W - r) / (encode + W decode)   bytes a second,
 *
 * with the times of an element. Messages of two rounds are summed as gradients are, which is 2 (W -
 * 1)/W x 4 r bytes, and no worker decodes them:
 *
 *     4 x 2 (W - 1)/W (1 - r) / encode   bytes a second.
 *
 * No part of the times is assumed to be hidden behind computing.
 */
#ifndef DPB_CORE_BENCH_CODEC_RATES_H
#define DPB_CORE_BENCH_CODEC_RATES_H

#include <jansson.h>
#include <stdio.h>

#include "base/config.h"
#include "plugin/plugins.h"

struct dpb_codec_rate {
    double ratio;                            /* bytes of a message to those of fp32 */
    double encode_gb_per_s, decode_gb_per_s; /* of fp32 */
    bool sums;                               /* a codec of two rounds */
};

/* Measures with the options of [comm] in `config`, on the calling thread. */
dpb_status dpb_codec_rate(const struct dpb_plugin *plugin, const struct dpb_config *config,
                          double seconds, struct dpb_codec_rate *rate);

/* *codecs, @owned: an array with an object for each codec that a strategy of these capabilities
 * carries, with the codec's defaults. */
dpb_status dpb_codec_rates_measure(uint64_t capabilities, json_t **codecs);
void dpb_codec_rates_print(const json_t *codecs, FILE *out);

#endif
