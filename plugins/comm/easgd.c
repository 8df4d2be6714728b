/*
 * easgd - elastic averaging: every worker trains a replica of its own, which a centre z draws.
 *
 *     each step:         w_i <- optimizer(w_i, g_i)
 *     each period-th:    c_i = alpha (w_i before its update - z)      (lib/averaging.h)
 *                        w_i <- w_i - c_i
 *                        z <- z + c_1 + ... + c_W
 *
 * Weight decay is the optimizer's, of w_i before the update. The model is z.
 *
 * Bytes moved per meeting and rank, M bytes of weights: M of z and (W - 1)/W M of c read, M / W of
 * z read and written. None in other steps.
 *
 * Zhang, Choromanska, LeCun: Deep learning with elastic averaging SGD. NIPS 2015, algorithm 1 with
 * all workers in the same step.
 */
#include "dpbench/plugin.h"
#include "lib/averaging.h"

static const struct dpb_host *host;

static const struct dpb_option option_rows[] = {
    {"period", DPB_OPT_INT, "steps", "4", 1, 4096, NULL, AVERAGING_AT(period), AVERAGING_PERIOD},
    {"alpha", DPB_OPT_REAL, NULL, "0", 0, 1, NULL, AVERAGING_AT(alpha),
     AVERAGING_ALPHA "0.9 / workers"},
    {0}};

static struct averaging_rule rule_of(const struct averaging_options *options, uint32_t n_workers)
{
    return (struct averaging_rule){.period = (uint64_t)options->period,
                                   .centre = true,
                                   .alpha = options->alpha > 0 ? options->alpha : 0.9 / n_workers};
}

static dpb_status easgd_open(const void *options, const struct dpb_comm_args *args, void **comm)
{
    const struct averaging_rule rule = rule_of(options, args->n_workers);
    return averaging_open(host, args, &rule, comm);
}

static void easgd_memory(const void *options, const struct dpb_comm_args *args,
                         const struct dpb_layout *layout, uint64_t bucket_elements,
                         struct dpb_comm_memory *memory)
{
    const struct averaging_rule rule = rule_of(options, args->n_workers);
    averaging_memory(&rule, args, layout, bucket_elements, memory);
}

static const struct dpb_comm_ops easgd_ops = {
    .memory = easgd_memory, .open = easgd_open, AVERAGING_HOOKS};

static const struct dpb_plugin easgd = {
    DPB_PLUGIN_HEAD(COMM, easgd_ops),
    .capabilities = DPB_COMM_OVERLAP,
    .name = "easgd",
    .version = DPB_VERSION,
    .summary = "elastic averaging: replicas that a centre draws every period steps",
    .options = option_rows,
    .options_size = sizeof(struct averaging_options),
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &easgd;
}
