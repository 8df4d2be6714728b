/*
 * codec.c - how fast one core encodes and decodes, as `dpbench comm` measures it.
 *
 *     codec NAME|plain SECONDS [KEY=VALUE ...]
 *
 * KEY=VALUE are options of the codec. `plain` is what a codec at least has to do: one pass that
 * adds the gradients to the residual; to decode, one that adds a message of fp32 to the sum. Prints
 * one JSON object: GB/s of fp32 by the median time of a bucket of 4 MiB.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "bench/codec_rates.h"
#include "plan/experiment.h"

static uint64_t plain_bound(const void *options, uint64_t n)
{
    (void)options;
    return n * sizeof(float);
}

static uint64_t plain_encode(const void *options, const struct dpb_codec_part *part,
                             const float *gradients, float *residual, void *message)
{
    (void)message;
    for (uint64_t i = 0; i < part->n; i++)
        residual[i] += gradients[i];
    return plain_bound(options, part->n);
}

static dpb_status plain_decode(const void *options, const struct dpb_codec_part *part,
                               const void *message, uint64_t bytes, float *sum)
{
    const float *values = message;
    (void)options, (void)bytes;
    for (uint64_t i = 0; i < part->n; i++)
        sum[i] += values[i];
    return DPB_OK;
}

static const struct dpb_codec_ops plain_ops = {
    .bound = plain_bound, .encode = plain_encode, .decode = plain_decode};
static const struct dpb_option plain_rows[] = {DPB_CODEC_OPTION_ROWS, {0}};
static const struct dpb_plugin plain = {DPB_PLUGIN_HEAD(CODEC, plain_ops),
                                        .name = "plain",
                                        .version = DPB_VERSION,
                                        .summary = "a pass over memory",
                                        .options = plain_rows,
                                        .options_size = sizeof(struct dpb_codec_options)};

static dpb_status measure(int argc, char **argv, struct dpb_config *config,
                          struct dpb_codec_rate *rate)
{
    const struct dpb_plugin *plugin = &plain;
    if (argc < 3)
        return dpb_fail(DPB_USAGE, "usage: codec NAME|plain SECONDS [KEY=VALUE ...]");
    if (strcmp(argv[1], "plain") != 0)
        DPB_TRY(dpb_plugin_load(DPB_PLUGIN_CODEC, argv[1], NULL, &dpb_host, &plugin));
    for (int i = 3; i < argc; i++) {
        char assignment[128];
        snprintf(assignment, sizeof assignment, "comm.%s", argv[i]);
        DPB_TRY(dpb_config_assign(config, assignment, "command line"));
    }
    return dpb_codec_rate(plugin, config, atof(argv[2]), rate);
}

int main(int argc, char **argv)
{
    struct dpb_config *config = dpb_config_create();
    struct dpb_codec_rate rate = {0};
    dpb_status status =
        config ? measure(argc, argv, config, &rate) : dpb_fail(DPB_NO_MEMORY, "out of memory");
    if (status == DPB_OK)
        printf("{\"codec\": \"%s\", \"ratio\": %.6f, \"encode_gb_per_s\": %.4f, "
               "\"decode_gb_per_s\": %.4f}\n",
               argv[1], rate.ratio, rate.encode_gb_per_s, rate.decode_gb_per_s);
    dpb_config_destroy(config);
    return dpb_status_exit_code(status);
}
