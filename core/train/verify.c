/*
 * verify.c - a strategy is proven before it is timed.
 *
 * Pattern: weights are zero, every rank's gradient is a known pattern whose sum is exactly
 * representable in every gradient type and differs from element to element, so misplacement shows;
 * one plain step at rate 1 must leave minus the mean, bit for bit.
 *
 * Exchange: the same with random gradients of a wide range of magnitudes; each new weight against
 * the float64 sum within (W + 1) u sum|g|, u the unit roundoff of the gradient type.
 *
 * Both need no hook that returns a sum, and every rank can compute every other's gradient.
 */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/vec.h"
#include "dpbench/random.h"
#include "train/pattern.h"
#include "train/trainer.h"

/* Gradient of `rank` at element i, for a check. */
typedef double (*generator)(const struct dpb_trainer *trainer, uint32_t rank, uint64_t i);

static double pattern(const struct dpb_trainer *trainer, uint32_t rank, uint64_t i)
{
    (void)trainer;
    return dpb_pattern(rank, i, 0, DPB_PATTERN_LARGEST);
}

/* Uniform in [-1, 1), times a power of two between 2^-12 and 2^3. Made three times for each
 * element, so without a logarithm. */
static double noise(const struct dpb_trainer *trainer, uint32_t rank, uint64_t i)
{
    uint64_t seed = (uint64_t)trainer->experiment->settings.run.seed;
    struct dpb_random4 r =
        dpb_random(seed, DPB_STREAM_EXCHANGE, rank, (uint32_t)i, (uint32_t)(i >> 32), 0);
    int64_t mantissa = (int64_t)((uint64_t)r.v[0] << 32 | r.v[1]);
    return (double)mantissa * 0x1p-63 * ((double)(1u << (r.v[2] >> 28)) * 0x1p-12);
}

static double rounded(dpb_dtype type, double value)
{
    if (type == DPB_FP64)
        return value;
    return type == DPB_FP32 ? (double)(float)value
                            : (double)dpb_bf16_to_fp32(dpb_bf16_from_fp32((float)value));
}

static void store(dpb_dtype type, void *arena, uint64_t i, double value)
{
    if (type == DPB_FP64)
        ((double *)arena)[i] = value;
    else if (type == DPB_FP32)
        ((float *)arena)[i] = (float)value;
    else
        ((uint16_t *)arena)[i] = dpb_bf16_from_fp32((float)value);
}

static double weight_at(const struct dpb_trainer *trainer, const void *weights, uint64_t i)
{
    return trainer->layout.weight_type == DPB_FP64 ? ((const double *)weights)[i]
                                                   : (double)((const float *)weights)[i];
}

dpb_status dpb_workers_meet(struct dpb_trainer *trainer)
{
    char key[64];
    uint32_t meeting = trainer->meetings++;
    snprintf(key, sizeof key, "meet/%u/%u", meeting, dpb_world.rank);
    DPB_TRY(dpb_store.put(key, "", 0));
    for (uint32_t rank = 0; rank < trainer->experiment->n_workers; rank++) {
        size_t bytes = 0;
        snprintf(key, sizeof key, "meet/%u/%u", meeting, rank);
        DPB_TRY(dpb_store.get(key, key, &bytes, 0));
    }
    return DPB_OK;
}

/* One exchange of generated gradients, from zero weights, by a plain step at rate 1. *weights: what
 * comes of it, @borrowed until the next. */
static dpb_status exchange(struct dpb_trainer *trainer, generator generate, const void **weights)
{
    const struct dpb_layout *layout = &trainer->layout;
    uint64_t weight_bytes = dpb_arena_bytes(trainer, layout->weight_type);
    void *gradients;
    DPB_TRY(dpb_workers_meet(trainer)); /* nobody reads the arenas any more */
    DPB_TRY(dpb_arena_clear(trainer, trainer->arenas.weights, weight_bytes));
    DPB_TRY(dpb_arena_edit(trainer, trainer->arenas.gradients, &gradients));
    for (uint64_t i = 0; i < layout->n_elements; i++)
        store(layout->gradient_type, gradients, i, generate(trainer, dpb_world.rank, i));
    DPB_TRY(dpb_arena_commit(trainer, trainer->arenas.gradients,
                             dpb_arena_bytes(trainer, layout->gradient_type)));
    DPB_TRY(trainer->comm_ops->load(trainer->comm));
    DPB_TRY(dpb_exchange_begin(trainer, 1.0, 1.0 / trainer->replicas, true));
    DPB_TRY(dpb_exchange_ready(trainer, layout->n_elements, NULL));
    DPB_TRY(dpb_exchange_finish(trainer));
    return dpb_arena_look(trainer, trainer->arenas.weights, weight_bytes, weights);
}

static dpb_status wrong(const struct dpb_trainer *trainer, const char *check, uint64_t i, double is,
                        double expected, double bound)
{
    return dpb_fail(
        DPB_VERIFICATION,
        "%s check of comm '%s': element %llu (bucket %llu) is %.9g after the exchange, not "
        "%.9g (within %.3g); the strategy does not compute the mean gradient",
        check, trainer->experiment->settings.comm.name, (unsigned long long)i,
        (unsigned long long)(i / trainer->arenas.bucket_elements), is, expected, bound);
}

dpb_status dpb_verify_pattern(struct dpb_trainer *trainer)
{
    const struct dpb_experiment *x = trainer->experiment;
    bool fp64 = trainer->layout.weight_type == DPB_FP64;
    double scale = 1.0 / trainer->replicas;
    dpb_world_note("pattern", UINT64_MAX, UINT32_MAX);
    trainer->journal->verdict_pattern = DPB_VERDICT_FAIL;
    const void *weights;
    DPB_TRY(exchange(trainer, pattern, &weights));
    bool local = x->plugins[DPB_PLUGIN_COMM]->capabilities & DPB_COMM_LOCAL;
    for (uint64_t i = 0; i < trainer->layout.n_elements; i++) {
        double sum = 0.0;
        for (uint32_t rank = 0; rank < x->n_workers; rank++)
            if (!local || rank == dpb_world.rank)
                sum += pattern(trainer, rank, i);
        double expected = fp64 ? -(scale * sum) : -(double)((float)scale * (float)sum);
        double is = weight_at(trainer, weights, i);
        if (is != expected)
            return wrong(trainer, "pattern", i, is, expected, 0.0);
    }
    trainer->journal->verdict_pattern = local ? DPB_VERDICT_NOT_APPLICABLE : DPB_VERDICT_PASS;
    return DPB_OK;
}

dpb_status dpb_verify_exchange(struct dpb_trainer *trainer)
{
    static const double roundoff[] = {
        [DPB_FP64] = 0x1p-53, [DPB_FP32] = 0x1p-24, [DPB_BF16] = 0x1p-8};
    const struct dpb_experiment *x = trainer->experiment;
    dpb_dtype type = trainer->layout.gradient_type;
    double scale = 1.0 / trainer->replicas;
    dpb_world_note("exchange check", UINT64_MAX, UINT32_MAX);
    trainer->journal->verdict_exchange = DPB_VERDICT_FAIL;
    const void *weights;
    DPB_TRY(exchange(trainer, noise, &weights));
    for (uint64_t i = 0; i < trainer->layout.n_elements; i++) {
        double sum = 0.0, magnitude = 0.0;
        for (uint32_t rank = 0; rank < x->n_workers; rank++) {
            double g = rounded(type, noise(trainer, rank, i));
            sum += g;
            magnitude += fabs(g);
        }
        double bound = (x->n_workers + 1.0) * roundoff[type] * magnitude * scale;
        double is = weight_at(trainer, weights, i);
        if (!(fabs(is + sum * scale) <= bound))
            return wrong(trainer, "exchange", i, is, -sum * scale, bound);
    }
    trainer->journal->verdict_exchange = DPB_VERDICT_PASS;
    return DPB_OK;
}

/* ---- replicas ------------------------------------------------------------------------------ */

dpb_status dpb_verify_replicas(struct dpb_trainer *trainer)
{
    const struct dpb_experiment *x = trainer->experiment;
    struct dpb_journal *journal = trainer->journal;
    struct dpb_view view;
    dpb_world_note("replicas", UINT64_MAX, UINT32_MAX);
    const void *weights;
    dpb_dtype type = trainer->layout.weight_type;
    DPB_TRY(trainer->comm_ops->publish(trainer->comm, &view));
    DPB_TRY(dpb_arena_look(trainer, view.weights, dpb_arena_bytes(trainer, type), &weights));
    journal->checksum = dpb_vec.checksum(type, weights, trainer->layout.n_elements);
    if (!(x->plugins[DPB_PLUGIN_COMM]->capabilities & DPB_COMM_BITWISE)) {
        journal->verdict_replicas = DPB_VERDICT_NOT_APPLICABLE;
        return DPB_OK;
    }
    char key[64];
    snprintf(key, sizeof key, "replica/%u", dpb_world.rank);
    DPB_TRY(dpb_store.put(key, &journal->checksum, sizeof journal->checksum));
    uint64_t first = 0;
    for (uint32_t rank = 0; rank < x->n_workers; rank++) {
        uint64_t checksum;
        size_t bytes = sizeof checksum;
        snprintf(key, sizeof key, "replica/%u", rank);
        DPB_TRY(dpb_store.get(key, &checksum, &bytes, 0));
        first = rank == 0 ? checksum : first;
        if (checksum == first)
            continue;
        journal->verdict_replicas = DPB_VERDICT_FAIL;
        return dpb_fail(
            DPB_VERIFICATION,
            "replicas differ after step %llu: the weights of rank 0 have checksum %016llx, "
            "those of rank %u %016llx; comm '%s' promises equal bits",
            (unsigned long long)trainer->step, (unsigned long long)first, rank,
            (unsigned long long)checksum, x->settings.comm.name);
    }
    journal->verdict_replicas = DPB_VERDICT_PASS;
    return DPB_OK;
}
