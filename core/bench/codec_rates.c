/* codec_rates.c - see codec_rates.h. */
#include "bench/codec_rates.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/log.h"
#include "base/options.h"
#include "base/stats.h"
#include "dpbench/random.h"
#include "plan/experiment.h"

enum { ELEMENTS = 1 << 20 /* a bucket of 4 MiB */, LEAST = 5, MOST = 512 /* repetitions */ };
static const struct dpb_tensor matrix = {
    .n_dims = 2, .dims = {ELEMENTS >> 10, 1 << 10}, .n_elements = ELEMENTS};
/* Each step's gradients begin further on than the step's before: the same gradients in each step
 * would leave residuals that no training has. */
enum { STRIDE = 16 * 61, SHIFTS = 64, GRADIENTS = ELEMENTS + STRIDE * SHIFTS };

static const double seconds_of_a_codec = 0.05;
static const uint32_t workers[] = {2, 4, 8};
enum { N_WORKERS = sizeof workers / sizeof *workers };

/* A bucket, and the results of coding it. */
struct bucket {
    float *gradients, *sum, *state, *decoded;
    float *residual; /* then, for a codec with a velocity, the velocity and its addition */
    void *message;
    uint64_t bytes;
    double encode_ns[MOST], decode_ns[MOST];
};

static void release(struct bucket *bucket)
{
    free(bucket->gradients);
    free(bucket->residual);
    free(bucket->sum);
    free(bucket->state);
    free(bucket->decoded);
    free(bucket->message);
}

static dpb_status fill(struct bucket *bucket, uint64_t bound, uint64_t n_state)
{
    const uint64_t lines = bound / DPB_CACHE_LINE + 1;
    bucket->state = calloc(n_state + 1, sizeof(float));
    bucket->decoded = calloc(ELEMENTS, sizeof(float));
    bucket->gradients = malloc(GRADIENTS * sizeof(float));
    bucket->residual = calloc(UINT64_C(3) * ELEMENTS, sizeof(float));
    bucket->sum = calloc(ELEMENTS, sizeof(float));
    bucket->message = aligned_alloc(DPB_CACHE_LINE, lines * DPB_CACHE_LINE);
    DPB_TRY(dpb_allocated(bucket->gradients && bucket->residual && bucket->sum && bucket->state &&
                          bucket->decoded && bucket->message));
    memset(bucket->message, 0, lines * DPB_CACHE_LINE);
    for (uint32_t i = 0; i < GRADIENTS; i++) {
        const struct dpb_random4 r = dpb_random(1, DPB_STREAM_EXCHANGE, 0, i, 0, 0);
        double value = 0; /* the sum of four numbers is nearly normal */
        for (int k = 0; k < 4; k++)
            value += (double)r.v[k] * 0x1p-32 - 0.5;
        bucket->gradients[i] = (float)(0.01 * value);
    }
    return DPB_OK;
}

/* The thread's own time: others that share the core do not count. */
static int64_t own_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

/* One round of the only worker. `finish` is done once, whatever the number of workers: it counts to
 * encoding. */
static dpb_status pass(const struct dpb_codec_ops *ops, const void *options,
                       const struct dpb_codec_part *part, const float *gradients,
                       struct bucket *bucket, size_t n)
{
    if (ops->finish)
        memset(bucket->sum, 0, ops->bytes(options, part));
    const int64_t began_ns = own_ns();
    const uint64_t bytes = ops->encode(options, part, gradients, bucket->residual, bucket->message);
    const int64_t encoded_ns = own_ns();
    DPB_TRY(ops->decode(options, part, bucket->message, bytes, bucket->sum));
    const int64_t decoded_ns = own_ns();
    bucket->bytes += bytes;
    bucket->encode_ns[n] += (double)(encoded_ns - began_ns);
    bucket->decode_ns[n] += (double)(decoded_ns - encoded_ns);
    if (!ops->finish)
        return DPB_OK;
    memcpy(bucket->decoded, gradients, ELEMENTS * sizeof *gradients);
    const int64_t finishes_ns = own_ns();
    ops->finish(options, part, bucket->sum, bucket->decoded, bucket->residual);
    bucket->encode_ns[n] += (double)(own_ns() - finishes_ns);
    return DPB_OK;
}

/* Encodes and decodes again and again, each time with the residual of the time before. */
static dpb_status repeat(const struct dpb_plugin *plugin, const void *options, double seconds,
                         struct bucket *bucket, size_t *n)
{
    const struct dpb_codec_ops *ops = plugin->ops;
    const uint32_t n_rounds = ops->finish ? DPB_CODEC_ROUNDS : 1;
    const bool moves = ops->velocity && ops->velocity(options);
    struct dpb_codec_part part = {.n = ELEMENTS,
                                  .seed = 1,
                                  .n_workers = 1,
                                  .state = bucket->state,
                                  .velocity = moves ? bucket->residual + ELEMENTS : NULL,
                                  .added = bucket->residual + UINT64_C(2) * ELEMENTS,
                                  .tensors = &matrix,
                                  .n_tensors = 1};
    const int64_t until_ns = dpb_host.now_ns() + (int64_t)(seconds * 1e9);
    for (*n = 0; *n < MOST && (*n < LEAST || dpb_host.now_ns() < until_ns); (*n)++, part.step++) {
        const float *gradients = bucket->gradients + *n * 37 % SHIFTS * STRIDE;
        bucket->bytes = 0;
        for (part.round = 0; part.round < n_rounds; part.round++)
            DPB_TRY(pass(ops, options, &part, gradients, bucket, *n));
    }
    return DPB_OK;
}

/* By the median time. */
static double gb_per_s(double *times_ns, size_t n)
{
    dpb_sort(times_ns, n);
    return ELEMENTS * sizeof(float) / dpb_quantile_of_sorted(times_ns, n, 0.5);
}

static dpb_status measure(const struct dpb_plugin *plugin, const void *options, double seconds,
                          struct dpb_codec_rate *rate)
{
    const struct dpb_codec_ops *ops = plugin->ops;
    struct bucket *bucket = calloc(1, sizeof *bucket);
    size_t n = 0;
    DPB_TRY(dpb_allocated(bucket));
    const struct dpb_codec_part whole = {.n = ELEMENTS, .tensors = &matrix, .n_tensors = 1};
    dpb_status status =
        fill(bucket, ops->bound(options, ELEMENTS), ops->finish ? ops->state(options, &whole) : 0);
    DPB_THEN(status, repeat(plugin, options, seconds, bucket, &n));
    if (status == DPB_OK)
        *rate = (struct dpb_codec_rate){.ratio = (double)bucket->bytes / (ELEMENTS * sizeof(float)),
                                        .encode_gb_per_s = gb_per_s(bucket->encode_ns, n),
                                        .decode_gb_per_s = gb_per_s(bucket->decode_ns, n),
                                        .sums = ops->finish};
    release(bucket);
    free(bucket);
    return status;
}

dpb_status dpb_codec_rate(const struct dpb_plugin *plugin, const struct dpb_config *config,
                          double seconds, struct dpb_codec_rate *rate)
{
    void *options = calloc(1, plugin->options_size);
    const struct dpb_option_table table = {"comm", plugin->name, plugin->options, options};
    dpb_status status = dpb_allocated(options);
    DPB_THEN(status, dpb_options_parse_known(&table, config));
    DPB_THEN(status, measure(plugin, options, seconds, rate));
    free(options);
    return status;
}

/* The speed of a worker's link, in Gbit/s, below which the codec wins with `n` workers; 0: on none.
 */
static double wins_below(const struct dpb_codec_rate *rate, uint32_t n)
{
    const double w = n, sent = rate->sums ? 2 / w * rate->ratio : rate->ratio;
    const double saved_bytes = 4 * (w - 1) * (2 / w - sent);
    const double decode_ns = rate->sums ? 0 : w * 4 / rate->decode_gb_per_s;
    const double element_ns = 4 / rate->encode_gb_per_s + decode_ns;
    return saved_bytes > 0 ? 8 * saved_bytes / element_ns : 0;
}

/* ---- all codecs ---------------------------------------------------------------------------- */

static json_t *rate_to_json(const char *name, const struct dpb_codec_rate *rate)
{
    json_t *wins = json_array();
    for (size_t i = 0; i < N_WORKERS; i++)
        json_array_append_new(wins,
                              json_pack("{s:I, s:o}", "workers", (json_int_t)workers[i],
                                        "gbit_per_s", dpb_json_real(wins_below(rate, workers[i]))));
    return json_pack("{s:s, s:o, s:o, s:o, s:o}", "name", name, "ratio", dpb_json_real(rate->ratio),
                     "encode_gb_per_s", dpb_json_real(rate->encode_gb_per_s), "decode_gb_per_s",
                     dpb_json_real(rate->decode_gb_per_s), "wins_below", wins);
}

static bool is_carried(const struct dpb_plugin *codec, uint64_t capabilities)
{
    const struct dpb_codec_ops *ops = codec->ops;
    return capabilities & (ops->finish ? DPB_COMM_ROUNDS : DPB_COMM_CODECS);
}

dpb_status dpb_codec_rates_measure(uint64_t capabilities, json_t **codecs)
{
    struct dpb_plugin_row *rows = NULL;
    struct dpb_config *defaults = dpb_config_create();
    json_t *list = json_array();
    size_t n = 0;
    dpb_status status = dpb_allocated(defaults && list);
    DPB_THEN(status, dpb_plugin_list(&dpb_host, 1u << DPB_PLUGIN_CODEC, NULL, &rows, &n));
    for (size_t i = 0; i < n && status == DPB_OK; i++) {
        struct dpb_codec_rate rate;
        if (!rows[i].plugin || !is_carried(rows[i].plugin, capabilities))
            continue;
        status = dpb_codec_rate(rows[i].plugin, defaults, seconds_of_a_codec, &rate);
        if (status == DPB_OK)
            json_array_append_new(list, rate_to_json(rows[i].plugin->name, &rate));
    }
    free(rows);
    dpb_config_destroy(defaults);
    if (status == DPB_OK)
        *codecs = list;
    else
        json_decref(list);
    return status;
}

static void print_codec(const json_t *codec, FILE *out)
{
    fprintf(out, "%11s %11.4f  %11.2f  %11.2f", dpb_json_text(codec, "name", "?"),
            dpb_json_number(codec, "ratio"), dpb_json_number(codec, "encode_gb_per_s"),
            dpb_json_number(codec, "decode_gb_per_s"));
    dpb_each_item(json_object_get(codec, "wins_below"), i, one) {
        const double speed = dpb_json_number(one, "gbit_per_s");
        if (speed > 0)
            fprintf(out, " %11.2f", speed);
        else
            fprintf(out, " %11s", "never");
    }
    fputc('\n', out);
}

void dpb_codec_rates_print(const json_t *codecs, FILE *out)
{
    if (json_array_size(codecs) == 0)
        return;
    fprintf(out,
            "codecs on one core, and the links in Gbit/s below which messages take a ring less "
            "time than gradients:\n"
            "      codec     of fp32  encode GB/s  decode GB/s");
    for (size_t k = 0; k < N_WORKERS; k++)
        fprintf(out, " %3u workers", workers[k]);
    fputc('\n', out);
    dpb_each_item(codecs, i, codec)
        print_codec(codec, out);
}
